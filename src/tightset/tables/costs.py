"""What labels in sets cost, read from a CSV file: one cost for each label, or one for each pair of labels.

- Two columns, a label and its cost, below a header.
- A square table: labels in the header and in the first column, which has the true labels; a cell is the cost of the
  label of its column in the set of a row with the true label.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

from tightset.conformal.costs import LARGEST
from tightset.exceptions import TableError
from tightset.tables.texts import spelled_as

__all__ = ["Costs", "read_costs"]


class Costs(NamedTuple):
    """Costs as a file has them: by label, or by true label and label."""

    name: str
    of_labels: dict[str, dict[str, float]]  # by true label; of two columns there is one, ""
    is_square: bool

    def of(self, labelled: Any) -> list[Any]:
        """Costs in the order of the classes of a table, for ``cost`` of `SCPOClassifier`; a label may not be missing.

        Labels that were merged or dropped as rare need no cost, and are ignored.
        """
        classes = [str(label) for label in labelled.classes.tolist()]
        known = [*classes, *labelled.merged, *labelled.dropped]
        rows = {true: self._in_order(costs, classes, known) for true, costs in self.of_labels.items()}
        return self._in_order(rows, classes, known) if self.is_square else rows[""]

    def _in_order(self, found: dict[str, Any], classes: list[str], known: list[str]) -> list[Any]:
        texts = list(found)
        spelled = spelled_as(known, texts)
        unknown = [text for text, label in zip(texts, spelled, strict=True) if label is None]
        if unknown:
            raise TableError(
                f"{self.name} has a cost for {unknown[0]!r}, which is no label of the table; its labels are "
                f"{_listed(classes)}"
            )
        by_label = dict(zip(spelled, found.values(), strict=True))
        absent = [label for label in classes if label not in by_label]
        if absent:
            raise TableError(
                f"{self.name} has no cost for the label {absent[0]!r}; give one for each of {_listed(classes)}"
            )
        return [by_label[label] for label in classes]


def read_costs(path: Path) -> Costs:
    """The costs in a CSV file; TableError names the file, the label and what would be right."""
    if not path.exists():
        raise TableError(f"there is no file {path}; --cost takes a CSV file of labels and their costs")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = "is not UTF-8 text" if isinstance(error, ValueError) else f"cannot be read: {error.strerror}"
        raise TableError(f"{path} {why}; --cost takes a CSV file of labels and their costs") from None
    marks = max(",;\t", key=lines[0].count) if lines else ","
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=marks)]
    except csv.Error as error:
        raise TableError(f"{path} is no CSV file: {error}; --cost takes one of labels and their costs") from None
    rows = [row for row in rows if any(row)]
    if len(rows) < 2 or len(rows[0]) < 2:
        raise TableError(
            f"{path} must have a header and rows of a label and its cost, such as 'label,cost', then 'cat,1.5'; or a "
            "square table with labels in the header and in the first column"
        )
    header, *body = rows
    for row in body:
        if len(row) != len(header):
            raise TableError(f"{path} has {len(row)} cells in the row of {row[0]!r}, but {len(header)} in its header")
    _check_once(path, [row[0] for row in body])
    if len(header) == 2:
        costs = {label: _number(path, cell, label) for label, cell in body}
        _check_some(path, costs)
        return Costs(path.name, {"": costs}, is_square=False)
    _check_once(path, header[1:])
    square = {
        true: {label: _number(path, cell, label, true) for label, cell in zip(header[1:], cells, strict=True)}
        for true, *cells in body
    }
    _check_some(path, {true: max(costs.values()) for true, costs in square.items()})
    return Costs(path.name, square, is_square=True)


def _check_some(path: Path, costs: dict[str, float]) -> None:
    if not any(costs.values()):
        raise TableError(f"{path}: cost is zero for every label; nothing would be minimised")


def _check_once(path: Path, labels: list[str]) -> None:
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise TableError(f"{path} has the label {twice[0]!r} {labels.count(twice[0])} times; once is right")


def _number(path: Path, cell: str, label: str, true: str | None = None) -> float:
    where = f"the label {label!r}" + ("" if true is None else f" (true label {true!r})")
    try:
        cost = float(cell)
    except ValueError:
        got = "is empty" if not cell else f"is {cell!r}, which is not a number"
        raise TableError(f"{path}: the cost of {where} {got}; write one such as 2.5") from None
    if not math.isfinite(cost) or cost < 0:
        raise TableError(f"{path}: the cost of {where} is {cell}; it must be finite and not negative, such as 2.5")
    if cost > LARGEST:
        raise TableError(f"{path}: the cost of {where} is {cell}; it must be at most {LARGEST:g}, in a larger unit")
    return cost


def _listed(labels: list[str]) -> str:
    return ", ".join(map(repr, labels[:8])) + (" ..." if len(labels) > 8 else "")
