"""From a file to a decision at the command line; and what is said when the file is not what it should be."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import tightset
from commands import FAST, refused, write
from makers import table
from tightset.search.settings import SEARCHES, Search
from tightset.tables.fitting import fit_table


def test_fit_says_what_was_done(here, cli):
    code, out, err = cli("fit", "train.csv", "--target", "kind", *FAST, "--out", "again.tightset")
    assert (code, err) == (0, "")
    assert "600 rows, 4 columns, 3 labels; 450 rows train, 150 calibrate." in out
    assert "left out 'name'" in out
    assert "At 80% confidence" in out
    assert "written: again.tightset" in out
    assert cli("fit", "train.csv", "--target", "kind", *FAST, "--out", "more.tightset")[0] == 0
    first, second = (tightset.load(name) for name in ("again.tightset", "more.tightset"))
    new = table(50, seed=2)
    np.testing.assert_array_equal(first.predict_p(new), second.predict_p(new))  # same seed, same bits


def test_rows_left_out_for_testing(here, cli):
    code, out, _ = cli("fit", "train.csv", "--target", "kind", *FAST, "--out", "t.tightset", "--test", "0.2")
    assert code == 0
    assert "120 rows set aside for testing: t-test.csv" in out
    whole, rest = pd.read_csv("train.csv"), pd.read_csv("t-test.csv")
    assert list(rest.columns) == list(whole.columns)
    pd.testing.assert_frame_equal(whole[whole["name"].isin(rest["name"])].reset_index(drop=True), rest)
    model = tightset.load("t.tightset")
    assert (model.about["trained"], model.about["calibrated"]) == (360, 120)
    assert cli("evaluate", "t.tightset", "t-test.csv")[0] == 0
    again = ("fit", "train.csv", "--target", "kind", *FAST, "--out", "t.tightset", "--test")
    assert cli(*again, "0.3")[0] == 0  # what was left out before may be left out anew
    write("t-test.csv", "precious")
    refused(cli, "t-test.csv exists, and was not written by the last fit", *again, "0.2", code=2)
    refused(cli, "2 is not a share", "fit", "train.csv", "--target", "kind", "--test", "2", code=2)


def test_who_trains_on_rows_that_were_left_out_is_told_and_nobody_else(folder, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    how = ("--target", "kind", *FAST, "--out", "m.tightset")
    warned = "warning: the rows in m-test.csv are in {} as well, and now train: do not test with them\n"
    for name, told in (("test.csv", ""), ("train.csv", warned), ("m-test.csv", warned)):
        assert cli("fit", folder / "train.csv", *how, "--test", "0.4")[0] == 0
        table = tmp_path / name if name == "m-test.csv" else folder / name
        code, _, err = cli("fit", table, *how)
        assert (code, err) == (0, told.format(table))
        Path("m-test.csv").unlink()


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_rows_without_a_label_are_not_said_to_be_left_out_for_testing(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    frame = table(300)
    frame.loc[:39, "kind"] = None
    frame.to_csv("d.csv", index=False)
    how = ("--target", "kind", *FAST, "--drop-unlabelled", "--test", "0.25", "--out", "m.tightset")
    code, out, err = cli("fit", "d.csv", *how)
    assert code == 0, err
    assert "146 rows train, 49 calibrate, 65 test, 40 are not used.\n" in out
    assert "300: 146 train, 49 calibrate, 65 test, 40 are not used\n" in cli("info", "m.tightset")[1]
    assert cli("report", "m.tightset", "m-test.csv")[0] == 0
    page = Path("report.html").read_text()
    assert "300: 146 trained, 49 calibrated, 65 left out for testing, 40 not used" in page


def test_fit_for_machines(here, cli):
    code, out, _ = cli("fit", "train.csv", "--target", "kind", *FAST, "--out", "j.tightset", "--json", "--no-baseline")
    told = json.loads(out)
    assert code == 0
    assert told["labels"].keys() == {"x", "y", "z"}
    assert told["levels"] == [0.8, 0.9]
    assert told["trained"] == 450
    assert len(told["sha256 of data"]) == 64
    assert tightset.load("j.tightset").baseline is None


@pytest.mark.parametrize("estimator", ["hgb", "rf", "logistic", "lightgbm"])
def test_estimators_by_name(here, cli, estimator, monkeypatch, few_trees):
    few = Search((("softmax", 4.0),), pulls=(1.0,), max_iter=5, folds=2, repeats=1)
    monkeypatch.setitem(SEARCHES, "fast", few)
    fit = ("fit", "train.csv", "--target", "kind", "--search", "fast", "--estimator", estimator, "--out", "e.tightset")
    code, _, err = cli(*fit)
    assert (code, err) == (0, "")
    code, out, _ = cli("predict", "e.tightset", "test.csv")
    assert code == 0
    assert len(out.splitlines()) == 201


def test_predictions_are_the_models_sets(here, cli):
    model, new = tightset.load("m.tightset"), pd.read_csv("test.csv")
    sets, p = model.predict_set(new), model.predict_p(new)
    code, out, err = cli("predict", "m.tightset", "test.csv", "--keep", "name")
    assert (code, err) == (0, "")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [*lines[0]] == ["row", "name", "confidence", "size", "set", "p"]
    assert len(lines) == 400
    for line in lines:
        level, row = {"0.8": 0, "0.9": 1}[line["confidence"]], int(line["row"]) - 1
        kept = sets[level, row]
        labels = line["set"].split("|") if line["set"] else []
        assert int(line["size"]) == kept.sum() == len(labels)
        assert set(labels) == set(model.classes_[kept])
        values = [p[level, row, model.classes_.tolist().index(label)] for label in labels]
        np.testing.assert_allclose([float(x) for x in line["p"].split("|") if x], values, rtol=1e-5)
        assert values == sorted(values, reverse=True)
        assert line["name"] == new["name"][row]


def test_identifiers_are_kept_as_they_are(here, cli):
    pd.read_csv("test.csv").assign(id=[f"{at:05}" for at in range(200)]).to_csv("ids.csv", index=False)
    _, out, _ = cli("predict", "m.tightset", "ids.csv", "--keep", "id", "--lenient")
    assert [line["id"] for line in csv.DictReader(io.StringIO(out))][::2] == [f"{at:05}" for at in range(200)]


def test_every_form_of_output_says_the_same(here, cli):
    names = ("p.csv", "p.jsonl", "p.parquet")
    for name in names:
        assert cli("predict", "m.tightset", "test.csv", "--out", name)[0] == 0
    of_csv = [
        (int(a["row"]), float(a["confidence"]), a["set"])
        for a in csv.DictReader(io.StringIO(Path("p.csv").read_text()))
    ]
    objects = [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()]
    of_json = [(a["row"], a["confidence"], "|".join(one["label"] for one in a["set"])) for a in objects]
    frame = pd.read_parquet("p.parquet")
    of_parquet = [(a.row, a.confidence, "|".join(a.set)) for a in frame.itertuples()]
    assert of_csv == of_json == of_parquet
    assert frame["p"][0].tolist() == pytest.approx([one["p"] for one in objects[0]["set"]])
    code, out, _ = cli("predict", "m.tightset", "test.csv", "--format", "table")
    assert code == 0
    assert "Only the first 20 sets are shown" in out


def test_labels_with_a_bar_are_json(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(600).replace({"kind": {"x": "a|b"}}).to_csv("t.csv", index=False)
    assert cli("fit", "t.csv", "--target", "kind", "--search", "fast")[0] == 0
    _, out, _ = cli("predict", "model.tightset", "t.csv")
    assert {label for line in csv.DictReader(io.StringIO(out)) for label in json.loads(line["set"])} == {
        "a|b",
        "y",
        "z",
    }


def test_pipes(here, cli):
    command = [sys.executable, "-m", "tightset", "predict", "m.tightset", "-", "--confidence", "0.9"]
    piped = subprocess.run(command, input=Path("test.csv").read_bytes(), capture_output=True, check=True)
    assert (0, piped.stdout.decode(), "") == cli("predict", "m.tightset", "test.csv", "--confidence", "0.9")
    assert piped.stderr == b""
    code = f"{sys.executable} -m tightset predict m.tightset test.csv | head -1; echo ${{PIPESTATUS[0]}}"
    cut = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert cut.stdout.splitlines()[0] == "row,confidence,size,set,p"
    assert "Traceback" not in cut.stderr


def test_evaluate(here, cli):
    row = tightset.load("m.tightset").evaluate(pd.read_csv("test.csv"))[1]
    code, out, _ = cli("evaluate", "m.tightset", "test.csv", "--by-label")
    assert code == 0
    assert f"{row['coverage']:.3f}" in out
    assert f"{row['mean_size']:.3f}" in out
    assert "Coverage of each label" in out
    assert "SCPO's sets are" in out
    code, out, _ = cli("evaluate", "m.tightset", "test.csv", "--json")
    assert json.loads(out)["predictor"][1]["coverage"] == row["coverage"]
    _, _, err = cli("evaluate", "m.tightset", "train.csv")
    assert "warning: the model was trained on these rows" in err
    assert "baseline" in json.loads(out)


def test_explain(here, cli):
    code, out, _ = cli("explain", "m.tightset", "test.csv", "--row", 3)
    assert code == 0
    assert "Row 3: how well each label fits, compared with 150 calibration rows" in out
    assert "not the probability" in out
    code, out, _ = cli("explain", "m.tightset", "test.csv", "--row", 3, "--confidence", 0.9, "--json")
    told = json.loads(out)
    p = tightset.load("m.tightset").predict_p(pd.read_csv("test.csv"))[1, 2]
    assert told["p"] == pytest.approx(dict(zip("xyz", p, strict=True)))
    code, _, err = cli("explain", "m.tightset", "test.csv", "--row", 999)
    assert code == 1
    assert "there is no row 999; test.csv has 200" in err


def test_info(here, cli):
    code, out, _ = cli("info", "m.tightset")
    assert code == 0
    assert "TablePredictor, file format 2" in out
    assert "age (number), colour (category)" in out
    assert "0.9: 150 calibration rows, rank 15" in out
    assert "(a label is in a set if it fits at least as well as so many of these rows: the rank)" in out
    code, out, _ = cli("info", "m.tightset", "--json")
    assert json.loads(out)["target"] == "kind"
    refused(cli, "there is no file nothing", "info", "nothing")


def test_compare(here, cli):
    words = ("compare", "train.csv", "--target", "kind", *FAST, "--splits", 2)
    code, out, _ = cli(*words)
    assert code == 0
    assert "Prediction sets of 150 test rows, mean over 2 splits" in out
    assert "The interval is for the mean" in out
    code, out, _ = cli(*words, "--json")
    rows = json.loads(out)
    assert [(row["split"], row["confidence"]) for row in rows] == [(0, 0.8), (0, 0.9), (1, 0.8), (1, 0.9)]
    assert rows[0]["scpo"]["n"] == rows[0]["baseline"]["n"] == 150


def test_export(here, cli):
    code, out, err = cli("export", "m.tightset", "--output", "sets", "--output", "p-values", "--confidence", 0.9)
    assert (code, err) == (0, "")
    told = " ".join(out.split())
    assert "age double (n, 1) a number; NaN if it is missing" in told
    assert "colour string (n, 1) a text; empty if it is missing" in told
    assert "sets bool (n, 3) sets at 90%; a column for each of x, y, z" in told
    assert "written: model.onnx" in told
    model, new = tightset.load("m.tightset"), pd.read_csv("test.csv")
    texts = new.astype({"member": str}).fillna({"colour": ""})
    feed = {
        one.name: texts[[one.name]].to_numpy(object if one.name in model.encoding.text else float)
        for one in model.encoding.columns
    }
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    sets, p = session.run(["sets", "p_values"], feed)
    np.testing.assert_array_equal(sets, model.predict_set(new, confidence=0.9))
    np.testing.assert_array_equal(p, model.predict_p(new, confidence=0.9))


def test_export_of_many_columns_and_of_arrays(here, cli):
    X, y = np.random.default_rng(0).normal(size=(80, 25)), np.arange(80) % 2
    clf = tightset.ConformalClassifier(confidence=0.9, random_state=0).fit(X, y)
    clf.save("wide.tightset")
    code, out, _ = cli("export", "wide.tightset", "--out", "wide.onnx", "--output", "scores")
    assert code == 0
    assert "X double (n, 25) rows" in " ".join(out.split())
    fit_table(pd.DataFrame(X).assign(kind=y), "kind", clf).save("wide.tightset")
    code, out, _ = cli("export", "wide.tightset", "--out", "wide.onnx")
    assert code == 0
    assert "and 5 more inputs" in out
