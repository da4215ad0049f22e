"""Output of the commands: text, tables, and progress bars on a terminal.

All text for people goes through `say` and `show`, which escape control characters from tables and model files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from tightset.estimators.comparing import Comparison

__all__ = ["ONE_SPLIT", "counted", "reading", "say", "show", "show_comparison", "visible"]

# control characters, those that turn the direction of writing, line separators, and halves of characters
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_FOLDED = 10  # letters on a line of a text that is folded, at least

ONE_SPLIT = "The interval covers chance in the test rows only; sizes also depend on which rows train and calibrate"


def visible(text: Any) -> str:
    r"""A text on one line, with characters that a terminal would obey written as Python writes them.

    >>> visible("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def say(text: str, *, err: bool = False) -> None:
    """Print lines for people; JSON stays what it is, having no such characters."""
    typer.echo(_lines(text), file=sys.stderr if err else None, err=err)  # as it is now: a bar takes its place


def _lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def counted(rows_of: Mapping[str, int], most: int) -> str:
    """Labels with their rows, the commonest first: ``oak (606), ash (586)``."""
    shown = [f"{visible(label)} ({n:,})" for label, n in sorted(rows_of.items(), key=lambda pair: -pair[1])]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most:,} more" if len(shown) > most else "")


def show(
    title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = ()
) -> None:
    """Print a table of numbers; the columns at the places ``left`` are texts."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    cells = [[visible(cell) for cell in row] for row in rows]
    for at, name in enumerate(columns):
        text = at in left
        longest = max(map(cell_len, [*_lines(name).split("\n"), *(row[at] for row in cells)]))
        # Texts may fold. A terminal that is too narrow for figures breaks lines: one that lost digits would be wrong.
        how: Any = {"justify": "left" if text else "right", "min_width": min(longest, _FOLDED) if text else longest}
        table.add_column(Text(_lines(name)), no_wrap=not text, overflow="fold", **how)
    for row in cells:
        table.add_row(*map(Text, row))  # what comes from data is no markup
    console = Console()
    console.width = max(console.width, sum(one.min_width or 0 for one in table.columns) + 2 * len(columns))
    if title:
        console.print(Text(visible(title), style="bold"))
    console.print(table)


def show_comparison(title: str, name: str, rows: Sequence[Comparison]) -> None:
    """Baseline beside SCPO, a level a line."""
    change = "change at\nequal cov."
    columns = ("level", f"{name}\ncoverage", "\nsize", "SCPO\ncoverage", "\nsize", change, "95 % interval", "p")
    show(
        title,
        columns,
        [
            (
                f"{row.confidence:g}",
                f"{row.baseline['coverage']:.3f}",
                f"{row.baseline['mean_size']:.3f}",
                f"{row.scpo['coverage']:.3f}",
                f"{row.scpo['mean_size']:.3f}",
                "-" if row.change != row.change else f"{row.change:+.1%}",
                "-" if row.change != row.change else f"{row.low:+.1%} to {row.high:+.1%}",
                "-" if row.change != row.change else "< 0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}",
            )
            for row in rows
        ],
    )


@contextmanager
def reading(title: str, n_bytes: int | None, passes: int = 1) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes that were read, on a terminal; a file may be read in several passes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(visible(title), total=n_bytes and n_bytes * passes)
        before = last = 0

        def progress(read: int) -> None:
            nonlocal before, last
            if read < last:  # from the beginning again
                before += last
            last = read
            done = before + read
            bar.update(task, completed=done)
            if n_bytes and done >= n_bytes * passes:
                bar.update(task, visible=False)  # what comes next has a bar of its own

        yield progress
