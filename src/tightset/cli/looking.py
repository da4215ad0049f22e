"""Commands that look into a model: `explain` and `info`."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tightset.cli.about import uses_of_rows
from tightset.cli.options import (
    AsJson,
    Data,
    Decimal,
    Delimiter,
    Encoding,
    Lenient,
    Model,
    Thousands,
    check_model,
    model_of,
    table_of,
)
from tightset.cli.shares import share
from tightset.cli.show import counted, say, say_json, show, terminal_width, visible

__all__ = ["looking_app"]

looking_app = typer.Typer()

_MOST_SHOWN = 20
_MOST_COLUMNS = 8
_BAR = 30  # letters for a p-value of 1, if there is room
_SHOWN_APART = ("labels", "rows", "trained", "calibrated", "tested", "unused", "mean size by label")


@looking_app.command()
def explain(
    model: Model,
    data: Data,
    row: Annotated[
        int,
        typer.Option(min=1, metavar="NUMBER", help="The row, counted from 1 without the header.", show_default=False),
    ],
    confidence: Annotated[
        float | None,
        typer.Option(parser=share, metavar="LEVEL", help="Confidence level; by default the model's first."),
    ] = None,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    as_json: AsJson = False,
) -> None:
    """Show why a row has its set: the p-values of all labels, and which columns move them.

    Example: tightset explain iris.tightset new.csv --row 3
    """
    from tightset.tables.explaining import explain as explained

    loaded, (level, *_) = model_of(model, None if confidence is None else [confidence])
    table = table_of(data, (delimiter, encoding, decimal, thousands), model=loaded)
    frame = _row(table, row, text=loaded.text, numbers=loaded.encoding.needed)
    loaded.encode(frame, strict=not lenient)
    found = explained(loaded, frame, level)
    names = loaded.classes_.astype(str)
    if as_json:
        told = {
            "row": row,
            "confidence": found.confidence,
            "p": {names[at]: float(found.p[at]) for at in found.order},
            "set": [str(names[at]) for at in found.order if found.kept[at]],
            "calibration_rows": dict(zip(names.tolist(), found.calibration_rows.tolist(), strict=True)),
            "columns": [
                {
                    "column": one.column,
                    "value": one.value,
                    "typical": one.typical,
                    "p": {str(name): float(p) for name, p in zip(names, one.p, strict=True)},
                    "set": names[one.kept].tolist(),
                }
                for one in found.influences
            ],
        }
        say_json(told)
        return
    by_label = bool(loaded.predictor.label_conditional)
    if not found.kept.any():
        say(f"The set of row {row} is empty at {100 * found.confidence:g}%: no label fits well enough.\n")
    groups = loaded.groups(frame)
    _show_labels(found, names, row, by_label=by_label, group=None if groups is None else groups[0])
    best = found.best
    moving = [one for one in found.influences if one.differs]
    cells = [
        (
            one.column,
            one.value,
            one.typical,
            f"{one.p[best]:.4f}",
            found.shown(names, one.kept, one.p),
        )
        for one in moving[:_MOST_COLUMNS]
    ]
    columns = ("column", "value", "typical", f"p of {_short(names[best])}", "set")
    title = "If a column had its typical value (columns that change p-values by the largest factors come first)"
    if moving:
        show(title, columns, cells, left=[0, 1, 2, 4])
    rest = list(_left_out(len(moving), len(found.influences) - len(moving)))
    if rest:
        say("\n".join(rest) + "\n")
    say(
        f"A p-value is the share of calibration rows{' of that label' if by_label else ''} that fit their own label no "
        "better than this row fits this one; it is not the probability of the label."
    )


def _left_out(moving: int, typical: int) -> Iterator[str]:
    """What the table of columns does not show."""
    if moving > _MOST_COLUMNS:
        more = moving - _MOST_COLUMNS
        yield f"and {more:,} more column{'s' if more > 1 else ''}; --json lists all."
    if typical and not moving:
        yield "Every column already has its typical value, so none is listed."
    elif typical:
        columns = f"{typical:,} columns that already have" if typical > 1 else "1 column that already has"
        yield f"Not listed: {columns} the typical value."


def _short(name: str, most: int = 24) -> str:
    return name if len(name) <= most else name[: most - 3] + "..."


def _show_labels(found: Any, names: Any, row: int, *, by_label: bool, group: str | None) -> None:
    """The p-value of each label; what a label without calibration rows has is none."""
    from tightset.conformal.ranks import calibration_rows_needed

    rows, shown_labels = found.calibration_rows, found.order[:_MOST_SHOWN]
    taken = len(" p-value  in the set  in sets of this measure   ") + (len("rows") + 4) * by_label
    room = terminal_width() - taken - max(5, *(len(visible(names[at])) for at in shown_labels)) - 2
    wide = min(_BAR, room / max(float(found.p.max()), 0.05))
    cells = [
        (
            names[at],
            f"{found.p[at]:.4f}" if rows[at] else "unknown",
            *([f"{rows[at]:,}"] if by_label else []),
            "in the set" if found.kept[at] else "",
            f"above {found.joins_above(at):.2%}" if rows[at] else "always",
            "#" * round(wide * float(found.p[at])) if rows[at] and room > 4 else "",
        )
        for at in shown_labels
    ]
    beside = "the calibration rows of that label" if by_label else f"{rows.max():,} calibration rows"
    beside += "" if group is None else f" of group {visible(group)}"
    of_label = ("rows",) if by_label else ()
    shown = ("label", "p-value", *of_label, f"at {100 * found.confidence:g}%", "in sets of this measure", "")
    show(f"Row {row}: how well each label fits, compared with {beside}", shown, cells, left=[0, len(shown) - 1])
    if len(names) > _MOST_SHOWN:
        say(f"and {len(names) - _MOST_SHOWN:,} more labels; --json lists all.\n")
    needed = calibration_rows_needed(round(found.confidence, 9), found.assurance)
    few = {str(name): int(n) for name, n in zip(names, rows, strict=True) if 0 < n < needed}
    unknown = ", ".join(visible(name) for name, n in zip(names, rows, strict=True) if not n)
    if unknown:
        what = "the label" if by_label else "this group, so for each label"
        say(f"In every set, because no calibration row has {what}: {unknown}.\n")
    if few and by_label:
        say(
            f"In every set at {100 * found.confidence:g}%, because it takes {needed} calibration rows of a label to "
            f"leave it out: {counted(few, _MOST_SHOWN)}.\n"
        )


def _row(table: Any, row: int, **how: Any) -> Any:
    from tightset.exceptions import TableError

    seen = 0
    for frame in table.chunks(**how):
        if row - 1 in frame.index:
            return frame.loc[[row - 1]]
        seen += len(frame)
    raise TableError(f"there is no row {row}; {table.name} has {seen}")


@looking_app.command()
def info(model: Model, as_json: AsJson = False) -> None:
    """Show what a model file says of itself: labels, columns, levels, calibration, where it comes from.

    Example: tightset info iris.tightset
    """
    from tightset.storage.file import open_model

    check_model(model)
    said = {key: value for key, value in open_model(model).about.items() if key not in ("root", "nodes")}
    if as_json:
        say_json(said)
        return
    lines = list(_lines_of(said))
    width = max(len(name) for name, _ in lines) + 2
    for name, value in lines:
        # a value must not look like a line of its own
        told, room = visible(f"{name + ':' if name else '':{width}}{value}"), terminal_width()
        if sys.stdout.isatty() and room > 2 * width:
            told = textwrap.fill(told, room - 1, subsequent_indent=" " * width, break_on_hyphens=False)
        say(told)


def _lines_of(said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and what is said under them; a line without a name goes on with the one before."""
    about = said["about"]
    yield "kind", f"{said['kind']}, file format {said['format']}"
    yield "written", f"{said['written']} by tightset {said['tightset']}"
    yield "with", ", ".join(f"{name} {version}" for name, version in said["versions"].items())
    if "target" in said:
        yield "target", visible(said["target"])
    names = [visible(label) for label in said["classes"]]
    rows = about.get("labels")
    yield "labels", counted(rows, 50) if isinstance(rows, dict) else ", ".join(names)
    if "trained" in about:
        yield "rows", f"{about['rows']:,}: {uses_of_rows(about)}"
    if "assurance" in said:
        yield "assurance", f"{said['assurance']:g}, that coverage given the calibration rows is at least the level"
    yield from _under("levels", _calibrations(said["calibration"], names))
    yield "", "(a label is in a set if it fits at least as well as so many of these rows: the rank)"
    sizes = about.get("mean size by label", {})
    yield from _under("mean size", [f"{level}: {size:.3g} labels per set" for level, size in sizes.items()])
    columns = said["columns"]
    if isinstance(columns, list):
        kinds = said["dtypes"] if isinstance(said["dtypes"], list) else [said["dtypes"]] * len(columns)
        columns = ", ".join(f"{visible(name)} ({kind})" for name, kind in zip(columns, kinds, strict=True))
    yield "columns", str(columns)
    yield from _under("left out", [f"{visible(name)}: {why}" for name, why in said.get("left_out", {}).items()])
    for name, value in about.items():
        if value is not None and not (name in _SHOWN_APART and "trained" in about):
            yield visible(name), visible(value if isinstance(value, str) else json.dumps(value))
    yield "sha256", said["sha256"]


def _calibrations(ranks: list[dict[str, Any]], labels: list[str]) -> list[str]:
    """A line for each level, or for each label and group of it where they are calibrated apart."""
    lines = []
    for one in ranks:
        where = [f"label {labels[one['label']]}"] if "label" in one else []
        where += [f"group {visible(one['group'])}"] if "group" in one else []
        apart = f", {', '.join(where)}" if where else ""
        lines.append(f"{one['confidence']:g}{apart}: {one['rows']:,} calibration rows, rank {one['rank']:,}")
    return lines


def _under(name: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(lines[:_MOST_SHOWN]):
        yield name if at == 0 else "", line
    if len(lines) > _MOST_SHOWN:
        yield "", f"and {len(lines) - _MOST_SHOWN:,} more; --json lists all"
