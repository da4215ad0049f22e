"""Checks of scikit-learn's trees in a model file: every child, column, class and category they refer to must exist.

The functions raise ValueError otherwise. Children come after their parents in all trees that scikit-learn grows, so no
tree can turn in a circle. What a tree needs of the estimator around it (columns of the rows, bins, encoded categories)
is checked with it, since that is what its rows were checked for.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np

__all__ = [
    "array_of",
    "check_fields",
    "decision_tree",
    "forest",
    "gradient_boosting",
    "hist_gradient_boosting",
    "is_whole",
    "must",
]

_MOST_THREADS = 1024


def check_fields(one: Any) -> None:
    """No field stands for a method, or for what the class has said for good; no pool has a million threads."""
    fields = {} if isinstance(one, np.ndarray) else getattr(one, "__dict__", {})
    for name in fields:
        own = inspect.getattr_static(type(one), name, None)
        must(
            not (inspect.isroutine(own) or (own is not None and name.startswith("_") and not hasattr(own, "__set__"))),
            f"a {type(one).__name__} has a field {name!r} in place of its own",
        )
    for name in ("n_jobs", "_n_threads"):
        jobs = fields.get(name)
        must(jobs is None or (is_whole(jobs) and abs(jobs) <= _MOST_THREADS), f"{name} is {jobs!r:.20}")


def must(holds: Any, what: str) -> None:
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise ValueError(what)


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def array_of(value: Any, what: str, *, ndim: int, kinds: str = "f") -> np.ndarray:
    must(isinstance(value, np.ndarray) and value.ndim == ndim and value.dtype.kind in kinds, what)
    return np.asarray(value)


def _check_nodes(inner: np.ndarray, left: Any, right: Any, feature: Any, columns: Any) -> None:
    """Children come after their parents and have one each; features are columns that there are."""
    must(len(inner) > 0, "a tree without a node")
    must(is_whole(columns), "a tree without columns")
    at = np.flatnonzero(inner)
    children = [side[inner].astype(np.int64) for side in (left, right)]
    for child in children:
        must((child > at) & (child < len(inner)), "a child is no node of its tree")
    must(np.bincount(np.concatenate(children), minlength=1) <= 1, "a node of a tree has two parents")
    used = feature[inner].astype(np.int64)
    must((used >= 0) & (used < columns), "a split is of no column")


def _check_tree(tree: Any, columns: Any) -> None:
    from sklearn.tree._tree import Tree

    must(type(tree) is Tree, "a tree is none")
    must(tree.node_count == tree.capacity, "a tree has not as many nodes as it says")  # before any is read
    must(tree.n_outputs >= 1 and tree.max_n_classes >= 1, "a tree has no output")
    _check_nodes(tree.children_left != -1, tree.children_left, tree.children_right, tree.feature, columns)


def decision_tree(one: Any) -> list[Any]:
    if "tree_" in vars(one):
        _check_tree(one.tree_, one.n_features_in_)
    return [value for name, value in vars(one).items() if name != "tree_"]


def forest(one: Any) -> None:
    from sklearn.tree import BaseDecisionTree

    for tree in getattr(one, "estimators_", ()):  # which do not look at the rows again
        same = isinstance(tree, BaseDecisionTree) and tree.n_features_in_ == one.n_features_in_
        must(same, "a tree of a forest is none, or takes other columns")


def gradient_boosting(one: Any) -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.tree import DecisionTreeRegressor

    if "estimators_" not in vars(one):
        return
    trees = array_of(one.estimators_, "trees of a booster are none", ndim=2, kinds="O")
    columns = one.n_features_in_
    for tree in trees.ravel():
        same = isinstance(tree, DecisionTreeRegressor) and tree.n_features_in_ == columns
        must(same, "a tree of a booster is none, or takes other columns")
        _check_tree(tree.tree_, columns)
        must(tree.tree_.n_outputs == 1, "a tree of a booster has several outputs")
    must(type(one.init_) is DummyClassifier or one.init_ == "zero", "what a booster starts from is not checked here")
    start = one._raw_predict_init(np.zeros((1, columns), dtype=np.float32))
    must(start.shape == (1, trees.shape[1]), "a booster has not a tree for each class")


def hist_gradient_boosting(one: Any) -> list[Any]:
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    must(not vars(one).get("_in_fit"), "a booster is still being fitted")
    if "_predictors" not in vars(one):
        return list(vars(one).values())
    columns, bins = one.n_features_in_, one._bin_mapper
    must(type(bins) is _BinMapper, "the bins of a booster")
    check_fields(bins)
    categorical = array_of(bins.is_categorical_, "categories of a booster", ndim=1, kinds="biu").astype(bool)
    must(len(categorical) == columns, "categories of a booster")
    if one._preprocessor is not None:
        _check_preprocessor(one._preprocessor, columns)
    for predictor in (tree for trees in one._predictors for tree in trees):
        must(type(predictor) is TreePredictor, "a tree of a booster")
        check_fields(predictor)
        nodes = array_of(predictor.nodes, "nodes of a tree", ndim=1, kinds="V")
        must(nodes.dtype == PREDICTOR_RECORD_DTYPE, "nodes of a tree")
        inner = nodes["is_leaf"] == 0
        _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], columns)
        split = nodes[inner & (nodes["is_categorical"] != 0)]
        bits = array_of(predictor.raw_left_cat_bitsets, "categories of a tree", ndim=2, kinds="u")
        must(bits.shape[1] == 8 and bits.dtype.itemsize == 4, "categories of a tree")
        must(split["bitset_idx"] < len(bits), "categories of a tree")
        must(categorical[split["feature_idx"]], "a split of categories is of another column")
    return [value for name, value in vars(one).items() if name not in ("_predictors", "_bin_mapper")]


def _check_preprocessor(preprocessor: Any, columns: int) -> None:
    """It puts categorical columns first, as numbers, and leaves the others: as many columns come out as go in."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder
    from sklearn.utils.validation import check_array

    must(type(preprocessor) is ColumnTransformer and preprocessor.n_features_in_ == columns, "columns of a booster")
    check_fields(preprocessor)
    must(preprocessor.transformer_weights is None, "columns of a booster have weights")
    (first, encoder, coded), (second, same, others) = preprocessor.transformers_[:2]
    must((first, second) == ("encoder", "numerical"), "columns of a booster")
    must(all(rest[1] == "drop" for rest in preprocessor.transformers_[2:]), "columns of a booster")
    masks = [array_of(mask, "columns of a booster", ndim=1, kinds="b") for mask in (coded, others)]
    must(all(len(mask) == columns for mask in masks), "columns of a booster")
    must(masks[0] ^ masks[1], "columns of a booster")
    indices = preprocessor._transformer_to_input_indices
    for name, mask in zip((first, second), masks, strict=True):
        must(np.array_equal(indices[name], np.flatnonzero(mask)), "columns of a booster")
    must(type(encoder) is OrdinalEncoder and len(encoder.categories_) == masks[0].sum(), "columns of a booster")
    if type(same) is FunctionTransformer:
        must(getattr(same.func, "func", None) is check_array and not same.func.args, "columns of a booster")
        must(set(same.func.keywords) <= {"dtype", "ensure_all_finite", "force_all_finite"}, "columns of a booster")
        must(not same.kw_args, "columns of a booster")
    else:
        must(not masks[1].any(), "columns of a booster")
    row = np.zeros((1, columns), dtype=object)
    row[0, masks[0]] = [values[0] for values in encoder.categories_]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the row has no names of columns
        must(np.shape(preprocessor.transform(row)) == (1, columns), "a booster gets other columns than it was given")
