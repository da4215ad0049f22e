"""The paper's baseline, re-created: multinomial regression as R's ``nnet::multinom`` fits it, and its slip."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from sklearn.base import BaseEstimator, ClassifierMixin

__all__ = ["Exchanged", "Multinom"]

_STEPS = 100  # multinom's maxit
_ENOUGH = 1e-4  # its abstol: the summed log-loss at which it stops
_STILL = 1e-8  # its reltol: the relative decrease at which it stops


class Multinom(ClassifierMixin, BaseEstimator):
    """Unregularised multinomial regression by BFGS from zeros, first class the reference, stopped as multinom stops.

    On data that the classes separate it does not converge: the coefficients, and with them the sets, are what a hundred
    steps made of them. That is the point; as a classifier use scikit-learn's.
    """

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, codes = np.unique(y, return_inverse=True)
        n, C = len(codes), len(self.classes_)
        Z = np.column_stack([np.ones(n), X])
        own = np.eye(C)[codes]
        before = [np.inf]

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            p, log_p = _softmax(Z @ w.reshape(-1, C - 1))
            return -log_p[np.arange(n), codes].sum(), (Z.T @ (p - own))[:, 1:].ravel()

        def stop(intermediate_result: OptimizeResult) -> None:
            now = float(intermediate_result.fun)
            if now < _ENOUGH or before[0] - now < _STILL * (abs(now) + _STILL):
                raise StopIteration
            before[0] = now

        start = np.zeros(Z.shape[1] * (C - 1))
        found = minimize(loss, start, jac=True, method="BFGS", callback=stop, options={"maxiter": _STEPS, "gtol": 0.0})
        self.coefficients_ = found.x.reshape(-1, C - 1)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return _softmax(np.column_stack([np.ones(len(X)), X]) @ self.coefficients_)[0]


def _softmax(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    full = np.column_stack([np.zeros(len(logits)), logits])
    full -= full.max(axis=1, keepdims=True)
    log_p = full - np.log(np.exp(full).sum(axis=1, keepdims=True))
    return np.exp(log_p), log_p


class Exchanged:
    """A trained binary classifier with its two probabilities exchanged: the slip that the printed baselines betray."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.classes_ = model.classes_

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict_proba(X))[:, ::-1]
