"""The measure of the paper."""

from __future__ import annotations

from tightset.compute.arrays import Array, Run, Scratch
from tightset.compute.graphs import GraphWriter
from tightset.measures.products import product, pull

__all__ = ["Linear"]


class Linear:
    """``A(x, y) = theta_[y] . x``, the measure of the paper.

    All candidates share one matrix product, ``[theta_1 ... theta_B]' X'``, and the derivative tensor of the
    paper's appendix is never built: the gradient is ``X' dA``.

    >>> import numpy as np
    >>> X, theta = np.array([[2.0, 1.0]]), np.array([[[1.0, -1.0], [0.5, 0.0]]])
    >>> Linear().scores(X, theta)
    array([[[ 2.5, -2. ]]])
    """

    name = "linear"

    def start(self, T: Array) -> Array:
        """Parameters whose scores are the logits of a logistic regression ``T (B, m, C)``."""
        return T

    def labels(self, D: int) -> int:
        """The number of labels that ``D`` columns of parameters score."""
        return D

    def scores(self, X: Array, theta: Array, scratch: Scratch | None = None) -> Array:
        """``A (B, k, C)``; in the thread's scratch memory if there is one."""
        return product(X, theta, scratch)

    def pullback(self, X: Array, dA: Array, scratch: Scratch | None = None) -> Array:
        return pull(X, dA, scratch)

    def add_own(self, gradient: Array, X: Array, runs: list[Run], d_own: Array) -> None:
        """Add to ``gradient`` the pull-back of ``d_own (B, k)``, the derivative by the scores of the own labels."""
        for label, start, stop in runs:
            gradient[:, :, label] += d_own[:, start:stop] @ X[start:stop]

    def forward(self, X: Array, theta: Array, scratch: Scratch | None = None) -> tuple[Array, None]:
        return product(X, theta, scratch), None

    def backward(self, X: Array, saved: None, dA: Array) -> Array:  # noqa: ARG002 - nothing to know
        return pull(X, dA)

    def export(self, graph: GraphWriter, U: str, error: str, C: int) -> tuple[str, str]:  # noqa: ARG002
        return U, error
