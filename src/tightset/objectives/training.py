"""Losses as functions of the parameters, composed of a measure, an objective in score space, and rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol, Self

import numpy as np

from tightset.compute.arrays import Array, Run, Scratch, namespace
from tightset.compute.blocks import Block, Rows
from tightset.compute.contracts import check_offers
from tightset.measures.contract import Measure
from tightset.measures.products import centred
from tightset.objectives.contract import Objective
from tightset.objectives.penalised import Penalised, Sums

__all__ = [
    "Surrogate",
    "Training",
]


@dataclass(frozen=True, eq=False)
class Training:
    """``loss_b(theta_b) = objective + 1/2 sum pull_b (theta_b - anchor_b)^2`` for any measure and objective.

    Conventions
    -----------
    X : (k, m), rows sorted by label; y : (k,); weight : (B, k), which also makes the folds of cross-validation;
    anchor : (B, m, D); pull : (B, m, 1), how strongly each row of parameters is held at the anchor.
    ``centre (m - 1,)`` holds column means that were not taken off sparse rows: scores are functions of ``theta' x``,
    and ``theta . (x - c)`` is ``theta . x`` with the intercept lowered by ``theta . c``, so no zero is filled in.
    """

    X: Array
    y: np.ndarray
    measure: Measure
    objective: Objective
    weight: Array
    anchor: Array
    pull: Array
    centre: Array | None = None

    def __post_init__(self) -> None:
        check_offers(self.objective, Objective)
        check_offers(self.measure, Measure)

    def take(self, candidates: Array) -> Self:
        return replace(
            self,
            objective=self.objective.take(candidates),
            weight=self.weight[candidates],
            anchor=self.anchor[candidates],
            pull=self.pull[candidates],
        )

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        xp = namespace(theta)
        A, saved = self.measure.forward(self.X, centred(theta, self.centre))
        loss, dA = self.objective.value_and_gradient(A, self.y, self.weight)
        gradient = self.measure.backward(self.X, saved, dA)
        if self.centre is not None:
            gradient[:, :-1] -= self.centre[:, None] * gradient[:, -1:]
        away = theta - self.anchor
        held = self.pull * away
        return loss + xp.sum(held * away, axis=(1, 2)) / 2, gradient + held


class BlockMeasure(Protocol):
    """What `Surrogate` asks of a measure: scores that are linear in the parameters."""

    def scores(self, X: Array, theta: Array, scratch: Scratch | None = None) -> Array: ...
    def pullback(self, X: Array, dA: Array, scratch: Scratch | None = None) -> Array: ...
    def add_own(self, gradient: Array, X: Array, runs: list[Run], d_own: Array) -> None: ...


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The penalised loss of linear measures in one pass over blocks of rows that stay in cache.

    ``theta (B, m, C)`` to ``(B,)`` and gradient; ``centre`` as in `Training`.
    """

    rows: Rows
    measure: BlockMeasure
    objective: Penalised
    centre: Array | None = None
    candidates: Array | None = None
    score_scratch: Scratch = field(default_factory=Scratch)
    gradient_scratch: Scratch = field(default_factory=Scratch)

    def __post_init__(self) -> None:
        check_offers(self.objective, Objective)
        check_offers(self.measure, BlockMeasure)

    def take(self, candidates: Array) -> Self:
        return replace(self, objective=self.objective.take(candidates), candidates=candidates)

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        xp = namespace(theta)
        theta = centred(theta, self.centre)

        @np.errstate(all="ignore")  # as in `minimise`; a thread does not inherit it
        def lane(blocks: list[Block]) -> Any:
            total: Any = None
            for block in blocks:
                weight = block.weight
                if weight is not None and weight.ndim == 2 and self.candidates is not None:
                    weight = weight[self.candidates]
                A = self.measure.scores(block.X, theta, self.score_scratch)
                sums, dF, dV = self.objective.block(A, block.runs, weight)
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
