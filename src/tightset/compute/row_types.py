"""Types of rows: whatever its dtype, a calibration row must tie with itself.

Float32 and float64 give a row scores that differ in their last digits, and 0.1 is not even the same number in both.
For discrete columns, where new rows are copies of calibration rows, that breaks ties, and with them coverage. So

1. rows are computed in the types of training, whatever they come in;
2. rows that are finer than the calibration rows were are rounded to their types first;
3. for rows that are coarser, scores count as equal to calibration scores within a ``slack``: by how much rounding to
   that type moves the scores of calibration rows (see `slack_of`). A row is coarse by its type, or if float32 holds all
   of its numbers: lists, objects and tensors do not say what type they once were;
4. rows of numbers are brought into the form of training, dense or sparse, an array or a frame, a piece at a time.

Conventions
-----------
Types of an array are a name such as ``"float32"``, those of a frame a list with one for each column. None is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Number
from types import NoneType
from typing import Any

import numpy as np
from scipy import sparse

__all__ = [
    "COARSE",
    "UNSAID",
    "Types",
    "coarser_than",
    "conform",
    "dtypes_of",
    "in_units_of",
    "number_type",
    "plain_numbers",
    "round_to",
    "rounded_to",
    "values_of",
    "with_columns",
]

Types = str | list[str] | None

COARSE = ("float32", "float16")
UNSAID = {None, "object", "category"}  # types that do not say of which numbers they are
_ARROW = {"double": "float64", "float": "float32", "halffloat": "float16"}


def dtypes_of(X: Any) -> Types:
    """The type of rows as given: one of an array, or one of each column of a frame; None of lists.

    >>> dtypes_of(np.zeros((2, 3)))
    'float64'
    """
    if hasattr(X, "dtypes") and not hasattr(X, "dtype"):
        return [str(dtype) for dtype in X.dtypes]
    return str(X.dtype) if hasattr(X, "dtype") else None


def number_type(name: str) -> np.dtype[Any] | None:
    """The NumPy type that holds the numbers of a type of NumPy, pandas or polars; None if it holds no numbers.

    >>> number_type("Float32"), number_type("boolean"), number_type("category")
    (dtype('float32'), dtype('bool'), None)
    """
    name = re.sub(r"\[pyarrow\]$", "", name)
    name = {"boolean": "bool", "float128": "float64", "float96": "float64", **_ARROW}.get(name.lower(), name.lower())
    if re.fullmatch(r"[<>][fiu][1248]", name):  # in the order of bytes of another machine
        return np.dtype(name).newbyteorder("=")
    return np.dtype(name) if re.fullmatch(r"(u?int|float)(8|16|32|64)|bool", name) else None


def _digits(dtype: np.dtype[Any] | None) -> int:
    """Binary digits that a type holds; whole numbers and what is unknown count as exact."""
    return np.finfo(dtype).nmant if dtype is not None and dtype.kind == "f" else 63


def _of_columns(types: Types, columns: int) -> list[np.dtype[Any] | None]:
    if types is None or isinstance(types, str):
        return [None if types is None else number_type(types)] * columns
    return [number_type(name) for name in types] if len(types) == columns else [None] * columns


def coarser_than(given: Types, calibrated: Types) -> str | None:
    """The coarsest float type of given columns that are coarser than those of calibration; None if none are.

    >>> coarser_than("float32", "float64"), coarser_than("float64", "float32"), coarser_than("int64", "float32")
    ('float32', None, None)
    """
    columns = len(given) if isinstance(given, list) else len(calibrated) if isinstance(calibrated, list) else 1
    own, theirs = _of_columns(given, columns), _of_columns(calibrated, columns)
    coarse = [one for one, other in zip(own, theirs, strict=True) if one is not None and _digits(one) < _digits(other)]
    return str(min(coarse, key=_digits)) if coarse else None


def rounded_to(trained: Types, calibrated: Types, columns: int) -> list[str | None]:
    """For each column, the float type coarser than float64 that `conform` rounds its numbers to; None if there is none.

    >>> rounded_to("float64", ["float64", "float32"], 2)
    [None, 'float32']
    """
    both = zip(_of_columns(trained, columns), _of_columns(calibrated, columns), strict=True)
    return [next((name for name in reversed(COARSE) if any(str(one) == name for one in pair)), None) for pair in both]


def plain_numbers(X: Any) -> Any:
    """The same rows in NumPy's own types, which scikit-learn computes in as they are, and with float32 for float16.

    Of pandas' nullable columns it makes float64 whatever they are, and in float16 its scalers would compute. Objects
    that are all numbers are float64.

    >>> import pandas as pd
    >>> plain_numbers(pd.DataFrame({"a": [1, 2], "b": [1.5, None]}, dtype="Float32")).dtypes.tolist()
    [dtype('float32'), dtype('float32')]
    """
    if not hasattr(X, "iloc"):
        dtype = str(getattr(X, "dtype", ""))
        if dtype == "object" and isinstance(X, np.ndarray):
            return X.astype(np.float64) if _are_numbers(X.ravel()) else X
        own = np.dtype(np.float32) if dtype == "float16" else number_type(dtype)
        return X if own is None or str(own) == dtype else X.astype(own)
    changed = {}
    for j, name in enumerate(dtypes_of(X) or []):
        if name.startswith("Sparse["):  # pandas' own
            changed[j] = X.iloc[:, j].sparse.to_dense().to_numpy()
            continue
        own = np.dtype(np.float64) if name == "object" and _are_numbers(X.iloc[:, j]) else number_type(name)
        if own is None or (name == str(own) and name != "float16"):
            continue
        own = np.dtype(np.float32) if own == np.float16 else own
        if own.kind != "f" and X.iloc[:, j].isna().any():
            own = np.dtype(np.float64)
        changed[j] = X.iloc[:, j].to_numpy(dtype=own, **({"na_value": np.nan} if own.kind == "f" else {}))
    return with_columns(X, changed) if changed else X


def _are_numbers(values: Iterable[Any]) -> bool:
    """Whether objects are numbers or missing: no texts, no truth values."""
    kinds = set(map(type, values)) - {NoneType}
    real = (issubclass(kind, Number) and not issubclass(kind, bool | complex | np.complexfloating) for kind in kinds)
    return bool(kinds) and all(real)


def in_units_of(trained: Types, X: Any) -> Any:
    """Rows whose dates and durations are in the units of training, of which computing sees the numbers only.

    >>> in_units_of("datetime64[D]", np.array([["2020-01-02T12"]], dtype="datetime64[h]"))
    array([['2020-01-02']], dtype='datetime64[D]')
    """
    given = dtypes_of(X)
    if given == trained or given is None or trained is None or len(getattr(X, "shape", ())) != 2:
        return X
    own, theirs = (types if isinstance(types, list) else [types] * X.shape[1] for types in (given, trained))
    if len(own) != len(theirs):  # which is told elsewhere
        return X
    other = {j: want for j, (one, want) in enumerate(zip(own, theirs, strict=True)) if _same_kind_of_time(one, want)}
    if not other:
        return X
    if not hasattr(X, "columns") and len(set(theirs)) == 1:
        return X.astype(theirs[0])
    if hasattr(X, "iloc"):
        return X.astype({X.columns[j]: want for j, want in other.items()})
    raise ValueError(f"X must have dates and durations of the same type as in training, {theirs[next(iter(other))]}")


def _same_kind_of_time(given: str, trained: str) -> bool:
    """Whether both are dates, or both durations, of different units; raises if only one is."""
    kinds = [re.match(r"datetime64|timedelta64|", name.lower()).group() for name in (given, trained)]  # type: ignore[union-attr]
    if kinds[0] != kinds[1]:
        raise ValueError(f"X has {given} where training had {trained}: convert it to the same type")
    return bool(kinds[0]) and given != trained


def conform(X: Any, trained: Types, calibrated: Types) -> Any:
    """Rows in the types of training, and no finer than those of calibration; what is no number stays as it is.

    A float stays one where training had whole numbers or truth values that cannot hold it.

    >>> conform(np.array([[1, 0]], dtype=np.float32), "float64", "float64").dtype
    dtype('float64')
    >>> float(conform(np.array([[0.1]]), "float64", "float32")[0, 0]) == float(np.float32(0.1))
    True
    """
    given = dtypes_of(X)
    if given is None or len(getattr(X, "shape", ())) != 2 or (given == trained and calibrated in (None, given)):
        return X
    wanted, bound = _of_columns(trained, X.shape[1]), _of_columns(calibrated, X.shape[1])
    if hasattr(X, "columns"):
        return _frame(X, wanted, bound)
    own = number_type(str(X.dtype))
    if own is None:
        return X
    one_bound = len(set(map(str, bound))) == 1
    if not one_bound and not sparse.issparse(X):  # an array, where calibration had a frame
        X = np.column_stack([_cast(X[:, j], None, one) for j, one in enumerate(bound)])
    # (A type equals None if it is float64, which NumPy takes None for.)
    common = None if any(one is None for one in wanted) else np.result_type(*wanted)
    return _cast(X, common, bound[0] if one_bound else None)


def _cast(X: Any, wanted: Any, bound: Any) -> Any:
    """Rounded to ``bound`` if that is coarser, then in the type ``wanted`` if it can hold the numbers."""
    if bound is not None and _digits(bound) < _digits(np.dtype(X.dtype)):
        X = round_to(X, bound)
    if wanted is None or wanted == X.dtype:
        return X
    if wanted.kind == "f":
        with np.errstate(over="ignore"):
            return X.astype(wanted)
    with np.errstate(invalid="ignore"):
        whole = X.astype(wanted)
    same = (whole != X).nnz == 0 if sparse.issparse(X) else np.array_equal(whole, X)
    return whole if same else X.astype(np.float64)  # in which scikit-learn computes whole numbers, too


def round_to(X: Any, dtype: Any) -> Any:
    """The numbers that ``dtype`` holds, in it or in a finer type; what it cannot hold stays as it is."""
    if sparse.issparse(X):  # SciPy has no sparse float16
        coarse = X.astype(np.float64)
        coarse.data = round_to(X.data, dtype).astype(np.float64)
        return coarse
    with np.errstate(over="ignore"):
        coarse = X.astype(dtype)
    lost = np.isinf(coarse) & np.isfinite(X)
    return np.where(lost, X, coarse.astype(np.float64)) if lost.any() else coarse


def _frame(X: Any, wanted: list[Any], bound: list[Any]) -> Any:
    changed = {}
    for j, (name, want, limit) in enumerate(zip(dtypes_of(X) or [], wanted, bound, strict=True)):
        own = number_type(name)
        if own is None and (want is not None or limit is not None):
            own = _of_values(X, j)
        if own is None:
            continue
        if want is None and own.kind == "f":  # objects and categories of numbers are computed in float64
            want = np.dtype(np.float64)  # noqa: PLW2901
        finer = limit is not None and _digits(limit) < _digits(own)
        if (want is not None and want != own) or finer or number_type(name) is None:
            changed[j] = _cast(values_of(X, j), want if want is not None else own, limit)
    return with_columns(X, changed) if changed else X


def _of_values(X: Any, j: int) -> np.dtype[Any] | None:
    """The type of a column of objects or categories that are numbers; None if they are not."""
    try:
        values_of(X, j)
    except (TypeError, ValueError):
        return None
    return np.dtype(np.float64)


def values_of(X: Any, j: int) -> np.ndarray:
    """A column of numbers as floats, NaN where missing."""
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan))
    import polars as pl

    try:
        return np.asarray(X.to_series(j).cast(pl.Float64).to_numpy())
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"the column {X.columns[j]!r} is not numbers: {error}") from None


def with_columns(X: Any, columns: dict[int, np.ndarray]) -> Any:
    if hasattr(X, "isetitem"):
        X = X.copy(deep=False)
        for j, values in columns.items():
            X.isetitem(j, values)
        return X
    import polars as pl

    return X.with_columns(pl.Series(X.columns[j], values) for j, values in columns.items())
