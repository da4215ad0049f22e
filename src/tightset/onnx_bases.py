"""Other people's classifiers as ONNX nodes: one score a class, in float64.

Trees are written here: skl2onnx has them in float32, where a value between a threshold and its neighbour takes the
other branch. Everything else that skl2onnx knows it converts, in float64 where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

from tightset.bases import Given
from tightset.checking import warn
from tightset.onnx_graph import OPSET, Graph, in_double

__all__ = ["add_class_scores", "refusal"]

_SINGLE = {"LinearClassifier", "LinearRegressor", "Normalizer", "SVMClassifier", "SVMRegressor", "Scaler"}
_SINGLE_TREES = {"TreeEnsembleClassifier", "TreeEnsembleRegressor"}


def refusal(what: str, why: str) -> ValueError:
    return ValueError(f"{what} cannot be exported to ONNX: {why}")


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
    return graph.columns(graph.add("Concat", scores, worst, axis=1), at)


def _scores(graph: Graph, X: str, model: Any, p: int) -> str:
    """The scores of a trained classifier, a column for each of its own classes."""
    if isinstance(model, Given):
        return X
    if isinstance(model, (FrozenEstimator, BaseSearchCV)):
        return _scores(graph, X, _inside(model), p)
    if isinstance(model, Pipeline):
        return _scores(graph, *_transformed(graph, X, model, p))
    if isinstance(model, VotingClassifier) and model.voting == "soft":
        return _votes(graph, X, model, p)
    if isinstance(model, (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier)):
        return _forest(graph, X, model)
    if isinstance(model, (HistGradientBoostingClassifier, GradientBoostingClassifier)):
        return _boosted(graph, X, model)
    if not hasattr(model, "predict_proba"):
        return _distances(graph, X, model)
    return _by_skl2onnx(graph, X, model, p, "probabilities")


def _inside(model: Any) -> Any:
    return model.best_estimator_ if isinstance(model, BaseSearchCV) else model.estimator


def _transformed(graph: Graph, X: str, pipeline: Pipeline, p: int) -> tuple[str, Any, int]:
    """The rows before the last step of a pipeline, that step, and the columns that it takes."""
    last = pipeline.steps[-1][1]
    before = [step for step in pipeline.steps[:-1] if step[1] not in (None, "passthrough")]
    if before:
        X = _by_skl2onnx(graph, X, Pipeline(before), p, "variable")
        p = int(getattr(last, "n_features_in_", p))
    return X, last, p


def _votes(graph: Graph, X: str, model: VotingClassifier, p: int) -> str:
    """``sum_m w_m p_m / sum_m w_m``."""
    weights = np.ones(len(model.estimators_)) if model._weights_not_none is None else model._weights_not_none
    inner = np.arange(len(model.classes_))
    total = ""
    for one, weight in zip(model.estimators_, weights, strict=True):
        part = graph.add("Mul", add_class_scores(graph, X, one, inner, p), float(weight))
        total = graph.add("Add", total, part) if total else part
    return graph.add("Div", total, float(np.sum(weights)))


def _distances(graph: Graph, X: str, model: Any) -> str:
    """The signed distances of a linear classifier, those of two classes as one and its negative."""
    if not isinstance(model, LinearClassifierMixin):
        raise refusal(
            type(model).__name__, "it has no predict_proba, and only linear classifiers are exported without it"
        )
    scores = graph.add("Add", graph.add("MatMul", X, in_double(model.coef_.T)), in_double(model.intercept_))
    return graph.add("Concat", graph.add("Neg", scores), scores, axis=1) if len(model.classes_) == 2 else scores


# ---- what skl2onnx converts -------------------------------------------------------------------------------------


def _by_skl2onnx(graph: Graph, X: str, model: Any, p: int, output: str) -> str:
    name = type(_last(model)).__name__
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import DoubleTensorType
    except ImportError:
        raise ImportError('the export of classifiers needs skl2onnx: pip install "tightset[onnx]"') from None
    try:
        converted = convert_sklearn(
            model,
            initial_types=[("X", DoubleTensorType([None, p]))],
            options={id(model): {"zipmap": False}} if isinstance(model, ClassifierMixin) else None,
            target_opset={"": OPSET, "ai.onnx.ml": 3},
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise refusal(name, f"skl2onnx does not convert it ({type(error).__name__}: {reason})") from error
    from onnx import TensorProto

    nodes = {node.op_type for node in converted.graph.node}
    if nodes & _SINGLE_TREES:
        raise refusal(name, "skl2onnx converts the trees inside it in float32, where rows take other branches")
    names = [one.name for one in converted.graph.output]
    if output not in names:
        raise refusal(name, f"skl2onnx makes {names} of it, and not {output!r}")
    if nodes & _SINGLE:
        warn(
            f"skl2onnx computes {name} in float32, so a few sets may differ from those of predict_set: compare them on "
            "rows of yours"
        )
    kind = next(one.type.tensor_type.elem_type for one in converted.graph.output if one.name == output)
    result = graph.inline(converted, X, output)
    return result if kind == TensorProto.DOUBLE else graph.cast(result, "DOUBLE")


def _last(model: Any) -> Any:
    while isinstance(model, Pipeline):
        model = model.steps[-1][1]
    return model


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

    An ONNX tree has one number in a leaf: here which leaf it is, and the probabilities are looked up.
    """
    trees = [one.tree_ for one in getattr(model, "estimators_", [model])]
    if trees[0].n_outputs > 1:
        raise refusal(type(model).__name__, "it predicts several labels a row")
    numbered = [_of_sklearn(tree, np.arange(tree.node_count, dtype=np.float64)) for tree in trees]
    leaves = graph.cast(_sums(graph, _as_float32(graph, X), numbered, np.arange(len(trees)), len(trees)), "INT64")
    total = ""
    for at, tree in enumerate(trees):
        reached = graph.add("Gather", leaves, at, axis=1)
        own = graph.add("Gather", in_double(tree.value[:, 0, :]), reached, axis=0)
        total = graph.add("Add", total, own) if total else own
    return graph.add("Div", total, float(len(trees)))


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
            raise refusal(name, "it starts from a classifier of your own (init)")
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
