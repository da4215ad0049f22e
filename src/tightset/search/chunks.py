"""Rows laid out for sums over all of them: a few at a time, sorted by label, as each kind of columns sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Run, label_runs
from tightset.models.columns import Columns

__all__ = ["Chunk", "laid_out"]

_ENTRIES_AT_ONCE = 2**17  # of rows that are worked on together, so that they and their scores stay in cache
_FEWEST_AT_ONCE = 256  # wide rows, of which products are slow in small numbers


class Chunk(NamedTuple):
    """A few rows, sorted by label, in each of the columns ``(Z, centre)``; in float64."""

    columns: list[tuple[Any, np.ndarray | None]]
    runs: list[Run]
    weight: np.ndarray  # (1, r)
    y: np.ndarray
    groups: np.ndarray


def laid_out(
    X: Any, codes: np.ndarray, weight: np.ndarray | None, *, columns: list[Columns], n_classes: int
) -> Iterator[Chunk]:
    """A few rows at a time. Labels are codes, ``y + C group``, if rows have groups."""
    y, group_of = codes % n_classes, codes // n_classes
    order = np.argsort(y, kind="stable")
    entries = X.nnz / max(len(y), 1) if sparse.issparse(X) else max(len(one.scaling.scale) for one in columns)
    size = max(int(_ENTRIES_AT_ONCE / max(entries, 1)), _FEWEST_AT_ONCE)
    for start in range(0, len(y), size):
        rows = order[start : start + size]
        part = X[rows].astype(np.float64, copy=False)
        w = np.ones((1, len(rows))) if weight is None else weight[rows][None]
        yield Chunk([one.apply(part) for one in columns], label_runs(y[rows]), w, y[rows], group_of[rows])
