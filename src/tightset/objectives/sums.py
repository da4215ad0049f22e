"""Objectives that are made of sums over blocks of rows and need no more of a block than labels and weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from tightset.compute.arrays import Array, Run, label_runs, namespace, own_label
from tightset.objectives.weights import normalised

__all__ = ["OfSums"]


class OfSums(ABC):
    """A `SummedObjective` whose value follows from its `threshold`, `block` and `combine`."""

    needs_threshold: ClassVar[bool]

    @abstractmethod
    def threshold(self, alphas: Array, weight: Array, about: Array | None = None) -> Array: ...

    @abstractmethod
    def block(self, A: Array, runs: list[Run], weight: Array | None, threshold: Array | None = None) -> Any: ...

    @abstractmethod
    def combine(self, sums: Any) -> tuple[Array, Array | None, Array]: ...

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``dL/dA (B, k, C)`` for scores that are all at hand."""
        xp, runs = namespace(A), label_runs(y)
        alphas = own_label(A, runs)
        q = self.threshold(alphas, normalised(weight, alphas)) if self.needs_threshold else None
        sums, dF, dV = self.block(xp.asarray(A, copy=True), runs, weight, q)
        loss, a, b = self.combine(sums)
        dA = xp.zeros_like(A) if a is None else dF * a[:, None, None]
        for label, start, stop in runs:
            dA[:, start:stop, label] += b[:, None] * dV[:, start:stop]
        return loss, dA
