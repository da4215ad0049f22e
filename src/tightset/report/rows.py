"""The rows that a report lists: their cells as text, and their sets at the level shown when the page opens."""

from __future__ import annotations

from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.rows import take
from tightset.exceptions import needed_for
from tightset.report.numbers import Listed
from tightset.report.words import NAME, p_text, text, thousandths

__all__ = ["MISSING", "UNSEEN", "Cells", "cells_of", "row_of"]

UNSEEN = "(not in training)"  # in place of a label that the model does not know
MISSING = "(missing)"  # in place of an empty cell, within a sentence
_COLUMNS, _CELL = 8, 80  # columns shown, characters of a cell
_SET = 6  # labels of a set shown at once; the script has the same number


class Cells(NamedTuple):
    """What stands in the first columns of some rows."""

    columns: list[str]
    numeric: list[bool]  # whether all cells of a column are numbers
    texts: list[list[str]]  # for each row
    of: int  # columns that there are, with the index if it is one


def cells_of(frame: Any, at: np.ndarray, names: Any) -> Cells:
    """The first columns of the rows ``at``; an index is a column too."""
    with needed_for("a report", "cli"):
        import pandas as pd

    part = take(frame, at)
    if hasattr(part, "iloc"):
        if not isinstance(frame.index, pd.RangeIndex):
            part = part.reset_index(allow_duplicates=True)
        columns = [text(name, NAME) for name in part.columns[:_COLUMNS]]
        values = [part.iloc[:, j].tolist() for j in range(len(columns))]
    elif hasattr(part, "columns"):
        columns = [text(name, NAME) for name in part.columns[:_COLUMNS]]
        values = [part[name].to_list() for name in part.columns[:_COLUMNS]]
    else:
        some = part[:, :_COLUMNS]
        some = some.toarray() if hasattr(some, "toarray") else np.asarray(some)
        columns = [text(names[j] if names is not None else f"column {j}", NAME) for j in range(some.shape[1])]
        values = list(some.T)
    numeric = [all(isinstance(value, Number) and not isinstance(value, bool) for value in column) for column in values]
    texts = [[text(_rounded(value), _CELL) for value in row] for row in zip(*values, strict=True)]
    return Cells(columns, numeric, texts, part.shape[1])


def _rounded(value: Any) -> Any:
    """Numbers for reading: four digits, more where they stand before the point.

    >>> _rounded(3.14159265), _rounded(123456.789), _rounded("3.14159")
    ('3.142', '123457', '3.14159')
    """
    if not isinstance(value, (float, np.floating)) or np.isnan(value):
        return value
    size = abs(float(value))
    return f"{value:.4g}" if size < 1e4 or size >= 1e15 else f"{value:.0f}"


def row_of(
    rows: Listed, labels: list[str], columns: list[str], cells: list[str], truth: int | None, at: int, r: int, k: int
) -> dict[str, Any]:
    """A row as the page shows it at a level before its script has run."""
    measure, kept = rows.measure[k], rows.kept[k, r]
    top = {int(c): p_text(p) for c, p in zip(rows.top[measure][r], thousandths(rows.top_p[measure][r]), strict=True)}
    inside = [c for c in top if kept[c]] + [int(c) for c in np.flatnonzero(kept) if c not in top]
    inside = inside if rows.rank is None else sorted(inside, key=rows.rank.__getitem__)
    found = {
        "at": at,
        "size": len(inside),
        "set": [{"name": labels[c], "p": top.get(c, "")} for c in inside[:_SET]],
        "more": max(0, len(inside) - _SET),
        "best": next(iter(top.values())),
        "cells": cells,
        "text": ", ".join(f"{name} = {cell or MISSING}" for name, cell in list(zip(columns, cells, strict=True))[:4]),
    }
    if truth is not None and rows.own_p is not None:
        own = p_text(thousandths(rows.own_p[measure][r : r + 1])[0])
        known = truth >= 0
        found |= {"truth": labels[truth] if known else UNSEEN, "own_p": own, "missed": not (known and kept[truth])}
    return found
