"""Which types of other packages a model file may hold, and in which role: what is read must not act.

skops calls what it builds by the role that a node of the file gives it: as a function that is passed on, as an object
whose state is set, or as a constructor with arguments of the file. A class that is harmless as the one, a booster whose
state is a text, may open files as the other. So each type has its roles here. What skops trusts by itself is its own
affair. Trees are trusted with what they point at checked, which scikit-learn itself never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["check_pointers", "unknown_types"]

_OBJECT, _FUNCTION = frozenset({"ObjectNode"}), frozenset({"FunctionNode"})
_HARMLESS: dict[str, frozenset[str]] = {
    "collections.OrderedDict": frozenset({"TypeNode", "DictNode"}),
    "functools.partial": frozenset({"PartialNode"}),  # of functions that are trusted themselves
    "numpy.dtype": frozenset({"DTypeNode", "TypeNode"}),
    "scipy._lib.array_api_compat.numpy._aliases.asarray": _FUNCTION,
    "sklearn.feature_selection._mutual_info.mutual_info_classif": _FUNCTION,
    "sklearn.feature_selection._univariate_selection.f_classif": _FUNCTION,
    "sklearn.tree._tree.Tree": frozenset({"TreeNode"}),
    "sklearn.utils._bunch.Bunch": frozenset({"DictNode"}),
    "sklearn.utils.validation.check_array": _FUNCTION,
    **dict.fromkeys(
        (
            "lightgbm.basic.Booster",
            "lightgbm.sklearn.LGBMClassifier",
            "scipy.interpolate._bsplines.BSpline",
            "sklearn.calibration._CalibratedClassifier",
            "sklearn.calibration._SigmoidCalibration",
            "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
            "sklearn.metrics._dist_metrics.EuclideanDistance32",
            "sklearn.metrics._dist_metrics.EuclideanDistance64",
            "sklearn.metrics._dist_metrics.ManhattanDistance64",
            "sklearn.metrics._dist_metrics.MinkowskiDistance64",
            "sklearn.metrics._scorer._PassthroughScorer",
            "sklearn.model_selection._split.KFold",
            "sklearn.model_selection._split.StratifiedKFold",
            "sklearn.neighbors._ball_tree.BallTree",
            "sklearn.neighbors._kd_tree.KDTree",
            "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
            "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
            "xgboost.core.Booster",
            "xgboost.sklearn.XGBClassifier",
        ),
        _OBJECT,
    ),
}


def unknown_types(schema: Any, untrusted: Iterable[str], trusted: Iterable[str]) -> list[str]:
    """The types of a file that neither we nor the user (``trusted``) know as harmless in the roles they have there.

    ``schema`` is what skops wrote of an object, ``untrusted`` the types in it that skops does not trust by itself.
    """
    agreed = set(trusted)
    unknown = {name for name in untrusted if name not in _HARMLESS}
    unknown |= {name for name, role in _roles(schema) if name in _HARMLESS and role not in _HARMLESS[name]}
    return sorted(unknown - agreed)


def _roles(node: Any) -> Iterator[tuple[str, str]]:
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                yield f"{one.get('__module__')}.{one.get('__class__')}", str(one["__loader__"])
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def check_pointers(built: Any) -> None:
    """Raise ValueError if a tree points outside itself or its rows: predicting would read memory of others."""
    from sklearn.ensemble._forest import BaseForest
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
    from sklearn.neighbors import BallTree, KDTree
    from sklearn.tree import BaseDecisionTree
    from sklearn.tree._tree import Tree

    seen: set[int] = set()
    todo: list[tuple[Any, Any]] = [(built, None)]
    while todo:
        one, columns = todo.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float, type(None))):
            continue
        seen.add(id(one))
        if isinstance(one, Tree):
            inner = one.children_left != -1
            _check_nodes(inner, one.children_left, one.children_right, one.feature, columns)
        elif isinstance(one, TreePredictor):
            nodes = one.nodes
            _check_nodes(nodes["is_leaf"] == 0, nodes["left"], nodes["right"], nodes["feature_idx"], columns)
            split = (nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 1)
            _check(nodes["bitset_idx"][split] < len(one.raw_left_cat_bitsets))
        elif isinstance(one, (BallTree, KDTree)):
            data, at, nodes, _ = map(np.asarray, one.get_arrays())
            _check((at >= 0) & (at < len(data)))
            _check((nodes["idx_start"] >= 0) & (nodes["idx_end"] <= len(data)))
        elif isinstance(one, (list, tuple, set)):
            todo.extend((part, columns) for part in one)
        elif isinstance(one, dict):
            todo.extend((part, columns) for part in one.values())
        elif isinstance(one, np.ndarray):
            todo.extend((part, columns) for part in (one.ravel().tolist() if one.dtype == object else ()))
        elif hasattr(one, "__dict__"):
            own = getattr(one, "n_features_in_", columns)
            if isinstance(one, BaseDecisionTree) and columns is not None and own != columns:
                _check(np.array([False]))  # its forest does not check again
            inside = (
                own if isinstance(one, BaseForest) or hasattr(one, "tree_") or hasattr(one, "_predictors") else None
            )
            todo.extend((part, inside) for part in vars(one).values())


def _check_nodes(inner: Any, left: Any, right: Any, feature: Any, columns: Any) -> None:
    """Children come after their parents, in the tree; features are columns that there are."""
    at = np.arange(len(inner))[inner]
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _check((child > at) & (child < len(inner)))
    used = feature[inner].astype(np.int64)
    _check((used >= 0) & (used < (columns if isinstance(columns, (int, np.integer)) else 0)))


def _check(holds: Any) -> None:
    if not np.all(holds):
        raise ValueError("a tree points outside itself")
