"""Columns of a table as numbers: what the commands do to a table before a measure sees it, stored with the model.

- A column of numbers stays one; a missing value becomes the median of the training rows, and where training rows missed
  some, a column of 0 and 1 tells which.
- A column of texts (or truth values) becomes a column of 0 and 1 for each value that enough training rows have; rarer
  ones share a column, with those that were never seen. A missing value counts as a value. (Where no training row had
  a rare one, a value that was never seen is refused, unless it is to count as none of those that were.)
- A column of nearly as many texts as rows (names, identifiers, free text, dates) is left out, as is one without a name
  or without a value.

All figures are learnt from training rows only: what calibration rows say would break the guarantee, if only a little.
(Whether a column is of numbers, of texts or empty is seen of all rows.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.checking import warn
from tightset.files import TableError

__all__ = ["Category", "ColumnKinds", "Encoding", "Number", "Statistics"]

_LEAST_ROWS = 10  # with a value, for a column of its own
_MOST_VALUES = 50
_MOST_COUNTED = 20_000
_FEW_TEXTS = 0.05  # of the values of a column that is of numbers otherwise
_SAMPLED = 50_000  # rows for medians
_SEPARATED = r"-?(\d{1,3}([ '.,]\d{3})+([.,]\d+)?|\d+,\d+)"
MISSING = "(missing)"
OTHER = "(other)"


class Number(NamedTuple):
    """``x``, with ``fill`` for missing values, and ``1[x is missing]`` if that is ``told``."""

    name: str
    fill: float
    told: bool

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.told else [self.name]

    def write(self, values: Any, out: np.ndarray) -> None:
        x = as_numbers(values, self.name)
        missing = np.isnan(x)
        out[:, 0] = np.where(missing, self.fill, x)
        if self.told:
            out[:, 1] = missing


class Category(NamedTuple):
    """``1[x = v]`` for each of the ``values``, the last of which may stand for all others."""

    name: str
    values: list[str]
    seen: list[str]  # all values of training rows
    commonest: str

    @property
    def names(self) -> list[str]:
        return [f"{self.name} = {value}" for value in self.values]

    def write(self, values: Any, out: np.ndarray) -> None:
        at = {value: place for place, value in enumerate(self.values)}
        other = at.get(OTHER, -1)
        codes, distinct = values.factorize()  # -1 for missing values
        places = np.array([at.get(str(value), other) for value in distinct] + [at.get(MISSING, other)])[codes]
        out[:] = 0
        known = np.flatnonzero(places >= 0)
        out[known, places[known]] = 1

    def unseen(self, values: Any) -> list[str]:
        """Values that no training row had."""
        seen = set(self.seen)
        return [value for value in map(str, values.dropna().unique()) if value not in seen]


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
        known = [*needed, *self.left_out]
        absent = [name for name in needed if name not in names]
        if absent:
            raise TableError(
                f"the column{'s' if len(absent) > 1 else ''} {_listed(absent)} that the model was trained on "
                f"{'are' if len(absent) > 1 else 'is'} missing; there are {_listed(names)}"
            )
        if lenient:
            return
        extra = [name for name in names if name not in known and name not in allowed]
        if extra:
            raise TableError(
                f"the column{'s' if len(extra) > 1 else ''} {_listed(extra)} {'were' if len(extra) > 1 else 'was'} not "
                "there in training. Remove what does not belong there, or give --lenient to ignore it"
            )
        found = [name for name in names if name in needed]
        if found != needed:
            raise TableError(
                f"the columns are in another order than in training: {_listed(found)} and not {_listed(needed)}. If "
                "the names are right, give --lenient to go by them"
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
                        f"had (they had {_listed(column.seen)}). Mend it, or give --lenient to count it as none of "
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


class ColumnKinds:
    """What each column of a table is, told by all chunks: only whether there are numbers in it, no statistics."""

    def __init__(self, skip: Collection[str], categorical: Collection[str]) -> None:
        self._skip, self._categorical = set(skip), set(categorical)
        self._numbers: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._separated: Counter[str] = Counter()
        self._first_text: dict[str, tuple[str, int]] = {}
        self.names: list[str] = []

    def see(self, frame: Any) -> None:
        import pandas as pd

        self.names = [str(name) for name in frame.columns if name not in self._skip]
        for name in self.names:
            values = frame[name]
            if values.dtype.kind in "fiu":
                self._numbers[name] += int(values.notna().sum())
                continue
            present = values.dropna()
            if values.dtype.kind == "b":
                self._texts[name] += len(present)
                continue
            numbers = pd.to_numeric(present, errors="coerce")
            texts = present[numbers.isna() | present.map(lambda x: isinstance(x, bool))]
            self._numbers[name] += len(present) - len(texts)
            self._texts[name] += len(texts)
            self._separated[name] += int(texts.astype(str).str.fullmatch(_SEPARATED).sum())
            if len(texts) and name not in self._first_text:
                self._first_text[name] = (str(texts.iloc[0]), int(texts.index[0]) + 1)

    def settle(self) -> tuple[list[str], list[str], dict[str, str]]:
        """Columns of numbers, of texts, and left out ones with the reason."""
        numbers, texts, left_out = [], [], {}
        for name in self.names:
            some, other = self._numbers[name], self._texts[name]
            if name == "":
                left_out[name] = "it has no name"
            elif some + other == 0:
                left_out[name] = "it has no value"
            elif name in self._categorical:
                texts.append(name)
            elif other == 0:
                numbers.append(name)
            elif self._separated[name] > 0.9 * other:
                raise TableError(
                    f"the column {name!r} seems to hold numbers with separators: {self._first_text[name][0]!r}; write "
                    f"them plainly (12345.6), or give --categorical {name!r}, or --drop {name!r}"
                )
            elif other < _FEW_TEXTS * (some + other):
                text, row = self._first_text[name]
                raise TableError(
                    f"the column {name!r} holds numbers, but also {text!r} (row {row}): mend it; or give --missing "
                    f"{text!r} if that stands for a missing value, or --categorical {name!r} if all are categories"
                )
            else:
                texts.append(name)
        return numbers, texts, left_out


class Statistics:
    """What an `Encoding` takes from training rows, chunk by chunk."""

    def __init__(self, numbers: Sequence[str], texts: Sequence[str], rows: int) -> None:
        self._numbers, self._texts = list(numbers), list(texts)
        self._rows = rows
        self._sample: dict[str, list[np.ndarray]] = {name: [] for name in numbers}
        self._missing: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in texts}

    def see(self, frame: Any) -> None:
        """Training rows of a chunk."""
        step = -(-self._rows // _SAMPLED)
        for name in self._numbers:
            x = as_numbers(frame[name], name)
            self._missing[name] += int(np.isnan(x).sum())
            self._sample[name].append(x[::step][~np.isnan(x[::step])])
        for name in self._texts:
            counts = self._counts[name]
            counts.update({str(value): int(n) for value, n in frame[name].value_counts().items()})
            self._missing[name] += int(frame[name].isna().sum())
            if len(counts) > 2 * _MOST_COUNTED:
                self._counts[name] = Counter(dict(counts.most_common(_MOST_COUNTED)))

    def encoding(self, order: Sequence[str], left_out: dict[str, str], missing: Collection[str]) -> Encoding:
        left_out = dict(left_out)
        columns = [column for name in order if (column := self._column(name, left_out)) is not None]
        if not columns:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
            raise TableError(f"no column is left to predict from ({reasons or 'there is only the target'})")
        return Encoding(columns, left_out, list(missing))

    def _column(self, name: str, left_out: dict[str, str]) -> Number | Category | None:
        if name in left_out:
            return None
        if name in self._sample:
            x = np.concatenate(self._sample[name])
            if len(x) > 50 and self._rows <= _SAMPLED and (np.diff(x) > 0).all() and (x == np.floor(x)).all():
                warn(f"the column {name!r} counts upwards from row to row; if it is an identifier, drop it")
            return Number(name, float(np.median(x)) if len(x) else 0.0, told=self._missing[name] > 0)
        counts = self._counts[name]
        enough = [value for value, n in counts.most_common(_MOST_VALUES) if n >= min(_LEAST_ROWS, self._rows / 20)]
        kept = sum(counts[value] for value in enough)
        if counts and kept < counts.total() / 2:
            left_out[name] = (
                f"{len(counts):,} different texts in {self._rows:,} training rows are no categories (a name, an "
                "identifier, a text, a date?)"
            )
            return None
        values = sorted(set(enough) - {MISSING, OTHER})
        values += [MISSING] if self._missing[name] else []
        values += [OTHER] if len(counts) > len(enough) else []
        return Category(name, values, sorted(counts), next((value for value in enough if value in values), values[0]))


def as_numbers(values: Any, name: str) -> np.ndarray:
    """A column as floats, NaN where missing; raises if there is a text, or infinity."""
    import pandas as pd

    if values.dtype.kind in "fiu":
        x = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        x = pd.to_numeric(values.where(~values.map(lambda v: isinstance(v, bool)), "truth"), errors="coerce")
        bad = x.isna() & values.notna()
        if bad.any():
            at = bad.argmax()
            raise TableError(
                f"the column {name!r} was numbers in training, but row {int(values.index[at]) + 1} has "
                f"{str(values.iloc[at])[:40]!r}: mend it, or leave the cell empty if it is missing"
            )
        x = x.to_numpy(dtype=np.float64)
    if np.isinf(x).any():
        row = int(values.index[np.isinf(x).argmax()]) + 1
        raise TableError(f"the column {name!r} has an infinite value in row {row}: mend it, or leave the cell empty")
    return np.asarray(x)


def _listed(names: Collection[Any], most: int = 5) -> str:
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
