"""Checks of an estimator read from a file: its parts must fit together."""

from __future__ import annotations

import inspect
from copy import copy, deepcopy
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from tightset.conformal.calibration import Calibration
from tightset.conformal.costs import cost_matrix
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.checks import check_levels
from tightset.estimators.conformal import ConformalClassifier
from tightset.estimators.fitted import Fold
from tightset.estimators.ordering import label_order, order_of
from tightset.models.stored import check_scores, refused
from tightset.search.problem import Record
from tightset.search.verdict import Found
from tightset.storage.fields import fits, must
from tightset.storage.registry import is_storable

__all__ = ["check_predictor"]

_LABELS = "biufmMUOT"  # kinds of arrays that classes may be


def check_predictor(model: ConformalPredictor) -> None:
    must(is_storable(type(model)), f"a {type(model).__name__} is no model")
    name = type(model).__name__
    for field in inspect.signature(type(model)).parameters:
        must(field in vars(model), f"{name}.{field} is missing")
    _check_parameters(model)
    _check_classes(model.classes_, f"{name}.classes_")
    refused(f"{name}.ordered", lambda: label_order(model.ordered, model.classes_))
    refused(f"{name}.cost", lambda: cost_matrix(model.cost, model.classes_))
    must(isinstance(model.levels_, tuple), f"{name}.levels_ must be a tuple")
    refused(f"{name}.levels_", lambda: check_levels(list(model.levels_)))
    columns = vars(model).get("n_features_in_")
    must(columns is None or (fits(columns, int) and columns > 0), f"{name}.n_features_in_ must be a positive number")
    names = vars(model).get("feature_names_in_")
    if names is not None:
        right = isinstance(names, np.ndarray) and names.shape == (columns,) and fits(names.tolist(), list[str])
        must(right, f"{name}.feature_names_in_ must be a name for each column")
    kind, fitted = model.fitted_.kind, model.fitted_
    for field, types in (
        ("_dtypes", kind.given),
        ("_trained_types", kind.trained),
        ("_calibrated_types", kind.calibrated),
    ):
        must(fits(types, str | list[str] | None), f"{name}.{field} must be names of types")
    must(kind.gap in (None, "None", "nan"), f"{name}._gap must be a sign for what is missing")
    must(kind.form in (None, "array", "sparse", "pandas", "polars"), f"{name}._form must be a form of rows")
    must(fits(fitted.mark, int) and 0 <= fitted.mark < 2**63, f"{name}._mark must be a whole number")
    must(fits(fitted.one_for_all, bool), f"{name}._one_for_all must be true or false")
    must(fits(fitted.seed, int) and 0 <= fitted.seed < 2**32, f"{name}._seed must be a whole number")
    must(fits(model.folds_, list[Fold]) and model.folds_, f"{name}.folds_ must be a list of folds")
    measures = len(model.levels_) if model.trains_for_level else 1
    how = {(one.by_label, one.by_group, one.assurance) for fold in model.folds_ for one in fold.calibrations}
    must(len(how) == 1, "Fold.calibrations must all be by label, or by group, or not, and have one assurance")
    must(fitted.assurance is None or len(model.folds_) == 1, "Calibration.assurance is for one fold")
    for fold in model.folds_:
        must(len(fold.models) == len(fold.calibrations) == measures, f"Fold.models must be {measures}, one a level")
        for calibration in fold.calibrations:
            _check_labels(calibration, len(model.classes_))
        for one in fold.models:
            check_scores(one, columns, model.classes_)
        if isinstance(model, ConformalClassifier):
            must(fold.record is None, "Fold.record must be none")
        else:
            must(fits(fold.record, list[Record]), "Fold.record must be what a search found")
            must(len(fold.record) == measures, f"Fold.record must be of {measures} levels")
            _check_tables([one.table for one in fold.record])
            for found in fold.record:
                if isinstance(found, Found):
                    refused("Found.verdict", found.sentence)
    apart = fitted.by_label or len(model.folds_) > 1
    must(not apart or order_of(model) is None, f"{name}: sets of ordered labels have one threshold")


def _check_parameters(model: ConformalPredictor) -> None:
    """As `fit` does, on a copy, for it may draw random numbers."""
    name, tried = type(model).__name__, copy(model)
    tried.random_state = deepcopy(model.random_state)
    refused(f"{name}.random_state", lambda: check_random_state(tried.random_state))
    refused(name, tried.check_parameters)


def _check_tables(tables: list[dict[str, Any]]) -> None:
    """Columns of one length, with the same names, and with those that are read."""
    names = set(tables[0])
    for table in tables:
        right = set(table) == names >= {"confidence", "chosen", "n_iter"} and all(
            isinstance(one, np.ndarray) and one.ndim == 1 and len(one) == len(table["chosen"]) for one in table.values()
        )
        must(right, "Found.table must have columns of the same length")
        must(all(table[name].dtype.kind in "biuf" for name in ("chosen", "n_iter")), "Found.table must be numbers")
        must(np.isfinite(table["n_iter"]), "Found.table must be numbers")


def _check_classes(classes: Any, what: str) -> None:
    right = isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) > 0 and classes.dtype.kind in _LABELS
    right = right and (classes.dtype.kind != "O" or all(isinstance(one, str) for one in classes))
    must(right and np.array_equal(np.unique(classes), classes), f"{what} must be labels, each once, in order")


def _check_labels(calibration: Calibration, classes: int) -> None:
    """Each group has scores for every label, where they are by label."""
    by_group: dict[Any, set[int]] = {}
    for group, label in calibration.alphas:
        by_group.setdefault(group, set()).add(label)
    wanted = set(range(classes)) if calibration.by_label else {-1}
    must(all(labels == wanted for labels in by_group.values()), f"Calibration.alphas must be of {classes} labels")
