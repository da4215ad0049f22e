"""Cross-fitting: a classifier trained on the rows of every fold, and on all rows.

Scores of a row come from models that have not seen it; in-sample ones would be far too good. The models of the folds
are kept: averaged with the one trained on all rows, they are a better classifier than that alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed

from tightset.compute.progress import Progress
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
    spread_of,
)
from tightset.models.classifiers import Trained, fit_base, warn_of_broken
from tightset.models.routing import without_requests
from tightset.models.side_by_side import as_before, as_on_all, jobs_of

__all__ = ["WHOLE", "CrossFitted", "CrossFitting", "cross_fit"]

WHOLE = 0.5  # weight of the model of all rows among those of the folds


class CrossFitted(NamedTuple):
    """A classifier trained on all rows, and averaged with those of the folds; held-out scores of both, ``(k, C)``.

    ``given`` is whether it was trained before, on other rows.
    """

    name: str
    whole: Averaged
    averaged: Averaged
    held_out_whole: np.ndarray
    held_out_averaged: np.ndarray
    given: bool = False

    def take(self, index: np.ndarray) -> Self:
        """With the held-out scores of some rows, in another order."""
        return self._replace(held_out_whole=self.held_out_whole[index], held_out_averaged=self.held_out_averaged[index])


class CrossFitting(NamedTuple):
    """How classifiers are cross-fitted: ``folds (repeats, k)``, random numbers, jobs, and who watches."""

    classes: np.ndarray
    folds: np.ndarray
    rng: np.random.Generator
    progress: Progress
    n_jobs: int | None = None


def cross_fit(estimator: Any, X: Any, y: np.ndarray, weight: np.ndarray | None, how: CrossFitting) -> CrossFitted:
    """Train on the rows outside each fold and on all rows; ``y (k,)`` in ``0 ... C - 1``.

    The held-out score of a row is that of the model whose fold it is; averaged over the repeats, whose folds differ, it
    is that of an average of models, none of which has seen the row. Without folds they are in-sample, and say nothing.
    """
    classes, folds, rng, progress, n_jobs = how
    given = isinstance(estimator, str)
    name = "given scores" if given else name_of(estimator)
    if given or isinstance(estimator, FrozenEstimator):
        model = Given(classes) if given else without_requests(estimator)
        scores = class_scores(model, X, classes)
        scale = None if are_probabilities(scores) else spread_of(scores)
        whole, clipped = (Averaged([model], np.ones(1), classes, scale, least) for least in (TINY, LEAST_GIVEN))
        held, held_clipped = (as_logs(scores, scale, one.least) for one in (whole, clipped))
        return CrossFitted(name, whole, clipped, held, held_clipped, given=True)
    n_folds = folds.max(initial=-1) + 1
    parts = [(repeat, fold, folds[repeat] != fold) for repeat in range(len(folds)) for fold in range(n_folds)]
    parts.append((-1, -1, np.ones(len(y), dtype=bool)))  # all rows
    seeds = rng.integers(2**31, size=len(parts)).tolist()
    progress.expect(len(parts))
    held_out = np.empty((len(folds), len(y), len(classes)))
    in_fold = int(parts[0][2].sum())
    told = as_on_all(estimator, in_fold, len(y))
    all_trained: list[Trained] = []

    def train(fold: int, rows: np.ndarray, seed: int) -> tuple[Trained, np.ndarray | None]:
        at, rest = np.flatnonzero(rows), np.flatnonzero(~rows)
        where = f"outside fold {fold + 1} of {n_folds}" if fold >= 0 else "that train"
        done = "trained on"
        try:
            own_weight = None if weight is None else weight[at]
            trained = fit_base(told, _safe_indexing(X, at), classes[y[at]], own_weight, seed=seed)
            if not len(rest):
                return trained, None
            done = "used on rows that it has not seen, once trained on"
            return trained, class_scores(trained.model, _safe_indexing(X, rest), classes)
        except Exception as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{name} could not be {done} the {len(at)} rows {where}: {type(error).__name__}: {error}"
            ) from error

    columns = X.shape[1] if getattr(X, "ndim", 1) == 2 else 1  # texts have one
    jobs = Parallel(**jobs_of(estimator, in_fold, columns, n_jobs), return_as="generator")(
        delayed(train)(*part[1:], seed) for part, seed in zip(parts, seeds, strict=True)
    )
    with warnings.catch_warnings():  # threads that set filters restore those of each other
        for (repeat, _, rows), (trained, scores) in zip(parts, _closing(jobs), strict=True):
            as_before(trained.model, estimator, in_fold, len(y))
            all_trained.append(trained)
            if scores is not None:
                held_out[repeat, ~rows] = scores
            progress.advance()
    warn_of_broken(name, all_trained)
    models = [one.model for one in all_trained]
    if not len(folds):
        held_out = class_scores(models[-1], X, classes)[None]
    lowest = float(held_out.min(initial=np.inf, where=np.isfinite(held_out)))
    held_out[np.isneginf(held_out)] = lowest  # a class that a fold has not seen
    scale = None if are_probabilities(held_out.reshape(-1, len(classes))) else spread_of(held_out[0])
    weights = np.append(np.full(len(models) - 1, (1 - WHOLE) / max(len(models) - 1, 1)), WHOLE)
    return CrossFitted(
        name,
        Averaged(models[-1:], np.ones(1), classes, scale, TINY, lowest),
        Averaged(models, weights, classes, scale, LEAST, lowest),
        as_logs(held_out[0], scale, TINY),
        as_logs(held_out.mean(axis=0), scale),
    )


def _closing(jobs: Any) -> Iterator[Any]:
    """The results one by one; what is left is cancelled if something goes wrong."""
    try:
        yield from jobs
    finally:
        jobs.close()
