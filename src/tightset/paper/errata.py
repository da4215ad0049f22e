"""Evidence for the errata that needs no row of the tables: measured once, and stored beside the results."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["footnote_rank_differs", "logits_against_softmax", "measure_errata"]


def measure_errata() -> dict[str, Any]:
    """What ``errata.json`` holds."""
    return {"footnote_differs_in": footnote_rank_differs(), "digits_at_99": logits_against_softmax()}


def footnote_rank_differs(cases: int = 20_000, seed: int = 0) -> int:
    """In how many random cases the footnote's quantile gives another set than eq. (1)."""
    rng = np.random.default_rng(seed)
    different = 0
    for _ in range(cases):
        n, eps = int(rng.integers(40, 400)), float(rng.choice([0.2, 0.1, 0.05]))
        alphas, score = np.sort(rng.standard_normal(n)), rng.standard_normal()
        exact = (alphas <= score).sum() + 1 > round(eps * (n + 1), 9)
        j = int(np.floor(round(eps * (n + 1), 9))) - 1
        different += bool(exact != (j < 1 or score > alphas[j - 1]))
    return different


def logits_against_softmax(splits: int = 5) -> dict[str, list[float]]:
    """Digits at 99 %, mean set sizes: one logistic regression, labels scored by linear logits and by softmax."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    from tightset.icp import Calibration

    X, y = load_digits(return_X_y=True)
    sizes: dict[str, list[float]] = {"logits": [], "softmax": []}
    for seed in range(splits):
        train, cal, test = np.split(np.random.default_rng(seed).permutation(len(y)), [len(y) // 2, 3 * len(y) // 4])
        scaler = StandardScaler().fit(X[train])
        model = LogisticRegression(max_iter=1000).fit(scaler.transform(X[train]), y[train])
        for name, score in (("logits", model.decision_function), ("softmax", model.predict_proba)):
            predictor = Calibration.of(score(scaler.transform(X[cal])), y[cal])
            sizes[name].append(float(predictor.sets(score(scaler.transform(X[test])), 0.99).sum(axis=1).mean()))
    return sizes
