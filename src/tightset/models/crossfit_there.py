"""Cross-fitting where rows lie: classifiers are trained and used by the workers that have the rows.

What `crossfit` does of rows in memory. Held-out scores stay with the workers, beside the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing

from tightset.compute.rows import Kept, RowSource
from tightset.models.class_scores import (
    LEAST,
    LEAST_GIVEN,
    TINY,
    Averaged,
    Given,
    are_probabilities,
    as_logs,
    class_scores,
    name_of,
    spread_between,
)
from tightset.models.classifiers import untrained
from tightset.models.cluster import fit_on_cluster, needs_cluster, without_cluster
from tightset.models.crossfit import WHOLE, CrossFitted, CrossFitting
from tightset.models.routing import Unweighted, without_requests

__all__ = ["HeldOutThere", "can_be_trained_there", "cross_fit_there", "partial_fit"]


class HeldOutThere(NamedTuple):
    """Held-out scores ``(repeats, n, C)`` of every partition, and how they are made into log-probabilities."""

    scores: Kept
    scale: float | None
    lowest: float
    least: float

    def logs(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the model of all rows, and of the average, ``(n, C)``, from the scores of a partition."""
        held = np.where(np.isneginf(scores), self.lowest, scores)
        return as_logs(held[0], self.scale, TINY), as_logs(held.mean(axis=0), self.scale, self.least)

    def of_some(self, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same of rows that a mask takes, in memory."""
        found = self.scores.each(_some, taken)
        return self.logs(np.concatenate(found, axis=1))


def can_be_trained_there(estimator: Any) -> bool:
    """Whether a classifier need not have its rows in memory; one that is trained already need not, either."""
    inner = estimator.estimator if isinstance(estimator, Unweighted) else estimator
    return isinstance(inner, (str, FrozenEstimator)) or needs_cluster(inner) or hasattr(inner, "partial_fit")


def cross_fit_there(
    estimator: Any, X: RowSource, y: np.ndarray, weight: np.ndarray | None, how: CrossFitting
) -> tuple[CrossFitted, HeldOutThere]:
    """As `crossfit.cross_fit`, but for the held-out scores, which are empty there."""
    classes, folds, rng, progress, _ = how
    if isinstance(estimator, Unweighted):
        weight = estimator.weight(classes[y])
        estimator = estimator.estimator
    given = isinstance(estimator, (str, FrozenEstimator))
    if given:
        models = [Given(classes) if isinstance(estimator, str) else without_requests(without_cluster(estimator))]
        name, least, weights = "given scores" if isinstance(estimator, str) else name_of(estimator), LEAST_GIVEN, None
        kept = X.kept(partial(_given_scores, models[0], classes))
    else:
        n_folds = int(folds.max()) + 1
        parts = [(repeat, fold) for repeat in range(len(folds)) for fold in range(n_folds)]
        seeds = rng.integers(2**31, size=len(parts) + 1).tolist()
        progress.expect(len(seeds))
        name, least = name_of(without_cluster(estimator)), LEAST
        train = _by_cluster if needs_cluster(estimator) else _in_parts
        try:
            models = train(estimator, X, y, weight, how, parts, seeds)
        except Exception as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            where = f"the {len(y):,} rows of the collection, or those outside a fold"
            raise kind(f"{name} could not be trained on {where}: {type(error).__name__}: {error}") from error
        kept = X.kept(partial(_held_out, models, classes, n_folds), *folds)
        weights = np.append(np.full(len(parts), (1 - WHOLE) / len(parts)), WHOLE)
    lowest = -np.inf if given else float(min(kept.each(_lowest)))  # minus infinity stays what it is
    scale = None if all(kept.each(partial(_probable, lowest))) else _spread(kept, lowest)
    of_unseen = 0.0 if given else lowest
    whole = Averaged(models[-1:], np.ones(1), classes, scale, TINY, of_unseen)
    averaged = Averaged(models, np.ones(1) if weights is None else weights, classes, scale, least, of_unseen)
    nothing = np.empty((0, len(classes)))
    return CrossFitted(name, whole, averaged, nothing, nothing, given), HeldOutThere(kept, scale, lowest, least)


def _by_cluster(
    estimator: Any,
    X: RowSource,
    y: np.ndarray,
    weight: np.ndarray | None,
    how: CrossFitting,
    parts: Sequence[tuple[int, int]],
    seeds: Sequence[int],
) -> list[Any]:
    """The models of the folds and that of all rows, each by all workers, one after the other."""
    models = []
    for (repeat, fold), seed in zip([*parts, (0, -1)], seeds, strict=True):
        rows = how.folds[repeat] != fold  # none is in fold -1
        own_weight = None if weight is None else weight[rows]
        models.append(fit_on_cluster(estimator, X.take(rows), y[rows], how.classes, own_weight, seed=seed))
        how.progress.advance()
    return models


def _in_parts(
    estimator: Any,
    X: RowSource,
    y: np.ndarray,
    weight: np.ndarray | None,
    how: CrossFitting,
    parts: Sequence[tuple[int, int]],
    seeds: Sequence[int],
) -> list[Any]:
    """The same by ``partial_fit``: one partition after the other, each shown to all models that may see it."""
    start = [untrained(without_requests(estimator), seed) for seed in seeds]
    show = partial(_show, how.classes, [*parts, (0, -1)])
    models: list[Any] = X.fold(show, start, y, weight, *how.folds)
    for _ in seeds:
        how.progress.advance()
    return models


def _show(
    classes: np.ndarray,
    parts: Sequence[tuple[int, int]],
    models: list[Any],
    X: Any,
    y: np.ndarray,
    weight: np.ndarray | None,
    *folds: np.ndarray,
) -> list[Any]:
    shown = []
    for (repeat, fold), model in zip(parts, models, strict=True):
        at = np.flatnonzero(folds[repeat] != fold)
        own = _safe_indexing(X, at), y[at], None if weight is None else weight[at]
        shown.append(partial_fit(classes, model, *own) if len(at) else model)
    return shown


def partial_fit(classes: np.ndarray, model: Any, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> Any:
    """A model that has seen some more rows, with labels ``y`` in ``0 ... C - 1``."""
    more = {} if sample_weight is None else {"sample_weight": sample_weight}
    return model.partial_fit(X, classes[y], classes=classes, **more)


def _given_scores(model: Any, classes: np.ndarray, X: Any) -> np.ndarray:
    return class_scores(model, X, classes)[None]


def _held_out(models: Sequence[Any], classes: np.ndarray, n_folds: int, X: Any, *folds: np.ndarray) -> np.ndarray:
    """Scores ``(repeats, n, C)`` by the models whose fold a row is."""
    found: Any = None
    for repeat, fold in enumerate(folds):
        for k in range(n_folds):
            at = np.flatnonzero(fold == k)
            if not len(at):
                continue
            scores = class_scores(models[repeat * n_folds + k], _safe_indexing(X, at), classes)
            if found is None:
                found = np.empty((len(folds), X.shape[0], len(classes)), dtype=scores.dtype)
            found[repeat, at] = scores
    return np.asarray(found)


def _some(scores: np.ndarray, taken: np.ndarray) -> np.ndarray:
    return scores[:, taken]


def _lowest(scores: np.ndarray) -> float:
    return float(scores.min(initial=np.inf, where=np.isfinite(scores)))


def _probable(lowest: float, scores: np.ndarray) -> bool:
    return are_probabilities(np.where(np.isneginf(scores), lowest, scores).reshape(-1, scores.shape[-1]))


def _spread(kept: Kept, lowest: float) -> float:
    """`spread_of` the scores of all partitions, of the first repeat."""
    largest = max(kept.each(partial(_largest, lowest)))
    sums = kept.each(partial(_variances, lowest, largest))
    return spread_between(largest, sum(one for one, _ in sums), sum(n for _, n in sums))


def _largest(lowest: float, scores: np.ndarray) -> float:
    first = np.where(np.isneginf(scores[0]), lowest, scores[0])
    return float(np.abs(first).max(initial=0.0, where=np.isfinite(first)))


def _variances(lowest: float, largest: float, scores: np.ndarray) -> tuple[float, int]:
    first = np.where(np.isneginf(scores[0]), lowest, scores[0])
    return float(np.sum(np.var(np.clip(first / (largest or 1.0), -1, 1), axis=1))), len(first)
