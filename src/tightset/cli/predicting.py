"""The command that uses a model: `predict`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import closing, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightset.cli.options import (
    Abstain,
    CertainBy,
    Confidence,
    Data,
    Decimal,
    Delimiter,
    Encoding,
    Lenient,
    Model,
    Thousands,
    check_out,
    model_of,
    table_of,
)
from tightset.cli.show import reading, say, show, visible

if TYPE_CHECKING:
    from tightset.tables.predictions import Line

__all__ = ["predicting_app"]

predicting_app = typer.Typer()


@predicting_app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write. Default: standard output.", show_default=False),
    ] = None,
    confidence: Confidence = None,
    abstain: Abstain = None,
    assurance: CertainBy = 0.95,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, jsonl, parquet or table. Default: by the name of the file; without one, a table on a "
            "terminal and csv elsewhere.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to copy to the output; may be repeated.", show_default=False),
    ] = None,
    formulas: Annotated[
        bool | None,
        typer.Option(
            "--formulas/--no-formulas",
            help="Leave texts that spreadsheets take for formulas (=, +, -, @) as they are, or put an apostrophe "
            "before them. Default: as they are, but not in a CSV file that --out names.",
            show_default=False,
        ),
    ] = None,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
) -> None:
    """Predict sets of labels, with their p-values, for the rows of a table; in bounded memory, however long it is.

    Example: tightset predict iris.tightset new.csv --out sets.csv --keep id
    """
    from tightset.estimators.ordering import order_of
    from tightset.storage.file import written_whole
    from tightset.tables.predictions import FORMATS, answers, first_of, predicted

    if out is None and sys.stdout is None:
        raise typer.BadParameter("standard output is closed; give a file to write to", param_hint="--out")
    loaded, levels = model_of(model, confidence)
    if out is not None:
        check_out(out, data, str(model))
    form = _form(form, out, tuple(FORMATS))
    table = table_of(data, (delimiter, encoding, decimal, thousands), model=loaded)
    with reading("predicting", table.n_bytes) as progress:

        def chunks() -> Iterator[Any]:
            numbers = {*loaded.encoding.needed} - {*loaded.encoding.text}
            as_they_are = [name for name in keep or [] if name not in numbers]  # identifiers may begin with zeros
            for frame in table.chunks(text=[*loaded.text, *as_they_are], numbers=numbers, progress=progress):
                _check_keep(keep or [], frame)
                if abstain is None:
                    yield predicted(loaded, frame, levels, keep or [], strict=not lenient)
                else:
                    level = levels if confidence and len(levels) > 1 else confidence and levels[0]
                    how = {"error": abstain, "assurance": assurance, "confidence": level}
                    yield answers(loaded, frame, keep or [], strict=not lenient, **how)

        if form == "table":
            lines, more = first_of(chunks(), 20)
        else:
            found = chunks()
            first = next(found, iter(()))  # what is wrong with the table is told before anything is written
            with written_whole(out) if out else nullcontext(sys.stdout.buffer) as file:
                labels = [str(label) for label in loaded.classes_]
                guard = out is not None if formulas is None else not formulas
                how = {"people": guard} if form == "csv" else {}
                with closing(FORMATS[form](file, keep or [], labels, **how)) as writer:
                    for lines_of_chunk in chain([first], found):
                        writer.write(lines_of_chunk)
    if form == "table":
        unknown = set(loaded.classes_[loaded.predictor.fitted_.rows_of_labels() == 0].astype(str).tolist())
        ordered = order_of(loaded.predictor) is not None and abstain is None
        names = ("row", *(keep or []), "level", "size", f"set (p-value{' of the best label' if ordered else ''})")
        cells = [
            (
                str(one.row),
                *("" if value is None else str(value) for value in one.kept),
                f"{one.confidence:g}",
                str(len(one.labels)),
                _interval(one) if ordered else _labels(one, unknown),
            )
            for one in lines
        ]
        show(None, names, cells, left=range(len(names)))
        if more:
            say("Only the first 20 sets are shown; use --out FILE or a pipe to get all.")
        if unknown:
            say(f"In every set, since no calibration row has the label: {', '.join(map(visible, sorted(unknown)))}.")
    elif out is not None:
        say(f"written: {out}", err=True)


def _labels(line: Line, unknown: Collection[str]) -> str:
    """The labels of a set with their p-values."""
    told = [
        f"{label} ({'unknown' if label in unknown else f'{p:.3g}'})"
        for label, p in zip(line.labels, line.p, strict=True)
    ]
    return ", ".join(told) or "(empty)"


def _interval(line: Line) -> str:
    """The ends of an interval, and its most conforming label: ``low to high (medium 0.8)``."""
    if not line.labels:
        return "(empty)"
    at = max(range(len(line.p)), key=line.p.__getitem__)
    if len(line.labels) == 1:
        return f"{line.labels[0]} ({line.p[0]:.3g})"
    return f"{line.labels[0]} to {line.labels[-1]} ({line.labels[at]} {line.p[at]:.3g})"


def _form(form: str | None, out: Path | None, known: tuple[str, ...]) -> str:
    if form is None:
        if out is None:
            return "table" if sys.stdout.isatty() else "csv"
        form = {"json": "jsonl", "ndjson": "jsonl", "pq": "parquet"}.get(out.suffix[1:], out.suffix[1:])
        if form not in known:
            raise typer.BadParameter(
                f"{out.name} does not end in .csv, .jsonl or .parquet: give --format", param_hint="--out"
            )
    if form not in (*known, "table"):
        raise typer.BadParameter(f"{form!r} is none of {', '.join(known)}, table", param_hint="--format")
    if form == "table" and out is not None:
        raise typer.BadParameter("table is for the terminal; give csv, jsonl or parquet", param_hint="--format")
    return form


def _check_keep(keep: list[str], frame: Any) -> None:
    from tightset.tables.target import meant

    for name in keep:
        if name not in frame.columns:
            raise typer.BadParameter(f"there is no column {name!r}{meant(name, frame.columns)}", param_hint="--keep")
