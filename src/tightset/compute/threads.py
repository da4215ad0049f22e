"""Work spread over threads, each with a single-threaded BLAS; or over a cluster, if joblib is configured for one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Self, TypeVar

from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

__all__ = ["StoppedError", "Threads", "cores", "openmp_for", "threads_for"]

_ROWS_PER_THREAD = 5_000  # of OpenMP, in a classifier of scikit-learn

T = TypeVar("T")
R = TypeVar("R")


class StoppedError(Exception):
    """Raised inside a task whose result nobody waits for any more."""


def cores() -> int:
    """How many threads this process may keep busy, told in no time; `Threads` asks BLAS, which takes milliseconds."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) > 0 else cpu_count()


def threads_for(rows: int) -> int:
    """How many threads a classifier is worth on so many rows; see `openmp_for`."""
    return max(1, min(cores(), rows // _ROWS_PER_THREAD))


@contextmanager
def openmp_for(rows: int) -> Iterator[None]:
    """No more threads of OpenMP than so many rows keep busy; never more than there were.

    Gradient boosting meets at thousands of barriers, where its threads spin: where another process has the core of one
    of them, the others wait for it. On few rows they gain nothing, and on a busy machine they cost twenty times.
    """
    libraries = _openmp_libraries(len(sys.modules))
    may = max((one.num_threads for one in libraries.lib_controllers), default=1)
    with libraries.limit(limits=max(1, min(may, rows // _ROWS_PER_THREAD))):
        yield


@lru_cache(maxsize=1)
def _openmp_libraries(modules: int) -> ThreadpoolController:  # noqa: ARG001 - an import may bring another library
    """To look for them takes milliseconds, which predictions of one row have not."""
    return ThreadpoolController().select(user_api="openmp")


class Threads:
    """A context in which `map` runs in ``n_jobs`` threads, by default as many as BLAS may use, at most ``at_most``.

    `spread` does the same, unless it is called inside ``joblib.parallel_config(backend="dask")`` (or another backend
    that does not belong to joblib itself): then the tasks go where that backend sends them.
    """

    def __init__(self, n_jobs: int | None = None, *, at_most: int | None = None) -> None:
        self._asked, self._at_most = n_jobs, at_most
        self._pool: ThreadPoolExecutor | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        asked = None if self._asked is None else effective_n_jobs(self._asked)
        cores = _single_blas.enter()
        self._stop.clear()
        workers = cores if asked is None else asked
        workers = workers if self._at_most is None else min(workers, self._at_most)
        if workers > 1:
            self._pool = ThreadPoolExecutor(workers)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        _single_blas.leave()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """``function`` of every item, in order."""
        return iter(map(function, items) if self._pool is None else self._pool.map(function, items))

    def spread(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """``function`` of every item, in order; it must not change anything but what it returns."""
        if not self.elsewhere:
            return self.map(function, items)
        return iter(Parallel(n_jobs=self._asked)(delayed(_with_single_blas)(function, item) for item in items))

    @property
    def elsewhere(self) -> bool:
        """Whether `spread` goes to another process or machine."""
        return type(get_active_backend()[0]).__module__ != "joblib._parallel_backends"

    def __reduce__(self) -> tuple[type[Threads], tuple[int]]:
        return Threads, (1,)  # what was sent elsewhere works by itself

    def check(self) -> None:
        """Called now and then by long tasks: ends them after an interrupt or an error elsewhere."""
        if self._stop.is_set():
            raise StoppedError

    def tick(self, *_: object) -> None:
        """`check`, as a callback of whatever takes many steps."""
        self.check()


class _SingleThreadedBlas:
    """Holds BLAS to one thread while any fit of the process asks for it; the last one out restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._cores = 1

    def enter(self) -> int:
        """Returns how many threads BLAS may otherwise use: what the user, or a parallel job, left for this process."""
        with self._lock:
            if self._users == 0:
                self._cores = max(
                    (lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"), default=1
                )
                self._limit = threadpool_limits(1, user_api="blas")
            self._users += 1
            return self._cores

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


_single_blas = _SingleThreadedBlas()


def _with_single_blas(function: Callable[[T], R], item: T) -> R:
    """As in a thread of `Threads`, so that the result is the same to the last bit."""
    _single_blas.enter()
    try:
        return function(item)
    finally:
        _single_blas.leave()
