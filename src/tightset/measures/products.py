"""Matrix products of many candidates at once, and the softmax."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Array, Scratch, exp_into, namespace

__all__ = ["centred", "log_sum_exp", "product", "pull", "sum_exp"]

_IN_RANGE = 1e-30, 1e30  # of sums of exponentials, with room to divide by them in float32


def product(X: Array, theta: Array, scratch: Scratch | None = None) -> Array:
    """``X theta_b`` of every candidate by one matrix product; rows lie last in memory, so sums add long vectors."""
    B, m, D = theta.shape
    xp = namespace(theta)
    stacked = xp.reshape(xp.permute_dims(theta, (0, 2, 1)), (B * D, m))
    if sparse.issparse(X):
        return np.moveaxis((X @ stacked.T).reshape(-1, B, D), 0, 1)
    if scratch is None:
        found = stacked @ X.T
    else:
        found = xp.matmul(stacked, X.T, out=scratch.take((B * D, X.shape[0]), theta))
    return xp.permute_dims(xp.reshape(found, (B, D, X.shape[0])), (0, 2, 1))


def pull(X: Array, dU: Array, scratch: Scratch | None = None) -> Array:
    """``X' dU_b`` of every candidate, ``(B, m, D)``."""
    B, k, D = dU.shape
    xp = namespace(dU)
    stacked = xp.reshape(xp.permute_dims(dU, (0, 2, 1)), (B * D, k))
    if sparse.issparse(X):
        found = (X.T @ stacked.T).T
    elif scratch is None:
        found = stacked @ X
    else:
        found = xp.matmul(stacked, X, out=scratch.take((B * D, X.shape[1]), dU))
    return xp.permute_dims(xp.reshape(found, (B, D, X.shape[1])), (0, 2, 1))


def log_sum_exp(Z: Array, e: Array) -> tuple[Array, Array]:
    """``log sum_c exp Z_c (B, k, 1)`` for ``Z (B, k, C)``, and ``total`` with the softmax ``e / total``.

    ``e`` is written, and may be ``Z`` itself, which otherwise is left with its largest entry taken off.
    """
    xp = namespace(Z)
    top = xp.max(Z, axis=-1, keepdims=True)
    Z -= top
    total = xp.sum(exp_into(Z, e), axis=-1, keepdims=True)
    return top + xp.log(total), total


def sum_exp(Z: np.ndarray, e: np.ndarray) -> np.ndarray | None:
    """``total (B, k, 1)`` as in `log_sum_exp` of ``Z`` as it is, in two passes less; None if one is out of range."""
    with np.errstate(over="ignore"):
        total = np.sum(exp_into(Z, e), axis=-1, keepdims=True)
    least, most = _IN_RANGE
    return total if least < total.min() and total.max() < most else None


def centred(theta: Array, centre: Array | None) -> Array:
    """Parameters for rows whose column means ``c`` were not taken off.

    ``theta . (x - c)`` is ``theta . x`` with the intercept lowered by ``theta . c``, so no zero is filled in.
    """
    if centre is None:
        return theta
    theta = namespace(theta).asarray(theta, copy=True)
    theta[:, -1] -= centre @ theta[:, :-1]
    return theta
