"""Two predictors side by side on the same rows: sizes, the paired test, and what was found, said plainly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tightset.metrics import bootstrap_difference, sign_test

__all__ = ["Comparison", "compare", "verdict"]


class Comparison(NamedTuple):
    """Baseline and SCPO at one level on the same test rows; the interval is of SCPO's size minus the baseline's."""

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


def verdict(rows: Sequence[Comparison]) -> str:
    """At which levels the sets are clearly smaller, or larger: where the interval is on one side of zero."""
    smaller = [f"{row.confidence:g}" for row in rows if row.high < 0]
    larger = [f"{row.confidence:g}" for row in rows if row.low > 0]
    open_ones = len(rows) - len(smaller) - len(larger)
    return (
        f"SCPO's sets are smaller at {', '.join(smaller) or 'no level'}, larger at {', '.join(larger) or 'no level'}"
        f"{', and not clearly different at the others' if open_ones else ''}."
    )
