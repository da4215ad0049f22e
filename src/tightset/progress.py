"""A progress bar on standard error, only where somebody is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["training_bar"]


@contextmanager
def training_bar(title: str, steps: int, *, show: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield the ``callback(step, candidates still running)`` of `minimise`, or None where nothing is shown."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("step {task.completed}/{task.total}, {task.fields[running]} candidates running"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=steps, running="all")

        def callback(step: int, running: int) -> None:
            progress.update(task, completed=step, running=running)

        yield callback
