"""From a messy file to a report, with the model remembering how its file was written."""

import codecs
import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import FAST, refused, write
from tightset.tables.predictions import no_formula


@pytest.fixture
def german(tmp_path, monkeypatch):
    """A German Excel export: semicolons, decimal commas, a thousands point, a byte-order mark, CRLF, blank labels."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    frame = pd.DataFrame(
        {
            "Länge": (y + 0.6 * rng.normal(size=600)).round(3),
            "Preis": [f"{1000 * a + 0.5:,.1f}".translate(str.maketrans(",.", ".,")) for a in 1 + rng.random(600) + y],
            "Datum": pd.date_range("2024-01-01", periods=600, freq="7h").strftime("%d.%m.%Y"),
            "Art": np.array(["Apfel", "Birne", "=Quitte"])[y],
        }
    )
    frame.loc[::25, "Art"] = None
    text = frame.to_csv(sep=";", decimal=",", index=False, lineterminator="\r\n")
    write("obst.csv", codecs.BOM_UTF8 + text.encode())


@pytest.mark.filterwarnings("default::tightset.TightsetWarning")
def test_a_german_export_goes_all_the_way(german, cli):
    fit = ("fit", "obst.csv", "--target", "Art", "--test", "0.3", *FAST)
    refused(cli, "has no value in row 1, nor in 23 more: give them a label, or --drop-unlabelled", *fit)
    refused(cli, "'Länge' seems to hold numbers with separators", *fit, "--drop-unlabelled")
    code, out, err = cli(*fit, "--drop-unlabelled", "--decimal", ",", "--thousands", ".")
    assert code == 0, err
    assert "24 of 600 rows have no label and are left out" in err
    assert "'Datum' is read as dates: Datum: days since 2024-01-01, Datum: year" not in out  # the year is the same
    assert "'Datum' is read as dates: Datum: days since 2024-01-01, Datum: month, Datum: weekday" in out
    header, first = Path("model-test.csv").read_text("utf-8-sig").splitlines()[:2]
    assert header == "Länge;Preis;Datum;Art"
    assert first.count(",") == 2
    # Nothing has to be said again.
    code, out, err = cli("evaluate", "model.tightset", "model-test.csv", "--by-label")
    assert code == 0, err
    assert "Apfel" in out
    assert cli("report", "model.tightset", "model-test.csv")[0] == 0
    refused(cli, "has no label in row 1; --drop-unlabelled", "evaluate", "model.tightset", "obst.csv")
    assert cli("evaluate", "model.tightset", "obst.csv", "--drop-unlabelled")[0] == 0
    # A new file may be written otherwise, if that is said.
    rows = pd.read_csv("model-test.csv", sep=";", decimal=",", thousands=".", dtype={"Datum": str}).drop(columns="Art")
    rows.to_csv("plain.csv", index=False)
    plain = cli("predict", "model.tightset", "plain.csv", "--decimal", ".", "--thousands", "")
    assert plain[1] == cli("predict", "model.tightset", "model-test.csv")[1]


@pytest.mark.filterwarnings("default::tightset.TightsetWarning")
def test_formulas_are_guarded_in_files_for_people(german, cli):
    cli("fit", "obst.csv", "--target", "Art", *FAST, "--drop-unlabelled", "--decimal", ",", "--thousands", ".")
    predict = ("predict", "model.tightset", "obst.csv", "--confidence", "0.9", "--keep", "Länge")

    def sets(*words):
        code, out, err = cli(*predict, *words)
        assert code == 0, err
        lines = Path("sets.csv").read_text() if "--out" in words else out
        return [row["set"] for row in csv.DictReader(lines.splitlines())]

    exact = sets()
    assert any(one.startswith("=Quitte") for one in exact)
    assert sets("--out", "sets.csv") == [no_formula(one) for one in exact]
    assert sets("--out", "sets.csv", "--formulas") == exact
    assert sets("--no-formulas") == [no_formula(one) for one in exact]


def test_a_remembered_encoding(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    frame = pd.DataFrame({"Größe": (y + rng.normal(size=300)).round(2), "Farbe": np.array(["grün", "weiß"])[y]})
    for encoding in ("latin-1", "utf-16"):
        write("t.csv", frame.to_csv(index=False, sep="\t").encode(encoding))
        out = f"{encoding}.tightset"
        code, _, err = cli(
            "fit", "t.csv", "--target", "Farbe", *FAST, "--test", "0.3", "--encoding", encoding, "--out", out
        )
        assert code == 0, err
        assert "grün" in Path(f"{encoding}-test.csv").read_text(encoding)
        code, _, err = cli("evaluate", out, f"{encoding}-test.csv")
        assert (code, err) == (0, "")


@pytest.mark.parametrize("before", [0, 20_000], ids=["in the first lines", "far below"])
def test_a_remembered_encoding_does_not_tear_utf_8_apart(before, tmp_path, monkeypatch, cli):
    """Köln read in latin-1 would count as one of the rare cities without a word."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    frame = pd.DataFrame({"x": y + rng.normal(size=300), "city": "Bonn", "kind": np.array(["a", "b"])[y]})
    plain = frame.sample(before, replace=True, random_state=0)
    frame.loc[:103, "city"] = ["Köln"] * 100 + ["Gütersloh", "Düren", "Unna", "Soest"]
    write("old.csv", frame.to_csv(index=False).encode("latin-1"))
    write("new.csv", pd.concat([plain, frame]).to_csv(index=False))
    assert cli("fit", "old.csv", "--target", "kind", *FAST, "--encoding", "latin-1", "--out", "m.tightset")[0] == 0
    message = (
        "new.csv looks like UTF-8, but the table of the model was in latin-1: give --encoding utf-8, or --encoding "
        "latin-1 if it is written so"
    )
    refused(cli, message, "predict", "m.tightset", "new.csv", "--out", "sets.csv")
    refused(cli, message, "evaluate", "m.tightset", "new.csv")
    for encoding in ("utf-8", "latin-1"):
        assert cli("predict", "m.tightset", "new.csv", "--encoding", encoding)[0] == 0


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_advice_is_what_helps(german, cli):
    write("empty.csv", "x,kind\n1,\n2,\n")
    empty = "the target column 'kind' has no value in any row; it must hold the labels"
    refused(cli, empty, "fit", "empty.csv", "--target", "kind", "--drop-unlabelled")
    cli("fit", "obst.csv", "--target", "Art", *FAST, "--drop-unlabelled", "--decimal", ",", "--thousands", ".")
    rows = pd.read_csv("obst.csv", sep=";", decimal=",", thousands=".", dtype={"Datum": str})
    rows.to_csv("plain.csv", index=False)
    wrong = "no number with the decimal mark ',': give --decimal as the file is written, or fit with --categorical"
    refused(cli, wrong, "predict", "model.tightset", "plain.csv")
    both = "cannot be both the decimal mark and the thousands separator: give --decimal as well, or --thousands '' for none"
    refused(cli, both, "predict", "model.tightset", "plain.csv", "--decimal", ".")
    as_written = ("plain.csv", "--decimal", ".", "--thousands", "")
    assert cli("predict", "model.tightset", *as_written, "--out", "sets.csv")[0] == 0
    for words in (["evaluate"], ["predict"], ["explain", "--row", "1"]):  # and not that its numbers are none
        command, *how = words
        absent = "the columns 'Länge', 'Preis', 'Datum' that the model was trained on are missing; there are 'row'"
        refused(cli, absent, command, "model.tightset", "sets.csv", *how)
