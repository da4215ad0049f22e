"""What kinds of this package may hold when a model file is opened: types by their annotations, numbers that fit.

A file may be forged, or written by a program with a mistake. What would fail only when rows are predicted, or would
give sets that mean nothing, is refused when the file is opened: a field of another type than the class says, a matrix
for other columns than the model has, classes out of order, a calibration without scores. What can be worked out is not
read at all: thresholds are those of the stored scores.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import is_dataclass
from functools import cache
from types import NoneType
from typing import Any, get_type_hints

import numpy as np
from sklearn.utils import check_random_state

from tightset.bases import Averaged, Given
from tightset.boosting import LIBRARIES, Trees
from tightset.checking import check_levels
from tightset.classifier import ConformalClassifier, Logistic, Scored
from tightset.columns import Columns
from tightset.encoding import Category, Encoding, Number
from tightset.grid import Chosen
from tightset.icp import Calibration
from tightset.measures import MEASURES
from tightset.models import Ensemble, LinearModel, LogProbabilities, Member, Stacked, Tempered
from tightset.packing import ModelFileError, fits
from tightset.pool import Found
from tightset.predicting import Fold
from tightset.predictor import ConformalPredictor
from tightset.rowtypes import COARSE
from tightset.tables import TablePredictor

__all__ = ["check_model", "make"]

_LABELS = "biufmMUOT"  # kinds of arrays that classes may be
# Not in files of the first version.
_OPTIONAL = ("_trained_types", "_calibrated_types", "_form", "_gap", "_mark", "merged", "dropped")
_BOOSTERS = {"lightgbm": "lightgbm.basic.Booster", "xgboost": "xgboost.core.Booster"}
_LATER = ("nested",)  # parameters that those do not have; the class has a default


def make(kind: type, parts: dict[str, Any]) -> Any:
    """An object of a kind with these fields; ModelFileError names the kind and the field that cannot be right."""
    name = kind.__name__
    if hasattr(kind, "_fields") or is_dataclass(kind):
        for field, hint in _hints(kind).items():
            if field in parts and not fits(parts[field], hint):
                raise ModelFileError(f"{name}.{field} is {_shown(parts[field])}, which it cannot be")
        return kind(**parts)
    if kind is Calibration:
        return _calibration(parts)
    result: Any = object.__new__(kind)
    known = set(inspect.signature(kind).parameters)
    for field in parts:
        if field not in known and field not in _OPTIONAL and inspect.getattr_static(kind, field, None) is not None:
            raise ModelFileError(f"{name}.{field} is what the class has itself")
    result.__dict__.update(parts)
    return result


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _shown(value: Any) -> str:
    return f"{value!r:.40}" if isinstance(value, (str, int, float, NoneType)) else f"a {type(value).__name__}"


def _must(holds: Any, what: str) -> None:
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise ModelFileError(what)


def _floats(value: Any, what: str, *shape: int | None, finite: bool = True) -> np.ndarray:
    """An array of floats of a shape, in which None is any length."""
    right = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim == len(shape)
    right = right and all(size in (None, own) for size, own in zip(shape, value.shape, strict=True))
    wanted = " x ".join("?" if size is None else str(size) for size in shape)
    _must(right, f"{what} must be an array of floats, {wanted}; it is {_shown(value)} {getattr(value, 'shape', '')}")
    _must(np.isfinite(value) if finite else ~np.isnan(value), f"{what} has values that are not numbers")
    return np.asarray(value)


def _places(value: Any, what: str, below: int) -> np.ndarray:
    right = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1
    _must(right and ((value >= 0) & (value < below)).all(), f"{what} must be whole numbers below {below}")
    return np.asarray(value)


def _calibration(parts: dict[str, Any]) -> Calibration:
    alphas, by_label, by_group = (parts.get(name) for name in ("alphas", "by_label", "by_group"))
    _must(type(by_label) is bool and type(by_group) is bool, "Calibration.by_label and by_group must be true or false")
    _must(isinstance(alphas, dict) and alphas, "Calibration.alphas must be a dict of scores by category")
    for category, scores in (alphas or {}).items():
        _must(isinstance(category, tuple) and len(category) == 2, "a category of Calibration.alphas is no pair")
        group, label = category
        _must((group is None) != by_group, "a category of Calibration.alphas has no group, or one too many")
        _must(type(label) is int and (label >= 0 if by_label else label == -1), "a label of Calibration.alphas is none")
        _floats(scores, "Calibration.alphas", None, finite=False)
    result = Calibration(dict(alphas or {}), by_label=bool(by_label), by_group=bool(by_group))
    slacks, mark = parts.get("slacks", {}), parts.get("mark", 0)
    right = fits(slacks, dict[str, float]) and set(slacks) <= {*COARSE, "alone"}
    _must(right and all(0 <= slack < np.inf for slack in slacks.values()), "Calibration.slacks must be distances")
    _must(fits(mark, int) and 0 <= mark < 2**63, "Calibration.mark must be a whole number")
    result.slacks, result.mark = slacks, mark
    return result


# ---- what must fit together ---------------------------------------------------------------------------------------


def check_model(model: Any) -> None:
    """Raise ModelFileError unless the parts of a model that was opened fit together."""
    if isinstance(model, TablePredictor):
        _check_table(model)
    elif isinstance(model, ConformalPredictor):
        _check_predictor(model)
    else:
        raise ModelFileError(f"it holds {_shown(model)} and not a model")


def _check_table(model: TablePredictor) -> None:
    for field in ("encoding", "target", "predictor", "baseline", "about"):
        _must(field in vars(model), f"TablePredictor.{field} is missing")
    encoding = model.encoding
    _must(isinstance(encoding, Encoding), "TablePredictor.encoding must be an Encoding")
    _must(isinstance(model.target, str) and isinstance(model.about, dict), "TablePredictor.target must be a name")
    merged, dropped = vars(model).get("merged", {}), vars(model).get("dropped", [])
    _must(fits(merged, dict[str, str]) and fits(dropped, list[str]), "TablePredictor.merged must be names")
    _must(encoding.dtype in ("float32", "float64"), "Encoding.dtype must be float32 or float64")
    names = [column.name for column in encoding.columns]
    _must(names and len(set(names)) == len(names), "Encoding.columns must have a name each")
    for column in encoding.columns:
        if isinstance(column, Number):
            _must(np.isfinite(column.fill), f"Number.fill of {column.name!r} must be a number")
        elif isinstance(column, Category):
            right = column.values and len(set(column.values)) == len(column.values)
            _must(right and column.commonest in column.values, f"Category.values of {column.name!r} must differ")
    for predictor in (model.predictor, *([] if model.baseline is None else [model.baseline])):
        _must(isinstance(predictor, ConformalPredictor), "TablePredictor.predictor must be a predictor")
        _check_predictor(predictor)
        width = len(encoding.names)
        _must(predictor.n_features_in_ == width, f"TablePredictor.predictor must take the {width} encoded columns")
        _must(np.array_equal(predictor.classes_, model.predictor.classes_), "the baseline must have the same classes")


def _check_predictor(model: ConformalPredictor) -> None:
    name = type(model).__name__
    own = ["_seed"] if isinstance(model, ConformalClassifier) else []
    fitted = ("levels_", "classes_", "folds_", "_dtypes", *own)
    for field in (*inspect.signature(type(model)).parameters, *fitted):
        _must(field in vars(model) or field in _LATER, f"{name}.{field} is missing")
    _check_parameters(model)
    _check_classes(model.classes_, f"{name}.classes_")
    _must(isinstance(model.levels_, tuple), f"{name}.levels_ must be a tuple")
    _refused(f"{name}.levels_", lambda: check_levels(list(model.levels_)))
    columns = vars(model).get("n_features_in_")
    _must(columns is None or (fits(columns, int) and columns > 0), f"{name}.n_features_in_ must be a positive number")
    names = vars(model).get("feature_names_in_")
    if names is not None:
        right = isinstance(names, np.ndarray) and names.shape == (columns,) and fits(names.tolist(), list[str])
        _must(right, f"{name}.feature_names_in_ must be a name for each column")
    for types in ("_dtypes", "_trained_types", "_calibrated_types"):
        _must(fits(getattr(model, types), str | list[str] | None), f"{name}.{types} must be names of types")
    _must(model._gap in (None, "None", "nan"), f"{name}._gap must be a sign for what is missing")
    _must(model._form in (None, "array", "sparse", "pandas", "polars"), f"{name}._form must be a form of rows")
    _must(fits(model._mark, int) and 0 <= model._mark < 2**63, f"{name}._mark must be a whole number")
    seed = vars(model).get("_seed", 0)
    _must(fits(seed, int) and 0 <= seed < 2**32, f"{name}._seed must be a whole number")
    _must(fits(model.folds_, list[Fold]) and model.folds_, f"{name}.folds_ must be a list of folds")
    measures = len(model.levels_) if model.trains_for_level else 1
    how = {(one.by_label, one.by_group) for fold in model.folds_ for one in fold.calibrations}
    _must(len(how) == 1, "Fold.calibrations must all be by label, or by group, or not")
    for fold in model.folds_:
        _must(len(fold.models) == len(fold.calibrations) == measures, f"Fold.models must be {measures}, one a level")
        for calibration in fold.calibrations:
            _check_labels(calibration, len(model.classes_))
        for one in fold.models:
            _check_scores(one, columns, model.classes_)
        if isinstance(model, ConformalClassifier):
            _must(fold.record is None, "Fold.record must be none")
        else:
            _must(fits(fold.record, list[Found] | list[Chosen]), "Fold.record must be what a search found")
            _must(len(fold.record) == measures, f"Fold.record must be of {measures} levels")
            _check_tables([one.table for one in fold.record])


def _check_tables(tables: list[dict[str, Any]]) -> None:
    """Columns of one length, with the same names, and with those that are read."""
    names = set(tables[0])
    for table in tables:
        right = set(table) == names >= {"confidence", "chosen", "n_iter"} and all(
            isinstance(one, np.ndarray) and one.ndim == 1 and len(one) == len(table["chosen"]) for one in table.values()
        )
        _must(right, "Found.table must have columns of the same length")
        _must(all(table[name].dtype.kind in "biuf" for name in ("chosen", "n_iter")), "Found.table must be numbers")
        _must(np.isfinite(table["n_iter"]), "Found.table must be numbers")


def _check_parameters(model: ConformalPredictor) -> None:
    """As `fit` does, on a copy: it draws random numbers, and asks for packages that only training needs."""
    name, tried = type(model).__name__, copy(model)
    tried.random_state = deepcopy(model.random_state)
    if vars(model).get("boost") is not None:
        _must(model.boost in LIBRARIES, f"{name}.boost must be one of {', '.join(LIBRARIES)}")
        tried.boost = None
    _refused(f"{name}.random_state", lambda: check_random_state(tried.random_state))
    _refused(name, tried._check_parameters)


def _refused(what: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise ModelFileError(f"{what}: {error}") from None


def _check_classes(classes: Any, what: str) -> None:
    right = isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) > 0 and classes.dtype.kind in _LABELS
    right = right and (classes.dtype.kind != "O" or all(isinstance(one, str) for one in classes))
    _must(right and np.array_equal(np.unique(classes), classes), f"{what} must be labels, each once, in order")


def _check_labels(calibration: Calibration, classes: int) -> None:
    """Each group has scores for every label, where they are by label."""
    by_group: dict[Any, set[int]] = {}
    for group, label in calibration.alphas:
        by_group.setdefault(group, set()).add(label)
    wanted = set(range(classes)) if calibration.by_label else {-1}
    _must(all(labels == wanted for labels in by_group.values()), f"Calibration.alphas must be of {classes} labels")


def _check_scores(model: Any, columns: int | None, classes: np.ndarray) -> None:
    """What scores rows of so many columns (None for texts) has a score for each class."""
    C = len(classes)
    match model:
        case Ensemble(members=members):
            _must(len(members) > 0, "Ensemble.members must not be empty")
            for member in members:
                _check_member(member, columns, C)
        case LinearModel():
            _floats(model.theta, "LinearModel.theta", _width(model.columns, columns) + 1, C)
        case Stacked():
            _check_stacked(model, columns, classes)
        case Scored():
            _must(hasattr(model.score, "choices") and not model.score.choices(), "Scored.score must be a score")
            _check_classifier(model.classifier, columns, classes)
        case _:
            raise ModelFileError(f"Fold.models holds {_shown(model)}, which scores nothing")


def _check_member(member: Member, columns: int | None, C: int) -> None:
    _must(member.measure in MEASURES, f"Member.measure must be one of {', '.join(MEASURES)}")
    width = C * (2 if member.measure == "two-matrix" else 1)
    _floats(member.theta, "Member.theta", _width(member.columns, columns) + 1, width)
    _must(np.isfinite(member.threshold), "Member.threshold must be a number")


def _width(columns: Columns, rows: int | None) -> int:
    """How many columns come out, of rows of so many."""
    _must(rows is not None, "Columns must be of numbers")
    width = int(rows or 0)
    if columns.at is not None:
        width = len(_places(columns.at, "Columns.at", width))
    if columns.knots is not None:
        ramps = len(_places(columns.knots.column, "Knots.column", width))
        _floats(columns.knots.start, "Knots.start", ramps)
        _must(_floats(columns.knots.width, "Knots.width", ramps) >= 0, "Knots.width must not be negative")
        width += ramps
    _floats(columns.scaling.centre, "Scaling.centre", width)
    _must(_floats(columns.scaling.scale, "Scaling.scale", width) > 0, "Scaling.scale must be positive")
    return width


def _check_stacked(model: Stacked, columns: int | None, classes: np.ndarray) -> None:
    C, n = len(classes), len(model.blocks)
    width = 0
    if model.fill is not None:
        width = len(_floats(model.fill, "Stacked.fill", columns))
    if model.weights is not None:
        weights = _floats(model.weights, "Stacked.weights", n)
        _must((weights >= 0).all() and weights.any(), "Stacked.weights must be positive")
        width += C
    _must(all(0 <= at < n for at in model.shown), "Stacked.shown must be blocks that there are")
    for block in model.blocks:
        _check_block(block, columns, classes)
    _check_scores(model.ensemble, width + C * len(model.shown), classes)


def _check_block(block: Any, columns: int | None, classes: np.ndarray) -> None:
    match block:
        case Averaged():
            _floats(block.weights, "Averaged.weights", len(block.models))
            _must(len(block.models) > 0, "Averaged.models must not be empty")
            _must(np.array_equal(block.classes, classes), "Averaged.classes must be those of the model")
            _must(block.scale is None or 0 < block.scale < np.inf, "Averaged.scale must be positive")
            _must(0 < block.least < 1 and np.isfinite(block.lowest), "Averaged.least must be between 0 and 1")
            for one in block.models:
                _check_classifier(one, columns, classes)
        case LogProbabilities():
            _must(block.member.measure != "two-matrix", "LogProbabilities.member must have a column for each class")
            _check_member(block.member, columns, len(classes))
            _floats(block.fill, "LogProbabilities.fill", columns)
        case Tempered():
            _must(0 < block.power < np.inf, "Tempered.power must be positive")
            _check_block(block.block, columns, classes)
        case Trees():
            _check_trees(block, columns, len(classes))
        case _:
            raise ModelFileError(f"Stacked.blocks holds {_shown(block)}, which scores nothing")


def _check_trees(trees: Trees, columns: int | None, C: int) -> None:
    _must(trees.library in LIBRARIES, f"Trees.library must be one of {', '.join(LIBRARIES)}")
    kind = type(trees.booster)
    own = f"{kind.__module__}.{kind.__qualname__}" == _BOOSTERS[trees.library]
    _must(own, f"Trees.booster must be a {_BOOSTERS[trees.library]}")
    _must(trees.n_classes == C and trees.rounds > 0, "Trees.n_classes must be the classes of the model")
    zeros = np.zeros((1, columns or 0))
    scores = _refused("Trees.booster", lambda: trees.scores(zeros))
    _must(scores.shape == (1, C) and np.isfinite(scores).all(), "Trees.booster must score each class, by a number")


def _check_classifier(model: Any, columns: int | None, classes: np.ndarray) -> None:
    name = type(model).__name__
    _must(any(hasattr(model, how) for how in ("predict_proba", "decision_function")), f"a {name} is no classifier")
    own: Any = getattr(model, "classes_", None)
    _must(own is not None and np.ndim(own) == 1, f"a {name} inside has no classes_")
    _must(set(np.asarray(own).tolist()) <= set(classes.tolist()), f"a {name} inside has classes that the model has not")
    _must(len(np.unique(own)) == len(own), f"a {name} inside has a class twice")
    _must(getattr(model, "n_features_in_", columns) == columns, f"a {name} inside takes other columns than the model")
    if isinstance(model, Given | Logistic):
        _must(np.array_equal(own, classes), f"{name}.classes_ must be those of the model")
    if isinstance(model, Given):
        _must(columns == len(classes), "Given.classes_ must be as many as the columns")
    if isinstance(model, Logistic):
        _check_member(model.member, columns, len(classes))
