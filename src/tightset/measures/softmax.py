"""Log-probabilities of a logistic regression as a measure."""

from __future__ import annotations

from tightset.compute.arrays import Array, Scratch, namespace
from tightset.compute.graphs import GraphWriter, log_sum
from tightset.measures.products import log_sum_exp, product, pull, sum_exp

__all__ = ["Softmax"]


class Softmax:
    """``A(x, y) = z_y - log sum_c exp z_c`` with ``z = theta' x``: the log-probability of a logistic regression.

    At the logistic coefficients it is the baseline itself, so descent starts there and can only move on if it pays.
    ``dz = dA - p sum_y dA_y``, where ``p = exp A``.

    >>> import numpy as np
    >>> A, _ = Softmax().forward(np.array([[1.0]]), np.array([[[0.0, 0.0]]]))
    >>> bool(np.allclose(np.exp(A), 0.5))
    True
    """

    name = "softmax"

    def start(self, T: Array) -> Array:
        return T

    def labels(self, D: int) -> int:
        return D

    def forward(self, X: Array, theta: Array, scratch: Scratch | None = None) -> tuple[Array, tuple[Array, Array]]:
        A, xp = product(X, theta, scratch), namespace(theta)
        B, k, C = A.shape
        memory = xp.empty_like(A) if scratch is None else xp.permute_dims(scratch.take((B, C, k), A), (0, 2, 1))
        total = None if scratch is None else sum_exp(A, memory)  # where bits do not matter: in training
        if total is None:
            _, total = log_sum_exp(A, memory)
        A -= xp.log(total)
        return A, (memory, total)

    def backward(self, X: Array, saved: tuple[Array, Array], dA: Array) -> Array:
        e, total = saved
        e *= namespace(dA).sum(dA, axis=-1, keepdims=True) / total
        dA -= e
        return pull(X, dA)

    def export(self, graph: GraphWriter, U: str, error: str, C: int) -> tuple[str, str]:  # noqa: ARG002
        top, rest = log_sum(graph, U)
        scores = graph.add("Sub", graph.add("Sub", U, top), rest)
        return scores, graph.add("Add", error, graph.reduce("ReduceMax", error))
