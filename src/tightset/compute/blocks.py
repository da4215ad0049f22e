"""Training rows, sorted by label and cut into blocks that stay in cache.

Every sum over samples is a sum over blocks. Blocks are dealt to a fixed number of lanes; a thread works through one
lane after another, and lanes are added up in their own order, so the result is the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Array, Run, label_runs
from tightset.compute.threads import Threads

__all__ = ["Block", "Rows"]

R = TypeVar("R")

# Scores of one block, over all candidates and labels: about 1.5 MB in float32. Measured fastest on a core with
# 1 MB of second-level cache; half and double cost 15 to 25 % more.
_SCORES_PER_BLOCK = 2**18 + 2**17
_SCORES_PER_DEVICE_BLOCK = 2**28  # a gigabyte of float32: an accelerator wants few, large blocks
_SCORES_FOR_TWO = 2**17  # below that a second thread costs more than it saves
_LANES = 8


def _evenly(k: int, block_rows: int, *, worth_two: bool) -> int:
    """A few blocks are made alike, and even in number, so that two threads have as much to do.

    >>> _evenly(12000, 11234, worth_two=True), _evenly(100, 5000, worth_two=False), _evenly(7000, 546, worth_two=True)
    (6000, 5000, 546)
    """
    blocks = -(-k // block_rows)
    if not worth_two or blocks >= _LANES:
        return block_rows
    return -(-k // (blocks + blocks % 2))


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
            if on_host:
                block_rows = _evenly(k, block_rows, worth_two=k * scores_per_row >= _SCORES_FOR_TWO)
        blocks = []
        for start in range(0, k, block_rows):
            rows = slice(start, min(start + block_rows, k))
            # Column-major rows: scores then come out with rows last, so sums over labels add long vectors.
            part = np.asfortranarray(X[rows]) if isinstance(X, np.ndarray) else X[rows]
            blocks.append(Block(part, label_runs(y[rows]), None if weight is None else weight[..., rows]))
        edges = np.linspace(0, len(blocks), min(_LANES, len(blocks)) + 1).astype(int)
        self.lanes = [blocks[a:b] for a, b in pairwise(edges)]
        # An accelerator spreads the work by itself.
        self._threads = Threads(n_jobs if on_host else 1, at_most=len(self.lanes))

    def __enter__(self) -> Self:
        self._threads.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.__exit__(*error)

    def map(self, function: Callable[[list[Block]], R]) -> Iterator[R]:
        """``function`` of every lane of blocks, in order."""
        return self._threads.map(function, self.lanes)
