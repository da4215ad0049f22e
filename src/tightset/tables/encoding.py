"""The encoding of a table's columns as numbers, stored with the model.

- A column of numbers stays one; a missing value becomes the median of the training rows, and if training rows have
  missing values, a column of 0 and 1 marks them.
- A column of texts (or truth values) becomes a column of 0 and 1 for each value that enough training rows have; rarer
  ones share a column, with those that were never seen. A missing value counts as a value. (Where no training row had
  a rare one, a value that was never seen is refused, unless it is to count as none of those that were.)
- A column of dates or times becomes the days since the earliest one, year, month, weekday and hour, as far as they
  differ between training rows; missing dates are treated as missing numbers are.
- A column of nearly as many texts as rows (names, identifiers, free text) is left out, unless it was asked for
  as categories. So is one without a name, without a value, or with the same value in every training row.

All figures are learnt from training rows only: what calibration rows say would break the guarantee, if only a little.
(Whether a column is of numbers, of texts or empty is seen of all rows.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.exceptions import TableError, warn
from tightset.storage.registry import storable
from tightset.tables.columns import OTHER, Category, Column, Date
from tightset.tables.target import meant

__all__ = ["Encoding"]

_FEW = 0.05  # of the rows; so many may be missing, or new, without a word


@storable
class Encoding(NamedTuple):
    """The columns that are used, in order; those that are ``left_out``, and why."""

    columns: list[Column]
    left_out: dict[str, str]
    missing: list[str]  # texts for missing values, beside the usual ones
    dtype: str = "float64"
    group: str | None = None  # the column of groups, within each of which coverage holds

    @property
    def names(self) -> list[str]:
        return [name for column in self.columns for name in column.names]

    @property
    def needed(self) -> list[str]:
        """Columns that rows must have."""
        return [column.name for column in self.columns]

    @property
    def text(self) -> list[str]:
        """Columns to be read as texts."""
        return [column.name for column in self.columns if isinstance(column, Category | Date)]

    def apply(self, frame: Any) -> np.ndarray:
        """Rows of a data frame as numbers ``(n, columns)``; it must have the columns, in any order."""
        result = np.empty((len(frame), len(self.names)), dtype=self.dtype)
        at = 0
        for column in self.columns:
            width = len(column.names)
            column.write(frame[column.name], result[:, at : at + width])
            at += width
        return result

    def check(self, names: Sequence[str], *, allowed: Collection[str] = (), lenient: bool = False) -> None:
        """Raise unless a table has the columns of training; others than those and ``allowed`` only if ``lenient``."""
        needed = self.needed
        used, known, there = set(needed), {*needed, *self.left_out, *allowed}, set(names)
        absent = [name for name in needed if name not in there]
        if absent:
            others = [name for name in names if name not in used]
            raise TableError(
                f"the column{'s' if len(absent) > 1 else ''} {_listed(absent)} that the model was trained on "
                f"{'are' if len(absent) > 1 else 'is'} missing{meant(absent[0], others or names)}"
            )
        if lenient:
            return
        extra = [name for name in names if name not in known]
        if extra:
            raise TableError(
                f"the column{'s' if len(extra) > 1 else ''} {_listed(extra)} {'were' if len(extra) > 1 else 'was'} not "
                "there in training. Remove what does not belong, or give --lenient to ignore it"
            )
        found = [name for name in names if name in used]
        if found != needed:
            raise TableError(
                f"the columns are in a different order than in training: {_listed(found)} instead of "
                f"{_listed(needed)}. If the names are right, give --lenient to match columns by name"
            )

    def check_values(self, frame: Any) -> None:
        """Raise at a category that no training row had, unless training rows had rare ones to count it with."""
        for column in self.columns:
            if isinstance(column, Category) and OTHER not in column.values:
                unseen = column.unseen(frame[column.name])
                if unseen:
                    row = int(frame.index[(frame[column.name].astype(object).map(str) == unseen[0]).argmax()]) + 1
                    raise TableError(
                        f"the column {column.name!r} has {_listed(unseen)}, first in row {row}, which no training row "
                        f"had (they had {_listed(column.seen)}). Correct it, or give --lenient to count it as none of "
                        "them"
                    )
        self.warn_of_unseen(frame)

    def warn_of_unseen(self, frame: Any) -> None:
        """Say so if many rows have a category that no training row had: it may only be written in another way."""
        self._warn_of_gaps(frame)
        for column in self.columns:
            if isinstance(column, Category) and len(frame):
                unseen = column.unseen(frame[column.name])
                few = 0.5 if OTHER in column.values else _FEW  # where some are rare, some are always new
                if unseen and frame[column.name].isin(unseen).mean() > few:
                    warn(
                        f"rows have values of {column.name!r} that no training row had, such as {unseen[0]!r}; "
                        f"they had {_listed(column.seen)}"
                    )

    def _warn_of_gaps(self, frame: Any) -> None:
        """Say so if many values are missing where no training row lacked one: they may be texts that read as gaps."""
        found = [
            column.name for column in self.columns if not column.gaps_known and frame[column.name].isna().mean() > _FEW
        ]
        if found:
            warn(
                f"rows have no value in the column{'s' if len(found) > 1 else ''} {_listed(found)}, where every "
                "training row had one: the guarantee is for rows like those of calibration"
            )


def _listed(names: Collection[Any], most: int = 5) -> str:
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
