"""Bands and intervals against SciPy's laws, and against what happens."""

import numpy as np
import pytest
from scipy import stats

from tightset.conformal.intervals import coverage_band, mean_interval, share_interval
from tightset.conformal.ranks import rank


@pytest.mark.parametrize("n", [1, 17, 1000])
@pytest.mark.parametrize("m", [19, 100, 5000])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
def test_the_band_is_that_of_the_beta_binomial_law(confidence, m, n):
    r = rank(confidence, m)
    law = stats.betabinom(n, m + 1 - r, r)
    low, high = coverage_band(confidence, n, m)
    assert (low * n, high * n) == pytest.approx((law.ppf(0.025), law.ppf(0.975)))
    assert law.cdf(round(high * n)) - law.cdf(round(low * n) - 1) >= 0.95


def test_without_calibration_rows_the_band_is_binomial_and_with_many_it_tends_to_it():
    ends = stats.binom.ppf([0.05, 0.95], 400, 0.8) / 400
    assert coverage_band(0.8, 400, level=0.9) == pytest.approx(tuple(ends))
    assert coverage_band(0.8, 400, 10**7 - 1, level=0.9) == pytest.approx(tuple(ends))
    low, high = coverage_band(0.8, 10**7, 1000)  # a million new rows and more cost nothing
    assert (low, high) == pytest.approx(tuple(stats.beta.ppf([0.025, 0.975], 801, 200)), abs=1e-3)


def test_too_few_calibration_rows_cover_everything():
    assert coverage_band(0.99, 50, 20) == (1.0, 1.0)


def test_coverage_falls_into_the_band_as_often_as_it_says():
    rng = np.random.default_rng(0)
    low, high = coverage_band(0.9, 200, 99)
    cases = 4000
    threshold = np.sort(rng.random((cases, 99)), axis=1)[:, rank(0.9, 99) - 1]
    covered = (rng.random((cases, 200)) >= threshold[:, None]).mean(axis=1)
    inside = ((covered >= low) & (covered <= high)).mean()
    assert 0.945 < inside < 0.97
    low, high = coverage_band(0.9, 200)  # forgets that calibration varies too
    assert ((covered >= low) & (covered <= high)).mean() < 0.87


def test_shares_and_means():
    low, high = share_interval([0, 3, 10], [10, 10, 10])
    for k, a, b in zip([0, 3, 10], low, high, strict=True):
        assert (a, b) == pytest.approx(tuple(stats.binomtest(k, 10).proportion_ci(0.95, method="exact")))
    x = np.array([1.0, 2.0, 2.0, 5.0])
    expected = stats.t.interval(0.9, 3, x.mean(), stats.sem(x))
    assert mean_interval(x.mean(), x.std(ddof=1), 4, level=0.9) == pytest.approx(expected)
    assert mean_interval(1.0, 0.0, 1) == (-np.inf, np.inf)
