"""What an objective must implement: a loss of scores, whole or summed over blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from tightset.compute.arrays import Array, Run

__all__ = ["Objective", "SummedObjective"]


class Objective(Protocol):
    """A loss in score space for ``B`` candidates at once; a new one is a file beside this.

    Conventions
    -----------
    A : (B, k, C) scores; y : (k,) labels, sorted; runs : the same as runs of equal labels; weight : (B, k) or None.
    """

    def take(self, candidates: Array) -> Self:
        """The objective of some of the candidates."""
        ...

    def value_and_gradient(self, A: Array, y: np.ndarray, weight: Array | None = None) -> tuple[Array, Array]:
        """Loss ``(B,)`` and ``dL/dA (B, k, C)`` for scores that are all at hand."""
        ...


class SummedObjective(Objective, Protocol):
    """One that is also made of sums over blocks of rows, where not all scores are at hand.

    ``needs_threshold`` says that a block wants to know the threshold over all rows.
    """

    @property
    def needs_threshold(self) -> bool: ...

    def beside(self, others: Sequence[Self]) -> Self:
        """The candidates of this one, and of others of its kind, in one."""
        ...

    def threshold(self, alphas: Array, weight: Array, about: Array | None = None) -> Array:
        """``q (B,)`` from the scores of the own labels ``(B, k)`` and weights of sum 1, if it is needed."""
        ...

    def block(
        self, A: Array, runs: list[Run], weight: Array | None, threshold: Array | None = None
    ) -> tuple[Any, Array | None, Array]:
        """Sums over some of the rows, each ``(B,)``, and two raw derivatives: ``dF (B, k, C)`` or None, ``dV (B, k)``.

        ``threshold (B,)`` is that over all rows. The memory of ``A`` is used up.
        """
        ...

    def combine(self, sums: Any) -> tuple[Array, Array | None, Array]:
        """Loss ``(B,)`` and the weights ``a, b (B,)`` of the derivatives: ``dL/dA_iy = a dF_iy + b dV_i [y = y_i]``."""
        ...
