"""Judging by category: the mean cost of sets at exact coverage of every category, with its standard error."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from tightset.conformal.inefficiency import Inefficiency
from tightset.objectives.terms import Terms
from tightset.search.judging import POINTS, SPAN, Curve, Judge, quantiles

__all__ = ["JudgeOnTerms"]


class JudgeOnTerms(Judge):
    """As `Judge`, with a threshold for each category, and costs.

    Thresholds of all categories move together, each by as many deviations of its own coverage, and the figure is
    averaged over them with the weights of the normal law. Its error follows from the influence of each row,

        psi_i = cost_i - rho_c (covered_i - coverage_c),    rho_c = d cost / d coverage of the category c of row i,

    the first term being chance in the sets, the second in the threshold of the category.
    """

    def __init__(
        self,
        y: np.ndarray,
        weight: np.ndarray | None,
        eps: float,
        f: Inefficiency,
        terms: Terms,
        *,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(y, weight, eps, f, rng=rng)
        self.terms: Terms = terms
        self._category = terms.own(y)
        T = terms.n_thresholds
        self._share = np.bincount(self._category, self.weight, minlength=T)
        rows = self._share**2 / np.maximum(np.bincount(self._category, self.weight**2, minlength=T), 1e-300)
        self._deviations = np.sqrt(eps * (1 - eps) / np.maximum(rows, 1))
        self.caution = 1 + 1 / max(eps * float(np.median(rows[rows > 0])), 0.1)
        self._price = terms.prices(y)
        # Measures do not know the groups of rows, and are combined by thresholds that do not depend on them.
        self._of_members = terms.without_groups(y, eps)

    def thresholds(self, scores: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """That of each label ``(C,)``, for a measure that is combined with others; costs are part of it."""
        offset = self._of_members.offset
        return np.asarray(self.excess(scores - offset, rows) + offset)

    def excess(self, margins: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """The same of margins, in which costs are counted already."""
        own = self.own(self.seen(margins))
        category = self._of_members.own(self.y)
        if rows is not None:
            own, category = own[rows], category[rows]
        weight = self.weight if rows is None else self.weight[rows]
        q = np.zeros(self._of_members.n_thresholds)
        for one in range(len(q)):
            mine = category == one
            if mine.any():
                q[one] = quantiles(own[mine], weight[mine], np.array([self.eps]))[0]
        return np.asarray(self._of_members.thresholds(q)[0])

    def curve(self, scores: np.ndarray) -> Curve:
        """The influence of each row ``(k, 1)``; there is nothing else to know. Of costs, scores are margins."""
        if not np.isfinite(scores).all():
            return Curve(np.full((len(scores), 1), np.inf), np.zeros((len(scores), 1)))
        terms, T, scores = self.terms, self.terms.n_thresholds, self.seen(scores)
        own = self.own(scores)
        around = np.linspace(-SPAN, SPAN, POINTS)
        q = np.empty((POINTS, T))
        for one in range(T):
            mine = self._category == one
            at = self.eps + around * self._deviations[one]
            q[:, one] = quantiles(own[mine], self.weight[mine], at) if mine.any() else 0.0
        step = around[1] - around[0]
        falls_on = np.diff(ndtr(np.concatenate([[-np.inf], around[:-1] + step / 2, [np.inf]])))
        cost, covered = np.zeros(len(scores)), np.zeros(len(scores))
        below, above = (int(np.argmin(np.abs(around - one))) for one in (-1.0, 1.0))
        kept = {}
        for j, share in enumerate(falls_on):
            inside = scores >= terms.thresholds(q[j])
            cost += share * self.f(self._sizes(inside))
            covered += share * (own >= q[j][self._category])
            if j in (below, above):
                kept[j] = inside
        # A secant: the derivative of an f that is smooth only between whole sizes is nothing at these.
        many, few = (self._sizes(kept[j]) for j in (below, above))
        slope = np.where(many > few, (self.f(many) - self.f(few)) / np.maximum(many - few, 1e-12), 0.0)
        costs = [self._by_category(kept[j], slope) for j in (below, above)]
        coverage = [
            np.bincount(self._category, self.weight * (own >= q[j][self._category]), minlength=T)
            for j in (below, above)
        ]
        gained = coverage[0] - coverage[1]
        rho = np.where(gained > 0, (costs[0] - costs[1]) / np.maximum(gained, 1e-12), 0.0)
        mean = np.bincount(self._category, self.weight * covered, minlength=T) / np.maximum(self._share, 1e-300)
        psi = cost - rho[self._category] * (covered - mean[self._category])
        return Curve(psi[:, None], np.zeros((len(psi), 1)))

    def _sizes(self, inside: np.ndarray) -> np.ndarray:
        if self._price is None:
            return np.asarray(np.count_nonzero(inside, axis=1), dtype=float)
        return np.asarray((inside * self._price).sum(axis=1))

    def _by_category(self, inside: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Sums of ``w f'(s) cost`` over the rows and labels of each category that are in sets, ``(T,)``."""
        priced = inside * (self.weight * slope)[:, None]
        priced = priced if self._price is None else priced * self._price
        G, C = self.terms.index.shape
        if self.terms.group is None:
            pairs = priced.sum(axis=0)[None]
        else:
            pairs = np.stack(
                [np.bincount(self.terms.group, priced[:, label], minlength=G) for label in range(C)], axis=1
            )
        return np.asarray(np.bincount(self.terms.index.ravel(), pairs.ravel(), minlength=self.terms.n_thresholds))

    def _average(self, curve: Curve, weights: np.ndarray) -> np.ndarray:
        if not np.isfinite(curve.inefficiency).all():
            return np.full(len(weights), np.inf)
        return np.asarray(weights @ curve.inefficiency[:, 0])
