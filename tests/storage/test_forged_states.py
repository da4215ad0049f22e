"""Forged states that compiled code would take without looking: refused before it sees them, so that nothing crashes.

Tried in this process: a check that is missing shows as a crash of the whole test run.
"""

import io
import json
import zipfile

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import tightset
from forging import array_of, nodes, put_array, rezipped, with_archive, with_estimator
from tightset import ConformalClassifier
from tightset.exceptions import ModelFileError

X, Y = load_wine(return_X_y=True)
X = X[:, :4].copy()
TREE = DecisionTreeClassifier(max_depth=2)


def json_node(value):
    loader = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
    return {**loader, "content": json.dumps(value)}


def saved(estimator, tmp_path, X=X, Y=Y):
    ConformalClassifier(estimator, random_state=0).fit(X, Y).save(tmp_path / "model")
    return (tmp_path / "model").read_bytes()


def refused(tmp_path, data, match):
    (tmp_path / "forged").write_bytes(data)
    with pytest.raises(ModelFileError, match=match):
        tightset.load(tmp_path / "forged")


# ---- neighbours ---------------------------------------------------------------------------------------------------


def cut(at):
    return lambda tree, _: tree["content"]["content"].__delitem__(slice(at, None))


def a_list(tree, _):
    tree["content"].update(__class__="list", __loader__="ListNode")


def no_state(tree, _):
    tree["content"] = None


def a_number(tree, _):
    tree["content"] = json_node(5)


def at(place, value):
    return lambda tree, _: tree["content"]["content"].__setitem__(place, json_node(value))


def of_other_type(place, change):
    def forge(tree, files):
        node = tree["content"]["content"][place]
        files["other.npy"] = b""
        put_array(files, {"file": "other.npy"}, change(array_of(files, node)))
        tree["content"]["content"][place] = {**node, "file": "other.npy", "__id__": None}

    return forge


def a_metric_twice(tree, _):
    """Whole where it is looked at, short where skops meets its identity for the first time."""
    metric = tree["content"]["content"][11]
    short = {**metric["content"], "content": metric["content"]["content"][:1]}
    tree["content"]["content"][10] = {**metric, "content": short}


def in_metric(change):
    return lambda tree, files: change(tree["content"]["content"][11], files)


STATES = {
    "without weights": cut(12),
    "without a metric": cut(11),
    "cut to five": cut(5),
    "empty": cut(0),
    "a list": a_list,
    "none": no_state,
    "a number": a_number,
    "rows that are none": at(0, None),
    "nodes that are a number": at(2, 7),
    "a size that is a text": at(4, "30"),
    "a metric that is none": at(11, None),
    "weights that are a text": at(12, "x"),
    "rows of one dimension": of_other_type(0, np.ravel),
    "rows without dimension": of_other_type(0, lambda a: a.ravel()[0]),
    "an order of floats": of_other_type(1, lambda a: a.astype(float)),
    "nodes that are numbers": of_other_type(2, lambda a: a["radius"].copy()),
    "a metric of two faces": a_metric_twice,
    "a metric cut to its power": in_metric(cut(1)),
    "a metric without a matrix": in_metric(cut(2)),
    "a metric that is a list": in_metric(a_list),
    "a metric without a state": in_metric(no_state),
    "a metric of no vector": in_metric(at(1, None)),
    "a metric of a flat matrix": in_metric(of_other_type(2, np.ravel)),
}


@pytest.fixture(scope="module", params=["kd_tree", "ball_tree"])
def neighbours(request, tmp_path_factory):
    how = {"algorithm": request.param, "p": 2 if request.param == "kd_tree" else 3}
    return saved(KNeighborsClassifier(**how), tmp_path_factory.mktemp("neighbours"))


@pytest.mark.parametrize("name", STATES)
def test_forged_states_of_neighbours_are_refused(name, neighbours, tmp_path):
    def change(schema, files):
        for node in nodes(schema, "_tree"):
            STATES[name](node, files)

    data = with_estimator(neighbours, change)
    assert data[200:] != with_estimator(neighbours, lambda *_: None)[200:]  # something was changed
    refused(tmp_path, data, r"a (tree of neighbours|metric) is not what scikit-learn writes")


# ---- trees --------------------------------------------------------------------------------------------------------


def nodes_as(change, of="nodes"):
    def forge(schema, files):
        for node in nodes(schema, of):
            put_array(files, node, change(array_of(files, node)))

    return forge


def entry_as(name, made):
    def forge(schema, _):
        for node in nodes(schema, "tree_"):
            node["content"]["content"][name] = made

    return forge


def classes_of_objects(schema, _):
    """The file that is looked at is right, and skops builds another array."""
    for node in nodes(schema, "Tree"):
        classes = node["__reduce__"]["args"]["content"][1]
        shape = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": [json_node(1)]}
        classes.update(type="json", content=[], shape=shape, __id__=None)


TREES = {
    "nodes without dimension": (nodes_as(lambda a: a[0]), "another type"),
    "nodes of two dimensions": (nodes_as(lambda a: a[None]), "another type"),
    "no nodes": (nodes_as(lambda a: a[:0]), "as many nodes as it says"),
    "nodes that are floats": (nodes_as(lambda a: a["threshold"].copy()), "another type"),
    "values without dimension": (nodes_as(lambda a: a.ravel()[0], of="values"), "another type"),
    "values of one dimension": (nodes_as(np.ravel, of="values"), "another type"),
    "values of other precision": (nodes_as(lambda a: a.astype("f4"), of="values"), "another type"),
    "nodes that are none": (entry_as("nodes", json_node(None)), "should be an array"),
    "a number of nodes that is another": (entry_as("node_count", json_node(10**6)), "as many nodes as it says"),
    "a number of nodes that is a text": (entry_as("node_count", json_node("3")), "should be a number"),
    "classes that are objects": (classes_of_objects, "should be an array"),
}


@pytest.mark.parametrize("name", TREES)
def test_forged_sizes_of_trees_are_refused(name, tmp_path):
    change, match = TREES[name]
    refused(tmp_path, with_estimator(saved(TREE, tmp_path), change), match)


def test_trees_of_a_booster_likewise(tmp_path):
    written = saved(GradientBoostingClassifier(n_estimators=1, max_depth=1), tmp_path)
    refused(tmp_path, with_estimator(written, nodes_as(lambda a: a[0])), "not what scikit-learn writes")


# ---- columns of boosters, and what is set for the whole process -----------------------------------------------------


def test_weights_of_a_preprocessor_take_no_columns_away(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    rows = np.column_stack([y + 2.0 * rng.integers(0, 2, 200), y + rng.normal(size=200)])
    hist = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2, categorical_features=[0])
    written = saved(hist, tmp_path, rows, y)

    def change(schema, files):
        put_array(files, {"file": "none.npy"}, np.zeros(0))
        none = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode"}
        none |= {"type": "numpy", "file": "none.npy"}
        text = {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode"}
        types = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [text, text]}
        for node in nodes(schema, "transformer_weights"):
            node.clear()
            node.update({"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode", "key_types": types})
            node["content"] = {"encoder": none, "numerical": none}

    refused(tmp_path, with_estimator(written, change), "columns of a booster have weights")
    tightset.load(tmp_path / "model").predict_set(rows)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("verbosity", 2**32, "the verbosity of XGBoost is 4294967296"),
        ("verbosity", -1, "verbosity"),
        ("verbosity", "3", "verbosity"),
        ("verbosity", True, "verbosity"),
        ("missing", "x", "missing"),
        ("objective", "multi:softprob verbosity=9", "objective"),
        ("feature_types", {"a": 1}, "feature_types"),
        ("_Booster", 3, "the booster of XGBoost"),
    ],
)
def test_forged_parameters_of_xgboost_are_refused(name, value, match, tmp_path):
    written = saved(xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1), tmp_path)

    def change(schema, _):
        for node in nodes(schema, name):
            node.clear()
            node.update(json_node(value))

    refused(tmp_path, with_estimator(written, change), match)
    tightset.load(tmp_path / "model").predict_set(X)


def test_parameters_that_xgboost_takes_are_taken_again(tmp_path):
    constrained = xgboost.XGBClassifier(
        n_estimators=2,
        max_depth=2,
        n_jobs=1,
        verbosity=0,
        monotone_constraints=(1, 0, 0, -1),
        interaction_constraints="[[0, 1], [2, 3]]",
        missing=-1.0,
        eval_metric="mlogloss",
    )
    saved(constrained, tmp_path)
    assert tightset.load(tmp_path / "model").predict_set(X).any()


# ---- archives -----------------------------------------------------------------------------------------------------


def test_archives_that_are_none(tmp_path):
    written = saved(GaussianNB(), tmp_path)

    def twice(data):
        buffer = io.BytesIO(data)
        with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("schema.json", "{}")
        return buffer.getvalue()

    def encrypted(data):
        changed = bytearray(data)
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            found = data.find(mark)
            while found >= 0:
                changed[found + place] |= 1
                found = data.find(mark, found + 1)
        return bytes(changed)

    refused(tmp_path, with_archive(written, twice), "two of its parts have one name")
    refused(tmp_path, with_archive(written, encrypted), "is encrypted|password")
    refused(tmp_path, with_archive(written, lambda data: data[:-30]), "cannot be built")
    refused(tmp_path, with_archive(written, lambda _: b"PK"), "cannot be built")


def test_of_entries_that_are_there_twice_one_is_meant(tmp_path):
    """Every reader of the text takes the last, so what was looked at is what is built."""
    written = saved(TREE, tmp_path)
    none = f'"nodes": {json.dumps(json_node(None))}'

    def first(text):
        return text.replace('"nodes": ', f'{none}, "nodes": ')

    def last(text):
        return text.replace('"values": ', f'{none}, "values": ')

    data = with_archive(written, lambda archive: rezipped(archive, first))
    (tmp_path / "forged").write_bytes(data)
    np.testing.assert_array_equal(
        tightset.load(tmp_path / "forged").predict_p(X), tightset.load(tmp_path / "model").predict_p(X)
    )
    refused(tmp_path, with_archive(written, lambda archive: rezipped(archive, last)), "should be an array is none")
