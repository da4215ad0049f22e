"""Checks of trained measures read from a file: their matrices must fit the columns and classes of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tightset.conformal.ordinal import OrdinalAPS
from tightset.conformal.priced import PerCost
from tightset.exceptions import ModelFileError
from tightset.measures import MEASURES
from tightset.models.class_scores import Averaged, Given
from tightset.models.columns import Columns
from tightset.models.ensembles import Ensemble, LinearModel, LogProbabilities, Member, Stacked, Tempered
from tightset.models.networks import Network, Perceptron
from tightset.models.rules import ByExpectedCost
from tightset.models.scored import Logistic, Scored
from tightset.models.trees import LIBRARIES, Trees
from tightset.storage.fields import floats, must, places, shown
from tightset.storage.registry import is_storable

__all__ = ["check_classifier", "check_member", "check_scores", "refused"]

_BOOSTERS = {"lightgbm": "lightgbm.basic.Booster", "xgboost": "xgboost.core.Booster"}


def refused(what: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise ModelFileError(f"{what}: {error}") from None


def check_scores(model: Any, columns: int | None, classes: np.ndarray) -> None:
    """What scores rows of so many columns (None for texts) has a score for each class."""
    C = len(classes)
    match model:
        case Ensemble(members=members, shift=shift, order=order):
            must(len(members) > 0, "Ensemble.members must not be empty")
            if shift is not None:
                floats(shift, "Ensemble.shift", C)
            _check_order(order, "Ensemble.order", C)
            for member in members:
                check_member(member, columns, C)
        case LinearModel():
            floats(model.theta, "LinearModel.theta", _width(model.columns, columns) + 1, C)
        case Stacked():
            _check_stacked(model, columns, classes)
        case Network():
            _check_network(model, columns, C)
        case Scored():
            must(is_storable(type(model.score)) and not model.score.is_open, "Scored.score must be a score")
            _check_order(model.order, "Scored.order", C)
            if isinstance(model.score, OrdinalAPS):
                must(len(model.score.order or range(C)) == C, "OrdinalAPS.order must name every label once")
            if isinstance(model.score, PerCost):
                must(len(model.score.cost) == C, f"PerCost.cost must be of {C} labels")
            check_classifier(model.classifier, columns, classes)
        case _:
            raise ModelFileError(f"Fold.models holds {shown(model)}, which scores nothing")


def _check_order(order: np.ndarray | None, what: str, C: int) -> None:
    right = order is None or len(set(places(order, what, C).tolist())) == len(order) == C
    must(right, f"{what} must name every label once")


def check_member(member: Member, columns: int | None, C: int) -> None:
    must(member.measure in MEASURES, f"Member.measure must be one of {', '.join(MEASURES)}")
    width = C * (2 if member.measure == "two-matrix" else 1)
    floats(member.theta, "Member.theta", _width(member.columns, columns) + 1, width)
    if isinstance(member.threshold, np.ndarray):
        floats(member.threshold, "Member.threshold", C)
    else:
        must(np.isfinite(member.threshold), "Member.threshold must be a number")
    if isinstance(member.rule, ByExpectedCost):
        must(floats(member.rule.cost, "ByExpectedCost.cost", C, C) >= 0, "ByExpectedCost.cost must not be negative")
        floats(member.rule.offset, "ByExpectedCost.offset", C)
    if member.rule is not None:
        rule = member.rule
        ruled = refused("Member.rule", lambda: rule(np.zeros((1, C))))
        must(np.isfinite(ruled).all(), "Member.rule must score each class, by a number")


def _width(columns: Columns, rows: int | None) -> int:
    """How many columns come out, of rows of so many."""
    must(rows is not None, "Columns must be of numbers")
    width = int(rows or 0)
    if columns.at is not None:
        width = len(places(columns.at, "Columns.at", width))
    if columns.knots is not None:
        ramps = len(places(columns.knots.column, "Knots.column", width))
        floats(columns.knots.start, "Knots.start", ramps)
        must(floats(columns.knots.width, "Knots.width", ramps) >= 0, "Knots.width must not be negative")
        width += ramps
    floats(columns.scaling.centre, "Scaling.centre", width)
    must(floats(columns.scaling.scale, "Scaling.scale", width) > 0, "Scaling.scale must be positive")
    return width


def _check_stacked(model: Stacked, columns: int | None, classes: np.ndarray) -> None:
    C, n = len(classes), len(model.blocks)
    width = 0
    if model.fill is not None:
        width = len(floats(model.fill, "Stacked.fill", columns))
    if model.weights is not None:
        weights = floats(model.weights, "Stacked.weights", n)
        must((weights >= 0).all() and weights.any(), "Stacked.weights must be positive")
        width += C
    must(all(0 <= at < n for at in model.shown), "Stacked.shown must be blocks that there are")
    for block in model.blocks:
        _check_block(block, columns, classes)
    check_scores(model.ensemble, width + C * len(model.shown), classes)


def _check_block(block: Any, columns: int | None, classes: np.ndarray) -> None:
    match block:
        case Averaged():
            floats(block.weights, "Averaged.weights", len(block.models))
            must(len(block.models) > 0, "Averaged.models must not be empty")
            must(np.array_equal(block.classes, classes), "Averaged.classes must be those of the model")
            must(block.scale is None or 0 < block.scale < np.inf, "Averaged.scale must be positive")
            must(0 < block.least < 1 and np.isfinite(block.lowest), "Averaged.least must be between 0 and 1")
            for one in block.models:
                check_classifier(one, columns, classes)
        case LogProbabilities():
            must(block.member.measure != "two-matrix", "LogProbabilities.member must have a column for each class")
            check_member(block.member, columns, len(classes))
            floats(block.fill, "LogProbabilities.fill", columns)
        case Tempered():
            must(0 < block.power < np.inf, "Tempered.power must be positive")
            _check_block(block.block, columns, classes)
        case Trees():
            _check_trees(block, columns, len(classes))
        case _:
            raise ModelFileError(f"Stacked.blocks holds {shown(block)}, which scores nothing")


def _check_trees(trees: Trees, columns: int | None, C: int) -> None:
    must(trees.library in LIBRARIES, f"Trees.library must be one of {', '.join(LIBRARIES)}")
    kind = type(trees.booster)
    own = f"{kind.__module__}.{kind.__qualname__}" == _BOOSTERS[trees.library]
    must(own, f"Trees.booster must be a {_BOOSTERS[trees.library]}")
    must(trees.n_classes == C and trees.rounds > 0, "Trees.n_classes must be the classes of the model")
    zeros = np.zeros((1, columns or 0))
    scores = refused("Trees.booster", lambda: trees.scores(zeros))
    must(scores.shape == (1, C) and np.isfinite(scores).all(), "Trees.booster must score each class, by a number")


def _check_network(network: Network, columns: int | None, C: int) -> None:
    floats(network.shift, "Network.shift", C)
    must(network.level >= 0 and len(network.members) > 0, "Network.level must be one of those that there are")
    for layers in network.members:
        if not isinstance(layers, Perceptron):
            raise ModelFileError("Network.members must be layers")
        width = int(columns or 0)
        if layers.scaling is not None:
            floats(layers.scaling.centre, "Scaling.centre", width)
            must(floats(layers.scaling.scale, "Scaling.scale", width) > 0, "Scaling.scale must be positive")
        must(0 < len(layers.weights) == len(layers.biases), "Perceptron.weights must be as many as the biases")
        for W, b in zip(layers.weights, layers.biases, strict=True):
            width = floats(W, "Perceptron.weights", width, None).shape[1]
            floats(b, "Perceptron.biases", width)
        must(width % C == 0 and width >= C * (network.level + 1), "Perceptron.weights must end in the classes")


def check_classifier(model: Any, columns: int | None, classes: np.ndarray) -> None:
    name = type(model).__name__
    must(any(hasattr(model, how) for how in ("predict_proba", "decision_function")), f"a {name} is no classifier")
    own: Any = getattr(model, "classes_", None)
    must(own is not None and np.ndim(own) == 1, f"a {name} inside has no classes_")
    must(set(np.asarray(own).tolist()) <= set(classes.tolist()), f"a {name} inside has classes that the model has not")
    must(len(np.unique(own)) == len(own), f"a {name} inside has a class twice")
    must(getattr(model, "n_features_in_", columns) == columns, f"a {name} inside takes other columns than the model")
    if isinstance(model, Given | Logistic):
        must(np.array_equal(own, classes), f"{name}.classes_ must be those of the model")
    if isinstance(model, Given):
        must(columns == len(classes), "Given.classes_ must be as many as the columns")
    if isinstance(model, Logistic):
        check_member(model.member, columns, len(classes))
