"""Training rows, sorted by label and cut into blocks that stay in cache.

Every sum over samples is a sum over blocks. Blocks are dealt to a fixed number of lanes; a thread works through one
lane after another, and lanes are added up in their own order, so the result is the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

import numpy as np
from joblib import effective_n_jobs
from threadpoolctl import threadpool_limits

from tightset.arrays import Array, Run, label_runs

__all__ = ["Block", "Rows"]

R = TypeVar("R")

# Scores of one block, over all candidates and labels: about 1.5 MB in float32. Measured fastest on a core with
# 1 MB of second-level cache; half and double cost 15 to 25 % more.
_SCORES_PER_BLOCK = 2**18 + 2**17
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
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
        weight = None if weight is None else weight[..., order]
        k = len(y)
        if block_rows is None:
            block_rows = min(max(_SCORES_PER_BLOCK // max(scores_per_row, 1), 64), 4096)
        blocks = []
        for start in range(0, k, block_rows):
            rows = slice(start, min(start + block_rows, k))
            # Column-major rows: scores then come out with rows last, so sums over labels add long vectors.
            part = np.asfortranarray(X[rows]) if isinstance(X, np.ndarray) else X[rows]
            blocks.append(Block(part, label_runs(y[rows]), None if weight is None else weight[..., rows]))
        edges = np.linspace(0, len(blocks), min(_LANES, len(blocks)) + 1).astype(int)
        self.lanes = [blocks[a:b] for a, b in pairwise(edges)]
        self.n_jobs = min(effective_n_jobs(-1 if n_jobs is None else n_jobs), len(self.lanes))
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._stack.enter_context(threadpool_limits(1, user_api="blas"))
        if self.n_jobs > 1:
            self._pool = self._stack.enter_context(ThreadPoolExecutor(self.n_jobs))
        return self

    def __exit__(self, *error: object) -> None:
        self._pool = None
        self._stack.close()

    def map(self, function: Callable[[list[Block]], R]) -> Iterator[R]:
        """``function`` of every lane of blocks, in order."""
        results: Iterable[R] = map(function, self.lanes) if self._pool is None else self._pool.map(function, self.lanes)
        return iter(results)
