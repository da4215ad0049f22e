"""Two predictors side by side on the same rows: sizes, the paired test, and what was found, said plainly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from tightset.metrics import bootstrap_difference, sign_test
from tightset.shortfall import Shortfall, counts_of, short_labels

__all__ = ["Comparison", "compare", "over_splits", "short_over_splits", "verdict"]


class Comparison(NamedTuple):
    """Baseline and SCPO at one level on the same test rows; the interval is of SCPO's size minus the baseline's.

    It tells chance in the test rows, not in the rows that trained and calibrated.
    """

    confidence: float
    baseline: dict[str, Any]
    scpo: dict[str, Any]
    change: float
    low: float
    high: float
    p_value: float


def compare(baseline: Any, scpo: Any, X: Any, y: Any, *, seed: int = 0) -> list[Comparison]:
    """Compare two fitted predictors of the same levels on test rows.

    >>> from sklearn.datasets import load_wine
    >>> from tightset import ConformalClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = ConformalClassifier(confidence=[0.8, 0.9], random_state=0).fit(X, y)
    >>> [row.change for row in compare(clf, clf, X, y)]
    [0.0, 0.0]
    """
    levels = [float(level) for level in scpo.levels_]
    rows = [predictor.evaluate(X, y, confidence=levels) for predictor in (baseline, scpo)]
    sizes = [predictor.predict_set(X, confidence=levels).sum(axis=2) for predictor in (baseline, scpo)]
    return [
        Comparison(
            level,
            rows[0][at],
            rows[1][at],
            rows[1][at]["mean_size"] / max(rows[0][at]["mean_size"], 1e-9) - 1,
            *bootstrap_difference(sizes[1][at], sizes[0][at], random_state=seed)[1:],
            sign_test(sizes[1][at], sizes[0][at]).p_value,
        )
        for at, level in enumerate(levels)
    ]


def over_splits(found: Sequence[Sequence[Comparison]], test_share: float) -> list[Comparison]:
    """Means over splits of the same rows, and what changes from split to split as an interval of the mean change.

    Which rows train and calibrate moves sizes more than which rows test. Splits share rows, so the variance of their
    mean is not a ``J``-th of that between them but ``1 / J + test / (1 - test)`` (Nadeau and Bengio).
    """
    result = []
    for rows in zip(*found, strict=True):
        baseline, scpo = (
            {key: float(np.mean([row[side][key] for row in rows])) for key in ("coverage", "mean_size")}
            for side in (1, 2)
        )
        changes = np.array([row.change for row in rows])
        mean, J = float(changes.mean()), len(rows)
        error = max(float(changes.std(ddof=1)), 1e-12) * np.sqrt(1 / J + test_share / (1 - test_share))
        reach = float(stdtrit(J - 1, 0.975)) * error * baseline["mean_size"]
        difference = mean * baseline["mean_size"]
        p_value = float(2 * stdtr(J - 1, -abs(mean) / error))
        result.append(
            Comparison(rows[0].confidence, baseline, scpo, mean, difference - reach, difference + reach, p_value)
        )
    return result


def short_over_splits(
    found: Sequence[Sequence[Comparison]],
    labels: Sequence[np.ndarray],
    names: Sequence[Any],
    calibration_rows: Any,
    test_share: float,
) -> list[Shortfall]:
    """For each level, the labels that SCPO's sets cover less than was asked, over the test rows of all splits.

    ``labels`` has those of the test rows of each split, ``names`` all labels that there are. A row may be tested in
    several of ``J`` splits, and tells little new then: ``1 + (J - 1) test_share`` rows count as one, as if a row had
    the same fate in every split.
    """
    repeats = 1 + (len(found) - 1) * test_share
    result = []
    for rows in zip(*found, strict=True):
        counts = [counts_of(row.scpo, y, names) for row, y in zip(rows, labels, strict=True)]
        there, covered = np.sum(counts, axis=0)
        result.append(short_labels(there, covered, rows[0].confidence, calibration_rows, repeats=repeats))
    return result


def verdict(rows: Sequence[Comparison]) -> str:
    """At which levels the sets are clearly smaller, or larger: where the interval is on one side of zero."""
    levels = {
        "smaller at": [row for row in rows if row.high < 0],
        "larger at": [row for row in rows if row.low > 0],
        "not clearly different at": [row for row in rows if row.low <= 0 <= row.high],
    }
    said = [f"{how} {', '.join(f'{row.confidence:g}' for row in some)}" for how, some in levels.items() if some]
    return f"SCPO's sets are {', '.join(said)}."
