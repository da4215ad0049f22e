"""The report: one HTML file on a fitted predictor and some rows, for people without Python.

It needs no network. The sets at every stop of its slider, and the sentences about them, are embedded, so the page
computes nothing. Texts from the data are escaped by Jinja2, or embedded as JSON without a single ``<``.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset.compute.rows import MemoryRows, lies_elsewhere, take
from tightset.conformal.ranks import significance
from tightset.conformal.shortfall import REMEDY
from tightset.estimators.base import ConformalPredictor
from tightset.exceptions import needed_for
from tightset.report import figures as report_figures
from tightset.report.about import about_model, told, unchanged, versions
from tightset.report.comparison import compared, in_short
from tightset.report.numbers import Listed, by_label, hardest, listed, stops, tally
from tightset.report.panels import LabelTexts, halves, label_texts, labels_now, pairs_now, panels, twins, without_rows
from tightset.report.rows import MISSING, UNSEEN, Cells, cells_of, row_of
from tightset.report.words import (
    NAME,
    breaks,
    is_number,
    level_text,
    percent,
    say,
    say_of_pairs,
    text,
    thousandths,
    words,
)
from tightset.storage.file import written_whole

__all__ = ["ReportPage", "write_report"]

_ENTRIES = 2**20  # rows x labels in the table at most: about a byte each in the page
_PAGE = 25  # rows of the table shown at once
_EXAMPLES = 6
_NAMED = 8  # labels that fall short and are named at once; the others are in a list that opens


@dataclass(frozen=True, eq=False)
class ReportPage:
    """What stands on the page of a report.

    Parameters
    ----------
    title : str, optional
        The title of the page.
    confidence : float, optional
        The level at which the page opens; by default the first that the model was made for.
    frame : data frame of n_samples rows, optional
        The rows as people know them, for the table; by default ``X``. The first eight columns are shown.
    about : dict, optional
        How to make the page again: names, hashes, dates, commands.
    max_rows : int, default 2000
        The most rows in the table; the hardest are shown. (With a thousand labels there are fewer, to keep the page
        small.)
    """

    title: str | None = None
    confidence: Any = None
    frame: Any = None
    about: Mapping[str, Any] | None = None
    max_rows: int = 2000

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ValueError(f"max_rows must be at least 1; got {self.max_rows}")
        if self.frame is not None and not hasattr(self.frame, "columns"):
            raise TypeError(f"frame must be a data frame; got {type(self.frame).__name__}")


def write_report(
    path: str | os.PathLike[str],
    model: ConformalPredictor,
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    baseline: ConformalPredictor | None = None,
    baseline_name: str = "the baseline",
    page: ReportPage | None = None,
) -> Path:
    """Write an HTML page about the sets of a predictor on rows that it has not seen.

    Parameters
    ----------
    path : str or os.PathLike
        The HTML file. It is written completely or not at all.
    model : SCPOClassifier or ConformalClassifier
        The fitted predictor.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The rows.
    y : array-like of shape (n_samples,), optional
        The labels. Without them the page says that coverage is unknown, and shows sizes.
    groups : array-like of shape (n_samples,), optional
        The group of each row, if the model (or the baseline) was calibrated group by group.
    baseline : SCPOClassifier or ConformalClassifier, optional
        Another fitted predictor of the same classes, to compare with on the same rows.
    baseline_name : str, default "the baseline"
        What the page calls it.
    page : ReportPage, optional
        Settings of the page.

    Returns
    -------
    path : Path
        The file.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from tightset import ConformalClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = ConformalClassifier(random_state=0).fit(X[::2], y[::2])
    >>> write_report("wine.html", model, X[1::2], y[1::2])  # doctest: +SKIP
    PosixPath('wine.html')
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a file name, as in write_report(path, model, X, y); got {type(path).__name__}")
    path, page = Path(path), page or ReportPage()
    _check(model, X, baseline)
    frame = page.frame
    X = X if hasattr(X, "shape") else np.asarray(X)
    levels, chosen = stops(model, page.confidence)
    labels = [text(label, NAME) for label in model.classes_.tolist()]
    codes = None if y is None else model.label_codes(MemoryRows(X), y, "y", unknown="miss")
    found = tally(model, X, codes, levels, chosen, _groups_for(model, groups))
    n, C = found.size.shape[1], len(labels)
    if frame is not None and len(frame) != n:
        raise ValueError(f"frame must have a row for each row of X: {n:,}; got {len(frame):,}")
    other = None
    if baseline is not None:
        other = tally(baseline, X, codes, levels, groups=_groups_for(baseline, groups), priced=model)

    order = hardest(found.size[chosen], found.best)
    shown = order[: max(1, min(page.max_rows, _ENTRIES // C))]
    examples = order[np.unique(np.linspace(0, n - 1, min(_EXAMPLES, n)).round().astype(int))]
    at = np.concatenate([shown, examples])
    some_groups = None if _groups_for(model, groups) is None else np.asarray(groups)[at]
    rows = listed(model, take(X, at), None if codes is None else codes[at], levels, some_groups, at)
    cells = cells_of(X if frame is None else frame, at, getattr(model, "feature_names_in_", None))

    sizes = report_figures.size_bars(found.size, C)
    for stop in sizes["stops"]:
        stop["texts"] = [f"{count:,} ({percent(count / n)})" if count else "0" for count in stop["counts"]]
    of_labels = None if codes is None or not (codes >= 0).any() else by_label(model, codes, found, levels)
    drawn = panels(model, found, other, of_labels, levels, labels, text(baseline_name, 80))
    said = [say(model, found, of_labels, levels, k, other) for k in range(len(levels))]
    for k, stop in (drawn["together"] or {"stops": {}})["stops"].items():
        said[k]["pairs"] = say_of_pairs(stop, C)
    texts = None if of_labels is None else label_texts(of_labels)
    comparison = []
    if baseline is not None and other is not None:
        theirs = partial(tally, baseline, X, codes, groups=_groups_for(baseline, groups), priced=model)
        comparison = compared(model, found, other, levels, theirs)

    def row(r: int) -> dict[str, Any]:
        truth = None if codes is None else int(codes[at[r]])
        return row_of(rows, labels, cells.columns, cells.texts[r], truth, int(at[r]), r, chosen)

    facts = {
        "title": text(page.title, 300) or f"Prediction sets for {n:,} row{'s' if n > 1 else ''}",
        "n": n,
        "C": C,
        "labels": labels,
        "plain": "label " if all(map(is_number, labels)) else "",  # lest a label read like a count
        "without_rows": [] if of_labels is None else without_rows(labels, of_labels),
        "twins": twins(labels),
        "has_labels": codes is not None,
        "priced": found.spent is not None,
        "ordered": rows.rank is not None,
        "levels": [level_text(level) for level in levels],
        "asked_for": [significance(level) in map(significance, model.levels_) for level in levels],
        "chosen": chosen,
        "now": said[chosen],
        "say": said,
        "model": about_model(model),
        "unchanged": unchanged(model),
        "baseline": None if other is None else text(baseline_name, 80),
        "sizes": sizes,
        "figures": drawn,
        "of_labels": labels_now(texts, labels, chosen),
        "short": [] if texts is None else texts["short"][chosen],
        "named": _NAMED,
        "remedy": REMEDY,
        "pairs": pairs_now(drawn["together"], labels, n, chosen),
        "compared": comparison,
        "summary": in_short(comparison),
        "columns": cells.columns,
        "columns_of": cells.of,
        "numeric": cells.numeric,
        "listed": len(shown),
        "rows": [row(r) for r in range(min(_PAGE, len(shown)))],
        "examples": [row(r) for r in range(len(shown), len(at))],
        "page": _PAGE,
        "about": told(page.about or {}),
        "versions": versions(),
    }
    html = _render(facts, _embedded(facts, rows, cells, codes, at, texts))
    with written_whole(path) as file:
        file.write(html.encode())
    return path


def _check(model: ConformalPredictor, X: Any, baseline: Any) -> None:
    """What can be said before anything is computed."""
    for name, one in (("model", model), ("baseline", baseline)):
        if one is None and name == "baseline":
            continue
        if not isinstance(one, ConformalPredictor):
            raise TypeError(f"{name} must be a SCPOClassifier or a ConformalClassifier; got {type(one).__name__}")
        check_is_fitted(one, "fitted_")
    if baseline is not None and not np.array_equal(model.classes_, baseline.classes_):
        raise ValueError("baseline must have the classes of the model: fit both on the same labels")
    if lies_elsewhere(X):
        raise ValueError("X is a Dask collection; a report is of rows in memory: give X.compute(), or a sample of it")
    check_consistent_length(X)


def _groups_for(model: ConformalPredictor, groups: Any) -> Any:
    return groups if model.fitted_.by_group else None


# ---- the file -------------------------------------------------------------------------------------------------------


def _embedded(
    facts: dict[str, Any],
    rows: Listed,
    cells: Cells,
    codes: np.ndarray | None,
    at: np.ndarray,
    texts: LabelTexts | None,
) -> str:
    """What the script of the page reads: JSON in which no character could end the element that it stands in."""
    patterns, width, coded = rows.encoded()
    figures = facts["figures"]
    data = {
        "start": facts["chosen"],
        "say": facts["say"],
        "labels": facts["labels"],
        "twins": facts["twins"],
        "sizes": facts["sizes"]["stops"],
        "marks": {
            name: {"x": figures[name]["x"], "y": [point["y"] for point in figures[name]["lines"][0]["points"]]}
            for name in ("coverage", "size")
            if name in figures
        },
        "n": facts["n"],
        "ofLabels": texts,
        "labelStops": None if figures["by_label"] is None else figures["by_label"]["stops"],
        "named": _NAMED,
        "pairs": figures["together"]
        and {
            "step": figures["together"]["step"],
            "stops": list(figures["together"]["stops"].values()) if facts["pairs"]["follows"] else None,
        },
        "unseen": UNSEEN,
        "missing": MISSING,
        "plain": facts["plain"],
        "measure": rows.measure,
        "rank": rows.rank,
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
        "cells": cells.texts,
        "listed": facts["listed"],
        "page": _PAGE,
    }
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)  # and only ASCII
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _render(facts: dict[str, Any], data: str) -> str:
    with needed_for("a report", "cli"):
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    folder = files("tightset.report") / "page"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    pages = Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = read("page.css"), read("figures.js") + read("page.js")
    pages.filters["parts"] = lambda text: text.split("`")  # words, code, words, ...
    pages.filters["breaks"] = lambda text: Markup("<wbr>").join(breaks(text))
    pages.filters["words"] = words
    pages.filters["halves"] = partial(halves, alike=set(facts["twins"]))
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
