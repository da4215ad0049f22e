"""Commands that judge a model on labelled rows: `evaluate` and `report`."""

from __future__ import annotations

import shlex
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightset.cli.about import BASELINE, DATA_HASH
from tightset.cli.groups import by_group, show_groups
from tightset.cli.options import (
    AsJson,
    Confidence,
    Data,
    Decimal,
    Delimiter,
    DropUnlabelled,
    Encoding,
    Lenient,
    Model,
    Thousands,
    check_out,
    digest,
    model_of,
    table_of,
    without_nan,
)
from tightset.cli.shares import share
from tightset.cli.show import ONE_SPLIT, reading, say, say_json, show, show_comparison

if TYPE_CHECKING:
    from tightset.estimators.base import ConformalPredictor
    from tightset.tables.predictor import TablePredictor

__all__ = ["using_app"]

using_app = typer.Typer()


@using_app.command()
def evaluate(
    model: Model,
    data: Data,
    confidence: Confidence = None,
    drop_unlabelled: DropUnlabelled = False,
    by_label: Annotated[bool, typer.Option("--by-label", help="Also show the coverage of each label.")] = False,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    as_json: AsJson = False,
) -> None:
    """Measure coverage and size on labelled rows that the model has not seen, beside the baseline.

    Example: tightset evaluate iris.tightset test.csv
    """
    from tightset.conformal import metrics
    from tightset.conformal.shortfall import reason
    from tightset.estimators.comparing import compare, verdict
    from tightset.report.words import band
    from tightset.search.verdict import Found

    loaded, levels = model_of(model, confidence)
    table = table_of(data, (delimiter, encoding, decimal, thousands), model=loaded)
    X, y, frame = _rows(loaded, table, lenient=lenient, drop_unlabelled=drop_unlabelled)
    y = loaded.labels(frame) if y is None else y  # says that there are none
    groups = loaded.groups(frame)
    rows = loaded.predictor.evaluate(X, y, confidence=levels, groups=groups)
    names, short = loaded.classes_.tolist(), _short(loaded.predictor, rows, y)
    if as_json:
        told: dict[str, Any] = {"predictor": rows}
        if loaded.baseline is not None:
            told["baseline"] = loaded.baseline.evaluate(X, y, confidence=levels, groups=groups)
            short += _short(loaded.baseline, told["baseline"], y)
        for row, one in zip(chain.from_iterable(told.values()), short, strict=True):
            row["short_labels"] = one.as_dicts(names)
        if groups is not None:
            told["groups"] = by_group(loaded.predictor, X, y, groups, levels)
        told["criteria"] = metrics.CRITERIA
        say_json(without_nan(told))
        return
    priced, ordered = "mean_cost" in rows[0], "mean_width" in rows[0]
    cells = [
        (
            f"{row['confidence']:g}",
            f"{row['coverage']:.3f}",
            f"{row['mean_width' if ordered else 'mean_size']:.3f}",
            *([f"{row['mean_cost']:.3f}"] if priced else []),
            *([f"{row['missed_by_more']:.1%}"] if ordered else []),
            f"{row['singleton']:.1%}",
            f"{row['empty']:.1%}",
            f"{len(one.labels)} of {one.tested}" if one.tested else "too few rows",
        )
        for row, one in zip(rows, short, strict=True)
    ]
    columns: tuple[str, ...] = ("level", "coverage", "mean width" if ordered else "mean size")
    columns += (*(["mean cost"] if priced else []), *(["missed by 2+"] if ordered else []))
    columns += ("one label", "empty", "labels that fall short")
    show(f"{len(y):,} rows, {len(names)} labels", columns, cells)
    for row, one in zip(rows, short, strict=True):
        for line in one.told(row["confidence"], names, rest="" if by_label else ": --by-label shows all"):
            say(line)
    if loaded.predictor.fitted_.assurance is not None:
        ends = [band(loaded.predictor, row["confidence"], row["n"]) for row in rows]
        said = ", ".join(
            f"{e[0]:.3f} to {e[1]:.3f} at {row['confidence']:g}" for e, row in zip(ends, rows, strict=True)
        )
        sure = float(loaded.predictor.fitted_.assurance)
        say(
            f"With assurance {sure:g}, coverage of all future rows should lie above the level; that of the {len(y):,} "
            f"rows here also varies by chance: 19 times in 20, {said}."
        )
    failing = [row for row, one in zip(rows, short, strict=True) if one.labels]
    if failing:
        low = any(row["coverage"] < band(loaded.predictor, row["confidence"], row["n"])[0] for row in failing)
        say(reason(by_label=bool(loaded.predictor.label_conditional), low_on_average=low))
    if by_label:
        in_order = list(dict.fromkeys([*loaded.about.get("labels", ()), *map(str, names)]))
        marks = [{at.label for at in one.labels} for one in short]
        of_labels = [
            (
                str(label),
                *(_share(row[f"coverage_of_label_{label}"], c in some) for row, some in zip(rows, marks, strict=True)),
                f"{int((y == label).sum()):,}",
            )
            for c, label in sorted(enumerate(names), key=lambda one: in_order.index(str(one[1])))
        ]
        columns = ("label", *(f"{level:g}" for level in levels), "rows")
        show("Coverage of each label (* below the level by more than chance)", columns, of_labels, left=[0])
    if groups is not None:
        show_groups(by_group(loaded.predictor, X, y, groups, levels), loaded.group, levels)
    if loaded.baseline is not None and confidence is None:
        compared = compare(loaded.baseline, loaded.predictor, X, y, groups=groups)
        plain = loaded.about.get(BASELINE, "the baseline")
        show_comparison(f"Compared with thresholded probabilities of {plain}, on the same rows", "baseline", compared)
        say(f"{verdict(compared)}\n{ONE_SPLIT}: see tightset compare.")
        for level, found in zip(loaded.levels_, loaded.predictor.folds_[0].record, strict=False):
            if isinstance(found, Found) and not found.verdict.accepted:
                say(f"At {level:g} training found no clear gain: there SCPO is {found.verdict.fallback}, unchanged.")


@using_app.command()
def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML file to write.")] = Path("report.html"),
    confidence: Annotated[
        list[float] | None,
        typer.Option(
            parser=share, metavar="LEVEL", help="The confidence level shown when the page opens.", show_default=False
        ),
    ] = None,
    drop_unlabelled: DropUnlabelled = False,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The title of the page.", show_default=False)
    ] = None,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
) -> None:
    """Write a page that a colleague without Python can open: validity, sizes, sets of rows, the baseline beside it.

    Example: tightset report iris.tightset test.csv --out report.html
    """
    from tightset import __version__
    from tightset.report import ReportPage, write_report

    loaded, levels = model_of(model, confidence)
    check_out(out, data, str(model))
    table = table_of(data, (delimiter, encoding, decimal, thousands), model=loaded)
    X, y, frame = _rows(loaded, table, lenient=lenient, drop_unlabelled=drop_unlabelled)
    options = {
        "--out": str(out),
        "--title": title,
        "--confidence": confidence and confidence[0],
        "--delimiter": delimiter,
        "--encoding": encoding,
        "--decimal": decimal,
        "--thousands": thousands,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    words += ["--lenient"] * lenient + ["--drop-unlabelled"] * drop_unlabelled
    command = shlex.join(["tightset", "report", str(model), data, *words])
    page = ReportPage(
        confidence=levels[0],
        frame=frame.drop(columns=loaded.target, errors="ignore"),  # labels have a column of their own
        title=title or f"{loaded.target}: prediction sets for {len(X):,} rows",
        about={
            "command": command,
            "rows": Path(table.name).name,
            "model": model.name,
            **{f"model: {name}": value for name, value in loaded.about.items()},
            "columns left out": ", ".join(loaded.encoding.left_out) or "none",
            "tightset": __version__,
        },
    )
    name = f"{loaded.about.get(BASELINE, 'the baseline')}, thresholded"
    how = {"groups": loaded.groups(frame), "baseline": loaded.baseline, "baseline_name": name}
    write_report(out, loaded.predictor, X, y, page=page, **how)
    say(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser")


def _short(predictor: ConformalPredictor, rows: Any, y: Any) -> Any:
    """The labels that fall short at each level, by what `evaluate` gave."""
    from tightset.conformal.shortfall import of_evaluated

    return of_evaluated(rows, y, predictor.classes_.tolist(), predictor.fitted_.rows_of_labels())


def _rows(model: TablePredictor, table: Any, *, lenient: bool, drop_unlabelled: bool = False) -> tuple[Any, Any, Any]:
    """Encoded rows, their labels (None if there is no column of them), and the rows as they were."""
    import numpy as np
    import pandas as pd

    from tightset.exceptions import TableError

    X, y, frames = [], [], []
    if digest(table.where) == model.about.get(DATA_HASH, "unknown"):
        say("warning: the model was trained on these rows, so figures are too good; use rows it has not seen", err=True)
    with reading(f"reading {Path(table.name).name}", table.n_bytes) as progress:
        how = {"text": model.text, "numbers": model.encoding.needed, "label": model.target}
        for frame in table.chunks(**how, progress=progress):
            if drop_unlabelled and model.target in frame.columns:
                frame = frame[frame[model.target].notna()]  # noqa: PLW2901
            X.append(model.encode(frame, strict=not lenient))
            frames.append(frame)
            if model.target in frame.columns:
                y.append(model.labels(frame))
    if not sum(map(len, X)):
        raise TableError(f"{table.name} has a header but no rows")
    return np.concatenate(X), np.concatenate(y) if y else None, pd.concat(frames)


def _share(coverage: float, short: bool) -> str:
    return "no rows" if coverage != coverage else f"{coverage:.3f}{'*' if short else ' '}"
