"""Tables in data frames, read as those in files are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from tightset.exceptions import TableError
from tightset.tables.dialect import Dialect, check_names
from tightset.tables.texts import as_text, with_gaps

__all__ = ["FrameTable"]


class FrameTable:
    """A data frame, read as a file of tables is."""

    name = "the table"

    dialect, delimiter = Dialect(), None  # it is not written in any

    def __init__(self, frame: Any, missing: Collection[str] = ()) -> None:
        if not hasattr(frame, "set_axis"):
            kind = f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
            how = ": give frame.to_pandas()" if hasattr(frame, "to_pandas") else ""
            raise TableError(f"the table must be a pandas data frame; got {kind}{how}")
        names = [str(name) for name in frame.columns]
        check_names(names, self.name)
        frame = frame.set_axis(names, axis=1).reset_index(drop=True)
        # Categories as the values that they stand for: what is computed of a column of them is a category again.
        coded = [name for name in names if str(frame[name].dtype) == "category"]
        self.frame = frame.assign(**{name: frame[name].astype(object) for name in coded})
        self.orders = {
            name: as_text(frame[name].cat.categories.to_series()).tolist() for name in coded if frame[name].cat.ordered
        }
        self.missing = tuple(missing)
        self.n_bytes = 2 * int(frame.memory_usage().sum())  # who holds it has room for its numbers too

    def unpacked(self, rows: int, columns: int) -> int:  # noqa: ARG002
        """Bytes of a table whose size says nothing of it; 0 here."""
        return 0

    def chunks(
        self,
        *,
        text: Collection[str] = (),
        label: str | None = None,
        only: Collection[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,  # noqa: ARG002
    ) -> Iterator[Any]:
        read, wanted = {*text, label}, None if only is None else frozenset(only)
        frame = self.frame if wanted is None else self.frame[[name for name in self.frame.columns if name in wanted]]
        # dates and the like are texts, as they would be in a file
        texts = [name for name in frame if name in read or frame[name].dtype.kind not in "fiubO"]
        read_as_text = {name: as_text(frame[name]) for name in texts}
        yield frame.assign(
            **{
                name: with_gaps(read_as_text.get(name, frame[name]), self.missing, label=name == label)
                for name in frame
            }
        )
