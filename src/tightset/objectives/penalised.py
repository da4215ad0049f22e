"""The paper's loss: set size, and a penalty for missed coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

from tightset.compute.arrays import Array, Run, namespace, own_label, tanh_inplace
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.objectives.sums import OfSums
from tightset.objectives.weights import together

__all__ = ["FORMS", "Penalised", "Sums", "transformed"]

FORMS = ("L", "log L", "-1/L", "-1/L^2")


class Sums(NamedTuple):
    """Sums over rows, each ``(B,)``: of the weights, of ``w f(s)`` and of ``w sigma`` at the own label."""

    weight: Array
    inefficiency: Array
    covered: Array


@dataclass(frozen=True, eq=False)
class Penalised(OfSums):
    """The paper's loss ``L = mean_i f(s_i) + lam V^2``, in one of its four increasing forms.

        s_i = sum_y sigma(gamma (A_iy - q)),    V = mean_i sigma(gamma (alpha_i - q)) - (1 - eps)

    Conventions
    -----------
    A : (B, k, C); eps, lam, gamma : (B,) arrays of A's library and dtype; weight : (k,), (B, k) or None;
    means are weighted. Inputs are never changed. With ``t = tanh(gamma (A - q) / 2)`` every sigmoid is
    ``(1 + t) / 2`` and its slope ``gamma (1 - t^2) / 4``: one tanh serves value and derivative, and the constant
    ``gamma / 4`` waits until the sums are combined.

    >>> import numpy as np
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
    needs_threshold: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}; got {self.form!r}")

    def take(self, candidates: Array) -> Self:
        """The objective of some of the candidates."""
        return replace(self, eps=self.eps[candidates], lam=self.lam[candidates], gamma=self.gamma[candidates])

    def beside(self, others: Sequence[Self]) -> Self:
        """The candidates of this one, and of others, in one."""
        joined = {name: together([getattr(one, name) for one in (self, *others)]) for name in ("eps", "lam", "gamma")}
        return replace(self, **joined)

    def threshold(self, alphas: Array, weight: Array, about: Array | None = None) -> Array:  # noqa: ARG002 - it is fixed
        """``q (B,)``, which is part of the objective."""
        return namespace(alphas).full_like(alphas[:, 0], self.q)

    def block(
        self,
        A: Array,
        runs: list[Run],
        weight: Array | None,
        threshold: Array | None = None,  # noqa: ARG002
    ) -> tuple[Sums, Array, Array]:
        """Sums over the rows of ``A``, and the raw derivatives ``dF``, in the memory of ``A``, and ``dV``."""
        xp = namespace(A)
        B, k, C = A.shape
        t = A
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

    def combine(self, sums: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        """Loss ``(B,)`` and the weights ``a, b (B,)`` of the two raw derivatives."""
        weight, inefficiency, covered = sums
        V = covered / weight - (1 - self.eps)
        L = inefficiency / weight + self.lam * V * V
        value, slope = transformed(L, self.form)
        a = -slope * self.gamma / (4 * weight)
        return value, a, a * 2 * self.lam * V


def transformed(L: Array, form: str) -> tuple[Array, Array]:
    """An increasing function of ``L`` and its derivative."""
    if form == "L":
        return L, namespace(L).ones_like(L)
    if form == "log L":
        return namespace(L).log(L), 1 / L
    if form == "-1/L":
        return -1 / L, 1 / L**2
    return -1 / L**2, 2 / L**3
