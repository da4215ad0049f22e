"""Boosters of LightGBM and XGBoost in a model file: parsed here, checked completely, and rewritten for their libraries.

Both libraries read models in C++ without bounds checks: a child that is not a node, a column that no row has or a group
that is not a class would be used as an index. So they never see the contents of a file directly. Known entries are
parsed with a grammar that allows nothing else, every number that is an index is compared with what it points into, and
the library gets a text written from what was checked. What this cannot check is refused: linear trees, DART, linear
boosters, and categorical splits of XGBoost.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

from tightset.storage.ubjson import read_ubjson

__all__ = ["sound_lightgbm", "sound_xgboost"]

_NUMBER = re.compile(r"[-+]?(\d{1,40}(\.\d{1,40})?([eE][-+]?\d{1,4})?|inf|nan)")
_WHOLE = re.compile(r"-?\d{1,10}")
_NAME = re.compile(r"[^\s=]{1,1000}")
_INFO = re.compile(r"none|\[[-+.\deE]{1,60}:[-+.\deE]{1,60}\]|-?\d{1,10}(:-?\d{1,10})*")
_MOST = 2**31 - 1
_LARGEST, _LARGEST_SINGLE = sys.float_info.max, (2 - 2**-23) * 2.0**127  # of double and of single precision
_NO_PARENT = 2**31 - 1

_LIGHTGBM_HEAD = ("version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective")
_LIGHTGBM_TREE = (
    *("num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child"),
    *("right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count"),
    *("cat_boundaries", "cat_threshold", "is_linear", "shrinkage"),
)
_XGBOOST_OF_NODES = ("base_weights", "loss_changes", "sum_hessian", "split_conditions")


def _must(holds: Any, what: str) -> None:
    if not holds:
        raise ValueError(f"a booster does not pass the check: {what}")


# ---- LightGBM -----------------------------------------------------------------------------------------------------


def sound_lightgbm(text: str) -> str:
    """The text of a LightGBM model, made anew of what was checked; ValueError if it is none that can be followed.

    What does not predict (feature importances, the parameters of training) is left out.
    """
    _must(isinstance(text, str), "a LightGBM model is a text")
    head, *trees = re.split(r"^Tree=", text.split("\nend of trees", 1)[0], flags=re.MULTILINE)
    said = dict(_entries(head, ("tree", "average_output")))
    known = {*_LIGHTGBM_HEAD, "tree", "average_output", "feature_names", "feature_infos", "tree_sizes"}
    _must(said.keys() <= known | {"monotone_constraints"}, "its header has an unknown entry")
    columns = _whole(said.get("max_feature_idx", ""), 0, 10**7) + 1
    groups = _whole(said.get("num_tree_per_iteration", ""), 1, 10**6)
    _must(_whole(said.get("num_class", ""), 1, 10**6) in (1, groups), "classes and trees of a round differ")
    _must(_whole(said.get("label_index", "0"), 0, 10**7) <= columns, "its label is in no column")
    _must(re.fullmatch(r"v\d", said.get("version", "")), "its version is unknown")
    _must(len(trees) % groups == 0, "its last round is not whole")
    lines = ["tree"]
    lines += [f"{key}={said[key]}" for key in _LIGHTGBM_HEAD if key in said and key != "objective"]
    if "objective" in said:
        lines.append(f"objective={_lightgbm_objective(said['objective'], groups)}")
    lines += ["average_output"] if "average_output" in said else []
    for key, form in (("feature_names", _NAME), ("feature_infos", _INFO)):
        tokens = said.get(key, "").split(" ")
        _must(len(tokens) == columns and all(form.fullmatch(token) for token in tokens), f"its {key} are no columns")
        lines.append(f"{key}={' '.join(tokens)}")
    parts, largest = [], []
    for at, tree in enumerate(trees):
        part, leaves = _lightgbm_tree(at, tree, columns)
        parts.append(part)
        largest.append(max(map(abs, leaves)))
    _must(sum(largest) < _LARGEST, "the sum of its leaves may be no number")
    lines.append("tree_sizes=" + " ".join(str(len(part)) for part in parts))
    return "\n".join(lines) + "\n\n" + "".join(parts) + "end of trees\n\npandas_categorical:null\n"


def _lightgbm_objective(text: str, groups: int) -> str:
    of_classes = rf"(multiclass|multiclassova) num_class:{groups}( sigmoid:[\d.]{{1,20}})?"
    of_one = r"binary sigmoid:[\d.]{1,20}|cross_entropy|regression( sqrt)?|custom"
    _must(re.fullmatch(of_classes if groups > 1 else of_one, text) or text == "custom", "its objective is unknown")
    return text


def _lightgbm_tree(at: int, text: str, columns: int) -> tuple[str, list[float]]:
    """A tree made anew, and the values of its leaves."""
    number, _, body = text.partition("\n")
    _must(number == str(at), "its trees are not in order")
    said = dict(_entries(body))
    _must(said.get("is_linear", "0") == "0", "a tree is linear, which is not checked here")
    _must(said.keys() <= set(_LIGHTGBM_TREE), "a tree has an unknown entry")
    leaves = _whole(said.get("num_leaves", ""), 1, 10**8)
    categorical = _whole(said.get("num_cat", ""), 0, leaves)
    inner = leaves - 1

    def numbers(key: str, length: int) -> list[str]:
        tokens = said.get(key, "").split()
        _must(len(tokens) == length and all(_NUMBER.fullmatch(token) for token in tokens), f"{key} of a tree")
        return tokens

    def indices(key: str, length: int, least: int, most: int) -> list[int]:
        return [_whole(token, least, most) for token in numbers(key, length)]

    rows: dict[str, Sequence[Any]] = {"num_leaves": [leaves], "num_cat": [categorical]}
    rows["split_feature"] = indices("split_feature", inner, 0, columns - 1)
    kinds = rows["decision_type"] = indices("decision_type", inner, 0, 15)
    left = rows["left_child"] = indices("left_child", inner, -leaves, inner - 1)
    right = rows["right_child"] = indices("right_child", inner, -leaves, inner - 1)
    thresholds = rows["threshold"] = numbers("threshold", inner)
    rows["leaf_value"] = numbers("leaf_value", leaves)
    _must(all(isfinite(float(value)) for value in rows["leaf_value"]), "a leaf of a tree is no number")
    for key, length in (("split_gain", inner), ("leaf_weight", leaves), ("internal_value", inner)):
        rows[key] = numbers(key, length) if said.get(key) else []
    rows["internal_weight"] = numbers("internal_weight", inner) if said.get("internal_weight") else []
    for key, length in (("leaf_count", leaves), ("internal_count", inner)):
        rows[key] = indices(key, length, 0, _MOST) if said.get(key) else []
    _must(all(child < 0 or child > node for side in (left, right) for node, child in enumerate(side)), "a tree turns")
    every_other = [*range(-leaves, 0), *range(1, inner)] if inner else []
    _must(sorted((*left, *right)) == every_other, "a node has two parents, or none")
    of_categories = [thresholds[node] for node, kind in enumerate(kinds) if kind & 1]
    _must(all(_whole(one, 0, categorical - 1) >= 0 for one in of_categories), "a split has no categories")
    if categorical:
        bounds = rows["cat_boundaries"] = indices("cat_boundaries", categorical + 1, 0, _MOST)
        _must(bounds[0] == 0 and all(a <= b for a, b in pairwise(bounds)), "categories are not in order")
        rows["cat_threshold"] = indices("cat_threshold", bounds[-1], 0, 2**32 - 1)
    rows["is_linear"], rows["shrinkage"] = [0], numbers("shrinkage", 1)
    said_again = "\n".join(f"{key}={' '.join(map(str, rows[key]))}" for key in _LIGHTGBM_TREE if key in rows)
    return f"Tree={at}\n{said_again}\n\n\n", [float(value) for value in rows["leaf_value"]]


def _entries(text: str, words: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    seen = set()
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if not line:
            continue
        _must(equals or line in words, "a line is no entry")
        _must(key not in seen, "an entry is there twice")
        seen.add(key)
        yield key, value


def _whole(text: Any, least: int, most: int) -> int:
    _must(isinstance(text, str) and _WHOLE.fullmatch(text), f"{str(text)[:20]!r} is no whole number")
    _must(least <= int(text) <= most, f"{text} points outside")
    return int(text)


# ---- XGBoost ------------------------------------------------------------------------------------------------------


def sound_xgboost(data: bytes) -> bytes:
    """The bytes of an XGBoost booster, made anew of what was checked; ValueError if it cannot be followed.

    Only the model is kept; how it was trained (its configuration) is not.
    """
    import xgboost

    whole = read_ubjson(bytes(data))
    model = _xgboost_model(whole["Model"] if isinstance(whole, dict) and "Model" in whole else whole)
    booster = xgboost.Booster()
    booster.load_model(bytearray(json.dumps(model, allow_nan=False).encode()))
    return bytes(booster.__getstate__()["handle"])


def _xgboost_model(model: Any) -> dict[str, Any]:
    learner = _within(model, "learner")
    param = {key: _text(_within(learner, "learner_model_param"), key) for key in ("num_class", "num_feature")}
    groups, columns = max(1, _whole(param["num_class"], 0, 10**6)), _whole(param["num_feature"], 1, 10**7)
    base = _text(learner["learner_model_param"], "base_score")
    scores = base.strip("[]").split(",")
    _must(base in (scores[0], f"[{','.join(scores)}]"), "its base score is no number")
    right = len(scores) in (1, groups) and all(map(_NUMBER.fullmatch, scores))
    _must(right and all(abs(float(one)) <= _LARGEST_SINGLE for one in scores), "its base score is no number")
    _must(_text(learner["learner_model_param"], "num_target", "1") == "1", "it has several targets")
    average = _text(learner["learner_model_param"], "boost_from_average", "1")
    _must(average in ("0", "1"), "boost_from_average is neither 0 nor 1")
    booster = _within(learner, "gradient_booster")
    _must(booster.get("name") == "gbtree", "it is no booster of plain trees, and others are not checked here")
    trees = _within(booster, "model")
    _must(not any(trees.get("cats", {}).values()), "it has categories, which are not checked here")
    param_of_trees = _within(trees, "gbtree_model_param")
    made = trees.get("trees")
    info, rounds = _integers(trees, "tree_info"), _integers(trees, "iteration_indptr")
    _must(isinstance(made, list) and len(info) == len(made), "its trees are not as many as it says")
    _must(_whole(_text(param_of_trees, "num_trees"), 0, _MOST) == len(info), "its trees are not as many as it says")
    _must(all(0 <= group < groups for group in info), "a tree is of no class")
    _must(rounds[:1] == [0] and rounds[-1:] == [len(info)], "its rounds are not its trees")
    _must(all(a <= b for a, b in pairwise(rounds)), "its rounds are not in order")
    sound = [_xgboost_tree(at, tree, columns) for at, tree in enumerate(made or [])]
    most = sum(map(_largest_leaf, sound)) + max(abs(float(one)) for one in scores)
    _must(most <= _LARGEST_SINGLE, "the sum of its leaves may be no number")
    parallel = _whole(_text(param_of_trees, "num_parallel_tree", "1"), 0, 10**6)
    return {
        "version": [_number(one) for one in _integers(model, "version")][:3],
        "learner": {
            "attributes": {_string(key): _string(one) for key, one in _within(learner, "attributes").items()},
            **{key: _names(learner.get(key, []), columns) for key in ("feature_names", "feature_types")},
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": str(parallel), "num_trees": str(len(info))},
                    "iteration_indptr": rounds,
                    "tree_info": info,
                    "trees": sound,
                },
            },
            "learner_model_param": {**param, "base_score": base, "boost_from_average": average, "num_target": "1"},
            "objective": _xgboost_objective(_within(learner, "objective"), param["num_class"]),
        },
    }


def _largest_leaf(tree: dict[str, Any]) -> float:
    """The value of a leaf is where a split has its threshold."""
    both = zip(tree["split_conditions"], tree["left_children"], strict=True)
    return max(abs(float(value)) for value, child in both if child == -1)


def _xgboost_objective(objective: dict[str, Any], classes: str) -> dict[str, Any]:
    name = objective.get("name")
    if name in ("multi:softprob", "multi:softmax"):
        _must(int(classes) > 0, "its objective has no classes")
        return {"name": name, "softmax_multiclass_param": {"num_class": classes}}
    _must(name in ("binary:logistic", "binary:logitraw", "reg:squarederror", "reg:logistic"), "its objective")
    weight = _text(objective.get("reg_loss_param", {}), "scale_pos_weight", "1")
    _must(_NUMBER.fullmatch(weight), "its objective has a parameter that is no number")
    return {"name": name, "reg_loss_param": {"scale_pos_weight": weight}}


def _xgboost_tree(at: int, tree: Any, columns: int) -> dict[str, Any]:
    """The nodes that can be reached from the first; those that pruning has left behind are dropped."""
    param = _within(tree, "tree_param")
    n = _whole(_text(param, "num_nodes"), 1, _MOST)
    _must(_text(param, "size_leaf_vector", "1") in ("0", "1"), "a leaf has several values")
    _must(_whole(_text(param, "num_feature"), 0, 10**7) <= columns, "a tree has columns of its own")
    keys = ("left_children", "right_children", "split_indices", "default_left", "split_type")
    left, right, column, default, kind = (_integers(tree, key, n) for key in keys)
    floats = {key: _floats(tree, key, n) for key in _XGBOOST_OF_NODES}
    _must(not any(kind) and not tree.get("categories"), "a split is of categories, which are not checked here")
    place, parents, reached = {0: 0}, [_NO_PARENT], [0]
    for node in reached:  # which grows meanwhile
        if left[node] == right[node] == -1:
            continue
        _must(0 <= column[node] < columns and default[node] in (0, 1), "a split is of no column")
        for child in (left[node], right[node]):
            _must(0 < child < n and child not in place, "a tree points outside itself, or turns")
            place[child] = len(reached)
            parents.append(place[node])
            reached.append(child)
    inner = [left[node] != -1 for node in reached]
    return {
        "id": at,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(columns),
            "num_nodes": str(len(reached)),
            "size_leaf_vector": _text(param, "size_leaf_vector", "1"),
        },
        "parents": parents,
        **{
            key: [place.get(side[node], -1) for node in reached] for key, side in zip(keys, (left, right), strict=False)
        },
        "split_indices": [column[node] if split else 0 for node, split in zip(reached, inner, strict=True)],
        "default_left": [default[node] if split else 0 for node, split in zip(reached, inner, strict=True)],
        "split_type": [0] * len(reached),
        **{key: [values[node] for node in reached] for key, values in floats.items()},
        **{key: [] for key in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
    }


def _within(of: Any, key: str) -> dict[str, Any]:
    _must(isinstance(of, dict) and isinstance(of.get(key), dict), f"there is no {key}")
    found: dict[str, Any] = of[key]
    return found


def _text(of: Any, key: str, otherwise: str | None = None) -> str:
    found = of.get(key, otherwise) if isinstance(of, dict) else None
    return _string(found)


def _string(value: Any) -> str:
    _must(isinstance(value, str), f"{str(value)[:20]!r} is no text")
    return str(value)


def _number(value: Any) -> int:
    _must(type(value) is int and 0 <= value <= _MOST, f"{str(value)[:20]!r} is no number")
    return int(value)


def _names(value: Any, columns: int) -> list[str]:
    _must(isinstance(value, list) and len(value) in (0, columns), "its names are no columns")
    return [_string(one) for one in value]


def _integers(of: dict[str, Any], key: str, length: int | None = None) -> list[int]:
    found = of.get(key)
    _must(isinstance(found, list) and all(type(one) is int for one in found), f"{key} are no whole numbers")
    _must(length is None or len(found or []) == length, f"{key} are not as many as the nodes")
    return list(found or [])


def _floats(of: dict[str, Any], key: str, length: int) -> list[float]:
    found = of.get(key)
    _must(isinstance(found, list) and len(found) == length, f"{key} are not as many as the nodes")
    _must(
        all(isinstance(one, (int, float)) and abs(one) <= _LARGEST_SINGLE for one in found or []),
        f"{key} are no numbers",
    )
    return [float(one) for one in found or []]
