"""Every entry of a model file replaced by something else: the file is refused, or predicts as a model does.

``python tests/storage/test_forged_headers.py`` tries all of them; the test a few, spread evenly.
"""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB

import tightset
from forging import forged
from makers import baseline, quick_on_top, quick_scpo, table
from tightset import ConformalClassifier
from tightset.conformal import scores
from tightset.estimators.stored import check_predictor
from tightset.exceptions import ModelFileError
from tightset.scores import PerCost
from tightset.storage import file as storage
from tightset.tables.fitting import fit_table

X, Y = load_wine(return_X_y=True)
FRAME = table(200)
TRIED = {"on top": 25}  # a forest is slow to open
OTHERS = [
    *(None, True, False, 0, 1, -1, 3, 10**12, 0.5, -1.5, "", "x", "linear", [], [1], [[]], {}),
    *({"float": "nan"}, {"float": "inf"}, {"float": "1e999"}, {"tuple": []}, {"tuple": [1, "a"]}, {"dict": []}),
    *({"dict": [[[], 1]]}, {"dict": [1]}, {"fraction": "1/0"}, {"fraction": "9/10"}, {"decimal": "NaN"}),
    *({"decimal": "1E99"}, {"scalar": "<i1", "value": 300}, {"scalar": "<f16", "value": 1}, {"scalar": "f8,f8"}),
    *({"scalar": "<f8", "value": [1, 2]}, {"ref": 0}, {"ref": 3}, {"ref": True}, {"ref": -1}, {"array": "a0"}),
    *({"strings": ["a"], "dtype": "<U1", "shape": [10**9, 10**9, 10**9]}, {"strings": [1], "dtype": "T", "shape": [1]}),
    *({"objects": [1], "shape": ["x"]}, {"kind": "Fold", "fields": {}}, {"kind": "LAC", "fields": {"x": 1}}),
]
MODELS = {
    "scpo": lambda: quick_scpo(confidence=[0.8, 0.9]).fit(X, Y),
    "each label": lambda: quick_scpo(confidence=0.8, label_conditional=True, allow_empty=False).fit(X, Y),
    "classifier": lambda: baseline(estimator=GaussianNB(), conformity_score=scores.RAPS(randomised=True)).fit(X, Y),
    "on top": lambda: quick_on_top(ExtraTreesClassifier(2, max_depth=2), random_state=0).fit(X, Y),
    "table": lambda: fit_table(FRAME, "kind", quick_scpo(confidence=0.9), baseline(confidence=0.9)),
}


def places(value, path=()):
    """The path to everything inside a JSON value."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(one, (*path, key))


def replaced(written, path, other):
    def change(about, _):
        inside = about
        for key in path[:-1]:
            inside = inside[key]
        if other is places:  # a mark: take it away
            del inside[path[-1]]
        else:
            inside[path[-1]] = other

    return forged(written, change)


def cases(written):
    about = json.loads(storage._split(written)[1]["__metadata__"]["tightset"])
    of_model = [path for name in about if name != "sha256" for path in [(name,), *places(about[name], (name,))]]
    return [(path, other) for path in of_model for other in [*OTHERS, places]]


def outcome(path, rows):
    """How a file fares: None if it is refused; else it must predict."""
    try:
        model = tightset.load(path)
    except ModelFileError:
        return None
    p = np.asarray(model.predict_p(rows))
    sets = np.asarray(model.predict_set(rows))
    assert p.shape[-2:] == sets.shape[-2:] == (len(rows), len(model.classes_))
    assert sets.dtype == bool
    assert ((p > 0) & (p <= 1)).all()
    assert set(np.asarray(model.predict(rows)).tolist()) <= set(model.classes_.tolist())
    repr(model)
    return model


def sweep(name, folder, few=None):
    """How many files were tried, and how many opened; an AssertionError if one opens and does not predict."""
    path = folder / "model"
    MODELS[name]().save(path)
    written, opened = path.read_bytes(), 0
    rows = FRAME.drop(columns="kind").iloc[:4] if name == "table" else X[:4]
    tried = cases(written)
    tried = tried[:: len(tried) // few] if few else tried
    for where, other in tried:
        path.write_bytes(replaced(written, where, other))
        try:
            opened += outcome(path, rows) is not None
        except Exception as error:
            raise AssertionError(f"{name}: {where} replaced by {other!r:.60}: {error!r}") from error
    return len(tried), opened


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")  # other levels than trained, few rows
@pytest.mark.parametrize("name", MODELS)
def test_whatever_an_entry_is_replaced_by(name, tmp_path):
    tried, opened = sweep(name, tmp_path, TRIED.get(name, 120))
    assert tried >= TRIED.get(name, 120)
    assert opened < tried / 4  # entries that only people read may say anything


# ---- what is refused by name --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scpo(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    quick_scpo(confidence=[0.8, 0.9]).fit(X, Y).save(path)
    return path.read_bytes()


def of_kind(about, kind):
    return next(node["fields"] for node in about["nodes"] if node.get("kind") == kind)


def array_at(about, value):
    return about["nodes"][value["ref"]]["array"]


def swap_classes(about, arrays):
    at = array_at(about, of_kind(about, "SCPOClassifier")["classes_"])
    arrays[at] = arrays[at][::-1].copy()


def spoil(kind, field, change):
    """Change the array that is a field of a kind."""

    def forge(about, arrays):
        at = array_at(about, of_kind(about, kind)[field])
        arrays[at] = change(arrays[at])

    return forge


def put(kind, field, value):
    return lambda about, _: of_kind(about, kind).__setitem__(field, value)


def spoil_alphas(change):
    def forge(about, arrays):
        ((_, scores),) = of_kind(about, "Calibration")["alphas"]["dict"]
        at = array_at(about, scores)
        arrays[at] = change(arrays[at])

    return forge


NAMED = {
    "classes out of order": (swap_classes, r"SCPOClassifier\.classes_ must be labels, each once, in order"),
    "scores that are NaN": (spoil_alphas(lambda a: a * np.nan), r"Calibration\.alphas has values that are not numbers"),
    "scores of two dimensions": (spoil_alphas(lambda a: a[None]), r"Calibration\.alphas must be an array of floats"),
    "scores that are whole": (spoil_alphas(lambda a: a.astype(int)), r"Calibration\.alphas must be an array of floats"),
    "fewer scores than it says": (spoil_alphas(lambda a: a[:5]), "its header says calibration"),
    "no category": (put("Calibration", "alphas", {"dict": []}), r"Calibration\.alphas must be a dict"),
    "a label that there is not": (put("Calibration", "by_label", value=True), r"a label of Calibration\.alphas"),
    "fewer parameters": (
        spoil("Member", "theta", lambda a: a[:-1]),
        r"Member\.theta must be an array of floats, \d+ x",
    ),
    "parameters that are NaN": (spoil("Member", "theta", lambda a: a * np.nan), r"Member\.theta has values"),
    "an unknown measure": (put("Member", "measure", "cubic"), r"Member\.measure must be one of"),
    "a threshold that is a text": (put("Member", "threshold", "high"), r"Member\.threshold is 'high'"),
    "a scale of zero": (spoil("Scaling", "scale", lambda a: a * 0), r"Scaling\.scale must be positive"),
    "models of no fold": (put("Fold", "models", []), r"Fold\.models must be 2, one a level"),
    "folds of none": (put("SCPOClassifier", "folds_", []), r"SCPOClassifier\.folds_ must be a list of folds"),
    "a level of zero": (put("SCPOClassifier", "levels_", {"tuple": [0, 0.9]}), r"SCPOClassifier\.levels_"),
    "a confidence of two": (put("SCPOClassifier", "confidence", 2), "confidence must be a number between 0 and 1"),
    "a fraction of zero": (put("SCPOClassifier", "confidence", {"fraction": "1/0"}), "a value of an unknown form"),
    "a cost for all labels": (put("SCPOClassifier", "cost", 2.5), r"SCPOClassifier\.cost: cost must have a number"),
    "costs for other labels": (put("SCPOClassifier", "cost", [[1, 2], [3, 4]]), r"SCPOClassifier\.cost: .*2, 2"),
    "a cost that is a model": (put("SCPOClassifier", "cost", {"ref": 0}), r"SCPOClassifier\.cost: "),
    "a verdict beyond numbers": (put("Verdict", "baseline", 2**64), r"Found\.verdict: "),
    "columns of a text": (put("SCPOClassifier", "n_features_in_", "13"), r"n_features_in_ must be a positive number"),
    "other columns": (put("SCPOClassifier", "n_features_in_", 12), r"Knots\.column must be|must be an array of floats"),
    "a method": (put("SCPOClassifier", "predict_set", 1), r"predict_set is what the class has itself"),
    "no class": (lambda about, _: of_kind(about, "SCPOClassifier").pop("classes_"), "classes_ is missing"),
    "other levels than it says": (lambda about, _: about.update(levels=[0.5]), "its header says levels"),
    "other columns than it says": (lambda about, _: about.update(columns=12), "its header says columns"),
    "another kind than it says": (lambda about, _: about.update(kind="TablePredictor"), "its header says kind"),
    "other classes than it says": (lambda about, _: about["classes"].reverse(), "its header says classes"),
    "a header of another form": (lambda about, _: about.update(versions=[1]), "'versions' in its header"),
    "a header without levels": (lambda about, _: about.pop("levels"), "'levels' in its header"),
    "ranks of another form": (lambda about, _: about["calibration"][0].pop("rank"), "'calibration' in its header"),
    "a fold and not a model": (lambda about, _: about.update(root={"ref": 0}), "and not a model"),
    "nested deeply": (lambda about, _: about.update(root=json.loads("[" * 900 + "]" * 900)), "can read|not a model"),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_wrong_has_a_name(name, scpo, tmp_path):
    change, match = NAMED[name]
    (tmp_path / "bad").write_bytes(forged(scpo, change))
    with pytest.raises(ModelFileError, match=match):
        tightset.load(tmp_path / "bad")


def test_thresholds_are_worked_out_and_not_read(scpo, tmp_path):
    """Files of the first versions hold them; what they say does not matter, nor do numbers of rows."""
    old = Path(__file__).parent / "model_files" / "format-1-arrays.tightset"
    sets = tightset.load(old).predict_set(X)

    def change(about, _):
        changed = 0
        for node in about["nodes"]:
            if node.get("kind") == "Calibration":
                for _, value in node["fields"]["_thresholds"]["dict"]:
                    value["value"] = 1e300
                    changed += 1
                node["fields"]["_rows"] = {"dict": []}
                node["fields"]["_in_order"] = True
        assert changed

    (tmp_path / "forged").write_bytes(forged(old.read_bytes(), change))
    assert sets.any()
    np.testing.assert_array_equal(tightset.load(tmp_path / "forged").predict_set(X), sets)
    said = json.loads(storage._split(scpo)[1]["__metadata__"]["tightset"])
    assert of_kind(said, "Calibration").keys() == {*("alphas", "by_label", "by_group", "slacks", "mark", "abstention")}


if __name__ == "__main__":
    import tempfile

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for one in sys.argv[1:] or MODELS:
            print(one, *sweep(one, Path(folder)), flush=True)  # noqa: T201


def test_the_costs_of_a_score_are_for_its_labels(tmp_path):
    clf = ConformalClassifier(conformity_score=PerCost([1, 2, 3]), random_state=0).fit(X, Y)
    clf.save(tmp_path / "model")
    for kept in (0, 1):  # the parameter, and the score of the model that was trained

        def change(about, _, kept=kept):
            scores = [node["fields"] for node in about["nodes"] if node.get("kind") == "PerCost"]
            scores[kept % len(scores)]["cost"] = {"tuple": [1.0, 2.0]}

        (tmp_path / "bad").write_bytes(forged((tmp_path / "model").read_bytes(), change))
        with pytest.raises(ModelFileError, match="cost"):
            tightset.load(tmp_path / "bad")


def test_intervals_have_one_threshold(tmp_path):
    model = ConformalClassifier(ordered=True, random_state=0).fit(X, Y)
    free = ConformalClassifier(confidence=0.8, label_conditional=True, random_state=0).fit(X, Y)
    (fold,) = model.fitted_.folds
    model.fitted_ = replace(model.fitted_, folds=[fold._replace(calibrations=free.fitted_.folds[0].calibrations)])
    with pytest.raises(ModelFileError, match="sets of ordered labels have one threshold"):
        check_predictor(model)
