"""Columns of a table as ONNX nodes: one input for each, encoded as `Encoding.apply` does it.

A number is double, NaN where it is missing. A category is a text; `missing_texts` are those for a missing value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.export.bases import ExportError
from tightset.export.graph import Graph
from tightset.tables.columns import MISSING, OTHER, Category, Date, Number
from tightset.tables.encoding import Encoding
from tightset.tables.texts import gaps

__all__ = ["add_encoding", "inputs_of", "missing_texts", "said_of"]

_KINDS = {Number: "DOUBLE", Category: "STRING"}


def inputs_of(encoding: Encoding) -> list[tuple[str, str, list[Any]]]:
    """Name, type and shape of each input; ExportError if ONNX cannot compute with one."""
    dates = [column.name for column in encoding.columns if isinstance(column, Date)]
    if dates:
        raise ExportError(
            f"ONNX cannot read dates, which the model uses ({', '.join(map(repr, dates))}); fit without these columns "
            "(--drop), or with columns of numbers in their place"
        )
    return [(column.name, _KINDS[type(column)], ["n", 1]) for column in encoding.columns]


def said_of(encoding: Encoding) -> dict[str, dict[str, Any]]:
    """What the metadata say of each input."""
    return {
        column.name: {"kind": "category", "values": column.values, "missing": missing_texts(column, encoding)}
        if isinstance(column, Category)
        else {"kind": "number"}
        for column in encoding.columns
    }


def missing_texts(column: Category, encoding: Encoding) -> list[str]:
    """Texts for a missing value: none at all, ``(missing)``, the usual ones, and those of `tightset fit --missing`.

    A text that training rows had as a value of its own is not among them. (In files the empty text never is one.)

    >>> missing_texts(Category("colour", ["blue", "red"], ["blue", "red"], "red"), Encoding([], {}, ["?"]))[:5]
    ['', '(missing)', '#N/A', '-nan', '<NA>']
    """
    texts = dict.fromkeys(["", MISSING, *sorted(gaps(tuple(encoding.missing))[0])])
    return [text for text in texts if text == MISSING or text not in column.seen]


def add_encoding(graph: Graph, encoding: Encoding) -> str:
    """The rows ``(n, columns)`` that a predictor takes, in double; float32 encodings are rounded to that first."""
    parts: list[str] = []
    for column in encoding.columns:
        if isinstance(column, Category):
            parts += _category(graph, column, encoding)
        elif isinstance(column, Number):
            parts += _number(graph, column)
    rows = graph.add("Concat", *parts, axis=1)
    return rows if encoding.dtype == "float64" else graph.cast(graph.cast(rows, "FLOAT"), "DOUBLE")


def _number(graph: Graph, column: Number) -> list[str]:
    missing = graph.add("IsNaN", column.name)
    filled = graph.add("Where", missing, float(column.fill), column.name)
    return [filled, graph.cast(missing, "DOUBLE")] if column.told else [filled]


def _category(graph: Graph, column: Category, encoding: Encoding) -> list[str]:
    """The place of a value, compared with all places; none of them is -1."""
    at = {value: place for place, value in enumerate(column.values)}
    other = at.get(OTHER, -1)
    at |= dict.fromkeys(missing_texts(column, encoding), at.get(MISSING, other))
    place = graph.add(
        "LabelEncoder",
        column.name,
        domain="ai.onnx.ml",
        keys_strings=list(at),
        values_int64s=list(at.values()),
        default_int64=other,
    )
    return [graph.cast(graph.add("Equal", place, np.arange(len(column.values))), "DOUBLE")]
