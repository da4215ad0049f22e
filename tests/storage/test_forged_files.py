"""Estimators in model files with forged numbers: none leads compiled code astray, and none is worse than refused.

Whatever loads here is asked to predict, so a check that is missing shows as a crash of the whole test run.
"""

import json
from functools import partial

import lightgbm
import numpy as np
import pytest
import skops.io
from scipy import sparse
from scipy.special import eval_hermite
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import tightset
from forging import array_of, forged, nodes, put_array, rezipped, with_estimator
from tightset import ConformalClassifier
from tightset.exceptions import ModelFileError
from tightset.storage.compiled import check_compiled

X, Y = load_wine(return_X_y=True)
X = X[:, :6].copy()
X[:, 0] = Y + 3 * (np.arange(len(Y)) % 2)  # categories
AFTER = LogisticRegression(max_iter=2000)


def saved(estimator, tmp_path, rows=X, **how):
    model = ConformalClassifier(estimator, random_state=0, **how).fit(rows, Y)
    model.save(tmp_path / "model")
    return model, (tmp_path / "model").read_bytes()


def opened(tmp_path, data, **how):
    (tmp_path / "forged").write_bytes(data)
    return tightset.load(tmp_path / "forged", **how)


def refused(tmp_path, data, match):
    with pytest.raises(ModelFileError, match=match):
        opened(tmp_path, data)


# ---- arrays that compiled code follows ----------------------------------------------------------------------------


def in_field(field, value, of="nodes"):
    """Put a value into a field of every node of every tree."""

    def change(schema, files):
        for node in nodes(schema, of):
            array = array_of(files, node)
            if field in (array.dtype.names or ()):
                array[field] = value
                put_array(files, node, array)

    return change


def in_array(name, make):
    """Put another array in the place of one, or of those in a list."""

    def change(schema, files):
        for node in nodes(schema, name):
            for part in node["content"] if node["__loader__"] == "ListNode" else [node]:
                if part["__loader__"] == "NdArrayNode":
                    put_array(files, part, make(array_of(files, part)))

    return change


def in_json(name, text):
    def change(schema, _):
        for node in nodes(schema, name):
            if node["__loader__"] == "JsonNode":
                node["content"] = text
                node.pop("__id__", None)

    return change


FOREST = RandomForestClassifier(2, max_depth=3)
EXTRA = ExtraTreesClassifier(2, max_depth=3)
BOOSTED = GradientBoostingClassifier(n_estimators=2, max_depth=2)
HIST = HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=4)
CATEGORIES = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=4, min_samples_leaf=2, categorical_features=[0])
BRUTE = KNeighborsClassifier(algorithm="brute")
ONE_HOT = make_pipeline(make_column_transformer((OneHotEncoder(), [0])), AFTER)
SPLINE = make_pipeline(StandardScaler(), SplineTransformer(n_knots=3), AFTER)
CLUSTERS = make_pipeline(KMeans(3, n_init=1), AFTER)
POLYNOMIAL = make_pipeline(StandardScaler(), PolynomialFeatures(2), AFTER)

FORGERIES = {
    "a child far away": (FOREST, in_field("left_child", 2**40)),
    "a child that is its parent": (FOREST, in_field("right_child", 0)),
    "a negative child": (EXTRA, in_field("left_child", -5)),
    "a column that there is not": (EXTRA, in_field("feature", 6)),
    "a negative column": (FOREST, in_field("feature", -1)),
    "fewer nodes than there are": (DecisionTreeClassifier(), in_json("node_count", "1")),
    "a tree of no outputs": (DecisionTreeClassifier(), in_json("n_features_in_", "99")),
    "fewer columns than a forest": (FOREST, in_json("n_features_in_", "4")),
    "a child of a booster": (BOOSTED, in_field("right_child", 2**40)),
    "fewer classes than a booster": (BOOSTED, in_array("class_prior_", lambda a: a[:1])),
    "a right child": (HIST, in_field("right", 2**30)),
    "a left child that is its parent": (HIST, in_field("left", 0)),
    "no leaf": (HIST, in_field("is_leaf", 0)),
    "a column of a histogram": (HIST, in_field("feature_idx", 99)),
    "categories of no column": (HIST, in_field("is_categorical", 1)),
    "a bitset that there is not": (CATEGORIES, in_field("bitset_idx", 10**6)),
    "bitsets too narrow": (CATEGORIES, in_array("raw_left_cat_bitsets", lambda a: a[:, :1].copy())),
    "fewer categories than columns": (CATEGORIES, in_array("is_categorical_", lambda a: a[:1])),
    "labels beyond the classes": (BRUTE, in_array("_y", lambda a: a + 10**6)),
    "fewer labels than rows": (BRUTE, in_array("_y", lambda a: a[:3])),
    "rows of other columns": (BRUTE, in_array("_fit_X", lambda a: a[:, :2].copy())),
    "more neighbours than rows": (BRUTE, in_json("n_neighbors", "1000000")),
    "no neighbours": (BRUTE, in_json("n_neighbors", "0")),
    "more support vectors": (SVC(), in_array("_n_support", lambda a: a + 10**6)),
    "support vectors of a negative number": (
        SVC(),
        in_array("_n_support", lambda a: a * [-1, 1, 1] + [0, 0, 2 * a[0]]),
    ),
    "fewer coefficients": (SVC(), in_array("_dual_coef_", lambda a: a[:, :2].copy())),
    "fewer intercepts": (SVC(), in_array("_intercept_", lambda a: a[:1])),
    "narrower support vectors": (SVC(), in_array("support_vectors_", lambda a: a[:, :2].copy())),
    "categories out of order": (ONE_HOT, in_array("categories_", lambda a: a[::-1].copy())),
    "a spline of a negative degree": (SPLINE, in_json("k", "-5")),
    "knots that are missing": (SPLINE, in_array("_t", lambda a: a[:2])),
    "narrower centres": (CLUSTERS, in_array("cluster_centers_", lambda a: a[:, :2].copy())),
    "a higher degree": (POLYNOMIAL, in_json("_max_degree", "1000000000")),
    "a million threads": (FOREST, in_json("n_jobs", "1000000")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_numbers_are_refused(name, tmp_path):
    estimator, change = FORGERIES[name]
    _, written = saved(estimator, tmp_path)
    data = with_estimator(written, change)
    assert data[200:] != with_estimator(written, lambda *_: None)[200:]  # something was changed
    refused(tmp_path, data, "do not pass the check|cannot be built|takes other columns")


def test_categories_of_a_one_hot_encoder_fit_its_columns(tmp_path):
    _, written = saved(ONE_HOT, tmp_path)
    for name, text in (("_n_features_outs", "2"), ("_infrequent_enabled", "true")):

        def change(schema, _, name=name, text=text):
            for node in nodes(schema, name):
                for part in [node] if node["__loader__"] == "JsonNode" else node["content"]:
                    part["content"] = text
                    part.pop("__id__", None)

        refused(tmp_path, with_estimator(written, change), "OneHotEncoder do not pass the check")


@pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree"])
def test_trees_of_neighbours_are_built_anew(algorithm, tmp_path):
    model, written = saved(KNeighborsClassifier(algorithm=algorithm, leaf_size=3), tmp_path)
    p = model.predict_p(X)

    def tree(schema):
        (found,) = nodes(schema, {"kd_tree": "KDTree", "ball_tree": "BallTree"}[algorithm]) or [None]
        return found

    def no_leaves(schema, files):
        node = tree(schema)["content"]["content"][2]
        array = array_of(files, node)
        array["is_leaf"] = 0
        put_array(files, node, array)

    def far_away(schema, files):
        node = tree(schema)["content"]["content"][2]
        array = array_of(files, node)
        array["idx_end"] = 10**9
        put_array(files, node, array)

    def shorter(schema, files):
        node = tree(schema)["content"]["content"][1]
        put_array(files, node, array_of(files, node)[:3])

    def more_nodes(schema, _):
        for at in (5, 6):
            tree(schema)["content"]["content"][at] = {**json_node(10**6)}

    def fewer_bounds(schema, files):
        node = tree(schema)["content"]["content"][3]
        put_array(files, node, array_of(files, node)[:, :1].copy())

    for change in (no_leaves, far_away, shorter, more_nodes, fewer_bounds):
        only_trees = lambda schema, files, change=change: change(schema, files) if tree(schema) else None  # noqa: E731
        again = opened(tmp_path, with_estimator(written, only_trees))
        np.testing.assert_array_equal(again.predict_p(X), p)

    def no_leaf_size(schema, _):
        tree(schema)["content"]["content"][4] = {**json_node(0)}

    refused(tmp_path, with_estimator(written, lambda s, f: no_leaf_size(s, f) if tree(s) else None), "leaf_size")


def json_node(value):
    loader = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
    return {**loader, "content": json.dumps(value)}


def test_sizes_that_constructors_take(tmp_path):
    _, written = saved(DecisionTreeClassifier(), tmp_path)

    def outputs(schema, _):
        for node in nodes(schema, "Tree"):
            node["__reduce__"]["args"]["content"][2] = json_node(10**6)

    refused(tmp_path, with_estimator(written, outputs), "as many outputs as it says")

    def twice(schema, _):
        """skops takes the first of two nodes of one identity: the one that is looked at may not be the one used."""
        for node in nodes(schema, "Tree"):
            other = node["__reduce__"]["args"]["content"][2]
            schema["content"]["content"] = {"first": {**json_node(10**6), "__id__": other["__id__"]}} | schema[
                "content"
            ]["content"]

    refused(tmp_path, with_estimator(written, twice), "not what scikit-learn writes|keys of a type that is none")


def test_random_numbers_are_drawn_from_where_there_are_some(tmp_path):
    ConformalClassifier(GaussianNB(), random_state=np.random.RandomState(0)).fit(X, Y).save(tmp_path / "model")
    data = with_estimator((tmp_path / "model").read_bytes(), in_json("pos", "1000000"))
    refused(tmp_path, data, "random numbers")


def test_fields_do_not_stand_in_for_methods(tmp_path):
    _, written = saved(FOREST, tmp_path)

    def change(schema, _):
        state = schema["content"]["content"]
        state["_validate_X_predict"] = {"__class__": "negative", "__module__": "numpy", "__loader__": "FunctionNode"}
        schema["content"]["key_types"]["content"].append(
            {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode"}
        )

    refused(tmp_path, with_estimator(written, change), "_validate_X_predict")


def test_trees_are_only_where_their_rows_are_checked():
    tree = DecisionTreeClassifier().fit(X, Y)
    stack = StackingClassifier([("tree", tree)], final_estimator=AFTER, cv="prefit", stack_method="predict").fit(X, Y)
    check_compiled(stack)
    stack.estimators_ = [tree, tree.tree_]
    with pytest.raises(ValueError, match="a Tree is where none belongs"):
        check_compiled(stack)
    booster = HistGradientBoostingClassifier(max_iter=1).fit(X, Y)
    with pytest.raises(ValueError, match="where none belongs"):
        check_compiled([booster, booster._bin_mapper])


# ---- types that are refused ---------------------------------------------------------------------------------------


def test_what_cannot_be_checked_needs_trust(tmp_path):
    rows = StandardScaler().fit_transform(X)
    radius = ConformalClassifier(RadiusNeighborsClassifier(radius=50.0), random_state=0).fit(rows, Y)
    with pytest.raises(ModelFileError, match=r"would build .*RadiusNeighborsClassifier.*trusted="):
        radius.save(tmp_path / "model")
    trusted = ["sklearn.neighbors._classification.RadiusNeighborsClassifier"]
    radius.save(tmp_path / "model", trusted=trusted)
    with pytest.raises(ModelFileError, match=r"RadiusNeighborsClassifier.*trusted="):
        tightset.load(tmp_path / "model")
    again = tightset.load(tmp_path / "model", trusted=trusted)
    np.testing.assert_array_equal(again.predict_p(rows), radius.predict_p(rows))


def test_what_is_checked_in_part_needs_trust_for_the_rest(tmp_path):
    linear = lightgbm.LGBMClassifier(n_estimators=2, num_leaves=4, linear_tree=True, verbose=-1, n_jobs=1)
    model = ConformalClassifier(linear, random_state=0).fit(X, Y)
    with pytest.raises(ModelFileError, match="a tree is linear"):
        model.save(tmp_path / "model")
    trusted = ["lightgbm.basic.Booster"]
    model.save(tmp_path / "model", trusted=trusted)
    again = tightset.load(tmp_path / "model", trusted=trusted)
    np.testing.assert_array_equal(again.predict_p(X), model.predict_p(X))
    with pytest.raises(ModelFileError, match="a tree is linear"):
        tightset.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["_matrix.spmatrix", "_csr.csr_matrix"])
def test_sparse_matrices_are_refused(name, tmp_path):
    """Their indices are followed without looking, and the archive that they are in may be compressed."""
    _, written = saved(GaussianNB(), tmp_path)
    module, kind = f"scipy.sparse.{name}".rsplit(".", 1)

    def renamed(text):
        return text.replace('"csr_matrix"', f'"{kind}"').replace('"scipy.sparse._csr"', f'"{module}"')

    data = rezipped(skops.io.dumps(sparse.csr_matrix(np.eye(2))), renamed)

    def change(about, arrays):
        at = next(node["skops"] for node in about["nodes"] if "skops" in node)
        arrays[at] = np.frombuffer(data, dtype=np.uint8)

    refused(tmp_path, forged(written, change), f"would build {module}.{kind}")


def test_an_estimator_that_no_file_should_hold(tmp_path):
    _, written = saved(GaussianNB(), tmp_path)
    data = skops.io.dumps(IsolationForest(n_estimators=2).fit(X))

    def change(about, arrays):
        at = next(node["skops"] for node in about["nodes"] if "skops" in node)
        arrays[at] = np.frombuffer(data, dtype=np.uint8)

    refused(tmp_path, forged(written, change), "would build .*IsolationForest")


def test_texts_are_saved_and_their_words_have_columns(tmp_path):
    texts = np.array([f"{word} wine" for word in np.array(["red", "white", "rose"])[Y]], dtype=object)
    model, written = saved(make_pipeline(TfidfVectorizer(), AFTER), tmp_path, rows=texts)
    again = opened(tmp_path, written)
    np.testing.assert_array_equal(again.predict_p(texts), model.predict_p(texts))

    def far_word(schema, files):
        for node in nodes(schema, "vocabulary_"):
            entry = node["content"]["wine"]
            if entry["__loader__"] == "JsonNode":
                entry["content"] = "1000000"
            else:
                put_array(files, entry, np.int64(10**6))

    refused(tmp_path, with_estimator(written, far_word), "a word has no column")
    refused(tmp_path, with_estimator(written, in_json("input", '"filename"')), "texts are to be read from files")
    refused(tmp_path, with_estimator(written, in_json("token_pattern", '"(a+)+$"')), "token_pattern")


# ---- what skops would do with a file that it did not write ---------------------------------------------------------


def test_keys_are_not_made_of_functions(tmp_path):
    """skops calls the type of a key: a function there makes another key, in place of one that was looked at."""
    _, written = saved(lightgbm.LGBMClassifier(n_estimators=2, num_leaves=4, verbose=-1, n_jobs=1), tmp_path)

    def change(schema, _):
        for node in nodes(schema, "Booster"):
            state = node["content"]
            state["content"]["le"] = json_node("tree\nversion=v4\n")
            add = {"__class__": "add", "__module__": "numpy", "__loader__": "FunctionNode"}
            state["key_types"]["content"].append(add)

    refused(tmp_path, with_estimator(written, change), "keys of a type that is none")


def test_other_protocols_of_skops_are_refused(tmp_path):
    """Under an older one skops reads other fields of a node than those that are looked at here."""
    _, written = saved(make_pipeline(FunctionTransformer(np.abs), GaussianNB()), tmp_path)

    def change(schema, _):
        schema["protocol"] = 0

    refused(tmp_path, with_estimator(written, change), "protocol 0 of skops")


def test_functions_with_arguments_are_few(tmp_path):
    """A partial function of skops' choice may take as long as its argument says."""
    with pytest.raises(ModelFileError, match=r"functools\.partial"):
        saved(make_pipeline(FunctionTransformer(partial(eval_hermite, 2)), GaussianNB()), tmp_path)
