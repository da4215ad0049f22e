"""Random splits of rows: into folds, into training and calibration rows, and into a representative part.

They take a few bytes for each row while they work, in pieces: rows of a cluster are split by the client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["calibration_mask", "calibration_split", "fold_of_rows", "sample_of_rows", "stratified_split"]

_PIECE = 2**16  # rows


def fold_of_rows(y: np.ndarray, n_folds: int, rng: np.random.Generator, dtype: Any = np.intp) -> np.ndarray:
    """A fold for each row, at random, every label spread evenly over the folds.

    >>> np.bincount(fold_of_rows(np.array([0, 0, 0, 0, 1, 1]), 2, np.random.default_rng(0)))
    array([3, 3])
    """
    mixed = _row_numbers(len(y))
    rng.shuffle(mixed)
    fold = np.empty(len(y), dtype=dtype)
    for rows, place in _by_label(mixed, y):
        fold[rows] = place % n_folds
    return fold


def calibration_split(
    strata: np.ndarray, y: np.ndarray, size: int, random_state: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that train and the rows that calibrate, as `calibration_mask` says."""
    held = calibration_mask(strata, y, size, random_state)
    return np.flatnonzero(~held), np.flatnonzero(held)


def calibration_mask(strata: np.ndarray, y: np.ndarray, size: int, random_state: np.random.RandomState) -> np.ndarray:
    """Hold ``size`` rows aside to calibrate; ``strata`` are the categories that are calibrated each by itself.

    Labels are no strata unless they are such categories. A sample that happens to have many rows of a label would have
    them among the rows that train and among those that calibrate, the one would be tuned to the other, and new rows,
    which come from elsewhere, be covered less: by 3 percent of nine rows of two labels, by 1.5 of nineteen of eight.

    (Only where one label would be left to train on are rows drawn by label.)
    """
    held = _held(strata, size, random_state)
    train = ~held
    if (y[train] == y[np.argmax(train)]).all():
        return _held(y, size, random_state)
    return held


def stratified_split(
    strata: np.ndarray, size: int, random_state: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Hold ``size`` rows aside, each stratum in proportion, each row with the same probability ``size / n``.

    Systematic sampling: rows in random order within their stratum, strata side by side, every ``n / size``-th row from
    a random start. Rounding whole strata up or down instead would keep rare labels out of calibration, and with them
    the guarantee.
    """
    held = _held(strata, size, random_state)
    return np.flatnonzero(~held), np.flatnonzero(held)


def sample_of_rows(strata: np.ndarray, size: int, random_state: np.random.RandomState) -> np.ndarray:
    """The rows ``(size,)`` that `stratified_split` would hold aside."""
    return np.flatnonzero(_held(strata, size, random_state))


def _held(strata: np.ndarray, size: int, random_state: np.random.RandomState) -> np.ndarray:
    n = len(strata)
    mixed = _row_numbers(n)
    random_state.shuffle(mixed)
    taken, start = np.zeros(n, dtype=bool), random_state.uniform()
    for at in range(0, size, _PIECE):
        taken[np.floor((np.arange(at, min(at + _PIECE, size)) + start) * (n / size)).astype(int)] = True
    held = np.empty(n, dtype=bool)
    for rows, place in _by_label(mixed, strata):
        held[rows] = taken[place]
    return held


def _row_numbers(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32 if n < 2**31 else np.int64)


def _by_label(mixed: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows in the order of ``mixed``, and the places that they have if they are sorted by label, stably; in pieces."""
    labels = int(y.max(initial=0)) + 1
    counts = sum((np.bincount(y[at : at + _PIECE], minlength=labels) for at in range(0, len(y), _PIECE)), start=0)
    following = np.cumsum(counts) - counts  # the place of the next row of each label
    for at in range(0, len(y), _PIECE):
        rows = mixed[at : at + _PIECE]
        order = np.argsort(y[rows], kind="stable")
        rows = rows[order]
        own = y[rows]
        here = np.bincount(own, minlength=labels)
        yield rows, np.arange(len(own)) + (following - np.cumsum(here) + here)[own]
        following += here
