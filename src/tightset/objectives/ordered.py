"""Objectives of sets that are intervals of ordered labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tightset.compute.arrays import Array
from tightset.compute.label_intervals import hull_of_scores
from tightset.objectives.contract import Objective

__all__ = ["Ordered"]


@dataclass(frozen=True, eq=False)
class Ordered:
    """An objective of ``H``, the hull of the scores in ``order (C,)``: the width of intervals is what is trained.

    See `hull_of_scores`; a derivative by H goes to the score that H took over.
    """

    objective: Objective
    order: np.ndarray

    def take(self, candidates: Array) -> Self:
        return replace(self, objective=self.objective.take(candidates))

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``dL/dA (B, k, C)``."""
        H, hulls = hull_of_scores(A, self.order)
        loss, dH = self.objective.value_and_gradient(H, y, weight)
        return loss, hulls.pulled(dH)
