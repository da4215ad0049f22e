"""Experiments as data: a table of rows to be measured, and how each of them is measured.

A row depends on nothing but its own key.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator

from studies.baselines import Exchanged, Multinom
from studies.datasets import load
from studies.errata import measure_errata
from studies.recipes import DATASETS
from studies.runner import Study
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.metrics import sign_test
from tightset.estimators.conformal import ConformalClassifier
from tightset.estimators.scpo import SCPOClassifier

__all__ = ["AS_IS", "BINARY", "LEVELS", "OTHER_STEPS", "PAPER", "STEPS", "Experiment", "plan"]

LEVELS = (0.8, 0.9, 0.95, 0.975, 0.99)
BINARY = ("wine", "polish")
STEPS = 1000  # gradient steps; the paper does not say how many it took
OTHER_STEPS = (100, 200, 500, 2000)
AS_IS = ("dna",)  # sets whose columns are used as they are: 0/1, which the paper calls normalised already
TUNING = {"model__C": [0.001, 0.01, 0.1, 1, 10, 100]}
COSTS = {"avila": 7.0, "covtype": 16.0, "dna": 3.0, "fotp": 4.0, "wine": 1.0, "polish": 0.6, "mice": 1.5}  # ms a step


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

        model = self._scaled(LogisticRegression(max_iter=1000, tol=1e-3))
        return self._baseline(GridSearchCV(model, TUNING, scoring="neg_log_loss", n_jobs=-1))

    @cached_property
    def plain(self) -> ConformalClassifier:
        return self._baseline(self._scaled(Multinom()))

    @cached_property
    def reversed(self) -> ConformalClassifier:
        return self._baseline(FrozenEstimator(Exchanged(self.plain.folds_[0].models[0].classifier)))

    def _scaled(self, model: Any) -> Any:
        """The columns as SCPO has them."""
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import StandardScaler

        as_is = self.dataset in AS_IS
        return Pipeline([("scale", StandardScaler(with_mean=not as_is, with_std=not as_is)), ("model", model)])

    def _baseline(self, estimator: Any) -> ConformalClassifier:
        s = self.split
        clf = ConformalClassifier(estimator, confidence=LEVELS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(estimator, FrozenEstimator):
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
                    row["penalty"] = clf.folds_[0].models[0].classifier.best_params_["model__C"]
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
    folds = [fold._replace(models=[fold.models[at]], calibrations=[fold.calibrations[at]]) for fold in clf.folds_]
    alone.fitted_ = replace(clf.fitted_, levels=(level,), folds=folds)
    return alone


def _cost(experiment: Experiment) -> float:
    trains = experiment.method in {"scpo", "scpo-scaled"}  # the rest is fitted in moments, or there already
    return COSTS[experiment.dataset] * (experiment.steps if trains else 20)


def _errata(experiments: Iterable[Experiment], data_dir: str | Path | None) -> dict[str, Any]:
    return measure_errata(list(dict.fromkeys(experiment.dataset for experiment in experiments)), data_dir)


PAPER = Study(Experiment._fields, COLUMNS, Workshop, _cost, _errata)
