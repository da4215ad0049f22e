"""The base class of all conformal classifiers: held-out rows, training, calibration.

A subclass defines how models are trained (`_train`); the calibration that makes sets valid is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset.compute.arrays import label_counts
from tightset.compute.hashing import mark_of
from tightset.compute.row_rounding import types_by_value
from tightset.compute.row_types import dtypes_of
from tightset.compute.rows import RowSource
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.splits import calibration_mask
from tightset.estimators.calibrating import CalibrationRows, assured_errors, calibrate
from tightset.estimators.cautions import (
    warn_of_absent_labels,
    warn_of_labels_without_weight,
    warn_of_untrained_labels,
)
from tightset.estimators.checks import (
    check_assurance,
    check_folds,
    check_groups,
    check_weight,
    generator,
    group_codes,
    is_balanced,
    rows_to_hold,
    weighted_by_label,
)
from tightset.estimators.encoding_hint import explained
from tightset.estimators.fitted import Fitted, Fold
from tightset.estimators.keeping import Keeping
from tightset.estimators.labels import Labels, checked_labels, distinct_labels, label_codes
from tightset.estimators.ordering import check_order, check_order_as_fitted, check_order_of_categories
from tightset.estimators.predicting import Predicting, codes_of
from tightset.estimators.routing import Routing
from tightset.models.contract import Model
from tightset.search.problem import Outcome, TrainingRows

__all__ = ["ConformalPredictor", "GivenRows"]


@dataclass(frozen=True, eq=False)
class GivenRows:
    """What `fit` was given, as it was given."""

    X: Any
    y: Any
    sample_weight: Any = None
    X_cal: Any = None
    y_cal: Any = None
    groups: Any = None
    groups_cal: Any = None
    classes: np.ndarray | None = None  # those of a table, of which some may not be among the labels

    def only_rows(self) -> bool:
        """Whether there is nothing but rows, labels and groups."""
        return all(one is None for one in (self.sample_weight, self.X_cal, self.y_cal, self.groups_cal))


class ConformalPredictor(Predicting, Routing, Keeping, ClassifierMixin, BaseEstimator):
    """Base of `SCPOClassifier` and `ConformalClassifier`."""

    calibration_size: Any
    label_conditional: bool
    class_weight: Any
    cost: Any = None
    ordered: Any = False
    cv: Any
    trains_for_level = True  # a measure for each

    # ---- what a subclass provides -------------------------------------------------------------------------------

    @abstractmethod
    def _train(
        self, rows: TrainingRows, levels: Sequence[Any], estimator: Any, errors: Mapping[float, Fraction]
    ) -> Outcome:
        """Models for the levels (one for each, or a single one for all), and a record of how they came about.

        ``errors`` are what sets of a level should miss, where that is less than the level allows.
        """

    def _classes(self, X: RowSource, present: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """The classes that are scored, given those of ``y``."""
        return present

    def _one_for_all(self) -> bool:
        """Whether one measure serves every level."""
        return not self.trains_for_level

    def calibrating_share(self) -> float:
        """The share of the calibration rows that calibrate; `_settle` takes the others."""
        return 1.0

    def _settle(
        self,
        models: Sequence[Model],
        rows: CalibrationRows,
        fitted: Fitted,  # noqa: ARG002
    ) -> tuple[Sequence[Model], CalibrationRows]:
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
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            The rows. A Dask array or data frame stays where it is: see docs/distributed.md.
        y : array-like of shape (n_samples,)
            The labels. Without ``X_cal`` a random part of the rows is held aside for calibration.
        sample_weight : array-like of shape (n_samples,), optional
            Weights for training; rows of weight 0 are left out. Calibration is unweighted: the guarantee counts rows.
        X_cal : array-like, sparse matrix or Dask collection of shape (n_calibration, n_features), optional
            Calibration rows of your own; all of ``X`` then trains.
        y_cal : array-like of shape (n_calibration,), optional
            The labels of ``X_cal``.
        groups : array-like of shape (n_samples,), optional
            The group of each row. Coverage then holds within each group (Mondrian), and prediction needs ``groups``.
        groups_cal : array-like of shape (n_calibration,), optional
            The groups of ``X_cal``.

        Returns
        -------
        self : SCPOClassifier or ConformalClassifier
            The fitted predictor.
        """
        with self._whole_or_not_at_all():
            self.fit_given(GivenRows(X, y, sample_weight, X_cal, y_cal, groups, groups_cal))
        return self

    def fit_given(self, given: GivenRows) -> None:
        """As `fit`, which this is for what is built on a predictor; an earlier fit is lost if it fails."""
        with explained(given.X, type(self).__name__):
            self.fitted_ = self._fit(given)

    @contextmanager
    def _whole_or_not_at_all(self) -> Iterator[None]:
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before  # an earlier fit stays as it was
            raise

    def _fit(self, given: GivenRows) -> Fitted:
        levels = self.check_parameters()
        X, kind = self._first_rows(given.X)
        check_order_of_categories(self.ordered, given.y)
        y = checked_labels(given.y)
        check_consistent_length(X, y)
        check_classification_targets(y.distinct if isinstance(y, Labels) else y)
        weight = check_weight(given.sample_weight, len(y))
        fixed = weighted_by_label(weight, None if is_balanced(self.class_weight) else self.class_weight, y)
        used = np.broadcast_to(np.True_, len(y)) if fixed is None else fixed > 0
        present = distinct_labels(y[used])
        if given.classes is None and not used.all():
            warn_of_labels_without_weight(np.setdiff1d(distinct_labels(y[~used]), present))
        if len(present) < 2:
            raise ValueError(f"y must hold at least two classes to train a classifier; got one class: {present[0]}")
        classes = self._classes(X, present) if given.classes is None else given.classes
        codes = label_codes(y, classes, "y", unknown="raise" if used.all() else "miss")  # those are not used
        codes = codes.astype(np.min_scalar_type(-len(classes)), copy=False) if X.lazy else codes
        groups = check_groups(given.groups, len(codes), "groups")
        draft = Fitted(classes, levels, kind, one_for_all=self._one_for_all(), mark=mark_of(codes), seed=self._seed())
        if given.X_cal is None and given.y_cal is None:
            if given.groups_cal is not None:
                raise ValueError("groups_cal needs X_cal, which was not given; for the groups of X use groups")
            all_rows = CalibrationRows(X, codes, groups)
            parts = [(train, all_rows.take(held)) for train, held in self._splits(all_rows, draft, used)]
        else:
            draft, rows = self._own_calibration_rows(given, draft)
            parts = [(used if X.lazy else np.flatnonzero(used), rows)]
        training = TrainingRows(X, codes, classes, weight, group_codes(groups))
        folds, calibrated, trained = [], [], np.zeros(len(classes), dtype=np.intp)
        while parts:  # a mask has a byte for each row, and goes once it is used
            train, held = parts.pop(0)
            every = train.all() if train.dtype == bool else len(train) == len(training)
            own = training if every else training.take(train)  # a copy only of some
            rows_of_labels = label_counts(own.y, len(classes))
            trained += rows_of_labels
            if np.count_nonzero(rows_of_labels) < 2:
                raise ValueError(
                    f"only one class is left to train on: of {len(codes)} rows, {len(own)} train; give more rows "
                    "(n_samples = 1 of a class is not enough) or positive weights"
                )
            # Labels of rows that calibrate must not have a say in the models, nor in weights. With assurance their
            # numbers by category do (`assured_errors`), which coverage of each category is conditional on.
            own = replace(own, weight=weighted_by_label(own.weight, self.class_weight, y[train]))
            estimator = self.estimator if weight is None else self._routed(y[train])
            del train
            errors = assured_errors(levels, held, self.assurance, by_label=bool(self.label_conditional))
            models, record = self._train(own, levels, estimator, errors)
            models, rows = self._settle(models, held, draft)
            folds.append(self._calibrated(draft, Fold(list(models), [], record, len(own)), rows))
            calibrated.append(rows.y)
        fitted = replace(draft, folds=folds)
        self._warn_of_calibration(fitted, np.concatenate(calibrated))
        warn_of_untrained_labels(np.concatenate(calibrated), trained, classes)
        return fitted

    def _own_calibration_rows(self, given: GivenRows, draft: Fitted) -> tuple[Fitted, CalibrationRows]:
        """Calibration rows that were given beside those that train."""
        if self.cv is not None:
            raise ValueError("cv takes calibration rows from X; give either cv or X_cal, not both")
        if given.X_cal is None or given.y_cal is None:
            raise ValueError("X_cal and y_cal belong together: give both or neither")
        if given.groups is not None and given.groups_cal is None:
            raise ValueError("groups_cal must be given with X_cal: calibration by group needs the groups of its rows")
        return self._calibration_rows(draft, given.X_cal, given.y_cal, given.groups_cal, "_cal")

    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> Any:
        """Calibrate anew, without training again.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            Calibration rows. They must not have been trained on.
        y : array-like of shape (n_samples,)
            The labels.
        groups : array-like of shape (n_samples,), optional
            The group of each row, for coverage within each group. A predictor that was calibrated by group needs them.

        Returns
        -------
        self : SCPOClassifier or ConformalClassifier
            The predictor, with the new calibration.
        """
        check_is_fitted(self, "fitted_")
        if len(self.fitted_.folds) > 1:
            raise ValueError(
                "calibrate needs a single trained model, but cv trained one for each fold; fit with cv=None"
            )
        if groups is None and self.fitted_.by_group:
            raise ValueError(
                "groups must be given: the predictor was calibrated by group, and without them coverage within each "
                "group would be lost; to do without, fit without groups"
            )
        self.check_parameters()  # they may have been set since
        check_order_as_fitted(self)
        fitted, rows = self._calibration_rows(self.fitted_, X, y, groups)
        fitted = replace(fitted, folds=[self._calibrated(fitted, fitted.folds[0], rows)])
        self._warn_of_calibration(fitted, rows.y)
        self.fitted_ = fitted  # takes the place of the other at once: others may be predicting
        return self

    def _calibrated(self, fitted: Fitted, fold: Fold, rows: CalibrationRows) -> Fold:
        how: dict[str, Any] = {"by_label": bool(self.label_conditional), "assurance": self.assurance}
        how |= {"thresholds": self.cv is None, "likely": self.cost is None}
        return fold._replace(calibrations=calibrate(fitted, fold.models, rows, **how))

    def _calibration_rows(
        self, fitted: Fitted, X: Any, y: Any, groups: Any, suffix: str = ""
    ) -> tuple[Fitted, CalibrationRows]:
        """Rows that calibrate, and how rows are computed that are compared with them."""
        rows, given = self._new_rows(X, fitted.kind), dtypes_of(X)
        calibrated = given if rows.lazy else types_by_value(given, rows.gather())
        codes = codes_of(rows, y, fitted.classes, f"y{suffix}", unknown="miss")
        found = CalibrationRows(rows, codes, check_groups(groups, len(codes), f"groups{suffix}"))
        kind = fitted.kind._replace(calibrated=calibrated)
        return replace(fitted, kind=kind, mark=mark_of(codes)), found  # with random numbers of their own

    def _splits(self, rows: CalibrationRows, fitted: Fitted, used: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """(training rows, calibration rows) of each fold, without the rows of weight zero."""
        y, groups = rows.y, rows.groups
        if self.cv is not None:
            # groups are categories of coverage here, not units that a splitter must keep together
            folds = check_folds(check_cv(self.cv, y, classifier=True).split(np.zeros((len(y), 1)), y), len(y))
            sort = np.sort if rows.X.lazy else np.asarray
            found = [(sort(train[used[train]]), sort(held[used[held]])) for train, held in folds if used[held].any()]
            if not found:
                raise ValueError("cv leaves no row to calibrate on once rows of weight 0 are left out")
            return found
        n = int(np.count_nonzero(used))
        if n < 2:
            raise ValueError(f"at least two rows are needed, to train and to calibrate; got n_samples = {n}")
        size, y = rows_to_hold(self, n), y if n == len(y) else y[used]
        strata = y if self.label_conditional else np.broadcast_to(np.int8(0), n)
        if groups is not None:
            _, group_of = np.unique(groups[used], return_inverse=True)
            strata = strata + len(fitted.classes) * group_of
        held = calibration_mask(strata, y, size, generator(self.random_state))
        if n < len(used):
            among = np.zeros(len(used), dtype=bool)
            among[used] = held
            held = among
        train = used & ~held
        return [(train, held) if rows.X.lazy else (np.flatnonzero(train), np.flatnonzero(held))]

    def _warn_of_calibration(self, fitted: Fitted, y: np.ndarray) -> None:
        """Say what makes sets larger than they could be: labels without calibration rows, or too few rows."""
        if not self.label_conditional:
            warn_of_absent_labels(y, fitted.classes)
        self._warn_of_few_rows(fitted, max(fitted.levels, key=float))

    # ---- checking -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> tuple[Any, ...]:
        """The levels to train for; raises if a parameter cannot be what it is."""
        levels = tuple(self.levels_asked(None)[0])
        as_inefficiency(self.inefficiency)
        check_assurance(self.assurance, self.cv)
        for name in ("label_conditional", "allow_empty"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}")  # noqa: TRY004
        check_order(self)
        return levels

    def _seed(self) -> int:
        """Of scores that are randomised, the same at every call."""
        return 0
