"""Lookups in calibration scores: ranks among them, and the rows of each group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

__all__ = ["members_of", "ranks_among"]

_IN_CACHE = 2**15  # calibration scores that a core has at hand, in whatever order they are looked up


def ranks_among(alphas: np.ndarray, scores: np.ndarray, *, side: Literal["left", "right"]) -> np.ndarray:
    """How many sorted ``alphas`` are at most each score, or below it (``side="left"``).

    Among more than fit in cache scores are looked up in their own order, so that neighbours read the same memory:
    for hundreds of thousands that is twice as fast, the sorting of the scores included.

    >>> alphas, scores = np.array([1.0, 2.0, 2.0]), np.array([[2.0, 0.0]])
    >>> ranks_among(alphas, scores, side="right"), ranks_among(alphas, scores, side="left")
    (array([[3, 0]]), array([[1, 0]]))
    """
    if len(alphas) <= _IN_CACHE:
        return np.asarray(np.searchsorted(alphas, scores, side=side))
    order = np.argsort(scores, axis=None)
    result = np.empty(scores.size, dtype=np.intp)
    result[order] = np.searchsorted(alphas, scores.ravel()[order], side=side)
    return result.reshape(scores.shape)


def members_of(groups: np.ndarray | None) -> Iterable[tuple[Any, Any]]:
    """Each group with the indices of its rows; one nameless group of all rows where there are none."""
    if groups is None:
        return [(None, slice(None))]
    names, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
    return list(zip(names.tolist(), parts, strict=True))
