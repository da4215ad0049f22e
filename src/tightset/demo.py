"""The demonstration: scikit-learn's digits, the honest baseline beside SCPO, what was found said plainly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tightset.classifier import ConformalClassifier
from tightset.metrics import bootstrap_difference, sign_test
from tightset.scpo import SCPOClassifier

__all__ = ["Comparison", "compare_on_digits"]


class Comparison(NamedTuple):
    """Baseline and SCPO at one level on the same test rows; the interval is of SCPO's size minus the baseline's."""

    confidence: float
    baseline: dict[str, Any]
    scpo: dict[str, Any]
    change: float
    low: float
    high: float
    p_value: float


def compare_on_digits(confidences: list[float], *, seed: int = 0, verbose: bool = False) -> list[Comparison]:
    """Train on half of digits, calibrate on a quarter, test on a quarter: the same rows for both predictors."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    train, cal, test = np.split(np.random.default_rng(seed).permutation(len(y)), [len(y) // 2, 3 * len(y) // 4])
    predictors: list[Any] = [
        ConformalClassifier(confidence=confidences),
        SCPOClassifier(confidences, random_state=seed, verbose=verbose),
    ]
    rows, sizes = [], []
    for predictor in predictors:
        predictor.fit(X[train], y[train], X_cal=X[cal], y_cal=y[cal])
        rows.append(predictor.evaluate(X[test], y[test]))
        sizes.append(predictor.predict_set(X[test]).sum(axis=2))
    return [
        Comparison(
            level,
            rows[0][at],
            rows[1][at],
            rows[1][at]["mean_size"] / max(rows[0][at]["mean_size"], 1e-9) - 1,
            *bootstrap_difference(sizes[1][at], sizes[0][at], random_state=seed)[1:],
            sign_test(sizes[1][at], sizes[0][at]).p_value,
        )
        for at, level in enumerate(confidences)
    ]
