"""The surrogate of a conformal predictor: scores and labels in, loss and ``dL/dA`` out.

The objective lives in score space and is made of sums over samples. A block of rows yields the sums and two raw
derivatives; only when all sums are known does the loss, and with it the weight of each derivative, follow:

    dL/dA_iy = a * dF_iy + b * dV_i * [y = y_i],        a, b one number a candidate.

Both derivatives are pulled back block by block before ``a`` and ``b`` are known, so one pass over the rows gives
the exact gradient for any cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from tightset.arrays import Array, Run, Scratch, label_runs, namespace, own_label, tanh_inplace
from tightset.inefficiency import SIZE, Inefficiency
from tightset.rows import Block, Rows

__all__ = ["FORMS", "Measure", "Penalised", "Sums", "Surrogate"]

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


class Measure(Protocol):
    """What the objective asks of a conformity measure; see `tightset.measures`."""

    def scores(self, X: Array, theta: Array, scratch: Scratch | None = None) -> Array: ...
    def pullback(self, X: Array, dA: Array, scratch: Scratch | None = None) -> Array: ...
    def add_own(self, gradient: Array, X: Array, runs: list[Run], d_own: Array) -> None: ...


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The loss of every candidate as a function of its parameters: ``theta (B, m, C)`` to ``(B,)`` and gradient.

    ``centre (m - 1,)`` holds column means that were not taken off sparse rows: the measure is linear in ``x``, so
    ``theta . (x - c)`` equals ``theta . x`` with the intercept lowered by ``theta . c``, and no zero is filled in.
    """

    rows: Rows
    measure: Measure
    objective: Penalised
    centre: Array | None = None
    candidates: Array | None = None
    score_scratch: Scratch = field(default_factory=Scratch)
    gradient_scratch: Scratch = field(default_factory=Scratch)

    def take(self, candidates: Array) -> Self:
        return replace(self, objective=self.objective.take(candidates), candidates=candidates)

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        xp = namespace(theta)
        if self.centre is not None:
            theta = theta.copy()
            theta[:, -1] -= self.centre @ theta[:, :-1]

        @np.errstate(all="ignore")  # as in `minimise`; a thread does not inherit it
        def lane(blocks: list[Block]) -> Any:
            total: Any = None
            for block in blocks:
                weight = block.weight
                if weight is not None and weight.ndim == 2 and self.candidates is not None:
                    weight = weight[self.candidates]
                A = self.measure.scores(block.X, theta, self.score_scratch)
                sums, dF, dV = self.objective.block(A, block.runs, weight, overwrite=True)
                pulled = self.measure.pullback(block.X, dF, self.gradient_scratch)
                if total is None:  # the sum starts as a copy: scratch memory is reused
                    total = (sums, pulled + 0, xp.zeros_like(pulled))
                else:
                    total = _add(total, (sums, pulled, 0))
                self.measure.add_own(total[2], block.X, block.runs, dV)
            return total

        sums, gradient_F, gradient_V = reduce(_add, self.rows.map(lane))
        loss, a, b = self.objective.combine(sums)
        gradient = a[:, None, None] * gradient_F + b[:, None, None] * gradient_V
        if self.centre is not None:
            gradient[:, :-1] -= self.centre[:, None] * gradient[:, -1:]
        return loss, gradient


def _add(total: tuple[Sums, Array, Array], more: tuple[Sums, Array, Array]) -> tuple[Sums, Array, Array]:
    """Sums and pulled-back derivatives of two parts of the rows; the first part's arrays are reused."""
    sums = Sums(*(x + y for x, y in zip(total[0], more[0], strict=True)))
    gradient_F, gradient_V = total[1:]
    gradient_F += more[1]
    gradient_V += more[2]
    return sums, gradient_F, gradient_V
