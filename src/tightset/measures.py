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

    def pullback(self, X: Array, dA: Array, scratch: Scratch | None = None) -> Array:
        B, k, C = dA.shape
        xp = namespace(dA)
        stacked = xp.reshape(xp.permute_dims(dA, (0, 2, 1)), (B * C, k))
        if sparse.issparse(X):
            product = (X.T @ stacked.T).T
        elif scratch is None:
            product = stacked @ X
        else:
            product = xp.matmul(stacked, X, out=scratch.take((B * C, X.shape[1]), dA))
        return xp.permute_dims(xp.reshape(product, (B, C, X.shape[1])), (0, 2, 1))

    def add_own(self, gradient: Array, X: Array, runs: list[Run], d_own: Array) -> None:
        """Add to ``gradient`` the pull-back of ``d_own (B, k)``, the derivative by the scores of the own labels."""
        for label, start, stop in runs:
            gradient[:, :, label] += d_own[:, start:stop] @ X[start:stop]
