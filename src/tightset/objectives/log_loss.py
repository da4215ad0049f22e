"""The loss of logistic regression, from which training starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from tightset.compute.arrays import Array, Run, namespace, own_label
from tightset.objectives.sums import OfSums

__all__ = ["LogLoss"]


class LogLoss(OfSums):
    """``L = -mean_i alpha_i``: with the softmax measure, the loss of logistic regression."""

    needs_threshold: ClassVar[bool] = False

    def beside(self, others: Sequence[Self]) -> Self:  # noqa: ARG002
        return self

    def threshold(self, alphas: Array, weight: Array, about: Array | None = None) -> Array:  # noqa: ARG002 - there is none
        return namespace(alphas).zeros_like(alphas[:, 0])

    def take(self, candidates: Array) -> Self:  # noqa: ARG002 - nothing of its own
        return self

    def block(
        self,
        A: Array,
        runs: list[Run],
        weight: Array | None,
        threshold: Array | None = None,  # noqa: ARG002
    ) -> tuple[tuple[Array, ...], None, Array]:
        """As of `Profiled`: sums of ``w`` and ``-w alpha``, and the derivative by the own labels' scores."""
        xp = namespace(A)
        own = own_label(A, runs)
        dV = -((1 if weight is None else weight) + xp.zeros_like(own))
        return (-xp.sum(dV, axis=1), xp.sum(dV * own, axis=1)), None, dV

    def combine(self, sums: tuple[Array, ...]) -> tuple[Array, None, Array]:
        weight, loss = sums
        return loss / weight, None, 1 / weight
