"""Rows a piece at a time, so that memory does not grow with their number but for what is returned.

A piece has a million scores or so: of arrays that stay in cache, and of rows enough that calls of a classifier, which
may be slow to start, are few. Scores of a row do not depend on the piece that it is in. What is a function of a
predictor here runs as well where a partition of the rows lies.

Conventions
-----------
positions : whole numbers ``(n,)``, an array or a range, that tell rows apart which are equal; random numbers of
smoothing and of randomised scores hang on them. New rows are counted from 0, calibration rows from `CALIBRATED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from tightset.compute.arrays import settle
from tightset.compute.hashing import hash_uniform
from tightset.compute.partitions import Partitions
from tightset.compute.row_types import COARSE, held_by_float32
from tightset.conformal import calibration as icp
from tightset.conformal.calibration import Calibration

__all__ = [
    "CALIBRATED",
    "Asked",
    "OwnScores",
    "ScoredRows",
    "joined",
    "labels",
    "of_partition",
    "own_scores",
    "p_values",
    "pieces",
    "scored",
    "sets",
    "sets_and_p",
    "take",
    "together",
    "whole",
]

CALIBRATED = 2**62  # the position of the first calibration row
_SCORES = 2**20  # worked on at once
_ROWS = 2**13, 2**16  # at least and at most
_DENSE = 2**25  # numbers


def take(rows: Any, index: Any) -> Any:
    """Some of the rows of an array, a frame or a list, or of `Partitions`; None stays None."""
    if isinstance(rows, Partitions):
        return rows.take(index)
    if rows is None or isinstance(rows, np.ndarray):
        return None if rows is None else rows[index]
    return _safe_indexing(rows, index)


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


def scores_from(
    predictor: Any, model: Any, X: Any, known: dict[int, np.ndarray], start: int, positions: Any
) -> np.ndarray:
    """Scores ``(rows, C)`` of a piece of the rows, that from row ``start`` on."""
    try:
        scores: np.ndarray = predictor._scores(model, X, known, positions)
    except ValueError as error:
        if start:
            error.add_note(f"(Rows are scored in pieces; here row 0 is row {start} of X.)")
        raise
    return scores


class OwnScores(NamedTuple):
    """Settled scores ``(n,)`` of the own labels of calibration rows, and whether no label has a higher one."""

    scores: np.ndarray
    first: np.ndarray


def own_scores(predictor: Any, models: list[Any], X: Any, y: np.ndarray, positions: Any = None) -> list[OwnScores]:
    """Those of each model; a row whose label the models do not know (a code below 0) conforms less than any."""
    positions = range(CALIBRATED, CALIBRATED + len(y)) if positions is None else positions
    own: list[list[OwnScores]] = [[] for _ in models]
    for rows, some in pieces(X, len(predictor.classes_)):
        some = predictor._in_trained_types(some)  # noqa: PLW2901
        known: dict[int, np.ndarray] = {}
        for model, parts in zip(models, own, strict=True):
            scores = scores_from(predictor, model, some, known, rows.start, positions[rows])
            one = scores[np.arange(len(scores)), y[rows]]
            first = one >= scores.max(axis=1)
            one = settle(one)
            unknown = y[rows] < 0
            one[unknown], first[unknown] = -np.inf, False
            parts.append(OwnScores(one, first))
    return [together(parts) for parts in own]


def together(parts: Iterable[OwnScores]) -> OwnScores:
    return OwnScores(*(np.concatenate(some) for some in zip(*parts, strict=True)))


class Asked(NamedTuple):
    """A level, which of the trained measures serves it, and the seed of its smoothing, if it is smoothed.

    ``coarse`` is the type of the rows, if it is coarser than that of the calibration rows.
    """

    level: Any
    model: int
    seed: int | None = None
    coarse: str | None = None


def scored(
    predictor: Any, asked: Sequence[Asked], X: Any, groups: np.ndarray | None, positions: Any = None
) -> Iterator[tuple[slice, list[ScoredRows]]]:
    """The rows a piece at a time, scored for each level; levels with a measure in common share what is the same."""
    folds = predictor.folds_
    slack = any(fold.calibrations[one.model].slacks.get(COARSE[0]) for fold in folds for one in asked)
    by_value = slack and all(one.coarse is None for one in asked)
    positions = range(X.shape[0]) if positions is None else positions
    for rows, some in pieces(X, len(predictor.classes_)):
        held = held_by_float32(some) if by_value else np.zeros(0, dtype=bool)
        some = predictor._in_trained_types(some)  # noqa: PLW2901
        some_groups = None if groups is None else groups[rows]
        shared: list[dict[int, np.ndarray]] = [{} for _ in folds]
        scores = {
            at: [
                settle(scores_from(predictor, fold.models[at], some, known, rows.start, positions[rows]))
                for fold, known in zip(folds, shared, strict=True)
            ]
            for at in dict.fromkeys(one.model for one in asked)
        }
        found = {}
        for _, at, seed, coarse in asked:
            calibrations = [fold.calibrations[at] for fold in folds]
            which = held if held.any() else coarse
            found[at, seed] = ScoredRows(calibrations, scores[at], some_groups, seed, positions[rows], which)
        yield rows, [found[one.model, one.seed] for one in asked]


def sets(
    predictor: Any, asked: Sequence[Asked], X: Any, groups: np.ndarray | None, positions: Any = None
) -> np.ndarray:
    """Sets ``(levels, n, C)``."""
    how = {"allow_empty": predictor.allow_empty}
    parts = scored(predictor, asked, X, groups, positions)
    made = (
        (rows, [piece.sets(one.level, **how) for one, piece in zip(asked, found, strict=True)]) for rows, found in parts
    )
    return whole(X.shape[0], made)


def p_values(
    predictor: Any, asked: Sequence[Asked], X: Any, groups: np.ndarray | None, positions: Any = None
) -> np.ndarray:
    """p-values ``(levels, n, C)``."""
    parts = scored(predictor, asked, X, groups, positions)
    return whole(X.shape[0], ((rows, [piece.p for piece in found]) for rows, found in parts))


def labels(
    predictor: Any, asked: Sequence[Asked], X: Any, groups: np.ndarray | None = None, positions: Any = None
) -> np.ndarray:
    """The most conforming labels ``(1, n)``, by the measure of the one level that is asked for."""
    parts = [piece.most_conforming() for _, [piece] in scored(predictor, asked, X, groups, positions)]
    best: np.ndarray = predictor.classes_[np.concatenate(parts)]
    return best[None]


def sets_and_p(
    predictor: Any, asked: Sequence[Asked], X: Any, groups: np.ndarray | None, positions: Any = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sets and p-values ``(n, C)`` for each level."""
    found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in asked]
    for _, of_piece in scored(predictor, asked, X, groups, positions):
        for parts, one, piece in zip(found, asked, of_piece, strict=True):
            parts.append((piece.sets(one.level, allow_empty=predictor.allow_empty), piece.p))
    return [joined(parts) for parts in found]


def joined(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    kept, p = zip(*parts, strict=True)
    return np.concatenate(kept), np.concatenate(p)


def of_partition(
    function: Callable[..., np.ndarray],
    predictor: Any,
    asked: Sequence[Asked],
    empty: np.ndarray,
    X: Any,
    groups: np.ndarray | None,
    first: int,
) -> np.ndarray:
    """`sets`, `p_values` or `labels` of a partition, without the axis of levels if ``empty`` has none."""
    if X.shape[0] == 0:
        return empty
    positions = range(first, first + X.shape[0])
    found = np.asarray(function(predictor, asked, X, groups, positions), dtype=empty.dtype)
    return found if found.ndim == empty.ndim else found[0]
