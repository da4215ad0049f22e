"""What compiled code of other packages follows without looking, checked when a model file is opened.

scikit-learn's trees, neighbours and support vectors, SciPy's splines and NumPy's random numbers are computed by code
that trusts the arrays it was fitted with. Arrays of a file may be forged: of the right types, with wrong numbers. Each
function here raises ValueError unless every number that is used as an index, a length or a pointer fits what it points
into; a tree of neighbours is built anew from its rows, which is as good.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

__all__ = ["check_compiled"]

_MOST_THREADS = 1024
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
    seen: dict[int, Any] = {}
    todo = [built]
    while todo:
        one = todo.pop()
        if isinstance(one, _ALIKE) or id(one) in seen:
            continue
        seen[id(one)] = one
        kind = type(one)
        name = f"{kind.__module__}.{kind.__qualname__}"
        check = next((checks[base.__name__] for base in kind.__mro__ if base.__name__ in checks), None)
        try:
            if name not in agreed:
                _check_fields(one)
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
        "BaseDecisionTree": _decision_tree,
        "BaseForest": _forest,
        "BaseGradientBoosting": _gradient_boosting,
        "BaseHistGradientBoosting": _hist_gradient_boosting,
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


def _check_fields(one: Any) -> None:
    """No field stands for a method, or for what the class has said for good; no pool has a million threads."""
    fields = {} if isinstance(one, np.ndarray) else getattr(one, "__dict__", {})
    for name in fields:
        own = inspect.getattr_static(type(one), name, None)
        _must(
            not (inspect.isroutine(own) or (own is not None and name.startswith("_") and not hasattr(own, "__set__"))),
            f"a {type(one).__name__} has a field {name!r} in place of its own",
        )
    for name in ("n_jobs", "_n_threads"):
        jobs = fields.get(name)
        _must(jobs is None or (_is_whole(jobs) and abs(jobs) <= _MOST_THREADS), f"{name} is {jobs!r:.20}")


def _must(holds: Any, what: str) -> None:
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise ValueError(what)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _astray(one: Any) -> None:
    _must(False, f"a {type(one).__name__} is where none belongs")  # noqa: FBT003


def _array(value: Any, what: str, *, ndim: int, kinds: str = "f") -> np.ndarray:
    _must(isinstance(value, np.ndarray) and value.ndim == ndim and value.dtype.kind in kinds, what)
    return np.asarray(value)


# ---- trees --------------------------------------------------------------------------------------------------------


def _check_nodes(inner: np.ndarray, left: Any, right: Any, feature: Any, columns: Any) -> None:
    """Children come after their parents and have one each; features are columns that there are."""
    _must(len(inner) > 0, "a tree without a node")
    _must(_is_whole(columns), "a tree without columns")
    at = np.flatnonzero(inner)
    children = [side[inner].astype(np.int64) for side in (left, right)]
    for child in children:
        _must((child > at) & (child < len(inner)), "a child of a tree")
    _must(np.bincount(np.concatenate(children), minlength=1) <= 1, "a node of a tree has two parents")
    used = feature[inner].astype(np.int64)
    _must((used >= 0) & (used < columns), "a split is of no column")


def _check_tree(tree: Any, columns: Any) -> None:
    from sklearn.tree._tree import Tree

    _must(type(tree) is Tree, "a tree is none")
    _must(tree.node_count == tree.capacity, "a tree has not as many nodes as it says")  # before any is read
    _must(tree.n_outputs >= 1 and tree.max_n_classes >= 1, "a tree has no output")
    _check_nodes(tree.children_left != -1, tree.children_left, tree.children_right, tree.feature, columns)


def _decision_tree(one: Any) -> list[Any]:
    if "tree_" in vars(one):
        _check_tree(one.tree_, one.n_features_in_)
    return [value for name, value in vars(one).items() if name != "tree_"]


def _forest(one: Any) -> None:
    from sklearn.tree import BaseDecisionTree

    for tree in getattr(one, "estimators_", ()):  # which do not look at the rows again
        _must(isinstance(tree, BaseDecisionTree) and tree.n_features_in_ == one.n_features_in_, "a tree of a forest")


def _gradient_boosting(one: Any) -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.tree import DecisionTreeRegressor

    if "estimators_" not in vars(one):
        return
    trees = _array(one.estimators_, "trees of a booster", ndim=2, kinds="O")
    columns = one.n_features_in_
    for tree in trees.ravel():
        _must(isinstance(tree, DecisionTreeRegressor) and tree.n_features_in_ == columns, "a tree of a booster")
        _check_tree(tree.tree_, columns)
        _must(tree.tree_.n_outputs == 1, "a tree of a booster has several outputs")
    _must(type(one.init_) is DummyClassifier or one.init_ == "zero", "what a booster starts from is not checked here")
    start = one._raw_predict_init(np.zeros((1, columns), dtype=np.float32))
    _must(start.shape == (1, trees.shape[1]), "a booster has not a tree for each class")


def _hist_gradient_boosting(one: Any) -> list[Any]:
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    _must(not vars(one).get("_in_fit"), "a booster is still being fitted")
    if "_predictors" not in vars(one):
        return list(vars(one).values())
    columns, bins = one.n_features_in_, one._bin_mapper
    _must(type(bins) is _BinMapper, "the bins of a booster")
    _check_fields(bins)
    categorical = _array(bins.is_categorical_, "categories of a booster", ndim=1, kinds="biu").astype(bool)
    _must(len(categorical) == columns, "categories of a booster")
    if one._preprocessor is not None:
        _check_preprocessor(one._preprocessor, columns)
    for predictor in (tree for trees in one._predictors for tree in trees):
        _must(type(predictor) is TreePredictor, "a tree of a booster")
        _check_fields(predictor)
        nodes = _array(predictor.nodes, "nodes of a tree", ndim=1, kinds="V")
        _must(nodes.dtype == PREDICTOR_RECORD_DTYPE, "nodes of a tree")
        inner = nodes["is_leaf"] == 0
        _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], columns)
        split = nodes[inner & (nodes["is_categorical"] != 0)]
        bits = _array(predictor.raw_left_cat_bitsets, "categories of a tree", ndim=2, kinds="u")
        _must(bits.shape[1] == 8 and bits.dtype.itemsize == 4, "categories of a tree")
        _must(split["bitset_idx"] < len(bits), "categories of a tree")
        _must(categorical[split["feature_idx"]], "a split of categories is of another column")
    return [value for name, value in vars(one).items() if name not in ("_predictors", "_bin_mapper")]


def _check_preprocessor(preprocessor: Any, columns: int) -> None:
    """It puts categorical columns first, as numbers, and leaves the others: as many columns come out as go in."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder
    from sklearn.utils.validation import check_array

    _must(type(preprocessor) is ColumnTransformer and preprocessor.n_features_in_ == columns, "columns of a booster")
    _check_fields(preprocessor)
    (first, encoder, coded), (second, same, others) = preprocessor.transformers_[:2]
    _must((first, second) == ("encoder", "numerical"), "columns of a booster")
    _must(all(rest[1] == "drop" for rest in preprocessor.transformers_[2:]), "columns of a booster")
    masks = [_array(mask, "columns of a booster", ndim=1, kinds="b") for mask in (coded, others)]
    _must(all(len(mask) == columns for mask in masks), "columns of a booster")
    _must(masks[0] ^ masks[1], "columns of a booster")
    indices = preprocessor._transformer_to_input_indices
    for name, mask in zip((first, second), masks, strict=True):
        _must(np.array_equal(indices[name], np.flatnonzero(mask)), "columns of a booster")
    _must(type(encoder) is OrdinalEncoder and len(encoder.categories_) == masks[0].sum(), "columns of a booster")
    if type(same) is FunctionTransformer:
        _must(getattr(same.func, "func", None) is check_array and not same.func.args, "columns of a booster")
        _must(set(same.func.keywords) <= {"dtype", "ensure_all_finite", "force_all_finite"}, "columns of a booster")
        _must(not same.kw_args, "columns of a booster")
    else:
        _must(not masks[1].any(), "columns of a booster")


# ---- neighbours, support vectors, clusters ------------------------------------------------------------------------


def _neighbour_tree(one: Any) -> list[Any]:
    """Only its rows, its metric and the size of its leaves are used: the tree is built anew from them."""
    state = one.__getstate__()
    rows, leaf_size, metric, weight = state[0], state[4], state[11], state[12]
    _must(metric is not None, "a tree of neighbours has no metric")
    _array(rows, "rows of neighbours", ndim=2)
    if weight is not None:
        _must(_array(weight, "weights of neighbours", ndim=1).shape == rows.shape[:1], "weights of neighbours")
    one.__setstate__(type(one)(rows, leaf_size=leaf_size, metric=metric, sample_weight=weight).__getstate__())
    return []


def _neighbours(one: Any) -> None:
    if "_fit_X" not in vars(one):
        return
    rows = _array(one._fit_X, "rows of neighbours", ndim=2)
    _must(rows.shape[1] == one.n_features_in_ and one.n_samples_fit_ == len(rows), "rows of neighbours")
    _must(_is_whole(one.n_neighbors) and 1 <= one.n_neighbors <= len(rows), "n_neighbors")
    labels = _array(one._y, "labels of neighbours", ndim=1, kinds="iu")
    _must(len(labels) == len(rows) and not one.outputs_2d_, "labels of neighbours")
    _must((labels >= 0) & (labels < len(one.classes_)), "labels of neighbours")
    _must(one.metric in _METRICS and one.effective_metric_ in _METRICS, f"the metric {one.metric!r:.20}")
    numbers = {name: value for name, value in (one.effective_metric_params_ or {}).items() if value is not None}
    _must(not one.metric_params and numbers.keys() <= {"p"}, "parameters of a metric")
    _must(one.weights in ("uniform", "distance"), "weights of neighbours")
    _must(one._fit_method in ("brute", "kd_tree", "ball_tree"), "the method of neighbours")
    if one._fit_method != "brute":
        _must(np.asarray(one._tree.data).shape == rows.shape, "a tree of neighbours has other rows")


def _support_vectors(one: Any) -> None:
    if "support_vectors_" not in vars(one):
        return
    _must(not one._sparse and one.kernel in ("linear", "poly", "rbf", "sigmoid"), "a kernel that is not checked here")
    vectors = _array(one.support_vectors_, "support vectors", ndim=2)
    n, classes = len(vectors), len(one.classes_)
    pairs = classes * (classes - 1) // 2
    _must(vectors.shape[1] == one.n_features_in_ and classes >= 2, "support vectors")
    _must(len(_array(one.support_, "support_", ndim=1, kinds="i")) == n, "support_")
    counts = _array(one._n_support, "_n_support", ndim=1, kinds="i").astype(np.int64)
    _must(len(counts) == classes and (counts >= 0).all() and counts.sum() == n, "_n_support")
    _must(_array(one._dual_coef_, "_dual_coef_", ndim=2).shape == (classes - 1, n), "_dual_coef_")
    _must(len(_array(one._intercept_, "_intercept_", ndim=1)) == pairs, "_intercept_")
    chances = [len(_array(value, "_probA and _probB", ndim=1)) for value in (one._probA, one._probB)]
    _must(chances in ([0, 0], [pairs, pairs]), "_probA and _probB")
    _must(_is_whole(one.degree) and 0 <= one.degree <= 1000, "the degree of a kernel")


def _k_means(one: Any) -> None:
    if "cluster_centers_" in vars(one):
        centres = _array(one.cluster_centers_, "centres of clusters", ndim=2)
        _must(centres.shape == (one.n_clusters, one.n_features_in_), "centres of clusters")


# ---- columns and texts --------------------------------------------------------------------------------------------


def _spline(one: Any) -> None:
    """Its constructor checks all of it, which loading leaves out."""
    type(one)(one.t, one.c, one.k, extrapolate=one.extrapolate, axis=one.axis)
    _must(_is_whole(one.k) and one.k <= 100 and one.axis == 0, "the degree of a spline")


def _one_hot(one: Any) -> None:
    """The column of a category, after rare ones are put together and one is dropped, is a column that there is."""
    if "categories_" not in vars(one):
        return
    drop, n = one._drop_idx_after_grouping, len(one.categories_)
    _must(n == one.n_features_in_ and len(one._n_features_outs) == n, "columns of categories")
    _must(drop is None or np.shape(drop) == (n,), "categories that are dropped")
    for at, values in enumerate(map(np.asarray, one.categories_)):
        _must(values.ndim == 1 and len(values) > 0, "categories")
        if values.dtype.kind not in "OUST":
            numbers = values[:-1] if values[-1] != values[-1] else values
            _must((numbers[:-1] < numbers[1:]) & (numbers[:-1] == numbers[:-1]), "categories are not in order")
        width = len(values)
        rare = one._infrequent_indices[at] if one._infrequent_enabled else None
        if rare is not None:
            _must(_array(rare, "rare categories", ndim=1, kinds="iu") < width, "rare categories")
            _must(len(rare) >= 1 and rare.min() >= 0, "rare categories")
            place = _array(one._default_to_infrequent_mappings[at], "rare categories", ndim=1, kinds="iu")
            _must(len(place) == width, "rare categories")
            width -= len(rare) - 1
            _must((place >= 0) & (place < width), "rare categories")
        elif one._infrequent_enabled:
            _must(one._default_to_infrequent_mappings[at] is None, "rare categories")
        dropped = None if drop is None else drop[at]
        _must(dropped is None or (_is_whole(dropped) and 0 <= dropped < width), "categories that are dropped")
        _must(one._n_features_outs[at] == width - (dropped is not None), "columns of categories")


def _vectorizer(one: Any) -> None:
    _check_words(one)
    words = vars(one).get("vocabulary_", {})
    places = list(words.values())
    _must(all(map(_is_whole, places)) and sorted(places) == list(range(len(words))), "a word has no column")


def _hashing(one: Any) -> None:
    _check_words(one)
    _must(_is_whole(one.n_features) and 1 <= one.n_features < 2**31, "n_features")


def _check_words(one: Any) -> None:
    # a pattern may take for ever, and a name may be that of a file
    _must(one.input == "content", "texts are to be read from files")
    _must(one.token_pattern in (_PLAIN_WORDS, None), "a token_pattern of its own is not checked here")
    low, high = one.ngram_range
    _must(_is_whole(low) and _is_whole(high) and 1 <= low <= high <= 100, "ngram_range")


def _polynomial(one: Any) -> None:
    """Its numbers follow from the columns and the degree."""
    if "n_output_features_" not in vars(one):
        return
    again = type(one)(one.degree, interaction_only=one.interaction_only, include_bias=one.include_bias, order=one.order)
    again.fit(np.zeros((1, one.n_features_in_)))
    for name in ("_min_degree", "_max_degree", "_n_out_full", "n_output_features_"):
        _must(getattr(one, name) == getattr(again, name), f"{name} of polynomials")


def _lightgbm(one: Any) -> None:
    """Parameters go to LightGBM in one text, also when it predicts: none may smuggle in another."""
    from lightgbm.basic import Booster

    told = {**one.get_params(deep=False), **one._other_params}
    for name, value in told.items():
        _must(isinstance(name, str) and name.isidentifier(), "a parameter of LightGBM")
        _must("shape_check" not in name and "file" not in name and "predict" not in name, f"the parameter {name}")
        values = value if isinstance(value, (list, tuple)) else [value]
        if name not in ("class_weight", "random_state"):
            _must(all(_is_plain(part) for part in values), f"the parameter {name} of LightGBM")
    for name in ("_objective", "_n_classes"):
        _must(_is_plain(vars(one).get(name)), f"{name} of LightGBM")
    _must(vars(one).get("_Booster") is None or type(one._Booster) is Booster, "the booster of LightGBM")


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return value.replace("_", "").replace(".", "").replace("-", "").isalnum()
    return value is None or isinstance(value, (bool, int, float, np.number, np.bool_))


# ---- random numbers -----------------------------------------------------------------------------------------------


def _random_numbers(one: Any) -> list[Any]:
    """The place within what was drawn ahead is one of those that there are."""
    state = one.get_state(legacy=False) if isinstance(one, np.random.RandomState) else one.bit_generator.state
    place = state["state"].get("pos", 0) if isinstance(state["state"], dict) else 0
    _must(0 <= place <= 624 and 0 <= state.get("buffer_pos", 0) <= 4, "random numbers")
    return []
