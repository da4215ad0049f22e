"""The column of a table that has the group of each row, within each of which coverage holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tightset.exceptions import TableError
from tightset.tables.columns import MISSING
from tightset.tables.target import meant
from tightset.tables.texts import as_text, spelled_as, with_gaps

__all__ = ["LEFT_OUT", "Grouped", "groups_of"]

LEFT_OUT = "it is the group of each row"


def groups_of(frame: Any, column: str, missing: Collection[str], known: Collection[str] = ()) -> np.ndarray:
    """The group of each row ``(n,)``: texts as they are written; rows without one are the group ``(missing)``.

    A number that is written in another way than the ``known`` group is that group.

    >>> import pandas as pd
    >>> groups_of(pd.DataFrame({"site": [1.0, 2.0, None]}), "site", [], ["1.0"]).tolist()
    ['1.0', '2', '(missing)']
    """
    if column not in frame.columns:
        raise TableError(f"there is no column {column!r} with the group of each row{meant(column, frame.columns)}")
    texts = with_gaps(as_text(frame[column]), missing)
    codes, distinct = texts.where(texts.notna(), MISSING).factorize()
    spelled = [own or text for own, text in zip(spelled_as(list(known), list(distinct)), distinct, strict=True)]
    return np.array(spelled, dtype=np.str_)[codes] if len(codes) else np.empty(0, dtype=np.str_)


class Grouped:
    """A table that notes the group of each row while it is first read; else it is the table itself.

    Without a column there are no groups.
    """

    def __init__(self, table: Any, column: str | None, target: str, used: Collection[str]) -> None:
        if column is not None and (column == target or column in used):
            what = "the target" if column == target else "a column to predict from"
            raise TableError(f"{column!r} is {what}; it cannot be the group as well")
        self.table, self.column = table, column
        self.columns = [] if column is None else [column]
        self._parts: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    @property
    def groups(self) -> np.ndarray | None:
        """Those of all rows ``(n,)``."""
        return None if self.column is None else np.concatenate(self._parts)

    def of(self, rows: np.ndarray) -> np.ndarray | None:
        """Those of some rows, chosen by truth values ``(n,)``."""
        return None if self.groups is None else self.groups[rows]

    def chunks(self, *, text: Collection[str] = (), only: Collection[str] | None = None, **how: Any) -> Iterator[Any]:
        first = only is None and not self._parts
        for frame in self.table.chunks(text=[*text, *self.columns], only=only, **how):
            if first and self.column is not None:
                self._parts.append(groups_of(frame, self.column, self.table.missing))
            yield frame
