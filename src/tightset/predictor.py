"""What every conformal classifier of this package shares: rows held aside, calibration, sets, p-values, evaluation.

A subclass says how scores are trained (`_train`) and computed (`_scores`); the guarantee is made here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset import metrics, notebook, pieces
from tightset.checking import (
    check_columns,
    check_folds,
    check_groups,
    check_labels,
    check_levels,
    check_weight,
    distinct_labels,
    dtypes_of,
    generator,
    label_codes,
    nearest_level,
    rows_to_hold,
    warn,
    warn_of_absent_labels,
    warn_of_few_rows,
)
from tightset.choice import stratified_split
from tightset.distributed import Partitions, as_they_are, is_dask, lazily
from tightset.icp import Calibration, significance
from tightset.inefficiency import as_inefficiency
from tightset.pieces import Asked, take
from tightset.storage import describe, save_model

__all__ = ["CalibrationRows", "ConformalPredictor", "Fold"]


CalibrationRows = tuple[Any, np.ndarray, np.ndarray | None]  # rows, labels, groups


class Fold(NamedTuple):
    """Models trained on some rows and calibrated on others: one of each for every trained level."""

    models: list[Any]
    calibrations: list[Calibration]
    record: Any = None
    trained: int | None = None  # rows, if they were trained on here


class ConformalPredictor(ClassifierMixin, BaseEstimator, ABC):
    """Base of `SCPOClassifier` and `ConformalClassifier`."""

    confidence: Any
    inefficiency: Any
    calibration_size: Any
    label_conditional: bool
    allow_empty: bool
    cv: Any
    random_state: Any
    levels_: tuple[Any, ...]
    classes_: np.ndarray
    trains_for_level = True

    # ---- what a subclass provides -------------------------------------------------------------------------------

    @abstractmethod
    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        """Rows in the form that `_train` and `_scores` take."""

    def _prepare(self) -> Callable[[Any], Any]:
        """What is done to a partition of rows before `_train` and `_scores` take it."""
        return as_they_are

    @abstractmethod
    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[Any], Any]:
        """Models for ``levels_`` (one for each, or a single one for all), and a record of how they came about."""

    def _classes(self, X: Any, present: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """The classes that are scored, given those of ``y``."""
        return present

    @abstractmethod
    def _scores(self, model: Any, X: Any, known: dict[int, np.ndarray]) -> np.ndarray:
        """Conformity scores ``(n, C)``, none NaN. Models of other levels get the same ``known``, for what is shared."""

    def _calibrating(self) -> float:
        """The share of the calibration rows that calibrate; `_settle` takes the others."""
        return 1.0

    def _settle(self, models: list[Any], rows: CalibrationRows) -> tuple[list[Any], CalibrationRows]:
        """What a subclass still does to its models with the first calibration rows, and the rows that are left."""
        return models, rows

    # ---- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_cal: Any = None,
        y_cal: Any = None,
        groups: Any = None,
        groups_cal: Any = None,
    ) -> Any:
        """Train on some rows and calibrate on others.

        Parameters
        ----------
        X : rows. A Dask array or data frame stays where it is: see docs/distributed.md.
        y : their labels. Without ``X_cal`` a stratified part of the rows is held aside for calibration.
        sample_weight : weights ``(n,)`` for training. Rows of weight 0 are left out; calibration is unweighted,
            since the guarantee counts rows.
        X_cal : calibration rows of your own; then all of ``X`` trains.
        y_cal : their labels.
        groups : a value for each row; coverage then holds within each group (Mondrian), and the prediction methods
            need ``groups`` too.
        groups_cal : the groups of ``X_cal``.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, sample_weight, X_cal, y_cal, groups, groups_cal)
        except BaseException:
            self.__dict__ = before  # an earlier fit stays as it was
            raise
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        X_cal: Any,
        y_cal: Any,
        groups: Any,
        groups_cal: Any,
        classes: np.ndarray | None = None,
    ) -> None:
        self._check_parameters()
        X = self._rows(X, reset=True)
        y = check_labels(y)
        check_consistent_length(X, y)
        check_classification_targets(y)
        present = distinct_labels(y)
        if len(present) < 2:
            raise ValueError(f"y must hold at least two classes to train a classifier; got one class: {present[0]}")
        self.classes_ = self._classes(X, present) if classes is None else classes
        codes = label_codes(y, self.classes_, "y")
        groups = check_groups(groups, len(codes), "groups")
        sample_weight = check_weight(sample_weight, len(codes))
        used = np.ones(len(codes), dtype=bool) if sample_weight is None else sample_weight > 0

        if X_cal is None and y_cal is None:
            if groups_cal is not None:
                raise ValueError("groups_cal belongs to X_cal, which was not given; the groups of X are called groups")
            parts = [
                (train, (take(X, held), codes[held], take(groups, held)))
                for train, held in self._splits(codes, groups, used, in_order=isinstance(X, Partitions))
            ]
        else:
            if self.cv is not None:
                raise ValueError("cv takes calibration rows from X; give either cv or X_cal, not both")
            if X_cal is None or y_cal is None:
                raise ValueError("X_cal and y_cal belong together: give both or neither")
            if groups is not None and groups_cal is None:
                raise ValueError("groups_cal must be given with X_cal: coverage by group is made on calibration rows")
            rows = self._calibration_rows(X_cal, y_cal, groups_cal, "_cal")
            parts = [(np.flatnonzero(used), rows)]
        folds, calibrated = [], []
        for train, held in parts:
            if len(distinct_labels(codes[train])) < 2:
                raise ValueError(
                    f"only one class is left to train on: of {len(codes)} rows, {len(train)} train; give more rows "
                    "(n_samples = 1 of a class is not enough) or positive weights"
                )
            own = X if len(train) == X.shape[0] else take(X, train)  # a copy only of some
            models, record = self._train(own, codes[train], take(sample_weight, train))
            models, rows = self._settle(models, held)
            folds.append(Fold(models, self._calibrations(models, *rows), record, len(train)))
            calibrated.append(rows[1])
        self.folds_ = folds
        self._warn_of_calibration(np.concatenate(calibrated))

    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> Any:
        """Calibrate anew on these rows, without training again; they must not have been trained on."""
        check_is_fitted(self, "folds_")
        if len(self.folds_) > 1:
            raise ValueError(
                "calibrate needs a single trained model, but cv trained one for each fold; fit with cv=None"
            )
        rows = self._calibration_rows(X, y, groups)
        fold = self.folds_[0]
        self.folds_ = [fold._replace(calibrations=self._calibrations(fold.models, *rows))]
        self._warn_of_calibration(rows[1])
        return self

    def _calibrations(self, models: list[Any], X: Any, y: np.ndarray, groups: np.ndarray | None) -> list[Calibration]:
        if isinstance(X, Partitions):
            bare = copy(self)
            bare.folds_ = []
            of_parts = X.map(partial(pieces.own_scores, bare, models), y)
            own = [np.concatenate(parts) for parts in zip(*of_parts, strict=True)]
        else:
            own = pieces.own_scores(self, models, X, y)
        how: dict[str, Any] = {"by_label": self.label_conditional, "groups": groups}
        found = [Calibration.of_own(one, y, len(self.classes_), **how) for one in own]
        if self.cv is None:  # several folds have no threshold in common
            for calibration in found:
                calibration.find_thresholds(self.levels_)
        return found

    def _calibration_rows(self, X: Any, y: Any, groups: Any, suffix: str = "") -> CalibrationRows:
        X = self._rows(X, reset=False)
        y = self._encode(X, y, f"y{suffix}")
        return X, y, check_groups(groups, len(y), f"groups{suffix}")

    def _splits(
        self, y: np.ndarray, groups: np.ndarray | None, used: np.ndarray, *, in_order: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """(training rows, calibration rows) of each fold, without the rows of weight zero."""
        if self.cv is not None:
            # groups are categories of coverage here, not units that a splitter must keep together
            folds = check_folds(check_cv(self.cv, y, classifier=True).split(np.zeros((len(y), 1)), y), len(y))
            sort = np.sort if in_order else np.asarray
            return [(sort(train[used[train]]), sort(held[used[held]])) for train, held in folds]
        rows = np.flatnonzero(used)
        if len(rows) < 2:
            raise ValueError(f"at least two rows are needed, to train and to calibrate; got n_samples = {len(rows)}")
        size = rows_to_hold(self.calibration_size, len(rows), max(self.levels_, key=float), self._calibrating())
        strata = y[rows]
        if groups is not None:
            _, group_of = np.unique(groups[rows], return_inverse=True)
            strata = strata + len(self.classes_) * group_of
        train, held = stratified_split(strata, size, generator(self.random_state))
        return [(rows[train], rows[held])]

    def _warn_of_calibration(self, y: np.ndarray) -> None:
        """Say what makes sets larger than they could be: labels without calibration rows, or too few rows."""
        if not self.label_conditional:
            warn_of_absent_labels(y, self.classes_)
        self._warn_of_few_rows(max(self.levels_, key=float))

    def _warn_of_few_rows(self, strictest: Any) -> None:
        rows = Counter[tuple[Any, int]]()
        for fold in self.folds_:
            rows.update({key: len(alphas) for key, alphas in fold.calibrations[0].alphas.items()})
        warn_of_few_rows(rows, strictest, self.classes_)

    def _warn_if_stricter(self, levels: Sequence[Any]) -> None:
        """Levels up to the strictest of the constructor were looked at when the predictor was calibrated."""
        strictest = max(levels, key=float)
        if significance(strictest) < min(map(significance, self.levels_)):
            self._warn_of_few_rows(strictest)

    # ---- predicting ---------------------------------------------------------------------------------------------

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
        """Prediction sets: bool ``(n, n_classes)``, columns as ``classes_``.

        Parameters
        ----------
        X : rows.
        confidence : a level or several; by default those of the constructor. Several levels give
            ``(levels, n, n_classes)``.
        groups : the group of each row, if the predictor was calibrated group by group.
        smoothed : break ties at random, for an error rate of ``1 - confidence`` and not just at most that. With an
            integer ``random_state`` a row is treated alike at every call.
        as_labels : lists of arrays of labels in place of the bool array.
        as_frame : a data frame with the index of ``X`` and a column for each label: polars if ``X`` is polars, else
            pandas. With several levels ``frame[level]`` is that of a level: pandas has columns (confidence, label), and
            for polars there is a dict of frames. With ``as_labels`` there is one column ``set`` of lists of labels, or
            a column of them for each level.

        Notes
        -----
        Rows are scored in pieces of 8,192 to 65,536 here, in `predict_p`, `predict`, `evaluate` and calibration, so
        that memory does not grow with them but for what is returned. (A classifier whose probabilities of a row depend
        on the other rows of a call has no coverage guarantee, with or without pieces.)
        """
        if is_dask(X):
            notebook.refuse_dask(X, as_labels=as_labels, as_frame=as_frame)
            return self._lazily(pieces.sets, X, confidence, groups, smoothed, dtype=bool)
        levels, single = self._levels(confidence)
        rows, groups = self._check_new_rows(X, groups)
        self._warn_if_stricter(levels)
        sets = pieces.sets(self, self._asked(levels, smoothed), rows, groups)
        if as_frame:
            return notebook.as_frame(sets, X, self.classes_, levels, single=single, as_labels=as_labels)
        if as_labels:
            lists = notebook.lists_of_labels(sets, self.classes_)
            return lists[0] if single else lists
        return sets[0] if single else sets

    def predict_p(
        self, X: Any, *, confidence: Any = None, groups: Any = None, smoothed: bool = False, as_frame: bool = False
    ) -> Any:
        """Conformal p-values ``(n, n_classes)``: how unusual each label would be. They are not probabilities.

        A label is in the set at a level if its p-value exceeds ``1 - level``. With several trained levels there is
        a measure, and so an array of p-values, for each: ``(levels, n, n_classes)``. Sets are decided on whole
        ranks, so p-values rounded to float32 never move one. ``as_frame`` gives a data frame, as in `predict_set`.
        """
        if is_dask(X):
            notebook.refuse_dask(X, as_frame=as_frame)
            return self._lazily(pieces.p_values, X, confidence, groups, smoothed, dtype=np.float64)
        levels, single = self._levels(confidence)
        rows, groups = self._check_new_rows(X, groups)
        found = pieces.p_values(self, self._asked(levels, smoothed), rows, groups)
        if as_frame:
            return notebook.as_frame(found, X, self.classes_, levels, single=single)
        return found[0] if single else found

    def predict(self, X: Any) -> Any:
        """The most conforming label of each row, by the measure of the first level."""
        check_is_fitted(self, "folds_")
        if is_dask(X):
            return self._lazily(pieces.labels, X, self._levels(None)[0][0], dtype=self.classes_.dtype)
        X, _ = self._check_new_rows(X, None, need_groups=False)
        return pieces.labels(self, self._asked(self._levels(None)[0][:1]), X)[0]

    def evaluate(self, X: Any, y: Any, *, confidence: Any = None, groups: Any = None, smoothed: bool = False) -> Any:
        """One flat row (a dict) of what `tightset.metrics.evaluate` measures; a list of rows for several levels."""
        levels, single = self._levels(confidence)
        X, groups = self._check_new_rows(X, groups)
        self._warn_if_stricter(levels)
        y = self._encode(X, y, "y")
        asked = self._asked(levels, smoothed)
        if isinstance(X, Partitions):
            parts = X.map(partial(pieces.sets_and_p, self._as_it_is(), asked), groups)
            found = [pieces.joined(of_level) for of_level in zip(*parts, strict=True)]
        else:
            found = pieces.sets_and_p(self, asked, X, groups)
        rows = []
        for level, (sets, p) in zip(levels, found, strict=True):
            rows.append(
                metrics.evaluate(
                    sets,
                    y,
                    confidence=float(1 - significance(level)),
                    p=p,
                    f=as_inefficiency(self.inefficiency),
                    labels=self.classes_.tolist(),
                )
            )
        return rows[0] if single else rows

    def _lazily(
        self, function: Any, X: Any, confidence: Any, groups: Any = None, smoothed: bool = False, *, dtype: Any
    ) -> Any:
        """What a function of `pieces` gives for a Dask collection, as a Dask array that is still to be computed.

        Whatever is to be said or drawn at random is said and drawn here, and later changes of this object do not count.
        """
        check_is_fitted(self, "folds_")
        check_columns(self, X)
        levels, single = self._levels(confidence)
        shape: tuple[int, ...] = (0,)
        if function is not pieces.labels:
            groups = self._check_new_groups(groups)
            self._warn_if_stricter(levels)
            shape = (0, len(self.classes_)) if single else (len(levels), 0, len(self.classes_))
        empty = np.empty(shape, dtype=dtype)
        only_sets = function is pieces.sets and not smoothed and len(self.folds_) == 1
        then = self._as_it_is(levels if only_sets else None)
        ask = partial(pieces.of_partition, function, then, self._asked(levels, smoothed), empty)
        return lazily(ask, X, [groups], empty, shape.index(0), self._prepare())

    def _as_it_is(self, for_sets: Sequence[Any] | None = None) -> Any:
        """A copy for workers, which may outlast what is done to this object next; without what only people read.

        Where levels are given ``for_sets``, without the calibration scores too, which may be many.
        """
        result = copy(self)
        result.folds_ = [fold._replace(record=None) for fold in self.folds_]
        if for_sets is not None:
            slim = [one.for_sets(for_sets) for one in self.folds_[0].calibrations]
            result.folds_ = [result.folds_[0]._replace(calibrations=slim)]
        return result

    def _asked(self, levels: Sequence[Any], smoothed: bool = False) -> list[Asked]:
        """The levels with their measures and, if sets are smoothed, seeds. Warns where no measure was trained."""
        return [
            Asked(level, self._model_for(level), generator(self.random_state).randint(2**31) if smoothed else None)
            for level in levels
        ]

    def _model_for(self, level: Any) -> int:
        """Which of the trained measures serves a level: its own, or the one trained nearest to it."""
        if not self.trains_for_level:
            return 0
        at = nearest_level(level, self.levels_)
        if significance(level) != significance(self.levels_[at]):
            warn(
                f"no measure was trained for confidence {level}; the one for {self.levels_[at]} is used. The sets are "
                f"valid but may be larger than need be: fit with confidence={level} for smaller ones"
            )
        return at

    # ---- keeping ------------------------------------------------------------------------------------------------

    def save(self, path: Any, *, about: dict[str, Any] | None = None, trusted: Sequence[str] = ()) -> None:
        """Write the predictor to a file that `tightset.load` opens without running code; nothing half is written.

        Parameters
        ----------
        path : the file, by custom ``name.tightset``.
        about : what you want to say of the model, as JSON: where the rows come from, who trained it.
        trusted : full names of types that may be stored, beside those that are known as harmless; who loads the file
            must name them again.
        """
        check_is_fitted(self, "folds_")
        save_model(self, path, says={**describe(self), "about": about or {}}, trusted=trusted)

    # ---- showing ------------------------------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        return notebook.with_card(self, super()._repr_html_inner())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # unless scikit-learn was told to show text
            bundle["text/html"] = notebook.with_card(self, bundle["text/html"])
        return bundle

    # ---- checking -----------------------------------------------------------------------------------------------

    def _levels(self, confidence: Any) -> tuple[list[Any], bool]:
        """The levels asked for, and whether one was asked for by itself."""
        return check_levels(self.confidence if confidence is None else confidence)

    def _check_parameters(self) -> None:
        self.levels_ = tuple(self._levels(None)[0])
        as_inefficiency(self.inefficiency)
        if not isinstance(self.label_conditional, (bool, np.bool_)):
            raise ValueError(f"label_conditional must be True or False; got {self.label_conditional!r}")  # noqa: TRY004
        if not isinstance(self.allow_empty, (bool, np.bool_)):
            raise ValueError(f"allow_empty must be True or False; got {self.allow_empty!r}")  # noqa: TRY004

    def _rows(self, X: Any, *, reset: bool) -> Any:
        """Rows that were checked; of a Dask collection the first few are, and the others where they lie."""
        if isinstance(X, Partitions):
            return X
        if reset:
            self._dtypes = dtypes_of(X)
        if not is_dask(X):
            return self._check_rows(X, reset=reset)
        rows = Partitions.of(X, self._prepare())
        self._check_rows(rows.first_rows(), reset=reset)
        if reset:  # training passes over the rows many times; anything else sees them once, and says then what is wrong
            rows.check()
        return rows

    def _encode(self, X: Any, y: Any, name: str) -> np.ndarray:
        """Labels as indices of ``classes_``."""
        labels = check_labels(y, name)
        check_consistent_length(X, labels)
        return label_codes(labels, self.classes_, name)

    def _check_new_rows(self, X: Any, groups: Any, *, need_groups: bool = True) -> tuple[Any, np.ndarray | None]:
        check_is_fitted(self, "folds_")
        X = self._rows(X, reset=False)
        if not need_groups:
            return X, None
        return X, check_groups(self._check_new_groups(groups), X.shape[0], "groups")

    def _check_new_groups(self, groups: Any) -> Any:
        by_group = self.folds_[0].calibrations[0].by_group
        if by_group and groups is None:
            raise ValueError("groups must be given: the predictor was calibrated group by group")
        if groups is not None and not by_group:
            raise ValueError("groups were given, but the predictor was calibrated without; pass groups to fit too")
        if groups is not None:
            groups = check_labels(groups, "groups")
            known = {group for fold in self.folds_ for group, _ in fold.calibrations[0].alphas}
            unknown = sorted(set(groups.tolist()) - known, key=str)
            if unknown:
                warn(f"no calibration row is of group {', '.join(map(repr, unknown[:5]))}: its sets hold every label")
        return groups
