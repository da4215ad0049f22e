"""Checks of labels (one type, none missing), and their encoding as whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from tightset.compute.rows import in_memory

__all__ = ["check_labels", "distinct_labels", "label_codes"]

_COUNTED = 2**12  # whole numbers below are counted where others are sorted


def check_labels(y: Any, name: str = "y") -> np.ndarray:
    """Labels ``(n,)`` of one kind, none missing: numbers, booleans or strings."""
    if y is None:
        raise ValueError(f"{name} must be given: this estimator requires y to be passed, but the target y is None")
    y = in_memory(y)
    if np.ma.is_masked(y):
        raise ValueError(f"{name} is a masked array in which labels are masked: leave those rows out, or fill them")
    numpy_dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if getattr(numpy_dtype, "kind", "O") != "O" and not y.isna().any():  # pandas' nullable numbers
        y = y.to_numpy(dtype=numpy_dtype)
    if isinstance(y, (list, tuple)) and len(y) and isinstance(y[0], (list, tuple)) and len(y[0]) != 1:
        raise ValueError(f"{name} must hold one label per row; got {y[0]!r} in the first")
    try:
        labels: np.ndarray = column_or_1d(y, warn=True, dtype=None)
    except ValueError as error:
        why = str(error).splitlines()[0]
        raise ValueError(f"{name} {why[2:]}" if why.startswith("y ") else f"{name}: {why}") from None
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(f"Input {name} contains infinity or a value too large for {labels.dtype!r}.")
    if labels.dtype == object:  # NaN differs from itself, and pandas' NA compares as neither
        missing = np.array([value is None or (value == value) is not True for value in labels], dtype=bool)
    else:
        missing = labels != labels
    if np.any(missing):
        raise ValueError(f"Input {name} contains NaN or a missing label, first in row {int(np.argmax(missing))}")
    if labels.dtype == object and not all(isinstance(value, str) for value in labels):
        if any(isinstance(value, bytes) for value in labels):
            raise ValueError(f"{name} has labels that are bytes; decode them, or make all of them numbers")
        if any(isinstance(value, str) for value in labels):
            raise ValueError(f"{name} mixes strings with other labels; make all of them strings or all numbers")
        try:
            labels = np.array(labels.tolist())
        except ValueError:
            raise ValueError(f"{name} must hold one label per row; got {labels[0]!r}") from None
    return labels


def distinct_labels(labels: np.ndarray) -> np.ndarray:
    """Each label once, sorted: `np.unique`, without sorting where labels can be counted.

    >>> distinct_labels(np.array([3, 1, 3]))
    array([1, 3])
    """
    if not _can_be_counted(labels):
        return np.unique(labels)
    return np.flatnonzero(np.bincount(labels.astype(np.intp, copy=False))).astype(labels.dtype)


def _can_be_counted(labels: np.ndarray) -> bool:
    """Whether these are whole numbers from 0 to a few thousand."""
    return labels.dtype.kind in "iu" and len(labels) > 0 and bool(labels.min() >= 0 and labels.max() < _COUNTED)


def label_codes(labels: np.ndarray, classes: np.ndarray, name: str, *, unknown: str = "raise") -> np.ndarray:
    """Labels as indices of the sorted ``classes``; one that is not among them is an error.

    With ``unknown="miss"`` it is -1, and an error only if none of the labels is known.
    """
    codes: np.ndarray = np.zeros(len(labels), dtype=np.intp)
    known = np.zeros(len(labels), dtype=bool)
    if _can_be_counted(labels) and _can_be_counted(classes):
        table = np.full(_COUNTED, -1, dtype=np.intp)
        table[classes] = np.arange(len(classes))
        codes = table[labels]
        known = codes >= 0
    elif (labels.dtype.kind in "biuf") == (classes.dtype.kind in "biuf"):  # numbers do not compare with strings
        own, fits = labels, np.ones(len(labels), dtype=bool)
        if labels.dtype.kind in "iu" and classes.dtype.kind in "iu" and labels.dtype != classes.dtype:
            # int64 meets uint64 in float64, which cannot tell large numbers apart
            own = labels.astype(classes.dtype)
            fits = (own < 0) == (labels < 0)
        codes = np.minimum(np.searchsorted(classes, own), len(classes) - 1)
        known = (classes[codes] == own) & fits & (own.astype(labels.dtype) == labels)
    if unknown == "miss" and known.any():
        return np.where(known, codes, -1)
    if not known.all():
        raise ValueError(
            f"{name} has labels that were not in training: {np.unique(labels[~known])[:5].tolist()}; "
            f"known labels are {classes[:10].tolist()}"
        )
    return codes
