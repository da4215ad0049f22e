"""Whether rows of a table with types, Parquet or a data frame, are the same numbers when they come from CSV.

A model promises coverage for rows like those of calibration. Rows that are written to another kind of file should stay
what they are, and mostly do; where a column does not (a type that CSV spells in its own way), users have to know.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from tightset.exceptions import TableError, warn
from tightset.tables.encoding import Encoding
from tightset.tables.files import TableFile
from tightset.tables.frames import FrameTable
from tightset.tables.parquet import first_rows

__all__ = ["warn_of_readings"]

_LOOKED_AT = 1000  # rows


def warn_of_readings(encoding: Encoding, table: Any) -> None:
    """Warn of columns that are other numbers if rows of the table are written to CSV, or given as a data frame."""
    typed = _typed(table)
    if typed is None or not len(typed):
        return
    some = np.unique(np.linspace(0, len(typed) - 1, _LOOKED_AT).astype(np.intp))
    typed = typed.iloc[some]
    expected = _numbers(encoding, table, some)
    with tempfile.TemporaryDirectory() as folder:
        as_csv = f"{folder}/rows.csv"
        typed.to_csv(as_csv, index=False)
        others = {
            "CSV": TableFile(as_csv, missing=table.missing, delimiter=","),
            "a data frame": FrameTable(typed, table.missing),
        }
        for kind, other in others.items():
            found = _numbers(encoding, other)
            wrong = [name for name, rows in expected.items() if not np.array_equal(rows, found[name], equal_nan=True)]
            if wrong:
                warn(
                    f"the column{'s' if len(wrong) > 1 else ''} {', '.join(map(repr, wrong[:5]))} would be read "
                    f"differently from {kind} than from {table.name}; predict from the same kind of table"
                )


def _typed(table: Any) -> Any:
    """The first rows with their types; None of a file of text."""
    if isinstance(table, FrameTable):
        return table.frame
    return first_rows(table.where) if table.is_parquet else None


def _numbers(encoding: Encoding, table: Any, some: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """What each column of the first rows becomes; a column that cannot be read is empty."""
    frame = next(iter(table.chunks(text=encoding.text, only=[column.name for column in encoding.columns])))
    frame = frame if some is None else frame.iloc[some]
    found = {}
    for column in encoding.columns:
        rows = np.empty((len(frame), len(column.names)), dtype=encoding.dtype)
        try:
            column.write(frame[column.name], rows)
        except TableError:
            rows = np.empty((0, 0))
        found[column.name] = rows
    return found
