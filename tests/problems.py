"""Small problems that several tests solve, and gradients by differences."""

import numpy as np

from tightset import Search
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.objectives.penalised import Penalised

CUBIC = Inefficiency("own", lambda w: w + 0.1 * w**3, lambda w: 1 + 0.3 * w**2)
WEIGHTS = ["none", "rows", "candidates"]
B, K, M, C = 3, 11, 3, 4


def problem(seed, f=SIZE, form="-1/L", weights="none"):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((K, M - 1)), np.ones(K)])
    y = rng.integers(0, C, K)
    theta = rng.standard_normal((B, M, C))
    weight = {"none": None, "rows": rng.uniform(0, 2, K), "candidates": rng.uniform(0, 2, (B, K))}[weights]
    objective = Penalised(rng.uniform(0.05, 0.3, B), rng.uniform(1, 50, B), rng.uniform(0.5, 3, B), f=f, form=form)
    return X, y, theta, weight, objective


def numeric_gradient(function, at, h=1e-5):
    result = np.empty_like(at)
    for index in np.ndindex(at.shape[1:]):
        step = np.zeros_like(at)
        step[(slice(None), *index)] = h
        # Fourth order: the error of the plain central difference is what would fail first at 1e-6.
        d1 = function(at + step) - function(at - step)
        d2 = function(at + 2 * step) - function(at - 2 * step)
        result[(slice(None), *index)] = (8 * d1 - d2) / (12 * h)
    return result


def assert_same_gradient(analytic, numeric):
    error = np.abs(analytic - numeric).max(axis=(1, 2)) / np.abs(numeric).max(axis=(1, 2))
    assert (error < 1e-6).all(), error


class Bowls:
    """``loss_b = scale_b |theta_b - 1|^2``; a NaN scale fails at once."""

    def __init__(self, scale):
        self.scale = np.asarray(scale, dtype=float)

    def __call__(self, theta):
        gap = theta - 1  # may overflow, which `minimise` must bear in silence
        return self.scale * (gap**2).sum(axis=(1, 2)), 2 * self.scale[:, None, None] * gap

    def take(self, candidates):
        return Bowls(self.scale[candidates])


def start(B):
    return np.zeros((B, 2, 2))


ON_A_SAMPLE = Search((("two-matrix", 2.0), ("softmax", 4.0)), pulls=(0.1, 0.01), max_iter=30, folds=3, rows=1000)


def rows_with_labels(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    logits = X @ np.array([[1.5, 0, -1], [0, 1.0, -1], [0.5, -0.5, 0], [0, 0, 0]]) + np.abs(X[:, :1]) * [2, 0, 0]
    return X, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
