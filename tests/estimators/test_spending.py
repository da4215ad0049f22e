"""What sets cost, in `evaluate` and in comparisons, where labels have a cost or another inefficiency is asked for."""

import numpy as np
import pytest

from makers import quick_grid, quick_scpo
from tightset import ConformalClassifier
from tightset.estimators.comparing import compare, over_splits, verdict
from tightset.report import write_report
from tightset.scores import PerCost

SQUARE = [[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [2.0, 2.0, 0.0]]


@pytest.fixture(scope="module")
def fitted(labelled_rows):
    X, y, X_new, y_new = labelled_rows
    made = {
        "scpo": quick_scpo(confidence=0.9, cost=SQUARE),
        "plain": ConformalClassifier(confidence=0.9, random_state=0),
        "priced": ConformalClassifier(confidence=0.9, conformity_score=PerCost(SQUARE), random_state=0),
    }
    return {name: one.fit(X, y) for name, one in made.items()}, X_new, y_new


def test_mean_cost_is_that_of_the_sets(fitted):
    models, X, y = fitted
    sets = models["scpo"].predict_set(X)
    expected = (sets * np.array(SQUARE)[y]).sum(axis=1).mean()
    assert models["scpo"].evaluate(X, y)["mean_cost"] == pytest.approx(expected)
    assert "mean_cost" not in models["plain"].evaluate(X, y)


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_a_row_of_an_unknown_label_has_no_cost(fitted):
    models, X, y = fitted
    other = np.where(np.arange(len(y)) < 100, 7, y)
    row = models["scpo"].evaluate(X, other)
    assert row["mean_cost"] == models["scpo"].evaluate(X[100:], y[100:])["mean_cost"]
    (compared,) = compare(models["priced"], models["scpo"], X, other)
    assert np.isfinite(compared.change)


def test_costs_are_compared_and_not_sizes(fitted, labelled_rows):
    models, X, y = fitted
    (row,) = compare(models["plain"], models["scpo"], X, y)
    assert row.by == "mean_cost"
    sets = models["plain"].predict_set(X)
    assert row.baseline["mean_cost"] == pytest.approx((sets * np.array(SQUARE)[y]).sum(axis=1).mean())
    dear = quick_scpo(confidence=0.9, cost=[1.0, 1.0, 30.0]).fit(*labelled_rows[:2])
    (row,) = compare(models["plain"], dear, X, y)
    assert row.high < 0  # the plain threshold does not know what labels cost
    assert verdict([row]) == "At equal coverage, SCPO's sets are cheaper at 0.9."
    (mean,) = over_splits([[row], [row]], 0.25)
    assert mean.scpo["mean_cost"] == row.scpo["mean_cost"]
    assert mean.by == "mean_cost"
    (size,) = compare(models["plain"], models["plain"], X, y)
    assert (size.by, size.change) == ("mean_size", 0.0)


def test_another_inefficiency_is_compared(fitted, labelled_rows):
    models, X, y = fitted
    many = quick_scpo(confidence=0.9, inefficiency="multiple").fit(*labelled_rows[:2])
    (row,) = compare(models["plain"], many, X, y)
    assert row.by == "inefficiency"
    plain = models["plain"].evaluate(X, y)
    assert row.baseline["inefficiency"] == pytest.approx(plain["M"] + 0.05 * plain["E"])


def test_the_report_shows_costs_beside_sizes(fitted, tmp_path):
    models, X, y = fitted
    page = write_report(tmp_path / "a.html", models["scpo"], X, y, baseline=models["priced"]).read_text()
    assert "Cost per set, on average" in page
    assert f'id="cost">{models["scpo"].evaluate(X, y)["mean_cost"]:.2f}<' in page
    assert "size (cost)" in page
    page = write_report(tmp_path / "b.html", models["scpo"], X).read_text()  # which hang on labels
    assert "Cost per set" not in page
    page = write_report(tmp_path / "c.html", models["plain"], X, y, baseline=models["priced"]).read_text()
    assert "Cost per set" not in page


def test_the_search_of_the_paper_refuses_costs(labelled_rows):
    with pytest.raises(ValueError, match="search='grid' trains for set size, as the paper does: leave cost out"):
        quick_grid(cost=[1, 2, 3]).fit(*labelled_rows[:2])
