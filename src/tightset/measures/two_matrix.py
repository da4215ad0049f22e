"""A measure with a separate threshold for every row."""

from __future__ import annotations

import numpy as np

from tightset.compute.arrays import Array, namespace
from tightset.compute.graphs import GraphWriter, log_sum
from tightset.measures.products import product, pull, to_log_softmax

__all__ = ["TwoMatrix"]


class TwoMatrix:
    """``A(x, y) = z_y - log sum_c exp g_c`` with ``z = T' x`` and ``g = F' x``, ``theta = [T F]``.

    The second term is a threshold of its own for every row. With ``F = T`` it is the softmax, from where descent
    starts; with a constant one it is the linear measure; between them lie sets that neither can form.
    ``dz = dA`` and ``dg = -p sum_y dA_y``, where ``p`` is the softmax of ``g``.
    """

    name = "two-matrix"

    def start(self, T: Array) -> Array:
        return namespace(T).concat([T, T], axis=-1)

    def labels(self, D: int) -> int:
        return D // 2

    def forward(self, X: Array, theta: Array) -> tuple[Array, Array]:
        U = product(X, theta)
        C = U.shape[-1] // 2
        U[..., :C] -= to_log_softmax(U[..., C:])
        return U[..., :C], U

    def backward(self, X: Array, saved: Array, dA: Array) -> Array:
        xp = namespace(dA)
        C = dA.shape[-1]
        p = xp.exp(saved[..., C:])
        p *= -xp.sum(dA, axis=-1, keepdims=True)
        saved[..., :C] = dA
        saved[..., C:] = p
        return pull(X, saved)

    def export(self, graph: GraphWriter, U: str, error: str, C: int) -> tuple[str, str]:
        (scores, gate), (own, of_gate) = (
            (graph.columns(one, np.arange(C)), graph.columns(one, np.arange(C, 2 * C))) for one in (U, error)
        )
        found = graph.add("Sub", scores, graph.add("Add", *log_sum(graph, gate)))
        return found, graph.add("Add", own, graph.reduce("ReduceMax", of_gate))
