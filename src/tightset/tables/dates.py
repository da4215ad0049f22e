"""Dates and times in a table: the form they are written in, and the numbers they become."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import product
from typing import Any

import numpy as np

from tightset.exceptions import needed_for

__all__ = ["PARTS", "TIMES", "example", "forms_of", "moments", "part_of", "written"]

ISO = "ISO8601"
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%m/%d/%y", "%d.%m.%y")
TIMES = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_FORMS = (*(" ".join(both).strip() for both in product(_DAYS, ("", *TIMES))), *TIMES)
PARTS = ("days", "year", "month", "weekday", "hour")
_DAY = np.timedelta64(1, "D")


def forms_of(text: str) -> list[str]:
    """The forms that a text may be a date or a time of.

    >>> forms_of("2020-01-31 12:00"), forms_of("03/04/2021"), forms_of("12.5")
    (['ISO8601'], ['%m/%d/%Y', '%d/%m/%Y'], [])
    """
    if re.match(r"\d{4}-\d{2}-\d{2}($|[T ]\d{2}:\d{2})", text, re.ASCII):
        return [ISO]
    return [form for form in _FORMS if _is_of(text, form)] if re.match(r"\d{1,4}[./:-]\d", text, re.ASCII) else []


def _is_of(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)  # noqa: DTZ007 - a table says nothing of zones
    except ValueError:
        return False
    return True


def moments(texts: Any, form: str) -> np.ndarray:
    """A column of texts as ``datetime64[s]``, NaT where there is none or where it is not of the form.

    >>> import pandas as pd
    >>> moments(pd.Series(["31.01.2020", None, "?"]), "%d.%m.%Y").astype(str).tolist()
    ['2020-01-31T00:00:00', 'NaT', 'NaT']
    """
    with needed_for("a table", "cli"):
        import pandas as pd

    how = {"utc": True} if form == ISO else {}
    found = pd.to_datetime(texts.astype(object), format=form, errors="coerce", **how)
    return np.asarray(found.dt.tz_localize(None).to_numpy().astype("datetime64[s]"))


def part_of(part: str, when: np.ndarray, earliest: Any) -> np.ndarray:
    """A number ``(n,)`` of each moment ``(n,)``: days since the earliest, year, month, weekday (Monday is 0), hour.

    >>> when = np.array(["2020-03-01T06:30"], dtype="datetime64[s]")
    >>> [float(part_of(part, when, when - np.timedelta64(12, "h"))[0]) for part in PARTS]
    [0.5, 2020.0, 3.0, 6.0, 6.5]
    """
    day = when.astype("datetime64[D]")
    match part:
        case "days":
            found = (when - earliest) / _DAY
        case "year":
            found = when.astype("datetime64[Y]").astype(int) + 1970
        case "month":
            found = when.astype("datetime64[M]").astype(int) % 12 + 1
        case "weekday":
            found = (day.astype(int) + 3) % 7
        case _:
            found = (when - day) / np.timedelta64(1, "h")
    return np.asarray(found, dtype=np.float64)


def written(when: np.datetime64, form: str) -> str:
    """A moment as it would stand in the table.

    >>> written(np.datetime64("2020-01-31T00:00:00"), "%d.%m.%Y"), written(np.datetime64("2020-01-31T12:30:00"), ISO)
    ('31.01.2020', '2020-01-31 12:30:00')
    """
    moment: Any = when.item()
    return str(moment).removesuffix(" 00:00:00") if form == ISO else str(moment.strftime(form))


def example(form: str) -> str:
    """A date in this form.

    >>> example("%d.%m.%Y"), example(ISO)
    ('31.01.2020', '2020-01-31')
    """
    return written(np.datetime64("2020-01-31T00:00:00" if form == ISO else "2020-01-31T14:05:00"), form)
