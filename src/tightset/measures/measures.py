"""Conformity measures ``A(x, y; theta)`` and their pull-backs ``dL/dA -> dL/dtheta``.

Conventions
-----------
X : (k, m), the last column the constant 1; theta : (B, m, D); A, dA : (B, k, C). Larger is more typical.
``D`` is the number of columns of parameters: ``C``, or ``2 C`` where a measure has a second matrix.
`forward` returns the scores and what `backward` needs to know of them; neither changes its inputs, except that
`backward` uses up what `forward` returned and ``dA``.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Array, Run, Scratch, namespace

__all__ = ["MEASURES", "Linear", "Softmax", "TwoMatrix"]


class Linear:
    """``A(x, y) = theta_[y] . x``, the measure of the paper.

    All candidates share one matrix product, ``[theta_1 ... theta_B]' X'``, and the derivative tensor of the
    paper's appendix is never built: the gradient is ``X' dA``.

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
        return _product(X, theta, scratch)

    def pullback(self, X: Array, dA: Array, scratch: Scratch | None = None) -> Array:
        return _pull(X, dA, scratch)

    def add_own(self, gradient: Array, X: Array, runs: list[Run], d_own: Array) -> None:
        """Add to ``gradient`` the pull-back of ``d_own (B, k)``, the derivative by the scores of the own labels."""
        for label, start, stop in runs:
            gradient[:, :, label] += d_own[:, start:stop] @ X[start:stop]

    def forward(self, X: Array, theta: Array) -> tuple[Array, None]:
        return _product(X, theta), None

    def backward(self, X: Array, saved: None, dA: Array) -> Array:  # noqa: ARG002 - nothing to know
        return _pull(X, dA)


class Softmax:
    """``A(x, y) = z_y - log sum_c exp z_c`` with ``z = theta' x``: the log-probability of a logistic regression.

    At the logistic coefficients it is the baseline itself, so descent starts there and can only move on if it pays.
    ``dz = dA - p sum_y dA_y``, where ``p = exp A``.

    >>> A, _ = Softmax().forward(np.array([[1.0]]), np.array([[[0.0, 0.0]]]))
    >>> bool(np.allclose(np.exp(A), 0.5))
    True
    """

    name = "softmax"

    def start(self, T: Array) -> Array:
        return T

    def labels(self, D: int) -> int:
        return D

    def forward(self, X: Array, theta: Array) -> tuple[Array, Array]:
        A = _product(X, theta)
        _to_log_softmax(A)
        return A, A

    def backward(self, X: Array, saved: Array, dA: Array) -> Array:
        xp = namespace(dA)
        p = xp.exp(saved)
        p *= xp.sum(dA, axis=-1, keepdims=True)
        dA -= p
        return _pull(X, dA)


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
        U = _product(X, theta)
        C = U.shape[-1] // 2
        U[..., :C] -= _to_log_softmax(U[..., C:])
        return U[..., :C], U

    def backward(self, X: Array, saved: Array, dA: Array) -> Array:
        xp = namespace(dA)
        C = dA.shape[-1]
        p = xp.exp(saved[..., C:])
        p *= -xp.sum(dA, axis=-1, keepdims=True)
        saved[..., :C] = dA
        saved[..., C:] = p
        return _pull(X, saved)


MEASURES: dict[str, Linear | Softmax | TwoMatrix] = {m.name: m for m in (Linear(), Softmax(), TwoMatrix())}


def _to_log_softmax(Z: Array) -> Array:
    """``Z <- Z - log sum_c exp Z_c`` in place, and the term that was taken off, ``(B, k, 1)``."""
    xp = namespace(Z)
    top = xp.max(Z, axis=-1, keepdims=True)
    Z -= top
    rest = xp.log(xp.sum(xp.exp(Z), axis=-1, keepdims=True))
    Z -= rest
    return top + rest


def _product(X: Array, theta: Array, scratch: Scratch | None = None) -> Array:
    """``X theta_b`` of every candidate by one matrix product; rows lie last in memory, so sums add long vectors."""
    B, m, D = theta.shape
    xp = namespace(theta)
    stacked = xp.reshape(xp.permute_dims(theta, (0, 2, 1)), (B * D, m))
    if sparse.issparse(X):
        return np.moveaxis((X @ stacked.T).reshape(-1, B, D), 0, 1)
    if scratch is None:
        product = stacked @ X.T
    else:
        product = xp.matmul(stacked, X.T, out=scratch.take((B * D, X.shape[0]), theta))
    return xp.permute_dims(xp.reshape(product, (B, D, X.shape[0])), (0, 2, 1))


def _pull(X: Array, dU: Array, scratch: Scratch | None = None) -> Array:
    """``X' dU_b`` of every candidate, ``(B, m, D)``."""
    B, k, D = dU.shape
    xp = namespace(dU)
    stacked = xp.reshape(xp.permute_dims(dU, (0, 2, 1)), (B * D, k))
    if sparse.issparse(X):
        product = (X.T @ stacked.T).T
    elif scratch is None:
        product = stacked @ X
    else:
        product = xp.matmul(stacked, X, out=scratch.take((B * D, X.shape[1]), dU))
    return xp.permute_dims(xp.reshape(product, (B, D, X.shape[1])), (0, 2, 1))
