"""`--ordered`: sets that are intervals, from `fit` to `report`, and what is refused in the terms of the commands."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tightset
from commands import FAST, refused, write

GRADES = ["poor", "fair", "good", "top"]
FIT = ("fit", "train.csv", "--target", "grade", *FAST[:2], "--confidence", "0.9", "--out", "m.tightset")


def graded(n, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n)).round(3)
    quality = a + 0.5 * rng.normal(size=n) + np.where(b > 0.5, rng.choice([-1.5, 1.5], n), 0)
    return pd.DataFrame({"a": a, "b": b, "grade": np.array(GRADES)[np.digitize(quality, [-1, 0, 1])]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ordered")
    graded(500, 0).to_csv(folder / "train.csv", index=False)
    graded(400, 1).to_csv(folder / "test.csv", index=False)
    return folder


@pytest.fixture
def rows(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "140")


def test_from_fit_to_report(rows, cli):
    code, out, err = cli(*FIT, "--ordered", "poor,fair,good,top")
    assert code == 0, err
    model = tightset.load("m.tightset")
    assert model.predictor.ordered == model.baseline.ordered == GRADES
    assert model.about["order of labels"] == "poor, fair, good, top"
    assert list(model.about["labels"]) == GRADES

    code, out, err = cli("evaluate", "m.tightset", "test.csv", "--by-label")
    assert code == 0, err
    assert "mean width" in out
    assert "missed by 2+" in out
    assert "logistic regression with C = 1, gaps filled" in out
    assert out.index("poor ") < out.index("fair ") < out.index("good ") < out.index("top ")
    code, out, err = cli("evaluate", "m.tightset", "test.csv", "--json")
    for one in ("predictor", "baseline"):
        (row,) = json.loads(out)[one]
        assert row["mean_width"] == row["mean_size"]
        assert row["with_gaps"] == 0
        assert row["miss_distance"] >= 1

    code, out, err = cli("predict", "m.tightset", "test.csv")
    lines = list(csv.DictReader(out.splitlines()))
    assert len(lines) == 400
    for line in lines:
        places = [GRADES.index(label) for label in line["set"].split("|") if label]
        assert places == list(range(places[0], places[0] + len(places))) if places else line["size"] == "0"
    code, out, err = cli("predict", "m.tightset", "test.csv", "--format", "table")
    assert "set (p-value of the best label)" in out
    assert "poor to " in out

    code, out, err = cli("explain", "m.tightset", "test.csv", "--row", "1")
    assert code == 0, err
    table = out[out.index("label") :]
    assert table.index("poor") < table.index("fair") < table.index("good") < table.index("top")

    code, out, err = cli("report", "m.tightset", "test.csv", "--out", "r.html")
    assert code == 0, err
    page = Path("r.html").read_text()
    assert "<dt>Interval width, on average</dt>" in page
    assert '"rank":[1,2,0,3]' in page  # of fair, good, poor, top


def test_compare_is_by_width(rows, cli):
    how = ("compare", "train.csv", "--target", "grade", *FAST[:2], "--confidence", "0.9", "--splits", "1")
    code, out, err = cli(*how, "--ordered", "poor,fair,good,top")
    assert code == 0, err
    assert "width" in out
    assert "size" not in out.split("level")[1].split("At equal coverage")[0]
    told = json.loads(cli(*how, "--ordered", "poor,fair,good,top", "--json")[1])
    assert told[0]["by"] == "mean_width"


def test_auto_is_the_order_of_an_ordered_category_or_of_numbers(rows, cli):
    frame = graded(500, 0)
    frame["grade"] = pd.Categorical(frame["grade"], [*GRADES, "never"], ordered=True)
    frame.to_parquet("train.parquet")
    frame["grade"] = frame["grade"].map(dict(zip(GRADES, (1, 2, 10, 11), strict=True))).astype(int)
    frame.to_csv("numbers.csv", index=False)
    for name, expected in (("train.parquet", GRADES), ("numbers.csv", [1, 2, 10, 11])):
        code, _, err = cli(*(name if word == "train.csv" else word for word in FIT), "--ordered", "auto")
        assert code == 0, err
        assert tightset.load("m.tightset").predictor.ordered == expected
    refused(cli, "the labels have no order of their own", *FIT, "--ordered", "auto")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("poor,good,top", "the order of the labels lacks the label 'fair'; it must have each of these once: 'fair',"),
        ("poor,fair,good,good,top", "the order of the labels names 'good' 2 times"),
        ("poor,fair,good,top,best", "the order of the labels names 'best', which is no label of the table"),
    ],
)
def test_orders_that_are_none(rows, cli, order, message):
    refused(cli, message, *FIT, "--ordered", order)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ordered", "poor"), "must be names between commas, from the lowest to the highest"),
        (("--ordered", "poor,,top"), "must be names between commas, from the lowest to the highest"),
        (("--ordered", "poor,fair,good,top", "--by-label"), "it cannot be combined with --by-label: thresholds that"),
        (("--ordered", "poor,fair,good,top", "--cost", "c.csv"), "it cannot be combined with --cost: thresholds that"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_any_work(rows, cli, words, message):
    refused(cli, message, *FIT, *words, code=2)
    compare = ("compare", "train.csv", "--target", "grade")
    refused(cli, message, *compare, *words, code=2)


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_rare_labels_that_were_dropped_need_no_place_and_may_have_one(rows, cli):
    frame = graded(500, 0)
    frame.loc[:4, "grade"] = "rare"
    write("rare.csv", frame.to_csv(index=False))
    how = [*("rare.csv" if word == "train.csv" else word for word in FIT), "--rare-labels"]
    for order in ("poor,fair,good,top", "poor,fair,rare,good,top"):
        code, _, err = cli(*how, "drop", "--ordered", order)
        assert code == 0, err
        assert tightset.load("m.tightset").predictor.ordered == GRADES
    refused(cli, "lacks the label 'rare'", *how, "keep", "--ordered", "poor,fair,good,top")
