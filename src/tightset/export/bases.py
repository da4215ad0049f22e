"""Other people's classifiers as ONNX nodes: one score per class, in float64.

Trees are written here: skl2onnx writes them in float32, where a value very close to a threshold takes the wrong branch.
Scalers and logistic regression are in `linear`. Everything else is converted by skl2onnx, in float64 where it can.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from tightset.exceptions import warn
from tightset.export.graph import OPSET, Graph, in_double, unfused
from tightset.export.linear import (
    add_product,
    add_scaled,
    computes_in_float32,
    is_plain_logistic,
    logistic,
    warn_of_float32,
)
from tightset.models.class_scores import Given

__all__ = ["ExportError", "add_class_scores", "refusal"]

_SINGLE_TREES = {"TreeEnsembleClassifier", "TreeEnsembleRegressor"}
_ROWS_COMPARED = 200
_AS_DOUBLE = 1e-11


class ExportError(ValueError):
    """A model that ONNX has no nodes for, and why."""


def refusal(what: str, why: str) -> ExportError:
    return ExportError(f"{what} cannot be exported to ONNX: {why}")


def add_class_scores(graph: Graph, X: str, model: Any, classes: np.ndarray, p: int) -> str:
    """Scores ``(n, C)`` of rows ``X (n, p)``, columns as ``classes``: what `bases.class_scores` gives."""
    known = graph.recall(model, X)
    scores = graph.remember(model, X, _scores(graph, X, model, p)) if known is None else known
    if np.array_equal(model.classes_, classes):
        return scores
    with_probabilities = hasattr(model, "predict_proba")
    worst = graph.add("Mul", graph.columns(scores, [0]), 0.0)
    worst = worst if with_probabilities else graph.add("Sub", worst, np.inf)
    at = np.full(len(classes), len(model.classes_))
    at[np.searchsorted(classes, model.classes_)] = np.arange(len(model.classes_))
    return graph.with_error(graph.columns(graph.add("Concat", scores, worst, axis=1), at), graph.errors.get(scores))


def _scores(graph: Graph, X: str, model: Any, p: int) -> str:
    """The scores of a trained classifier, a column for each of its own classes."""
    if isinstance(model, Given):
        return X
    if isinstance(model, (FrozenEstimator, BaseSearchCV)):
        return _scores(graph, X, _inside(model), p)
    if isinstance(model, Pipeline):
        last = model.steps[-1][1]
        rows = _transformed(graph, X, Pipeline(model.steps[:-1]), p) if len(model.steps) > 1 else X
        return _scores(graph, rows, last, int(getattr(last, "n_features_in_", p)))
    if isinstance(model, VotingClassifier) and model.voting == "soft":
        return _votes(graph, X, model, p)
    if isinstance(model, (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier)):
        return _forest(graph, X, model)
    if isinstance(model, (HistGradientBoostingClassifier, GradientBoostingClassifier)):
        return _boosted(graph, X, model)
    if not hasattr(model, "predict_proba"):
        return _distances(graph, X, model)
    if is_plain_logistic(model):
        return logistic(graph, X, model)
    return _by_skl2onnx(graph, X, model, p)


def _inside(model: Any) -> Any:
    return model.best_estimator_ if isinstance(model, BaseSearchCV) else model.estimator


def _transformed(graph: Graph, X: str, step: Any, p: int) -> str:
    """Columns as a fitted transformer makes them."""
    if step in (None, "passthrough") or (isinstance(step, FunctionTransformer) and step.func is None):
        return X
    if isinstance(step, Pipeline):
        for _, one in step.steps:
            X = _transformed(graph, X, one, int(getattr(one, "n_features_in_", p)))
        return X
    if isinstance(step, ColumnTransformer):
        places = step._transformer_to_input_indices
        parts = [(one, places[name]) for name, one, _ in step.transformers_ if not _dropped(one) and len(places[name])]
        made = [_transformed(graph, graph.columns(X, at), one, len(at)) for one, at in parts]
        beside = graph.add("Concat", *made, axis=1)
        if all(graph.is_single(one) for one in made):
            graph.single[beside] = np.concatenate([graph.single[one] for one in made])
        return beside
    if isinstance(step, SimpleImputer):  # of which onnxruntime has none in float64
        plain = isinstance(step.missing_values, float) and np.isnan(step.missing_values) and not step.add_indicator
        if not plain or np.isnan(step.statistics_).any():
            raise refusal("SimpleImputer", "it drops or adds columns, or has missing values other than NaN")
        return graph.rounded_as(X, graph.add("Where", graph.add("IsNaN", X), in_double(step.statistics_), X))
    scaled = add_scaled(graph, X, step)
    if scaled is not None:
        return scaled
    return _by_skl2onnx(graph, X, step, p)


def _dropped(step: Any) -> bool:
    return isinstance(step, str) and step == "drop"


def _votes(graph: Graph, X: str, model: VotingClassifier, p: int) -> str:
    """``sum_m w_m p_m / sum_m w_m``."""
    weights = np.ones(len(model.estimators_)) if model._weights_not_none is None else model._weights_not_none
    inner = np.arange(len(model.classes_))
    parts = [add_class_scores(graph, X, one, inner, p) for one in model.estimators_]
    total = ""
    for one, weight in zip(parts, weights, strict=True):
        part = graph.add("Mul", one, float(weight))
        total = graph.add("Add", total, part) if total else part
    errors = [graph.errors[one] for one in parts if one in graph.errors]
    found = graph.add("Div", total, float(np.sum(weights)))
    return graph.with_error(found, graph.add("Max", *errors) if errors else None)


def _distances(graph: Graph, X: str, model: Any) -> str:
    """The signed distances of a linear classifier, those of two classes as one and its negative."""
    if not isinstance(model, LinearClassifierMixin):
        raise refusal(type(model).__name__, "it has no predict_proba, without which only linear ones are exported")
    single = graph.is_single(X) and model.coef_.dtype == np.float32
    scores = add_product(graph, X, np.atleast_2d(model.coef_).T, model.intercept_, single)
    both = graph.add("Concat", graph.add("Neg", scores), scores, axis=1) if len(model.classes_) == 2 else scores
    return graph.with_error(both, graph.reduce("ReduceMax", graph.errors[scores]))


# ---- what skl2onnx converts -------------------------------------------------------------------------------------


def _by_skl2onnx(graph: Graph, X: str, model: Any, p: int) -> str:
    """What ``predict_proba`` or ``transform`` gives, converted, and compared with it on a few random rows."""
    import onnx
    import onnxruntime
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType

    name, classifies = type(model).__name__, isinstance(model, ClassifierMixin)
    try:
        converted = convert_sklearn(
            model,
            initial_types=[("X", DoubleTensorType([None, p]))],
            options={id(model): {"zipmap": False}} if classifies else None,
            target_opset={"": OPSET, "ai.onnx.ml": 3},
        )
    except Exception as error:
        raise refusal(name, f"skl2onnx does not convert it ({_short(error)})") from error
    if {node.op_type for node in converted.graph.node} & _SINGLE_TREES:
        raise refusal(name, "skl2onnx converts the trees inside it in float32, where rows take other branches")
    try:
        converted = unfused(converted)
        onnx.checker.check_model(converted, full_check=True)
        session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise refusal(name, f"skl2onnx or onnxruntime cannot compute it in float64 ({_short(error)})") from error
    output = converted.graph.output[-1]
    middle = np.asarray(getattr(model, "mean_", 0.0))  # around which another order of sums tells most
    rows = np.random.default_rng(0).standard_normal((_ROWS_COMPARED, p)) + (middle if middle.shape == (p,) else 0.0)
    (found,) = session.run([output.name], {"X": rows})
    if _differ(model.predict_proba if classifies else model.transform, rows, found):
        warn(
            f"{name} as converted by skl2onnx does not give exactly the same scores: some sets may differ from "
            "those of predict_set, so compare them on your own rows"
        )
    single = graph.is_single(X) and computes_in_float32(model, p)
    if single:
        warn_of_float32(graph, model)
    result = graph.inline(converted, X, output.name)
    result = result if found.dtype == np.float64 else graph.cast(result, "DOUBLE")
    if single and not classifies:
        result = graph.cast(graph.cast(result, "FLOAT"), "DOUBLE")
        graph.single[result] = np.ones(found.shape[1], dtype=bool)
    return result


def _differ(function: Any, rows: np.ndarray, found: np.ndarray) -> bool:
    """By more than float64 rounding; rows that the function does not take tell nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns without names
        try:
            expected = function(rows)
        except (TypeError, ValueError):
            return False
    expected = expected.toarray() if sparse.issparse(expected) else np.asarray(expected)
    return not np.allclose(found, expected, rtol=_AS_DOUBLE, atol=_AS_DOUBLE * np.abs(expected).max(), equal_nan=True)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


# ---- trees ------------------------------------------------------------------------------------------------------


class _Tree(NamedTuple):
    """Nodes of a tree: where to go from each, and the weight that each adds as a leaf."""

    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    weight: np.ndarray


def _of_sklearn(tree: Any, weight: np.ndarray) -> _Tree:
    left = tree.children_left
    missing = np.asarray(tree.missing_go_to_left, dtype=np.int64)
    return _Tree(left, tree.children_right, left < 0, tree.feature, tree.threshold, missing, weight)


def _of_histograms(nodes: np.ndarray) -> _Tree:
    names = ("left", "right", "is_leaf", "feature_idx", "num_threshold", "missing_go_to_left", "value")
    left, right, leaf, feature, threshold, missing, value = (nodes[name] for name in names)
    return _Tree(left, right, leaf.astype(bool), feature, threshold, missing.astype(np.int64), value)


def _as_float32(graph: Graph, X: str) -> str:
    """Rows as scikit-learn's trees see them: float32, compared with float64 thresholds."""
    key = "float32", X
    if key not in graph.known:
        graph.known[key] = graph.cast(graph.cast(X, "FLOAT"), "DOUBLE")
    return graph.known[key]


def _forest(graph: Graph, X: str, model: Any) -> str:
    """The mean of the probabilities in the leaves, added in the order of the trees as scikit-learn does.

    An ONNX tree has one number in a leaf: here which leaf it is, and the probabilities are looked up. A node for each
    tree runs three times as fast as one for all.
    """
    trees = [one.tree_ for one in getattr(model, "estimators_", [model])]
    if trees[0].n_outputs > 1:
        raise refusal(type(model).__name__, "it predicts several labels per row")
    rows, total = _as_float32(graph, X), ""
    for tree in trees:
        numbered = _of_sklearn(tree, np.arange(tree.node_count, dtype=np.float64))
        reached = graph.cast(_sums(graph, rows, [numbered], np.zeros(1), 1), "INT64")  # (n, 1)
        own = graph.add("Gather", in_double(tree.value[:, 0, :]), reached, axis=0)
        total = graph.add("Add", total, own) if total else own
    return graph.add("Div", graph.add("Squeeze", total, [1]), float(len(trees)))


def _boosted(graph: Graph, X: str, model: Any) -> str:
    """A link of sums of leaves."""
    name = type(model).__name__
    if isinstance(model, HistGradientBoostingClassifier):
        if model._preprocessor is not None:
            raise refusal(name, "it has categorical columns")
        rounds = [[_of_histograms(tree.nodes) for tree in trees] for trees in model._predictors]
        start = in_double(model._baseline_prediction).reshape(1, -1)
    else:
        if not (model.init_ == "zero" or type(model.init_).__name__ == "DummyClassifier"):
            raise refusal(name, "it starts from another estimator (init)")
        X, rate, stages = _as_float32(graph, X), model.learning_rate, model.estimators_
        rounds = [[_of_sklearn(one.tree_, rate * one.tree_.value[:, 0, 0]) for one in stage] for stage in stages]
        start = in_double(model._raw_predict_init(np.zeros((1, model.n_features_in_))))
    targets = np.tile(np.arange(len(rounds[0])), len(rounds))
    raw = _sums(graph, X, [tree for trees in rounds for tree in trees], targets, len(rounds[0]))
    raw = graph.add("Add", raw, start)
    link = type(model._loss).__name__
    if link == "HalfMultinomialLoss":
        return graph.add("Softmax", raw, axis=1)
    if link != "HalfBinomialLoss":
        raise refusal(name, f"its loss is {model.loss!r}")
    second = graph.add("Sigmoid", raw)
    return graph.add("Concat", graph.add("Sub", 1.0, second), second, axis=1)


def _sums(graph: Graph, X: str, trees: Sequence[_Tree], targets: np.ndarray, n_targets: int) -> str:
    """``(n, n_targets)``: the weights of the leaves that a row reaches, added up by the target of each tree.

    ONNX counts inner nodes and leaves apart, over all trees.
    """
    from onnx import numpy_helper

    parts: dict[str, list[np.ndarray]] = {}
    nodes = leaves = 0
    for tree, target in zip((_stump(one) if one.leaf[0] else one for one in trees), targets, strict=True):
        inner = ~tree.leaf
        number = np.where(inner, nodes + np.cumsum(inner), leaves + np.cumsum(tree.leaf)) - 1
        left, right = tree.left[inner], tree.right[inner]
        own = {
            "tree_roots": np.array([nodes]),
            "nodes_featureids": tree.feature[inner],
            "nodes_splits": tree.threshold[inner],
            "nodes_truenodeids": number[left],
            "nodes_trueleafs": tree.leaf[left],
            "nodes_falsenodeids": number[right],
            "nodes_falseleafs": tree.leaf[right],
            "nodes_missing_value_tracks_true": tree.missing_left[inner],
            "leaf_targetids": np.full(tree.leaf.sum(), target),
            "leaf_weights": tree.weight[tree.leaf],
        }
        for name, values in own.items():
            parts.setdefault(name, []).append(values)
        nodes, leaves = nodes + int(inner.sum()), leaves + int(tree.leaf.sum())
    joined = {name: np.concatenate(some) for name, some in parts.items()}
    numbers = {name: in_double(joined.pop(name)) for name in ("nodes_splits", "leaf_weights")}
    numbers["nodes_modes"] = np.zeros(nodes, dtype=np.uint8)  # all are <=
    return graph.add(
        "TreeEnsemble",
        X,
        domain="ai.onnx.ml",
        n_targets=n_targets,
        aggregate_function=1,  # sum
        post_transform=0,
        **{name: numpy_helper.from_array(values, name) for name, values in numbers.items()},
        **{name: values.astype(np.int64).tolist() for name, values in joined.items()},
    )


def _stump(tree: _Tree) -> _Tree:
    """A tree of one leaf as ONNX has it: a node both of whose branches lead there."""
    ends, none = np.array([1, 0]), np.zeros(2, dtype=np.int64)
    return _Tree(ends, ends, np.array([False, True]), none, np.zeros(2), none, np.append(0.0, tree.weight[:1]))
