"""How a table is written as text: what separates its cells, how its numbers look, and where it stops being a table."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from tightset.exceptions import TableError, needed_for
from tightset.storage.registry import storable
from tightset.tables.numbers import is_number
from tightset.tables.streams import MOST_TEXT

__all__ = [
    "Dialect",
    "check_names",
    "likely_delimiter",
    "plain_numbers",
    "rows_at_once",
    "said",
    "splits_utf8",
    "swallowed",
]

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SPELLED = {"\\t": "\t", "tab": "\t", "space": " "}


@storable
class Dialect(NamedTuple):
    """How a table is written; None is what is usual, or what the first lines show."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None

    def checked(self) -> Dialect:
        """The same, or TableError if no table can be written so."""
        delimiter = _SPELLED.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and not _may_delimit(delimiter):
            raise TableError(
                "the delimiter must be a single character of ASCII, such as ';', and neither a quote nor the end of a "
                f"line; got {delimiter!r}"
            )
        if self.encoding is not None and not _is_of_text(self.encoding):
            raise TableError(
                f"the encoding must be one of text, such as utf-8, latin-1 or utf-16; got {self.encoding!r}"
            )
        if self.decimal not in (None, ".", ","):
            raise TableError(f"the decimal mark must be '.' or ','; got {self.decimal!r}")
        thousands = _SPELLED.get(self.thousands or "", self.thousands) or None  # nothing is none
        if thousands is not None and (len(thousands) != 1 or thousands.isalnum() or thousands in '+-"\n\r'):
            raise TableError(f"the thousands separator must be a character such as ',' or '.'; got {self.thousands!r}")
        if thousands is not None and thousands == (self.decimal or "."):
            raise TableError(
                f"{thousands!r} cannot be both the decimal mark and the thousands separator: give --decimal as well, "
                "or --thousands '' for none"
            )
        if delimiter is not None and delimiter in (thousands, self.decimal):
            raise TableError(f"{delimiter!r} cannot separate cells and be part of numbers as well")
        return self._replace(delimiter=delimiter, thousands=thousands)

    @property
    def has_own_numbers(self) -> bool:
        """Whether numbers are written otherwise than in Python."""
        return self.decimal not in (None, ".") or self.thousands is not None

    def plain(self, text: str) -> str | None:
        """A number as Python writes it; None of a text that is no number here.

        Thousands come in groups of three: 31.01.2024 is no number, whatever separates them.

        >>> german = Dialect(decimal=",", thousands=".")
        >>> [german.plain(text) for text in ("1.234,5", "0,5", "7", "1.5", "31.01.2024")]
        ['1234.5', '0.5', '7', None, None]
        """
        point, between = self.decimal or ".", self.thousands
        if between and re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(between)}\d{{3}})+({re.escape(point)}\d*)?", text):
            text = text.replace(between, "")
        if point != ".":
            text = text.replace(".", "?").replace(point, ".")
        return text if is_number(text) else None

    def over(self, other: Dialect) -> Dialect:
        """What is said here, and else what the other says.

        >>> Dialect(delimiter=";").over(Dialect(",", decimal=","))
        Dialect(delimiter=';', encoding=None, decimal=',', thousands=None)
        """
        return Dialect(*(other_one if one is None else one for one, other_one in zip(self, other, strict=True)))


def likely_delimiter(lines: Sequence[str], preferred: str) -> str:
    r"""What separates the cells of these lines: it cuts them all into the same number of cells, and into the most.

    >>> likely_delimiter(["name;size", "ox, red;1,5", "ape;2,5"], ","), likely_delimiter(["a,b", "1,2"], "\t")
    (';', ',')
    >>> likely_delimiter(["a,b", "1,2,3"], ",")  # a row is wrong, and the reader says which
    ','
    """
    candidates = [preferred, *(one for one in _DELIMITERS if one != preferred)]
    widths = {one: [len(row) for row in _rows(lines, one)] for one in candidates}
    even = {one: set(found) for one, found in widths.items() if found and min(found) == max(found) > 1}
    if even:
        return max(even, key=lambda one: max(even[one]))
    return max(candidates, key=lambda one: widths[one][0] if widths[one] else 0)


def swallowed(header: Sequence[str], delimiter: str) -> str | None:
    """What a table of one column may be separated by, in words and as an option; None if it may be as it is."""
    if len(header) == 1:
        for other, name in _DELIMITERS.items():
            if other != delimiter and other in header[0]:
                return f"{name}: give --delimiter '{'tab' if other == chr(9) else other}'"
    return None


def plain_numbers(values: Any, dialect: Dialect) -> Any:
    """A column of numbers and texts, its numbers written as Python does.

    >>> import pandas as pd
    >>> plain_numbers(pd.Series(["1.234,5", "none"]), Dialect(decimal=",", thousands=".")).tolist()
    ['1234.5', 'none']
    """
    if not dialect.has_own_numbers:
        return values
    with needed_for("a table", "cli"):
        import pandas as pd

    read = values.astype(object).map(lambda value: dialect.plain(value) if isinstance(value, str) else value)
    found = values.astype(object).where(read.isna(), read)
    numbers = pd.to_numeric(found, errors="coerce")
    wrong = read.isna() & numbers.notna()  # numbers, but not as this file writes them
    if wrong.any():
        raise TableError(
            f"the column {values.name!r} has {found[wrong].iloc[0]!r} in row {int(found.index[wrong.argmax()]) + 1}, "
            f"which is no number with the decimal mark {dialect.decimal or '.'!r}: give --decimal as the file is "
            f"written, or fit with --categorical {values.name!r} if these are categories"
        )
    return found if (numbers.isna() & found.notna()).any() else numbers


def _rows(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    try:
        yield from (row for row in csv.reader(lines, delimiter=delimiter) if row)
    except csv.Error:  # such as a cell that is too long; the reader will say so
        return


def rows_at_once(lines: Sequence[str], columns: int, cells: int) -> int:
    """Rows of a chunk: so many cells, and at most a quarter of the text that is allowed if they are like these."""
    longest = max(map(len, lines), default=1) + 1
    return max(100, min(cells // max(columns, 1), MOST_TEXT // (4 * longest)))


def _may_delimit(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in '"\r\n\0'


def _is_of_text(encoding: str) -> bool:
    """Whether files of text have it: hex and zip turn bytes into bytes, and names of hosts are no files."""
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        return False
    return bool(getattr(found, "_is_text_encoding", True)) and found.name not in ("idna", "punycode", "undefined")


def splits_utf8(encoding: str) -> bool:
    """Whether UTF-8 can be read in this encoding, but letters beyond ASCII become several others.

    >>> [splits_utf8(name) for name in ("latin-1", "cp1252", "utf-8", "utf-16")]
    [True, True, False, False]
    """
    return len("ä".encode().decode(encoding, errors="replace")) > 1


def check_names(names: Collection[str], of: str) -> None:
    """Raise if two columns have one name."""
    seen = set()
    for name in names:
        if name in seen:
            raise TableError(f"{of} has two columns named {name!r}; names must differ")
        seen.add(name)


def said(error: Exception) -> str:
    """What a parser says, without its own name, with lines counted from the top of the file."""
    told = str(error).splitlines()[0].removeprefix("Error tokenizing data. C error: ")
    told = re.sub(r"in line (\d+)", lambda found: f"in line {int(found[1]) + 1}", told)
    return "a row has more cells than there are columns" if "header or names" in told else told
