"""Set size, or cost, at exact coverage of every category: as `Profiled`, with a threshold for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tightset.compute.arrays import Array, Run, label_runs, namespace, own_label, tanh_inplace
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.objectives.terms import Terms
from tightset.objectives.weights import normalised, together

__all__ = ["OnTerms", "TermsOfRows"]

_ROWS_TO_START = 200  # of a category
_NEWTON_STEPS = 60
_LOOK_EVERY_ON_DEVICE = 8
_NONE = 1e-30


class TermsOfRows(NamedTuple):
    """The terms of rows ``(k,)`` with their labels, as arrays of the library that computes."""

    own: Array  # (k,), the category of the own label
    own_hot: Array  # (k, T), 1 in that place
    own_offset: Array  # (k,)
    starts: list[np.ndarray]  # some rows of each category, to find thresholds from
    index: Array  # (G * C,)
    pair_hot: Array  # (G * C, T)
    group: Array | None  # (k,)
    group_hot: Array | None  # (G, k)
    offset: Array  # (C,)
    price: Array | None  # (k or 1, C)

    @classmethod
    def of(
        cls,
        terms: Terms,
        y: np.ndarray,
        f: Inefficiency = SIZE,
        place: Callable[[Any], Array] = np.asarray,
        *,
        block: bool = False,
    ) -> Self:
        """For rows with labels ``y (k,)``, which are those of ``terms``; ``place`` makes arrays of what computes.

        Costs are in units of their mean where f is the size, so that parameters are held as firmly as without costs.
        A ``block`` of rows is given its thresholds, and does not find any.
        """
        own, T = terms.own(y), terms.n_thresholds
        like = place(np.zeros(1))
        xp = namespace(like)
        price = terms.prices(y)
        group_hot = None if terms.group is None else np.arange(len(terms.index))[:, None] == terms.group
        some = [] if block else [np.flatnonzero(own == one) for one in range(T)]

        def whole(x: np.ndarray) -> Array:
            return x if isinstance(like, np.ndarray) else xp.asarray(x, device=like.device)

        return cls(
            whole(own),
            place((own[:, None] == np.arange(T)).astype(np.float64)),
            place(terms.offset[y]),
            [rows[:: max(1, len(rows) // _ROWS_TO_START)] for rows in some],
            whole(terms.index.ravel()),
            place((terms.index.reshape(-1, 1) == np.arange(T)).astype(np.float64)),
            None if terms.group is None else whole(terms.group),
            None if group_hot is None else place(group_hot.astype(np.float64)),
            place(terms.offset),
            None if price is None else place(price / (terms.unit if f == SIZE else 1.0)),
        )


@dataclass(frozen=True, eq=False)
class OnTerms:
    """``L = mean_i f(s_i)`` with thresholds ``q_c`` solved for, one for each category of rows and labels.

        s_i = sum_y cost_iy sigma(gamma (A_iy - q_c(i,y) - offset_y)),
        q_c such that  mean of sigma(gamma (alpha_i - q_c - offset_y_i)) = 1 - eps  over rows of own category c

    As in `Profiled`, with ``D = gamma sigma (1 - sigma)``,

        dL/dA_iy = w_i f'(s_i) cost_iy D_iy - rho_c(i,y) w_i D_iy [y = y_i],
        rho_c = sum of w_j f'(s_j) cost_jy D_jy over (j, y) of category c
                / sum of w_j D_j,y_j over rows of own category c

    >>> y, A = np.array([0, 0, 1, 1]), np.array([[[3.0, -1.0], [1.0, 0.0], [0.0, 2.0], [0.5, 4.0]]])
    >>> terms = Terms.of(np.repeat([0, 1], 50), 2, 0.1, by_label=True)
    >>> loss = OnTerms(np.array([0.1]), np.array([2.0]), SIZE, TermsOfRows.of(terms, y))
    >>> bool(abs(loss.value_and_gradient(A, y)[1].sum(axis=1)).max() < 1e-9)  # thresholds move with their labels
    True
    """

    eps: Array
    gamma: Array
    f: Inefficiency
    rows: TermsOfRows
    tol: float = 1e-5
    needs_threshold: ClassVar[bool] = True

    def beside(self, others: Sequence[Self]) -> Self:
        joined = {name: together([getattr(one, name) for one in (self, *others)]) for name in ("eps", "gamma")}
        return replace(self, **joined)

    def take(self, candidates: Array) -> Self:
        return replace(self, eps=self.eps[candidates], gamma=self.gamma[candidates])

    def threshold(self, alphas: Array, weight: Array) -> Array:
        """``q (B, T)`` for scores of own labels ``(B, k)`` and weights ``(B, k)``, by Newton's method in brackets."""
        xp, rows = namespace(alphas), self.rows
        alphas = alphas - rows.own_offset
        share = xp.clip(weight @ rows.own_hot, _NONE, None)
        eps, gamma = self.eps[:, None], self.gamma[:, None]
        q = self._start(alphas)
        least, most = xp.min(alphas, axis=1) - 40 / self.gamma, xp.max(alphas, axis=1) + 40 / self.gamma
        low, high = xp.zeros_like(q) + least[:, None], xp.zeros_like(q) + most[:, None]
        look_every = 1 if isinstance(alphas, np.ndarray) else _LOOK_EVERY_ON_DEVICE
        for step in range(1, _NEWTON_STEPS + 1):
            t = tanh_inplace((alphas - xp.take(q, rows.own, axis=1)) * (gamma / 2))
            seen = weight * t
            excess = (seen @ rows.own_hot / share - (1 - 2 * eps)) / 2
            excess = xp.where(share > _NONE, excess, xp.zeros_like(excess))  # a fold may hold out a whole category
            if step % look_every == 0 and bool(xp.all(xp.abs(excess) * share <= self.tol)):
                break
            seen *= t
            slope = gamma / 4 * (1 - seen @ rows.own_hot / share)
            low, high = xp.where(excess > 0, q, low), xp.where(excess < 0, q, high)
            newton = q + excess / xp.clip(slope, _NONE, None)
            q = xp.where((newton > low) & (newton < high), newton, (low + high) / 2)
        return q

    def _start(self, alphas: Array) -> Array:
        """A quantile of some rows of each category."""
        xp = namespace(alphas)
        found = []
        for some in self.rows.starts:
            if len(some) == 0:
                found.append(xp.zeros_like(alphas[:, 0]))
                continue
            own = xp.sort(alphas[:, some], axis=1)
            ranks = xp.astype(self.eps * (own.shape[1] - 1), xp.int64)
            found.append(xp.take_along_axis(own, ranks[:, None], axis=1)[:, 0])
        return xp.stack(found, axis=1)

    def margins(self, A: Array, q: Array) -> Array:
        """``A - q_c(i,y) - offset_y`` ``(B, k, C)``."""
        xp, rows = namespace(A), self.rows
        C = A.shape[-1]
        of_pairs = xp.reshape(xp.take(q, rows.index, axis=1), (q.shape[0], -1, C)) + rows.offset
        if rows.group is not None:
            of_pairs = xp.take(of_pairs, rows.group, axis=1)
        return A - of_pairs

    def by_category(self, x: Array) -> Array:
        """Sums of ``x (B, k, C)`` over the rows and labels of each category ``(B, T)``."""
        xp, rows = namespace(x), self.rows
        pairs = xp.sum(x, axis=1)[:, None] if rows.group_hot is None else xp.matmul(rows.group_hot, x)
        return xp.reshape(pairs, (x.shape[0], -1)) @ rows.pair_hot

    def priced(self, w: Array, s: Array) -> Array:
        """``w_i f'(s_i) cost_iy`` ``(B, k, C or 1)``."""
        of_rows = (w if self.f == SIZE else w * self.f.derivative(s))[..., None]
        return of_rows if self.rows.price is None else of_rows * self.rows.price

    def inefficiency(self, t: Array) -> Array:
        """``s_i (B, k)`` of ``t = 2 sigma - 1``."""
        xp, price = namespace(t), self.rows.price
        if price is None:
            return (t.shape[-1] + xp.sum(t, axis=-1)) / 2
        return (xp.sum(price, axis=-1) + xp.sum(t * price, axis=-1)) / 2

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``dL/dA (B, k, C)``."""
        runs = label_runs(y)
        alphas = own_label(A, runs)
        w = normalised(weight, alphas)
        q = self.threshold(alphas, w)
        sums, dF, dV = self.block(A, runs, w, q)
        loss, rho = self.combine(sums)
        return loss, self.derivative(dF, dV, runs, rho)

    def block(self, A: Array, runs: list[Run], w: Array, q: Array) -> tuple[tuple[Array, ...], Array, Array]:
        """Sums over some rows, and raw derivatives ``dF (B, k, C)`` and ``dV (B, k)``, as of `Profiled`.

        The sums are of ``w f(s)`` ``(B,)``, and by category ``(B, T)`` of ``w``, ``w t`` at the own label, dF and dV.
        """
        xp, rows = namespace(A), self.rows
        t = self.margins(A, q)
        t *= (self.gamma / 2)[:, None, None]
        t = tanh_inplace(t)
        own = own_label(t, runs)
        s = self.inefficiency(t)
        dF = t
        dF *= t
        dF -= 1  # minus four slopes: the factor is made good at the end
        dF *= self.priced(w, s)
        dV = w * (own * own - 1)
        by_own = [one @ rows.own_hot for one in (w + xp.zeros_like(own), w * own)]
        return (xp.sum(w * self.f(s), axis=1), *by_own, self.by_category(dF), dV @ rows.own_hot), dF, dV

    def combine(self, sums: tuple[Array, ...]) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``rho (B, T)`` from sums over all rows, whose weights add up to 1."""
        inefficiency, weight, own, dF, dV = sums
        xp = namespace(dF)
        rho = dF / xp.clip(dV, None, -_NONE)
        excess = (own - weight * (1 - 2 * self.eps)[:, None]) / 2
        return inefficiency - xp.sum(rho * excess, axis=1), rho

    def derivative(self, dF: Array, dV: Array, runs: list[Run], rho: Array) -> Array:
        """``dL/dA`` in the memory of ``dF``."""
        taken = namespace(dF).take(rho, self.rows.own, axis=1) * dV
        for label, start, stop in runs:
            dF[:, start:stop, label] -= taken[:, start:stop]
        dF *= (-self.gamma / 4)[:, None, None]
        return dF
