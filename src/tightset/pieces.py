"""Rows a piece at a time, so that memory does not grow with their number but for what is returned.

A piece has a million scores or so: of arrays that stay in cache, and of rows enough that calls of a classifier, which
may be slow to start, are few. Scores of a row do not depend on the piece that it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from tightset import icp
from tightset.checking import hash_uniform
from tightset.icp import Calibration

__all__ = ["ScoredRows", "pieces", "take", "whole"]

_SCORES = 2**20  # worked on at once
_ROWS = 2**13, 2**16  # at least and at most


def take(rows: Any, index: np.ndarray | slice) -> Any:
    """Some of the rows of an array, a frame or a list; None stays None."""
    if rows is None or isinstance(rows, np.ndarray):
        return None if rows is None else rows[index]
    return _safe_indexing(rows, index)


def pieces(X: Any, C: int) -> Iterator[tuple[slice, Any]]:
    """Which rows, and the rows themselves; few rows are one piece, which is ``X`` as it was given.

    >>> [rows for rows, _ in pieces(np.zeros((100_000, 1)), 10)]
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    n, step = X.shape[0], min(max(_SCORES // C, _ROWS[0]), _ROWS[1])
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        yield rows, X if n <= step else take(X, rows)


class ScoredRows:
    """A piece of new rows with its settled scores, an array and a calibration for every fold, and what follows."""

    def __init__(
        self, folds: list[Calibration], scores: list[np.ndarray], groups: np.ndarray | None, seed: int | None
    ) -> None:
        self._scored = folds, scores
        smoothing = None if seed is None else hash_uniform(scores[0], seed)
        self._how: dict[str, Any] = {"groups": groups, "smoothing": smoothing}

    @cached_property
    def p(self) -> np.ndarray:
        """p-values ``(rows, C)``."""
        return icp.p_values(*self._scored, **self._how)

    def sets(self, confidence: Any, *, allow_empty: bool) -> np.ndarray:
        """Sets ``(rows, C)``."""
        return icp.sets(*self._scored, confidence, **self._how, allow_empty=allow_empty)

    def most_conforming(self) -> np.ndarray:
        """The index of the most conforming label of each row."""
        return icp.most_conforming(*self._scored)


def whole(n: int, parts: Iterable[tuple[slice, list[np.ndarray]]]) -> np.ndarray:
    """``(levels, n, C)`` from pieces with an array ``(rows, C)`` for each level.

    >>> whole(2, [(slice(0, 1), [np.zeros((1, 2))]), (slice(1, 2), [np.ones((1, 2))])])
    array([[[0., 0.],
            [1., 1.]]])
    """
    result: Any = None
    for rows, found in parts:
        if result is None:
            result = np.empty((len(found), n, found[0].shape[1]), dtype=np.result_type(*found))
        for level, part in zip(result, found, strict=True):
            level[rows] = part
    return np.asarray(result)
