"""Rows of Dask arrays and data frames: more than memory holds, on one machine or on many (extra ``dask``).

Rows stay where they are, and so does what is computed of each and kept (`Kept`). The client has a byte or two for the
label of each row, and calibration scores; sums over rows are computed where the rows are stored, in a fixed order.
Nothing here knows of conformal prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.compute.arrays import add_up
from tightset.compute.dask_training import fit_together
from tightset.compute.memory import give_memory_back
from tightset.compute.row_forms import as_they_are

__all__ = ["Block", "Kept", "Partitions"]

_FAN_IN = 8  # partial sums that are added in one task
_PARTITION_BITS = 40  # for the number of a row in its partition


class Partitions:
    """Rows ``(n, p)`` in partitions, of which some may be taken; ``shape`` is that of those.

    ``prepare`` is what is done first to the rows of a partition, where they lie.
    """

    lazy = True

    def __init__(
        self,
        parts: list[Any],
        lengths: list[int] | None,
        columns: int,
        prepare: Callable[[Any], Any],
        taken: list[Any] | None = None,
    ) -> None:
        self._parts = parts
        self._told_lengths = lengths
        self._columns = columns
        self._prepare = prepare
        self._taken = taken  # of each partition which rows are, a bit for each; None if all are

    @staticmethod
    def owns(X: Any) -> bool:
        """Whether ``X`` is a Dask collection; Dask is not imported to tell."""
        return type(X).__module__.partition(".")[0] == "dask" or type(X).__module__.startswith("dask_expr")

    @staticmethod
    def vector(x: Any) -> Any:
        """A Dask vector in memory."""
        return x.compute()

    @staticmethod
    def of_vector(x: Any, function: Callable[[Any], Any]) -> list[Any]:
        """``function(part)`` of every part of a Dask vector, in order."""
        import dask

        return list(dask.compute(*[dask.delayed(function)(part) for part in np.ravel(x.to_delayed())]))

    @staticmethod
    def columns_like(X: Any) -> Any:
        """A frame without rows that has the columns of a Dask data frame; None for an array."""
        return X._meta if hasattr(X, "columns") else None

    @classmethod
    def of(cls, X: Any, prepare: Callable[[Any], Any]) -> Self:
        """Rows of a Dask array or data frame; lengths that are not known are counted when they are needed."""
        parts = _delayed_parts(X)
        known = hasattr(X, "chunks") and not any(np.isnan(X.chunks[0]))
        return cls(parts, [int(rows) for rows in X.chunks[0]] if known else None, X.shape[1], prepare)

    @cached_property
    def _lengths(self) -> list[int]:
        import dask

        if self._told_lengths is not None:
            return self._told_lengths
        return list(dask.compute(*[dask.delayed(_length)(part) for part in self._parts]))

    @cached_property
    def _edges(self) -> list[int]:
        counts = self._lengths if self._taken is None else [int(np.bitwise_count(bits).sum()) for bits in self._taken]
        return [0, *accumulate(counts)]

    @property
    def shape(self) -> tuple[int, ...]:
        return self._edges[-1], self._columns

    def first_rows(self) -> Any:
        """A few rows as they are, to see what they are like."""
        import dask

        filled = next((part for part, rows in zip(self._parts, self._lengths, strict=True) if rows), self._parts[0])
        return dask.delayed(_head)(filled).compute()

    def check(self) -> None:
        """Prepare every partition once, so that what is wrong with one is said before anything else is done."""
        if self._prepare is not as_they_are:
            self.map(_nothing)

    def take(self, index: np.ndarray) -> Self:
        """Some of the rows, by their numbers in increasing order or by a mask; nothing is computed."""
        by_mask = index.dtype == bool
        if not by_mask and len(index) and not (np.diff(index) > 0).all():
            raise ValueError("rows of a Dask collection can only be taken in increasing order")
        ends = self._edges if by_mask else np.searchsorted(index, self._edges)
        taken = []
        for at, length in enumerate(self._lengths):
            own = index[ends[at] : ends[at + 1]]
            rows = np.flatnonzero(own) if by_mask else own - self._edges[at]
            rows = rows if self._taken is None else _rows_of(self._taken[at], length)[rows]
            mask = np.zeros(length, dtype=bool)
            mask[rows] = True
            taken.append(np.packbits(mask))
        return type(self)(self._parts, self._lengths, self._columns, self._prepare, taken)

    def gather(self) -> Any:
        """The rows in memory."""
        return _stacked(self.map(as_they_are))

    def map(self, function: Callable[..., Any], *vectors: Any) -> list[Any]:
        """``function(rows, *their part of each vector)`` of every partition, in order. A vector may be None."""
        import dask

        return list(dask.compute(*self._tasks(function, own=self._with_vectors(vectors))))

    def kept(self, function: Callable[..., Any], *vectors: Any) -> Kept:
        """``function(rows, *their part of each vector)`` of every partition, computed now and kept where it is."""
        import dask

        return Kept(self, list(dask.persist(*self._tasks(function, own=self._with_vectors(vectors)))))

    def in_blocks(self, count: int, *vectors: Any) -> list[Block]:
        """All rows in so many blocks, or fewer, of about as many rows each, which do not depend on anything else."""
        import dask

        tasks, own = self._tasks(as_they_are, own=self._with_vectors(())), self._cut(vectors)
        lengths = np.diff(self._edges)[self._filled]
        block_of = (np.cumsum(lengths) - lengths) * count // max(int(lengths.sum()), 1)
        blocks = []
        for block in np.unique(block_of):
            at = np.flatnonzero(block_of == block)
            parts = zip(*(own[self._filled[one]] for one in at), strict=True)
            whole = [None if some[0] is None else np.concatenate(some) for some in parts]
            stack = dask.delayed(_stacked, pure=False)
            blocks.append(Block(stack([tasks[one] for one in at]), int(lengths[at].sum()), whole))
        return blocks

    def fit_together(self, *how: Any) -> Any:
        """A Dask estimator of another package, trained by all workers together."""
        return fit_together(self, *how)

    def fold(self, function: Callable[..., Any], state: Any, *vectors: Any) -> Any:
        """``state = function(state, rows, *their part of each vector)``, one partition after the other."""
        import dask

        for task in self._tasks(_together, own=self._with_vectors(vectors)):  # no more than one is loaded at a time
            (state,) = dask.compute(dask.delayed(_with_state, pure=False)(function, state, task))
        return state

    def summed(self, *vectors: Any, threads: Any = None) -> _Summed:  # noqa: ARG002 - workers have their own
        """For sums over the rows, with their part of each vector; these are sent to where the rows are only once."""
        import dask

        small = [one if one is None or one.dtype.kind not in "iu" else _smallest(one) for one in vectors]
        kept = [dask.delayed(tuple, pure=False)(own) for own in self._with_vectors(small)]
        tasks = partial(self._tasks, own=list(dask.persist(*kept)))
        return _Summed(tasks, len(vectors))

    def answer(
        self, function: Callable[..., np.ndarray], vectors: Sequence[Any], empty: np.ndarray, rows_axis: int
    ) -> Any:
        """``function(rows, *their part of each vector, first)`` as a Dask array, computed when it is asked for.

        ``empty`` is what it gives for no rows; with more of them that is longer along ``rows_axis``. ``first`` is the
        number of the first row of a partition; where nobody knows how many come before it, one that no other row has.
        """
        import dask.array as da

        known = self._told_lengths is not None or any(vector is not None for vector in vectors)
        cut = self._cut(vectors) if known else [(None,) * len(vectors)] * len(self._parts)
        lengths: list[Any] = self._lengths if known else [float("nan")] * len(self._parts)
        first = self._edges if known else [at << _PARTITION_BITS for at in range(len(self._parts))]
        own = [(None, (*some, start)) for some, start in zip(cut, first, strict=False)]
        tasks = _calls(self._parts, own, self._prepare, function)
        before, after = empty.shape[:rows_axis], empty.shape[rows_axis + 1 :]
        arrays = [
            da.from_delayed(task, (*before, n, *after), meta=empty) for task, n in zip(tasks, lengths, strict=True)
        ]
        return da.concatenate(arrays, axis=rows_axis, allow_unknown_chunksizes=True)

    def _with_vectors(self, vectors: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Of each partition which rows are taken, and their part of each vector."""
        give_memory_back()
        taken = [None] * len(self._parts) if self._taken is None else self._taken
        return [(bits, own) for bits, own in zip(taken, self._cut(vectors), strict=True)]

    def _cut(self, vectors: Sequence[Any]) -> list[tuple[Any, ...]]:
        for vector in vectors:
            if vector is not None and len(vector) != self.shape[0]:
                given = f"{len(vector)} groups, labels or weights were given for them"
                raise ValueError(f"X has {self.shape[0]} rows, but {given}")
        edges = self._edges
        return [tuple(None if vector is None else vector[a:b] for vector in vectors) for a, b in pairwise(edges)]

    @property
    def _filled(self) -> list[int]:
        return [at for at, (a, b) in enumerate(pairwise(self._edges)) if a < b]

    def _tasks(self, function: Callable[..., Any], *arguments: Any, own: list[Any]) -> list[Any]:
        filled = self._filled
        parts, of_parts = ([some[at] for at in filled] for some in (self._parts, own))
        return _calls(parts, of_parts, self._prepare, function, *arguments)


class Block(NamedTuple):
    """Many rows in one piece, still to be loaded, and what of each vector belongs to them."""

    X: Any
    length: int
    vectors: list[Any]


class Kept(NamedTuple):
    """What was computed of the partitions that have rows, and stays with the workers."""

    rows: Partitions
    results: list[Any]

    def each(self, function: Callable[..., Any], *vectors: Any) -> list[Any]:
        """``function(result, *their part of each vector)`` of every partition, in order."""
        import dask

        cut, call = self.rows._cut(vectors), dask.delayed(function, pure=False)
        filled = self.rows._filled
        return list(dask.compute(*[call(one, *cut[at]) for at, one in zip(filled, self.results, strict=True)]))

    def beside(self, function: Callable[[Any, Any], Any], columns: int) -> Partitions:
        """``function(rows, result)`` of every partition as rows of so many columns, computed again at every pass."""
        import dask

        edges = self.rows._edges
        lengths = [edges[at + 1] - edges[at] for at in self.rows._filled]
        rows = self.rows._tasks(as_they_are, own=self.rows._with_vectors(()))
        call = dask.delayed(function, pure=False)
        parts = [call(*both) for both in zip(rows, self.results, strict=True)]
        return Partitions(parts, lengths, columns, as_they_are)


class _Summed(NamedTuple):
    """Sums over the rows of `Partitions`, from a task for each of them."""

    tasks: Callable[..., list[Any]]
    vectors: int
    prepare: Callable[..., Iterable[Any]] | None = None

    def prepared(self, prepare: Callable[..., Iterable[Any]], rows: int) -> Self:  # noqa: ARG002 - nothing is kept
        return self._replace(prepare=prepare)

    def total(self, function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
        """The sum of ``function(rows, *vectors, *arguments)`` over all partitions, added up by a fixed tree."""
        import dask

        function = function if self.prepare is None else partial(_of_prepared, self.prepare, self.vectors, function)
        parts = self.tasks(function, *arguments)
        plus = dask.delayed(add_up, pure=False)
        while len(parts) > 1:
            parts = [plus(parts[at : at + _FAN_IN]) for at in range(0, len(parts), _FAN_IN)]
        result: tuple[Any, ...] = parts[0].compute()
        return result


def _of_prepared(prepare: Any, vectors: int, function: Any, rows: Any, *rest: Any) -> Any:
    return function(prepare(rows, *rest[:vectors]), *rest[vectors:])


def _smallest(whole_numbers: np.ndarray) -> np.ndarray:
    return whole_numbers.astype(np.min_scalar_type(int(whole_numbers.max())))


def _delayed_parts(X: Any) -> list[Any]:
    dimensions = getattr(X, "ndim", None)  # of what is merely delayed that is delayed, too
    if not isinstance(dimensions, int) or dimensions != 2:
        what = f"{type(X).__name__} of {dimensions} dimensions" if isinstance(dimensions, int) else type(X).__name__
        raise ValueError(f"X must be a Dask array or data frame of rows and columns; got a Dask {what}")
    return list(X.rechunk({1: -1}).to_delayed().ravel() if hasattr(X, "chunks") else X.to_delayed())


def _calls(
    parts: list[Any], own: list[Any], prepare: Callable[[Any], Any], function: Callable[..., Any], *arguments: Any
) -> list[Any]:
    """A task for every partition: `_call`, with what all of them share as one node, sent to each worker once."""
    import dask

    shared = dask.delayed((prepare, function, arguments), pure=False, traverse=False)
    call = dask.delayed(_call, pure=False)
    return [call(shared, part, of_part) for part, of_part in zip(parts, own, strict=True)]


def _call(shared: tuple[Any, ...], part: Any, own: tuple[Any, tuple[Any, ...]]) -> Any:
    """What a worker does with a partition."""
    (prepare, function, arguments), (bits, vectors) = shared, own
    if np.ma.is_masked(part):
        raise ValueError("X is a masked array in which values are masked: fill them first")
    if bits is not None:
        rows = _rows_of(bits, part.shape[0])
        part = part.iloc[rows] if hasattr(part, "iloc") else part[rows]
    return function(prepare(part), *vectors, *arguments)


def _rows_of(bits: np.ndarray, length: int) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(bits, count=length))


def _together(*parts: Any) -> tuple[Any, ...]:
    return parts


def _with_state(function: Callable[..., Any], state: Any, parts: tuple[Any, ...]) -> Any:
    return function(state, *parts)


def _length(rows: Any) -> int:
    return int(rows.shape[0])


def _nothing(rows: Any) -> None:
    del rows


def _head(rows: Any) -> Any:
    return rows.iloc[:5] if hasattr(rows, "iloc") else rows[:5]


def _stacked(parts: list[Any]) -> Any:
    if all(hasattr(part, "iloc") for part in parts):
        import pandas as pd

        return pd.concat(parts)
    if any(sparse.issparse(part) for part in parts):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)
