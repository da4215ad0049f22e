"""Side by side with other libraries: the same classifiers, splits and levels, on the seven data sets.

A classifier is trained once a split and given to MAPIE, crepes, puncc and `ConformalClassifier`, each called as its own
documentation says; `SCPOClassifier` trains it itself. ``mean_size`` and ``coverage`` are those of the split's own
calibration and test rows. Where we have the scores there is also the mean over divisions of those rows at random,
which averages out most of what the choice of calibration rows does to a size.
"""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator

from studies.datasets import load
from studies.efficiency import COSTS, DIVISIONS
from studies.experiments import LEVELS
from studies.recipes import DATASETS
from studies.runner import Study
from tightset.conformal.calibration import Calibration
from tightset.estimators.conformal import ConformalClassifier
from tightset.estimators.scpo import SCPOClassifier
from tightset.models.contract import Shared

__all__ = ["BASES", "PEERS", "PEER_METHODS", "TRAINED", "Peer", "plan"]

PEER_METHODS = ("mapie-lac", "mapie-aps", "mapie-raps", "crepes", "puncc")
TRAINED = ("hgb", "rf", "lightgbm")  # classifiers that SCPO is trained on top of


def _hgb(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


def _rf(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, verbose=-1)


def _scaled(classifier: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), classifier)


def _logistic(seed: int) -> Any:  # noqa: ARG001
    from sklearn.linear_model import LogisticRegression

    return _scaled(LogisticRegression(max_iter=1000))


def _mlp(seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return _scaled(MLPClassifier(random_state=seed))


BASES: dict[str, Callable[[int], Any]] = {
    "logistic": _logistic,
    "hgb": _hgb,
    "rf": _rf,
    "mlp": _mlp,
    "lightgbm": _lightgbm,
}


class Peer(NamedTuple):
    """What is measured: the key of a row. ``base`` is one of `BASES` or ``auto``.

    ``method`` is ``lac`` (`ConformalClassifier`), ``scpo``, ``averaged`` (what SCPO starts from: the classifier
    averaged over folds, its probabilities thresholded), or one of `PEER_METHODS`.
    """

    dataset: str
    seed: int
    base: str
    method: str
    confidence: float


COLUMNS = (
    *Peer._fields,
    "n_cal",
    "n_test",
    "coverage",
    "mean_size",
    "coverage_divided",  # means over random divisions of calibration and test rows
    "mean_size_divided",
    "equals_lac",  # whether the sets are those of ConformalClassifier on the same classifier
    "train_seconds",  # all levels
    "seconds",  # calibrating and predicting, all levels; of libraries on the first split only
    "peak_megabytes",  # that Python allocated for that, first split only
)


def plan(seeds: Iterable[int] = range(5), datasets: Iterable[str] = DATASETS) -> list[Peer]:
    """The table of experiments, in order, split by split: what was trained first, then the peers."""
    rows = []
    for seed in seeds:
        for name in datasets:
            pairs = [("auto", "scpo")]
            for base in BASES:
                pairs += [(base, "lac")] + [(base, "scpo"), (base, "averaged")] * (base in TRAINED)
                pairs += [(base, peer) for peer in PEER_METHODS if base != "lightgbm" and _possible(name, peer)]
            rows += [Peer(name, seed, base, method, level) for base, method in pairs for level in LEVELS]
    return rows


def _possible(dataset: str, method: str) -> bool:
    return DATASETS[dataset].labels > 2 or method not in ("mapie-aps", "mapie-raps")  # which it offers for no fewer


class _Measured(NamedTuple):
    sets: list[np.ndarray | None]  # (n, C) for each level; None where the library refuses
    scores: list[np.ndarray] | None  # of calibration and test rows, for each level
    train_seconds: float
    seconds: float
    megabytes: float


class Workshop:
    """One data set at one seed: parts, classifiers and sets, made when first needed and kept for the rows after."""

    def __init__(self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None) -> None:  # noqa: ARG002
        self.dataset, self.seed = dataset, seed
        self.split = load(dataset, seed, data_dir)
        self.classes = np.unique(self.split.y_train)
        self.y_cal, self.y_test = (np.searchsorted(self.classes, y) for y in (self.split.y_cal, self.split.y_test))
        self._classifiers: dict[str, tuple[Any, float]] = {}
        self._measured: dict[tuple[str, str], _Measured] = {}

    @cached_property
    def divisions(self) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, 1])
        return [rng.permutation(len(self.y_cal) + len(self.y_test)) for _ in range(DIVISIONS)]

    def classifier(self, base: str) -> tuple[Any, float]:
        """A trained classifier, on labels ``0 ... C - 1``, and the seconds that it took."""
        if base not in self._classifiers:
            model = BASES[base](self.seed)
            y = np.searchsorted(self.classes, self.split.y_train)
            start = time.perf_counter()
            model.fit(self.split.X_train, y)
            self._classifiers[base] = model, time.perf_counter() - start
        return self._classifiers[base]

    def measured(self, base: str, method: str) -> _Measured:
        if (base, method) not in self._measured:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # too few calibration rows for 99 %, unconverged networks
                if method in ("scpo", "averaged"):
                    self._train(base)
                else:
                    self._measured[base, method] = self._wrap(base, method)
        return self._measured[base, method]

    def _train(self, base: str) -> None:
        s, y = self.split, np.searchsorted(self.classes, self.split.y_train)
        estimator = "auto" if base == "auto" else BASES[base](self.seed)
        clf = SCPOClassifier(LEVELS, estimator=estimator, random_state=self.seed, verbose=False)
        start = time.perf_counter()
        clf.fit(s.X_train, y, X_cal=s.X_cal, y_cal=self.y_cal)
        trained = time.perf_counter()
        clf.calibrate(s.X_cal, self.y_cal)
        sets = list(clf.predict_set(s.X_test))
        seconds = time.perf_counter() - trained
        X = np.concatenate([s.X_cal, s.X_test])
        shared, models = Shared(clf.classes_), clf.folds_[0].models
        scores = [model.scores(X, shared) for model in models]
        self._measured[base, "scpo"] = _Measured(sets, scores, trained - start, seconds, 0.0)
        blocks = [block for model in models for block in model.blocks if len(getattr(block, "models", ())) > 1]
        averaged = blocks[0] if blocks else None
        if base != "auto" and averaged is not None:
            P, n = shared.once(averaged, X), len(self.y_cal)
            sets = [Calibration.of(P[:n], self.y_cal).sets(P[n:], level) for level in LEVELS]
            self._measured[base, "averaged"] = _Measured(sets, [P] * len(LEVELS), 0.0, 0.0, 0.0)
        else:  # no level has kept it
            self._measured[base, "averaged"] = _Measured([None] * len(LEVELS), None, 0.0, 0.0, 0.0)

    def _wrap(self, base: str, method: str) -> _Measured:
        s = self.split
        model, train_seconds = self.classifier(base)

        def native(levels: Sequence[float]) -> Any:
            return _CALLS[method](model, s.X_cal, self.y_cal, s.X_test, levels, self.seed)

        possible = list(LEVELS)
        try:
            result = native(possible)
        except ValueError:  # too few calibration rows for one of the levels, by the library's own count
            possible = [level for level in LEVELS if self._accepts(native, level)]
            result = native(possible)
        seconds, megabytes = 0.0, 0.0
        if self.seed == 0:  # again, now that everything is imported; and again, since watching memory takes time
            start = time.perf_counter()
            native(possible)
            seconds = time.perf_counter() - start
            tracemalloc.start()
            native(possible)
            megabytes = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
        found = dict(zip(possible, (_as_sets(one, len(self.classes)) for one in result), strict=True))
        scores: list[np.ndarray] | None = None
        if method == "lac":
            scores = [model.predict_proba(np.concatenate([s.X_cal, s.X_test]))] * len(LEVELS)
        return _Measured([found.get(level) for level in LEVELS], scores, train_seconds, seconds, megabytes)

    @staticmethod
    def _accepts(native: Callable[[Sequence[float]], Any], level: float) -> bool:
        try:
            native([level])
        except ValueError:
            return False
        return True

    def measure(self, experiment: Peer) -> dict[str, Any]:
        """One row of results."""
        at = LEVELS.index(experiment.confidence)
        sets, scores, train_seconds, seconds, megabytes = self.measured(experiment.base, experiment.method)
        row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | experiment._asdict()
        if scores is not None:
            row["coverage_divided"], row["mean_size_divided"] = self._divided(scores[at], experiment.confidence)
        found, lac = sets[at], self.measured(experiment.base, "lac").sets[at] if experiment.base != "auto" else None
        if found is not None:
            row["coverage"] = found[np.arange(len(self.y_test)), self.y_test].mean()
            row["mean_size"] = found.sum(axis=1).mean()
            if experiment.method in PEER_METHODS and lac is not None:
                row["equals_lac"] = np.array_equal(found, lac)
        return row | {
            "n_cal": len(self.y_cal),
            "n_test": len(self.y_test),
            "train_seconds": round(train_seconds, 3) or "",
            "seconds": round(seconds, 4) or "",
            "peak_megabytes": round(megabytes, 2) or "",
        }

    def _divided(self, scores: np.ndarray, level: float) -> tuple[float, float]:
        y, n = np.concatenate([self.y_cal, self.y_test]), len(self.y_cal)
        covered, sizes = [], []
        for order in self.divisions:
            cal, test = order[:n], order[n:]
            sets = Calibration.of(scores[cal], y[cal]).sets(scores[test], level)
            covered.append(sets[np.arange(len(test)), y[test]].mean())
            sizes.append(sets.sum(axis=1).mean())
        return float(np.mean(covered)), float(np.mean(sizes))


def _ours(model: Any, X_cal: Any, y_cal: np.ndarray, X: Any, levels: Sequence[float], seed: int) -> np.ndarray:
    clf = ConformalClassifier(FrozenEstimator(model), confidence=levels, random_state=seed).fit(X_cal, y_cal)
    return np.asarray(clf.predict_set(X))


def _mapie(score: str) -> Callable[..., np.ndarray]:
    def call(model: Any, X_cal: Any, y_cal: np.ndarray, X: Any, levels: Sequence[float], seed: int) -> np.ndarray:
        from mapie.classification import SplitConformalClassifier

        mapie = SplitConformalClassifier(
            model, confidence_level=list(levels), conformity_score=score, prefit=True, random_state=seed
        )
        mapie.conformalize(X_cal, y_cal)
        return np.moveaxis(mapie.predict_set(X)[1], 2, 0)

    return call


def _crepes(model: Any, X_cal: Any, y_cal: np.ndarray, X: Any, levels: Sequence[float], seed: int) -> np.ndarray:
    from crepes import WrapClassifier

    wrapped = WrapClassifier(model)
    wrapped.calibrate(X_cal, y_cal, seed=seed)
    p = wrapped.predict_p(X, seed=seed)  # smoothed, as it is by default
    return np.stack([p >= 1 - level for level in levels])


def _puncc(model: Any, X_cal: Any, y_cal: np.ndarray, X: Any, levels: Sequence[float], seed: int) -> list[Any]:  # noqa: ARG001
    from deel.puncc.api.prediction import BasePredictor
    from deel.puncc.classification import LAC

    class Predictor(BasePredictor):
        def predict(self, X: Any, **how: Any) -> Any:
            return self.model.predict_proba(X, **how)

    puncc = LAC(Predictor(model, is_trained=True), train=False)
    puncc.fit(X_calib=X_cal, y_calib=y_cal)
    return [puncc.predict(X, alpha=1 - level)[1] for level in levels]


def _as_sets(result: Any, n_classes: int) -> np.ndarray:
    """What a library calls sets, as a bool array."""
    if isinstance(result, np.ndarray):
        return result
    sets = np.zeros((len(result), n_classes), dtype=bool)
    for row, labels in enumerate(result):
        sets[row, np.asarray(labels, dtype=int)] = True
    return sets


_CALLS: dict[str, Callable[..., Any]] = {
    "lac": _ours,
    "mapie-lac": _mapie("lac"),
    "mapie-aps": _mapie("aps"),
    "mapie-raps": _mapie("raps"),
    "crepes": _crepes,
    "puncc": _puncc,
}


def _cost(experiment: Peer) -> float:
    return COSTS[experiment.dataset] * {"scpo": 4.0 if experiment.base == "auto" else 2.0}.get(experiment.method, 0.2)


PEERS = Study(Peer._fields, COLUMNS, Workshop, _cost, packages=("lightgbm", "mapie", "crepes", "puncc"))
