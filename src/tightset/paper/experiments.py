"""Experiments as data: a table of rows to be measured, and the runner that measures them one by one.

A row is written, whole, as soon as it is finished; what was written is never computed again. Rows depend on nothing but
their own key, so a run that was killed at any moment ends with the same file as one that was not.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tightset import __version__
from tightset.classifier import ConformalClassifier, SCPOClassifier
from tightset.inefficiency import as_inefficiency
from tightset.metrics import sign_test
from tightset.paper.datasets import DATASETS, load
from tightset.paper.errata import measure_errata

__all__ = ["COLUMNS", "LEVELS", "STEPS", "Experiment", "ResultsError", "plan", "read_rows", "run"]

LEVELS = (0.8, 0.9, 0.95, 0.975, 0.99)
BINARY = ("wine", "polish")
STEPS = 1000  # gradient steps; the paper does not say how many it took
OTHER_STEPS = (100, 200, 500, 2000)
COSTS = {"avila": 7.0, "covtype": 16.0, "dna": 3.0, "fotp": 4.0, "wine": 1.0, "polish": 0.6, "mice": 1.5}  # ms a step


class ResultsError(Exception):
    """Stored results cannot be read or written; the message says where and why."""


class Experiment(NamedTuple):
    """What is measured: the key of a row.

    ``method`` is ``scpo``; a baseline: ``tuned`` (logistic regression, C by cross-validation), ``plain``
    (unregularised multinomial regression) or ``reversed`` (the plain one, each label scored by the probability of the
    other); or ``scpo-80``, the measure trained at 80 % and applied at ``confidence``.
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
            if seed == seeds[0]:
                rows += [Experiment(name, seed, "scpo", "size", "-1/L", steps, 0.95) for steps in OTHER_STEPS]
    return rows


# ---- measuring one row -----------------------------------------------------------------------------------------------


class Workshop:
    """One data set at one seed: parts and models, made when first needed and kept for the rows that follow."""

    def __init__(self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None) -> None:
        self.dataset, self.seed, self.device = dataset, seed, device
        self.split = load(dataset, seed, data_dir)
        self._trained: dict[tuple[str, str, int], SCPOClassifier] = {}

    @cached_property
    def tuned(self) -> ConformalClassifier:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, tol=1e-3))
        grid = {"logisticregression__C": [0.01, 0.1, 1, 10, 100]}
        return self._baseline(GridSearchCV(model, grid, scoring="neg_log_loss", cv=5))

    @cached_property
    def plain(self) -> ConformalClassifier:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        # R's multinom stops after 100 steps of BFGS.
        return self._baseline(make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, max_iter=100)))

    @cached_property
    def reversed(self) -> ConformalClassifier:
        return self._baseline(_OtherClass(self.plain.folds_[0].models[0]), prefit=True)

    def _baseline(self, estimator: Any, *, prefit: bool = False) -> ConformalClassifier:
        s = self.split
        clf = ConformalClassifier(estimator, confidence=LEVELS, prefit=prefit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plain baseline is meant to stop early
            if prefit:
                clf.fit(s.X_cal, s.y_cal)
            else:
                clf.fit(s.X_train, s.y_train, X_cal=s.X_cal, y_cal=s.y_cal)
        return clf

    def scpo(self, f: str, form: str, steps: int, level: float) -> SCPOClassifier:
        """The paper's method for one level; on a device all levels of the main tables are trained together."""
        together = self.device is not None and form == "-1/L" and steps == STEPS
        key = (f, form, steps) if together else (f, f"{form} {level}", steps)
        if key not in self._trained:
            s = self.split
            clf = SCPOClassifier.paper(
                LEVELS if together else level,
                inefficiency=f,
                loss_form=form,
                max_iter=steps,
                standardise=self.dataset != "dna",  # 0/1 columns, which the paper calls normalised already
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
                clf: Any = self.scpo(f, form, steps, trained_at)
                table = clf.selection_
                at = int(np.flatnonzero(table["chosen"] & (table["confidence"] == trained_at))[0])
                row |= {name: table[name][at] for name in ("penalty", "sharpness", "learning_rate")}
                row["train_inefficiency"] = table["inefficiency"][at]
                if method == "scpo-80":
                    clf = _at_level(clf, trained_at)
            else:
                clf = getattr(self, method)
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


class _OtherClass:
    """A binary classifier with its two probabilities exchanged: the slip that the printed baselines betray."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.classes_ = model.classes_

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict_proba(X))[:, ::-1]


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
    rows = list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))
    if text and tuple(rows[0] if rows else COLUMNS) != COLUMNS:
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
    try:
        out.mkdir(parents=True, exist_ok=True)
        done = {_key(row) for row in read_rows(path)}
        todo = [experiment for experiment in experiments if _key(experiment._asdict()) not in done]
        log = Log(out / "run.json", device)
        left, total = sum(map(_cost, todo)), sum(map(_cost, experiments))
        workshop = None
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
            if file.seek(0, os.SEEK_END) == 0:
                _append(file, COLUMNS)
            for at, experiment in enumerate(todo):
                if progress is not None:
                    progress(len(experiments) - len(todo) + at, len(experiments), 1 - left / total, experiment)
                if workshop is None or (workshop.dataset, workshop.seed) != experiment[:2]:
                    workshop = Workshop(experiment.dataset, experiment.seed, data_dir, device)
                row = workshop.measure(experiment)
                _append(file, [_plain(row[name]) for name in COLUMNS])
                log.add_row()
                left -= _cost(experiment)
        if not (out / "errata.json").exists():
            _write(out / "errata.json", measure_errata())
    except OSError as error:
        raise ResultsError(
            f"{error.filename or path} cannot be written: {error.strerror}; rows finished before are kept"
        ) from None
    if progress is not None:
        progress(len(experiments), len(experiments), 1.0, None)


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

    def __init__(self, path: Path, device: str | None) -> None:
        self.path = path
        self.earlier: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
        others = {session["device"] for session in self.earlier} - {device}
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
            "versions": {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
            | {"tightset": __version__, "python": platform.python_version()},
            "git": _git_state(),
            "rows": 0,
            "seconds": 0.0,
        }

    def add_row(self) -> None:
        self.session["rows"] += 1
        self.session["seconds"] = round(time.monotonic() - self.started, 1)
        _write(self.path, [*self.earlier, self.session])


def _write(path: Path, content: Any) -> None:
    """A whole JSON file or none."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def _hardware(device: str | None) -> str:
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    if device is None:
        return cores
    import torch

    return f"{cores}, {torch.cuda.get_device_name() if 'cuda' in device else device}"


def _git_state() -> str:
    """The commit of the source tree, with a plus if it was changed; empty where there is none."""
    here = Path(__file__).parent
    try:
        show = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
        status = ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no", "--", str(here.parent)]
        return commit + ("+" if subprocess.run(status, capture_output=True, text=True, check=True).stdout else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
