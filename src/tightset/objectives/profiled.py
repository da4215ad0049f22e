"""Set size at exact coverage, without a penalty to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from tightset.compute.arrays import Array, Run, namespace, own_label, row_dots, tanh_inplace
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.objectives.sums import OfSums
from tightset.objectives.weights import normalised, together

__all__ = ["Profiled"]

_ROWS_TO_START = 500
_NEWTON_STEPS = 60
_LOOK_EVERY_ON_DEVICE = 8  # steps; to look whether they are enough holds the device up


@dataclass(frozen=True, eq=False)
class Profiled(OfSums):
    """Set size at exact coverage: ``L = mean_i f(s_i)``, the threshold ``q`` solved for and no penalty to choose.

        s_i = sum_y sigma(gamma (A_iy - q)),    q such that  mean_i sigma(gamma (alpha_i - q)) = 1 - eps

    It is the limit ``lam -> infinity`` of `Penalised` with ``q`` free. With ``D = gamma sigma (1 - sigma)`` the
    implicit function theorem gives

        dL/dA_iy = w_i f'(s_i) D_iy - rho w_i D_i,y_i [y = y_i],
        rho = sum_j w_j f'(s_j) sum_c D_jc / sum_j w_j D_j,y_j

    (weights ``w`` of sum 1). Conventions as in `Penalised`.

    >>> one = np.ones(1)
    >>> A = np.array([[[3.0, -1.0], [0.0, 2.0]]])
    >>> loss, dA = Profiled(eps=0.1 * one, gamma=2 * one).value_and_gradient(A, np.array([0, 1]))
    >>> bool(abs(dA.sum()) < 1e-9)  # all scores moved alike move the threshold with them
    True
    """

    eps: Array
    gamma: Array
    f: Inefficiency = SIZE
    tol: float = 1e-5
    needs_threshold: ClassVar[bool] = True

    def beside(self, others: Sequence[Self]) -> Self:
        joined = {name: together([getattr(one, name) for one in (self, *others)]) for name in ("eps", "gamma")}
        return replace(self, **joined)

    def take(self, candidates: Array) -> Self:
        return replace(self, eps=self.eps[candidates], gamma=self.gamma[candidates])

    def threshold(self, alphas: Array, weight: Array, about: Array | None = None) -> Array:
        """``q (B,)`` for own-label scores ``(B, k)`` and weights ``(B, k)`` of sum 1, looked for ``about (B,)`` first.

        Newton's method, kept in a bracket. It stops at a coverage error of ``tol``: the loss is corrected for what is
        left to first order, which makes it as good as exact.
        """
        known = about is not None and bool(namespace(about).all(namespace(about).isfinite(about)))
        return self._root(alphas, weight, about if known else self._start(alphas, weight))

    def _start(self, alphas: Array, weight: Array) -> Array:
        """The root of some rows."""
        xp = namespace(alphas)
        step = max(1, alphas.shape[1] // _ROWS_TO_START)
        some = alphas[:, ::step]
        ranks = xp.astype(self.eps * (some.shape[1] - 1), xp.int64)
        q = xp.take_along_axis(xp.sort(some, axis=1), ranks[:, None], axis=1)[:, 0]
        return q if step == 1 else self._root(some, normalised(weight[:, ::step] + 1e-30, some), q)

    def _root(self, alphas: Array, weight: Array, q: Array) -> Array:
        """Newton's method from ``q``."""
        xp, half = namespace(alphas), self.gamma / 2
        low = high = None
        look_every = 1 if isinstance(alphas, np.ndarray) else _LOOK_EVERY_ON_DEVICE
        for step in range(1, _NEWTON_STEPS + 1):
            t = alphas - q[:, None]
            t *= half[:, None]
            t = tanh_inplace(t)
            excess = (row_dots(weight, t) - (1 - 2 * self.eps)) / 2
            if step % look_every == 0 and bool(xp.all(xp.abs(excess) <= self.tol)):
                break
            if low is None or high is None:
                low, high = xp.min(alphas, axis=1) - 20 / half, xp.max(alphas, axis=1) + 20 / half
            t *= t
            slope = half / 2 * (1 - row_dots(weight, t))
            low, high = xp.where(excess > 0, q, low), xp.where(excess < 0, q, high)
            newton = q + excess / xp.clip(slope, 1e-30, None)
            q = xp.where((newton > low) & (newton < high), newton, (low + high) / 2)
        return q

    def block(
        self, A: Array, runs: list[Run], weight: Array | None, threshold: Array | None = None
    ) -> tuple[tuple[Array, ...], Array, Array]:
        """For rows that are not all at hand: sums over these ``(B,)``, and the raw derivatives ``dF`` and ``dV``.

        The sums are of ``w``, ``w f(s)``, ``w t`` at the own label, ``dF`` and ``dV``; the memory of ``A`` is used up.
        """
        xp = namespace(A)
        if threshold is None:
            raise ValueError("a block of rows needs the threshold of all rows")
        A -= threshold[:, None, None]
        A *= (self.gamma / 2)[:, None, None]
        t = tanh_inplace(A)
        own = own_label(t, runs)
        s = (A.shape[-1] + xp.sum(t, axis=-1)) / 2
        if weight is None and self.f == SIZE:  # no row weighs more than another: spare some passes
            of_own = xp.sum(own, axis=1)
            t *= t
            t -= 1
            own *= own
            own -= 1
            rows = xp.full_like(of_own, t.shape[1])
            return (rows, xp.sum(s, axis=1), of_own, xp.sum(xp.sum(t, axis=-1), axis=1), xp.sum(own, axis=1)), t, own
        dF, dV, f = t, own * own - 1, self.f(s)
        dF *= t
        dF -= 1
        if self.f != SIZE:
            dF *= self.f.derivative(s)[..., None]
        if weight is not None:
            dF *= weight[..., None]
            dV, f, own = weight * dV, weight * f, weight * own
        ones = xp.ones_like(own) if weight is None else weight + xp.zeros_like(own)
        return tuple(xp.sum(one, axis=1) for one in (ones, f, own, xp.sum(dF, axis=-1), dV)), dF, dV

    def combine(self, sums: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        """Loss ``(B,)`` and the weights ``a, b (B,)`` of the two raw derivatives."""
        weight, inefficiency, own, dF, dV = sums
        rho = dF / namespace(dF).clip(dV, None, -1e-30)
        excess = (own / weight - (1 - 2 * self.eps)) / 2
        a = -self.gamma / (4 * weight)
        return inefficiency / weight - rho * excess, a, -rho * a
