"""What in a table is a number, and which."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tightset.exceptions import TableError, needed_for

__all__ = ["GROUPED", "SEPARATED", "as_numbers", "is_number", "marks_of"]

# Numbers with a separator of thousands, or a decimal comma: they are texts, and the user is told.
GROUPED = r"-?[1-9]\d{0,2}([ '.,]\d{3})+"  # only thousands look like this, and some decimals
SEPARATED = r"-?(\d{1,3}([ '.,]\d{3})+([.,]\d+)?|\d+,\d+)"


def is_number(text: str) -> bool:
    """Whether it is a plain number: ``float`` takes more, such as ``nan`` and ``1_000``."""
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) is not None


def marks_of(text: str) -> str:
    """The options that read a number with separators.

    >>> marks_of("1.234,5"), marks_of("0,455"), marks_of("1 234")
    ("--decimal ',' --thousands '.'", "--decimal ','", "--thousands ' '")
    >>> marks_of("12,345")  # who knows?
    "--thousands ',' (or --decimal ',' if that is what it is)"
    """
    found = [mark for mark in text if mark in " '.,"]
    grouped = re.fullmatch(GROUPED, text) is not None and len(set(found)) == 1
    if grouped and found == [","]:
        return "--thousands ',' (or --decimal ',' if that is what it is)"
    decimal = None if grouped else found[-1]
    thousands = next((mark for mark in found if mark != decimal), None)
    options = {"--decimal": decimal if decimal != "." else None, "--thousands": thousands}
    return " ".join(f"{name} {mark!r}" for name, mark in options.items() if mark)


def as_numbers(values: Any, name: str) -> np.ndarray:
    """A column as floats, NaN where missing; raises if there is a text, or infinity."""
    with needed_for("a table", "cli"):
        import pandas as pd

    if isinstance(values.dtype, pd.SparseDtype):
        values = values.sparse.to_dense()
    if values.dtype.kind in "fiu":
        x = values.to_numpy(dtype=np.float64, na_value=np.nan)
        if values.dtype.kind == "f" and values.dtype.itemsize < 8:
            x = _as_written(x, f"float{8 * values.dtype.itemsize}")
    else:
        x = pd.to_numeric(values.where(~values.map(lambda v: isinstance(v, bool)), "truth"), errors="coerce")
        bad = x.isna() & values.notna()
        if bad.any():
            at = bad.argmax()
            raise TableError(
                f"the column {name!r} was numbers in training, but row {int(values.index[at]) + 1} has "
                f"{str(values.iloc[at])[:40]!r}: correct it, or leave the cell empty if it is missing"
            )
        x = x.to_numpy(dtype=np.float64)
    if np.isinf(x).any():
        row = int(values.index[np.isinf(x).argmax()]) + 1
        raise TableError(f"the column {name!r} has an infinite value in row {row}: correct it, or leave the cell empty")
    return np.asarray(x)


def _as_written(x: np.ndarray, coarse: str) -> np.ndarray:
    """Numbers of a coarser type as people write them: 0.1 in float32 is 0.1, as it would be in a file of texts.

    So a table ties with itself, whether it comes as CSV, as Parquet, or as a frame of either type.

    >>> _as_written(np.array([np.float32(0.1), np.nan], dtype=float), "float32")
    array([0.1, nan])
    """
    distinct, at = np.unique(x, return_inverse=True)
    return np.asarray(distinct.astype(coarse).astype(str).astype(np.float64)[at])
