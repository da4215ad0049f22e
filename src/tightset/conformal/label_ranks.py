"""The rank of each label in its row, 1 for the likeliest: what scores are made of, here and in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tightset.compute.graphs import GraphWriter, larger_in_row

__all__ = ["by_rank", "chunks", "rank_in"]

_CHUNK = 2**18  # scores sorted at once


def by_rank(
    P: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray],
    u: np.ndarray | None = None,
) -> np.ndarray:
    """``score(o, total, u)`` of every label, where ``total`` is the sum of all ``p_c >= p_y`` of its row."""
    result = np.empty(P.shape, dtype=np.float64)
    for rows in chunks(*P.shape):
        part = np.asarray(P[rows], dtype=np.float64)
        order = np.argsort(-part, axis=1, kind="stable")
        ordered = np.take_along_axis(part, order, axis=1)
        o = np.tile(np.arange(1.0, P.shape[1] + 1), (len(part), 1))
        total = np.cumsum(ordered, axis=1)
        tie = ordered[:, 1:] == ordered[:, :-1]
        for at in range(1, P.shape[1]):
            o[:, at] = np.where(tie[:, at - 1], o[:, at - 1], o[:, at])
        for at in range(P.shape[1] - 2, -1, -1):
            total[:, at] = np.where(tie[:, at], total[:, at + 1], total[:, at])
        found = score(o, total, None if u is None else u[rows, None])
        np.put_along_axis(result[rows], order, found, axis=1)
    return result


def rank_in(graph: GraphWriter, ordered: str, P: str, C: int) -> str:
    """``o`` of every label, in a graph."""
    return graph.add("Add", graph.cast(larger_in_row(graph, ordered, P, C, "Greater"), "DOUBLE"), 1.0)


def chunks(n: int, C: int) -> Iterator[slice]:
    """Slices of rows whose scores are sorted at once."""
    step = max(1, _CHUNK // C)
    return (slice(start, start + step) for start in range(0, n, step))
