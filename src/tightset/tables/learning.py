"""Learning an `Encoding` chunk by chunk: the kinds of columns, and statistics of the training rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.exceptions import TableError, needed_for, warn
from tightset.tables.columns import MISSING, OTHER, Category, Column, Date, Number
from tightset.tables.dates import PARTS, TIMES, example, forms_of, moments, part_of
from tightset.tables.encoding import Encoding
from tightset.tables.numbers import GROUPED, SEPARATED, as_numbers, is_number, marks_of
from tightset.tables.texts import without_point

__all__ = ["ColumnKinds", "Kinds", "Statistics"]

_LEAST_ROWS = 10  # with a value, for a column of its own
_MOST_VALUES = 50
_MOST_ASKED = 500  # of a column that was asked for as categories: there two rows with a value are enough
_MOST_COUNTED = 20_000
_FEW_TEXTS = 0.05  # of the values of a column that is of numbers otherwise
_SAMPLED = 50_000  # rows for medians


class Kinds(NamedTuple):
    """Columns of numbers, of texts, of dates with their form, and those left out with the reason."""

    numbers: list[str]
    texts: list[str]
    dates: dict[str, str]
    left_out: dict[str, str]

    @property
    def read(self) -> list[str]:
        """Columns to be read, and as texts those of ``read_as_text``."""
        return [*self.numbers, *self.read_as_text]

    @property
    def read_as_text(self) -> list[str]:
        return [*self.texts, *self.dates]


class ColumnKinds:
    """What each column of a table is, told by all chunks: only whether there are numbers in it, no statistics."""

    def __init__(self, skip: Collection[str], categorical: Collection[str]) -> None:
        self._skip, self._categorical = set(skip), set(categorical)
        self._numbers: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._separated: Counter[str] = Counter()
        self._first_text: dict[str, tuple[str, int]] = {}
        self._telling: dict[str, str] = {}
        self._forms: dict[str, list[str]] = {}  # that all texts so far may be dates of
        self.names: list[str] = []

    def see(self, frame: Any) -> None:
        with needed_for("a table", "cli"):
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
            separated = texts[texts.astype(str).str.fullmatch(SEPARATED)].astype(str)
            self._separated[name] += len(separated)
            telling = separated[~separated.str.fullmatch(GROUPED)]  # 0,35 says more than 1,234
            if len(telling):
                self._telling.setdefault(name, telling.iloc[0])
            if len(texts) and name not in self._first_text:
                self._first_text[name] = (str(texts.iloc[0]), int(texts.index[0]) + 1)
                self._forms[name] = forms_of(str(texts.iloc[0]))
            if self._forms.get(name):
                self._forms[name] = [form for form in self._forms[name] if not np.isnat(moments(present, form)).any()]

    def settle(self) -> Kinds:
        numbers: list[str] = []
        texts: list[str] = []
        dates: dict[str, str] = {}
        left_out: dict[str, str] = {}
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
            elif self._forms.get(name):
                dates[name] = self._form(name)
            elif self._separated[name] > 0.9 * other:
                text = self._telling.get(name, self._first_text[name][0])
                raise TableError(
                    f"the column {name!r} seems to hold numbers with separators: {text!r}; give {marks_of(text)}, or "
                    f"--categorical {name!r}"
                )
            elif other < _FEW_TEXTS * (some + other):
                text, row = self._first_text[name]
                raise TableError(
                    f"the column {name!r} holds numbers, but also {text!r} (row {row}): correct it; or give --missing "
                    f"{text!r} if that stands for a missing value, or --categorical {name!r} if all are categories"
                )
            else:
                texts.append(name)
        return Kinds(numbers, texts, dates, left_out)

    def _form(self, name: str) -> str:
        first, *others = self._forms[name]
        if others:
            warn(
                f"the dates of the column {name!r}, such as {self._first_text[name][0]!r}, are read as month, day, "
                f"year ({example(first)}): every row could also be day, month, year"
            )
        return first


class Statistics:
    """What an `Encoding` takes from training rows, chunk by chunk; of texts, those ``asked`` for are categories."""

    def __init__(self, kinds: Kinds, rows: int, asked: Collection[str] = ()) -> None:
        self._kinds, self._asked = kinds, frozenset(asked)
        self._rows = rows
        self._sample: dict[str, list[np.ndarray]] = {name: [] for name in (*kinds.numbers, *kinds.dates)}
        self._range = dict.fromkeys(kinds.numbers, (np.inf, -np.inf))
        self._parts = {name: np.array([[np.inf], [-np.inf]]).repeat(len(PARTS), axis=1) for name in kinds.dates}
        self._missing: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in kinds.texts}
        self._uncounted: set[str] = set()  # columns of more texts than are counted

    def see(self, frame: Any) -> None:
        """Training rows of a chunk."""
        step = -(-self._rows // _SAMPLED)
        for name in self._kinds.numbers:
            x = as_numbers(frame[name], name)
            present = x[~np.isnan(x)]
            self._missing[name] += len(x) - len(present)
            self._sample[name].append(x[::step][~np.isnan(x[::step])])
            least, most = self._range[name]
            self._range[name] = min(least, present.min(initial=np.inf)), max(most, present.max(initial=-np.inf))
        for name, form in self._kinds.dates.items():
            when = moments(frame[name], form)
            present = when[~np.isnat(when)]
            self._missing[name] += len(when) - len(present)
            self._sample[name].append(when[::step][~np.isnat(when[::step])].astype(np.int64))
            if len(present):
                found = np.stack([part_of(part, present, np.datetime64(0, "s")) for part in PARTS])
                least, most = self._parts[name]
                self._parts[name] = np.stack([np.minimum(least, found.min(1)), np.maximum(most, found.max(1))])
        for name in self._kinds.texts:
            counts = self._counts[name]
            counts.update({str(value): int(n) for value, n in frame[name].value_counts().items()})
            self._missing[name] += int(frame[name].isna().sum())
            if len(counts) > 2 * _MOST_COUNTED:
                self._counts[name] = Counter(dict(counts.most_common(_MOST_COUNTED)))
                self._uncounted.add(name)

    def encoding(self, order: Sequence[str], missing: Collection[str]) -> Encoding:
        left_out = dict(self._kinds.left_out)
        columns = [column for name in order if (column := self._column(name, left_out)) is not None]
        if not columns:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
            raise TableError(f"no column is left to predict from ({reasons or 'there is only the target'})")
        return Encoding(columns, left_out, list(missing))

    def _column(self, name: str, left_out: dict[str, str]) -> Column | None:
        if name in left_out:
            return None
        dated = name in self._kinds.dates
        found = self._date(name) if dated else self._number(name) if name in self._sample else self._category(name)
        if isinstance(found, str):
            left_out[name] = found
            return None
        return found

    def _number(self, name: str) -> Number | str:
        """The column, or why it is left out."""
        missing, (least, most) = self._missing[name], self._range[name]
        if missing == self._rows:
            return "it has no value in any training row"
        if least == most and not missing:
            return f"it is {least:.6g} in every training row"
        x = np.concatenate(self._sample[name])
        if len(x) > 50 and (x == np.floor(x)).all() and len(np.unique(x)) == len(x):
            how = "counts upwards from row to row" if (np.diff(x) > 0).all() else "is a different number in every row"
            warn(f"the column {name!r} {how}; if it is an identifier, give --drop {name!r}")
        fill = 2 * float(np.median(x / 2)) if len(x) else float(least)  # the sum of two may be infinite
        return Number(name, fill, told=missing > 0, mostly_missing=2 * missing > self._rows)

    def _date(self, name: str) -> Date | str:
        """The column, or why it is left out."""
        missing, (least, most) = self._missing[name], self._parts[name]
        if missing == self._rows:
            return "it has no value in any training row"
        timed = self._kinds.dates[name] in TIMES
        parts = [part for part, low, high in zip(PARTS, least, most, strict=True) if low < high]
        parts = [part for part in parts if part == "hour"] if timed else parts
        if not parts and not missing:
            return "it is the same date in every training row"
        when = np.concatenate(self._sample[name])
        earliest = round(least[0] * 86400)
        fill = int(np.median(when)) if len(when) else earliest
        return Date(name, self._kinds.dates[name], parts, earliest, fill, missing > 0, 2 * missing > self._rows)

    def _category(self, name: str) -> Category | str:
        """The column, or why it is left out."""
        counts, missing = _merged_numbers(self._counts[name]), self._missing[name]
        if not counts:
            return "it has no value in any training row"
        if len(counts) == 1 and not missing:
            return f"it is {next(iter(counts))!r} in every training row"
        asked = name in self._asked
        at_most, least = (_MOST_ASKED, 2) if asked else (_MOST_VALUES, min(_LEAST_ROWS, self._rows / 20))
        enough = [value for value, n in counts.most_common(at_most) if n >= least]
        many = f"more than {2 * _MOST_COUNTED:,}" if name in self._uncounted else f"{len(counts):,}"
        if asked and not enough and not missing:
            return f"no two of {self._rows:,} training rows have the same value, so there are no categories"
        if not asked and sum(counts[value] for value in enough) < (self._rows - missing) / 2:
            return (
                f"{many} different texts in {self._rows:,} training rows are not categories (a name, an identifier, a "
                f"text?); if they are, give --categorical {name!r}"
            )
        if asked and sum(n >= least for n in counts.values()) > at_most:
            warn(
                f"the column {name!r} has {many} different values; the {at_most} most common have a column each, and "
                "the others share one"
            )
        values = sorted(set(enough) - {MISSING, OTHER})
        values += [MISSING] if missing else []
        values += [OTHER] if len(counts) > len(enough) else []
        commonest = next((value for value in enough if value in values), values[0])
        commonest = MISSING if missing > counts[commonest] else commonest
        return Category(name, values, sorted(counts), commonest)


def _merged_numbers(counts: Counter[str]) -> Counter[str]:
    """Where all values are numbers, 1.0 is 1: a table may be put together of some that were written otherwise."""
    if not all(map(is_number, counts)):
        return counts
    merged: Counter[str] = Counter()
    for value, n in counts.items():
        merged[without_point(value)] += n
    return merged
