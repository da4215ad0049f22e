"""Experiments as data: a table of rows to be measured, and the runner that measures them one by one.

A row is written, whole, as soon as it is finished; what was written is never computed again. Rows depend on nothing but
their own key, so a run that was killed at any moment ends with the same file as one that was not.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tightset import __version__
from tightset.classifier import ConformalClassifier, SCPOClassifier
from tightset.inefficiency import as_inefficiency
from tightset.metrics import sign_test
from tightset.paper.baselines import Exchanged, Multinom
from tightset.paper.datasets import DATASETS, load, raw_files
from tightset.paper.errata import measure_errata

__all__ = ["COLUMNS", "LEVELS", "STEPS", "Experiment", "ResultsError", "plan", "read_json", "read_rows", "run"]

LEVELS = (0.8, 0.9, 0.95, 0.975, 0.99)
BINARY = ("wine", "polish")
STEPS = 1000  # gradient steps; the paper does not say how many it took
OTHER_STEPS = (100, 200, 500, 2000)
AS_IS = ("dna",)  # sets whose columns are used as they are: 0/1, which the paper calls normalised already
TUNING = {"model__C": [0.001, 0.01, 0.1, 1, 10, 100]}
COSTS = {"avila": 7.0, "covtype": 16.0, "dna": 3.0, "fotp": 4.0, "wine": 1.0, "polish": 0.6, "mice": 1.5}  # ms a step


class ResultsError(Exception):
    """Stored results cannot be read or written; the message says where and why."""


class Experiment(NamedTuple):
    """What is measured: the key of a row.

    ``method`` is ``scpo``; a baseline: ``tuned`` (logistic regression, C by cross-validation; it stands in the column
    penalty), ``plain`` (as R's multinom) or ``reversed`` (the plain one, each label scored by the probability of the
    other); ``scpo-80``, the measure trained at 80 % and applied at ``confidence``; or ``scpo-scaled``, the method with
    columns standardised where the paper left them.
    """

    dataset: str
    seed: int
    method: str
    f: str
    form: str
    steps: int
    confidence: float


COLUMNS = (
    *Experiment._fields,
    "penalty",
    "sharpness",
    "learning_rate",
    "train_inefficiency",
    "n_test",
    "n_cal",
    "coverage",
    "inefficiency",
    "mean_size",
    "empty",
    "smaller_than_tuned",
    "larger_than_tuned",
    "smaller_than_paper",
    "larger_than_paper",
)


def plan(
    seeds: Iterable[int] = range(5), datasets: Iterable[str] = DATASETS, *, quick: bool = False
) -> list[Experiment]:
    """The table of experiments, in the order in which they are run.

    Both main tables and the baselines for every seed, training at 80 % applied at 95 %, and at 95 % the other forms of
    the loss and (for the first seed) other numbers of steps. ``quick`` keeps the size tables of the sets that train in
    seconds, at two levels, for one seed.
    """
    rows = []
    seeds = list(seeds)
    if quick:
        seeds, datasets = seeds[:1], [name for name in datasets if COSTS[name] < 5]
    for seed in seeds:
        for name in datasets:
            levels = LEVELS[1:3] if quick else LEVELS
            fs = ("size",) if quick else ("size", "log")
            methods = ("tuned", "plain", "reversed") if name in BINARY else ("tuned", "plain")
            rows += [
                Experiment(name, seed, method, f, "", 0, level) for method in methods for f in fs for level in levels
            ]
            rows += [Experiment(name, seed, "scpo", f, "-1/L", STEPS, level) for f in fs for level in levels]
            if quick:
                continue
            rows.append(Experiment(name, seed, "scpo-80", "size", "-1/L", STEPS, 0.95))
            rows += [Experiment(name, seed, "scpo", "size", form, STEPS, 0.95) for form in ("L", "log L", "-1/L^2")]
            if name in AS_IS:
                rows += [Experiment(name, seed, "scpo-scaled", "size", "-1/L", STEPS, level) for level in levels]
            if seed == seeds[0]:
                rows += [Experiment(name, seed, "scpo", "size", "-1/L", steps, 0.95) for steps in OTHER_STEPS]
    return rows


# ---- measuring one row -----------------------------------------------------------------------------------------------


class Workshop:
    """One data set at one seed: parts and models, made when first needed and kept for the rows that follow."""

    def __init__(self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None) -> None:
        self.dataset, self.seed, self.device = dataset, seed, device
        self.split = load(dataset, seed, data_dir)
        self._trained: dict[tuple[str, str, int, bool, float], SCPOClassifier] = {}

    @cached_property
    def tuned(self) -> ConformalClassifier:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV

        search = GridSearchCV(self._scaled(LogisticRegression(max_iter=1000, tol=1e-3)), TUNING, scoring="neg_log_loss")
        return self._baseline(search)

    @cached_property
    def plain(self) -> ConformalClassifier:
        return self._baseline(self._scaled(Multinom()))

    @cached_property
    def reversed(self) -> ConformalClassifier:
        return self._baseline(Exchanged(self.plain.folds_[0].models[0]), prefit=True)

    def _scaled(self, model: Any) -> Any:
        """The columns as SCPO has them."""
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import StandardScaler

        as_is = self.dataset in AS_IS
        return Pipeline([("scale", StandardScaler(with_mean=not as_is, with_std=not as_is)), ("model", model)])

    def _baseline(self, estimator: Any, *, prefit: bool = False) -> ConformalClassifier:
        s = self.split
        clf = ConformalClassifier(estimator, confidence=LEVELS, prefit=prefit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if prefit:
                clf.fit(s.X_cal, s.y_cal)
            else:
                clf.fit(s.X_train, s.y_train, X_cal=s.X_cal, y_cal=s.y_cal)
        return clf

    def scpo(self, f: str, form: str, steps: int, level: float, *, standardise: bool) -> SCPOClassifier:
        """The paper's method for one level; on a device all levels of the main tables are trained together."""
        together = self.device is not None and form == "-1/L" and steps == STEPS
        key = (f, form, steps, standardise, 0.0 if together else level)
        if key not in self._trained:
            s = self.split
            clf = SCPOClassifier.paper(
                LEVELS if together else level,
                inefficiency=f,
                loss_form=form,
                max_iter=steps,
                standardise=standardise,
                device=self.device,
            )
            self._trained[key] = clf.fit(s.X_train, s.y_train, X_cal=s.X_cal, y_cal=s.y_cal)
        return self._trained[key]

    def sizes(self, clf: Any, level: float) -> np.ndarray:
        result: np.ndarray = clf.predict_set(self.split.X_test, confidence=level).sum(axis=1)
        return result

    def measure(self, experiment: Experiment) -> dict[str, Any]:
        """One row of results."""
        _, _, method, f, form, steps, level = experiment
        row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | experiment._asdict()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a level that was not trained is the point of scpo-80
            if method.startswith("scpo"):
                trained_at = 0.8 if method == "scpo-80" else level
                standardise = self.dataset not in AS_IS or method == "scpo-scaled"
                clf: Any = self.scpo(f, form, steps, trained_at, standardise=standardise)
                table = clf.selection_
                at = int(np.flatnonzero(table["chosen"] & (table["confidence"] == trained_at))[0])
                row |= {name: table[name][at] for name in ("penalty", "sharpness", "learning_rate")}
                row["train_inefficiency"] = table["inefficiency"][at]
                if method == "scpo-80":
                    clf = _at_level(clf, trained_at)
            else:
                clf = getattr(self, method)
                if method == "tuned":
                    row["penalty"] = clf.folds_[0].models[0].best_params_["model__C"]
            sets = clf.predict_set(self.split.X_test, confidence=level)
            size = sets.sum(axis=1)
            y = np.searchsorted(clf.classes_, self.split.y_test)
            if method.startswith("scpo"):
                paper = self.reversed if self.dataset in BINARY else self.plain
                for name, other in (("tuned", self.tuned), ("paper", paper)):
                    test = sign_test(size, self.sizes(other, level))
                    row |= {f"smaller_than_{name}": test.first_smaller, f"larger_than_{name}": test.second_smaller}
        return row | {
            "n_test": len(size),
            "n_cal": len(self.split.y_cal),
            "coverage": sets[np.arange(len(size)), y].mean(),
            "inefficiency": as_inefficiency(f)(size.astype(float)).mean(),
            "mean_size": size.mean(),
            "empty": (size == 0).mean(),
        }


def _at_level(clf: SCPOClassifier, level: float) -> SCPOClassifier:
    """The same predictor with only the measure that was trained for ``level``."""
    from copy import copy

    at = clf.levels_.index(level)
    alone = copy(clf)
    alone.levels_ = (level,)
    alone.folds_ = [
        fold._replace(models=[fold.models[at]], calibrations=[fold.calibrations[at]]) for fold in clf.folds_
    ]
    return alone


# ---- running the table -----------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[dict[str, str]]:
    """Finished rows of a results file. A last line that was cut off by a kill is no row."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None
    reader = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())
    rows = list(reader)
    if reader.fieldnames is not None and tuple(reader.fieldnames) != COLUMNS:
        raise ResultsError(f"{path} has other columns than this version writes; give another --out")
    return rows


def run(
    experiments: list[Experiment],
    out: Path,
    *,
    data_dir: str | Path | None = None,
    device: str | None = None,
    progress: Callable[[int, int, float, Experiment | None], None] | None = None,
) -> None:
    """Measure every experiment that is not in ``out/rows.csv`` yet, and add it there.

    ``progress(done, total, share of the cost done, next)`` is called before each row and at the end.
    """
    path = out / "rows.csv"
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        done = {_key(row) for row in read_rows(path)}
        todo = [experiment for experiment in experiments if _key(experiment._asdict()) not in done]
        data = {name: [file.path for file in raw_files(name, data_dir)] for name in dict.fromkeys(e[0] for e in todo)}
        log = Log(out / "run.json", device, data)
        left, total = sum(map(_cost, todo)), sum(map(_cost, experiments))
        workshop = None
        with _writing(path):
            file = path.open("r+b" if path.exists() else "w+b")
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
            if file.seek(0, os.SEEK_END) == 0:
                _append(file, COLUMNS)
        with file:
            for at, experiment in enumerate(todo):
                if progress is not None:
                    progress(len(experiments) - len(todo) + at, len(experiments), 1 - left / total, experiment)
                if workshop is None or (workshop.dataset, workshop.seed) != experiment[:2]:
                    workshop = Workshop(experiment.dataset, experiment.seed, data_dir, device)
                row = workshop.measure(experiment)
                with _writing(path):
                    _append(file, [_plain(row[name]) for name in COLUMNS])
                log.add_row(experiment.seed)
                left -= _cost(experiment)
        if read_json(out / "errata.json") is None:
            with _writing(out / "errata.json"):
                _write(
                    out / "errata.json", measure_errata(list(dict.fromkeys(e.dataset for e in experiments)), data_dir)
                )
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


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """One runner a folder: two would write over each other's lines."""
    with _writing(out), (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(f"another run is writing to {out}; wait for it, or give another --out") from None
        yield


def read_json(path: Path) -> Any:
    """What the file holds, or None where it is missing or unreadable."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(_plain(row[name])) for name in Experiment._fields)


def _plain(value: Any) -> Any:
    """A Python number, which is written as the shortest text that reads back the same."""
    return value.item() if isinstance(value, np.generic) else value


def _cost(experiment: Experiment) -> float:
    return COSTS[experiment.dataset] * (experiment.steps if experiment.method == "scpo" else 20)


def _append(file: BinaryIO, cells: Iterable[Any]) -> None:
    """One whole line in one write, on the disk before anything else happens."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    file.write(line.getvalue().encode())
    file.flush()
    os.fsync(file.fileno())


class Log:
    """``run.json``: who measured the rows, session by session. Times are kept here, apart from the results."""

    def __init__(self, path: Path, device: str | None, data: dict[str, list[str]]) -> None:
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
            | {name: version(name) for name in ("numpy", "scipy", "scikit-learn", *(["torch"] if device else []))},
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
