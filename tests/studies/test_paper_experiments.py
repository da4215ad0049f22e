"""The runner: every row once, whatever happens; the account: a function of stored rows."""

import errno
import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from studies import runner
from studies.baselines import Exchanged, Multinom
from studies.datasets import DataError
from studies.experiments import LEVELS, PAPER, Experiment, plan
from studies.recipes import DATASETS
from studies.report import write_report
from studies.runner import ResultsError, read_rows, run
from studies.summary import Cell, Results, best_forms, compare, coverage_law, main_table, printed, reason
from tightset.conformal.ranks import rank
from workshops import MOMENTS, Moment

REPOSITORY = Path(__file__).parents[2]
STORED = REPOSITORY / "results" / "paper"

SMALL = [
    Experiment("polish", 0, "tuned", "size", "", 0, 0.9),
    Experiment("polish", 0, "reversed", "log", "", 0, 0.9),
    *(Experiment("polish", 0, "scpo", "size", "-1/L", 20, level) for level in (0.8, 0.9, 0.95)),
    Experiment("polish", 0, "scpo-80", "size", "-1/L", 20, 0.95),
    *(Experiment("mice", 1, "scpo", "log", form, 20, 0.9) for form in ("L", "-1/L^2")),
    Experiment("mice", 1, "plain", "log", "", 0, 0.9),
]


def test_the_plan_holds_every_result_of_the_paper():
    rows = plan()
    assert len(set(rows)) == len(rows)
    for name in DATASETS:
        for seed in range(5):
            for f in ("size", "log"):
                for level in LEVELS:
                    assert Experiment(name, seed, "scpo", f, "-1/L", 1000, level) in rows
                    assert Experiment(name, seed, "tuned", f, "", 0, level) in rows
            assert Experiment(name, seed, "scpo-80", "size", "-1/L", 1000, 0.95) in rows
            for form in ("L", "log L", "-1/L^2"):
                assert Experiment(name, seed, "scpo", "size", form, 1000, 0.95) in rows
    assert Experiment("wine", 0, "reversed", "size", "", 0, 0.8) in rows
    assert Experiment("avila", 0, "reversed", "size", "", 0, 0.8) not in rows
    assert set(plan(quick=True)) < set(rows)


def test_rows_are_what_the_estimators_give(raw_data, tmp_path):
    from studies.datasets import load
    from tightset import SCPOClassifier

    run(PAPER, SMALL, tmp_path, data_dir=raw_data)
    rows = read_rows(tmp_path / "rows.csv", PAPER.columns)
    assert [tuple(row) for row in rows[:1]] == [PAPER.columns]
    assert len(rows) == len(SMALL)
    s = load("polish", 0, raw_data)
    clf = SCPOClassifier.paper(0.9, max_iter=20).fit(s.X_train, s.y_train, X_cal=s.X_cal, y_cal=s.y_cal)
    direct = clf.evaluate(s.X_test, s.y_test)
    row = rows[3]
    assert (row["method"], row["confidence"]) == ("scpo", "0.9")
    assert float(row["coverage"]) == direct["coverage"]
    assert float(row["inefficiency"]) == direct["mean_size"]
    sessions = json.loads((tmp_path / "run.json").read_text())
    assert sessions[0]["rows"] == len(SMALL)
    assert set(sessions[0]) >= {"versions", "hardware", "git", "seconds", "device", "data"}
    assert sessions[0]["data"]["mice"] == ["mice/Data_Cortex_Nuclear.csv"]


def test_finished_rows_are_not_measured_again(raw_data, tmp_path):
    run(PAPER, SMALL[:3], tmp_path, data_dir=raw_data)
    before = (tmp_path / "rows.csv").read_bytes()
    nobody = PAPER._replace(workshop=None)  # would be called for any row still to do
    run(nobody, SMALL[:3], tmp_path, data_dir=raw_data)
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_killed_ten_times_the_results_are_those_of_an_undisturbed_run(raw_data, tmp_path, forkserver):
    moments = [Moment(name, 0, number) for name in ("wine", "mice") for number in range(20)]
    run(MOMENTS, moments, tmp_path / "calm", data_dir=raw_data)
    rng = random.Random(0)
    out = tmp_path / "killed"
    kills = 0
    for _ in range(100):
        process = forkserver.Process(target=run, args=(MOMENTS, moments, out), kwargs={"data_dir": raw_data})
        process.start()
        # Wait until it measures, then a random moment more.
        lines = len(read_rows(out / "rows.csv", MOMENTS.columns))
        waited = 0.0
        while process.is_alive() and len(read_rows(out / "rows.csv", MOMENTS.columns)) == lines and waited < 60:
            time.sleep(0.02)
            waited += 0.02
        time.sleep(rng.uniform(0, 0.15))
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        with (out / "rows.csv").open("ab") as file:  # what a kill in the middle of a write leaves behind
            file.write(b"polish,0,scpo,si"[: rng.randrange(16)] if kills % 2 else b"")
        if kills == 10:
            break
        if len(read_rows(out / "rows.csv", MOMENTS.columns)) == len(moments):
            (out / "rows.csv").unlink()  # finished too soon to be killed ten times: begin again
    run(MOMENTS, moments, out, data_dir=raw_data)
    assert kills == 10
    assert (out / "rows.csv").read_bytes() == (tmp_path / "calm" / "rows.csv").read_bytes()


def test_a_damaged_raw_file_stops_the_run_and_keeps_its_rows(raw_data, tmp_path):
    import shutil

    data = tmp_path / "data"
    for name in ("polish", "mice"):
        shutil.copytree(raw_data / name, data / name)
    path = data / "polish" / "3year.csv.gz"
    path.chmod(0o644)
    whole = path.read_bytes()
    run(PAPER, SMALL[:2], tmp_path / "out", data_dir=data)
    path.write_bytes(whole[:1000])
    with pytest.raises(DataError, match=r"3year\.csv\.gz has 1000 bytes, 2116118 expected"):
        run(PAPER, SMALL, tmp_path / "out", data_dir=data)
    assert len(read_rows(tmp_path / "out" / "rows.csv", PAPER.columns)) == 2


def test_a_full_disk_is_told_and_rows_survive(raw_data, tmp_path, monkeypatch):
    run(PAPER, SMALL[:2], tmp_path, data_dir=raw_data)
    before = (tmp_path / "rows.csv").read_bytes()

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runner, "_append", full)
    with pytest.raises(
        ResultsError, match=r"cannot be written: No space left on device; rows finished before are kept"
    ):
        run(PAPER, SMALL, tmp_path, data_dir=raw_data)
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_results_of_another_device_or_version_are_not_mixed(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps([{"device": "cuda"}]))
    with pytest.raises(ResultsError, match="holds rows measured on cuda; give another --out for the CPU"):
        run(PAPER, [], tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ResultsError, match="other columns"):
        read_rows(tmp_path / "rows.csv", PAPER.columns)


def test_a_results_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file cannot be written"):
        run(PAPER, SMALL, tmp_path / "file")


def test_one_runner_a_folder(tmp_path):
    import fcntl

    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ResultsError, match="another run is writing"):
            run(PAPER, [], tmp_path)


@pytest.mark.parametrize("content", ["", "{", "{}", "[1"])
def test_a_log_that_cannot_be_read_is_begun_anew(content, raw_data, tmp_path):
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "errata.json").write_text("{}")
    run(PAPER, SMALL[:1], tmp_path, data_dir=raw_data)
    assert json.loads((tmp_path / "run.json").read_text())[0]["rows"] == 1


def test_a_header_of_another_version_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("dataset,seed\n")
    with pytest.raises(ResultsError, match="other columns"):
        read_rows(tmp_path / "rows.csv", PAPER.columns)


def test_a_device_that_does_not_exist_is_refused_before_anything_is_written(torch, tmp_path):
    with pytest.raises(ResultsError, match="device 'cudaa' cannot be used"):
        run(PAPER, [], tmp_path, device="cudaa")
    assert not (tmp_path / "rows.csv").exists()


# ---- the account ----------------------------------------------------------------------------------------------------


def test_the_page_is_written_again_from_stored_results(tmp_path):
    """Nothing on docs/paper.md is typed by hand."""
    write_report(STORED, tmp_path / "paper.md", other_devices=[STORED.with_name("paper-h200")], figures=False)
    assert (tmp_path / "paper.md").read_text() == (REPOSITORY / "docs" / "paper.md").read_text()


def test_figures_are_drawn(tmp_path):
    write_report(STORED, tmp_path / "paper.md")
    for name in ("paper-agreement.png", "paper-regions.png"):
        assert (tmp_path / "figures" / name).stat().st_size > 10_000


def test_the_stored_results_reproduce_the_paper():
    results = Results(read_rows(STORED / "rows.csv", PAPER.columns))
    assert len(results.seeds) >= 5
    size, log = (main_table(results, f) for f in ("size", "log"))
    assert len(size) == len(log) == 35
    assert sum(cell.within for cell in size) >= 28
    assert all(cell.in_band() for cell in (*size, *log))
    assert not set(plan()) - set(results.rows)
    for cell in size:
        if cell.reversed is not None:
            assert cell.reversed.mean() == pytest.approx(float(cell.printed["baseline_inefficiency"]), rel=0.03)


def test_quick_results_make_a_page_that_says_what_is_missing(tmp_path):
    quick = set(plan(quick=True))
    rows = [row for key, row in Results(read_rows(STORED / "rows.csv", PAPER.columns)).rows.items() if key in quick]
    lines = [",".join(PAPER.columns), *(",".join(row[name] for name in PAPER.columns) for row in rows)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    for name in ("run.json", "errata.json"):
        (tmp_path / name).write_bytes((STORED / name).read_bytes())
    write_report(tmp_path, tmp_path / "paper.md")
    page = (tmp_path / "paper.md").read_text()
    assert "These results are incomplete" in page
    assert "Main table, f(w) = w" in page
    assert "Main table, f(w) = log" not in page


# ---- the statistics behind the account --------------------------------------------------------------------------------


def cell(**changes):
    row = {"scpo_inefficiency": "2.0", "scpo_accuracy_pct": "90.0", "baseline_inefficiency": "3.0"}
    given = {
        "dataset": "wine", "f": "size", "confidence": 0.9, "printed": row, "scpo": np.array([2.0, 2.1]),
        "coverage": np.array([0.9, 0.9]), "law": (0.9, 0.02), "tuned": np.array([2.0, 2.0]), "plain": np.array([3.0, 3.0]),
        "reversed": None, "chosen": "", "against_tuned": (0, 0), "against_paper": (0, 0), "p_paper": [],
    }  # fmt: skip
    return Cell(**(given | changes))


@pytest.mark.parametrize(("confidence", "n_cal", "n_test"), [(0.95, 359, 359), (0.99, 444, 444), (0.8, 3476, 10437)])
def test_coverage_law_is_the_beta_binomial(confidence, n_cal, n_test):
    r = rank(confidence, n_cal)
    law = stats.betabinom(n_test, n_cal + 1 - r, r)
    assert coverage_law(confidence, n_cal, n_test) == pytest.approx((law.mean() / n_test, law.std() / n_test))


def test_a_cell_is_in_its_band_or_not():
    assert cell(coverage=np.array([0.9 + 3.2 * 0.02] * 1)).in_band()
    assert not cell(coverage=np.array([0.9 + 3.4 * 0.02] * 1)).in_band()
    assert not cell(coverage=np.array([0.9 - 3.4 * 0.02] * 1)).in_band()
    far = np.full(4, 0.9 + 3.2 * 0.02)  # the mean of four splits is twice as sharp
    assert not cell(coverage=far).in_band()
    assert cell(coverage=far, dataset="avila").in_band()  # but not where the test rows are the same in all


def test_verdicts_and_reasons():
    assert cell(scpo=np.array([2.19])).within
    assert not cell(scpo=np.array([2.21])).within
    low = cell(confidence=0.8, coverage=np.array([0.8]), scpo=np.array([2.0]))
    high = cell(confidence=0.9, coverage=np.array([0.9]), scpo=np.array([3.0]))
    printed_low = {"scpo_inefficiency": "2.0", "scpo_accuracy_pct": "81.0"}
    assert "cover less (81 %); at that coverage these have 2.1" in reason(
        high._replace(printed=printed_low), [low, high]
    )
    assert reason(high, [low, high]) == "unexplained"
    spread = high._replace(scpo=np.array([2.0, 4.0]))
    assert reason(spread, [spread]) == "within twice the deviation between splits"


def test_comparisons_over_splits():
    better = compare([np.array([0.9, 0.91, 0.92])], [np.ones(3)])
    assert better.verdict == "smaller"
    logs = np.log([0.9, 0.91, 0.92])
    assert better.ratio == pytest.approx(np.exp(logs.mean()))
    half = stats.t(2).ppf(0.975) * logs.std(ddof=1) / np.sqrt(3)
    assert (better.low, better.high) == pytest.approx((np.exp(logs.mean() - half), np.exp(logs.mean() + half)))
    assert compare([np.array([1.2, 1.21])], [np.ones(2)]).verdict == "larger"
    assert compare([np.array([0.8, 1.2])], [np.ones(2)]).verdict == "not clearly different"
    assert compare([np.array([0.8])], [np.ones(1)]).verdict == "not clearly different"


def test_best_forms_counts_each_set_once():
    def row(name, form, size):
        keys = dict.fromkeys(PAPER.columns, "") | {"inefficiency": str(size)}
        return keys | Experiment(name, 0, "scpo", "size", form, 1000, 0.95)._asdict()

    rows = [row("a", "L", 2), row("a", "log L", 1), row("b", "L", 1), row("b", "log L", 3), row("c", "L", 0)]
    assert best_forms(Results(rows), ("L", "log L")) == {"log L": 1, "L": 1}


# ---- the paper's baseline -----------------------------------------------------------------------------------------------


def test_multinom_is_maximum_likelihood_where_that_exists(blobs):
    from sklearn.linear_model import LogisticRegression

    X, y = blobs
    ours = Multinom().fit(X, y).predict_proba(X)
    exact = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours, exact, atol=2e-3)


def test_multinom_stops_where_classes_are_separated():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    p = Multinom().fit(X, [0, 0, 1, 1]).predict_proba(X)
    assert -np.log(p[[0, 1, 2, 3], [0, 0, 1, 1]]).sum() < 1e-3
    assert np.isfinite(p).all()
    np.testing.assert_array_equal(Exchanged(Multinom().fit(X, [0, 0, 1, 1])).predict_proba(X), p[:, ::-1])


def test_a_report_without_results_says_what_to_run(tmp_path):
    with pytest.raises(ResultsError, match="holds no results; run: python -m studies paper run"):
        write_report(tmp_path, tmp_path / "page.md")


def test_printed_tables_are_complete():
    assert len(printed("main_results")) == 70
    assert len(printed("loss_transforms")) == 8
    assert len(printed("trained_at_80_applied_at_95")) == 7
