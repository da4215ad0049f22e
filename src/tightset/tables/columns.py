"""Columns of an encoding: a number, a category or a date of the table, as numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tightset.exceptions import TableError
from tightset.storage.registry import storable
from tightset.tables.dates import example, moments, part_of, written
from tightset.tables.numbers import as_numbers
from tightset.tables.texts import spelled_as

__all__ = ["MISSING", "OTHER", "Category", "Column", "Date", "Number"]

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

    @property
    def gaps_known(self) -> bool:
        """Whether training rows had missing values."""
        return self.told

    @property
    def typical(self) -> tuple[str, np.ndarray]:
        """What most rows are like: in words, and as numbers."""
        shown = MISSING if self.mostly_missing else f"{self.fill:.6g}"
        return shown, np.array([self.fill, float(self.mostly_missing)])[: len(self.names)]

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

    @property
    def gaps_known(self) -> bool:
        """Whether training rows had missing values."""
        return MISSING in self.values

    @property
    def typical(self) -> tuple[str, np.ndarray]:
        """What most rows are like: in words, and as numbers."""
        values = np.zeros(len(self.names))
        values[self.values.index(self.commonest)] = 1
        return self.commonest, values

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
class Date(NamedTuple):
    """Parts of a date: days since the ``earliest``, year, month, weekday, hour; those that differ between rows."""

    name: str
    form: str
    parts: list[str]
    earliest: int  # seconds since 1970, as ``fill``, for missing values
    fill: int
    told: bool
    mostly_missing: bool = False

    @property
    def names(self) -> list[str]:
        first = np.datetime64(self.earliest, "s").astype("datetime64[D]")
        named = [f"{self.name}: {f'days since {first}' if part == 'days' else part}" for part in self.parts]
        return [*named, f"{self.name} is missing"] if self.told else named

    @property
    def gaps_known(self) -> bool:
        """Whether training rows had missing values."""
        return self.told

    @property
    def typical(self) -> tuple[str, np.ndarray]:
        """What most rows are like: in words, and as numbers."""
        when = np.array([self.fill]).astype("datetime64[s]")
        numbers = [*self._numbers(when)[0], float(self.mostly_missing)][: len(self.names)]
        return MISSING if self.mostly_missing else written(when[0], self.form), np.array(numbers)

    def _numbers(self, when: np.ndarray) -> np.ndarray:
        earliest = np.datetime64(self.earliest, "s")
        return np.array([part_of(part, when, earliest) for part in self.parts]).reshape(-1, len(when)).T

    def write(self, values: Any, out: np.ndarray) -> None:
        when = moments(values, self.form)
        missing = np.isnat(when)
        bad = missing & values.notna().to_numpy()
        if bad.any():
            at = bad.argmax()
            raise TableError(
                f"the column {self.name!r} was dates in training, such as {example(self.form)}, but row "
                f"{int(values.index[at]) + 1} has {str(values.iloc[at])[:40]!r}: correct it, or leave the cell empty "
                "if it is missing"
            )
        out[:, : len(self.parts)] = self._numbers(np.where(missing, np.datetime64(self.fill, "s"), when))
        if self.told:
            out[:, -1] = missing


Column = Number | Category | Date
