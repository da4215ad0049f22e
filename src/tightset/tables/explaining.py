"""Explanation of the set of one row: the p-values of all labels, and which columns change them.

The row is scored again with one column at a time set to its typical value (the median, or the most common category, of
the training rows). This takes one more row per column, so it is quick, and it works for every kind of measure; but it
does not show effects of several columns together.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tightset.conformal.assurance import least_error
from tightset.conformal.ranks import significance
from tightset.estimators.fitted import Fitted
from tightset.estimators.ordering import order_of
from tightset.tables.predictor import TablePredictor

__all__ = ["Explanation", "Influence", "explain"]


class Influence(NamedTuple):
    """What becomes of a row if one column had its typical value: p-values ``(C,)`` and the set ``(C,)``."""

    column: str
    value: str
    typical: str
    p: np.ndarray
    kept: np.ndarray
    moved: float  # by how much the p-values of all labels change, on a log scale
    differs: bool  # from the typical value: a column that does not moves nothing


class Explanation(NamedTuple):
    """p-values ``(C,)`` and the set ``(C,)`` of one row at a level, and the columns by how much they move."""

    confidence: float
    p: np.ndarray
    kept: np.ndarray
    calibration_rows: np.ndarray  # (C,), of each label its own where coverage is by label
    influences: list[Influence]
    assurance: Fraction | None = None
    along: np.ndarray | None = None  # (C,), the order that the labels have

    @property
    def order(self) -> np.ndarray:
        """Labels ``(C,)`` in their order, if they have one; else as `ranked`."""
        return self.ranked(self.p) if self.along is None else self.along

    @property
    def best(self) -> int:
        """The label with the largest p-value."""
        return int(self.ranked(self.p)[0])

    def shown(self, names: np.ndarray, kept: np.ndarray, p: np.ndarray) -> str:
        """The names of a set ``(C,)``; the ends of an interval, if labels have an order."""
        inside = [str(names[at]) for at in (self.ranked(p) if self.along is None else self.along) if kept[at]]
        if self.along is not None and len(inside) > 2:
            return f"{inside[0]} to {inside[-1]}"
        return ", ".join(inside) or "(empty)"

    def ranked(self, p: np.ndarray) -> np.ndarray:
        """Labels ``(C,)`` by falling p-value ``(C,)``; those without calibration rows, in every set, at last."""
        return np.argsort(np.where(self.calibration_rows > 0, -p, 0), kind="stable")

    def joins_above(self, label: int) -> float:
        """The confidence above which a label is in the sets of this measure: ``1 - p``, or less with assurance."""
        return 1 - least_error(float(self.p[label]), int(self.calibration_rows[label]), self.assurance)


def explain(model: TablePredictor, frame: Any, confidence: Any) -> Explanation:
    """Explain the row of a data frame of one row, for a `TablePredictor`."""
    x = model.encode(frame)
    typical = [column.typical for column in model.encoding.columns]
    variants = np.repeat(x, len(typical) + 1, axis=0)
    at = 0
    for place, column in enumerate(model.encoding.columns):
        width = len(column.names)
        variants[place + 1, at : at + width] = typical[place][1]
        at += width
    predictor = model.predictor
    fitted = predictor.fitted_
    asked = fitted.ask([confidence])
    groups = model.groups(frame)
    if groups is not None:
        predictor.check_new_rows(x, groups)  # warns of one that is not known
        groups = np.repeat(groups, len(variants))
    ((sets, p),) = fitted.sets_and_p(asked, variants, groups, allow_empty=predictor.allow_empty)
    rows = fitted.rows_of_labels() if groups is None else _rows_of_group(fitted, groups[0])
    influences = [
        Influence(
            column.name,
            _shown(frame[column.name].iloc[0]),
            typical[place][0],
            p[place + 1],
            sets[place + 1],
            float(np.abs(np.log(p[place + 1] / p[0])).sum()),
            not np.array_equal(variants[place + 1], variants[0], equal_nan=True),
        )
        for place, column in enumerate(model.encoding.columns)
    ]
    influences.sort(key=lambda one: -one.moved)
    level = float(1 - significance(confidence))
    return Explanation(level, p[0], sets[0], rows, influences, fitted.assurance, order_of(predictor))


def _rows_of_group(fitted: Fitted, group: Any) -> np.ndarray:
    """Calibration rows ``(C,)`` that the labels of a row of this group are compared with."""
    rows = fitted.calibration_rows()
    return np.array([rows[group, label if fitted.by_label else -1] for label in range(len(fitted.classes))])


def _shown(value: Any) -> str:
    if value is None or value != value:
        return "(missing)"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
