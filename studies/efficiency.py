"""How small the sets are: `SCPOClassifier` against tuned logistic regression on the seven data sets.

A row depends on nothing but its own key. Calibration and test rows of a split are pooled and divided at random twenty
times, the same way for every method: that averages out most of what the choice of calibration rows does to a size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies.datasets import load
from studies.experiments import LEVELS
from studies.recipes import DATASETS
from studies.runner import Study
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.metrics import sign_test
from tightset.conformal.ranks import threshold
from tightset.estimators.scpo import SCPOClassifier
from tightset.models.columns import Columns
from tightset.search.settings import Search

__all__ = ["EFFICIENCY", "METHODS", "OTHERS_SPLITS", "SMALL", "Comparison", "plan"]

SMALL = ("dna", "polish", "mice")  # with twice as many splits
OTHERS_SPLITS = 3  # of the methods that are not the default
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of the baseline
FOLDS = 5
DIVISIONS = 20  # of calibration and test rows
COSTS = {"avila": 8.0, "covtype": 15.0, "dna": 4.0, "fotp": 10.0, "wine": 3.0, "polish": 4.0, "mice": 2.0}

# The default, the fast search, and what is left without each of the two ideas; only the default for both f.
METHODS: dict[str, dict[str, Any]] = {
    "scpo": {},
    "fast": {"search": "fast"},
    "plain-columns": {"search": Search(unfold=False)},
    "no-paths": {"search": Search(paths=())},
}


class Comparison(NamedTuple):
    """What is measured: the key of a row.

    ``method`` is one of `METHODS`, ``logistic`` (logistic regression, C tuned for the inefficiency at this level by
    cross-validation, its probabilities thresholded) or ``likelihood`` (the same with C tuned by the log-loss).
    """

    dataset: str
    seed: int
    method: str
    f: str
    confidence: float


COLUMNS = (
    *Comparison._fields,
    "chosen",  # C, or the number of measures combined; 0 where the baseline stayed
    "promised",  # inefficiency on held-out training rows
    "promised_baseline",
    "n_cal",
    "n_test",
    "coverage",
    "inefficiency",
    "mean_size",
    "smaller_than_logistic",  # test rows of the first division
    "larger_than_logistic",
)


def plan(seeds: Iterable[int] = range(10), datasets: Iterable[str] = DATASETS) -> list[Comparison]:
    """The table of experiments, in order, split by split.

    The larger sets have the first half of the splits; methods that are not the default, the first few.
    """
    seeds, datasets = list(seeds), list(datasets)
    rows = []
    for at, seed in enumerate(seeds):
        for name in datasets:
            if name not in SMALL and at >= (len(seeds) + 1) // 2:
                continue
            for f in ("size", "log"):
                trained = tuple(METHODS) if f == "size" and at < OTHERS_SPLITS else ("scpo",)
                methods = ("logistic", "likelihood", *trained)
                rows += [Comparison(name, seed, method, f, level) for method in methods for level in LEVELS]
    return rows


class Workshop:
    """One data set at one seed: parts and models, made when first needed and kept for the rows that follow."""

    def __init__(self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None) -> None:
        self.dataset, self.seed, self.device = dataset, seed, device
        self.split = load(dataset, seed, data_dir)
        self.classes = np.unique(self.split.y_train)
        self.X = np.concatenate([self.split.X_cal, self.split.X_test])
        self.y = np.searchsorted(self.classes, np.concatenate([self.split.y_cal, self.split.y_test]))
        self._trained: dict[tuple[str, str], SCPOClassifier] = {}

    @cached_property
    def logistic(self) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """For each C the probabilities of held-out training rows and, by the model of all of them, of other rows."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        columns = Columns.plain(self.split.X_train)
        X, X_new = columns.apply(self.split.X_train)[0][:, :-1], columns.apply(self.X)[0][:, :-1]
        y = np.searchsorted(self.classes, self.split.y_train)
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)
        found = []
        for C in STRENGTHS:
            model = LogisticRegression(C=C, max_iter=1000)
            held_out = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
            found.append((C, held_out, model.fit(X, y).predict_proba(X_new)))
        return found

    def baseline(self, f: str, level: float, *, likelihood: bool) -> tuple[float, float, np.ndarray]:
        """The chosen C, what it promises, and the scores of new rows."""
        y = np.searchsorted(self.classes, self.split.y_train)

        def promise(p: np.ndarray) -> float:
            own = p[np.arange(len(y)), y]
            return float(as_inefficiency(f)((p >= threshold(own, level)).sum(axis=1).astype(float)).mean())

        def log_loss(p: np.ndarray) -> float:
            return float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-300)).mean())

        C, held_out, scores = min(self.logistic, key=lambda one: (log_loss if likelihood else promise)(one[1]))
        return C, promise(held_out), scores

    def scpo(self, method: str, f: str) -> SCPOClassifier:
        if (method, f) not in self._trained:
            s = self.split
            clf = SCPOClassifier(
                LEVELS, inefficiency=f, random_state=self.seed, device=self.device, verbose=False, **METHODS[method]
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # 99 % asks for more calibration rows than some sets have
                self._trained[method, f] = clf.fit(s.X_train, s.y_train, X_cal=s.X_cal, y_cal=s.y_cal)
        return self._trained[method, f]

    def measure(self, experiment: Comparison) -> dict[str, Any]:
        """One row of results."""
        _, _, method, f, level = experiment
        row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | experiment._asdict()
        _, promised_baseline, theirs = self.baseline(f, level, likelihood=False)
        if method in METHODS:
            clf = self.scpo(method, f)
            at = LEVELS.index(level)
            record = clf.folds_[0].record[at]
            row["chosen"] = len(clf.folds_[0].models[at].members) if record.verdict.accepted else 0
            row["promised"], row["promised_baseline"] = record.verdict.ensemble, record.verdict.baseline
            scores = clf.folds_[0].models[at].scores(self.X)
        else:
            row["chosen"], row["promised"], scores = self.baseline(f, level, likelihood=method == "likelihood")
            row["promised_baseline"] = promised_baseline
        n_cal = len(self.split.y_cal)
        covered, sizes = [], []
        rng = np.random.default_rng([self.seed, 1])
        for division in range(DIVISIONS):
            order = rng.permutation(len(self.y))
            cal, test = order[:n_cal], order[n_cal:]
            sets = _sets(scores, self.y, cal, test, level)
            covered.append(sets[np.arange(len(test)), self.y[test]].mean())
            sizes.append(sets.sum(axis=1))
            if division == 0 and method != "logistic":
                other = _sets(theirs, self.y, cal, test, level).sum(axis=1)
                first, second = sign_test(sizes[0], other)[:2]
                row |= {"smaller_than_logistic": first, "larger_than_logistic": second}
        return row | {
            "n_cal": n_cal,
            "n_test": len(self.y) - n_cal,
            "coverage": np.mean(covered),
            "inefficiency": np.mean([as_inefficiency(f)(size.astype(float)).mean() for size in sizes]),
            "mean_size": np.mean(sizes),
        }


def _sets(scores: np.ndarray, y: np.ndarray, cal: np.ndarray, test: np.ndarray, level: float) -> np.ndarray:
    return Calibration.of(scores[cal], y[cal]).sets(scores[test], level)


def _cost(experiment: Comparison) -> float:
    return COSTS[experiment.dataset] * {"scpo": 1.0, "fast": 0.6, "plain-columns": 0.4, "no-paths": 0.3}.get(
        experiment.method, 0.05
    )


EFFICIENCY = Study(Comparison._fields, COLUMNS, Workshop, _cost)
