"""A progress bar on standard error, only on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from tightset.exceptions import warn

__all__ = ["Progress"]

_PATIENCE = 5.0  # seconds before a bar appears that was not asked for


class Progress:
    """A bar of work done out of work expected; tasks in any thread may `expect` and `advance`.

    ``show`` is True, False, or ``"auto"``: a bar appears after a few seconds, on a terminal.
    """

    def __init__(self, title: str = "", *, show: Any = False) -> None:
        self._title, self._show = title, show
        self._total = self._done = 0
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None

    def __reduce__(self) -> tuple[type[Progress], tuple[()]]:
        return Progress, ()  # nobody watches what was sent elsewhere

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, steps: int) -> None:
        """There are so many more steps."""
        with self._lock:
            self._total += steps

    def advance(self) -> None:
        """One step is done."""
        with self._lock:
            self._done += 1
            if self._bar is None and self._wanted():
                self._open()
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done, total=self._total)

    def _wanted(self) -> bool:
        if self._show == "auto":
            return sys.stderr.isatty() and time.monotonic() - self._begun > _PATIENCE
        return bool(self._show)

    def _open(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ModuleNotFoundError:
            if self._show != "auto":
                warn('a progress bar needs rich, which is not installed: pip install "tightset[cli]"')
            self._show = False
            return

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(),
        )
        console = Console(file=sys.stderr)
        if not console.is_terminal:
            self._show = False  # in a file a bar is noise
            return
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = self._bar.add_task(self._title, total=self._total)
        self._bar.start()
