"""Prediction methods of a fitted conformal classifier: sets, p-values, labels, evaluation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset.compute.row_forms import as_they_are
from tightset.compute.row_kinds import RowKind
from tightset.compute.row_types import dtypes_of
from tightset.compute.rows import RowSource, lies_elsewhere, open_rows, refuse_lazy, rows_of
from tightset.conformal.ranks import significance
from tightset.conformal.tallies import Tally, added
from tightset.estimators import frames
from tightset.estimators.abstaining import Abstaining
from tightset.estimators.cautions import warn_of_few_rows, warn_of_unknown_labels
from tightset.estimators.checks import check_columns, check_groups, check_levels, generator, sound_rows
from tightset.estimators.fitted import Asked, Fitted, Fold, of_partition
from tightset.estimators.labels import check_labels, checked_labels, label_codes
from tightset.estimators.ordering import order_of
from tightset.estimators.spending import Measured
from tightset.exceptions import warn

__all__ = ["Predicting", "codes_of"]


class Predicting(Abstaining):
    """The part of `ConformalPredictor` that needs a fitted one."""

    confidence: Any
    inefficiency: Any
    allow_empty: bool
    assurance: Any
    random_state: Any
    fitted_: Fitted

    # ---- what a subclass provides -------------------------------------------------------------------------------

    @abstractmethod
    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        """Rows in the form in which they are trained on and scored."""

    def _prepare(self) -> Callable[[Any], Any]:
        """What is done to rows that lie elsewhere, where they lie, in place of that."""
        return as_they_are

    # ---- what was learnt ----------------------------------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        return self.fitted_.classes

    @property
    def levels_(self) -> tuple[Any, ...]:
        return self.fitted_.levels

    @property
    def folds_(self) -> Sequence[Fold]:
        return self.fitted_.folds

    # ---- answers ------------------------------------------------------------------------------------------------

    def predict_set(
        self,
        X: Any,
        *,
        confidence: Any = None,
        groups: Any = None,
        smoothed: bool = False,
        as_labels: bool = False,
        as_frame: bool = False,
    ) -> Any:
        """Return the prediction set of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            The rows.
        confidence : float or sequence of float, optional
            One level or several; by default those of the constructor.
        groups : array-like of shape (n_samples,), optional
            The group of each row, if the predictor was calibrated group by group.
        smoothed : bool, default False
            Break ties at random, for an error rate of exactly ``1 - confidence`` and not just at most that; not with
            ``assurance``. With an integer ``random_state`` a call repeats itself: the same row at the same place of
            ``X`` gets the same random number. If you predict a single row per call, leave ``random_state`` None or
            give a ``RandomState``; otherwise equal rows always share their number.
        as_labels : bool, default False
            Return lists of arrays of labels in place of the bool array; ordered labels are in their order.
        as_frame : bool, default False
            Return a data frame with the index of ``X`` and a column for each label: polars if ``X`` is polars, else
            pandas. With several levels ``frame[level]`` is the frame of one level: pandas has columns (confidence,
            label), and for polars there is a dict of frames. With ``as_labels`` there is one column ``set`` of lists of
            labels, or one such column for each level.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
            Whether each label is in the set of each row; columns as in ``classes_``. Several levels give
            ``(n_levels, n_samples, n_classes)``; ``as_labels`` and ``as_frame`` change the form, and a Dask collection
            gives a Dask array.

        Raises
        ------
        ValueError
            If a level is not between 0 and 1, or ``groups`` are missing or not expected.

        Notes
        -----
        Rows are scored in pieces of 8,192 to 65,536 here, in `predict_p`, `predict`, `evaluate` and calibration, so
        that memory does not grow with them but for what is returned. (A classifier whose probabilities of a row depend
        on the other rows of a call has no coverage guarantee, with or without pieces.)
        """
        if lies_elsewhere(X):
            refuse_lazy(X, as_labels=as_labels, as_frame=as_frame)
            return self._lazily("sets", X, confidence, groups, smoothed)
        levels, single = self.levels_asked(confidence)
        fitted = self._fitted()
        fitted.refuse_smoothed(smoothed)
        rows, groups = self._checked_rows(fitted, X, groups)
        self.warn_if_stricter(levels, fitted)
        asked = self._asked(fitted, levels, smoothed, X)
        sets = fitted.sets(asked, rows.gather(), groups, allow_empty=self.allow_empty)
        if as_frame:
            order = order_of(self) if as_labels else None
            sets, classes = frames.along(sets, self.classes_, order)
            return frames.as_frame(sets, X, classes, levels, single=single, as_labels=as_labels)
        if as_labels:
            lists = frames.lists_of_labels(*frames.along(sets, self.classes_, order_of(self)))
            return lists[0] if single else lists
        return sets[0] if single else sets

    def predict_p(
        self, X: Any, *, confidence: Any = None, groups: Any = None, smoothed: bool = False, as_frame: bool = False
    ) -> Any:
        """Return the conformal p-value of each label: how unusual it would be.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            The rows.
        confidence : float or sequence of float, optional
            Levels whose measures give the p-values; by default those of the constructor.
        groups : array-like of shape (n_samples,), optional
            The group of each row, if the predictor was calibrated group by group.
        smoothed : bool, default False
            Break ties at random, as in `predict_set`.
        as_frame : bool, default False
            Return a data frame, as in `predict_set`.

        Returns
        -------
        p_values : ndarray of shape (n_samples, n_classes)
            Columns as in ``classes_``. With several levels there is a measure, and so an array of p-values, for each:
            ``(n_levels, n_samples, n_classes)``. A Dask collection gives a Dask array.

        Notes
        -----
        P-values are not probabilities. A label is in the set at a level if its p-value exceeds ``1 - level``, or with
        ``assurance`` if it is at least ``(r + 1) / (n + 1)``, ``r`` being the rank of the threshold among ``n`` rows.
        Sets are decided on whole ranks, so rounding p-values to float32 never changes a set.
        """
        if lies_elsewhere(X):
            refuse_lazy(X, as_frame=as_frame)
            return self._lazily("p_values", X, confidence, groups, smoothed)
        levels, single = self.levels_asked(confidence)
        fitted = self._fitted()
        rows, groups = self._checked_rows(fitted, X, groups)
        found = fitted.p_values(self._asked(fitted, levels, smoothed, X), rows.gather(), groups)
        if as_frame:
            return frames.as_frame(found, X, self.classes_, levels, single=single)
        return found[0] if single else found

    def predict(self, X: Any) -> Any:
        """Return the most conforming label of each row, by the measure of the first level.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            One label for each row. A Dask collection gives a Dask array.
        """
        fitted = self._fitted()
        first = self.levels_asked(None)[0][0]
        if lies_elsewhere(X):
            return self._lazily("labels", X, first)
        rows = self._new_rows(X, fitted.kind)
        return fitted.labels(self._asked(fitted, [first]), rows.gather())[0]

    def evaluate(self, X: Any, y: Any, *, confidence: Any = None, groups: Any = None, smoothed: bool = False) -> Any:
        """Measure coverage, set size and more on labelled rows.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Rows that neither trained nor calibrated the predictor.
        y : array-like of shape (n_samples,)
            The labels. A row whose label was not in training counts as missed, since no set can hold that label; a
            warning says how many there are.
        confidence : float or sequence of float, optional
            One level or several; by default those of the constructor.
        groups : array-like of shape (n_samples,), optional
            The group of each row, if the predictor was calibrated group by group.
        smoothed : bool, default False
            Break ties at random, as in `predict_set`.

        Returns
        -------
        row : dict or list of dict
            What `tightset.metrics.evaluate` measures, as one flat dict; with several levels a list of them. The keys
            S, N, U, M, F, E, OU, OM, OF and OE are criteria of efficiency, each better when smaller: S is the mean sum
            of p-values, N the mean set size; `tightset.metrics.vovk_criteria` explains the others. With ``assurance``
            that is a key, too; with costs of labels so is ``mean_cost``, and ``inefficiency`` is ``f(cost)``; with
            ordered labels so are ``mean_width`` and what else `tightset.metrics.evaluate_intervals` measures.
        """
        levels, single = self.levels_asked(confidence)
        fitted = self._fitted()
        fitted.refuse_smoothed(smoothed)
        rows, groups = self._checked_rows(fitted, X, groups)
        self.warn_if_stricter(levels, fitted)
        codes = codes_of(rows, y, fitted.classes, "y", unknown="miss")
        asked = self._asked(fitted, levels, smoothed, X)
        ask = partial(fitted.slim().sets_and_p, asked, allow_empty=self.allow_empty)
        parts = rows.map(partial(_tallies, ask, Measured.of(self)), groups, range(rows.shape[0]), codes)
        if not parts:
            raise ValueError("X has no rows to evaluate on: give at least one")
        sums = [added(of_level) for of_level in zip(*parts, strict=True)]
        found = [Measured.row(one, level, fitted.assurance) for one, level in zip(sums, levels, strict=True)]
        return found[0] if single else found

    # ---- for what is built on a predictor -----------------------------------------------------------------------

    def levels_asked(self, confidence: Any) -> tuple[list[Any], bool]:
        """The levels asked for, by default those of the constructor, and whether one was asked for by itself."""
        return check_levels(self.confidence if confidence is None else confidence)

    def check_new_rows(self, X: Any, groups: Any) -> tuple[RowSource, np.ndarray | None]:
        """Rows and groups that were checked."""
        return self._checked_rows(self._fitted(), X, groups)

    def label_codes(self, rows: RowSource, y: Any, name: str, *, unknown: str = "raise") -> np.ndarray:
        """Labels as indices of ``classes_``; -1 for one that is not among them if ``unknown`` is not to raise."""
        return codes_of(rows, y, self.fitted_.classes, name, unknown=unknown)

    # ---- asking -------------------------------------------------------------------------------------------------

    def _lazily(self, what: str, X: Any, confidence: Any, groups: Any = None, smoothed: bool = False) -> Any:
        """What `Fitted` answers for rows that lie elsewhere, still to be computed.

        Whatever is to be said or drawn at random is said and drawn here, and later changes of this object do not count.
        """
        fitted = self._fitted()
        X = fitted.kind.in_its_units(X)
        check_columns(self, X)
        levels, single = self.levels_asked(confidence)
        shape: tuple[int, ...] = (0,)
        if what != "labels":
            fitted.refuse_smoothed(smoothed and what == "sets")
            groups = self._check_new_groups(fitted, groups)
            self.warn_if_stricter(levels, fitted)
            shape = (0, len(fitted.classes)) if single else (len(levels), 0, len(fitted.classes))
        asked = self._asked(fitted, levels, smoothed, X)
        filled = not self.allow_empty and fitted.by_label  # by p-values, which need the calibration scores
        slim = fitted.slim(levels if what == "sets" and not smoothed and not filled else None)
        ways: dict[str, tuple[Any, Any]] = {
            "sets": (partial(slim.sets, asked, allow_empty=self.allow_empty), bool),
            "p_values": (partial(slim.p_values, asked), np.float64),
            "labels": (partial(slim.labels, asked), fitted.classes.dtype),
        }
        function, dtype = ways[what]
        empty = np.empty(shape, dtype=dtype)
        rows = rows_of(X, self._prepare())
        return rows.answer(partial(of_partition, function, empty), [groups], empty, shape.index(0))

    def _fitted(self) -> Fitted:
        """What was learnt, once for all of an answer: another thread may calibrate anew meanwhile."""
        check_is_fitted(self, "fitted_")
        return self.fitted_

    def _checked_rows(self, fitted: Fitted, X: Any, groups: Any) -> tuple[RowSource, np.ndarray | None]:
        rows = self._new_rows(X, fitted.kind)
        return rows, check_groups(self._check_new_groups(fitted, groups), rows.shape[0], "groups")

    def _asked(self, fitted: Fitted, levels: Sequence[Any], smoothed: bool = False, of: Any = None) -> list[Asked]:
        # One seed for all levels: a row's ties are broken alike at each, so that sets grow with the level.
        seed = generator(self.random_state).randint(2**31) if smoothed else None
        return fitted.ask(levels, of, seed)

    # ---- checking -----------------------------------------------------------------------------------------------

    def _warn_of_few_rows(self, fitted: Fitted, strictest: Any) -> None:
        warn_of_few_rows(fitted.calibration_rows(), strictest, fitted.classes, fitted.assurance)

    def warn_if_stricter(self, levels: Sequence[Any], fitted: Fitted | None = None) -> None:
        """Levels up to the strictest of the constructor were looked at when the predictor was calibrated."""
        fitted, strictest = fitted or self.fitted_, max(levels, key=float)
        if significance(strictest) < min(map(significance, fitted.levels)):
            self._warn_of_few_rows(fitted, strictest)

    def _first_rows(self, X: Any) -> tuple[RowSource, RowKind]:
        """Rows that were checked, and what they are like; training passes over all of them, so each is looked at."""
        rows, first = open_rows(X, partial(self._checked, reset=True), self._prepare(), every=True)
        return rows, RowKind.of(dtypes_of(X), first, getattr(self, "feature_names_in_", None))

    def _new_rows(self, X: Any, kind: RowKind) -> RowSource:
        """Rows that were checked; of those that lie elsewhere the first few are, and the others where they lie."""
        X = kind.in_its_units(X)
        return open_rows(X, partial(self._checked, reset=False), self._prepare(), every=False)[0]

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return self._check_rows(sound_rows(X), reset=reset)

    def _check_new_groups(self, fitted: Fitted, groups: Any) -> Any:
        if fitted.by_group and groups is None:
            raise ValueError("groups must be given: the predictor was calibrated by group")
        if groups is not None and not fitted.by_group:
            raise ValueError("groups were given, but calibration had none; pass groups to fit or calibrate")
        if groups is not None:
            groups = check_labels(groups, "groups")
            known = {group for group, _ in fitted.calibration_rows()}
            unknown = sorted(set(groups.tolist()) - known, key=str)
            if unknown:
                warn(f"no calibration row has group {', '.join(map(repr, unknown[:5]))}: its sets contain all labels")
        return groups


def _tallies(
    ask: Callable[..., Sequence[Any]], measured: Measured, X: Any, groups: Any, positions: Any, y: np.ndarray
) -> list[Tally]:
    """What is measured of some rows at each level, computed where they lie."""
    return [measured.tally(sets, p, y) for sets, p in ask(X, groups, positions)]


def codes_of(rows: RowSource, y: Any, classes: np.ndarray, name: str, *, unknown: str) -> np.ndarray:
    """Labels of rows as indices of ``classes``; -1 for one that is not among them if ``unknown`` is not to raise."""
    labels = checked_labels(y, name)
    check_consistent_length(rows, labels)
    codes = label_codes(labels, classes, name, unknown=unknown)
    if (codes < 0).any():
        warn_of_unknown_labels(np.asarray(labels[codes < 0]), len(labels), name)
    return codes
