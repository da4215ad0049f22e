"""Judging candidates on training rows: cross-validated set size at exact coverage, with its standard error.
Conventions
-----------
scores : (k, C) of held-out rows; y, weight : (k,); eps : the significance level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from tightset.compute.label_intervals import hull_of_scores
from tightset.conformal.inefficiency import SIZE, Inefficiency

__all__ = ["POINTS", "SPAN", "Curve", "Judge", "quantiles"]

POINTS = 25  # thresholds on a curve
SPAN = 4.0  # standard deviations of the coverage that it reaches to either side
_RESAMPLES = 100


class Curve(NamedTuple):
    """At thresholds around the one asked for, ``(k, J)``: a row's inefficiency, and whether its own score is below."""

    inefficiency: np.ndarray
    below: np.ndarray


class Judge:
    """The mean inefficiency at coverage ``1 - eps``, as a smooth function of the scores.

    At one threshold the figure is noisy: few rows lie near it, and at 99 % it hangs on a handful. So it is averaged
    over thresholds, each weighted by the probability that the ``eps``-quantile of ``k`` rows falls on it: the share of
    rows at or below it is normal around ``F`` with deviation ``sqrt(eps (1 - eps) / k)``. Resampled rows move ``F``,
    and with it the weights, so the bootstrap accounts for the noise of the threshold too.

    >>> scores = np.array([[2.0, 0.0], [1.0, 0.5], [0.0, 3.0], [0.2, 0.1]])
    >>> judge = Judge(np.array([0, 0, 1, 0]), None, 0.2, rng=np.random.default_rng(0))
    >>> judge.criterion(judge.curve(scores)) < 2
    True
    """

    terms: Any = None  # Terms, where there are several thresholds or costs
    order: np.ndarray | None = None  # of labels, if sets are intervals

    def __init__(
        self,
        y: np.ndarray,
        weight: np.ndarray | None,
        eps: float,
        f: Inefficiency = SIZE,
        *,
        rng: np.random.Generator,
    ) -> None:
        self.y, self.eps, self.f = y, eps, f
        k = len(y)
        self.weight = np.full(k, 1 / k) if weight is None else weight / weight.sum()
        rows = 1 / np.sum(self.weight**2)  # equally weighted rows that would tell as much
        self.deviation = float(np.sqrt(eps * (1 - eps) / rows))
        # Where few rows lie below the threshold the bootstrap sees too little of the noise: 0.7 of it for three rows.
        self.caution = 1 + 1 / max(eps * rows, 0.1)
        self.resampled_weights = np.empty((_RESAMPLES, k), dtype=np.float32)
        for at in range(_RESAMPLES):
            draw = np.bincount(rng.integers(k, size=k), minlength=k) * self.weight
            self.resampled_weights[at] = draw / draw.sum()

    def own(self, scores: np.ndarray) -> np.ndarray:
        result: np.ndarray = scores[np.arange(len(self.y)), self.y]
        return result

    def seen(self, scores: np.ndarray) -> np.ndarray:
        """The scores that sets are made of: their hulls if labels have an order."""
        return scores if self.order is None else np.asarray(hull_of_scores(scores, self.order)[0])

    def thresholds(self, scores: np.ndarray, rows: np.ndarray | None = None) -> Any:
        """The ``eps``-quantile of own-label scores, over some of the rows; one for each label if they differ."""
        own = self.own(self.seen(scores))
        own, weight = (own, self.weight) if rows is None else (own[rows], self.weight[rows])
        return float(quantiles(own, weight, np.array([self.eps]))[0])

    def excess(self, margins: np.ndarray) -> Any:
        """By how much margins, which have a threshold taken off, are still too large."""
        return self.thresholds(margins)

    def curve(self, scores: np.ndarray) -> Curve:
        if not np.isfinite(scores).all():
            return Curve(*np.full((2, len(scores), 1), np.inf, dtype=np.float32))
        scores = self.seen(scores)
        own = self.own(scores)
        around = self.eps + np.linspace(-SPAN, SPAN, POINTS) * self.deviation
        thresholds = np.unique(quantiles(own, self.weight, around))
        inefficiency = self.f(_sizes(scores, thresholds).astype(float)).astype(np.float32)
        return Curve(inefficiency, (own[:, None] <= thresholds).astype(np.float32))

    def criterion(self, curve: Curve) -> float:
        """The figure by which candidates are chosen; infinite if some scores are not finite."""
        return float(self._average(curve, self.weight[None].astype(np.float32))[0])

    def error(self, curve: Curve) -> float:
        """The standard error of that figure, by the bootstrap."""
        return float(self.resampled(curve).std()) if np.isfinite(curve.inefficiency).all() else np.inf

    def resampled(self, curve: Curve) -> np.ndarray:
        """The criterion on every bootstrap sample of the rows, the same samples for every candidate."""
        return self._average(curve, self.resampled_weights)

    def _average(self, curve: Curve, weights: np.ndarray) -> np.ndarray:
        if not np.isfinite(curve.inefficiency).all():
            return np.full(len(weights), np.inf)
        cumulated = ndtr((weights @ curve.below - self.eps) / self.deviation)
        cumulated[:, -1] = 1
        falls_on = np.diff(cumulated, axis=1, prepend=0)
        return np.asarray(((weights @ curve.inefficiency) * falls_on).sum(axis=1))


def _sizes(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many scores of each row ``(k, C)`` reach each threshold ``(J,)``, which ascend; few lie between them."""
    k, J = len(scores), len(thresholds)
    sizes = np.repeat(np.count_nonzero(scores >= thresholds[-1], axis=1)[:, None], J, axis=1)
    row, label = np.nonzero((scores >= thresholds[0]) & (scores < thresholds[-1]))
    reached = np.searchsorted(thresholds, scores[row, label], side="right") - 1
    between = np.bincount(row * J + reached, minlength=k * J).reshape(k, J)
    return np.asarray(sizes + between[:, ::-1].cumsum(axis=1)[:, ::-1])


def quantiles(x: np.ndarray, weight: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Weighted quantiles of ``x (k,)`` at shares ``at (J,)``, which are clipped to those that there are."""
    order = np.argsort(x)
    cumulated = np.cumsum(weight[order])
    # a hair less, so that rounding in the sum does not move a rank
    found = np.searchsorted(cumulated, (np.clip(at, 0, 1) - 1e-9) * cumulated[-1])
    result: np.ndarray = x[order[np.minimum(found, len(x) - 1)]]
    return result
