"""Rows beside classifiers that were cross-fitted on them, from which a search takes all rows or a sample.

A sample is searched where there are many rows; what it chose is trained on all of them, wherever they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.arrays import label_counts
from tightset.compute.progress import Progress
from tightset.compute.rows import MemoryRows
from tightset.conformal.splits import fold_of_rows, sample_of_rows
from tightset.exceptions import warn
from tightset.models.columns import as_numbers
from tightset.models.crossfit import CrossFitted, CrossFitting, cross_fit
from tightset.models.crossfit_there import HeldOutThere, cross_fit_there
from tightset.models.ensembles import beside
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows, normalised
from tightset.search.settings import Search

__all__ = ["CrossFittedRows", "cross_fitted", "on_a_sample"]


class CrossFittedRows(NamedTuple):
    """Rows in memory, sorted by label, with their weights as they were given; their folds, and held-out scores.

    ``numbers`` is whether the columns of all rows are numbers, and ``everything`` all rows if these are a sample.
    """

    given: TrainingRows
    fold: np.ndarray
    fitted: list[CrossFitted]
    numbers: bool
    everything: Everything | None = None

    @property
    def rows(self) -> TrainingRows:
        """The same with weights of mean 1."""
        if self.everything is not None:
            return self.given
        return replace(self.given, weight=normalised(self.given.weight))

    def columns(self) -> Any:
        """The columns of X as numbers, or None."""
        return as_numbers(self.given.X.gather()) if self.numbers else None

    def by_fold(self) -> Self:
        """In the order of folds, as training is fastest."""
        order = np.argsort(self.fold, kind="stable")
        fitted = [one.take(order) for one in self.fitted]
        return self._replace(given=self.given.take(order), fold=self.fold[order], fitted=fitted)

    def sampled(self, taken: np.ndarray) -> Self:
        """The rows that a mask takes, and all of them in the background."""
        at, rows = np.flatnonzero(taken), self.rows
        some = [one.take(at) for one in self.fitted]
        return type(self)(rows.take(at), self.fold[at], some, self.numbers, Everything(rows, self.fitted[0]))


class Everything(NamedTuple):
    """All training rows, beside one classifier: held-out scores are those of ``fitted``, or lie with the rows."""

    rows: TrainingRows
    fitted: CrossFitted
    there: HeldOutThere | None = None

    def stacked(self, columns: int, *, average: bool) -> TrainingRows:
        """As `StackedRows` has them: ``[columns of X | mixture | scores | averaged scores]``."""
        if self.there is not None:
            width = columns + 3 * len(self.rows.classes)
            X = self.there.scores.beside(partial(_stacked_there, self.there, columns > 0, average), width)
            return replace(self.rows, X=X)
        scores = self.fitted.held_out_whole, self.fitted.held_out_averaged
        return replace(self.rows, X=MemoryRows(_stacked(self.rows.X.gather() if columns else None, *scores, average)))


def cross_fitted(
    estimators: Sequence[Any],
    rows: TrainingRows,
    search: Search,
    runtime: Runtime,
    parts: Sequence[Progress],
    rng: np.random.Generator,
    *,
    sampled: bool,
    columns: bool,
) -> CrossFittedRows:
    """Classifiers cross-fitted on all rows, and if these are ``sampled`` some of them in memory."""
    repeats = search.repeats if search.average else 1
    n_folds = min(search.folds, len(rows))
    # Rows in memory are sorted by label; folds are dealt in that order wherever they lie.
    C, few = len(rows.classes), np.min_scalar_type(-2 * n_folds)
    in_order = np.repeat(np.arange(C, dtype=np.min_scalar_type(-C)), label_counts(rows.y, C))
    folds = np.stack([fold_of_rows(in_order, n_folds, rng, few) for _ in range(repeats)])
    del in_order
    taken = None
    if sampled:
        taken = np.zeros(len(rows), dtype=bool)
        taken[sample_of_rows(rows.y, search.rows, np.random.RandomState(list(runtime.seed)))] = True
    if rows.X.lazy and taken is not None:
        folds = _in_order_of(rows, folds)
    how = [CrossFitting(rows.classes, folds, rng, part, runtime.n_jobs) for part in parts]
    for part in parts:
        part.stage("fitting classifiers")
    if rows.X.lazy and taken is not None:
        return _there(estimators[0], rows, how[0], taken, columns=columns)
    given = rows.sorted()
    raw = given.X.gather()
    fitted = [cross_fit(one, raw, given.y, given.weight, own) for one, own in zip(estimators, how, strict=True)]
    found = CrossFittedRows(given, folds[0], fitted, columns and as_numbers(raw) is not None)
    return found if taken is None else found.sampled(taken[np.argsort(rows.y, kind="stable")])


def _there(
    estimator: Any, rows: TrainingRows, how: CrossFitting, taken: np.ndarray, *, columns: bool
) -> CrossFittedRows:
    """Rows that lie elsewhere, a sample of which is in memory."""
    fitted, held_out = cross_fit_there(estimator, rows.X, rows.y, rows.weight, how)
    everything = Everything(replace(rows, weight=normalised(rows.weight)), fitted, held_out)
    whole, averaged = held_out.of_some(taken)
    numbers = columns and all(rows.X.map(_are_numbers))
    y = rows.y[taken]
    order = np.argsort(y, kind="stable")
    fitted = fitted._replace(held_out_whole=whole[order], held_out_averaged=averaged[order])
    sample = everything.rows.take(taken).sorted()
    return CrossFittedRows(sample, how.folds[0][taken][order], [fitted], numbers, everything)


def _in_order_of(rows: TrainingRows, folds: np.ndarray) -> np.ndarray:
    """Folds ``(repeats, k)`` of rows that are sorted by label, as they are in memory, for these as they lie."""
    found = np.empty_like(folds)
    first = 0
    for label, count in enumerate(label_counts(rows.y, len(rows.classes))):
        found[:, rows.y == label] = folds[:, first : first + count]
        first += count
    return found


def _are_numbers(X: Any) -> bool:
    return as_numbers(X) is not None


def _stacked(X: Any, whole: np.ndarray, averaged: np.ndarray, average: bool) -> Any:
    second = averaged if average else whole
    return beside([*([] if X is None else [as_numbers(X)]), second, whole, second])


def _stacked_there(there: HeldOutThere, columns: bool, average: bool, X: Any, scores: np.ndarray) -> Any:
    return _stacked(X if columns else None, *there.logs(scores), average)


def on_a_sample(search: Any, rows: TrainingRows, aim: Aim, settings: Search, runtime: Runtime, name: str) -> Outcome:
    """A search of rows that lie elsewhere, in memory: of all, or of a sample if they are many, which is then said."""
    some = rows
    if settings.samples(len(rows)):
        sample = sample_of_rows(rows.y, settings.rows, np.random.RandomState(list(runtime.seed)))
        some = rows.take(sample)
        warn(
            f"{name} cannot be trained where the rows of a Dask collection lie, so it is trained on a sample of "
            f"{len(some):,} of {len(rows):,} training rows: give Search(rows=...) for more of them, or a classifier "
            "with partial_fit, lightgbm.DaskLGBMClassifier or xgboost.dask.DaskXGBClassifier to train on all"
        )
    outcome: Outcome = search(replace(some, X=MemoryRows(some.X.gather())), aim, settings, runtime)
    if some is rows:
        return outcome
    records: Sequence[Any] = outcome.record or ()
    found = [one._replace(sample=(len(some), len(rows)), refined=False) for one in records]
    return Outcome(outcome.models, found)
