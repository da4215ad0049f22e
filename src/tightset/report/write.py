"""The report: one HTML file on a fitted predictor and some rows, for people without Python.

It asks nothing of the network. Sets at every stop of its slider are embedded as they are, and what is said about them
is worded before, so that the page shows and never computes. Texts of the data reach it by Jinja2, which escapes them,
or as JSON without a single ``<``.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset.distributed import is_dask
from tightset.icp import significance
from tightset.intervals import share_interval
from tightset.pieces import take
from tightset.predictor import ConformalPredictor
from tightset.report import figures as report_figures
from tightset.report.numbers import (
    Listed,
    Tally,
    by_label,
    hardest,
    listed,
    size_bins,
    stops,
    tally,
)
from tightset.report.words import (
    about_model,
    band,
    compared,
    in_short,
    level_text,
    number,
    p_text,
    percent,
    say,
    text,
    thousandths,
    versions,
)
from tightset.storage import written_whole

__all__ = ["write_report"]

_ENTRIES = 2**20  # rows x labels in the table at most: about a byte each in the page
_COLUMNS, _CELL, _NAME = 8, 80, 200  # columns shown, characters of a cell, of a label or a column's name
_PAGE = 25  # rows of the table shown at once
_SET = 6  # labels of a set shown at once; the script has the same number
_EXAMPLES = 6


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    X: Any,
    y: Any = None,
    *,
    confidence: Any = None,
    groups: Any = None,
    baseline: Any = None,
    baseline_name: str = "the baseline",
    frame: Any = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    max_rows: int = 2000,
) -> Path:
    """Write a page about the sets of ``model`` on rows that it has not seen; return its path.

    Parameters
    ----------
    path : the HTML file. It is written beside itself first, so that it is never there by half.
    model : a fitted `SCPOClassifier` or `ConformalClassifier`.
    X, y : rows and their labels. Without labels the page says that coverage is unknown, and shows sizes.
    confidence : the level at which the page opens; by default the first that the model was made for.
    groups : the group of each row, if the model (or the baseline) was calibrated group by group.
    baseline, baseline_name : another fitted predictor of the same classes, to compare with on the same rows.
    frame : the rows as people know them, for the table; by default ``X``. The first eight columns are shown.
    title : of the page.
    about : what tells how to make this again: names, hashes, dates, commands.
    max_rows : rows in the table at most, the hardest. (Of a thousand labels there are fewer, for the size of the page.)

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from tightset import ConformalClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = ConformalClassifier(random_state=0).fit(X[::2], y[::2])
    >>> write_report("wine.html", model, X[1::2], y[1::2])  # doctest: +SKIP
    PosixPath('wine.html')
    """
    path = Path(path)
    _check(model, X, baseline, frame, max_rows)
    X = X if hasattr(X, "shape") else np.asarray(X)
    levels, chosen = stops(model, confidence)
    labels = [text(label, _NAME) for label in model.classes_.tolist()]
    codes = None if y is None else model._encode(X, y, "y")
    found = tally(model, X, codes, levels, chosen, _groups_for(model, groups))
    n, C = found.size.shape[1], len(labels)
    if frame is not None and len(frame) != n:
        raise ValueError(f"frame must have a row for each row of X: {n:,}; got {len(frame):,}")
    other = None
    if baseline is not None:
        other = tally(baseline, X, codes, levels, groups=_groups_for(baseline, groups))

    order = hardest(found.size[chosen], found.best)
    shown = order[: max(1, min(max_rows, _ENTRIES // C))]
    examples = order[np.unique(np.linspace(0, n - 1, min(_EXAMPLES, n)).round().astype(int))]
    at = np.concatenate([shown, examples])
    some_groups = None if _groups_for(model, groups) is None else np.asarray(groups)[at]
    rows = listed(model, take(X, at), None if codes is None else codes[at], levels, some_groups)
    columns, numeric, cells = _cells(X if frame is None else frame, at, getattr(model, "feature_names_in_", None))

    sizes, counts = report_figures.size_bars(size_bins(C), found.size)
    said = [say(model, found, levels, k, other) for k in range(len(levels))]
    comparison = [] if other is None else compared(model, found, other, levels)

    def row(r: int) -> dict[str, Any]:
        truth = None if codes is None else int(codes[at[r]])
        return _row(rows, labels, columns, cells[r], truth, int(at[r]), r, chosen)

    facts = {
        "title": text(title, 300) or f"Prediction sets for {n:,} row{'s' if n > 1 else ''}",
        "n": n,
        "C": C,
        "labels": labels,
        "has_labels": codes is not None,
        "levels": [level_text(level) for level in levels],
        "asked_for": [significance(level) in map(significance, model.levels_) for level in levels],
        "chosen": chosen,
        "now": said[chosen],
        "say": said,
        "model": about_model(model),
        "baseline": None if other is None else text(baseline_name, 80),
        "sizes": sizes,
        "size_texts": [
            [f"{count:,} ({percent(count / n)})" if count else "0" for count in one] for one in counts.tolist()
        ],
        "figures": _figures(model, found, other, codes, levels, chosen, labels, text(baseline_name, 40)),
        "compared": comparison,
        "summary": in_short(comparison),
        "columns": columns,
        "numeric": numeric,
        "listed": len(shown),
        "rows": [row(r) for r in range(min(_PAGE, len(shown)))],
        "examples": [row(r) for r in range(len(shown), len(at))],
        "page": _PAGE,
        "about": {text(name, _NAME): text(value, 4000) for name, value in (about or {}).items()},
        "versions": versions(),
    }
    page = _render(facts, _embedded(facts, rows, cells, codes, at))
    with written_whole(path) as file:
        file.write(page.encode())
    return path


def _check(model: Any, X: Any, baseline: Any, frame: Any, max_rows: int) -> None:
    """What can be said before anything is computed."""
    for name, one in (("model", model), ("baseline", baseline)):
        if one is None and name == "baseline":
            continue
        if not isinstance(one, ConformalPredictor):
            raise TypeError(f"{name} must be a SCPOClassifier or a ConformalClassifier; got {type(one).__name__}")
        check_is_fitted(one, "folds_")
    if baseline is not None and not np.array_equal(model.classes_, baseline.classes_):
        raise ValueError("baseline must have the classes of the model: fit both on the same labels")
    if is_dask(X):
        raise ValueError("X is a Dask collection; a report is of rows in memory: give X.compute(), or a sample of it")
    if max_rows < 1:
        raise ValueError(f"max_rows must be at least 1; got {max_rows}")
    if frame is not None and not hasattr(frame, "columns"):
        raise TypeError(f"frame must be a data frame; got {type(frame).__name__}")
    check_consistent_length(X)


def _groups_for(model: Any, groups: Any) -> Any:
    return groups if model.folds_[0].calibrations[0].by_group else None


# ---- figures and comparison -----------------------------------------------------------------------------------------


def _figures(
    model: Any,
    found: Tally,
    other: Tally | None,
    y: np.ndarray | None,
    levels: list[Any],
    chosen: int,
    labels: list[str],
    baseline_name: str,
) -> dict[str, Any]:
    n, C = found.size.shape[1], len(labels)
    marked = [significance(level) in map(significance, model.levels_) for level in levels]
    mean = found.size.mean(axis=1)
    series = [("the model", mean)]
    if other is not None:
        series.append((baseline_name, other.size.mean(axis=1)))
    figures: dict[str, Any] = {
        "size": report_figures.curves(
            levels, series, marked=marked, floor_at=0.0, logarithmic=bool(max(one.max() for _, one in series) > 20)
        ),
        "together": None if found.together is None else report_figures.shared_labels(labels, found.together, n),
        "table": [{"mean": number(mean[k])} for k in range(len(levels))],
    }
    if other is not None:
        for row, one in zip(figures["table"], other.size.mean(axis=1), strict=True):
            row["baseline"] = number(one)
    if found.covered is None or y is None:
        return figures
    asked = np.array([float(level) for level in levels])
    chance = np.array([band(model, level, n) for level in levels])
    seen = found.covered.mean(axis=1)
    figures["coverage"] = report_figures.curves(
        levels,
        [("the model", 100 * (seen - asked))],
        marked=marked,
        band=(100 * (chance[:, 0] - asked), 100 * (chance[:, 1] - asked)),
        signed=True,
    )
    for row, one, ends in zip(figures["table"], seen, chance, strict=True):
        row |= {"coverage": percent(one), "band": " to ".join(map(percent, ends))}
    of = by_label(y, found.covered[chosen], found.size[chosen], C)
    some = np.maximum(of["rows"], 1)
    ends = np.stack(share_interval(of["covered"], some), axis=1)
    share = of["covered"] / some
    figures["by_label"] = report_figures.label_bars(labels, of["rows"], share, ends, of["size"], float(asked[chosen]))
    figures["labels"] = [
        {
            "name": labels[c],
            "rows": f"{of['rows'][c]:,}",
            "coverage": percent(share[c]),
            "interval": " to ".join(map(percent, ends[c])),
            "size": number(of["size"][c]),
        }
        for c in np.flatnonzero(of["rows"])
    ]
    return figures


# ---- rows -----------------------------------------------------------------------------------------------------------


def _cells(frame: Any, at: np.ndarray, names: Any) -> tuple[list[str], list[bool], list[list[str]]]:
    """Names of the first columns, whether they hold numbers, and their cells as text; an index is a column too."""
    import pandas as pd

    part = take(frame, at)
    if hasattr(part, "iloc"):
        if not isinstance(frame.index, pd.RangeIndex):
            part = part.reset_index(allow_duplicates=True)
        columns = [text(name, _NAME) for name in part.columns[:_COLUMNS]]
        values = [part.iloc[:, j].tolist() for j in range(len(columns))]
    elif hasattr(part, "columns"):
        columns = [text(name, _NAME) for name in part.columns[:_COLUMNS]]
        values = [part[name].to_list() for name in part.columns[:_COLUMNS]]
    else:
        some = part[:, :_COLUMNS]
        some = some.toarray() if hasattr(some, "toarray") else np.asarray(some)
        columns = [text(names[j] if names is not None else f"column {j}", _NAME) for j in range(some.shape[1])]
        values = list(some.T)
    numeric = [all(isinstance(value, Number) and not isinstance(value, bool) for value in column) for column in values]
    return columns, numeric, [[text(_rounded(value), _CELL) for value in row] for row in zip(*values, strict=True)]


def _rounded(value: Any) -> Any:
    """Numbers for reading: four digits, more where they stand before the point.

    >>> _rounded(3.14159265), _rounded(123456.789), _rounded("3.14159")
    ('3.142', '123457', '3.14159')
    """
    if not isinstance(value, (float, np.floating)) or np.isnan(value):
        return value
    size = abs(float(value))
    return f"{value:.4g}" if size < 1e4 or size >= 1e15 else f"{value:.0f}"


def _row(
    rows: Listed, labels: list[str], columns: list[str], cells: list[str], truth: int | None, at: int, r: int, k: int
) -> dict[str, Any]:
    """A row as the page shows it at a level before its script has run."""
    measure, kept = rows.measure[k], rows.kept[k, r]
    top = {int(c): p_text(p) for c, p in zip(rows.top[measure][r], thousandths(rows.top_p[measure][r]), strict=True)}
    inside = [c for c in top if kept[c]] + [int(c) for c in np.flatnonzero(kept) if c not in top]
    found = {
        "at": at,
        "size": len(inside),
        "set": [{"name": labels[c], "p": top.get(c, "")} for c in inside[:_SET]],
        "more": max(0, len(inside) - _SET),
        "best": next(iter(top.values())),
        "cells": cells,
        "text": ", ".join(f"{name} = {cell}" for name, cell in list(zip(columns, cells, strict=True))[:4]),
    }
    if truth is not None and rows.own_p is not None:
        own = p_text(thousandths(rows.own_p[measure][r : r + 1])[0])
        found |= {"truth": labels[truth], "own_p": own, "missed": not kept[truth]}
    return found


# ---- the file -------------------------------------------------------------------------------------------------------


def _embedded(
    facts: dict[str, Any], rows: Listed, cells: list[list[str]], codes: np.ndarray | None, at: np.ndarray
) -> str:
    """What the script of the page reads: JSON in which no character could end the element that it stands in."""
    patterns, width, coded = rows.encoded()
    figures = facts["figures"]
    data = {
        "start": facts["chosen"],
        "say": facts["say"],
        "labels": facts["labels"],
        "widths": facts["sizes"]["widths"],
        "bars": facts["size_texts"],
        "marks": {
            name: {"x": figures[name]["x"], "y": [point["y"] for point in figures[name]["lines"][0]["points"]]}
            for name in ("coverage", "size")
            if name in figures
        },
        "measure": rows.measure,
        "patterns": patterns,
        "width": width,
        "codes": coded,
        "top": [one.tolist() for one in rows.top],
        "topP": [thousandths(one) for one in rows.top_p],
        "truth": None if codes is None else codes[at].tolist(),
        "ownP": None if rows.own_p is None else [thousandths(one) for one in rows.own_p],
        "at": at.tolist(),
        "columns": facts["columns"],
        "numeric": facts["numeric"],
        "cells": cells,
        "listed": facts["listed"],
        "page": _PAGE,
    }
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)  # and only ASCII
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _render(facts: dict[str, Any], data: str) -> str:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    folder = files("tightset.report") / "page"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    pages = Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = read("page.css"), read("page.js")
    pages.filters["short"] = lambda text, length: text if len(text) <= length else text[: length - 1] + "…"
    return pages.get_template("page.html").render(
        facts,
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        data=Markup(data),  # noqa: S704
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
