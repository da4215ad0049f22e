"""What the commands print is for people: nothing of a table or a model file speaks to the terminal."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tightset
from commands import FAST
from forging import forged
from makers import baseline, table
from tightset.cli import show
from tightset.cli.show import counted, say, visible
from tightset.estimators.comparing import Comparison
from tightset.tables.fitting import fit_table

TITLE = "\x1b]0;owned\x07"


@pytest.fixture(scope="module")
def escapes(tmp_path_factory):
    """A table and a model whose names, labels and values would write the title of the window."""
    folder = tmp_path_factory.mktemp("escapes")
    rows = table(300).rename(columns={"colour": f"colour{TITLE}", "kind": f"kind{TITLE}", "name": f"name{TITLE}"})
    rows[f"kind{TITLE}"] = rows[f"kind{TITLE}"].map({"x": f"x{TITLE}", "y": "y\x9b2J", "z": "z\u202e"})
    rows[f"colour{TITLE}"] = rows[f"colour{TITLE}"].map({"red": f"red{TITLE}", "green": "green\tblue", "blue": "b"})
    rows.loc[:2, f"kind{TITLE}"] = f"rare{TITLE}"
    rows.to_csv(folder / f"rows{TITLE}.csv", index=False)
    rows.assign(**{f"more{TITLE}": 1}).to_csv(folder / "more.csv", index=False)
    rows[f"kind{TITLE}"] = rows[f"kind{TITLE}"].replace({f"rare{TITLE}": f"x{TITLE}"})
    model = fit_table(rows, f"kind{TITLE}", baseline(confidence=0.9))
    model.about["fitted by"] = f"me{TITLE}"
    model.save(folder / "m.tightset")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["info", "m.tightset"],
        ["predict", "m.tightset", f"rows{TITLE}.csv", "--format", "table", "--keep", f"name{TITLE}"],
        ["predict", "m.tightset", "more.csv", "--out", "sets.csv"],
        ["predict", "m.tightset", f"rows{TITLE}.csv", "--keep", f"no{TITLE}"],
        ["explain", "m.tightset", f"rows{TITLE}.csv", "--row", "5"],
        ["evaluate", "m.tightset", "evaluate.csv", "--by-label"],
        ["export", "m.tightset"],
        ["fit", f"rows{TITLE}.csv", "--target", f"kind{TITLE}", *FAST, "--out", "f.tightset"],
        ["fit", f"rows{TITLE}.csv", "--target", f"no{TITLE}"],
        ["fit", f"no{TITLE}.csv", "--target", "x"],
        ["info", f"no{TITLE}"],
        ["fit", f"rows{TITLE}.csv", "--target", f"kind{TITLE}", "--out", f"no{TITLE}/m.tightset"],
    ],
)
@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_nothing_of_the_data_reaches_the_terminal_as_it_is(escapes, cli, monkeypatch, words):
    monkeypatch.chdir(escapes)
    rows = pd.read_csv(f"rows{TITLE}.csv")
    rows[~rows[f"kind{TITLE}"].str.startswith("rare")].to_csv("evaluate.csv", index=False)
    _, out, err = cli(*words)
    shown = re.sub(r"\s+", "", out + err)
    assert not show._UNSEEN.search(shown)
    assert r"\x1b]0;owned\x07" in shown


def test_data_for_machines_stay_exact(escapes, cli, monkeypatch):
    monkeypatch.chdir(escapes)
    _, out, err = cli("predict", "m.tightset", f"rows{TITLE}.csv", "--keep", f"colour{TITLE}")
    assert err == ""
    lines = list(csv.DictReader(io.StringIO(out)))
    assert {label for line in lines for label in line["set"].split("|")} == {f"x{TITLE}", "y\x9b2J", "z\u202e"}
    assert {f"red{TITLE}", "green\tblue"} < {line[f"colour{TITLE}"] for line in lines}
    _, out, _ = cli("info", "m.tightset", "--json")
    assert json.loads(out)["target"] == f"kind{TITLE}"
    _, out, _ = cli("explain", "m.tightset", f"rows{TITLE}.csv", "--row", "5", "--json")
    assert json.loads(out)["p"].keys() == {f"x{TITLE}", "y\x9b2J", "z\u202e"}


def test_texts_made_visible(capsys):
    assert visible("é ✓ 漢字 a\tb\x00\x7f\u2028\udc80") == r"é ✓ 漢字 a\tb\x00\x7f\u2028\udc80"
    say("two\nlines\r")
    assert capsys.readouterr().out == "two\nlines\\r\n"
    assert counted({"9": 539, "10": 1486, "a\nb": 2}, 2) == "10 (1,486), 9 (539) and 1 more"


def test_commands_print_by_that_alone():
    for path in Path(show.__file__).parent.glob("*.py"):
        words = re.findall(r"typer\.echo|click\.echo|(?<!\.)\bprint\(", path.read_text())
        assert words == (["typer.echo"] if path.name == "show.py" else []), path.name


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "m.tightset", "test.csv"],
        ["evaluate", "m.tightset", "test.csv", "--by-label"],
        ["explain", "m.tightset", "test.csv", "--row", "5"],
        ["info", "m.tightset"],
        ["--help"],
    ],
)
def test_a_closed_pipe_is_no_error(folder, words):
    """The reader is gone before the first line."""
    command = subprocess.Popen(
        [sys.executable, "-m", "tightset", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    command.stdout.close()
    _, err = command.communicate()
    assert (command.returncode, err) == (141, b"")


# ---- what is read in the terminal ----------------------------------------------------------------------------------


def test_info_is_lines(here, cli):
    code, out, _ = cli("info", "m.tightset")
    assert code == 0
    lines = dict(re.split(r":\s+", line, maxsplit=1) for line in out.splitlines() if not line.startswith(" "))
    assert lines["labels"] == "z (223), y (189), x (188)"
    assert lines["rows"] == "600: 450 train, 150 calibrate"
    assert lines["levels"] == "0.8: 150 calibration rows, rank 30"
    assert "  0.9: 150 calibration rows, rank 15" in out
    assert lines["left out"].startswith("name: 450 different texts in 450 training rows are not categories")
    assert lines["data"] == "train.csv"
    assert "{" not in out
    tightset.ConformalClassifier(random_state=0).fit(np.arange(80.0)[:, None], np.arange(80) % 2).save(
        "plain.tightset", about={"by": ["me"], "rows": "mine"}
    )
    _, out, _ = cli("info", "plain.tightset")
    assert re.search(r'^by: +\["me"\]$', out, re.MULTILINE)
    assert re.search(r"^rows: +mine$", out, re.MULTILINE)
    assert re.search(r"^labels: +0, 1$", out, re.MULTILINE)


@pytest.fixture(scope="module")
def by_label(tmp_path_factory):
    """A label of two rows, none of which calibrates with this seed, and one of twenty."""
    where = tmp_path_factory.mktemp("by-label")
    rows = table(600)
    rows.loc[:21, "kind"] = ["few"] * 20 + ["rare"] * 2
    rows.to_csv(where / "t.csv", index=False)
    return where


@pytest.mark.filterwarnings("always::tightset.TightsetWarning")
def test_coverage_by_label_with_rare_labels(by_label, cli, monkeypatch):
    monkeypatch.chdir(by_label)
    monkeypatch.setenv("COLUMNS", "80")
    fit = ("fit", "t.csv", "--target", "kind", "--label-conditional", "--seed", 2, *FAST[:2], "--out", "m.tightset")
    code, out, err = cli(*fit)
    assert code == 0
    assert "kept 2 labels with fewer than 76 rows: 'rare' (2), 'few' (20)" in err
    size = tightset.load("m.tightset").about["mean size by label"]["0.95"]
    assert f"With coverage for each label, labels per set on the 150 calibration rows: {size:.3g} at 0.95." in out
    assert "labels: z (216), x (181), y (181), few (20), rare (2)" in out
    code, out, _ = cli("explain", "m.tightset", "t.csv", "--row", 40)
    told = " ".join(out.split())
    assert "compared with the calibration rows of that label" in told
    assert re.search(r"^ *rare +unknown +0 +in the set +always *$", out, re.MULTILINE)
    assert "because no calibration row has the label: rare." in told
    assert "In every set at 95%, because it takes 19 calibration rows of a label to leave it out: few (5)." in told
    rows = json.loads(cli("explain", "m.tightset", "t.csv", "--row", 40, "--json")[1])["calibration_rows"]
    assert rows["few"] == 5
    assert sum(rows.values()) == 150
    _, out, _ = cli("predict", "m.tightset", "t.csv", "--format", "table")
    assert out.count("rare (unknown)") == 20
    assert "In every set, since no calibration row has the label: rare." in out
    assert "0.95, label few: 5 calibration rows, rank 0" in cli("info", "m.tightset")[1]


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_sizes_of_training_are_not_promised_where_sets_hold_all_labels(here, cli, tmp_path):
    fit = ("fit", "train.csv", "--target", "kind", *FAST[:2], "--out", tmp_path / "m.tightset", "--confidence")
    said = "every set holds all labels for want of calibration rows, whatever training found."
    assert f"At 0.999 {said}" in cli(*fit, "0.999", "--confidence", "0.9")[1]
    assert said not in cli(*fit, "0.99")[1]


@pytest.mark.filterwarnings("always::tightset.TightsetWarning")
def test_rare_labels_at_the_command_line(by_label, cli, monkeypatch):
    monkeypatch.chdir(by_label)
    fit = ("fit", "t.csv", "--target", "kind", *FAST, "--test", 0.25, "--out", "r.tightset", "--rare-labels")
    code, out, err = cli(*fit, "other", "--rare-rows", 50)
    assert (code, err) == (0, "")
    assert (
        "(other) (22 rows, still fewer than 50) stands for 2 labels with fewer than 50 rows: 'rare' (2), 'few' (20)"
        in out
    )
    tested = pd.read_csv("r-test.csv")
    assert {"few"} < set(tested["kind"])  # as they stand in the table, and merged when they are evaluated
    rows = json.loads(cli("evaluate", "r.tightset", "r-test.csv", "--json")[1])["predictor"]
    assert rows[0]["n"] == 150
    assert "coverage_of_label_(other)" in rows[0]
    code, out, err = cli(*fit, "drop", "--rare-rows", 50)
    assert code == 0
    assert "warning: 22 rows left out, of 2 labels with fewer than 50 rows" in err
    assert "600 rows, 4 columns, 3 labels; 326 rows train, 108 calibrate" in out
    assert set(pd.read_csv("r-test.csv")["kind"]) == {"x", "y", "z"}
    assert cli("evaluate", "r.tightset", "r-test.csv")[0] == 0
    compare = ("compare", "t.csv", "--target", "kind", *FAST, "--splits", 1, "--rare-labels")
    code, out, _ = cli(*compare, "other")
    assert code == 0
    assert "(other) (2 rows, still fewer than 10) stands for 1 label" in out
    code, _, err = cli(*fit, "merge")
    assert (code, "'merge' is none of keep, other, drop" in err) == (2, True)


@pytest.mark.parametrize("width", [20, 50, 80])
def test_no_terminal_is_too_narrow_for_a_figure(width, monkeypatch, capsys):
    """Lines may break, digits are not dropped."""
    monkeypatch.setenv("COLUMNS", str(width))
    row = {"coverage": 0.951, "mean_size": 123.456}
    show.show_comparison("t", "logistic", [Comparison(0.95, row, row, -0.123, -0.145, -0.101, 0.0123)])
    told = capsys.readouterr().out
    for figure in ("0.95", "0.951", "123.456", "-12.3%", "-14.5% to -10.1%", "0.012"):
        assert figure in " ".join(told.split())
    assert told.count("123.456") == 2


def test_explain_of_long_labels_shows_columns(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    frame = table(200)
    frame["kind"] = "a label of sixty letters or so, as surveys and diagnoses have " + frame["kind"].astype(str)
    frame.to_csv("t.csv", index=False)
    fit_table(frame, "kind", baseline(confidence=0.9)).save("m.tightset")
    _, told, _ = cli("explain", "m.tightset", "t.csv", "--row", "1")
    header = next(line for line in told.splitlines() if "p of a label of sixty" in line)
    assert all(name in header for name in ("column", "value", "typical", "set"))


def test_a_forged_value_is_no_line_of_its_own(tmp_path, cli):
    path = tmp_path / "m.tightset"
    rng = np.random.default_rng(0)
    baseline().fit(rng.normal(size=(80, 2)), rng.integers(2, size=80)).save(path)
    path.write_bytes(forged(path.read_bytes(), lambda about, _: about.update(kind="X\nsigned by:  Ada")))
    _, told, _ = cli("info", str(path))
    assert not any(line.startswith("signed by") for line in told.splitlines())
    assert r"X\nsigned by" in told
