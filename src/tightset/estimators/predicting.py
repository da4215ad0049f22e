"""What a fitted conformal classifier answers: sets, p-values, labels, evaluation; of rows anywhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tightset.compute.partitions import Partitions, as_they_are, is_dask, lazily
from tightset.compute.row_forms import form_of, gap_of, in_form, with_gap
from tightset.compute.row_types import Types, coarser_than, conform, dtypes_of, in_units_of, types_by_value
from tightset.conformal import metrics
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.ranks import significance
from tightset.estimators import frames, pieces
from tightset.estimators.cautions import warn_of_few_rows, warn_of_unknown_labels
from tightset.estimators.checks import check_columns, check_groups, check_levels, generator, nearest_level, sound_rows
from tightset.estimators.labels import check_labels, label_codes
from tightset.estimators.pieces import Asked
from tightset.exceptions import warn
from tightset.storage.registry import storable

__all__ = ["Fold", "Predicting"]


@storable
class Fold(NamedTuple):
    """Models trained on some rows and calibrated on others: one of each for every trained level."""

    models: list[Any]
    calibrations: list[Calibration]
    record: Any = None
    trained: int | None = None  # rows, if they were trained on here


class Predicting(ABC):
    """The part of `ConformalPredictor` that needs a fitted one: models and calibrations in ``folds_``."""

    confidence: Any
    inefficiency: Any
    allow_empty: bool
    random_state: Any
    levels_: tuple[Any, ...]
    classes_: np.ndarray
    folds_: list[Fold]
    trains_for_level = True
    # Types of rows: as they were given to `fit`, as they were trained on, and as they were given to calibrate on.
    # (Model files of the first version know the first only.)
    _dtypes: Types = None
    _trained_types: Types = None
    _calibrated_types: Types = None
    _form: str | None = None  # that of the rows of training, and what stands for gaps among their texts
    _gap: str | None = None
    later_fields = ("_trained_types", "_calibrated_types", "_form", "_gap", "_mark")

    @abstractmethod
    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        """Rows in the form that `_train` and `_scores` take."""

    def _prepare(self) -> Callable[[Any], Any]:
        """What is done to a partition of rows before `_train` and `_scores` take it."""
        return as_they_are

    @abstractmethod
    def _scores(self, model: Any, X: Any, known: dict[int, np.ndarray], positions: Any) -> np.ndarray:
        """Conformity scores ``(n, C)``, none NaN. Models of other levels get the same ``known``, for what is shared.

        ``positions (n,)`` tell rows apart that are equal, for scores that are randomised.
        """

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
            integer ``random_state`` a call repeats itself: the same row at the same place of ``X`` gets the same random
            number. Whoever predicts a single row per call should leave ``random_state`` None, or give a
            ``RandomState``, lest equal rows always share their number.
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
            frames.refuse_dask(X, as_labels=as_labels, as_frame=as_frame)
            return self._lazily(pieces.sets, X, confidence, groups, smoothed, dtype=bool)
        levels, single = self._levels(confidence)
        rows, groups = self._check_new_rows(X, groups)
        self._warn_if_stricter(levels)
        sets = pieces.sets(self, self._asked(levels, smoothed, X), rows, groups)
        if as_frame:
            return frames.as_frame(sets, X, self.classes_, levels, single=single, as_labels=as_labels)
        if as_labels:
            lists = frames.lists_of_labels(sets, self.classes_)
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
            frames.refuse_dask(X, as_frame=as_frame)
            return self._lazily(pieces.p_values, X, confidence, groups, smoothed, dtype=np.float64)
        levels, single = self._levels(confidence)
        rows, groups = self._check_new_rows(X, groups)
        found = pieces.p_values(self, self._asked(levels, smoothed, X), rows, groups)
        if as_frame:
            return frames.as_frame(found, X, self.classes_, levels, single=single)
        return found[0] if single else found

    def predict(self, X: Any) -> Any:
        """The most conforming label of each row, by the measure of the first level."""
        check_is_fitted(self, "folds_")
        if is_dask(X):
            return self._lazily(pieces.labels, X, self._levels(None)[0][0], dtype=self.classes_.dtype)
        X, _ = self._check_new_rows(X, None, need_groups=False)
        return pieces.labels(self, self._asked(self._levels(None)[0][:1]), X)[0]

    def evaluate(self, X: Any, y: Any, *, confidence: Any = None, groups: Any = None, smoothed: bool = False) -> Any:
        """One flat row (a dict) of what `tightset.metrics.evaluate` measures; a list of rows for several levels.

        A row whose label was not in training counts as missed, for no set can hold that label; a warning says how many
        there are.
        """
        levels, single = self._levels(confidence)
        rows, groups = self._check_new_rows(X, groups)
        self._warn_if_stricter(levels)
        codes = self._encode(rows, y, "y", unknown="miss")
        asked = self._asked(levels, smoothed, X)
        if isinstance(rows, Partitions):
            parts = rows.map(partial(pieces.sets_and_p, self._as_it_is(), asked), groups, range(rows.shape[0]))
            found = [pieces.joined(of_level) for of_level in zip(*parts, strict=True)]
        else:
            found = pieces.sets_and_p(self, asked, rows, groups)
        measured = [
            metrics.evaluate(
                sets,
                codes,
                confidence=float(1 - significance(level)),
                p=p,
                f=as_inefficiency(self.inefficiency),
                labels=self.classes_.tolist(),
            )
            for level, (sets, p) in zip(levels, found, strict=True)
        ]
        return measured[0] if single else measured

    def _lazily(
        self, function: Any, X: Any, confidence: Any, groups: Any = None, smoothed: bool = False, *, dtype: Any
    ) -> Any:
        """What a function of `pieces` gives for a Dask collection, as a Dask array that is still to be computed.

        Whatever is to be said or drawn at random is said and drawn here, and later changes of this object do not count.
        """
        check_is_fitted(self, "folds_")
        X = in_units_of(self._dtypes, X)
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
        ask = partial(pieces.of_partition, function, then, self._asked(levels, smoothed, X), empty)
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

    def _asked(self, levels: Sequence[Any], smoothed: bool = False, of: Any = None) -> list[Asked]:
        """The levels with their measures and, if sets are smoothed, seeds. Warns where no measure was trained.

        ``of`` are the rows as they were given, of which only the type is looked at.
        """
        coarse = None if of is None else coarser_than(dtypes_of(of), self._calibrated_types)

        def seed() -> int | None:
            return generator(self.random_state).randint(2**31) if smoothed else None

        return [Asked(level, self._model_for(level), seed(), coarse) for level in levels]

    def _in_trained_types(self, X: Any) -> Any:
        """Rows that were checked, in the types and the form in which they are computed; see `rowtypes`."""
        types = self._trained_types, self._calibrated_types
        X = in_form(conform(X, *types), self._form, getattr(self, "feature_names_in_", None))
        return with_gap(conform(X, *types), self._gap)

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

    # ---- checking -----------------------------------------------------------------------------------------------

    def _levels(self, confidence: Any) -> tuple[list[Any], bool]:
        """The levels asked for, and whether one was asked for by itself."""
        return check_levels(self.confidence if confidence is None else confidence)

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

    def _rows(self, X: Any, *, reset: bool) -> Any:
        """Rows that were checked; of a Dask collection the first few are, and the others where they lie."""
        if isinstance(X, Partitions):
            return X
        if not reset:
            X = in_units_of(self._dtypes, X)
        given = dtypes_of(X)
        if is_dask(X):
            rows = Partitions.of(X, self._prepare())
            first = self._check_rows(rows.first_rows(), reset=reset)
            if reset:  # training passes over the rows many times; others see them once, and say then what is wrong
                rows.check()
        else:
            rows = first = self._check_rows(sound_rows(X), reset=reset)
        if reset:
            self._dtypes, self._calibrated_types = given, types_by_value(given, first)
            self._trained_types = dtypes_of(first)
            self._form, self._gap = form_of(first), gap_of(first)
        return rows

    def _encode(self, X: Any, y: Any, name: str, *, unknown: str = "raise") -> np.ndarray:
        """Labels as indices of ``classes_``; -1 for one that is not among them if ``unknown`` is not to raise."""
        labels = check_labels(y, name)
        check_consistent_length(X, labels)
        codes = label_codes(labels, self.classes_, name, unknown=unknown)
        if (codes < 0).any():
            warn_of_unknown_labels(labels[codes < 0], len(labels), name)
        return codes

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
