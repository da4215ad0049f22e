"""What every conformal classifier of this package shares: rows held aside, training, calibration; a file; a card.

A subclass says how scores are trained (`_train`) and computed (`_scores`); the guarantee is made here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset.compute.hashing import mark_of
from tightset.compute.partitions import Partitions
from tightset.compute.row_types import COARSE, coarser_than, dtypes_of, rounded, slack_of, types_by_value
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.splits import calibration_split
from tightset.estimators import card, pieces
from tightset.estimators.cautions import warn_of_absent_labels, warn_of_guessing, warn_of_untrained_labels
from tightset.estimators.checks import check_folds, check_groups, check_weight, generator, rows_to_hold
from tightset.estimators.description import describe
from tightset.estimators.labels import check_labels, distinct_labels, label_codes
from tightset.estimators.pieces import take
from tightset.estimators.predicting import Fold, Predicting
from tightset.exceptions import warn
from tightset.storage.file import save_model

__all__ = ["CalibrationRows", "ConformalPredictor"]


_ROWS_FOR_SLACK = 1000
_ROWS_FOR_TIES = 100_000
_ROWS_ALONE = 8
CalibrationRows = tuple[Any, np.ndarray, np.ndarray | None]  # rows, labels, groups


class ConformalPredictor(Predicting, ClassifierMixin, BaseEstimator):
    """Base of `SCPOClassifier` and `ConformalClassifier`."""

    calibration_size: Any
    label_conditional: bool
    cv: Any
    _mark = 0  # a number that tells the rows of `fit` from others, for random numbers

    # ---- what a subclass provides -------------------------------------------------------------------------------

    @abstractmethod
    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[Any], Any]:
        """Models for ``levels_`` (one for each, or a single one for all), and a record of how they came about."""

    def _classes(self, X: Any, present: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """The classes that are scored, given those of ``y``."""
        return present

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
        y : their labels. Without ``X_cal`` a random part of the rows is held aside for calibration.
        sample_weight : weights ``(n,)`` for training. Rows of weight 0 are left out; calibration is unweighted,
            since the guarantee counts rows.
        X_cal : calibration rows of your own; then all of ``X`` trains.
        y_cal : their labels.
        groups : a value for each row; coverage then holds within each group (Mondrian), and the prediction methods
            need ``groups`` too.
        groups_cal : the groups of ``X_cal``.
        """
        with self._whole_or_not_at_all():
            self._fit(X, y, sample_weight, X_cal, y_cal, groups, groups_cal)
        return self

    @contextmanager
    def _whole_or_not_at_all(self) -> Iterator[None]:
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before  # an earlier fit stays as it was
            raise

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
        sample_weight = check_weight(sample_weight, len(y))
        used = np.ones(len(y), dtype=bool) if sample_weight is None else sample_weight > 0
        present = distinct_labels(y[used])
        if classes is None and not used.all():
            _warn_of_labels_without_weight(np.setdiff1d(y[~used], present))
        if len(present) < 2:
            raise ValueError(f"y must hold at least two classes to train a classifier; got one class: {present[0]}")
        self.classes_ = self._classes(X, present) if classes is None else classes
        codes = label_codes(y, self.classes_, "y", unknown="raise" if used.all() else "miss")  # those are not used
        self._mark = mark_of(codes)
        groups = check_groups(groups, len(codes), "groups")
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
        trained = np.unique(np.concatenate([codes[train] for train, _ in parts]))
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
        warn_of_untrained_labels(np.concatenate(calibrated), trained, self.classes_)

    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> Any:
        """Calibrate anew on these rows, without training again; they must not have been trained on."""
        check_is_fitted(self, "folds_")
        if len(self.folds_) > 1:
            raise ValueError(
                "calibrate needs a single trained model, but cv trained one for each fold; fit with cv=None"
            )
        then = copy(self)  # which takes the place of this one at once: others may be predicting
        rows = then._calibration_rows(X, y, groups)
        fold = self.folds_[0]
        then.folds_ = [fold._replace(calibrations=then._calibrations(fold.models, *rows))]
        then._warn_of_calibration(rows[1])
        self.__dict__ = dict(vars(then))
        return self

    def _calibrations(self, models: list[Any], X: Any, y: np.ndarray, groups: np.ndarray | None) -> list[Calibration]:
        if len(models) > 1 and all(model is models[0] for model in models):  # one serves all levels
            return self._calibrations(models[:1], X, y, groups) * len(models)
        if isinstance(X, Partitions):
            bare = copy(self)
            bare.folds_ = []
            positions = range(pieces.CALIBRATED, pieces.CALIBRATED + len(y))
            of_parts = X.map(partial(pieces.own_scores, bare, models), y, positions)
            own = [pieces.together(parts) for parts in zip(*of_parts, strict=True)]
        else:
            own = pieces.own_scores(self, models, X, y)
        how: dict[str, Any] = {"by_label": self.label_conditional, "groups": groups}
        found = [Calibration.of_own(one.scores, y, len(self.classes_), **how) for one in own]
        for calibration, slacks, one in zip(found, self._slacks(models, X, y, own), own, strict=True):
            calibration.slacks, calibration.mark = slacks, mark_of(one.scores, y)
            if self.cv is None:  # several folds have no threshold in common
                calibration.find_thresholds(self.levels_)
        warn_of_guessing(own[0].first, y, self.classes_)
        return found

    def _slacks(
        self, models: list[Any], X: Any, y: np.ndarray, own: Sequence[pieces.OwnScores]
    ) -> list[dict[str, float]]:
        """For each model and each coarser type that new rows may come in, how far apart scores still tie."""
        found: list[dict[str, float]] = [{} for _ in models]
        if self._is_randomised():  # nothing ties
            return found
        # A row of each score that there is, as far as possible: those are what new rows may tie with.
        looked_at = np.linspace(0, len(y) - 1, min(len(y), _ROWS_FOR_TIES)).round().astype(int)
        _, first, count = np.unique(own[0].scores[looked_at], return_index=True, return_counts=True)
        some = looked_at[first[np.argsort(-count, kind="stable")][:_ROWS_FOR_SLACK]]
        commonest = some[: min(_ROWS_ALONE, int((count > 1).sum()))]
        ties, some = np.sort(some[: int((count > 1).sum())]), np.sort(some)
        rows = take(X, some)
        rows = rows.gather() if isinstance(rows, Partitions) else rows
        columns = [None, slice(0, None, 2), slice(1, None, 2)] if hasattr(rows, "columns") else [None]
        for coarse in COARSE:
            if coarser_than(coarse, self._calibrated_types) is None:
                continue
            for every in columns:  # frames may be coarse in some columns only
                rough = rounded(rows, coarse, every)
                if rough is None:
                    continue
                moved = pieces.own_scores(self, models, rough, y[some])
                for slacks, before, after in zip(found, own, moved, strict=True):
                    slack = slack_of(before.scores[some], after.scores, np.isin(some, ties))
                    slacks[coarse] = max(slacks.get(coarse, 0.0), slack)
        for at in commonest:  # products are rounded otherwise in a batch, by more than `settle` can know
            row = take(rows, np.searchsorted(some, [at]))
            alone = pieces.own_scores(self, models, row, y[[at]])
            for slacks, before, after in zip(found, own, alone, strict=True):
                moved_by = abs(float(before.scores[at]) - float(after.scores[0]))
                if np.isfinite(moved_by) and moved_by > slacks.get("alone", 0.0):
                    slacks["alone"] = 2 * moved_by
        return found

    def _is_randomised(self) -> bool:
        """Whether scores hang on random numbers."""
        return False

    def _calibration_rows(self, X: Any, y: Any, groups: Any, suffix: str = "") -> CalibrationRows:
        given = dtypes_of(X)
        X = self._rows(X, reset=False)
        self._calibrated_types = types_by_value(given, X) if not isinstance(X, Partitions) else given
        y = self._encode(X, y, f"y{suffix}", unknown="miss")
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
        strata = y[rows] if self.label_conditional else np.zeros(len(rows), dtype=np.intp)
        if groups is not None:
            _, group_of = np.unique(groups[rows], return_inverse=True)
            strata = strata + len(self.classes_) * group_of
        train, held = calibration_split(strata, y[rows], size, generator(self.random_state))
        return [(rows[train], rows[held])]

    def _warn_of_calibration(self, y: np.ndarray) -> None:
        """Say what makes sets larger than they could be: labels without calibration rows, or too few rows."""
        if not self.label_conditional:
            warn_of_absent_labels(y, self.classes_)
        self._warn_of_few_rows(max(self.levels_, key=float))

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
        return card.with_card(self, super()._repr_html_inner())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # unless scikit-learn was told to show text
            bundle["text/html"] = card.with_card(self, bundle["text/html"])
        return bundle

    # ---- checking -----------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        self.levels_ = tuple(self._levels(None)[0])
        as_inefficiency(self.inefficiency)
        if not isinstance(self.label_conditional, (bool, np.bool_)):
            raise ValueError(f"label_conditional must be True or False; got {self.label_conditional!r}")  # noqa: TRY004
        if not isinstance(self.allow_empty, (bool, np.bool_)):
            raise ValueError(f"allow_empty must be True or False; got {self.allow_empty!r}")  # noqa: TRY004


def _warn_of_labels_without_weight(labels: np.ndarray) -> None:
    if len(labels):
        shown = ", ".join(map(str, labels[:5].tolist())) + (" ..." if len(labels) > 5 else "")
        warn(f"every row of label {shown} has weight 0, so that nothing is learnt of it: no set will hold it")
