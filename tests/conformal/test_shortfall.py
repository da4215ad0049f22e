"""Labels that fall short: exact laws, false alarms as rare as promised, the rows that are enough, the commands that name them."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from commands import FAST
from tightset.conformal.ranks import rank
from tightset.conformal.shortfall import counts_of, of_rows, short_labels
from tightset.estimators.comparing import Comparison, short_over_splits

DRAWS = 2000
AT_MOST = 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / DRAWS)


def test_the_p_value_is_the_larger_of_both_exact_tails_after_holm():
    rows, covered, m = np.array([60, 80, 100]), np.array([40, 70, 99]), np.array([50, 200, 30])
    tails = []
    for n, h, k in zip(rows, covered, m, strict=True):
        r = rank(0.9, k)
        tails.append(max(stats.binom.cdf(h, n, 0.9), stats.betabinom(n, k + 1 - r, r).cdf(h)))
    (found,) = short_labels(rows, covered, 0.9, m).labels
    assert (found.label, found.rows, found.covered, found.coverage) == (0, 60, 40, pytest.approx(2 / 3))
    assert found.p_value == pytest.approx(3 * min(tails))
    assert sorted(tails)[1] * 2 > 0.05  # the next one stays


def test_those_with_most_rows_missed_come_first():
    found = short_labels([50, 5000, 400], [10, 4500, 300], 0.95).labels
    assert [one.label for one in found] == [1, 2, 0]


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_labels_that_are_covered_as_asked_are_seldom_named(confidence):
    """Each label calibrated by itself, all together, and a coverage that is the level itself: 5 % at most."""
    rng = np.random.default_rng(0)
    n, m = np.array([8, 40, 90, 300, 2000]), np.array([25, 60, 400, 50, 1000])
    r = np.array([rank(confidence, k) for k in m])
    M, R = m.sum(), rank(confidence, m.sum())
    alarms = np.zeros(3)
    for _ in range(DRAWS):
        own = rng.beta(m + 1 - r, r)
        alarms += [
            bool(short_labels(n, rng.binomial(n, share), confidence, calibrated).labels)
            for share, calibrated in ((own, m), (rng.beta(M + 1 - R, R), M), (confidence, M))
        ]
    assert (alarms / DRAWS < AT_MOST).all()
    assert alarms[0] / DRAWS > 0.01  # and not by never naming any


def test_without_the_luck_of_calibration_there_would_be_false_alarms():
    rng = np.random.default_rng(1)
    n, m, r = np.full(5, 500), np.full(5, 40), np.full(5, rank(0.9, 40))
    blind = np.mean([bool(short_labels(n, rng.binomial(n, rng.beta(m + 1 - r, r)), 0.9).labels) for _ in range(200)])
    assert blind > 0.5


def test_a_label_with_too_few_rows_to_tell_is_not_tested_and_costs_the_others_nothing():
    rows = np.array([300, *[1] * 40])
    found = short_labels(rows, np.array([270, *[0] * 40]), 0.95)
    assert found.tested == 1  # 0 of 1 has a chance of 0.05: more than a 41st of that
    assert [one.label for one in found.labels] == [0]
    assert short_labels([3, 300], [0, 300], 0.95).labels[0].rows == 3  # a chance of 0.000125 is enough
    assert short_labels([50], [0], 0.99, [60]).tested == 0  # no rank: every set holds the label
    assert short_labels([0, 0], [0, 0], 0.9) == ([], 0)


def test_codes_of_no_label_and_shares_that_are_not_numbers():
    y = np.array([0] * 50 + [1] * 50 + [-1] * 50)
    covered = np.array([True] * 60 + [False] * 90)
    assert [(one.label, one.rows, one.covered) for one in of_rows(y, covered, 3, 0.9).labels] == [(1, 50, 10)]
    row = {"coverage_of_label_a": 0.25, "coverage_of_label_b": float("nan"), "coverage_of_label_c": 1 / 3}
    rows, hits = counts_of(row, ["a"] * 8 + ["c"] * 3 + ["d"], ["a", "b", "c"])
    assert rows.tolist() == [8, 0, 3]
    assert hits.tolist() == [2, 0, 1]


def test_rows_that_several_splits_test_count_once():
    """A row has the same fate in each of five splits: pooled as if they were new rows, alarms would be too many."""
    rng = np.random.default_rng(2)
    alarms = {1: 0, 5: 0}
    names = list("abcd")
    for _ in range(300):
        y, fate = rng.integers(0, 4, 800), rng.random(800) < 0.9
        tests = [rng.permutation(800)[:200] for _ in range(5)]
        found = []
        for at in tests:
            row = {f"coverage_of_label_{name}": fate[at][y[at] == c].mean() for c, name in enumerate(names)}
            found.append([Comparison(0.9, {}, row, 0, 0, 0, 0)])
        labels = [np.array(names)[y[at]] for at in tests]
        for splits in alarms:  # with J = 1 the share is not used, so that five splits are pooled as new rows
            (short,) = short_over_splits(found, labels, names, None, 0.25 if splits == 5 else 0.0)
            alarms[splits] += bool(short.labels)
    assert alarms[5] / 300 < 0.08
    assert alarms[1] > 1.5 * alarms[5]


# ---- the commands ---------------------------------------------------------------------------------------------------


def hidden(n, seed, kinds=("common", "other", "rare", "away")):
    """Labels that are easy, and a rare one that looks like the first."""
    rng = np.random.default_rng(seed)
    share = np.array([0.5, 0.32, 0.08, 0.1])[: len(kinds)]
    kind = rng.choice(kinds, n, p=share / share.sum())
    x = 5.0 * ((kind == "other") * 1.0 - (kind == "away")) + rng.standard_normal(n)
    return pd.DataFrame({"x": x, "noise": rng.standard_normal(n), "kind": kind})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    where = tmp_path_factory.mktemp("short")
    hidden(900, 0).to_csv(where / "train.csv", index=False)
    hidden(500, 1, ("common", "other", "rare")).to_csv(where / "test.csv", index=False)
    return where


@pytest.fixture
def there(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "120")
    return place


@pytest.fixture
def fitted(there, cli):
    code, out, err = cli("fit", "train.csv", "--target", "kind", *FAST, "--out", "m.tightset")
    assert code == 0, err
    return out


def rare_rows(path):
    return int((pd.read_csv(path)["kind"] == "rare").sum())


REMEDY = "fit with `--label-conditional` (`label_conditional=True` in Python)"


def test_fit_names_them_from_the_calibration_rows(fitted, there):
    assert "At 0.8, 1 label is covered less than that, by more than chance:" in fitted
    assert "  rare: 0." in fitted
    assert "calibration rows\n" in fitted
    assert REMEDY in " ".join(fitted.split())


def test_fit_says_nothing_of_labels_that_were_calibrated_by_themselves(there, cli):
    how = ["--target", "kind", "--search", "fast", "--confidence", "0.8", "--label-conditional", "--out", "c.tightset"]
    how += ["--seed", "1"]  # about 18 rows of the rare label calibrate: with some seeds they mislead
    code, out, err = cli("fit", "train.csv", *how)
    assert code == 0, err
    assert "covered less" not in out
    code, out, err = cli("evaluate", "c.tightset", "test.csv")
    assert code == 0, err
    assert "covered less" not in out


def test_evaluate_names_them_though_another_label_has_no_rows(fitted, there, cli):
    code, out, err = cli("evaluate", "m.tightset", "test.csv", "--by-label")
    assert code == 0, err
    n = rare_rows("test.csv")
    for level in ("0.8", "0.9"):
        assert f"At {level}, 1 label is covered less than that, by more than chance:\n  rare: 0." in out
    assert f" of {n} rows" in out
    assert REMEDY in " ".join(out.split())
    assert "labels that fall short" in out
    assert "1 of 3" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["away", "no", "rows", "no", "rows", "0"] in lines
    (rare,) = [line for line in lines if line[:1] == ["rare"]]
    assert rare[1].endswith("*")
    told = json.loads(cli("evaluate", "m.tightset", "test.csv", "--json")[1])
    for row in [*told["predictor"], *told["baseline"]]:
        (one,) = row["short_labels"]
        assert one["label"] == "rare"
        assert one["rows"] == n
        assert one["coverage"] == pytest.approx(row["coverage_of_label_rare"])
        assert one["p_value"] < 1e-6


def test_compare_names_them_over_all_splits(there, cli):
    hidden(900, 1).to_csv("both.csv", index=False)
    how = ["compare", "both.csv", "--target", "kind", "--search", "fast", "--confidence", "0.8", "--splits", "2"]
    code, out, err = cli(*how)
    assert code == 0, err
    assert "At 0.8, 1 label is covered less than that, by more than chance:\n  rare: 0." in out
    assert REMEDY in " ".join(out.split())
    told = json.loads(cli(*how, "--json")[1])
    assert [row["short_labels_of_all_splits"][0]["label"] for row in told] == ["rare", "rare"]


def test_many_labels_are_cut_short_and_the_rows_that_calibrated_are_counted(labelled_rows):
    from makers import baseline

    X, y, *_ = labelled_rows
    model = baseline(calibration_size=100).fit(X, y)
    assert model.fitted_.rows_of_labels().tolist() == [100, 100, 100]
    apart = baseline(calibration_size=100, label_conditional=True).fit(X, y)
    assert apart.fitted_.rows_of_labels().sum() == 100
    found = short_labels([100] * 9, [10] * 9, 0.9)
    told = found.told(0.9, list("abcdefghi"), rest=": --by-label shows all")
    assert told[0] == "At 0.9, 9 labels are covered less than that, by more than chance:"
    assert told[-1] == "  and 4 more: --by-label shows all"
    assert len(told) == 7
