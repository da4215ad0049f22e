"""The demonstration: fruit whose kinds overlap, made so that the best possible sets are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator

from tightset.estimators.base import ConformalPredictor
from tightset.estimators.comparing import Comparison, compare
from tightset.estimators.conformal import ConformalClassifier
from tightset.estimators.scpo import SCPOClassifier

__all__ = ["CENTRES", "KINDS", "ROWS", "SPREAD", "Demo", "Example", "run_demo"]

KINDS = np.array(["apricot", "cherry", "peach", "plum"])
CENTRES = np.array([[5.0, 6.0], [3.0, 7.0], [5.0, 5.0], [6.0, 3.0]])
SPREAD = np.array([0.5, 0.7, 2.0, 0.8])  # peaches vary more than all others
ROWS = (1500, 1000, 2000)  # train, calibrate, test


class Example(NamedTuple):
    """A new row, its set, its true label, and what its set says."""

    size: float
    colour: float
    labels: list[str]
    true: str
    meaning: str


class Demo(NamedTuple):
    """Examples at the last level; coverage and mean size of each method at each level; and comparisons with them."""

    examples: list[Example]
    measured: dict[str, list[dict[str, Any]]]
    against: dict[str, list[Comparison]]


class _Known(ClassifierMixin, BaseEstimator):
    """The true probabilities, from how the data are made: no classifier can know more."""

    classes_ = KINDS

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        squares = ((np.asarray(X)[:, None] - CENTRES) ** 2).sum(axis=2)
        logs = -squares / (2 * SPREAD**2) - 2 * np.log(SPREAD)
        odds = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def run_demo(levels: list[float], *, seed: int = 0, verbose: Any = False) -> Demo:
    """Train, calibrate and test four methods on the same rows; all but tightset threshold probabilities."""
    X, codes = make_blobs(sum(ROWS), centers=CENTRES, cluster_std=SPREAD, random_state=seed)
    (X_train, X_cal, X_new), (y_train, y_cal, y_new) = (np.split(one, np.cumsum(ROWS)[:2]) for one in (X, KINDS[codes]))
    how: dict[str, Any] = {"confidence": levels, "random_state": seed}
    methods: dict[str, ConformalPredictor] = {
        "logistic regression, thresholded": ConformalClassifier(**how),
        "boosted trees, thresholded": ConformalClassifier("hgb", **how),
        "tightset": SCPOClassifier(search="fast", verbose=verbose, **how),
    }
    for method in methods.values():
        method.fit(X_train, y_train, X_cal=X_cal, y_cal=y_cal)
    methods["the best possible, known here"] = ConformalClassifier(FrozenEstimator(_Known()), **how).fit(X_cal, y_cal)
    ours, others = methods["tightset"], list(methods)[:2]
    return Demo(
        _examples(ours.predict_set(X_new, confidence=levels[-1]), X_new, y_new, 100 * (1 - levels[-1])),
        {name: method.evaluate(X_new, y_new) for name, method in methods.items()},
        {name: compare(methods[name], ours, X_new, y_new, seed=seed) for name in others},
    )


def _examples(sets: np.ndarray, X: np.ndarray, y: np.ndarray, share_missed: float) -> list[Example]:
    """The first new row of each size of set whose true label is in it, and the first whose is not."""
    sizes, hit = sets.sum(axis=1), sets[np.arange(len(y)), np.searchsorted(KINDS, y)]
    meanings = ["no kind fits well enough", "one kind: a plain answer", "either of two", "any of three", "could be any"]
    chosen = [(int(np.flatnonzero(hit & (sizes == size))[0]), meanings[size]) for size in np.unique(sizes[hit])]
    if not hit.all():
        chosen.append((int(np.flatnonzero(~hit)[0]), f"missed, as {share_missed:.3g}% may be"))
    return [
        Example(round(float(X[at, 0]), 1), round(float(X[at, 1]), 1), KINDS[sets[at]].tolist(), str(y[at]), meaning)
        for at, meaning in chosen
    ]
