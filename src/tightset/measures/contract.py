"""What a conformity measure must implement to be trained, judged and stored.

Conventions
-----------
X : (k, m), the last column the constant 1; theta : (B, m, D); A, dA : (B, k, C). Larger is more typical.
"""

from __future__ import annotations

from typing import Any, Protocol

from tightset.compute.arrays import Array, Scratch
from tightset.compute.graphs import GraphWriter

__all__ = ["Measure"]


class Measure(Protocol):
    """``A(x, y; theta)``, with its pull-back; a new one is a file beside this and a line in ``MEASURES``."""

    name: str

    def start(self, T: Array) -> Array:
        """Parameters ``(B, m, D)`` whose scores rank labels as a logistic regression ``T (B, m, C)`` does."""
        ...

    def labels(self, D: int) -> int:
        """The number of labels ``C`` that ``D`` columns of parameters score."""
        ...

    def forward(self, X: Array, theta: Array, scratch: Scratch | None = None) -> tuple[Array, Any]:
        """Scores ``A (B, k, C)``, and what `backward` needs to know of them; changes neither input.

        Both may be in the thread's ``scratch`` memory.
        """
        ...

    def backward(self, X: Array, saved: Any, dA: Array) -> Array:
        """``dL/dtheta (B, m, D)`` for ``dA = dL/dA``; it uses up ``saved``, ``dA`` and the memory of ``A``."""
        ...

    def export(self, graph: GraphWriter, U: str, error: str, C: int) -> tuple[str, str]:
        """Scores ``(n, C)`` from ``U = theta' x (n, D)`` as nodes of a graph, and how far rounding may move them.

        ``error (n, D)`` is how far it may move ``U``.
        """
        ...
