"""The demonstration: SCPO and logistic regression on scikit-learn's digits."""

from __future__ import annotations

import numpy as np

from tightset.estimators.comparing import Comparison, compare
from tightset.estimators.conformal import ConformalClassifier
from tightset.estimators.scpo import SCPOClassifier

__all__ = ["compare_on_digits"]


def compare_on_digits(confidences: list[float], *, seed: int = 0, verbose: bool = False) -> list[Comparison]:
    """Train on half of digits, calibrate on a quarter, test on a quarter: the same rows for both predictors."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    train, cal, test = np.split(np.random.default_rng(seed).permutation(len(y)), [len(y) // 2, 3 * len(y) // 4])
    baseline = ConformalClassifier(confidence=confidences)
    scpo = SCPOClassifier(confidences, random_state=seed, verbose=verbose)
    for predictor in (baseline, scpo):
        predictor.fit(X[train], y[train], X_cal=X[cal], y_cal=y[cal])
    return compare(baseline, scpo, X[test], y[test], seed=seed)
