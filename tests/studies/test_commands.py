"""``python -m studies``: data, and the paper's experiments."""

from functools import partial

from commands import run
from studies.__main__ import app

studies = partial(run, commands=app)


def test_data_commands(monkeypatch, capsys, raw_data, tmp_path):
    code, out, _ = studies(monkeypatch, capsys, "data", "list", "--data-dir", str(raw_data))
    assert code == 0
    assert out.count("yes") == 7
    code, out, _ = studies(monkeypatch, capsys, "data", "check", "wine", "--data-dir", str(raw_data))
    assert (code, "wine: unaltered" in out) == (0, True)
    code, _, err = studies(monkeypatch, capsys, "data", "check", "wine", "--data-dir", str(tmp_path))
    assert (code, "winequality-red.csv cannot be read" in err) == (1, True)
    code, _, err = studies(monkeypatch, capsys, "data", "fetch", "dna", "--data-dir", str(tmp_path))
    assert (code, "place it at" in err) == (1, True)
    code, _, err = studies(monkeypatch, capsys, "data", "check", "whine")
    assert (code, "whine is none of avila" in err) == (2, True)


def test_paper_run_and_report(monkeypatch, capsys, raw_data, tmp_path):
    from studies import experiments

    monkeypatch.setattr(
        experiments, "plan", lambda *a, **k: [experiments.Experiment("wine", 0, "plain", "size", "", 0, 0.9)]
    )
    monkeypatch.setattr(experiments, "measure_errata", lambda *a: {"footnote_differs_in": 1, "digits_at_99": {}})
    out = tmp_path / "results"
    code, text, _ = studies(monkeypatch, capsys, "paper", "run", "--out", str(out), "--data-dir", str(raw_data))
    assert (code, "1 rows in" in text) == (0, True)
    code, _, err = studies(monkeypatch, capsys, "paper", "run", "--dataset", "whine")
    assert (code, "whine is none of" in err) == (2, True)
    code, _, err = studies(monkeypatch, capsys, "paper", "report", "--results", str(tmp_path / "none"))
    assert (code, "holds no results" in err) == (1, True)
