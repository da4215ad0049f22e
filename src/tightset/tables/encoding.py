"""The encoding of a table's columns as numbers, stored with the model.

- A column of numbers stays one; a missing value becomes the median of the training rows, and if training rows have
  missing values, a column of 0 and 1 marks them.
- A column of texts (or truth values) becomes a column of 0 and 1 for each value that enough training rows have; rarer
  ones share a column, with those that were never seen. A missing value counts as a value. (Where no training row had
  a rare one, a value that was never seen is refused, unless it is to count as none of those that were.)
- A column of nearly as many texts as rows (names, identifiers, free text, dates) is left out, unless it was asked for
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
from tightset.tables.numbers import as_numbers
from tightset.tables.texts import spelled_as

__all__ = ["Category", "Encoding", "Number"]

MISSING = "(missing)"
OTHER = "(other)"


@storable
class Number(NamedTuple):
    """``x``, with ``fill`` for missing values, and ``1[x is missing]`` if that is ``told``."""

    name: str
    fill: float
    told: bool
    mostly_missing: bool = False  # in more than half of the training rows

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.told else [self.name]

    def write(self, values: Any, out: np.ndarray) -> None:
        x = as_numbers(values, self.name)
        missing = np.isnan(x)
        out[:, 0] = np.where(missing, self.fill, x)
        if self.told:
            out[:, 1] = missing


@storable
class Category(NamedTuple):
    """``1[x = v]`` for each of the ``values``, the last of which may stand for all others."""

    name: str
    values: list[str]
    seen: list[str]  # all values of training rows
    commonest: str  # (missing) counts

    @property
    def names(self) -> list[str]:
        return [f"{self.name} = {value}" for value in self.values]

    def write(self, values: Any, out: np.ndarray) -> None:
        at = {value: place for place, value in enumerate(self.values)}
        other = at.get(OTHER, -1)
        codes, distinct = values.factorize()  # -1 for missing values
        known = spelled_as([*self.seen, *self.values], [str(value) for value in distinct])
        own = [other if value is None else at.get(value, other) for value in known]
        places = np.array([*own, at.get(MISSING, other)])[codes]
        out[:] = 0
        placed = np.flatnonzero(places >= 0)
        out[placed, places[placed]] = 1

    def unseen(self, values: Any) -> list[str]:
        """Values that no training row had."""
        texts = [str(value) for value in values.dropna().unique()]
        return [text for text, known in zip(texts, spelled_as(self.seen, texts), strict=True) if known is None]


@storable
class Encoding(NamedTuple):
    """The columns that are used, in order; those that are ``left_out``, and why."""

    columns: list[Number | Category]
    left_out: dict[str, str]
    missing: list[str]  # texts for missing values, beside the usual ones
    dtype: str = "float64"

    @property
    def names(self) -> list[str]:
        return [name for column in self.columns for name in column.names]

    @property
    def text(self) -> list[str]:
        """Columns to be read as texts."""
        return [column.name for column in self.columns if isinstance(column, Category)]

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
        needed = [column.name for column in self.columns]
        used, known, there = set(needed), {*needed, *self.left_out, *allowed}, set(names)
        absent = [name for name in needed if name not in there]
        if absent:
            raise TableError(
                f"the column{'s' if len(absent) > 1 else ''} {_listed(absent)} that the model was trained on "
                f"{'are' if len(absent) > 1 else 'is'} missing; there are {_listed(names)}"
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

    def warn_of_unseen(self, frame: Any) -> None:
        """Say so if most rows have a category that no training row had: it may only be written in another way."""
        for column in self.columns:
            if isinstance(column, Category) and len(frame):
                unseen = column.unseen(frame[column.name])
                if unseen and frame[column.name].isin(unseen).mean() > 0.5:
                    warn(
                        f"most rows have a value of {column.name!r} that no training row had, such as {unseen[0]!r}; "
                        f"they had {_listed(column.seen)}"
                    )


def _listed(names: Collection[Any], most: int = 5) -> str:
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
