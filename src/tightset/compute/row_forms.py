"""Forms of rows: sparse or dense, arrays or data frames of pandas or polars; and missing values among texts.

Results for a row must not depend on its form, so new rows are converted to the form of the training rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from tightset.compute.row_types import dtypes_of, number_type, values_of, with_columns

__all__ = ["as_floats", "as_they_are", "form_of", "gap_of", "in_form", "with_gap"]


def form_of(X: Any) -> str:
    """``"sparse"``, ``"pandas"``, ``"polars"`` or ``"array"``.

    >>> form_of(np.eye(2)), form_of(sparse.csr_array(np.eye(2)))
    ('array', 'sparse')
    """
    if sparse.issparse(X):
        return "sparse"
    return ("pandas" if hasattr(X, "iloc") else "polars") if hasattr(X, "columns") else "array"


def in_form(X: Any, form: str | None, names: Any = None) -> Any:
    """Rows in the form that those of training had, as far as that is known; arrays of anything but numbers as they are.

    Sums are rounded otherwise of sparse rows, scikit-learn computes in float64 where polars has float32, and a gap in a
    column of texts is None in polars and NaN in pandas, which encoders tell apart.

    >>> in_form(np.eye(2), "sparse").format
    'csr'
    """
    own = form_of(X)
    if form in (None, own) or len(getattr(X, "shape", ())) != 2:
        return X
    given = dtypes_of(X)
    types = given if isinstance(given, list) else [str(given)] * X.shape[1]
    numbers = [number_type(name) for name in types]
    if form in ("array", "sparse"):
        if any(kind is None for kind in numbers):
            return X
        rows = X.toarray() if own == "sparse" else _in_common(X, numbers) if own in ("pandas", "polars") else X
        return sparse.csr_array(rows) if form == "sparse" else rows
    if own in ("array", "sparse"):
        if numbers[0] is None:
            return X
        rows = X.toarray() if own == "sparse" else X
        names = range(X.shape[1]) if names is None else names
        columns: dict[str, Any] = {str(name): rows[:, j] for j, name in enumerate(names)}
    else:
        columns = {
            str(name): _column(X, j, kind) for j, (name, kind) in enumerate(zip(X.columns, numbers, strict=True))
        }
    if form == "pandas":
        import pandas as pd

        texts = [name for name, kind in zip(columns, types, strict=True) if kind.startswith(("Categorical", "Enum"))]
        frame = pd.DataFrame(columns, index=getattr(X, "index", None))
        return frame.astype(dict.fromkeys(texts, "category"))
    import polars as pl

    kinds = [pl.Categorical if name == "category" else None for name in types]
    return pl.DataFrame(
        [pl.Series(name, own, dtype=kind) for (name, own), kind in zip(columns.items(), kinds, strict=True)]
    )


def _column(X: Any, j: int, kind: Any) -> Any:
    """A column of a frame: numbers in their type, anything else as a list, with None in its gaps."""
    if kind is None:
        values = X.iloc[:, j] if hasattr(X, "iloc") else X.to_series(j)
        return [None if _is_gap(value) else value for value in values.to_list()]
    numbers = values_of(X, j)
    return numbers.astype(kind) if kind.kind == "f" or np.isfinite(numbers).all() else numbers


def _in_common(X: Any, numbers: list[Any]) -> np.ndarray:
    """The columns of a frame as one array, of a type that holds them all."""
    floats = [kind if kind.kind == "f" else np.dtype(np.float64) for kind in numbers]
    return np.column_stack([values_of(X, j) for j in range(len(numbers))]).astype(np.result_type(*floats))


def gap_of(X: Any) -> str | None:
    """What stands for a gap among texts and objects: ``"None"``, or ``"nan"``; None where there is no gap.

    (Pandas' NA in a column of objects is nothing that scikit-learn's encoders take; in its own columns they read NaN.)

    >>> gap_of(np.array([["a", None]], dtype=object)), gap_of(np.eye(2))
    ('None', None)
    """
    for _, values in _objects(X):
        gaps = values[[_is_gap(value) for value in values]]
        if len(gaps):
            return "None" if gaps[0] is None else "nan"
    return None


def with_gap(X: Any, gap: str | None) -> Any:
    """Rows whose gaps among texts and objects are what they were in training; encoders tell None from NaN.

    >>> with_gap(np.array([["a", None]], dtype=object), "nan").tolist()
    [['a', nan]]
    """
    if gap is None:
        return X
    marker: Any = None if gap == "None" else np.nan
    changed = {}
    for at, values in _objects(X):
        gaps = np.array([_is_gap(value) and value is not marker for value in values], dtype=bool)
        if gaps.any():
            changed[at] = np.where(gaps, marker, values)
    if not changed:
        return X
    return with_columns(X, changed) if hasattr(X, "iloc") else changed[0].reshape(X.shape)


def _objects(X: Any) -> Iterator[tuple[int, np.ndarray]]:
    """The columns of a pandas frame that are texts or objects, or all of an array of objects, flat."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        yield 0, X.ravel()
    elif hasattr(X, "iloc") and hasattr(X, "columns"):
        for j, name in enumerate(dtypes_of(X) or []):
            if name == "object" or name.startswith("str"):
                yield j, X.iloc[:, j].to_numpy(dtype=object)


def _is_gap(value: Any) -> bool:
    """None, NaN or pandas' NA, which compares as neither."""
    return value is None or (value == value) is not True


def as_they_are(rows: Any) -> Any:
    return rows


def as_floats(rows: Any, *, missing: bool = False) -> Any:
    """Finite numbers, dense or CSR, in the precision that they have; an error where they are none.

    ``missing``: NaN is one.
    """
    if sparse.issparse(rows):
        numbers = sparse.csr_array(rows, dtype=rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64)
        entries = numbers.data
    else:
        try:
            entries = numbers = np.asarray(rows)
            if numbers.dtype not in (np.float32, np.float64):
                entries = numbers = numbers.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("X must be numbers; it contains text or missing values") from None
    sound = np.isfinite(np.sum(entries, dtype=np.float64))  # as fast as it gets where all is well
    if not sound and (np.isinf(entries).any() or (np.isnan(entries).any() and not missing)):
        raise ValueError(f"Input X contains {'' if missing else 'NaN or '}infinity")
    return numbers
