"""Rows of a coarser type than the calibration rows: how to detect them, and how far their scores may be off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

from tightset.compute.row_types import UNSAID, Types, dtypes_of, number_type, round_to, values_of, with_columns

__all__ = ["held_by_float32", "rounded", "slack_of", "types_by_value"]

_FEW = 0.95  # share of calibration rows, none of which tie, whose rounding must be within the slack


def held_by_float32(X: Any) -> np.ndarray:
    """Which rows ``(n,)`` have only numbers that float32 holds; what is no number does not count.

    >>> held_by_float32(np.array([[0.5, 1.0], [0.1, 1.0], [np.float32(0.1), np.nan]]))
    array([ True, False,  True])
    """
    if sparse.issparse(X):
        outside = X.astype(np.float64)
        outside.data = (round_to(X.data, np.float32) != X.data).astype(np.float64)
        return np.asarray(np.asarray(outside.sum(axis=1)).ravel() == 0)
    columns: Iterable[np.ndarray]
    if not hasattr(X, "columns"):
        numbers = isinstance(X, np.ndarray) and X.dtype.kind in "fiu"
        columns = (X[:, [j]] for j in range(X.shape[1])) if numbers else _columns_of_objects(X)
    else:
        types = [number_type(name) for name in dtypes_of(X) or []]
        columns = [values_of(X, j)[:, None] for j, own in enumerate(types) if own is not None and own.kind != "b"]
        if hasattr(X, "iloc"):
            objects = [j for j, own in enumerate(types) if own is None]
            columns += [one for j in objects for one in _columns_of_objects(X.iloc[:, [j]])]
    held = np.ones(X.shape[0], dtype=bool)
    for column in columns:
        held &= ((round_to(column, np.float32) == column) | (column != column)).all(axis=1)
        if not held.any():  # as a rule after the first
            break
    return held


def _columns_of_objects(X: Any) -> list[np.ndarray]:
    try:
        return [np.asarray(X, dtype=np.float64).reshape(len(X), -1)]
    except (TypeError, ValueError):
        return []


def rounded(X: Any, coarse: str, every: slice | None = None) -> Any:
    """Rows whose numbers are those that a coarser type holds, in ``every`` column named; None if nothing changes."""
    dtype = np.dtype(coarse)
    places = range(X.shape[1])[every or slice(None)] if len(X.shape) == 2 else range(0)
    if hasattr(X, "columns"):
        changed = {}
        for j, name in enumerate(dtypes_of(X) or []):
            if j in places and (own := number_type(name)) is not None and own.kind != "b":
                before = values_of(X, j)
                after = round_to(before, dtype).astype(np.float64)
                if not np.array_equal(before, after, equal_nan=True):
                    changed[j] = after
        return with_columns(X, changed) if changed else None
    if number_type(str(getattr(X, "dtype", "object"))) is None:
        return None
    after = round_to(X, dtype).astype(np.float64)
    if every is not None:
        if sparse.issparse(X):
            return None
        after = np.where(np.isin(np.arange(X.shape[1]), list(places)), after, X)
    before, now = (X.data, after.data) if sparse.issparse(X) else (X, after)
    return None if np.array_equal(before, now, equal_nan=True) else after


def slack_of(scores: np.ndarray, of_rounded: np.ndarray, ties: np.ndarray) -> float:
    """By how much rounding moves scores ``(n,)``: of all that tie, for ties are what it must not break, and of most.

    (Of a row whose scores are its own, rounding may lead a tree to another leaf, far away; nothing ties with it.)

    >>> round(slack_of(np.array([1.0, 1.0, 3.0]), np.array([1.5, 1.5, 9.0]), np.array([True, True, False])), 3)
    0.5
    """
    with np.errstate(invalid="ignore"):
        moved = np.nan_to_num(np.abs(scores.astype(np.float64) - of_rounded), nan=0.0, posinf=0.0)
    slack = max(float(moved[ties].max(initial=0.0)), float(np.quantile(moved, _FEW, method="lower")))
    return slack * (1 + 2.0**-20)  # a sum is rounded, too


def types_by_value(types: Types, X: Any) -> Types:
    """The types of calibration rows; lists and objects do not say theirs, but their numbers may all be float32's.

    >>> types_by_value(None, np.array([[np.float32(0.1)]], dtype=float)), types_by_value("float64", np.array([[0.5]]))
    ('float32', 'float64')
    """
    names, own = (some if isinstance(some, list) else [some] for some in (types, dtypes_of(X)))
    if len(names) != len(own):
        return types
    unsaid = [name in UNSAID and _has_numbers(X, j, str(own[j])) for j, name in enumerate(names)]
    if not any(unsaid) or not held_by_float32(X).all():
        return types
    found = ["float32" if here else str(name) for here, name in zip(unsaid, names, strict=True)]
    return found if isinstance(types, list) else found[0]


def _has_numbers(X: Any, j: int, name: str) -> bool:
    """Whether a column holds numbers, perhaps as categories; texts of numbers are texts."""
    if name == "category" and hasattr(X, "iloc"):
        return X.iloc[:, j].cat.categories.dtype.kind in "fiu"
    return number_type(name) is not None
