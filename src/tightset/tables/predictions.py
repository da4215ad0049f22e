"""Prediction sets of a table, chunk by chunk, as CSV, JSON lines, Parquet or a table to look at.

One line for each row and level: the row number from 1, kept columns, the confidence, the set size, and the labels with
their p-values, largest first, or in the order of the labels if they have one. With calibration by label, a label
without calibration rows comes last: its p-value is 1 because nothing is known about it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tightset.estimators.ordering import order_of
from tightset.tables.numbers import is_number
from tightset.tables.predictor import TablePredictor

__all__ = [
    "FORMATS",
    "CsvLines",
    "JsonLines",
    "Line",
    "ParquetLines",
    "answers",
    "first_of",
    "no_formula",
    "predicted",
]

_BETWEEN = "|"  # labels of a set in CSV
_AT_ONCE = 2**15  # rows


class Line(NamedTuple):
    """The set of a row at a level."""

    row: int
    kept: Sequence[Any]
    confidence: float
    labels: list[str]
    p: list[float]


def predicted(
    model: TablePredictor, frame: Any, levels: Sequence[Any], keep: Sequence[str], *, strict: bool
) -> Iterator[Line]:
    """The lines of a chunk of a table, for a `TablePredictor`; what is wrong with it is told at once."""
    rows, groups = model.encode(frame, strict=strict), model.groups(frame)
    if groups is not None:
        model.predictor.check_new_rows(rows, groups)  # warns of groups that are not known
    return _lines(model, frame, (rows, groups), levels, keep)


def _lines(
    model: TablePredictor, frame: Any, own: tuple[Any, Any], levels: Sequence[Any], keep: Sequence[str]
) -> Iterator[Line]:
    rows, groups = own
    names = np.asarray(model.classes_).astype(str)
    kept = frame[list(keep)].astype(object).where(frame[list(keep)].notna(), None).to_numpy()
    fitted = model.predictor.fitted_
    allow_empty = model.predictor.allow_empty
    asked = fitted.ask(levels)
    known, order = fitted.rows_of_labels() > 0, order_of(model.predictor)
    rank = None if order is None else np.argsort(order)
    for start in range(0, len(rows), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        of = None if groups is None else groups[some]
        both = fitted.sets_and_p(asked, rows[some], of, allow_empty=allow_empty)
        found = [_listed(sets, p, known, rank) for sets, p in both]
        for at, (number, beside) in enumerate(zip(frame.index[some].tolist(), kept[some].tolist(), strict=True)):
            for level, (order, p, sizes) in zip(levels, found, strict=True):
                size = sizes[at]
                yield Line(number + 1, beside, float(level), names[order[at, :size]].tolist(), p[at, :size].tolist())


def answers(model: TablePredictor, frame: Any, keep: Sequence[str], *, strict: bool, **how: Any) -> Iterator[Line]:
    """Lines with one label or none, by `predict_or_abstain`, whose parameters are ``how``."""
    rows = model.encode(frame, strict=strict)
    labels, answered = model.predictor.predict_or_abstain(rows, **how)
    level = model.levels_[0] if how["confidence"] is None else how["confidence"]
    p = model.predictor.predict_p(rows, confidence=level)[np.arange(len(rows)), np.searchsorted(model.classes_, labels)]
    kept = frame[list(keep)].astype(object).where(frame[list(keep)].notna(), None).to_numpy().tolist()
    told = zip(frame.index.tolist(), kept, labels.tolist(), answered.tolist(), p.tolist(), strict=True)
    return (Line(row + 1, own, float(level), [str(one)] * sure, [q] * sure) for row, own, one, sure, q in told)


def _listed(
    sets: np.ndarray, p: np.ndarray, known: np.ndarray, rank: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The labels of each set before the others; these p-values; and how many are in the set.

    Labels come by their ``rank (C,)`` if they have an order, else by falling p-value.
    """
    sizes = sets.sum(axis=1)
    place = np.where(known, -p, 0) if rank is None else rank
    order = np.argsort(np.where(sets, place, np.inf), axis=1, kind="stable")[:, : max(int(sizes.max(initial=0)), 1)]
    return order, np.take_along_axis(p, order, axis=1).astype(np.float64), sizes.tolist()


class CsvLines:
    """``set`` and ``p`` hold labels and p-values with bars between them, or JSON if a label has a bar.

    For ``people`` a text that a spreadsheet would compute as a formula gets an apostrophe before it.
    """

    def __init__(self, stream: BinaryIO, keep: Sequence[str], labels: Sequence[str], *, people: bool = False) -> None:
        self._text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=False)
        self._plain = csv.writer(self._text, lineterminator="\n")
        self._quoted = csv.writer(self._text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._people = people
        self._row(["row", *map(_name_of_kept, keep), "confidence", "size", "set", "p"])
        self._as_json = any(_BETWEEN in label for label in labels)

    def write(self, lines: Iterator[Line]) -> None:
        for line in lines:
            p = [f"{value:.6g}" for value in line.p]
            both = (
                (json.dumps(line.labels, ensure_ascii=False), f"[{', '.join(p)}]")
                if self._as_json
                else (_BETWEEN.join(line.labels), _BETWEEN.join(p))
            )
            self._row([line.row, *line.kept, f"{line.confidence:g}", len(line.labels), *both])

    def _row(self, cells: list[Any]) -> None:
        cells = [no_formula(cell) for cell in cells] if self._people else cells
        returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)  # which else would have no quotes
        (self._quoted if returns else self._plain).writerow(cells)

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


class JsonLines:
    """An object a line: ``{"row": 1, "confidence": 0.95, "size": 1, "set": [{"label": "a", "p": 0.5}]}``."""

    def __init__(self, stream: BinaryIO, keep: Sequence[str], labels: Sequence[str]) -> None:  # noqa: ARG002
        self._stream, self._keep = stream, keep

    def write(self, lines: Iterator[Line]) -> None:
        for line in lines:
            members = [{"label": label, "p": round(p, 9)} for label, p in zip(line.labels, line.p, strict=True)]
            kept = {
                name: value if value is None else str(value) for name, value in zip(self._keep, line.kept, strict=True)
            }
            told = {"row": line.row, "confidence": line.confidence, "size": len(members), "set": members}
            told |= {"kept": kept} if kept else {}
            self._stream.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        self._stream.flush()


class ParquetLines:
    """``set`` and ``p`` are lists."""

    def __init__(self, stream: BinaryIO, keep: Sequence[str], labels: Sequence[str]) -> None:  # noqa: ARG002
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise ImportError('Parquet files need another package: pip install "tightset[io]"') from None
        self._table, self._keep = pa.Table, keep
        kept = [(_name_of_kept(name), pa.string()) for name in keep]
        lists = [("set", pa.list_(pa.string())), ("p", pa.list_(pa.float64()))]
        own = [("row", pa.int64()), *kept, ("confidence", pa.float64()), ("size", pa.int32()), *lists]
        self._schema = pa.schema(own)
        self._writer = pq.ParquetWriter(stream, self._schema)

    def write(self, lines: Iterator[Line]) -> None:
        rows = [(one.row, *map(_text, one.kept), one.confidence, len(one.p), one.labels, one.p) for one in lines]
        columns: list[Any] = list(zip(*rows, strict=True)) or [[] for _ in self._schema]
        named = dict(zip(self._schema.names, columns, strict=True))
        self._writer.write_table(self._table.from_pydict(named, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


_OWN = ("row", "confidence", "size", "set", "p")
FORMATS: dict[str, type[Any]] = {"csv": CsvLines, "jsonl": JsonLines, "parquet": ParquetLines}


def no_formula(cell: Any) -> Any:
    """A text that spreadsheets take for a formula as the text that it is; numbers stay what they are.

    >>> [no_formula(cell) for cell in ("=1+1", "@x", "-1.5", "a", -2)]
    ["'=1+1", "'@x", '-1.5', 'a', -2]
    """
    risky = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number(cell)
    return f"'{cell}" if risky else cell


def _name_of_kept(name: str) -> str:
    return f"kept {name}" if name in _OWN else name


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def first_of(chunks: Iterator[Iterator[Line]], most: int) -> tuple[list[Line], bool]:
    """The first lines, and whether there are more."""
    lines = chain.from_iterable(chunks)
    shown = [line for line, _ in zip(lines, range(most), strict=False)]
    return shown, next(lines, None) is not None
