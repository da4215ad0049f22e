"""Random splits of rows: into folds, into training and calibration rows, and into a representative part."""

from __future__ import annotations

import numpy as np

__all__ = ["calibration_split", "fold_of_rows", "stratified_split"]


def fold_of_rows(y: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold for each row, at random, every label spread evenly over the folds.

    >>> np.bincount(fold_of_rows(np.array([0, 0, 0, 0, 1, 1]), 2, np.random.default_rng(0)))
    array([3, 3])
    """
    shuffled = rng.permutation(len(y))
    fold = np.empty(len(y), dtype=np.intp)
    fold[shuffled[np.argsort(y[shuffled], kind="stable")]] = np.arange(len(y)) % n_folds
    return fold


def calibration_split(
    strata: np.ndarray, y: np.ndarray, size: int, random_state: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Hold ``size`` rows aside to calibrate; ``strata`` are the categories that are calibrated each by itself.

    Labels are no strata unless they are such categories. A sample that happens to have many rows of a label would have
    them among the rows that train and among those that calibrate, the one would be tuned to the other, and new rows,
    which come from elsewhere, be covered less: by 3 percent of nine rows of two labels, by 1.5 of nineteen of eight.

    (Only where one label would be left to train on are rows drawn by label.)
    """
    train, held = stratified_split(strata, size, random_state)
    if (y[train] == y[train[:1]]).all():
        return stratified_split(y, size, random_state)
    return train, held


def stratified_split(
    strata: np.ndarray, size: int, random_state: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Hold ``size`` rows aside, each stratum in proportion, each row with the same probability ``size / n``.

    Systematic sampling: rows in random order within their stratum, strata side by side, every ``n / size``-th row from
    a random start. Rounding whole strata up or down instead would keep rare labels out of calibration, and with them
    the guarantee.
    """
    n = len(strata)
    mixed = random_state.permutation(n)
    mixed = mixed[np.argsort(strata[mixed], kind="stable")]
    held = mixed[np.floor((np.arange(size) + random_state.uniform()) * (n / size)).astype(int)]
    return np.setdiff1d(np.arange(n), held), np.sort(held)
