"""Conformity measures ``A(x, y; theta)`` and their pull-backs ``dL/dA -> dL/dtheta``.

Conventions
-----------
X : (k, m), the last column the constant 1; theta : (B, m, C); A, dA : (B, k, C). Larger is more typical.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tightset.arrays import Array, Run, Scratch, namespace

__all__ = ["Linear"]


class Linear:
    """``A(x, y) = theta_[y] . x``, the measure of the paper.

    All candidates share one matrix product, ``[theta_1 ... theta_B]' X'``, and the derivative tensor of the
    paper's appendix is never built: the gradient is ``X' dA``.

    >>> X, theta = np.array([[2.0, 1.0]]), np.array([[[1.0, -1.0], [0.5, 0.0]]])
    >>> Linear().scores(X, theta)
    array([[[ 2.5, -2. ]]])
    """

    def n_parameters(self, m: int, C: int) -> tuple[int, int]:
        """Shape of one candidate's parameters."""
        return m, C

    def scores(self, X: Array, theta: Array, scratch: Scratch | None = None) -> Array:
        """``A (B, k, C)``; in the thread's scratch memory if there is one."""
        B, m, C = theta.shape
        xp = namespace(theta)
        stacked = xp.reshape(xp.permute_dims(theta, (0, 2, 1)), (B * C, m))
        if sparse.issparse(X):
            return np.moveaxis((X @ stacked.T).reshape(-1, B, C), 0, 1)
        if scratch is None:
            product = stacked @ X.T
        else:
            product = xp.matmul(stacked, X.T, out=scratch.take((B * C, X.shape[0]), theta))
        return xp.permute_dims(xp.reshape(product, (B, C, X.shape[0])), (0, 2, 1))

    def pullback(self, X: Array, dA: Array) -> Array:
        B, k, C = dA.shape
        xp = namespace(dA)
        stacked = xp.reshape(xp.permute_dims(dA, (0, 2, 1)), (B * C, k))
        product = (X.T @ stacked.T).T if sparse.issparse(X) else stacked @ X
        return xp.permute_dims(xp.reshape(product, (B, C, X.shape[1])), (0, 2, 1))

    def pullback_own(self, X: Array, runs: list[Run], d_own: Array, C: int) -> Array:
        """Pull back a derivative ``d_own (B, k)`` that is with respect to the scores of the own labels only."""
        xp = namespace(d_own)
        gradient = xp.zeros((d_own.shape[0], X.shape[1], C), dtype=d_own.dtype, device=d_own.device)
        for label, start, stop in runs:
            gradient[:, :, label] += d_own[:, start:stop] @ X[start:stop]
        return gradient
