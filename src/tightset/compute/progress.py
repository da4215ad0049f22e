"""Progress of long work: one bar on standard error, with the stage it is at and the time left.

Without a terminal, where a bar would be noise, work that takes over a minute says once about how long it will take.

Work is divided before it begins (`Progress.split`), so that the bar never goes back: a part has its share of the bar,
however many steps it turns out to have.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from tightset.exceptions import warn

__all__ = ["Progress", "current"]

_PATIENCE = 5.0  # seconds before a bar appears that was not asked for
_SETTLED = 2.0  # seconds of a stage after which its speed says something
_TOLD = 0.01  # and so much of the bar
_LONG = 60.0  # seconds; what takes longer says so where there is no bar
_UNKNOWN = 30  # steps after which about two thirds of an unknown number are done
_NARROW = 80  # columns of a terminal; a narrower one has a shorter bar

_watched: ContextVar[Progress | None] = ContextVar("watched", default=None)


class Progress:
    """A part of some work, as a part of the bar; tasks in any thread may `advance`.

    ``show`` is True, False, or ``"auto"``: a bar appears after a few seconds, on a terminal; without one, a line says
    how long it takes if that is over a minute, unless ``show`` is False. Inside `watching`, a
    progress that is entered becomes a part of the one that is watched, and has no bar of its own.

    >>> whole = Progress()
    >>> read, train = whole.split(1, 3)
    >>> train.stage("training", steps=2)
    >>> train.advance()
    >>> whole.share
    0.625
    """

    def __init__(self, *, show: Any = False) -> None:
        self._bar, self._low, self._high, self._before = _Bar(show), 0.0, 1.0, ""
        self._total, self._done = 0.0, 0.0
        self._owns = True

    def __reduce__(self) -> tuple[type[Progress], tuple[()]]:
        return Progress, ()  # nobody watches what was sent elsewhere

    def __enter__(self) -> Self:
        above = _watched.get()
        self._owns = above is None
        if above is not None:
            self._bar, self._low, self._high, self._before = above._bar, above._low, above._high, above._before
        else:
            self._bar.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._owns:
            self._bar.end()

    @property
    def share(self) -> float:
        """How much of the whole work is done, from 0 to 1."""
        return self._bar.share

    def split(self, *weights: float, before: str = "") -> list[Progress]:
        """Parts that are worked on one after the other, and about how long they take compared with each other.

        The stages of all of them are named with ``before`` in front.
        """
        parts, low = [], self._low
        for weight in weights:
            high = low + (self._high - self._low) * weight / sum(weights)
            parts.append(self._part(low, high, self._before + before))
            low = high
        return parts

    def _part(self, low: float, high: float, before: str) -> Progress:
        part = Progress()
        part._bar, part._low, part._high, part._before = self._bar, low, high, before
        return part

    def stage(self, name: str, steps: float | None = None) -> None:
        """Name what is being done from now on, and how many steps it has if that is known."""
        self._bar.stage(self._low, self._before + name)
        if steps is not None:
            self.expect(steps)

    def expect(self, steps: float) -> None:
        """There are so many steps, each as long as the others."""
        self._total, self._done = steps, 0
        self._bar.move(self._low)

    def advance(self, steps: float = 1) -> None:
        """One step is done, or several."""
        with self._bar.lock:
            self._done += steps
            share = self._done / self._total if self._total else 0.0
        self._bar.move(self._low + (self._high - self._low) * min(share, 1.0))

    def approach(self) -> Callable[[], None]:
        """A function that advances by one of an unknown number of steps: the more, the less is expected to be left."""
        self.expect(1)
        return lambda: self.advance((1 - self._done) / _UNKNOWN)

    def endless(self, name: str) -> None:
        """Name what is being done if nobody knows how much of it there is: the bar then only says that it goes on."""
        self._bar.total = None
        self._bar.stage(self._low, self._before + name)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A context in which whatever else has a progress advances this one."""
        token = _watched.set(self)
        try:
            yield
        finally:
            _watched.reset(token)


def current() -> Progress:
    """The progress that is watched, or one that nobody sees."""
    return _watched.get() or Progress()


class _Bar:
    """The bar itself: opened when something moves, and it is time to."""

    def __init__(self, show: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self.share, self._name = 0.0, ""
        self.total: float | None = 1.0
        self._show, self._clock = show, clock
        self._begun = self._stage_begun = clock()
        self._stage_low = 0.0
        self._ends: float | None = None
        self._told = not show  # how long it will take
        self._bar: Any = None
        self._task: Any = None

    def begin(self) -> None:
        self._begun = self._stage_begun = self._clock()

    def end(self) -> None:
        self._told = True
        if self._bar is not None:
            self._bar.stop()

    def stage(self, low: float, name: str) -> None:
        with self.lock:
            self._name = name
            self._stage_begun, self._stage_low = self._clock(), max(low, self.share)
            self._ends = None  # another kind of work, whose speed nobody knows yet
            self.move(low)

    def move(self, share: float) -> None:
        """To a share of the work; never back, since parts may be done out of order."""
        with self.lock:
            self.share = max(self.share, share)
            self._estimate()
            if self._bar is None and self._wanted():
                self._open()
            if self._bar is not None:
                self._bar.update(self._task, completed=self.share, total=self.total, description=self._name)

    def left(self) -> str:
        """How much longer it takes, once that can be told: ``~40 s left``."""
        with self.lock:
            if self._ends is None:
                return ""
            if self._ends < self._clock():  # the step that is being done takes longer than those before
                self._estimate()
            seconds = max(self._ends - self._clock(), 1.0)
        return f"~{_in_words(seconds)} left"

    def _estimate(self) -> None:
        """The rest goes on as the stage has up to now."""
        took, done = self._clock() - self._stage_begun, self.share - self._stage_low
        if took > _SETTLED and done > _TOLD:
            self._ends = self._clock() + took / done * (1 - self.share)
            left = self._ends - self._clock()
            if not self._told and self._clock() + left - self._begun > _LONG and not self._can_open():
                self._told = True
                sys.stderr.write(f"tightset: {self._name}; about {_in_words(left)} left\n")

    def _can_open(self) -> bool:
        return sys.stderr.isatty() and find_spec("rich") is not None

    def _wanted(self) -> bool:
        if self._show == "auto":
            return sys.stderr.isatty() and self._clock() - self._begun > _PATIENCE
        return bool(self._show)

    def _open(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, ProgressColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column
            from rich.text import Text
        except ModuleNotFoundError:
            if self._show != "auto":
                warn('a progress bar needs rich, which is not installed: pip install "tightset[cli]"')
            self._show = False
            return
        bar = self

        class Share(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text("" if task.total is None else f"{int(task.percentage + 1e-6):>3}%")

        class Left(ProgressColumn):
            def render(self, task: Any) -> Text:  # noqa: ARG002 - what rich calls
                return Text(bar.left())

        console = Console(file=sys.stderr)
        if not console.is_terminal:
            self._show = False  # in a file a bar is noise
            return
        width = 5 if console.width < _NARROW else 24
        # Words are in the terminal's own colour, and the bar in one that can be seen on black and on white.
        columns = (
            BarColumn(width, style="dim", complete_style="magenta", finished_style="magenta", pulse_style="magenta"),
            Share(),
            Left(),
            TextColumn(
                "{task.description}", style="none", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
        )
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = self._bar.add_task(self._name, total=self.total)
        self._bar.start()


def _in_words(seconds: float) -> str:
    """As exactly as a guess may be told."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
