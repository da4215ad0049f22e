"""Checks of input that need no estimator, the rows held aside for calibration, and the one kind of warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tightset.icp import calibration_rows_needed

__all__ = ["TightsetWarning", "check_groups", "check_weight", "rows_to_hold", "stratified_split", "warn"]


class TightsetWarning(UserWarning):
    """Something that makes sets valid but larger than they could be, and what to do about it."""


def stratified_split(
    strata: np.ndarray, size: int, random_state: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Hold ``size`` rows aside, each stratum in proportion; every stratum keeps at least one row to train on."""
    counts = np.bincount(strata)
    share = size * counts / counts.sum()
    hold = np.minimum(np.floor(share).astype(int), np.maximum(counts - 1, 0))
    while hold.sum() < size and (hold < counts - 1).any():
        hold[np.argmax(np.where(hold < counts - 1, share - hold, -np.inf))] += 1
    mixed = random_state.permutation(len(strata))
    mixed = mixed[np.argsort(strata[mixed], kind="stable")]
    place = np.arange(len(strata)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = place < np.repeat(hold, counts)
    return np.sort(mixed[~held]), np.sort(mixed[held])


def rows_to_hold(calibration_size: Any, n: int, strictest: Any) -> int:
    """How many rows to hold aside: a quarter by default, more (up to half) if the level could not be met with it."""
    if calibration_size is None:
        return max(min(max(round(n / 4), calibration_rows_needed(strictest)), n // 2), 1)
    if isinstance(calibration_size, (int, np.integer)) and not isinstance(calibration_size, bool):
        rows = int(calibration_size)
    elif isinstance(calibration_size, (float, np.floating)) and 0 < calibration_size < 1:
        rows = max(round(n * float(calibration_size)), 1)
    else:
        rows = 0
    if not 0 < rows < n:
        raise ValueError(
            f"calibration_size must be a fraction between 0 and 1 or a number of rows from 1 to {n - 1}; "
            f"got {calibration_size!r}"
        )
    return rows


def check_weight(sample_weight: Any, n: int) -> np.ndarray | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have one number for each of the {n} rows; got shape {weight.shape}")
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("sample_weight must be finite and not negative")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row; at least one row of each of two classes must count")
    return weight


def check_groups(groups: Any, n: int, name: str) -> np.ndarray | None:
    if groups is None:
        return None
    values: np.ndarray = np.asarray(groups)
    if values.shape != (n,):
        raise ValueError(f"{name} must have one value for each of the {n} rows; got shape {values.shape}")
    return values


def warn(message: str) -> None:
    warnings.warn(message, TightsetWarning, stacklevel=4)
