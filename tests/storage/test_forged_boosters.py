"""Boosters of LightGBM and XGBoost in model files: read here, checked, and made anew; forged ones are refused."""

import json
import re
import struct
from dataclasses import replace

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

import tightset
from forging import forged, nodes, with_estimator
from makers import quick_on_top
from tightset import ConformalClassifier
from tightset.exceptions import ModelFileError
from tightset.models.trees import Trees
from tightset.storage.boosters import _xgboost_model, sound_lightgbm, sound_xgboost

X, Y = load_wine(return_X_y=True)
X = X[:, :6].copy()
X[:, 0] = Y + 3 * (np.arange(len(Y)) % 2)  # categories


def opened(tmp_path, data):
    (tmp_path / "forged").write_bytes(data)
    return tightset.load(tmp_path / "forged")


def refused(tmp_path, data, match):
    with pytest.raises(ModelFileError, match=match):
        opened(tmp_path, data)


@pytest.fixture
def written(tmp_path):
    ConformalClassifier(boosted(), random_state=0).fit(X, Y).save(tmp_path / "model")
    return (tmp_path / "model").read_bytes()


def boosted(**how):
    return lightgbm.LGBMClassifier(n_estimators=2, num_leaves=4, verbose=-1, n_jobs=1, **how)


@pytest.fixture(scope="module")
def lightgbm_text():
    settings = {"min_child_samples": 2, "min_data_per_group": 2, "cat_smooth": 1.0, "max_cat_to_onehot": 1}
    text = boosted(**settings).fit(X, Y, categorical_feature=[0]).booster_.model_to_string()
    assert "\ncat_threshold=" in text
    return text


def test_a_booster_of_lightgbm_predicts_the_same(lightgbm_text):
    before, after = (lightgbm.Booster(model_str=text) for text in (lightgbm_text, sound_lightgbm(lightgbm_text)))
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    assert sound_lightgbm(after.model_to_string()) == sound_lightgbm(lightgbm_text)


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (r"(?<=left_child=)-?\d+", "99999"),
        (r"(?<=left_child=).*", "0 0 0"),
        (r"(?<=right_child=).*", "0 0 0"),
        (r"(?<=right_child=)-?\d+", "-99999"),
        (r"(?<=split_feature=)\d+", "6"),
        (r"(?<=num_leaves=)\d+", "99999"),
        (r"(?<=num_leaves=)\d+", "1"),
        (r"(?<=leaf_value=)\S+ ", ""),
        (r"(?<=cat_boundaries=).*", "0 99999"),
        (r"(?<=cat_threshold=).*", ""),
        (r"(?<=num_cat=)[1-9]", "0"),
        (r"(?<=decision_type=)\d+", "99"),
        (r"(?<=is_linear=)0", "1"),
        (r"(?<=num_class=)3", "99"),
        (r"(?<=num_class:)3", "99"),
        (r"(?<=num_tree_per_iteration=)3", "4"),
        (r"(?<=num_tree_per_iteration=)3", "0"),
        (r"(?<=max_feature_idx=)\d+", "99999"),
        (r"(?<=max_feature_idx=)\d+", "2"),
        (r"(?<=objective=)\w+", "lambdarank"),
        (r"shrinkage=.*", "shrinkage=0.1\nnum_leaves=9999"),
        (r"(?<=leaf_value=)\S+", "nan"),
        (r"(?<=leaf_value=)\S+", "-inf"),
        (r"(?<=leaf_value=)\S+ \S+", "1.7e308 1e999"),
        (r"Tree=1", "Tree=7"),
        (r"tree\n", "tree\nmachines=elsewhere\n"),
    ],
)
def test_forged_boosters_of_lightgbm_are_refused(pattern, other, lightgbm_text):
    text = re.sub(pattern, other, lightgbm_text, count=1)
    assert text != lightgbm_text
    with pytest.raises(ValueError, match="a booster does not pass the check"):
        sound_lightgbm(text)


def test_sizes_of_trees_in_a_text_are_not_read(lightgbm_text):
    text = re.sub(r"tree_sizes=.*", "tree_sizes=999999999 1", lightgbm_text)
    assert sound_lightgbm(text) == sound_lightgbm(lightgbm_text)


def test_a_forged_booster_in_a_file(written, tmp_path):
    def change(schema, _):
        for node in nodes(schema, "_handle"):
            node["content"] = json.dumps(re.sub(r"(?<=left_child=)\S+", "99999", json.loads(node["content"])))

    refused(tmp_path, with_estimator(written, change), "99999 points outside")

    def no_model(schema, _):
        for node in nodes(schema, "_handle"):
            node["content"] = "null"

    refused(tmp_path, with_estimator(written, no_model), "a LightGBM model is a text")

    def another(schema, _):
        """A clean text, of an identity that a part before it has already: skops would take that one."""
        for node in nodes(schema, "_handle"):
            bad = json.dumps(re.sub(r"(?<=left_child=)\S+", "99999", json.loads(node["content"])))
            first = {**node, "content": bad}
            schema["content"]["content"] = {"first": first} | schema["content"]["content"]
            types = schema["content"]["key_types"]["content"]
            types.insert(0, types[0])

    opened(tmp_path, with_estimator(written, another)).predict_set(X)  # the clean one was taken


def test_parameters_of_lightgbm_bring_no_others(written, tmp_path):
    def smuggled(schema, _):
        for node in nodes(schema, "boosting_type"):
            node["content"] = '"gbdt predict_disable_shape_check=true"'
            node.pop("__id__", None)

    refused(tmp_path, with_estimator(written, smuggled), "boosting_type")


@pytest.fixture(scope="module")
def xgboost_bytes():
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(X, Y)
    return model, bytes(model.get_booster().__getstate__()["handle"])


def test_a_booster_of_xgboost_predicts_the_same(xgboost_bytes):
    model, data = xgboost_bytes
    again = xgboost.Booster()
    again.__setstate__({"handle": bytearray(sound_xgboost(data))})
    rows = xgboost.DMatrix(X)
    np.testing.assert_array_equal(again.predict(rows), model.get_booster().predict(rows))
    assert sound_xgboost(sound_xgboost(data)) == sound_xgboost(data)


def test_forged_boosters_of_xgboost_are_refused(xgboost_bytes):
    _, data = xgboost_bytes
    for name, at, value in (
        ("left_children", 0, 99999),
        ("left_children", 1, 0),
        ("right_children", 0, -7),
        ("split_indices", 0, 6),
    ):
        where = data.index(name.encode() + b"[$l#L") + len(name) + 5 + 8 + 4 * at
        altered = data[:where] + value.to_bytes(4, "big", signed=True) + data[where + 4 :]
        with pytest.raises(ValueError, match="a booster does not pass the check"):
            sound_xgboost(altered)
    for name in ("tree_info", "iteration_indptr"):  # of small numbers, each with its mark
        where = data.index(name.encode() + b"[#L") + len(name) + 3 + 8 + 3
        with pytest.raises(ValueError, match=r"a tree is of no class|rounds are not in order"):
            sound_xgboost(data[:where] + b"\x63" + data[where + 1 :])
    rng = np.random.default_rng(0)
    for at in rng.integers(len(data), size=300):  # a byte, any byte: refused, or a model that predicts
        altered = bytearray(data)
        altered[at] = rng.integers(256)
        try:
            sound = sound_xgboost(bytes(altered))
        except (ValueError, xgboost.core.XGBoostError):
            continue
        again = xgboost.Booster()
        again.__setstate__({"handle": bytearray(sound)})
        again.predict(xgboost.DMatrix(X))
    with pytest.raises(ValueError, match=r"cut short|longer|larger"):
        sound_xgboost(data[:-100])


# ---- boosters that a measure of this package is trained on ---------------------------------------------------------


def with_single(data, name, value):
    """All numbers of an array of single precision replaced, in every tree."""
    mark = name.encode() + b"[$d#L"
    at = data.index(mark)
    while at >= 0:
        begin = at + len(mark) + 8
        count = int.from_bytes(data[begin - 8 : begin], "big")
        data = data[:begin] + struct.pack(">f", value) * count + data[begin + 4 * count :]
        at = data.find(mark, begin)
    return data


@pytest.mark.parametrize("value", [3.3e38, np.nan, -np.inf])
def test_leaves_of_xgboost_whose_sum_is_no_number(value, xgboost_bytes):
    _, data = xgboost_bytes
    with pytest.raises(
        ValueError, match=r"a booster does not pass the check: (the sum of its leaves|split_conditions)"
    ):
        sound_xgboost(with_single(data, "split_conditions", value))


@pytest.mark.parametrize("score", ["nan", "1e39", "-inf"])
def test_base_scores_of_xgboost_that_are_no_numbers(score):
    model = json.loads(
        xgboost.XGBClassifier(n_estimators=1, max_depth=1, n_jobs=1).fit(X, Y).get_booster().save_raw("json")
    )
    model["learner"]["learner_model_param"]["base_score"] = score
    with pytest.raises(ValueError, match="its base score is no number"):
        _xgboost_model(model)


def test_leaves_of_lightgbm_whose_sum_is_no_number(lightgbm_text):
    text = re.sub(r"(?<=leaf_value=)\S+", "1.7e308", lightgbm_text)
    with pytest.raises(ValueError, match="the sum of its leaves may be no number"):
        sound_lightgbm(text)


@pytest.fixture(scope="module")
def on_trees(tmp_path_factory):
    """By library: a file of a model whose mixture has a block of trees."""

    def made(library):
        if library == "lightgbm":
            booster = lightgbm.train(
                {"objective": "multiclass", "num_class": 3, "verbose": -1}, lightgbm.Dataset(X, Y), 5
            )
        else:
            settings = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
            booster = xgboost.train(settings, xgboost.DMatrix(X, Y), 5)
        model = quick_on_top(GaussianNB()).fit(X, Y)
        (stacked,) = model.folds_[0].models
        trees = Trees(library, booster, 5, 3)
        both = stacked._replace(blocks=[*stacked.blocks, trees], weights=np.full(1 + len(stacked.blocks), 0.5))
        model.fitted_ = replace(model.fitted_, folds=[model.folds_[0]._replace(models=[both])])
        path = tmp_path_factory.mktemp(library) / "model"
        model.save(path)
        assert tightset.load(path).predict_set(X).any()
        return path.read_bytes()

    return {library: made(library) for library in ("lightgbm", "xgboost")}


def test_trees_whose_scores_are_no_numbers(on_trees, tmp_path):
    def of_lightgbm(schema, _):
        for node in nodes(schema, "_handle"):
            node["content"] = json.dumps(re.sub(r"(?<=leaf_value=)\S+", "inf", json.loads(node["content"])))

    def of_xgboost(schema, files):
        for node in nodes(schema, "handle"):
            if node["__loader__"] == "BytearrayNode":
                files[node["file"]] = with_single(files[node["file"]], "split_conditions", 3.3e38)

    refused(tmp_path, with_estimator(on_trees["lightgbm"], of_lightgbm), "a leaf of a tree is no number")
    refused(tmp_path, with_estimator(on_trees["xgboost"], of_xgboost), "the sum of its leaves may be no number")


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("rounds", 0, r"Trees\.n_classes"),
        ("rounds", "5", r"Trees\.rounds is '5'"),
        ("n_classes", 2, r"Trees\.n_classes"),
        ("library", "catboost", r"Trees\.library"),
        ("booster", None, r"Trees\.booster must be a"),
    ],
)
def test_trees_of_other_fields(field, value, match, on_trees, tmp_path):
    for written in on_trees.values():

        def change(about, _):
            (trees,) = (node["fields"] for node in about["nodes"] if node.get("kind") == "Trees")
            trees[field] = value

        refused(tmp_path, forged(written, change), match)


def test_trees_of_the_other_library(on_trees, tmp_path):
    def change(about, _):
        (trees,) = (node["fields"] for node in about["nodes"] if node.get("kind") == "Trees")
        trees["library"] = "lightgbm" if trees["library"] == "xgboost" else "xgboost"

    for written in on_trees.values():
        refused(tmp_path, forged(written, change), r"Trees\.booster must be a \w+\.\w+\.Booster")


def test_the_scores_of_trees_are_looked_at(on_trees, tmp_path, monkeypatch):
    """A net beneath the check of the booster itself."""
    monkeypatch.setattr(Trees, "scores", lambda self, X: np.full((len(X), self.n_classes), np.inf))
    refused(tmp_path, on_trees["xgboost"], r"Trees\.booster must score each class, by a number")
