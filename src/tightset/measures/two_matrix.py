"""A measure with a separate threshold for every row."""

from __future__ import annotations

import numpy as np

from tightset.compute.arrays import Array, Scratch, namespace
from tightset.compute.graphs import GraphWriter, log_sum
from tightset.measures.products import log_sum_exp, product, pull

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

    def forward(self, X: Array, theta: Array, scratch: Scratch | None = None) -> tuple[Array, tuple[Array, Array]]:
        U = product(X, theta, scratch)
        C = U.shape[-1] // 2
        A, F = U[..., :C], U[..., C:]
        of_row, total = log_sum_exp(F, F)
        A -= of_row
        return A, (U, total)

    def backward(self, X: Array, saved: tuple[Array, Array], dA: Array) -> Array:
        U, total = saved
        C = dA.shape[-1]
        U[..., C:] *= namespace(dA).sum(dA, axis=-1, keepdims=True) / -total
        U[..., :C] = dA
        return pull(X, U)

    def export(self, graph: GraphWriter, U: str, error: str, C: int) -> tuple[str, str]:
        (scores, gate), (own, of_gate) = (
            (graph.columns(one, np.arange(C)), graph.columns(one, np.arange(C, 2 * C))) for one in (U, error)
        )
        found = graph.add("Sub", scores, graph.add("Add", *log_sum(graph, gate)))
        return found, graph.add("Add", own, graph.reduce("ReduceMax", of_gate))
