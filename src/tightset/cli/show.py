"""Output of the commands: text, tables, and progress bars on a terminal.

All text for people goes through `say` and `show`, which escape control characters from tables and model files.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from tightset.compute.progress import Progress

if TYPE_CHECKING:
    from tightset.estimators.comparing import Comparison

__all__ = [
    "ONE_SPLIT",
    "counted",
    "reader",
    "reading",
    "say",
    "say_json",
    "show",
    "show_comparison",
    "terminal_width",
    "visible",
    "working",
]

# control characters, those that turn the direction of writing, line separators, and halves of characters
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

ONE_SPLIT = "The interval covers chance in the test rows only; sizes also depend on which rows train and calibrate"


def visible(text: Any) -> str:
    r"""A text on one line, with characters that a terminal would obey written as Python writes them.

    >>> visible("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def say(text: str, *, err: bool = False) -> None:
    """Print lines for people: on a terminal, lines end between words."""
    stream = sys.stderr if err else sys.stdout
    text = _lines(text)
    if stream is not None and stream.isatty():
        text = "\n".join(_wrapped(line, terminal_width()) for line in text.split("\n"))
    _echo(text, err=err)


def say_json(value: Any) -> None:
    """Print JSON for machines, on one line."""
    _echo(json.dumps(value))  # which has no control characters


def _echo(text: str, *, err: bool = False) -> None:
    typer.echo(text, file=sys.stderr if err else None, err=err)  # as it is now: a bar takes its place


def _wrapped(line: str, width: int, more: str = "") -> str:
    """A line as several that end between words, those after the first with ``more`` of an indent."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    how: Any = {"break_long_words": False, "break_on_hyphens": False, "drop_whitespace": True}
    return textwrap.fill(line.lstrip(" "), width, initial_indent=indent, subsequent_indent=indent + more, **how)


def _lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def counted(rows_of: Mapping[str, int], most: int) -> str:
    """Labels with their rows, the commonest first: ``oak (606), ash (586)``."""
    shown = [f"{visible(label)} ({n:,})" for label, n in sorted(rows_of.items(), key=lambda pair: -pair[1])]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most:,} more" if len(shown) > most else "")


def show(
    title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = ()
) -> None:
    """Print a table of numbers; the columns at the places ``left`` are texts.

    Texts are broken between words. Where the terminal is too narrow for their words, there is a paragraph for each row.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    cells = [[visible(cell) for cell in row] for row in rows]
    for at, name in enumerate(columns):
        text = at in left
        whole = [*_lines(name).split("\n"), *(row[at] for row in cells)]
        longest = max(map(cell_len, [word for one in whole for word in one.split()] if text else whole), default=0)
        # A terminal that is too narrow for figures breaks lines: one that lost digits would be wrong.
        how: Any = {"justify": "left" if text else "right", "min_width": longest}
        table.add_column(Text(_lines(name)), no_wrap=not text, overflow="fold", **how)
    for row in cells:
        table.add_row(*map(Text, row))  # what comes from data is no markup
    console = Console()
    needed = sum(one.min_width or 0 for one in table.columns) + 2 * len(columns)
    if title:
        console.print(Text(visible(title), style="bold"))
    if needed > console.width:
        _show_apart(columns, cells, console.width)
        return
    console.width = max(console.width, needed)
    console.print(table)


def _show_apart(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """Each row as its first cell, and under it the others with their names."""
    names, above = [], ""
    for name in columns:  # a name may stand above two
        top, _, under = name.partition("\n")
        above = top or above
        names.append(f"{above} {under}" if under else top)
    for first, *rest in rows:
        named = [f"{visible(name)}: {cell}" for name, cell in zip(names[1:], rest, strict=True) if name and cell]
        _echo("\n".join([_wrapped(first, width), _wrapped(f"  {'; '.join(named)}", width)]))
    _echo("")


def show_comparison(title: str, name: str, rows: Sequence[Comparison]) -> None:
    """Baseline beside SCPO, a level a line; with a column of what is made small, if that is not the size."""
    from tightset.conformal.intervals import percent

    change, by = "change at\nequal cov.", rows[0].by
    keys = [by] if by in ("mean_size", "mean_width") else ["mean_size", by]  # sizes of intervals are their widths
    own = [f"\n{key.removeprefix('mean_')}" for key in keys]
    columns = ("level", f"{name}\ncoverage", *own, "SCPO\ncoverage", *own, change, "95% interval", "p")
    show(
        title,
        columns,
        [
            (
                f"{row.confidence:g}",
                *(f"{one[key]:.3f}" for one in (row.baseline, row.scpo) for key in ("coverage", *keys)),
                "-" if row.change != row.change else percent(row.change, signed=True),
                "-"
                if row.change != row.change
                else f"{percent(row.low, signed=True)} to {percent(row.high, signed=True)}",
                "-" if row.change != row.change else "< 0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}",
            )
            for row in rows
        ],
    )


def working() -> Progress:
    """The one bar of a command, on a terminal; its parts are named and divided before the work begins."""
    return Progress(show=sys.stderr.isatty() or "auto")


@contextmanager
def reading(title: str, n_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes that were read of a file, or of a stream of unknown length; for a command that only reads."""
    with working() as whole:
        yield reader(whole, title, n_bytes)


def reader(part: Progress, title: str, n_bytes: int | None, passes: int = 1) -> Callable[[int], None]:
    """What is told the bytes that were read up to now, and advances a part of the work; there may be several passes."""
    last = 0
    if n_bytes:
        part.stage(visible(title), n_bytes * passes)
    else:
        part.endless(visible(title))

    def progress(read: int) -> None:
        nonlocal last
        part.advance(read - last if read >= last else read)  # fewer: from the beginning again
        last = read

    return progress
