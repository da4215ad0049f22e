"""`--by-label`, `--cost` and `--minimise`: what `fit` and `compare` are asked to make small, and for whom."""

import json
from pathlib import Path

import pytest

import tightset
from commands import FAST, refused, write
from makers import table
from tightset.scores import Hull, PerCost
from tightset.tables.costs import read_costs

FIT = ("fit", "train.csv", "--target", "kind", *FAST[:2], "--confidence", "0.9", "--out", "aim.tightset")
SQUARE = "true,x,y,z\nx,0,1,5\nz,2,2,0\ny,1,0,5\n"


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    table(400).to_csv("train.csv", index=False)
    table(200, seed=1).to_csv("test.csv", index=False)
    write("costs.csv", "label,cost\nz,10\nx,1\ny,2.5\n")


def test_costs_of_a_file_are_trained_for_and_shown(rows, cli):
    code, out, err = cli(*FIT, "--cost", "costs.csv")
    assert code == 0, err
    assert "(cost per set)" in out
    model = tightset.load("aim.tightset")
    assert model.predictor.cost == [1, 2.5, 10]  # in the order of the labels
    assert model.baseline.conformity_score == PerCost([1, 2.5, 10])
    assert model.about["cost of labels"] == {"x": 1, "y": 2.5, "z": 10}
    code, out, err = cli("evaluate", "aim.tightset", "test.csv")
    assert code == 0, err
    assert "mean cost" in out
    assert "logistic regression with C = 1, per cost" in out
    code, out, err = cli("evaluate", "aim.tightset", "test.csv", "--json")
    told = json.loads(out)
    assert told["predictor"][0]["mean_cost"] > told["predictor"][0]["mean_size"]
    assert told["baseline"][0]["mean_cost"] > 0
    code, out, err = cli("report", "aim.tightset", "test.csv", "--out", "r.html")
    assert code == 0, err
    assert "Cost per set, on average" in Path("r.html").read_text()


def test_a_square_table_has_true_labels_in_its_rows(rows, cli):
    write("square.csv", SQUARE)
    code, _, err = cli(*FIT, "--cost", "square.csv")
    assert code == 0, err
    model = tightset.load("aim.tightset")
    assert model.predictor.cost == [[0, 1, 5], [1, 0, 5], [2, 2, 0]]
    assert model.about["cost of labels"] == "square.csv"


def test_compare_shows_costs(rows, cli):
    how = ("compare", "train.csv", "--target", "kind", *FAST[:2], "--confidence", "0.9", "--splits", "1")
    code, out, err = cli(*how, "--cost", "costs.csv")
    assert code == 0, err
    assert "cost" in out.split("SCPO")[1]
    code, out, err = cli(*how, "--minimise", "multiple")
    assert code == 0, err
    assert "inefficiency" in out


def test_coverage_by_label_has_two_names(rows, cli):
    for name in ("--by-label", "--label-conditional"):
        code, _, err = cli(*FIT, name)
        assert code == 0, err
        model = tightset.load("aim.tightset")
        assert model.predictor.label_conditional
        assert model.baseline.label_conditional


def test_what_is_made_small(rows, cli):
    code, _, err = cli(*FIT, "--minimise", "excess")
    assert code == 0, err
    model = tightset.load("aim.tightset")
    assert model.predictor.inefficiency == model.baseline.inefficiency == "excess"
    assert model.baseline.conformity_score == Hull("excess")
    refused(cli, "'least' is none of size, multiple, excess, log", *FIT, "--minimise", "least", code=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,cost\nx,1\ny,1\n", "bad.csv has no cost for the label 'z'; give one for each of 'x', 'y', 'z'"),
        ("label,cost\nx,1\ny,1\nz,1\nq,1\n", "bad.csv has a cost for 'q', which is no label of the table"),
        ("label,cost\nx,1\ny,-1\nz,1\n", "the cost of the label 'y' is -1; it must be finite and not negative"),
        ("label,cost\nx,1\ny,\nz,1\n", "bad.csv: the cost of the label 'y' is empty; write one such as 2.5"),
        ("label,cost\nx,1\ny,dear\nz,1\n", "the cost of the label 'y' is 'dear', which is not a number"),
        ("label,cost\nx,1\nx,2\ny,1\nz,1\n", "bad.csv has the label 'x' 2 times; once is right"),
        ("label,cost\nx,0\ny,0\nz,0\n", "bad.csv: cost is zero for every label"),
        ("true,x,y\nx,0,0\ny,0,0\n", "bad.csv: cost is zero for every label"),
        ("label,cost\nx,1e10\ny,1\nz,1\n", "bad.csv: the cost of the label 'x' is 1e10; it must be at most 1e+09"),
        (f"label,cost\n{140_000 * 'x'},1\ny,1\n", "bad.csv is no CSV file: field larger than"),
        ("true,x,y,z\nx,0,1,5\ny,1,0,5\n", "bad.csv has no cost for the label 'z'"),
        ("true,x,y\nx,0,1\ny,1,0\nz,1,1\n", "bad.csv has no cost for the label 'z'"),
        ("true,x,y,z\nx,0,1,5\ny,1,nan,5\nz,1,1,0\n", "the cost of the label 'y' (true label 'y') is nan"),
        ("true,x,y,z\nx,0,1\n", "bad.csv has 3 cells in the row of 'x', but 4 in its header"),
        ("", "bad.csv must have a header and rows of a label and its cost"),
        (b"\xff\xfe\x00", "bad.csv is not UTF-8 text; --cost takes a CSV file"),
    ],
)
def test_costs_that_are_none_are_refused_in_a_sentence(rows, cli, text, message):
    write("bad.csv", text)
    refused(cli, message, *FIT, "--cost", "bad.csv")


def test_a_file_that_is_not_there_is_refused(rows, cli):
    refused(cli, "there is no file nowhere.csv; --cost takes a CSV file", *FIT, "--cost", "nowhere.csv")


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_rare_labels_that_were_dropped_need_no_cost(rows, cli):
    frame = table(400)
    frame.loc[:4, "kind"] = "rare"
    frame.to_csv("train.csv", index=False)
    code, _, err = cli(*FIT, "--cost", "costs.csv", "--rare-labels", "drop")
    assert code == 0, err
    write("costs.csv", Path("costs.csv").read_text() + "rare,9\n")
    code, _, err = cli(*FIT, "--cost", "costs.csv", "--rare-labels", "drop")
    assert code == 0, err
    assert tightset.load("aim.tightset").predictor.cost == [1, 2.5, 10]


def test_numbers_and_separators_of_other_files(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("label;cost\r\n 1 ; 2\r\n\r\n2.0;3\r\n", encoding="utf-8-sig")

    class Table:
        import numpy as np

        classes, merged, dropped = np.array([1, 2]), {}, []

    assert read_costs(path).of(Table) == [2.0, 3.0]
