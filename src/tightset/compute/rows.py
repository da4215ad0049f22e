"""One interface for rows in memory (arrays and data frames, here) and Dask collections (in `dask_rows`).

No code outside this folder asks which it is. Another engine is a file like `dask_rows`, and a line in `_ENGINES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from sklearn.utils import _safe_indexing

from tightset.compute.arrays import add_up
from tightset.compute.contracts import check_offers
from tightset.compute.dask_rows import Partitions
from tightset.compute.threads import Threads

__all__ = [
    "Kept",
    "MemoryRows",
    "RowSource",
    "Summed",
    "columns_like",
    "in_memory",
    "lies_elsewhere",
    "of_parts",
    "open_rows",
    "refuse_lazy",
    "rows_of",
    "take",
]

_ROWS_PER_BLOCK = 2**16
_ENTRIES_PER_BLOCK = 2**22  # wide rows are fewer, so that every thread has some
_FEWEST_ROWS = 2**10
_ENGINES = (Partitions,)

Sums = tuple[Any, ...]


class Summed(Protocol):
    """Rows and vectors beside them, to be summed over again and again."""

    def total(self, function: Callable[..., Sums], *arguments: Any) -> Sums:
        """The sum over blocks of ``function(rows, *vectors, *arguments)``, added in an order of its own."""
        ...

    def prepared(self, prepare: Callable[..., Iterable[Any]], rows: int) -> Summed:
        """The same for ``function(prepare(rows, *vectors), *arguments)``.

        What is prepared may be kept for the next sum, if there are no more than so many rows.
        """
        ...


class Kept(Protocol):
    """What was computed of every block of rows, and stays where it is."""

    def each(self, function: Callable[..., Any], *vectors: Any) -> list[Any]:
        """``function(result, *vectors)`` of every block, in order."""
        ...

    def beside(self, function: Callable[[Any, Any], Any], columns: int) -> RowSource:
        """``function(rows, result)`` of every block as rows of so many columns."""
        ...


class RowSource(Protocol):
    """Rows ``(n, p)``. Vectors ``(n,)`` that go with them may be None; functions get the part that belongs to a block.

    ``lazy`` says that answers are computed later, and that rows are taken in increasing order only.
    """

    @property
    def lazy(self) -> bool: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def take(self, index: np.ndarray) -> Self:
        """Some of the rows, by their numbers or by a mask."""
        ...

    def gather(self) -> Any:
        """The rows as they are, in memory."""
        ...

    def first_rows(self) -> Any:
        """A few of them, to see what they are like."""
        ...

    def check(self) -> None:
        """Raise if something is wrong with rows that have not been looked at yet."""
        ...

    def map(self, function: Callable[..., Any], *vectors: Any) -> list[Any]:
        """``function(rows, *vectors)`` of every block, in order."""
        ...

    def kept(self, function: Callable[..., Any], *vectors: Any) -> Kept:
        """The same, kept where it is."""
        ...

    def fit_together(
        self,
        make: Callable[[], Any],
        y: np.ndarray,
        classes: np.ndarray,
        weight: np.ndarray | None,
        check: Callable[[list[np.ndarray]], None],
    ) -> Any:
        """A model that ``make`` makes, trained on labels ``classes[y]`` by whoever has the rows, all together.

        ``check`` is given the ``y`` of each of them.
        """
        ...

    def fold(self, function: Callable[..., Any], state: Any, *vectors: Any) -> Any:
        """``state = function(state, rows, *vectors)``, one block after the other."""
        ...

    def answer(
        self, function: Callable[..., np.ndarray], vectors: Sequence[Any], empty: np.ndarray, rows_axis: int
    ) -> Any:
        """``function(rows, *vectors, first)`` of all blocks, joined along an axis; ``empty`` is that of no rows.

        ``first`` is the number of the first row of a block, or at least one that no other row has.
        """
        ...

    def summed(self, *vectors: Any, threads: Threads) -> Summed: ...


class MemoryRows(NamedTuple):
    """A `RowSource` of an array, a sparse matrix, a frame or a list."""

    X: Any
    lazy: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.X.shape)

    def take(self, index: np.ndarray) -> Self:
        return self._replace(X=take(self.X, index))

    def gather(self) -> Any:
        return self.X

    def first_rows(self) -> Any:
        return self.X

    def check(self) -> None:
        """Rows in memory were checked when they came."""

    def map(self, function: Callable[..., Any], *vectors: Any) -> list[Any]:
        return [function(self.X, *vectors)]

    def kept(self, function: Callable[..., Any], *vectors: Any) -> Kept:
        return _KeptInMemory(self.X, function(self.X, *vectors))

    def fit_together(
        self,
        make: Callable[[], Any],
        y: np.ndarray,
        classes: np.ndarray,
        weight: np.ndarray | None,
        check: Callable[[list[np.ndarray]], None],
    ) -> Any:
        check([y])
        return make().fit(self.X, classes[y], **({} if weight is None else {"sample_weight": weight}))

    def fold(self, function: Callable[..., Any], state: Any, *vectors: Any) -> Any:
        return function(state, self.X, *vectors)

    def answer(
        self,
        function: Callable[..., np.ndarray],
        vectors: Sequence[Any],
        empty: np.ndarray,  # noqa: ARG002
        rows_axis: int,  # noqa: ARG002
    ) -> Any:
        return function(self.X, *vectors, 0)

    def summed(self, *vectors: Any, threads: Threads) -> Summed:
        return _SummedInMemory(self.X, vectors, threads)


class _KeptInMemory(NamedTuple):
    X: Any
    result: Any

    def each(self, function: Callable[..., Any], *vectors: Any) -> list[Any]:
        return [function(self.result, *vectors)]

    def beside(self, function: Callable[[Any, Any], Any], columns: int) -> RowSource:  # noqa: ARG002
        return MemoryRows(function(self.X, self.result))


@dataclass
class _SummedInMemory:
    """Blocks of rows, dealt to threads."""

    X: Any
    vectors: tuple[Any, ...]
    threads: Threads
    prepare: Callable[..., Iterable[Any]] | None = None
    kept: dict[int, list[Any]] | None = None  # what was prepared of each block

    def total(self, function: Callable[..., Sums], *arguments: Any) -> Sums:
        size = int(np.clip(_ENTRIES_PER_BLOCK // max(self.X.shape[1], 1), _FEWEST_ROWS, _ROWS_PER_BLOCK))

        def of_block(start: int) -> Sums:
            self.threads.check()
            return function(*self._block(slice(start, start + size)), *arguments)

        return add_up(list(self.threads.map(of_block, range(0, self.X.shape[0], size))))

    def prepared(self, prepare: Callable[..., Iterable[Any]], rows: int) -> _SummedInMemory:
        return replace(self, prepare=prepare, kept={} if self.X.shape[0] <= rows else None)

    def _block(self, rows: slice) -> tuple[Any, ...]:
        if self.kept is not None and rows.start in self.kept:
            return (self.kept[rows.start],)
        block = (self.X[rows], *(None if vector is None else vector[rows] for vector in self.vectors))
        if self.prepare is None:
            return block
        found = self.prepare(*block)
        if self.kept is not None:
            found = self.kept[rows.start] = list(found)
        return (found,)


def _engine_of(x: Any) -> type[Partitions] | None:
    return next((engine for engine in _ENGINES if engine.owns(x)), None)


def rows_of(X: Any, prepare: Callable[[Any], Any]) -> RowSource:
    """Rows as they are; ``prepare`` is what is done first to rows that lie elsewhere, where they lie."""
    engine = _engine_of(X)
    rows: RowSource = MemoryRows(X) if engine is None else engine.of(X, prepare)
    check_offers(rows, RowSource)
    return rows


def open_rows(
    X: Any, check: Callable[[Any], Any], prepare: Callable[[Any], Any], *, every: bool
) -> tuple[RowSource, Any]:
    """Rows that were checked, and some of them (in memory: all) as they came out of the check.

    Of rows that lie elsewhere the first few are checked, and if ``every`` one is, the others where they lie.
    """
    if not lies_elsewhere(X):
        checked = check(X)
        return MemoryRows(checked), checked
    rows = rows_of(X, prepare)
    first = check(rows.first_rows())
    if every:
        rows.check()
    return rows, first


def columns_like(X: Any) -> Any:
    """A frame without rows that has the columns of one that lies elsewhere; None if it is no frame."""
    engine = _engine_of(X)
    return None if engine is None else engine.columns_like(X)


def in_memory(x: Any) -> Any:
    """A vector as it is in memory, wherever it was."""
    engine = _engine_of(x)
    return x if engine is None else engine.vector(x)


def of_parts(x: Any, function: Callable[[Any], Any]) -> list[Any]:
    """``function(part)`` of every part of a vector that lies elsewhere, where it lies."""
    engine = _engine_of(x)
    assert engine is not None  # noqa: S101 - who asks has seen to that
    return engine.of_vector(x, function)


def lies_elsewhere(x: Any) -> bool:
    """Whether this is a collection of an engine, such as Dask's, and not something in memory."""
    return _engine_of(x) is not None


def refuse_lazy(X: Any, **asked: bool) -> None:
    """Say what to do instead where something is asked for that needs rows in memory."""
    name = next((name for name, wanted in asked.items() if wanted), None)
    if name is not None and lies_elsewhere(X):
        raise ValueError(
            f"{name}=True needs rows in memory, and X is a Dask collection: leave it out and compute() the array, or "
            "pass one partition at a time, X.partitions[0].compute()"
        )


def take(rows: Any, index: Any) -> Any:
    """Some of the rows of an array, a frame or a list; None stays None."""
    if rows is None or isinstance(rows, np.ndarray):
        return None if rows is None else rows[index]
    return _safe_indexing(rows, index)
