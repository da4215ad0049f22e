"""Assurance: ranks against brute force in fractions, and coverage over calibration samples against its exact law."""

from fractions import Fraction
from itertools import product
from math import comb, floor, inf

import numpy as np
import pytest
from scipy import stats

from tightset.conformal import assurance
from tightset.conformal.assurance import assured_rank, least_error, rows_for_assurance
from tightset.conformal.calibration import Calibration
from tightset.conformal.intervals import coverage_band
from tightset.conformal.ranks import as_assurance, calibration_rows_needed, rank, significance
from tightset.conformal.shortfall import short_labels

LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99]
SURE = [0.1, 0.19, 0.5, 0.75, 0.875, 0.9, 0.95, 0.99]  # some of them tie: 1 - 0.9^2 is 0.19
DRAWS = 2000


def tail(n, eps, r):
    """``P(Bin(n, eps) >= r)`` in fractions."""
    return 1 - sum((comb(n, k) * eps**k * (1 - eps) ** (n - k) for k in range(r)), Fraction(0))


def brute_force(confidence, n, sure):
    eps = significance(confidence)
    found = 0
    while found < floor(eps * (n + 1)) and tail(n, eps, found + 1) >= as_assurance(sure):
        found += 1
    return found


@pytest.mark.parametrize("undecided", [128, 2], ids=["sums", "exact sums"])
def test_ranks_equal_brute_force(monkeypatch, undecided):
    monkeypatch.setattr(assurance, "_UNDECIDED", undecided)
    assured_rank.cache_clear()
    for confidence, sure, n in product(LEVELS, SURE, [*range(40), 59, 60, 99, 100, 150]):
        assert rank(confidence, n, sure) == brute_force(confidence, n, sure), (confidence, n, sure)
    assured_rank.cache_clear()


def test_ties_are_decided_as_they_are():
    assert 1 - Fraction(9, 10) ** 2 == Fraction(19, 100)
    half, tenth = Fraction(1, 2), Fraction(1, 10)
    assert [assured_rank(tenth, 2, Fraction(19, 100) + by, 1) for by in (0, Fraction(1, 10**40))] == [1, 0]
    assert rows_for_assurance(tenth, Fraction(19, 100)) == 2
    for n in (9, 999, 10**6 + 1):  # the median of an even coin
        assert assured_rank(half, n, half, n) == (n + 1) // 2
        assert assured_rank(half, n, half + Fraction(1, 10**9), n) == (n - 1) // 2


def test_ranks_of_many_rows():
    """Against the normal law with its correction for skewness, which is right to a rank or so; and in a moment."""
    for n in (10**6, 10**7):
        for confidence, sure in ((0.95, 0.95), (0.5, 0.9), (0.999, 0.99)):
            eps, z = 1 - confidence, stats.norm.ppf(1 - sure)
            mean, deviation = n * eps, np.sqrt(n * eps * (1 - eps))
            near = mean + deviation * z + (z**2 - 1) * (1 - 2 * eps) / 6
            assert abs(rank(confidence, n, sure) - near) < 2


def test_rows_needed():
    table = [[calibration_rows_needed(level, sure) for sure in (0.9, 0.95, 0.99)] for level in (0.8, 0.9, 0.95, 0.99)]
    assert table == [[11, 14, 21], [22, 29, 44], [45, 59, 90], [230, 299, 459]]
    for confidence, sure in product(LEVELS, SURE):
        needed = calibration_rows_needed(confidence, sure)
        assert rank(confidence, needed, sure) >= 1
        assert rank(confidence, needed - 1, sure) == 0
    assert calibration_rows_needed(0.95) == calibration_rows_needed(0.95, 0.1) == 19  # never fewer than without


def test_neither_promise_is_broken():
    """The rank is never larger than without assurance: coverage on average stays what it was."""
    for confidence, sure, n in product(LEVELS, [0.001, 0.3, 0.6, 0.95], range(0, 300, 7)):
        assert rank(confidence, n, sure) <= rank(confidence, n)
    assert rank(0.95, 10**4) == rank(0.95, 10**4, None) == 500


@pytest.mark.parametrize("sure", [0, 1, -0.5, 95, "high", np.nan, inf, 1 - 1e-12])
def test_assurance_outside_0_1_is_refused(sure):
    with pytest.raises(ValueError, match=r"assurance must be a number between 0 and 1.*got"):
        rank(0.9, 100, sure)


def assert_as_often(hits, n, confidence, sure):
    """``hits`` of `DRAWS` calibration samples with coverage at least the level; false alarm rate 1e-6."""
    r = rank(confidence, n, sure)
    chance = float(tail(n, significance(confidence), r)) if r else 1.0
    assert chance >= sure
    assert stats.binomtest(int(hits), DRAWS, chance).pvalue > 1e-6


@pytest.mark.parametrize(("n", "confidence", "sure"), [(100, 0.9, 0.95), (59, 0.95, 0.95), (500, 0.95, 0.9)])
def test_coverage_given_the_calibration_rows_is_the_level_as_often_as_promised(n, confidence, sure):
    """Own scores are uniform, so that a threshold ``t`` covers ``1 - t`` of new rows, exactly."""
    rng = np.random.default_rng(0)
    found = {None: 0, sure: 0}
    for _ in range(DRAWS):
        own = rng.random(n)
        for with_it in found:
            predictor = Calibration.of(own[:, None], np.zeros(n, dtype=int))
            predictor.assurance = as_assurance(with_it)
            t = np.sort(own)[rank(confidence, n, with_it) - 1]
            np.testing.assert_array_equal(predictor.sets(own[:, None], confidence)[:, 0], own >= t)
            found[with_it] += 1 - t >= confidence
    assert_as_often(found[sure], n, confidence, sure)
    assert found[None] < 0.75 * DRAWS  # without it the promise would not hold


@pytest.mark.parametrize("by", ["label", "group", "both"])
def test_each_category_by_itself_is_covered_as_often_as_promised(by):
    rng = np.random.default_rng(1)
    sizes, confidence, sure = {0: 40, 1: 90, 2: 25}, 0.9, 0.95  # 25 rows are too few: 29 are needed
    hits = np.zeros(3)
    category = np.repeat(list(sizes), list(sizes.values()))
    y = category if by == "label" else category % 2
    groups = None if by == "label" else category
    for _ in range(DRAWS):
        own = rng.standard_normal(len(category)) + 3 * category  # together, the first would be covered too little
        predictor = Calibration.of(np.repeat(own[:, None], 3, axis=1), y, by_label=by != "group", groups=groups)
        predictor.assurance = as_assurance(sure)
        kept = predictor.sets(np.repeat(own[:, None], 3, axis=1), confidence, groups=groups)[np.arange(len(y)), y]
        for one, n in sizes.items():
            there = category == one
            least = own[there][kept[there]].min() if rank(confidence, n, sure) else -np.inf
            hits[one] += stats.norm.sf(least - 3 * one) >= confidence
    for one, n in sizes.items():
        assert_as_often(hits[one], n, confidence, sure)
    assert hits[2] == DRAWS


def test_ties_only_raise_coverage():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(DRAWS):
        own = rng.integers(0, 5, 80).astype(float)
        predictor = Calibration.of(own[:, None], np.zeros(80, dtype=int))
        predictor.assurance = as_assurance(0.9)
        hits += predictor.sets(np.arange(5.0)[:, None], 0.85)[:, 0].mean() >= 0.85
    assert hits >= 0.9 * DRAWS


def test_few_rows_or_none_keep_every_label():
    predictor = Calibration.of(np.zeros((3, 3)), np.array([0, 1, 1]), by_label=True, groups=np.array(["a", "a", "b"]))
    predictor.assurance = as_assurance(0.9)
    low = np.full((3, 3), -9.0)
    assert predictor.sets(low, 0.6, groups=np.array(["a", "b", "never seen"])).all()


def test_sets_are_those_of_p_values_at_least_r_plus_1():
    rng = np.random.default_rng(3)
    own, new = np.round(rng.standard_normal(200), 1), np.round(rng.standard_normal((50, 4)), 1)
    predictor = Calibration.of(own[:, None], np.zeros(200, dtype=int))
    predictor.assurance = as_assurance(0.95)
    r = rank(0.9, 200, 0.95)
    np.testing.assert_array_equal(predictor.sets(new, 0.9), np.rint(predictor.p_values(new) * 201) >= r + 1)


def test_least_error_is_where_a_label_leaves_the_set():
    for n, count, sure in ((99, 5, 0.95), (50, 0, 0.9), (400, 31, 0.99)):
        eps = least_error((count + 1) / (n + 1), n, as_assurance(sure))
        assert rank(1 - round(eps - 1e-6, 8), n, sure) <= count
        assert rank(1 - round(eps + 1e-6, 8), n, sure) > count
    assert least_error(1.0, 20, as_assurance(0.9)) == 1.0


def test_the_band_follows_the_assured_rank():
    r = rank(0.9, 300, 0.95)
    law = stats.betabinom(1000, 301 - r, r)
    low, high = coverage_band(0.9, 1000, 300, assurance=0.95)
    assert (1000 * low, 1000 * high) == pytest.approx((law.ppf(0.025), law.ppf(0.975)))
    assert coverage_band(0.9, 1000, [300], assurance=0.95) == (low, high)
    assert coverage_band(0.9, 50, [20, 20], assurance=0.95) == (1.0, 1.0)


def test_the_band_of_several_categories():
    rng = np.random.default_rng(4)
    rows = np.array([40, 90, 25])
    low, high = coverage_band(0.9, 1000, rows, assurance=0.95)
    r = np.array([rank(0.9, m, 0.95) for m in rows])
    share = np.where(r > 0, rng.beta(rows + 1 - r, np.maximum(r, 1), (20_000, 3)), 1.0) @ (rows / rows.sum())
    covered = rng.binomial(1000, share) / 1000
    assert 0.94 < ((covered >= low) & (covered <= high)).mean() < 0.97


def test_a_label_that_chance_in_the_assured_calibration_rows_explains_is_not_named():
    rng = np.random.default_rng(5)
    n, m, r = np.full(4, 400), np.full(4, 60), rank(0.9, 60, 0.95)
    named = [
        bool(short_labels(n, rng.binomial(n, rng.beta(m + 1 - r, r)), 0.9, m, assurance=0.95).labels)
        for _ in range(300)
    ]
    assert np.mean(named) < 0.08
    assert short_labels(n, [250, 390, 390, 390], 0.9, m, assurance=0.95).labels[0].label == 0
    assert short_labels([50], [0], 0.9, [28], assurance=0.95).tested == 0  # every set holds the label
