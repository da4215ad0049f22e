"""Labels that are covered less than the level, by more than chance: average coverage does not show them.

Which labels are tested, and how
--------------------------------
Of ``n`` rows of a label, ``h`` are covered. If the label is covered at the level, ``h`` is ``Binomial(n, confidence)``,
or beta-binomial if chance in its ``m`` calibration rows counts too, as in `intervals.coverage_band`. The p-value of a
label is the larger of both lower tails, so a label is named only if neither new rows nor calibration rows explain the
shortfall. A label has enough rows to be tested if its p-value could be significant with no row covered (Tarone's rule:
the numbers of rows alone decide). The probability that any of the tested labels is named although it is covered at the
level is at most 5 % (Holm), at each level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tightset.conformal.ranks import rank, significance

__all__ = [
    "REMEDY",
    "Short",
    "Shortfall",
    "counts_of",
    "of_evaluated",
    "of_rows",
    "reason",
    "short_labels",
    "why",
]

REMEDY = (
    "For coverage of each label, fit with `--label-conditional` (`label_conditional=True` in Python); sets grow where "
    "labels are hard."
)


class Short(NamedTuple):
    """A label that falls short: how many of its rows are covered, and Holm's p-value."""

    label: int
    rows: int
    covered: int
    p_value: float

    @property
    def coverage(self) -> float:
        return self.covered / self.rows


class Shortfall(NamedTuple):
    """The labels that fall short at a level, those with most rows missed beyond what was asked first."""

    labels: list[Short]
    tested: int  # labels with enough rows to tell

    def as_dicts(self, names: Sequence[Any]) -> list[dict[str, Any]]:
        """For JSON, with the names of the labels."""
        return [
            {
                "label": names[one.label],
                "rows": one.rows,
                "covered": one.covered,
                "coverage": one.coverage,
                "p_value": one.p_value,
            }
            for one in self.labels
        ]

    def told(
        self, confidence: float, names: Sequence[Any], *, most: int = 5, kind: str = "", rest: str = ""
    ) -> list[str]:
        """Lines that name ``most`` labels at most, with the ``kind`` of their rows; ``rest`` tells where others are."""
        if not self.labels:
            return []
        count = len(self.labels)
        which = f"{count} label{' is' if count == 1 else 's are'}"
        lines = [f"At {confidence:g}, {which} covered less than that, by more than chance:"]
        for one in self.labels[:most]:
            of = f"{one.rows:,} {kind}row{'s' if one.rows > 1 else ''}"
            lines.append(f"  {names[one.label]}: {one.coverage:.3f} of {of}")
        return lines + ([f"  and {count - most} more{rest}"] if count > most else [])


def short_labels(
    rows: Any,
    covered: Any,
    confidence: Any,
    calibration_rows: Any = None,
    *,
    repeats: float = 1.0,
    risk: float = 0.05,
    assurance: Any = None,
) -> Shortfall:
    """The labels that are covered less than ``confidence`` by more than chance.

    Parameters
    ----------
    rows, covered : how many rows each label has, and how many of them are covered, ``(C,)``.
    confidence : what was asked.
    calibration_rows : how many rows calibrated each label, or all of them; None if their luck does not count.
    repeats : how often a row is counted, where rows were tested more than once.
    risk : how likely any label may be named although it is covered as asked.
    assurance : that of the calibration, whose ranks follow from it.

    Examples
    --------
    >>> short_labels([2000, 50, 3], [1900, 30, 2], 0.95, 1000).labels[0].label
    1
    """
    rows, covered = np.asarray(rows), np.asarray(covered)
    n, h = np.floor(rows / repeats).astype(int), np.ceil(covered / repeats).astype(int)
    h = np.minimum(h, n)
    if calibration_rows is not None:
        calibration_rows = np.broadcast_to(calibration_rows, n.shape)
    least = _lower_tail(np.zeros_like(n), n, confidence, calibration_rows, assurance)
    tested = _could_be_significant(least, risk)
    calibrated = None if calibration_rows is None else calibration_rows[tested]
    p = _lower_tail(h[tested], n[tested], confidence, calibrated, assurance)
    adjusted = _holm(p)
    named = np.flatnonzero(adjusted <= risk)
    missing = float(1 - significance(confidence)) * rows - covered
    found = [
        Short(int(label), int(rows[label]), int(covered[label]), float(adjusted[at]))
        for at, label in zip(named, tested[named], strict=True)
    ]
    return Shortfall(sorted(found, key=lambda one: -missing[one.label]), len(tested))


def of_rows(
    y: np.ndarray, covered: np.ndarray, C: int, confidence: Any, calibration_rows: Any = None, assurance: Any = None
) -> Shortfall:
    """`short_labels` from codes of labels ``(n,)``, of which -1 is none of the ``C``, and whether each row is covered.

    >>> of_rows(np.array([0, 0, 0, 1, -1]), np.array([False, False, False, True, False]), 2, 0.95).labels[0].rows
    3
    """
    known = y >= 0
    rows = np.bincount(y[known], minlength=C)
    hits = np.bincount(y[known & covered], minlength=C)
    return short_labels(rows, hits, confidence, calibration_rows, assurance=assurance)


def of_evaluated(
    rows: Sequence[dict[str, Any]], y: Any, names: Sequence[Any], calibrated: np.ndarray
) -> list[Shortfall]:
    """`short_labels` from what ``model.evaluate(X, y)`` gave for several levels."""
    return [
        short_labels(*counts_of(row, y, names), row["confidence"], calibrated, assurance=row.get("assurance"))
        for row in rows
    ]


def counts_of(row: dict[str, Any], y: Any, names: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """How many rows each label has, and how many are covered, ``(C,)``; none where the coverage of a label is NaN."""
    labels, found = np.unique(np.asarray(y), return_counts=True)
    of = dict(zip(labels.tolist(), found.tolist(), strict=True))
    rows = np.array([of.get(name, 0) for name in names])
    share = np.nan_to_num([row[f"coverage_of_label_{name}"] for name in names])
    return rows, np.rint(share * rows).astype(int)


def why(*, by_label: bool, low_on_average: bool) -> str:
    """Why labels fall short, in words; `REMEDY` helps unless each label was calibrated by itself."""
    if by_label:
        return (
            "The model was calibrated for each label, so each label should be covered: these rows, or their labelling, "
            "may differ from the calibration rows."
        )
    if low_on_average:
        return (
            "Average coverage over all rows is too low as well: these rows may differ from the calibration rows. First "
            "calibrate on rows like these."
        )
    return "Coverage holds on average over all rows, not for each label."


def reason(*, by_label: bool, low_on_average: bool = False) -> str:
    """Why labels fall short, and what helps."""
    told = why(by_label=by_label, low_on_average=low_on_average)
    return told if by_label else f"{told} {REMEDY}"


def _lower_tail(
    h: np.ndarray, n: np.ndarray, confidence: Any, calibration_rows: np.ndarray | None, assurance: Any
) -> np.ndarray:
    """The chance that at most ``h`` of ``n`` rows are covered, the larger of both laws.

    Beta-binomial tails are those of a hypergeometric law: of ``m`` calibration scores and ``n`` new ones in order, the
    ``n - h``-th new one comes before the ``r``-th of calibration.
    """
    p = np.asarray(stats.binom.cdf(h, n, float(1 - significance(confidence))))
    if calibration_rows is None:
        return p
    numbers, which = np.unique(calibration_rows, return_inverse=True)
    r = np.array([rank(confidence, int(m), assurance) for m in numbers], dtype=int)[which]
    with np.errstate(invalid="ignore"):
        lucky = stats.hypergeom.cdf(r - 1, calibration_rows + n, calibration_rows, n - h + r - 1)
    return np.where(r > 0, np.fmax(p, lucky), 1.0)  # no rank: every set holds the label


def _could_be_significant(least: np.ndarray, risk: float) -> np.ndarray:
    """Tarone's rule: the most labels, those with the smallest attainable p-values, that could all be significant."""
    order = np.argsort(least, kind="stable")
    enough = least[order] <= risk / np.arange(1, len(least) + 1)
    return np.sort(order[: int(enough.sum())])  # rising against falling: they cross once


def _holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values.

    >>> _holm(np.array([0.04, 0.01, 0.03]))
    array([0.06, 0.03, 0.06])
    """
    order = np.argsort(p, kind="stable")
    result = np.empty(len(p))
    result[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return result
