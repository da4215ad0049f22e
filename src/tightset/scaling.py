"""Columns to mean 0 and deviation 1, with statistics from training rows only, and the constant column."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.arrays import Array

__all__ = ["LinearModel", "Scaling"]

_CHUNK = 2**20  # numbers held at once while scoring


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
        square = X.multiply(X) if sparse.issparse(X) else np.square(X - centre)
        variance = np.asarray(w @ square) - (centre**2 if sparse.issparse(X) else 0)
        # What rounding alone can produce in a constant column is no spread.
        spread = variance > (10 * np.finfo(X.dtype).eps * np.abs(centre)) ** 2
        scale = np.where(spread, np.sqrt(np.maximum(variance, 0)), 1.0)
        return cls(centre.astype(X.dtype), scale.astype(X.dtype))

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
        """Scores ``(n, C)``, a chunk of rows at a time."""
        n, C = X.shape[0], self.theta.shape[1]
        result = np.empty((n, C), dtype=self.theta.dtype)
        step = max(1, _CHUNK // (X.shape[1] + 1))
        for start in range(0, n, step):
            Z, centre = self.scaling.apply(X[start : start + step])
            scores = Z @ self.theta
            result[start : start + step] = scores if centre is None else scores - centre @ self.theta[:-1]
        return result
