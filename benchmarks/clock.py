"""How the benchmarks measure: sides that take turns, ratios with their spread, slopes, memory.

Machines are noisy, so no figure is a time alone. The sides of a ratio take turns in one process, and the ratio is
formed within each round; reported are the median over rounds and, as the spread, the distance between the quartiles.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np

HERE = Path(__file__).parent
Side = Callable[[], object]
Times = dict[Any, list[float]]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function gives, and the seconds that it takes."""
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def seconds(side: Side) -> float:
    return timed(side)[1]


PAUSE = 0.06  # seconds: threads of a BLAS spin for some time after their last work, and would slow the next side


def take_turns(sides: Mapping[Any, Side], repeats: int, *, warm: bool = True) -> Times:
    """Seconds of every side, in ``repeats`` rounds in which each has its turn; a round before them is not counted."""
    if warm:
        for side in sides.values():
            side()
    times: Times = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            time.sleep(PAUSE)
            times[name].append(seconds(side))
    return times


def quotients(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def slopes(times: Times) -> list[float]:
    """The slope of log time over log size in each round, by least squares; ``times`` has sizes as names."""
    sizes = np.log(np.array(list(times), dtype=float))
    return [float(np.polyfit(sizes, np.log(row), 1)[0]) for row in zip(*times.values(), strict=True)]


def quartile_distance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


class Ledger:
    """What was found: ratios with their spreads, details by name, and what was left out, with the reason."""

    def __init__(self) -> None:
        self.ratios: dict[str, float] = {}
        self.details: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}

    def add(
        self, key: str, values: Sequence[float], note: str = "", *, value: float | None = None, **details: Any
    ) -> None:
        """One ratio, by default the median of its values in every round, and their spread; printed at once."""
        value, spread = statistics.median(values) if value is None else value, quartile_distance(values)
        self.ratios |= {key: value, f"{key}_spread": spread}
        self.details[key] = {"rounds": len(values), **details}
        print(f"{key:<42}{value:>9.3f}{spread:>9.3f}   {note}", flush=True)

    def leave_out(self, key: str, reason: object) -> None:
        first = (str(reason).splitlines() or [""])[0]
        self.left_out[key] = f"{type(reason).__name__}: {first}" if isinstance(reason, Exception) else first
        print(f"{key:<42}{'left out':>18}   {self.left_out[key]}", flush=True)


def head() -> None:
    print(f"{'ratio':<42}{'median':>9}{'spread':>9}   note", flush=True)


def median_ms(times: Sequence[float], calls: int = 1) -> float:
    return 1000 * statistics.median(times) / calls


class PeakMemory:
    """The most resident memory in megabytes over that at the start; ``extra`` is None where /proc is not there.

    >>> with PeakMemory() as memory:
    ...     _ = [0] * 10
    >>> memory.extra is None or memory.extra >= 0
    True
    """

    extra: float | None = None

    def __enter__(self) -> Self:
        self._start = self._peak = resident()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look)
        if self._start is not None:
            self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._start is not None:
            self._watch.join()
            self._peak = max(self._peak or 0, resident() or 0)
            self.extra = self._peak - self._start

    def _look(self) -> None:
        while not self._done.wait(0.002):
            self._peak = max(self._peak or 0, resident() or 0)


def resident() -> float | None:
    """Resident megabytes of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def available() -> float | None:
    """Megabytes that the machine still has."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("MemAvailable")), None)


def machine(*packages: str) -> dict[str, Any]:
    """Where it was measured: hardware, versions, commit."""
    found: dict[str, Any] = {
        "hardware": f"{os.cpu_count()} cores, {processor()}",
        "python": platform.python_version(),
        "commit": commit(),
        "load": load(),
    }
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load(watch: float = 2.0) -> float:
    """Cores that others keep busy while we sleep; 0 where that cannot be known."""
    before = _ticks()
    time.sleep(watch)
    spent = [b - a for a, b in zip(before, _ticks(), strict=True)]
    idle = sum(spent[3:5])  # and waiting for a disk
    return (os.cpu_count() or 1) * (1 - idle / sum(spent)) if sum(spent) else 0.0


def _ticks() -> list[int]:
    """Time of all cores since the start of the machine by kind: user, nice, system, idle, waiting, and others."""
    try:
        return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return [0] * 8


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """The commit that is checked out, with a plus if source files differ from it."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}+" if changed else name


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()


def write(name: str, content: Mapping[str, Any]) -> None:
    (HERE / name).write_text(json.dumps(content, indent=2) + "\n")
