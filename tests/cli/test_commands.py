import json
import subprocess
import sys
from functools import partial

import pytest

from commands import run
from tightset import Search
from tightset.cli import demo


@pytest.fixture
def short_training(monkeypatch):
    monkeypatch.setattr(demo, "SCPOClassifier", partial(demo.SCPOClassifier, search=Search.fast(max_iter=10)))


def test_demo_shows_a_table_and_what_it_found(monkeypatch, capsys, short_training):
    code, out, err = run(monkeypatch, capsys, "demo", "--confidence", "0.9", "--seed", "1")
    assert code == 0
    assert "All 2,000 test fruits" in out
    assert "one kind: a plain answer" in out
    assert "missed, as 10% may be" in out
    assert "smaller than those of logistic regression" in out
    assert "Next:" in out
    assert err == ""  # no progress bar where nobody watches


def test_demo_for_machines(monkeypatch, capsys, short_training):
    code, out, _ = run(monkeypatch, capsys, "demo", "--confidence", "0.8", "--confidence", "0.9", "--json")
    told = json.loads(out)
    assert code == 0
    plain, trees, ours, best = told["measured"].values()
    assert [row["confidence"] for row in ours] == [0.8, 0.9]
    for at, level in enumerate((0.8, 0.9)):
        sizes = [rows[at]["mean_size"] for rows in (plain, trees, ours, best)]
        assert sizes[2] < 0.85 * sizes[0]
        assert sizes[2] < 1.1 * sizes[3]  # no method can do better than the last
        for rows in (plain, trees, ours, best):
            assert abs(rows[at]["coverage"] - level) < 0.06  # four deviations of 2,000 rows and 1,000 that calibrate
    for rows in told["against"].values():
        assert all(row["low"] <= row["change"] <= row["high"] for row in rows)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["demo", "--confidence", "1.5"], 2, "1.5 is not between 0 and 1"),
        (["demo", "--confidence", "high"], 2, "--confidence"),
        (["demo", "--seed", "-1"], 2, "--seed"),
        (["dmeo"], 2, "No such command"),
    ],
)
def test_errors_are_sentences(monkeypatch, capsys, words, code, message):
    found, _, err = run(monkeypatch, capsys, *words)
    assert found == code
    assert message in err


def test_interrupting_is_quiet(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    assert run(monkeypatch, capsys, "demo") == (130, "", "interrupted\n")


def test_help_shows_an_example(monkeypatch, capsys):
    for words in (["--help"], ["demo", "--help"]):
        code, out, _ = run(monkeypatch, capsys, *words)
        assert code == 0
        assert "Example" in out


def test_installed_command():
    shown = subprocess.run(
        [sys.executable, "-c", "from tightset.cli import main; import sys; sys.argv=['tightset','--version']; main()"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "tightset 0.1.0\n"


@pytest.mark.parametrize(
    ("command", "default"),
    [
        ("fit", "0.95."),
        ("compare", "0.8, 0.9, 0.95 and 0.99."),
        ("predict", "the model's."),
        ("export", "the model's."),
    ],
)
def test_the_help_names_the_levels_that_are_taken(command, default, cli):
    told = " ".join(cli(command, "--help")[1].split())
    assert f"--confidence LEVEL Level between 0 and 1; may be repeated. Default: {default}" in told
