"""Data on which claims are checked: rare labels, few rows, ties, noise, classifiers that rare labels break.

Those of scikit-learn, made ones, the paper's where `TIGHTSET_DATA` has them, and tables of your own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    name: str
    X: np.ndarray
    y: np.ndarray


def shipped() -> Iterator[Rows]:
    from sklearn import datasets

    for name in ("wine", "breast_cancer", "digits", "iris"):
        yield Rows(name, *getattr(datasets, f"load_{name}")(return_X_y=True))


def made(seed: int = 0) -> Iterator[Rows]:
    """Each with something that misleads."""
    rng = np.random.default_rng([seed, 1])
    yield Rows("overlapping", *_overlapping(rng, 6000, 8))
    yield Rows("few rows", *_overlapping(rng, 400, 4))
    X, y = _overlapping(rng, 3000, 4)
    for label, rows in ((4, 2), (5, 7), (6, 25)):
        y[rng.choice(len(y), rows, replace=False)] = label
    yield Rows("rare labels", X, y)
    yield Rows("a label of two rows", *_grid(rng))
    X = rng.standard_normal((3000, 6))
    yield Rows("noise", X, rng.integers(0, 5, len(X)))
    X, y = _overlapping(rng, 4000, 6)
    yield Rows("ties", np.sign(X[:, :3]), y)
    X = rng.standard_normal((4000, 5))
    frequency = np.minimum(rng.zipf(1.6, len(X)), 40)
    yield Rows("long tail of labels", X + frequency[:, None] / 10, frequency)
    X = rng.standard_normal((4000, 2))
    ring = np.hypot(*X.T) + 0.3 * rng.standard_normal(len(X))
    yield Rows("rings", X, np.digitize(ring, [0.7, 1.1, 1.5, 2.0]))


def _overlapping(rng: np.random.Generator, n: int, C: int) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(0, C, n)
    centres = 1.5 * rng.standard_normal((C, 5))
    return centres[y] + rng.standard_normal((n, 5)) * (1 + y[:, None] / C), y


def _grid(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Categories that decide the label but for a little, and a label of two rows, which breaks boosted trees."""
    levels = rng.integers(0, [3, 5, 4, 4, 3, 2, 3, 3], size=(9000, 8))
    points = levels @ np.array([3, 2, 2, 1, 2, 1, 1, 4])
    y = np.where(levels[:, 7] == 0, 0, np.digitize(points, [16, 21]) + 1)
    y[:2] = 4
    return np.hstack([np.eye(5)[column] for column in levels.T]), y


def of_paper(names: tuple[str, ...] = ("avila", "fotp", "wine", "covtype"), most: int = 8000) -> Iterator[Rows]:
    from studies.datasets import load

    for name in names:
        parts = load(name)
        X, y = np.concatenate([parts.X_train, parts.X_cal]), np.concatenate([parts.y_train, parts.y_cal])
        some = np.random.default_rng(0).permutation(len(y))[:most]
        yield Rows(f"{name} (paper)", X[some], y[some])


def of_table(path: str, target: str, most: int = 12_000) -> Rows:
    """A table with texts as columns of 0 and 1."""
    import pandas as pd

    frame = pd.read_csv(path)
    frame = frame.sample(min(most, len(frame)), random_state=0)
    y = frame.pop(target).astype(str).to_numpy()
    texts = [name for name in frame if frame[name].dtype.kind not in "fiub"]
    frame = frame.drop(columns=[name for name in texts if frame[name].nunique() > 50])
    return Rows(path.rsplit("/", 1)[-1], pd.get_dummies(frame.fillna(0)).to_numpy(dtype=float), y)
