"""Other people's classifiers as one score for each class: probabilities or others, checked, averaged, as logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline

from tightset.compute.arrays import settle
from tightset.compute.threads import openmp_for
from tightset.models.routing import Unweighted
from tightset.storage.registry import storable

__all__ = [
    "LEAST",
    "LEAST_GIVEN",
    "PRECOMPUTED",
    "TINY",
    "Averaged",
    "Given",
    "are_probabilities",
    "as_logs",
    "class_scores",
    "innermost",
    "name_of",
    "spread_between",
    "spread_of",
]

PRECOMPUTED = "precomputed"
LEAST = 1e-5  # probabilities below are alike: a tree that says 0 has just not seen enough rows
LEAST_GIVEN = 1e-10  # not trees, perhaps, and sure of themselves
TINY = 1e-30  # for a classifier as it is: its own ranking, to the last


@storable
class Given:
    """A classifier whose scores are the rows themselves."""

    def __init__(self, classes: np.ndarray) -> None:
        self.classes_ = classes

    def decision_function(self, X: Any) -> np.ndarray:
        scores = np.asarray(X).view()
        scores.flags.writeable = False  # they are the user's
        return scores


def class_scores(model: Any, X: Any, classes: np.ndarray) -> np.ndarray:
    """Scores ``(n, C)``, columns as ``classes``; a class that the model has not seen conforms least."""
    name = "X" if isinstance(model, Given) else name_of(model)
    if not hasattr(model, "classes_"):
        raise ValueError(f"{name} has no classes_: it was not trained, or is not a classifier")
    with_probabilities = hasattr(model, "predict_proba")
    with openmp_for(X.shape[0]):
        given = model.predict_proba(X) if with_probabilities else model.decision_function(X)
    if np.ma.is_masked(given):
        raise ValueError(f"{name} returned masked scores; a score for each class is needed")
    scores = np.asarray(given)
    if scores.dtype.kind not in "fbiu" or scores.ndim not in (1, 2):
        raise ValueError(f"{name} must give an array of real scores, a column for each class; it gave {scores!r:.60}")
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.ndim == 1:  # two classes, one signed distance
        scores = np.stack([-scores, scores], axis=1)
    if len(scores) != X.shape[0]:
        raise ValueError(f"{name} gave {len(scores)} rows of scores for {X.shape[0]} rows of X")
    if scores.shape[1] != len(model.classes_):
        raise ValueError(
            f"{name} gave {scores.shape[1]} scores per row for {len(model.classes_)} classes; one per class is needed"
        )
    if np.isnan(scores).any():
        verb = "has" if isinstance(model, Given) else "gave"
        raise ValueError(
            f"{name} {verb} scores that are NaN, first in row {int(np.isnan(scores).any(axis=1).argmax())}"
        )
    if np.array_equal(model.classes_, classes):
        return scores
    unknown = set(np.asarray(model.classes_).tolist()) - set(classes.tolist())
    if unknown:
        raise ValueError(f"{name} predicts the classes {sorted(unknown, key=str)[:5]}, which y does not have")
    full = np.full((len(scores), len(classes)), 0.0 if with_probabilities else -np.inf, dtype=scores.dtype)
    full[:, np.searchsorted(classes, model.classes_)] = scores
    return full


def are_probabilities(scores: np.ndarray) -> bool:
    """Whether every row holds numbers from 0 to 1 that add up to 1."""
    return bool((scores >= 0).all() and (np.abs(scores.sum(axis=1) - 1) < 1e-3).all())


@storable
class Averaged(NamedTuple):
    """Classifiers whose probabilities are averaged, on a log scale; or scores, divided by a common ``scale``.

    ``scores`` gives ``log(max(sum_m w_m p_m, least))`` for probabilities, ``sum_m w_m a_m / scale`` for other scores.
    """

    models: Sequence[Any]
    weights: np.ndarray
    classes: np.ndarray
    scale: float | None  # None for probabilities
    least: float = LEAST
    lowest: float = 0.0  # score of a class that a model has not seen, where they are no probabilities

    def scores(self, X: Any) -> np.ndarray:
        total: Any = 0.0
        for model, weight in zip(self.models, self.weights, strict=True):
            scores = class_scores(model, X, self.classes)
            if scores.dtype == np.float32:
                scores = settle(scores)  # before a float64 makes digits of its rounding
            total = total + weight * np.where(np.isneginf(scores), self.lowest, scores).astype(np.float64)
        return as_logs(total, self.scale, self.least)


def as_logs(scores: np.ndarray, scale: float | None, least: float = LEAST) -> np.ndarray:
    if scale is None:
        return np.asarray(np.log(np.clip(scores, least, 1.0)))
    return np.clip(scores / scale, -1e6, 1e6)


def spread_of(scores: np.ndarray) -> float:
    """The typical distance between the scores of a row, so that scores of any unit come out alike."""
    largest = float(np.abs(scores).max(initial=0.0, where=np.isfinite(scores)))
    variances = np.var(np.clip(scores / (largest or 1.0), -1, 1), axis=1)
    return spread_between(largest, float(np.sum(variances)), len(scores))


def spread_between(largest: float, variances: float, rows: int) -> float:
    """The same from the largest score and the sum of the variances of so many rows, in units of the largest."""
    spread = largest * float(np.sqrt(variances / rows))
    return spread if spread > 0 else 1.0


def name_of(estimator: Any) -> str:
    return type(innermost(estimator)).__name__


def innermost(estimator: Any) -> Any:
    """The classifier inside pipelines, frozen ones and searches."""
    while isinstance(estimator, (Pipeline, FrozenEstimator, BaseSearchCV, Unweighted)):
        estimator = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator.estimator
    return estimator
