"""Checks of labels (one type, none missing), and their encoding as whole numbers.

Labels that lie elsewhere are checked and encoded there: what comes here is a byte for each row, or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

from tightset.compute.arrays import label_counts
from tightset.compute.rows import in_memory, lies_elsewhere, of_parts

__all__ = ["Labels", "check_labels", "checked_labels", "distinct_labels", "label_codes"]

_COUNTED = 2**12  # whole numbers below are counted where others are sorted
_PIECE = 2**16  # labels that are looked up at once


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as the ``distinct`` ones, sorted, and which of them each row has, ``at (n,)``."""

    distinct: np.ndarray
    at: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.at.shape

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, rows: Any) -> Self:
        """Those of some rows."""
        return type(self)(self.distinct, self.at[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The labels themselves, one for each row."""
        return np.asarray(self.distinct[self.at], dtype=dtype)


def checked_labels(y: Any, name: str = "y") -> np.ndarray | Labels:
    """As `check_labels`; of labels that lie elsewhere only what they are and where comes here."""
    if not lies_elsewhere(y) or not hasattr(y, "to_delayed"):
        return check_labels(y, name)
    parts = [part for part in of_parts(y, partial(_encoded, name)) if len(part)]
    if not parts:
        return check_labels(y, name)
    found = [part.distinct for part in parts]
    alike = len({one.dtype.kind for one in found}) == 1
    distinct = np.unique(check_labels(np.concatenate(found if alike else [one.astype(object) for one in found]), name))
    few = np.min_scalar_type(-len(distinct))
    at = np.empty(sum(map(len, parts)), dtype=few)
    start = 0
    for part in parts:
        own = np.searchsorted(distinct, part.distinct).astype(few)
        at[start : start + len(part)] = own[part.at]
        start += len(part)
    return Labels(distinct, at)


def _encoded(name: str, y: Any) -> Labels:
    labels = check_labels(y, name)
    distinct = distinct_labels(labels)
    at = label_codes(labels, distinct, name)
    return Labels(distinct, at.astype(np.min_scalar_type(max(len(distinct) - 1, 0))))


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


def distinct_labels(labels: np.ndarray | Labels) -> np.ndarray:
    """Each label once, sorted: `np.unique`, without sorting where labels can be counted.

    >>> distinct_labels(np.array([3, 1, 3]))
    array([1, 3])
    """
    if isinstance(labels, Labels):
        return labels.distinct[np.flatnonzero(label_counts(labels.at, len(labels.distinct)))]
    if not _can_be_counted(labels):
        return np.unique(labels)
    return np.flatnonzero(label_counts(labels, int(labels.max()) + 1)).astype(labels.dtype)


def _can_be_counted(labels: np.ndarray) -> bool:
    """Whether these are whole numbers from 0 to a few thousand."""
    return labels.dtype.kind in "iu" and len(labels) > 0 and bool(labels.min() >= 0 and labels.max() < _COUNTED)


def label_codes(labels: np.ndarray | Labels, classes: np.ndarray, name: str, *, unknown: str = "raise") -> np.ndarray:
    """Labels as indices of the sorted ``classes``; one that is not among them is an error.

    With ``unknown="miss"`` it is -1, and an error only if none of the labels is known.
    """
    if isinstance(labels, Labels):
        own = label_codes(labels.distinct, classes, name, unknown=unknown).astype(np.min_scalar_type(-len(classes)))
        if np.array_equal(own, np.arange(len(own))):
            return labels.at
        found = np.empty(len(labels), dtype=own.dtype)
        for at in range(0, len(labels), _PIECE):
            found[at : at + _PIECE] = own[labels.at[at : at + _PIECE]]
        return found
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
