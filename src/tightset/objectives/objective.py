"""The surrogate of a conformal predictor: scores and labels in, loss and ``dL/dA`` out.

The objective lives in score space and is made of sums over samples. A block of rows yields the sums and two raw
derivatives; only when all sums are known does the loss, and with it the weight of each derivative, follow:

    dL/dA_iy = a * dF_iy + b * dV_i * [y = y_i],        a, b one number a candidate.

Both derivatives are pulled back block by block before ``a`` and ``b`` are known, so one pass over the rows gives
the exact gradient for any cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from tightset.compute.arrays import Array, Run, label_runs, namespace, own_label, tanh_inplace
from tightset.conformal.inefficiency import SIZE, Inefficiency

__all__ = ["FORMS", "LogLoss", "Penalised", "Profiled", "Sums"]

_ROWS_TO_START = 500
_NEWTON_STEPS = 60
_LOOK_EVERY_ON_DEVICE = 8  # steps; to look whether they are enough holds the device up
FORMS = ("L", "log L", "-1/L", "-1/L^2")


class Sums(NamedTuple):
    """Sums over rows, each ``(B,)``: of the weights, of ``w f(s)`` and of ``w sigma`` at the own label."""

    weight: Array
    inefficiency: Array
    covered: Array


@dataclass(frozen=True, eq=False)
class Penalised:
    """The paper's loss ``L = mean_i f(s_i) + lam V^2``, in one of its four increasing forms.

        s_i = sum_y sigma(gamma (A_iy - q)),    V = mean_i sigma(gamma (alpha_i - q)) - (1 - eps)

    Conventions
    -----------
    A : (B, k, C); eps, lam, gamma : (B,) arrays of A's library and dtype; weight : (k,), (B, k) or None;
    means are weighted. Inputs are never changed. With ``t = tanh(gamma (A - q) / 2)`` every sigmoid is
    ``(1 + t) / 2`` and its slope ``gamma (1 - t^2) / 4``: one tanh serves value and derivative, and the constant
    ``gamma / 4`` waits until the sums are combined.

    >>> one = np.ones(1)
    >>> objective = Penalised(eps=0.1 * one, lam=10 * one, gamma=2 * one)
    >>> A = np.array([[[3.0, -1.0], [0.0, 2.0]]])
    >>> loss, dA = objective.value_and_gradient(A, np.array([0, 1]))
    >>> loss.shape, dA.shape
    ((1,), (1, 2, 2))
    """

    eps: Array
    lam: Array
    gamma: Array
    q: float = 1.0
    f: Inefficiency = SIZE
    form: str = "-1/L"

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}; got {self.form!r}")

    def take(self, candidates: Array) -> Self:
        """The objective of some of the candidates."""
        return replace(self, eps=self.eps[candidates], lam=self.lam[candidates], gamma=self.gamma[candidates])

    def block(
        self, A: Array, runs: list[Run], weight: Array | None = None, *, overwrite: bool = False
    ) -> tuple[Sums, Array, Array]:
        """Sums over the rows of ``A``, with the raw derivatives ``dF (B, k, C)`` and ``dV (B, k)``.

        With ``overwrite`` the memory of ``A`` becomes that of ``dF``.
        """
        xp = namespace(A)
        B, k, C = A.shape
        t = A if overwrite else xp.asarray(A, copy=True)
        t -= self.q
        t *= (self.gamma / 2)[:, None, None]
        t = tanh_inplace(t)
        own = own_label(t, runs)
        s = (C + xp.sum(t, axis=-1)) / 2
        slope = t
        slope *= t
        slope -= 1  # the sign returns in combine: one pass less over the largest array
        d_own = own * own - 1
        loss_rows, cover_rows = self.f(s), (1 + own) / 2
        if weight is None:
            total = xp.full((B,), k, dtype=A.dtype, device=A.device)
        else:
            total = xp.sum(weight * xp.ones_like(s), axis=-1)
            loss_rows, cover_rows, d_own = weight * loss_rows, weight * cover_rows, weight * d_own
        if self.f != SIZE:  # f' = 1 for the size itself: spare the pass
            df = self.f.derivative(s)
            slope *= (df if weight is None else weight * df)[..., None]
        elif weight is not None:
            slope *= weight[..., None]
        return Sums(total, xp.sum(loss_rows, axis=-1), xp.sum(cover_rows, axis=-1)), slope, d_own

    def combine(self, sums: Sums) -> tuple[Array, Array, Array]:
        """Loss ``(B,)`` and the weights ``a, b (B,)`` of the two raw derivatives."""
        V = sums.covered / sums.weight - (1 - self.eps)
        L = sums.inefficiency / sums.weight + self.lam * V * V
        value, slope = _transform(L, self.form)
        a = -slope * self.gamma / (4 * sums.weight)
        return value, a, a * 2 * self.lam * V

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``dL/dA (B, k, C)`` for scores that are all at hand."""
        runs = label_runs(y)
        sums, dA, d_own = self.block(A, runs, weight)
        loss, a, b = self.combine(sums)
        dA *= a[:, None, None]
        for label, start, stop in runs:
            dA[:, start:stop, label] += b[:, None] * d_own[:, start:stop]
        return loss, dA


def _transform(L: Array, form: str) -> tuple[Array, Array]:
    """An increasing function of ``L`` and its derivative."""
    if form == "L":
        return L, namespace(L).ones_like(L)
    if form == "log L":
        return namespace(L).log(L), 1 / L
    if form == "-1/L":
        return -1 / L, 1 / L**2
    return -1 / L**2, 2 / L**3


@dataclass(frozen=True, eq=False)
class Profiled:
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

    def take(self, candidates: Array) -> Self:
        return replace(self, eps=self.eps[candidates], gamma=self.gamma[candidates])

    def threshold(self, alphas: Array, weight: Array) -> Array:
        """``q (B,)`` for own-label scores ``(B, k)`` and weights ``(B, k)`` of sum 1.

        Newton's method, kept in a bracket. It stops at a coverage error of ``tol``: the loss is corrected for what is
        left to first order, which makes it as good as exact.
        """
        xp = namespace(alphas)
        k = alphas.shape[1]
        some = xp.sort(alphas[:, :: max(1, k // _ROWS_TO_START)], axis=1)  # a quantile of some rows is a good start
        ranks = xp.astype(self.eps * (some.shape[1] - 1), xp.int64)
        q = xp.take_along_axis(some, ranks[:, None], axis=1)[:, 0]
        low, high = xp.min(alphas, axis=1) - 40 / self.gamma, xp.max(alphas, axis=1) + 40 / self.gamma
        look_every = 1 if isinstance(alphas, np.ndarray) else _LOOK_EVERY_ON_DEVICE
        for step in range(1, _NEWTON_STEPS + 1):
            t = tanh_inplace((alphas - q[:, None]) * (self.gamma / 2)[:, None])
            excess = (xp.sum(weight * t, axis=1) - (1 - 2 * self.eps)) / 2
            if step % look_every == 0 and bool(xp.all(xp.abs(excess) <= self.tol)):
                break
            slope = self.gamma / 4 * (1 - xp.sum(weight * t * t, axis=1))
            low, high = xp.where(excess > 0, q, low), xp.where(excess < 0, q, high)
            newton = q + excess / xp.clip(slope, 1e-30, None)
            q = xp.where((newton > low) & (newton < high), newton, (low + high) / 2)
        return q

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``dL/dA (B, k, C)``."""
        xp = namespace(A)
        C = A.shape[-1]
        runs = label_runs(y)
        alphas = own_label(A, runs)
        w = _normalised(weight, alphas)
        q = self.threshold(alphas, w)
        t = tanh_inplace((A - q[:, None, None]) * (self.gamma / 2)[:, None, None])
        own = own_label(t, runs)
        s = (C + xp.sum(t, axis=-1)) / 2
        dA = t
        dA *= t
        dA -= 1  # minus four slopes: the factor is made good at the end
        dA *= (w if self.f == SIZE else w * self.f.derivative(s))[..., None]
        d_own = w * (own * own - 1)
        rho = xp.sum(dA, axis=(1, 2)) / xp.clip(xp.sum(d_own, axis=1), None, -1e-30)
        for label, start, stop in runs:
            dA[:, start:stop, label] -= rho[:, None] * d_own[:, start:stop]
        dA *= (-self.gamma / 4)[:, None, None]
        excess = (xp.sum(w * own, axis=1) - (1 - 2 * self.eps)) / 2
        return xp.sum(w * self.f(s), axis=1) - rho * excess, dA

    def block(self, A: Array, runs: list[Run], weight: Array, q: Array) -> tuple[tuple[Array, ...], Array, Array]:
        """For rows that are not all at hand: sums over these ``(B,)``, and the raw derivatives ``dF`` and ``dV``.

        The sums are of ``w``, ``w f(s)``, ``w t`` at the own label, ``dF`` and ``dV``; the memory of ``A`` is used up.
        """
        xp = namespace(A)
        A -= q[:, None, None]
        A *= (self.gamma / 2)[:, None, None]
        t = tanh_inplace(A)
        own = own_label(t, runs)
        s = (A.shape[-1] + xp.sum(t, axis=-1)) / 2
        dF = t
        dF *= t
        dF -= 1
        dF *= (weight if self.f == SIZE else weight * self.f.derivative(s))[..., None]
        dV = weight * (own * own - 1)
        rows = weight + xp.zeros_like(own), weight * self.f(s), weight * own, xp.sum(dF, axis=-1), dV
        return tuple(xp.sum(one, axis=1) for one in rows), dF, dV

    def combine(self, sums: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        """Loss ``(B,)`` and the weights ``a, b (B,)`` of the two raw derivatives."""
        weight, inefficiency, own, dF, dV = sums
        rho = dF / namespace(dF).clip(dV, None, -1e-30)
        excess = (own / weight - (1 - 2 * self.eps)) / 2
        a = -self.gamma / (4 * weight)
        return inefficiency / weight - rho * excess, a, -rho * a


class LogLoss:
    """``L = -mean_i alpha_i``: with the softmax measure, the loss of logistic regression."""

    def take(self, candidates: Array) -> Self:  # noqa: ARG002 - nothing of its own
        return self

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        xp = namespace(A)
        runs = label_runs(y)
        alphas = own_label(A, runs)
        w = _normalised(weight, alphas)
        dA = xp.zeros_like(A)
        for label, start, stop in runs:
            dA[:, start:stop, label] = -w[:, start:stop]
        return -xp.sum(w * alphas, axis=1), dA

    def block(self, A: Array, runs: list[Run], weight: Array, q: Array) -> tuple[tuple[Array, ...], None, Array]:  # noqa: ARG002
        """As of `Profiled`: sums of ``w`` and ``-w alpha``, and the derivative by the own labels' scores."""
        xp = namespace(A)
        own = own_label(A, runs)
        dV = -(weight + xp.zeros_like(own))
        return (-xp.sum(dV, axis=1), xp.sum(dV * own, axis=1)), None, dV

    def combine(self, sums: tuple[Array, ...]) -> tuple[Array, None, Array]:
        weight, loss = sums
        return loss / weight, None, 1 / weight


def _normalised(weight: Array | None, like: Array) -> Array:
    """Weights ``(B, k)`` of sum 1."""
    xp = namespace(like)
    if weight is None:
        return xp.full_like(like, 1 / like.shape[1])
    weight = xp.broadcast_to(weight, like.shape)
    return weight / xp.sum(weight, axis=1, keepdims=True)
