"""The rows that the benchmarks run on: the paper's data where they are at hand, else rows of the same shape."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from studies.datasets import DataError, load

SHAPES = {"avila": (6954, 11, 9), "covtype": (12000, 55, 7)}  # rows, columns with the constant, classes


class Data(NamedTuple):
    """Training rows, and rows to calibrate and to test on; the last column is the constant 1."""

    X: np.ndarray
    y: np.ndarray
    X_cal: np.ndarray
    y_cal: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_classes: int
    source: str


def rows_of(k: int, m: int, C: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal columns, a constant, and labels that depend on them; the shape is what costs."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((k, m - 1)), np.ones(k)])
    return X, np.argmax(X @ rng.standard_normal((m, C)) + rng.gumbel(size=(k, C)), axis=1)


@cache
def data(name: str) -> Data:
    """One of the paper's sets, standardised, or rows of its shape."""
    k, m, C = SHAPES[name]
    try:
        split = load(name)
    except DataError:
        X, y = rows_of(2 * k, m, C)
        half, rest = k + k // 2, 2 * k
        return Data(X[:k], y[:k], X[k:half], y[k:half], X[half:rest], y[half:rest], C, f"rows of {name}'s shape")
    classes = np.unique(split.y_train)
    centre, scale = split.X_train.mean(axis=0), split.X_train.std(axis=0)
    X, X_cal, X_test = (
        np.column_stack([(part - centre) / np.where(scale > 0, scale, 1), np.ones(len(part))])
        for part in (split.X_train, split.X_cal, split.X_test)
    )
    y, y_cal, y_test = (np.searchsorted(classes, part) for part in (split.y_train, split.y_cal, split.y_test))
    return Data(X, y, X_cal, y_cal, X_test, y_test, C, name)
