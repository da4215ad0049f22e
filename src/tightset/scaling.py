"""Columns to mean 0 and deviation 1, with statistics from training rows only, and the constant column."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.arrays import Array

__all__ = ["LinearModel", "Scaling"]

_CHUNK_ROWS = 512


class Scaling(NamedTuple):
    """``z = (x - centre) / scale``, then a 1 for the intercept. A constant column becomes 0, not NaN.

    >>> scaling = Scaling.of(np.array([[1.0, 7.0], [3.0, 7.0]]))
    >>> scaling.apply(np.array([[3.0, 7.0]]))[0]
    array([[1., 0., 1.]])
    """

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, X: Array, weight: np.ndarray | None = None) -> Self:
        w = np.full(X.shape[0], 1 / X.shape[0]) if weight is None else weight / weight.sum()
        centre = np.asarray(w @ X, dtype=np.float64)
        if sparse.issparse(X):
            low, high = (np.asarray(end.todense()).ravel() for end in (X.min(axis=0), X.max(axis=0)))
            present = sparse.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)
            squares = sparse.csr_array(((X.data - centre[X.indices]) ** 2, X.indices, X.indptr), shape=X.shape)
            full = np.bincount(X.indices, minlength=X.shape[1]) == X.shape[0]
            variance = w @ squares + np.where(full, 0, 1 - w @ present) * centre**2
        else:
            low, high = X.min(axis=0), X.max(axis=0)
            variance = w @ np.square(X - centre)
        # What rounding alone can produce in a constant column is no spread.
        spread = high - low > 16 * np.finfo(X.dtype).eps * np.maximum(np.abs(low), np.abs(high))
        scale = np.where(spread, np.sqrt(np.maximum(variance, 0)), 1.0)
        return cls(centre.astype(X.dtype), scale.astype(X.dtype))

    @classmethod
    def none(cls, X: Array) -> Self:
        """Columns as they are."""
        return cls(np.zeros(X.shape[1], dtype=X.dtype), np.ones(X.shape[1], dtype=X.dtype))

    def apply(self, X: Array) -> tuple[Array, np.ndarray | None]:
        """Scaled rows with a constant last column, and what is still to be taken off them.

        Sparse rows are scaled but not centred, which would fill in their zeros; see `Surrogate`.
        """
        if sparse.issparse(X):
            ones = sparse.csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))
            scaled = sparse.csr_array(X).multiply(1 / self.scale)
            return sparse.csr_array(sparse.hstack([scaled, ones], format="csr")), self.centre / self.scale
        Z = np.empty((X.shape[0], X.shape[1] + 1), dtype=X.dtype)
        np.subtract(X, self.centre, out=Z[:, :-1])
        Z[:, :-1] /= self.scale
        Z[:, -1] = 1
        return Z, None


class LinearModel(NamedTuple):
    """A trained linear measure on raw rows: ``A(x, y) = theta_[y] . (z, 1)`` with ``theta (m + 1, C)``."""

    scaling: Scaling
    theta: np.ndarray

    def scores(self, X: Array) -> np.ndarray:
        """Scores ``(n, C)``, in chunks of one shape: a row scores the same to the last bit, alone or among others."""
        n, C = X.shape[0], self.theta.shape[1]
        result = np.empty((n, C), dtype=self.theta.dtype)
        for start in range(0, n, _CHUNK_ROWS):
            part = X[start : start + _CHUNK_ROWS]
            rows = part.shape[0]
            Z, centre = self.scaling.apply(part)
            if centre is None and rows < _CHUNK_ROWS:
                Z = np.concatenate([Z, np.zeros((_CHUNK_ROWS - rows, Z.shape[1]), dtype=Z.dtype)])
            scores = (Z @ self.theta)[:rows]
            result[start : start + rows] = scores if centre is None else scores - centre @ self.theta[:-1]
        if not np.isfinite(result).all():
            raise ValueError("X has values too large to be scored; the scores are infinite or NaN")
        return result
