"""Values of a table as texts, and the texts that count as missing values.

A text is unchanged, and a whole number has no decimal point.

The same texts are gaps wherever a table comes from: a file of text, Parquet, or a data frame.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tightset.exceptions import needed_for
from tightset.tables.numbers import is_number

__all__ = ["USUAL_GAPS", "as_text", "gaps", "spelled_as", "with_gaps", "without_point"]

_MIDNIGHT = r"(\d{4}-\d{2}-\d{2})(?:[ T]00:00(?::00(?:\.0+)?)?)?"
USUAL_GAPS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "Null", "null", "None", "none")


def as_text(values: Any) -> Any:
    """Texts as they are, and None; whole numbers without a point, since pandas reads them as floats beside a gap.

    >>> import pandas as pd
    >>> as_text(pd.Series([1.0, None, 2.5])).tolist(), as_text(pd.Series(["1.0", "a", ""])).tolist()
    (['1', None, '2.5'], ['1.0', 'a', None])
    """
    with needed_for("a table", "cli"):
        import pandas as pd

    missing = values.isna()
    if values.dtype.kind == "M":  # moments, in UTC if they have a zone; days as they are written to a file
        if hasattr(values.dtype, "pyarrow_dtype"):
            values = pd.to_datetime(values.astype(object), utc=True)
        values = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values
        texts = values.astype(str).str.removesuffix(" 00:00:00")
        return texts.astype(object).where(~missing, None)
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        values = values.astype(str).map(without_point)  # 0.1 in float32 is 0.1, and not what it is in float64
    texts = values.astype(object).map(
        lambda value: value if isinstance(value, str) else without_point(str(value)), na_action="ignore"
    )
    return texts.astype(object).where(~missing & (texts != ""), None)


@lru_cache(16)
def gaps(missing: tuple[str, ...], *, label: bool = False) -> tuple[frozenset[str], frozenset[float]]:
    """Texts and numbers that stand for a missing value; of a ``label`` NA and None may be names.

    >>> texts, numbers = gaps(("-1", "?"))
    >>> sorted(texts - set(USUAL_GAPS)), numbers
    (['-1', '-1.0', '?'], frozenset({-1.0}))
    """
    texts, numbers = {"", *missing} if label else {*USUAL_GAPS, *missing}, set()
    for text in missing:
        try:
            number = float(text)
        except ValueError:
            continue
        numbers.add(number)
        texts |= {f"{int(number)}", f"{int(number)}.0"} if number.is_integer() else set()
    for text in missing:
        day = re.fullmatch(_MIDNIGHT, text)
        texts |= {day[1], f"{day[1]} 00:00:00", f"{day[1]}T00:00:00"} if day else set()
    return frozenset(texts), frozenset(numbers)


def with_gaps(values: Any, missing: Collection[str], *, label: bool = False) -> Any:
    """A column with None or NaN where it has one of the usual texts for a missing value, or one of ``missing``.

    >>> import pandas as pd
    >>> with_gaps(pd.Series([1, -1]), ["-1"]).tolist(), with_gaps(pd.Series(["a", "NA"]), []).tolist()
    ([1.0, nan], ['a', None])
    """
    with needed_for("a table", "cli"):
        import pandas as pd

    texts, numbers = gaps(tuple(missing), label=label)
    if values.dtype.kind in "fiu":
        coarse = getattr(values.dtype, "itemsize", 8) < 8  # -99.9 is another number there
        exact = pd.to_numeric(values.astype(str), errors="coerce") if numbers and coarse else values
        there = exact.isin(numbers) if numbers else None
    elif values.dtype.kind == "O" or hasattr(values.dtype, "pyarrow_dtype"):  # numbers may be among the texts
        there = values.astype(object).isin(texts)
        there |= pd.to_numeric(values.astype(object), errors="coerce").isin(numbers) if numbers else False
        return values.astype(object).where(~there, None) if there.any() else values
    else:
        there = None
    return values.mask(there) if there is not None and there.any() else values


def without_point(text: str) -> str:
    """A whole number as one writes it, whatever wrote it; any other text as it is.

    >>> without_point("12.0"), without_point("01"), without_point("v1.0"), without_point("-0.0")
    ('12', '01', 'v1.0', '0')
    """
    whole, point, rest = text.partition(".")
    if not point or rest.strip("0") or not whole.lstrip("-").isdecimal():
        return text
    return "0" if whole == "-0" else whole


def spelled_as(known: Collection[str], texts: Collection[str]) -> list[str | None]:
    """Each of the ``texts`` as it stands among the known ones, also if numbers or truth values are written otherwise.

    A text that is known stays what it is; where two known ones are the same number no other is taken for either.

    >>> spelled_as(["1.0", "2.0", "a"], ["2.0", "1", "b"])
    ['2.0', '1.0', None]
    """
    exact = frozenset(known)
    if all(text in exact for text in texts):
        return list(texts)
    alike: dict[str, str | None] = {}
    for text in exact:
        short = _spoken(text)
        alike[short] = None if short in alike else text
    return [text if text in exact else alike.get(_spoken(text)) for text in texts]


def _spoken(text: str) -> str:
    """What a text means, if it is a number or a truth value, however it is written.

    >>> [_spoken(text) for text in ("7.50", "01067", "-0.0", "4e8317204551", "TRUE", "2020-01-31 00:00:00", "x")]
    ['7.5', '1067', '0', '4e8317204551', 'true', '2020-01-31', 'x']
    """
    if is_number(text) and len(text) < 30 and abs(float(text)) < 1e30:
        number = Decimal(text)
        return f"{number.normalize():f}" if number and number.adjusted() > -30 else "0" if not number else text
    day = re.fullmatch(_MIDNIGHT, text)
    if day:
        return day[1]
    return text.lower() if text.lower() in ("true", "false") else text
