"""The runner: experiments measured one by one, each finished row kept, whatever happens.

A row is written, whole, as soon as it is finished; what was written is never computed again. So a run that was killed
at any moment ends with the same file as one that was not.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from studies.datasets import raw_files
from tightset import __version__

__all__ = ["ResultsError", "Study", "read_json", "read_rows", "run"]


class ResultsError(Exception):
    """Stored results cannot be read or written; the message says where and why."""


class Study(NamedTuple):
    """What is measured: an experiment is a named tuple that begins with (dataset, seed) and is the key of its row.

    ``workshop(dataset, seed, data_dir, device)`` has a method ``measure(experiment)`` that returns the row; ``cost`` of
    an experiment is in any unit; ``beside(experiments, data_dir)`` is measured once for the file ``errata.json``;
    ``packages`` are those whose versions matter, besides the usual ones; ``files(dataset, data_dir)`` the raw files.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    workshop: Callable[..., Any]
    cost: Callable[[Any], float]
    beside: Callable[..., Any] | None = None
    packages: tuple[str, ...] = ()
    files: Callable[..., Any] = raw_files


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Finished rows of a results file. A last line that was cut off by a kill is no row."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None
    reader = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())
    rows = list(reader)
    if reader.fieldnames is not None and tuple(reader.fieldnames) != columns:
        raise ResultsError(f"{path} has other columns than this version writes; give another --out")
    return rows


def run(
    study: Study,
    experiments: Sequence[Any],
    out: Path,
    *,
    data_dir: str | Path | None = None,
    device: str | None = None,
    progress: Callable[[int, int, float, Any], None] | None = None,
) -> None:
    """Measure every experiment that is not in ``out/rows.csv`` yet, and add it there.

    ``progress(done, total, share of the cost done, next)`` is called before each row and at the end.
    """
    path = out / "rows.csv"
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        done = {_key(study, row) for row in read_rows(path, study.columns)}
        todo = [experiment for experiment in experiments if _key(study, experiment._asdict()) not in done]
        data = {name: [file.path for file in study.files(name, data_dir)] for name in dict.fromkeys(e[0] for e in todo)}
        log = Log(out / "run.json", device, data, study.packages)
        left, total = sum(map(study.cost, todo)), sum(map(study.cost, experiments))
        workshop = None
        with _writing(path):
            file = path.open("r+b" if path.exists() else "w+b")
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
            if file.seek(0, os.SEEK_END) == 0:
                _append(file, study.columns)
        with file:
            for at, experiment in enumerate(todo):
                if progress is not None:
                    progress(len(experiments) - len(todo) + at, len(experiments), 1 - left / total, experiment)
                if workshop is None or (workshop.dataset, workshop.seed) != experiment[:2]:
                    workshop = study.workshop(experiment.dataset, experiment.seed, data_dir, device)
                row = workshop.measure(experiment)
                with _writing(path):
                    _append(file, [_plain(row[name]) for name in study.columns])
                log.add_row(experiment.seed)
                left -= study.cost(experiment)
        if study.beside is not None and read_json(out / "errata.json") is None:
            with _writing(out / "errata.json"):
                _write(out / "errata.json", study.beside(experiments, data_dir))
    if progress is not None:
        progress(len(experiments), len(experiments), 1.0, None)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"{error.filename or path} cannot be written: {error.strerror}; rows finished before are kept"
        ) from None


def _lock(file: Any) -> None:
    """Until the file is closed; OSError if another process has it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """One runner a folder: two would write over each other's lines."""
    with _writing(out):
        file = (out / ".lock").open("w")
    with file:
        try:
            _lock(file)
        except OSError:
            raise ResultsError(f"another run is writing to {out}; wait for it, or give another --out") from None
        yield


def read_json(path: Path) -> Any:
    """What the file holds, or None where it is missing or unreadable."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _key(study: Study, row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(_plain(row[name])) for name in study.key)


def _plain(value: Any) -> Any:
    """A Python number, which is written as the shortest text that reads back the same."""
    return value.item() if isinstance(value, np.generic) else value


def _append(file: BinaryIO, cells: Iterable[Any]) -> None:
    """One whole line in one write, on the disk before anything else happens."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    file.write(line.getvalue().encode())
    file.flush()
    os.fsync(file.fileno())


class Log:
    """``run.json``: who measured the rows, session by session. Times are kept here, apart from the results."""

    def __init__(
        self, path: Path, device: str | None, data: dict[str, list[str]], packages: tuple[str, ...] = ()
    ) -> None:
        self.path = path
        sessions = read_json(path)
        # A file that cannot be read is begun anew: it describes the rows, it does not hold them.
        self.earlier: list[dict[str, Any]] = sessions if isinstance(sessions, list) else []
        others = {session.get("device") for session in self.earlier} - {device}
        if others:
            raise ResultsError(
                f"{path.parent} holds rows measured on {others.pop() or 'the CPU'}; "
                f"give another --out for {device or 'the CPU'}"
            )
        self.started = time.monotonic()
        self.session: dict[str, Any] = {
            "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "device": device,
            "hardware": _hardware(device),
            "versions": {"tightset": __version__, "python": platform.python_version()}
            | {name: version(name) for name in ("numpy", "scipy", "scikit-learn", *packages)}
            | ({"torch": version("torch")} if device else {}),
            "git": _git_state(),
            "data": data,
            "rows": 0,
            "seconds": 0.0,
            "seconds_of_split": {},
        }
        self._save()

    def add_row(self, seed: int) -> None:
        now = round(time.monotonic() - self.started, 1)
        of_split = self.session["seconds_of_split"]
        of_split[str(seed)] = round(of_split.get(str(seed), 0.0) + now - self.session["seconds"], 1)
        self.session |= {"rows": self.session["rows"] + 1, "seconds": now}
        self._save()

    def _save(self) -> None:
        with _writing(self.path):
            _write(self.path, [*self.earlier, self.session])


def _write(path: Path, content: Any) -> None:
    """A whole JSON file or none."""
    draft = path.with_suffix(".part")
    with draft.open("w") as file:
        file.write(json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _hardware(device: str | None) -> str:
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    if device is None:
        return cores
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ResultsError(f"device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return f"{cores}, {torch.cuda.get_device_name(device) if 'cuda' in device else device}"


def _git_state() -> str:
    """The commit of this source tree, with a plus if it was changed; empty where git does not track it."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
