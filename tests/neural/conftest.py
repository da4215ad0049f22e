"""Rows that networks are trained on."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def rows():
    """Four overlapping classes; two pairs of them can be told apart by a product of columns only."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 6))
    first, second = 2 * np.sign(X[:, 0] * X[:, 1]), 2 * X[:, 2]
    y = np.argmax(
        np.outer(first, [1, 1, -1, -1]) + np.outer(second, [1, -1, 1, -1]) + rng.gumbel(size=(1200, 4)), axis=1
    )
    return X[:800], y[:800], X[800:], y[800:]
