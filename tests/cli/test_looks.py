"""How help and results look in narrow and wide terminals, on dark and on light ones."""

import ast
import json
import re
from pathlib import Path

import pytest
import typer

import tightset
from makers import baseline, table
from terminals import ESCAPE, on_terminal
from tightset.cli.app import app
from tightset.conformal.metrics import CRITERIA, vovk_criteria
from tightset.tables.fitting import fit_table

COMMANDS = typer.main.get_command(app).commands
SOURCE = Path(tightset.__file__).parent


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_cuts_nothing(command, width, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = cli(*filter(None, [command]), "--help")
    assert code == 0
    assert not re.search(r"…|\.\.\.", out.replace("[ARGS]...", ""))
    assert max(map(len, out.splitlines())) <= width
    words = " ".join(out.split())
    for name, one in COMMANDS.items():
        if command == "":
            assert f"{name} {' '.join(one.help.split(chr(10) * 2)[0].split())}" in words
        elif command == name:
            named = [each.opts if each.param_type_name == "option" else [each.metavar] for each in one.params]
            assert all(name in out for names in named for name in names)


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "--help"],
        ["fit", "--no-such-option"],
        ["explain", "m.tightset", "test.csv", "--row", 3],
        ["evaluate", "m.tightset", "test.csv"],
        ["predict", "m.tightset", "test.csv"],
    ],
)
def test_words_are_in_the_colour_of_the_terminal(folder, words):
    """Bold and dim at most: whatever the background is, text stands out from it."""
    _, written = on_terminal(words, folder=folder)
    without_bars = re.sub(r"\x1b\[[0-9;]*m[━╸╺]+", "", written)
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", without_bars) for code in found.split(";")}
    assert codes <= {"", "0", "1", "2"}


@pytest.mark.parametrize("columns", [60, 80])
def test_lines_end_between_words(folder, columns):
    _, written = on_terminal(["explain", "m.tightset", "test.csv", "--row", 3], columns, folder)
    lines = ESCAPE.sub("", written).replace("\r", "").split("\n")
    assert max(map(len, lines)) <= columns
    words = " ".join(" ".join(lines).split())
    assert "no better than this row fits this one; it is not the probability of the label." in words


@pytest.fixture(scope="module")
def long_words(tmp_path_factory):
    """Labels and values that are long words; a column that has its typical value, and ten that have not."""
    where = tmp_path_factory.mktemp("long")
    rows = table(400)
    rows["kind"] = "Nonincapacitating_Evident_Injury_" + rows["kind"].astype(str)
    rows["seat"] = [f"Front_Seat_Left_Side_Drivers_{'ab'[at % 3 == 0]}" for at in range(400)]
    for at in range(10):
        rows[f"number_{at}"] = [(17 * row * (at + 1)) % 101 for row in range(400)]
    rows.to_csv(where / "t.csv", index=False)
    fit_table(rows, "kind", baseline(confidence=0.9)).save(where / "m.tightset")
    return where, rows


@pytest.mark.parametrize("width", [60, 80, 120])
def test_explain_keeps_words_whole_and_says_what_it_leaves_out(long_words, width, cli, monkeypatch):
    where, rows = long_words
    monkeypatch.chdir(where)
    monkeypatch.setenv("COLUMNS", str(width))
    row = int((rows["seat"] == "Front_Seat_Left_Side_Drivers_a").argmax())  # which two rows in three have
    _, out, _ = cli("explain", "m.tightset", "t.csv", "--row", row + 1)
    told = json.loads(cli("explain", "m.tightset", "t.csv", "--row", row + 1, "--json")[1])
    assert all(label in out for label in told["p"])
    differ = [one for one in told["columns"] if one["value"] != one["typical"]]
    typical = len(told["columns"]) - len(differ)
    assert len(differ) > 8
    assert typical > 0
    assert "seat" not in out
    assert f"and {len(differ) - 8} more column" in out
    assert re.search(rf"Not listed: {typical} columns? that already ha(s|ve) the typical value\.", out)


def test_letters_of_criteria_are_explained_where_they_stand(here, cli):
    told = json.loads(cli("evaluate", "m.tightset", "test.csv", "--json")[1])
    letters = {key for key in told["predictor"][0] if key.isupper()}
    assert told["criteria"].keys() == letters == CRITERIA.keys()
    evaluate = tightset.SCPOClassifier.evaluate.__doc__
    assert all(re.search(rf"\b{letter}\b", evaluate) for letter in letters)
    assert all(re.search(rf"\b{letter}\b", vovk_criteria.__doc__) for letter in letters)


def _texts(path):
    """What programs may say: texts that are no docstrings, with {} for what is formatted."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_percentages_are_written_in_one_way():
    """Figures and reports are typeset, and have a space there."""
    found = [
        (path.name, text)
        for path in SOURCE.rglob("*.py")
        if not {"plots", "report"} & set(path.relative_to(SOURCE).parts)
        for text in _texts(path)
        if re.search(r"[\d}] %", text)
    ]
    assert found == []
