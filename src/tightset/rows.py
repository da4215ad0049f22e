"""Training rows, sorted by label and cut into blocks that stay in cache.

Every sum over samples is a sum over blocks. Blocks are dealt to a fixed number of lanes; a thread works through one
lane after another, and lanes are added up in their own order, so the result is the same bits for any number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from tightset.arrays import Array, Run, label_runs

__all__ = ["Block", "Rows"]

R = TypeVar("R")

# Scores of one block, over all candidates and labels: about 1.5 MB in float32. Measured fastest on a core with
# 1 MB of second-level cache; half and double cost 15 to 25 % more.
_SCORES_PER_BLOCK = 2**18 + 2**17
_SCORES_PER_DEVICE_BLOCK = 2**28  # a gigabyte of float32: an accelerator wants few, large blocks
_LANES = 8


class Block(NamedTuple):
    """Rows ``X (r, m)``, their labels as runs, and their weights ``(r,)``, ``(B, r)`` or None."""

    X: Array
    runs: list[Run]
    weight: Array | None


class Rows:
    """All training rows in blocks.

    Conventions
    -----------
    X : (k, m) dense or CSR; y : (k,) integer labels; weight : (k,), (B, k) or None.
    ``scores_per_row`` is ``B * C``: what one row costs in the kernels, which sets the block size.
    Use it as a context: inside, the blocks are mapped over ``n_jobs`` threads, each with a single-threaded BLAS.
    """

    def __init__(
        self,
        X: Array,
        y: np.ndarray,
        weight: Array | None = None,
        *,
        scores_per_row: int,
        block_rows: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        on_host = isinstance(X, np.ndarray) or sparse.issparse(X)
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
        weight = None if weight is None else weight[..., order]
        k = len(y)
        if block_rows is None:
            budget = _SCORES_PER_BLOCK if on_host else _SCORES_PER_DEVICE_BLOCK
            block_rows = max(budget // max(scores_per_row, 1), 64)
        blocks = []
        for start in range(0, k, block_rows):
            rows = slice(start, min(start + block_rows, k))
            # Column-major rows: scores then come out with rows last, so sums over labels add long vectors.
            part = np.asfortranarray(X[rows]) if isinstance(X, np.ndarray) else X[rows]
            blocks.append(Block(part, label_runs(y[rows]), None if weight is None else weight[..., rows]))
        edges = np.linspace(0, len(blocks), min(_LANES, len(blocks)) + 1).astype(int)
        self.lanes = [blocks[a:b] for a, b in pairwise(edges)]
        self._asked_jobs, self._on_host = n_jobs, on_host
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        cores = _single_blas.enter()
        asked = cores if self._asked_jobs is None else effective_n_jobs(self._asked_jobs)
        if self._on_host and min(asked, len(self.lanes)) > 1:
            self._pool = ThreadPoolExecutor(min(asked, len(self.lanes)))
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        _single_blas.leave()

    def map(self, function: Callable[[list[Block]], R]) -> Iterator[R]:
        """``function`` of every lane of blocks, in order."""
        results: Iterable[R] = map(function, self.lanes) if self._pool is None else self._pool.map(function, self.lanes)
        return iter(results)


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
