"""Training for what is asked: coverage by label and by group, costs, order, single labels; against training for size.

Everything is compared on the same rows, calibrated in the same way. Calibration and test rows of a split are pooled and
divided at random twenty times, as in `efficiency`. A row depends on nothing but its own key. Where labels are ordered,
the scores of every method become those of intervals before they are calibrated.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies.datasets import load
from studies.efficiency import DIVISIONS, FOLDS, STRENGTHS
from studies.ordered_data import ORDERED
from studies.recipes import DATASETS
from studies.runner import Study
from tightset.compute.label_intervals import as_intervals
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import SIZE
from tightset.conformal.ordinal import OrdinalAPS
from tightset.estimators.scpo import SCPOClassifier
from tightset.models.columns import Columns
from tightset.objectives.terms import Terms
from tightset.search.judging import Judge
from tightset.search.judging_terms import JudgeOnTerms
from tightset.search.settings import Search

__all__ = ["ASKED", "COLUMNS", "GROUPS", "LEVELS", "Question", "plan"]

LEVELS = (0.8, 0.9, 0.95)
# Columns that hold a category, one 0/1 column for each value but perhaps the first; they are left out of X.
GROUPS = {
    "wilderness": ("covtype", range(10, 14)),
    "soil": ("covtype", range(14, 54)),
    "before-junction": ("dna", range(87, 90)),
    "white-king": ("kr-vs-k", range(4)),
    "sex": ("abalone", range(3)),
}
_COMMON_GROUPS = 5  # values with fewer rows than these have are one group
COST_SEEDS = 3
COSTS = {"avila": 8.0, "covtype": 15.0, "dna": 4.0, "fotp": 10.0, "wine": 3.0, "polish": 4.0, "mice": 2.0}
COSTS |= {"kr-vs-k": 20.0, "abalone": 8.0, "car": 3.0, "wine-grades": 5.0}


class Question(NamedTuple):
    """What is measured: the key of a row.

    ``asked`` is ``label``, ``group``, ``cost``, ``single`` or ``ordered``; ``variant`` the column of groups or the seed
    of the costs. ``method`` is what was trained: ``asked`` (for what is asked), ``size`` (for size at coverage on
    average), each with ``-plain`` for columns that are not unfolded; ``logistic``, the best rule on tuned logistic
    regression; ``aps``, the score `OrdinalAPS` on the same; ``asked-seen``, trained by group with the group in X;
    ``hgb`` and ``hgb-asked``, gradient boosting alone, and with a measure trained on top.
    """

    dataset: str
    seed: int
    asked: str
    variant: str
    method: str
    confidence: float


COLUMNS = (
    *Question._fields,
    "n_cal",
    "n_test",
    "coverage",
    "worst_coverage",  # of a category, on average over divisions
    "inefficiency",  # labels per set, which of intervals is their width, or cost per set
    "single",  # share of sets of one label
    "accepted",
)

_METHODS = ("logistic", "asked", "asked-plain", "size", "size-plain")


def plan(seeds: Iterable[int] = range(5), datasets: Iterable[str] = (*DATASETS, *ORDERED)) -> list[Question]:
    """The table of questions, split by split."""
    datasets = list(datasets)
    rows = []
    for seed in seeds:
        for name in datasets:
            if name in ORDERED:
                asked = [("ordered", "", method) for method in ("logistic", "aps", "asked", "size")]
            else:
                asked = [("label", "", method) for method in (*_METHODS, "hgb", "hgb-asked")]
                asked += [
                    ("cost", str(k), method) for k in range(COST_SEEDS) for method in ("logistic", "asked", "size")
                ]
                asked += [("single", "", method) for method in ("asked", "size")]
            asked += [
                ("group", column, method)
                for column, (of, _) in GROUPS.items()
                if of == name
                for method in ("logistic", "asked", "size", "asked-seen")
            ]
            rows += [Question(name, seed, *one, level) for one in asked for level in LEVELS]
    return rows


class Task(NamedTuple):
    """Rows without the column of groups, groups of training and of other rows, and prices of labels, if there are."""

    X_train: np.ndarray
    X: np.ndarray
    how: dict[str, Any]  # of SCPOClassifier
    by_label: bool = False
    groups: tuple[np.ndarray, np.ndarray] | None = None
    price: np.ndarray | None = None
    order: np.ndarray | None = None  # of the labels, which are numbers in it


class Workshop:
    """One data set at one seed: parts and models, made when first needed and kept for the rows that follow."""

    def __init__(self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None) -> None:
        self.dataset, self.seed, self.device = dataset, seed, device
        self.split = load(dataset, seed, data_dir)
        self.classes = np.unique(self.split.y_train)
        self.X = np.concatenate([self.split.X_cal, self.split.X_test])
        self.y_train = np.searchsorted(self.classes, self.split.y_train)
        self.y = np.searchsorted(self.classes, np.concatenate([self.split.y_cal, self.split.y_test]))
        self._scores: dict[tuple[str, ...], tuple[list[np.ndarray], list[bool]]] = {}
        self._logistic: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}

    def task(self, asked: str, variant: str) -> Task:
        X_train, X = self.split.X_train, self.X
        if asked == "label":
            return Task(X_train, X, {"label_conditional": True}, by_label=True)
        if asked == "cost":
            cost = self.costs(int(variant))
            return Task(X_train, X, {"cost": cost}, price=cost)
        if asked == "ordered":
            return Task(X_train, X, {"ordered": True}, order=np.arange(len(self.classes)))
        if asked == "single":
            return Task(X_train, X, {"inefficiency": "multiple"})
        at = np.array(GROUPS[variant][1])
        both = np.concatenate([X_train[:, at], X[:, at]])
        value = np.where(both.any(axis=1), both.argmax(axis=1) + 1, 0)
        common = np.argsort(-np.bincount(value), kind="stable")[:_COMMON_GROUPS]
        value = np.where(np.isin(value, common), value, -1)
        _, value = np.unique(value, return_inverse=True)
        groups = value[: len(X_train)], value[len(X_train) :]
        return Task(np.delete(X_train, at, axis=1), np.delete(X, at, axis=1), {}, groups=groups)

    def costs(self, variant: int) -> np.ndarray:
        """From 1 to 10, as a geometric series in a random order."""
        C = len(self.classes)
        rng = np.random.default_rng([variant, 0x636F7374])
        return np.asarray(10 ** rng.permutation(np.linspace(0, 1, C)))

    # ---- scores of new rows, one array for each level ------------------------------------------------------------

    def logistic(self, task: Task, key: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each C the log-probabilities of held-out training rows and of new ones."""
        if key not in self._logistic:
            from sklearn.linear_model import LogisticRegression
            from sklearn.model_selection import StratifiedKFold, cross_val_predict

            columns = Columns.plain(task.X_train)
            Z, Z_new = columns.apply(task.X_train)[0][:, :-1], columns.apply(task.X)[0][:, :-1]
            folds = StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)
            found = []
            for C in STRENGTHS:
                model = LogisticRegression(C=C, max_iter=1000)
                held_out = cross_val_predict(model, Z, self.y_train, cv=folds, method="predict_proba")
                new = model.fit(Z, self.y_train).predict_proba(Z_new)
                found.append((_logs(held_out), _logs(new)))
            self._logistic[key] = found
        return self._logistic[key]

    def rule(self, task: Task, key: str, level: float) -> np.ndarray:
        """Logistic regression, C tuned for what is asked, and where labels have prices ``p / price``."""
        found = self.logistic(task, key)
        if task.order is not None:
            by_width = Judge(self.y_train, None, 1 - level, rng=np.random.default_rng(0))
            by_width.order = task.order
            return min(found, key=lambda one: by_width.criterion(by_width.curve(one[0])))[1]
        terms = Terms.of(
            self.y_train,
            len(self.classes),
            1 - level,
            by_label=task.by_label,
            group=None if task.groups is None else task.groups[0],
            cost=None if task.price is None else np.tile(task.price, (len(self.classes), 1)),
        )
        assert terms is not None  # noqa: S101 - nothing else is asked of logistic regression
        judge = JudgeOnTerms(self.y_train, None, 1 - level, SIZE, terms, rng=np.random.default_rng(0))
        price = 0.0 if task.price is None else np.log(task.price)
        best = min(range(len(found)), key=lambda at: judge.criterion(judge.curve(found[at][0] - price)))
        return found[best][1] - price

    @cached_property
    def boosting(self) -> np.ndarray:
        from tightset.models.named import named_classifier

        model = named_classifier("hgb").fit(self.split.X_train, self.y_train)
        return _logs(model.predict_proba(self.X))

    def trained(self, task: Task, method: str, key: tuple[str, ...]) -> tuple[list[np.ndarray], list[bool]]:
        """Scores of a measure for each level, and whether it was accepted."""
        if key not in self._scores:
            plain, boosted = method.endswith("-plain"), method == "hgb-asked"
            how = {} if method.startswith("size") else dict(task.how)
            how |= {"search": Search(unfold=False)} if plain else {}
            how |= {"estimator": "hgb", "search": "fast"} if boosted else {"device": self.device}
            clf = SCPOClassifier(LEVELS, random_state=self.seed, verbose=False, **how)
            n_cal = len(self.split.y_cal)
            by_group = task.groups is not None
            groups = {"groups": task.groups[0], "groups_cal": task.groups[1][:n_cal]} if task.groups else {}
            if by_group and method.startswith("size"):
                groups = {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # 95 % asks for more calibration rows than some labels have
                clf.fit(task.X_train, self.y_train, X_cal=task.X[:n_cal], y_cal=self.y[:n_cal], **groups)
                fold, shared = clf.folds_[0], clf.fitted_.shared(range(len(task.X)))
                scores = [model.scores(task.X, shared) for model in fold.models]
            self._scores[key] = scores, [found.verdict.accepted for found in fold.record]
        return self._scores[key]

    def measure(self, question: Question) -> dict[str, Any]:
        """One row of results."""
        _, _, asked, variant, method, level = question
        task = self.task(asked, variant)
        if method == "asked-seen":
            task = task._replace(X_train=self.split.X_train, X=self.X)
        rows = variant if asked == "group" else ""
        accepted: Any = ""
        if method == "logistic":
            scores = self.rule(task, rows, level)
        elif method == "aps":
            p = np.exp(self.rule(task, rows, level))
            scores = OrdinalAPS()(p / p.sum(axis=1, keepdims=True))
        elif method == "hgb":
            scores = self.boosting
        else:
            of_size = method.startswith("size")
            key = (method, rows) if of_size else (method, asked, variant)
            every, were = self.trained(task, method, key)
            scores, accepted = every[LEVELS.index(level)], int(were[LEVELS.index(level)])
        scores = as_intervals(scores, task.order)
        return question._asdict() | self.counted(scores, task, level) | {"accepted": accepted}

    def counted(self, scores: np.ndarray, task: Task, level: float) -> dict[str, Any]:
        """Coverage and size over divisions of the rows that did not train."""
        y, n_cal = self.y, len(self.split.y_cal)
        group = np.zeros(len(y), dtype=int) if task.groups is None else task.groups[1]
        category = y if task.by_label else group
        rng = np.random.default_rng([self.seed, 1])
        covered, spent, single, of_category = [], [], [], []
        for _ in range(DIVISIONS):
            order = rng.permutation(len(y))
            cal, test = order[:n_cal], order[n_cal:]
            how: Any = {} if task.groups is None else {"groups": group[cal]}
            calibration = Calibration.of(scores[cal], y[cal], by_label=task.by_label, **how)
            sets = calibration.sets(scores[test], level, groups=None if task.groups is None else group[test])
            hit = sets[np.arange(len(test)), y[test]]
            covered.append(hit.mean())
            spent.append((sets if task.price is None else sets * task.price).sum(axis=1).mean())
            single.append((sets.sum(axis=1) == 1).mean())
            rows = np.bincount(category[test], minlength=category.max() + 1)
            of_category.append(np.bincount(category[test], hit, minlength=len(rows)) / np.maximum(rows, 1))
        return {
            "n_cal": n_cal,
            "n_test": len(y) - n_cal,
            "coverage": np.mean(covered),
            "worst_coverage": np.min(np.mean(of_category, axis=0)),
            "inefficiency": np.mean(spent),
            "single": np.mean(single),
        }


def _logs(p: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.clip(p, 1e-30, 1.0)))


def _cost(question: Question) -> float:
    return COSTS[question.dataset] * {"logistic": 0.05, "aps": 0.02, "hgb": 0.1, "hgb-asked": 2.0}.get(
        question.method, 1.0
    )


ASKED = Study(Question._fields, COLUMNS, Workshop, _cost)
