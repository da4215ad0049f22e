"""Set sizes against tuned logistic regression: the study, its stored results, the page written from them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from studies.efficiency import EFFICIENCY, METHODS, SMALL, Comparison, plan
from studies.efficiency_report import Cell, _cells, _key, _mean_ratio, short_table, write_efficiency
from studies.recipes import DATASETS
from studies.runner import ResultsError, read_rows

ROOT = Path(__file__).parents[2]
STORED = ROOT / "results" / "efficiency"


@pytest.fixture(scope="module")
def stored():
    return {_key(row): row for row in read_rows(STORED / "rows.csv", EFFICIENCY.columns)}


def test_the_plan_covers_sets_levels_costs_and_splits():
    rows = plan()
    assert len(set(rows)) == len(rows)
    splits = Counter(row.dataset for row in rows if row[2:] == ("scpo", "log", 0.99))
    assert splits == {name: 10 if name in SMALL else 5 for name in DATASETS}
    assert Counter(row.seed for row in rows if row[2:] == ("fast", "size", 0.99)) == dict.fromkeys(range(3), 7)
    assert {row.method for row in rows} == {"logistic", "likelihood", *METHODS}


def test_everything_planned_is_stored(stored):
    assert set(plan()) == set(stored)


def test_the_page_is_what_the_stored_results_say(tmp_path):
    write_efficiency(STORED, tmp_path / "efficiency.md", figures=False)
    assert (tmp_path / "efficiency.md").read_text() == (ROOT / "docs" / "efficiency.md").read_text()


def test_the_table_of_the_readme_is_theirs_too(stored):
    assert short_table(_cells(stored, "size")) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(("f", "goal"), [("size", 0.91), ("log", 0.955)])
def test_stored_sets_are_smaller_than_the_baselines(stored, f, goal):
    cells = _cells(stored, f)
    assert len(cells) == 35
    assert _mean_ratio(cells) < goal
    assert all(abs(cell.off) < 4 for cell in cells)


def test_a_stored_row_can_be_measured_again(stored, raw_data, monkeypatch):
    """To rounding, which differs between machines and can move a choice: within a few percent."""
    monkeypatch.setattr("studies.efficiency.LEVELS", (0.9,))  # a level does not depend on its company
    workshop = EFFICIENCY.workshop("wine", 0, raw_data, None)
    for method in ("logistic", "fast"):
        key = Comparison("wine", 0, method, "size", 0.9)
        row = workshop.measure(key)
        assert row["inefficiency"] == pytest.approx(float(stored[key]["inefficiency"]), rel=0.03)
        assert row["coverage"] == pytest.approx(0.9, abs=0.01)
        assert (row["n_cal"], row["n_test"]) == (2100, 2100)


def cell(ours, theirs, coverage=0.9):
    n = len(ours)
    return Cell(
        "wine",
        "size",
        0.9,
        np.array(theirs),
        np.array(ours),
        np.full(n, coverage),
        (0.9, 0.01),
        np.ones(n),
        (0, 0),
        1.0,
    )


def test_cells_know_their_ratio_test_and_coverage():
    from scipy.stats import ttest_rel

    ours, theirs = [1.0, 1.1, 1.3, 0.9], [1.2, 1.15, 1.4, 1.2]
    one = cell(ours, theirs, 0.905)
    assert one.ratio == pytest.approx(np.mean(ours) / np.mean(theirs))
    assert one.p_value == pytest.approx(ttest_rel(ours, theirs).pvalue)
    assert one.off == pytest.approx(0.005 / (0.01 / np.sqrt(4 * 20)))
    assert cell([1.0, 2.0], [1.0, 2.0]).p_value == 1


def test_divisions_of_the_same_rows_have_the_exact_mean_coverage():
    """What the narrow band rests on: given the rows, the mean over divisions is 1 - r / (n + 1), whatever the scores."""
    from studies.efficiency import _sets

    rng = np.random.default_rng(0)
    for scores in (rng.standard_normal((300, 3)), rng.exponential(size=(300, 3)) ** 5):
        y = rng.integers(0, 3, 300)
        covered = []
        for _ in range(3000):
            order = rng.permutation(300)
            test = order[99:]
            covered.append(_sets(scores, y, order[:99], test, 0.9)[np.arange(201), y[test]].mean())
        assert np.mean(covered) == pytest.approx(0.9, abs=4 * np.std(covered) / np.sqrt(3000))


def test_no_results_are_told(tmp_path):
    with pytest.raises(ResultsError, match="holds no results; run: python -m studies efficiency run"):
        write_efficiency(tmp_path, tmp_path / "page.md")
