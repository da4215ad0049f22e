"""Gains that are told are there: at equal coverage, with intervals that cover them."""

import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from makers import baseline, quick_scpo
from tightset.estimators.comparing import Comparison, at_equal_coverage, compare, levels_around, verdict


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads of small trees would wait for each other, where two tests run side by side."""
    with threadpool_limits(1):
        yield


def test_a_gain_is_told_only_at_equal_coverage():
    """Ours cover 96 % with 4.25 labels, theirs 99 % with 4.9; at 96 % theirs have 4.25 too."""
    rng = np.random.default_rng(0)
    own = rng.uniform(size=4000)  # how hard a row is
    curve = np.array([0.9, 0.93, 0.96, 0.99])
    theirs = np.stack([3.2 + (level - 0.9) / 0.09 * 1.575 + 0 * own for level in curve]), own < curve[:, None]
    ours = np.full(4000, 3.2 + 0.06 / 0.09 * 1.575), own < 0.96
    found = at_equal_coverage(*ours, *theirs, 0.95)
    assert abs(found.change) < 0.01
    assert found.low < 0 < found.high
    smaller = at_equal_coverage(0.8 * ours[0], ours[1], *theirs, 0.95)
    assert smaller.high < 0
    assert smaller.p_value < 1e-3
    row = Comparison(0.95, {}, {}, *found)
    assert verdict([row]) == "At equal coverage, SCPO's sets are not clearly different at 0.95."


def test_intervals_of_a_change_cover_it():
    """Two predictors of the same law: the interval holds 0 in 95 % of the draws, and seldom in fewer."""
    held = 0
    for draw in range(200):
        rng = np.random.default_rng(draw)
        n, levels = 300, np.array([0.8, 0.85, 0.9, 0.95, 0.98])
        hard, theirs = rng.uniform(size=n), rng.uniform(size=n)
        sizes = 1 + 4 * levels[:, None] ** 4 + rng.uniform(-0.5, 0.5, (5, n)).round()
        own = 1 + 4 * 0.9**4 + rng.uniform(-0.5, 0.5, n).round()
        found = at_equal_coverage(own, hard < 0.9, sizes, theirs < levels[:, None], 0.9)
        held += found.low <= 0 <= found.high
    assert held > 0.9 * 200


def test_compare_counts_what_the_sets_are(blobs):
    X, y = blobs
    first, second = baseline(confidence=0.8, random_state=0).fit(X, y), quick_scpo(confidence=0.8).fit(X, y)
    (row,) = compare(first, second, X, y)
    assert row.baseline["mean_size"] == first.predict_set(X).sum(axis=1).mean()
    assert row.scpo["coverage"] == second.predict_set(X)[np.arange(len(y)), y].mean()


def test_summary_has_intervals_and_claims_no_gain_that_is_not_clear(blobs):
    X, y = blobs
    clf = quick_scpo(confidence=0.9).fit(X, y)
    verdict_ = clf.folds_[0].record[0].verdict
    gain, low, high = verdict_.gain()
    assert low < gain < high
    assert "95% interval" in clf.summary()
    said = clf.folds_[0].record[0]._replace(verdict=verdict_._replace(accepted=True, ensemble=verdict_.baseline))
    assert "not clearly different" in said.sentence()
    better = verdict_._replace(accepted=True, ensemble=0.5 * verdict_.baseline, error=1e-3)
    assert "50.0% smaller (95% interval" in clf.folds_[0].record[0]._replace(verdict=better).sentence()


def test_nothing_is_compared_where_coverage_is_too_different():
    rng = np.random.default_rng(0)
    own = rng.uniform(size=1500)
    theirs = np.full((3, 1500), 1.5), np.ones((3, 1500), dtype=bool)  # whatever the level, all rows are covered
    found = at_equal_coverage(np.ones(1500), own < 0.88, *theirs, 0.9)
    assert np.isnan(found).all()
    assert "not comparable" in verdict([Comparison(0.9, {}, {}, *found)])


def test_sets_that_are_all_empty_are_no_gain():
    empty, never = np.zeros(50), np.zeros(50, dtype=bool)
    theirs = np.zeros((3, 50)), np.zeros((3, 50), dtype=bool)
    found = at_equal_coverage(empty, never, *theirs, 0.1)
    assert found.change == 0
    assert found.low <= 0 <= found.high
    assert np.isnan(at_equal_coverage(np.ones(50), never, *theirs, 0.1).change)


def test_levels_of_a_curve_can_be_asked_for():
    from tightset.conformal.ranks import significance

    for level in (0.99999999, 0.9999999, 1e-8):
        assert all(0 < significance(one) < 1 for one in levels_around([level])[0])


def test_an_interval_is_wider_where_few_rows_lie_near_the_threshold():
    """At 99.9 % of 150 rows nothing is known for sure, and the interval must not say otherwise."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 4))
        y = (X @ rng.normal(size=(4, 6)) + 2 * rng.gumbel(size=(200, 6))).argmax(axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf = quick_scpo(confidence=0.999, random_state=seed).fit(X, y)
        verdict = clf.folds_[0].record[0].verdict
        assert verdict.accepted or verdict.gain()[1] <= 0
