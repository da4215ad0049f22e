"""The predictor against a literal reading of eq. (1), and against the law its coverage must follow."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tightset.conformal import calibration as icp
from tightset.conformal.calibration import Calibration
from tightset.conformal.ranks import calibration_rows_needed, rank, significance, threshold

LEVELS = {
    0.8: Fraction(1, 5),
    0.9: Fraction(1, 10),
    0.95: Fraction(1, 20),
    0.975: Fraction(1, 40),
    0.99: Fraction(1, 100),
}


def brute_force(alphas, scores, eps):
    """Eq. (1) label by label in exact arithmetic: p-values and sets."""
    n = len(alphas)
    count = [[sum(score >= a for a in alphas) for score in row] for row in scores]
    p = [[Fraction(c + 1, n + 1) for c in row] for row in count]
    return p, np.array([[c + 1 > eps * (n + 1) for c in row] for row in count])


@pytest.mark.parametrize(("confidence", "eps"), LEVELS.items())
def test_sets_and_p_values_equal_eq_1_tie_for_tie(confidence, eps):
    rng = np.random.default_rng(int(1000 * confidence))
    whole = int(1 / eps)
    sizes = [whole - 2, whole - 1, whole, 2 * whole - 1, *rng.integers(1, 250, 400)]
    for n in sizes:  # whole - 1 and 2 * whole - 1 make eps (n + 1) an integer
        C = int(rng.integers(2, 5))
        step = rng.choice([1.0, 0.25, 1e-3])  # coarse scores: many ties
        scores = np.round(rng.standard_normal((n, C)) / step) * step
        y = rng.integers(0, C, n)
        new = np.round(rng.standard_normal((4, C)) / step) * step
        predictor = Calibration.of(scores, y)
        p, sets = brute_force(scores[np.arange(n), y], new, eps)
        np.testing.assert_array_equal(predictor.sets(new, confidence), sets)
        np.testing.assert_array_equal(predictor.p_values(new), np.array(p, dtype=float))


@settings(max_examples=200, deadline=None)
@given(
    alphas=st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    score=st.integers(-4, 4),
    confidence=st.sampled_from(list(LEVELS)),
)
def test_one_score_against_eq_1(alphas, score, confidence):
    scores = np.array(alphas, dtype=float)[:, None]
    predictor = Calibration.of(scores, np.zeros(len(alphas), dtype=int))
    p, sets = brute_force(alphas, [[score]], LEVELS[confidence])
    new = np.array([[float(score)]])
    assert predictor.p_values(new)[0, 0] == float(p[0][0])
    assert predictor.sets(new, confidence)[0, 0] == sets[0, 0]
    assert (score >= threshold(scores[:, 0], confidence)) == sets[0, 0]


def test_ranks_are_exact_for_all_levels_and_sizes():
    for confidence, eps in LEVELS.items():
        for n in range(1, 3000):
            expected = (eps * (n + 1)).__floor__()
            for form in (confidence, 1 - float(eps), np.float64(confidence), np.float32(confidence), Fraction(1) - eps):
                assert rank(form, n) == expected, (form, n)


def test_rows_needed():
    assert [calibration_rows_needed(c) for c in LEVELS] == [4, 9, 19, 39, 99]
    for confidence in LEVELS:
        needed = calibration_rows_needed(confidence)
        assert rank(confidence, needed) == 1
        assert rank(confidence, needed - 1) == 0


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 1.2, 95, "high", None, np.nan, np.inf])
def test_confidence_outside_0_1_is_refused(confidence):
    with pytest.raises(ValueError, match=r"confidence must be a number between 0 and 1.*got"):
        significance(confidence)


def test_too_few_rows_keep_every_label():
    predictor = Calibration.of(np.arange(18.0)[:, None].repeat(2, 1), np.zeros(18, dtype=int))
    assert predictor.sets(np.full((1, 2), -99.0), 0.95).all()
    assert Calibration.of(np.zeros((0, 2)), np.zeros(0, dtype=int)).sets(np.zeros((3, 2)), 0.5).all()


def categories(rng, n=300, C=3):
    scores = np.round(rng.standard_normal((n, C)), 1)
    return scores, rng.integers(0, C, n), rng.choice(["a", "b"], n)


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("by_group", [False, True])
def test_mondrian_calibration_is_eq_1_within_each_category(by_label, by_group):
    rng = np.random.default_rng(1)
    scores, y, groups = categories(rng)
    new, _, new_groups = categories(rng, 40)
    predictor = Calibration.of(scores, y, by_label=by_label, groups=groups if by_group else None)
    p = predictor.p_values(new, groups=new_groups if by_group else None)
    sets = predictor.sets(new, 0.9, groups=new_groups if by_group else None)
    own = scores[np.arange(len(y)), y]
    for i in range(40):
        for c in range(3):
            same = np.ones(len(y), dtype=bool)
            same &= (y == c) if by_label else True
            same &= (groups == new_groups[i]) if by_group else True
            expected, kept = brute_force(own[same], [[new[i, c]]], Fraction(1, 10))
            assert p[i, c] == float(expected[0][0])
            assert sets[i, c] == kept[0, 0]


def test_folds_add_their_counts():
    rng = np.random.default_rng(2)
    scores, y, _ = categories(rng, 100)
    new, _, _ = categories(rng, 30)
    whole = Calibration.of(scores, y)
    parts = [Calibration.of(scores[i::3], y[i::3]) for i in range(3)]
    np.testing.assert_array_equal(icp.p_values(parts, [new] * 3), whole.p_values(new))
    for confidence in LEVELS:
        np.testing.assert_array_equal(icp.sets(parts, [new] * 3, confidence), whole.sets(new, confidence))


def test_smoothed_p_values_of_true_labels_are_uniform_in_spite_of_ties():
    """False alarm rate 1e-6: the p-values are uniform by construction, so the exact KS law applies."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(3000):
        own = rng.integers(0, 3, 21).astype(float)  # heavy ties
        predictor = Calibration.of(own[:20, None], np.zeros(20, dtype=int))
        found.append(predictor.p_values(own[20:, None], smoothing=rng.uniform(size=1))[0, 0])
    assert stats.kstest(found, "uniform").pvalue > 1e-6


def test_smoothing_only_lowers_p_values():
    rng = np.random.default_rng(5)
    scores, y, _ = categories(rng)
    predictor = Calibration.of(scores, y)
    tau = rng.uniform(size=300)
    assert (predictor.p_values(scores, smoothing=tau) <= predictor.p_values(scores)).all()
    smaller = icp.sets([predictor], [scores], 0.9, smoothing=tau)
    assert not (smaller & ~predictor.sets(scores, 0.9)).any()


def coverage_counts(rng, own, n, m, confidence, splits):
    """Covered test rows over random splits of a fixed pool of own-label scores."""
    counts = np.empty(splits, dtype=int)
    for s in range(splits):
        pool = rng.permutation(own)[: n + m]
        predictor = Calibration.of(pool[:n, None], np.zeros(n, dtype=int))
        counts[s] = predictor.sets(pool[n:, None], confidence).sum()
    return counts


def assert_follows_beta_binomial(counts, n, m, confidence):
    """Chi-square over cells of expected count >= 20; false alarm rate 1e-6."""
    r = rank(confidence, n)
    law = stats.betabinom(m, n + 1 - r, r).pmf(np.arange(m + 1)) * len(counts)
    cell = np.minimum(np.cumsum(law) // 20, law.sum() // 20 - 1).astype(int)
    observed = np.bincount(cell[counts], minlength=cell.max() + 1)
    expected = np.bincount(cell, weights=law)
    keep = expected > 0
    assert stats.chisquare(observed[keep], expected[keep] * observed.sum() / expected[keep].sum()).pvalue > 1e-6


@pytest.mark.parametrize(("n", "confidence"), [(19, 0.95), (99, 0.9), (60, 0.8), (150, 0.975)])
def test_coverage_follows_its_beta_binomial_law(n, confidence):
    rng = np.random.default_rng(6)
    counts = coverage_counts(rng, rng.standard_normal(2000), n, 100, confidence, 2000)
    assert_follows_beta_binomial(counts, n, 100, confidence)


def test_the_law_would_notice_a_rank_that_is_off_by_one():
    rng = np.random.default_rng(7)
    counts = coverage_counts(rng, rng.standard_normal(2000), 99, 100, 0.9, 2000)
    with pytest.raises(AssertionError):
        assert_follows_beta_binomial(counts, 99, 100, 0.91)


def test_label_conditional_coverage_follows_the_law_of_each_label():
    rng = np.random.default_rng(8)
    counts = np.empty((2, 1500), dtype=int)
    sizes, m = (40, 79), 60
    for s in range(1500):
        y = np.repeat([0, 1], np.array(sizes) + m)
        own = rng.standard_normal(len(y)) + 3 * y  # labels differ: marginal calibration would fail one of them
        new = np.concatenate([np.flatnonzero(y == c)[-m:] for c in (0, 1)])
        old = np.setdiff1d(np.arange(len(y)), new)
        predictor = Calibration.of(np.stack([own, own], axis=1)[old], y[old], by_label=True)
        covered = predictor.sets(np.stack([own, own], axis=1)[new], 0.9)[np.arange(2 * m), y[new]]
        counts[:, s] = covered[:m].sum(), covered[m:].sum()
    for c in (0, 1):
        assert_follows_beta_binomial(counts[c], sizes[c], m, 0.9)


def test_p_values_keep_the_dtype_of_scores():
    for dtype in (np.float32, np.float64):
        scores = np.random.default_rng(9).standard_normal((50, 2)).astype(dtype)
        assert Calibration.of(scores, np.zeros(50, dtype=int)).p_values(scores).dtype == dtype


def test_equal_weights_are_no_weights():
    rng = np.random.default_rng(10)
    for n in range(1, 400):
        alphas = rng.standard_normal(n)
        for confidence in LEVELS:
            for scale in (1.0, 0.3, 1e-4):
                assert threshold(alphas, confidence, np.full(n, scale)) == threshold(alphas, confidence)


def test_weights_count_as_copies():
    """Up to the new row, which counts as the mean weight and not as one: with many rows that is less than a rank."""
    rng = np.random.default_rng(11)
    for confidence in (0.8, 0.9, 0.95):
        alphas, times = rng.standard_normal(500), rng.integers(1, 4, 500)
        copies = np.sort(np.repeat(alphas, times))
        low, high = (copies[rank(confidence, len(copies)) + shift] for shift in (-4, 2))
        assert low <= threshold(alphas, confidence, times.astype(float)) <= high


def test_whole_numbers_are_scores_too():
    predictor = Calibration.of(np.array([[3, 1], [2, 5], [4, 0]]), np.array([0, 1, 0]))
    np.testing.assert_array_equal(predictor.p_values(np.array([[4, 1]])), [[0.75, 0.25]])
