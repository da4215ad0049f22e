"""Values of a table as texts: a text is unchanged, and a whole number has no decimal point."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["as_text", "spelled_as", "without_point"]


def as_text(values: Any) -> Any:
    """Texts as they are, and None; whole numbers without a point, since pandas reads them as floats beside a gap.

    >>> import pandas as pd
    >>> as_text(pd.Series([1.0, None, 2.5])).tolist(), as_text(pd.Series(["1.0", "a", ""])).tolist()
    (['1', None, '2.5'], ['1.0', 'a', None])
    """
    missing = values.isna()
    texts = values.astype(object).map(
        lambda value: value if isinstance(value, str) else without_point(str(value)), na_action="ignore"
    )
    return texts.astype(object).where(~missing & (texts != ""), None)


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
    """Each of the ``texts`` as it stands among the known ones, also if one has a point and the other has not.

    A text that is known stays what it is; where two known ones are the same number no other is taken for either.

    >>> spelled_as(["1.0", "2.0", "a"], ["2.0", "1", "b"])
    ['2.0', '1.0', None]
    """
    exact = frozenset(known)
    if all(text in exact for text in texts):
        return list(texts)
    alike: dict[str, str | None] = {}
    for text in exact:
        short = without_point(text)
        alike[short] = None if short in alike else text
    return [text if text in exact else alike.get(without_point(text)) for text in texts]
