"""Calibration of models on rows they were not trained on, and the slack within which scores of such rows tie."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.arrays import label_counts
from tightset.compute.contracts import check_offers
from tightset.compute.hashing import mark_of
from tightset.compute.row_rounding import rounded, slack_of
from tightset.compute.row_types import COARSE, coarser_than
from tightset.compute.rows import Kept, RowSource, take
from tightset.conformal.abstention import Abstention, answered_and_wrong, proposed_thresholds, proposing_rows
from tightset.conformal.calibration import Calibration
from tightset.conformal.ranks import as_assurance, rank
from tightset.estimators.cautions import warn_of_guessing
from tightset.estimators.fitted import CALIBRATED, Fitted
from tightset.estimators.pieces import OwnScores
from tightset.models.contract import Model

__all__ = ["CalibrationRows", "assured_errors", "calibrate"]

_ROWS_FOR_SLACK = 1000
_ROWS_FOR_TIES = 100_000
_ROWS_ALONE = 8


class CalibrationRows(NamedTuple):
    """Rows, labels as indices of the classes (-1 for one that is none of them), and groups if there are some."""

    X: RowSource
    y: np.ndarray
    groups: np.ndarray | None = None

    def take(self, index: np.ndarray) -> Self:
        return self._replace(X=self.X.take(index), y=self.y[index], groups=take(self.groups, index))


def assured_errors(
    levels: Sequence[Any], rows: CalibrationRows, assurance: Any, *, by_label: bool
) -> dict[float, Fraction]:
    """What sets with assurance are expected to miss, by level: ``r / (n + 1)`` for the rank ``r`` of ``n`` rows.

    They are calibrated at that level, and should be trained for it. ``n`` is the median over the categories of
    calibration rows, so that the typical one is trained for. Coverage of a category is conditional on its number of
    rows, and so holds although training knows the numbers. A level that so few rows cannot reach is left as it is.
    """
    if assurance is None:
        return {}
    counted = rows.y >= 0 if by_label else np.ones(len(rows.y), dtype=bool)  # else unknown labels calibrate, too
    category = rows.y[counted] if by_label else np.zeros(len(rows.y), dtype=np.intp)
    if rows.groups is not None:
        _, group = np.unique(rows.groups[counted], return_inverse=True)
        category = category + group * (rows.y.max(initial=0) + 1)
    _, counts = np.unique(category, return_counts=True)
    n = int(np.median(counts)) if len(counts) else 0
    ranks = {float(level): rank(level, n, assurance) for level in levels}
    return {level: Fraction(r, n + 1) for level, r in ranks.items() if r > 0}


def calibrate(
    fitted: Fitted,
    models: Sequence[Model],
    rows: CalibrationRows,
    *,
    by_label: bool,
    thresholds: bool,
    likely: bool = True,
    assurance: Any = None,
) -> list[Calibration]:
    """A calibration of each model. Folds of several have no ``thresholds`` in common; one has, and they are looked up.

    ``likely`` says that the label of largest score should be a likely one.

    ``fitted`` says how rows are scored; it need not have folds yet.
    """
    if len(models) > 1 and all(model is models[0] for model in models):  # one serves all levels
        how = {"by_label": by_label, "thresholds": thresholds, "likely": likely, "assurance": assurance}
        return calibrate(fitted, models[:1], rows, **how) * len(models)
    for model in models:
        check_offers(model, Model)
    X, y, groups = rows
    positions = range(CALIBRATED, CALIBRATED + len(y))
    kept = X.kept(partial(fitted.own_scores, models), y, positions)  # all but the scores stay where they are
    own = [np.concatenate(kept.each(partial(_scores, at))) for at in range(len(models))]
    found = [Calibration.of_own(one, y, len(fitted.classes), by_label=by_label, groups=groups) for one in own]
    for at, (calibration, slacks) in enumerate(zip(found, _slacks(fitted, models, rows, own), strict=True)):
        calibration.slacks, calibration.mark = slacks, mark_of(own[at], y)
        if assurance is not None:
            calibration.assurance = as_assurance(assurance)
        if not by_label and groups is None and thresholds:
            calibration.abstention = _abstention(kept, at, len(y))
        if thresholds:
            calibration.find_thresholds(fitted.levels)
    if likely:
        first = np.sum(kept.each(partial(_first, len(fitted.classes)), y), axis=0)
        warn_of_guessing(first, y, fitted.classes)
    return found


def _scores(at: int, own: Sequence[OwnScores]) -> np.ndarray:
    return own[at].scores


def _abstention(kept: Kept, at: int, n: int) -> Abstention:
    """As `Abstention.of`, of the margins that lie with ``n`` rows."""
    proposing = proposing_rows(n)
    thresholds, share = proposed_thresholds(np.concatenate(kept.each(partial(_proposed, at), proposing)))
    answered, wrong = np.sum(kept.each(partial(_answered, at, thresholds), proposing), axis=0)
    return Abstention(thresholds, share, answered, wrong, n)


def _proposed(at: int, own: Sequence[OwnScores], proposing: np.ndarray) -> np.ndarray:
    return np.asarray(own[at].margin[proposing])


def _answered(at: int, thresholds: np.ndarray, own: Sequence[OwnScores], proposing: np.ndarray) -> np.ndarray:
    return answered_and_wrong(thresholds, own[at].margin, own[at].wrong, proposing)


def _first(n_classes: int, own: Sequence[OwnScores], y: np.ndarray) -> np.ndarray:
    """How many rows of each label have it on top ``(C,)``."""
    return label_counts((y.astype(np.intp) + 1) * own[0].first, n_classes + 1)[1:]  # 0 counts the others


def _commonest(scores: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """A row of each score, those of the commonest first, and how many of these scores occur more than once."""
    in_order = np.sort(scores)
    if len(scores) > most and (in_order[1:] > in_order[:-1]).all():
        return np.argpartition(scores, most)[:most], 0
    _, first, count = np.unique(scores, return_index=True, return_counts=True)
    return first[np.argsort(-count, kind="stable")][:most], int((count > 1).sum())


def _slacks(
    fitted: Fitted, models: Sequence[Model], calibration_rows: CalibrationRows, own: Sequence[np.ndarray]
) -> list[dict[str, float]]:
    """For each model and each coarser type that new rows may come in, how far apart scores still tie."""
    X, y, _ = calibration_rows
    found: list[dict[str, float]] = [{} for _ in models]
    if any(getattr(model, "randomised", False) for model in models):  # nothing ties
        return found
    # A row of each score that there is, as far as possible: those are what new rows may tie with.
    looked_at = np.linspace(0, len(y) - 1, min(len(y), _ROWS_FOR_TIES)).round().astype(int)
    some, tied = _commonest(own[0][looked_at], _ROWS_FOR_SLACK)
    some = looked_at[some]
    commonest = some[: min(_ROWS_ALONE, tied)]
    ties, some = np.sort(some[:tied]), np.sort(some)
    rows = X.take(some).gather()
    columns = [None, slice(0, None, 2), slice(1, None, 2)] if hasattr(rows, "columns") else [None]
    for coarse in COARSE:
        if coarser_than(coarse, fitted.kind.calibrated) is None:
            continue
        for every in columns:  # frames may be coarse in some columns only
            rough: Any = rounded(rows, coarse, every)
            if rough is None:
                continue
            moved = fitted.own_scores(models, rough, y[some])
            for slacks, before, after in zip(found, own, moved, strict=True):
                slack = slack_of(before[some], after.scores, np.isin(some, ties))
                slacks[coarse] = max(slacks.get(coarse, 0.0), slack)
    for at in commonest:  # products are rounded otherwise in a batch, by more than `settle` can know
        row = take(rows, np.searchsorted(some, [at]))
        alone = fitted.own_scores(models, row, y[[at]])
        for slacks, before, after in zip(found, own, alone, strict=True):
            moved_by = abs(float(before[at]) - float(after.scores[0]))
            if np.isfinite(moved_by) and moved_by > slacks.get("alone", 0.0):
                slacks["alone"] = 2 * moved_by
    return found
