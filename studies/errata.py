"""Evidence for the errata that needs no row of the tables: measured once, and stored beside the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from studies.datasets import load
from studies.recipes import DATASETS
from tightset.conformal.calibration import Calibration

__all__ = ["footnote_rank_differs", "logits_against_softmax", "majorities", "measure_errata"]


def measure_errata(names: list[str], data_dir: str | Path | None = None) -> dict[str, Any]:
    """What ``errata.json`` holds: each figure with the settings it was measured with."""
    return {
        "footnote": footnote_rank_differs(),
        "digits_at_99": logits_against_softmax(),
        "majority_pct": majorities(names, data_dir),
    }


def footnote_rank_differs(cases: int = 20_000, seed: int = 0) -> dict[str, int]:
    """In how many random cases the footnote's quantile gives another set than eq. (1)."""
    rng = np.random.default_rng(seed)
    smallest, largest, differs = 40, 399, 0
    for _ in range(cases):
        n, eps = int(rng.integers(smallest, largest + 1)), float(rng.choice([0.2, 0.1, 0.05]))
        alphas, score = np.sort(rng.standard_normal(n)), rng.standard_normal()
        exact = (alphas <= score).sum() + 1 > round(eps * (n + 1), 9)
        j = int(np.floor(round(eps * (n + 1), 9))) - 1
        differs += bool(exact != (j < 1 or score > alphas[j - 1]))
    return {"cases": cases, "smallest": smallest, "largest": largest, "differs": differs}


def logits_against_softmax(splits: int = 5) -> dict[str, list[float]]:
    """Digits at 99 %, mean set sizes: one logistic regression, labels scored by linear logits and by softmax."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

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


def majorities(names: list[str], data_dir: str | Path | None = None) -> dict[str, float]:
    """The share of the most frequent label of each data set, in per cent of all its rows."""
    shares = {}
    for name in names or DATASETS:
        split = load(name, 0, data_dir)
        labels = np.concatenate([split.y_train, split.y_cal, split.y_test])
        shares[name] = round(100 * float(np.unique(labels, return_counts=True)[1].max()) / len(labels), 2)
    return shares
