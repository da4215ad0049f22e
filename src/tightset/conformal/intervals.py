"""Intervals for figures estimated from a sample: coverage, shares, means."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special, stats

from tightset.conformal.ranks import rank, significance

__all__ = ["coverage_band", "mean_interval", "percent", "share_interval"]


def percent(share: float, *, signed: bool = False) -> str:
    """A share in percent, with one digit after the point, or two where one would be none; zero has no sign.

    >>> percent(0.1234), percent(-0.0004, signed=True), percent(0.02, signed=True), percent(-1e-9)
    ('12.3%', '-0.04%', '+2.0%', '0%')
    """
    for digits in (1, 2):
        if round(100 * share, digits):
            return f"{100 * share:{'+' if signed else ''}.{digits}f}%"
    return "0%"


def coverage_band(
    confidence: Any, n: int, calibration_rows: Any = None, *, level: float = 0.95, assurance: Any = None
) -> tuple[float, float]:
    """Where the coverage of ``n`` new rows falls in a share ``level`` of all cases, if everything is as it should be.

    Given its ``m`` calibration rows a predictor covers a share of new rows that is ``Beta(m + 1 - r, r)`` over
    calibration sets, ``r = rank(confidence, m, assurance)``, so the number covered of ``n`` is beta-binomial; with
    assurance it lies above the confidence. Where ``m`` is not known it is taken as endless: ``Binomial(n,
    confidence)``, which is too narrow. Both are for scores without ties; with ties, or without empty sets, coverage can
    only be larger. Calibration by label or group has nearly the same band; with assurance give the rows of each
    category as a sequence, for a beta law with the mean and variance of their mixture. Cross-conformal prediction has
    no law that is known; there the band is a yardstick.

    >>> [round(end, 3) for end in coverage_band(0.9, 1000, 500)], [round(end, 3) for end in coverage_band(0.9, 1000)]
    ([0.866, 0.93], [0.881, 0.918])
    """
    tails = (1 - level) / 2, (1 + level) / 2
    if calibration_rows is None:
        low, high = stats.binom.ppf(tails, n, float(1 - significance(confidence))) / n
        return float(low), float(high)
    a, b = _coverage_law(confidence, np.atleast_1d(calibration_rows), assurance)
    if b == 0:  # every label is kept
        return 1.0, 1.0
    mean, spread = n * a / (a + b), np.sqrt(n * a * b * (a + b + n) / (a + b + 1)) / (a + b)
    first, last = max(0, int(mean - 12 * spread) - 2), min(n, int(mean + 12 * spread) + 2)
    k = np.arange(first, last + 1)
    log_chance = -np.log(n + 1) - special.betaln(n - k + 1, k + 1) + special.betaln(k + a, n - k + b)
    at = np.searchsorted(np.cumsum(np.exp(log_chance - special.betaln(a, b))), tails)
    low, high = k[np.minimum(at, len(k) - 1)] / n
    return float(low), float(high)


def _coverage_law(confidence: Any, rows: np.ndarray, assurance: Any) -> tuple[float, float]:
    """``Beta(a, b)`` of coverage; of several categories one with the mean and variance of all, weighted by rows."""
    ranks = np.array([rank(confidence, int(m), assurance) for m in rows])
    if len(rows) == 1:
        return float(rows[0] + 1 - ranks[0]), float(ranks[0])
    share, missed = rows / max(rows.sum(), 1), ranks / (rows + 1)
    mean, spread = float(share @ missed), float(share**2 @ (missed * (1 - missed) / (rows + 2)))
    if not spread:
        return 1.0, 0.0
    total = mean * (1 - mean) / spread - 1
    return (1 - mean) * total, mean * total


def share_interval(hits: Any, n: Any, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's interval of a share of which ``hits`` of ``n`` were seen: it never covers less than said.

    >>> [round(float(end), 3) for end in share_interval(8, 10)]
    [0.444, 0.975]
    """
    hits, n = np.asarray(hits, dtype=float), np.asarray(n, dtype=float)
    low, high = stats.beta.ppf((1 - level) / 2, hits, n - hits + 1), stats.beta.ppf((1 + level) / 2, hits + 1, n - hits)
    return np.where(hits == 0, 0.0, low), np.where(hits == n, 1.0, high)


def mean_interval(mean: Any, deviation: Any, n: Any, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Student's interval of a mean of ``n`` values with a sample standard ``deviation``; endless for one value.

    >>> [round(float(end), 3) for end in mean_interval(1.5, 0.5, 25)]
    [1.294, 1.706]
    """
    n = np.asarray(n, dtype=float)
    half = np.full(np.shape(n), np.inf)
    np.divide(deviation, np.sqrt(n), out=half, where=n > 1)
    half = half * stats.t.ppf((1 + level) / 2, np.maximum(n - 1, 1))
    return mean - half, mean + half
