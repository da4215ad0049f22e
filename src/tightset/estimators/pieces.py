"""Prediction piece by piece, so that memory does not grow with the number of rows, except for the result.

A piece has about a million scores: few enough that arrays stay in cache, and enough that a classifier with a slow start
is not called often. The scores of a row do not depend on the piece that it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.compute.hashing import hash_uniform
from tightset.compute.row_types import COARSE
from tightset.compute.rows import take
from tightset.conformal import calibration as icp
from tightset.conformal.abstention import highest_and_margin, top_and_margin
from tightset.conformal.calibration import Calibration

__all__ = ["OwnScores", "ScoredRows", "joined", "pieces", "together", "whole"]

_SCORES = 2**20  # worked on at once
_ROWS = 2**13, 2**16  # at least and at most
_DENSE = 2**25  # numbers


def pieces(X: Any, C: int) -> Iterator[tuple[slice, Any]]:
    """Which rows, and the rows themselves; few rows are one piece, which is ``X`` as it was given.

    >>> [rows for rows, _ in pieces(np.zeros((100_000, 1)), 10)]
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    n, step = X.shape[0], min(max(_SCORES // C, _ROWS[0]), _ROWS[1])
    if sparse.issparse(X):  # which may be made dense
        step = min(step, max(_DENSE // X.shape[1], _ROWS[0] // 8))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        yield rows, X if n <= step else take(X, rows)


class ScoredRows:
    """A piece of new rows with its settled scores, an array and a calibration for every fold, and what follows."""

    def __init__(
        self,
        folds: list[Calibration],
        scores: list[np.ndarray],
        groups: np.ndarray | None,
        seed: int | None,
        positions: Any,
        coarse: str | np.ndarray | None = None,
    ) -> None:
        # Where only some rows are coarse, all are counted both ways, and each takes its own.
        some = isinstance(coarse, np.ndarray)
        self._coarse: np.ndarray | None = coarse[:, None] if isinstance(coarse, np.ndarray) else None
        self._scored = [fold.widened(None if some else str(coarse)) for fold in folds], scores
        self._wide = [fold.widened(COARSE[0]) for fold in folds], scores
        # What was drawn for calibration is part of the seed: a user's seed, used again, must not bring the same luck.
        smoothing = None if seed is None else hash_uniform(scores[0], seed ^ folds[0].mark, positions)
        self._how: dict[str, Any] = {"groups": groups, "smoothing": smoothing}

    @cached_property
    def p(self) -> np.ndarray:
        """p-values ``(rows, C)``."""
        return self._each(lambda folds, scores: icp.p_values(folds, scores, **self._how))

    @property
    def comparable(self) -> np.ndarray:
        """What compares labels of all rows ``(rows, C)``: scores, or p-values where labels or folds have their own."""
        folds, scores = self._scored
        return self.p if len(folds) > 1 or folds[0].by_label or folds[0].by_group else scores[0]

    def sets(self, confidence: Any, *, allow_empty: bool) -> np.ndarray:
        """Sets ``(rows, C)``."""
        how = {**self._how, "allow_empty": allow_empty}
        return self._each(lambda folds, scores: icp.sets(folds, scores, confidence, **how))

    def _each(self, count: Callable[..., np.ndarray]) -> np.ndarray:
        found = count(*self._scored)
        return found if self._coarse is None else np.where(self._coarse, count(*self._wide), found)

    def most_conforming(self) -> np.ndarray:
        """The index of the most conforming label of each row."""
        return icp.most_conforming(*self._scored)

    def top_and_margin(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for a single fold, and the lead of that label over the next."""
        return top_and_margin(self._scored[1][0])


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


class OwnScores(NamedTuple):
    """Settled scores ``(n,)`` of the own labels of calibration rows, and whether no label has a higher one.

    ``margin`` is the lead of the most conforming label over the next, and ``wrong`` whether it is not the own label.
    """

    scores: np.ndarray
    first: np.ndarray
    margin: np.ndarray
    wrong: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, y: np.ndarray) -> Self:
        """From the scores ``(n, C)`` of all labels; a row whose label is none of them (``y < 0``) conforms least."""
        own = scores.ravel().take(np.arange(len(y)) * scores.shape[1] + np.maximum(y, 0).astype(np.intp, copy=False))
        highest, margin = highest_and_margin(scores)
        first, wrong = own >= highest, own < highest
        tied = np.flatnonzero(margin == 0)
        wrong[tied] = np.argmax(scores[tied], axis=1) != y[tied]
        unknown = y < 0
        own[unknown], first[unknown], wrong[unknown] = -np.inf, False, True
        return cls(own, first, margin, wrong)


def together(parts: Iterable[OwnScores]) -> OwnScores:
    return OwnScores(*(np.concatenate(some) for some in zip(*parts, strict=True)))


def joined(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    kept, p = zip(*parts, strict=True)
    return np.concatenate(kept), np.concatenate(p)
