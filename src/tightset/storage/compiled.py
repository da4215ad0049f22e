"""Checks, when a model file is opened, of the numbers that compiled code of other packages uses without bounds checks.

scikit-learn's trees, neighbours and support vectors, SciPy's splines and NumPy's random numbers are computed by code
that trusts the arrays it was fitted with. Arrays of a file may be forged: of the right types, with wrong numbers. Each
function here raises ValueError unless every number that is used as an index, a length or a pointer fits what it points
into; a tree of neighbours is rebuilt from its rows instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from tightset.compute.identity import Same
from tightset.storage.treenodes import (
    array_of,
    check_fields,
    decision_tree,
    forest,
    gradient_boosting,
    hist_gradient_boosting,
    is_whole,
    must,
)

__all__ = ["check_compiled"]

_METRICS = ("minkowski", "euclidean", "manhattan", "cityblock", "l1", "l2", "chebyshev", "cosine")
_PLAIN_WORDS = r"(?u)\b\w\w+\b"
_ALIKE = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    type(None),
    np.generic,
    np.dtype,
    slice,
    type,
    FunctionType,
    np.ufunc,
)


def check_compiled(built: Any, trusted: Iterable[str] = ()) -> None:
    """Raise ValueError if something in an estimator would lead compiled code astray; types in ``trusted`` may."""
    checks, agreed = _checks(), set(trusted)
    seen: set[Same] = set()
    todo = [built]
    while todo:
        one = todo.pop()
        if isinstance(one, _ALIKE) or Same(one) in seen:
            continue
        seen.add(Same(one))
        kind = type(one)
        name = f"{kind.__module__}.{kind.__qualname__}"
        check = next((checks[base.__name__] for base in kind.__mro__ if base.__name__ in checks), None)
        try:
            if name not in agreed:
                check_fields(one)
            inside = check(one) if check is not None and name not in agreed else None
        except Exception as error:
            raise ValueError(
                f"the contents of a {kind.__name__} do not pass the check ({error}); if you "
                f"trust where it comes from: trusted=[{name!r}]"
            ) from error
        todo.extend(_parts(one) if inside is None else inside)


def _checks() -> dict[str, Callable[[Any], Iterable[Any] | None]]:
    """By the name of a type, or of one that it is made from: the check, which returns what is still to be looked at."""
    return {
        "BaseDecisionTree": decision_tree,
        "BaseForest": forest,
        "BaseGradientBoosting": gradient_boosting,
        "BaseHistGradientBoosting": hist_gradient_boosting,
        "KDTree": _neighbour_tree,
        "BallTree": _neighbour_tree,
        "KNeighborsClassifier": _neighbours,
        "BaseLibSVM": _support_vectors,
        "BSpline": _spline,
        "OneHotEncoder": _one_hot,
        "CountVectorizer": _vectorizer,
        "HashingVectorizer": _hashing,
        "PolynomialFeatures": _polynomial,
        "_BaseKMeans": _k_means,
        "LGBMModel": _lightgbm,
        "XGBModel": _xgboost,
        "RandomState": _random_numbers,
        "Generator": _random_numbers,
        "Tree": _astray,
        "TreePredictor": _astray,
        "_BinMapper": _astray,
    }


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, dict):
        yield from one.keys()
        yield from one.values()
    elif isinstance(one, (list, tuple, set, frozenset)):
        yield from one
    elif isinstance(one, np.ndarray):
        yield from one.ravel().tolist() if one.dtype == object else ()
    elif type(one).__name__ == "partial":
        yield from (one.func, one.args, one.keywords)
    else:
        yield from getattr(one, "__dict__", {}).values()


def _astray(one: Any) -> None:
    must(False, f"a {type(one).__name__} is where none belongs")  # noqa: FBT003


# ---- neighbours, support vectors, clusters ------------------------------------------------------------------------


def _neighbour_tree(one: Any) -> list[Any]:
    """Only its rows, its metric and the size of its leaves are used: the tree is built anew from them."""
    state = one.__getstate__()
    rows, leaf_size, metric, weight = state[0], state[4], state[11], state[12]
    must(metric is not None, "a tree of neighbours has no metric")
    array_of(rows, "rows of neighbours", ndim=2)
    if weight is not None:
        must(array_of(weight, "weights of neighbours", ndim=1).shape == rows.shape[:1], "weights of neighbours")
    one.__setstate__(type(one)(rows, leaf_size=leaf_size, metric=metric, sample_weight=weight).__getstate__())
    return []


def _neighbours(one: Any) -> None:
    if "_fit_X" not in vars(one):
        return
    rows = array_of(one._fit_X, "rows of neighbours", ndim=2, kinds="fiub")
    must(rows.shape[1] == one.n_features_in_ and one.n_samples_fit_ == len(rows), "rows of neighbours")
    must(is_whole(one.n_neighbors) and 1 <= one.n_neighbors <= len(rows), "n_neighbors")
    labels = array_of(one._y, "labels of neighbours", ndim=1, kinds="iu")
    must(len(labels) == len(rows) and not one.outputs_2d_, "labels of neighbours")
    must((labels >= 0) & (labels < len(one.classes_)), "labels of neighbours")
    must(one.metric in _METRICS and one.effective_metric_ in _METRICS, f"the metric {one.metric!r:.20}")
    numbers = {name: value for name, value in (one.effective_metric_params_ or {}).items() if value is not None}
    must(not one.metric_params and numbers.keys() <= {"p"}, "parameters of a metric")
    must(one.weights in ("uniform", "distance"), "weights of neighbours")
    must(one._fit_method in ("brute", "kd_tree", "ball_tree"), "the method of neighbours")
    if one._fit_method != "brute":
        must(np.asarray(one._tree.data).shape == rows.shape, "a tree of neighbours has other rows")


def _support_vectors(one: Any) -> None:
    if "support_vectors_" not in vars(one):
        return
    must(not one._sparse and one.kernel in ("linear", "poly", "rbf", "sigmoid"), "a kernel that is not checked here")
    vectors = array_of(one.support_vectors_, "support vectors", ndim=2)
    n, classes = len(vectors), len(one.classes_)
    pairs = classes * (classes - 1) // 2
    must(vectors.shape[1] == one.n_features_in_ and classes >= 2, "support vectors")
    must(len(array_of(one.support_, "support_", ndim=1, kinds="i")) == n, "support_")
    counts = array_of(one._n_support, "_n_support", ndim=1, kinds="i").astype(np.int64)
    must(len(counts) == classes and (counts >= 0).all() and counts.sum() == n, "_n_support")
    must(array_of(one._dual_coef_, "_dual_coef_", ndim=2).shape == (classes - 1, n), "_dual_coef_")
    must(len(array_of(one._intercept_, "_intercept_", ndim=1)) == pairs, "_intercept_")
    chances = [len(array_of(value, "_probA and _probB", ndim=1)) for value in (one._probA, one._probB)]
    must(chances in ([0, 0], [pairs, pairs]), "_probA and _probB")
    must(is_whole(one.degree) and 0 <= one.degree <= 1000, "the degree of a kernel")


def _k_means(one: Any) -> None:
    if "cluster_centers_" in vars(one):
        centres = array_of(one.cluster_centers_, "centres of clusters", ndim=2)
        must(centres.shape == (one.n_clusters, one.n_features_in_), "centres of clusters")


# ---- columns and texts --------------------------------------------------------------------------------------------


def _spline(one: Any) -> None:
    """Its constructor checks all of it, which loading leaves out."""
    type(one)(one.t, one.c, one.k, extrapolate=one.extrapolate, axis=one.axis)
    must(is_whole(one.k) and one.k <= 100 and one.axis == 0, "the degree of a spline")


def _one_hot(one: Any) -> None:
    """The column of a category, after rare ones are put together and one is dropped, is a column that there is."""
    if "categories_" not in vars(one):
        return
    drop, n = one._drop_idx_after_grouping, len(one.categories_)
    must(n == one.n_features_in_ and len(one._n_features_outs) == n, "columns of categories")
    must(drop is None or np.shape(drop) == (n,), "categories that are dropped")
    for at, values in enumerate(map(np.asarray, one.categories_)):
        must(values.ndim == 1 and len(values) > 0, "categories")
        if values.dtype.kind not in "OUST":
            numbers = values[:-1] if values[-1] != values[-1] else values
            must((numbers[:-1] < numbers[1:]) & (numbers[:-1] == numbers[:-1]), "categories are not in order")
        width = len(values)
        rare = one._infrequent_indices[at] if one._infrequent_enabled else None
        if rare is not None:
            must(array_of(rare, "rare categories", ndim=1, kinds="iu") < width, "rare categories")
            must(len(rare) >= 1 and rare.min() >= 0, "rare categories")
            place = array_of(one._default_to_infrequent_mappings[at], "rare categories", ndim=1, kinds="iu")
            must(len(place) == width, "rare categories")
            width -= len(rare) - 1
            must((place >= 0) & (place < width), "rare categories")
        elif one._infrequent_enabled:
            must(one._default_to_infrequent_mappings[at] is None, "rare categories")
        dropped = None if drop is None else drop[at]
        must(dropped is None or (is_whole(dropped) and 0 <= dropped < width), "categories that are dropped")
        must(one._n_features_outs[at] == width - (dropped is not None), "columns of categories")


def _vectorizer(one: Any) -> None:
    _check_words(one)
    words = vars(one).get("vocabulary_", {})
    places = list(words.values())
    must(all(map(is_whole, places)) and sorted(places) == list(range(len(words))), "a word has no column")


def _hashing(one: Any) -> None:
    _check_words(one)
    must(is_whole(one.n_features) and 1 <= one.n_features < 2**31, "n_features")


def _check_words(one: Any) -> None:
    # a pattern may take for ever, and a name may be that of a file
    must(one.input == "content", "texts are to be read from files")
    must(one.token_pattern in (_PLAIN_WORDS, None), "a token_pattern of its own is not checked here")
    low, high = one.ngram_range
    must(is_whole(low) and is_whole(high) and 1 <= low <= high <= 100, "ngram_range")


def _polynomial(one: Any) -> None:
    """Its numbers follow from the columns and the degree."""
    if "n_output_features_" not in vars(one):
        return
    again = type(one)(one.degree, interaction_only=one.interaction_only, include_bias=one.include_bias, order=one.order)
    again.fit(np.zeros((1, one.n_features_in_)))
    for name in ("_min_degree", "_max_degree", "_n_out_full", "n_output_features_"):
        must(getattr(one, name) == getattr(again, name), f"{name} of polynomials")


def _lightgbm(one: Any) -> None:
    """Parameters go to LightGBM in one text, also when it predicts: none may smuggle in another."""
    from lightgbm.basic import Booster

    for name, value in {**one.get_params(deep=False), **one._other_params}.items():
        must(isinstance(name, str) and name.isidentifier(), "a parameter of LightGBM")
        must(not any(part in name for part in ("pred", "file", "machine")), f"the parameter {name} of LightGBM")
        must(name in ("class_weight", "random_state") or _is_plain(value), f"the parameter {name} of LightGBM")
    must(_is_plain([vars(one).get(name) for name in ("_objective", "_n_classes")]), "the objective of LightGBM")
    must(vars(one).get("_Booster") is None or type(one._Booster) is Booster, "the booster of LightGBM")


def _xgboost(one: Any) -> None:
    """Its verbosity is set for all of XGBoost: one that is none would spoil every other model of the process."""
    from xgboost.core import Booster

    said = one.get_params(deep=False)
    loud = said["verbosity"]
    must(loud is None or (is_whole(loud) and 0 <= loud <= 3), f"the verbosity of XGBoost is {loud!r:.20}")
    missing = said["missing"]
    must(isinstance(missing, (float, np.floating)) or is_whole(missing), "what XGBoost takes as missing is no number")
    for name in ("booster", "objective", "enable_categorical", "feature_types"):  # which predictions read as well
        must(_is_plain(said[name]), f"the parameter {name} of XGBoost")
    for name, value in said.items():
        must(name == "random_state" or _is_made_of_plain(value), f"the parameter {name} of XGBoost")
    must(vars(one).get("_Booster") is None or type(one._Booster) is Booster, "the booster of XGBoost")


def _is_made_of_plain(value: Any) -> bool:
    """Whether it is a text, a number, or a list or dict of such, as constraints of columns are."""
    if isinstance(value, dict):
        return all(map(_is_made_of_plain, [*value.keys(), *value.values()]))
    if isinstance(value, (list, tuple)):
        return all(map(_is_made_of_plain, value))
    return isinstance(value, str) or _is_plain(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return re.fullmatch(r"[\w.,:-]+", value) is not None
    return value is None or isinstance(value, (bool, int, float, np.number, np.bool_))


# ---- random numbers -----------------------------------------------------------------------------------------------


def _random_numbers(one: Any) -> list[Any]:
    """The place within what was drawn ahead is one of those that there are."""
    state = one.get_state(legacy=False) if isinstance(one, np.random.RandomState) else one.bit_generator.state
    place = state["state"].get("pos", 0) if isinstance(state["state"], dict) else 0
    must(0 <= place <= 624 and 0 <= state.get("buffer_pos", 0) <= 4, "random numbers")
    return []
