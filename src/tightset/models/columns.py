"""Columns as the measures see them: scaled, optionally unfolded into piecewise linear functions, with a constant.

All statistics come from training rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Array
from tightset.storage.registry import storable

__all__ = ["Columns", "Knots", "Scaling", "as_numbers"]

_PIECES = 10  # linear pieces a column; on the sets of the paper 6 to 12 are alike
_LARGEST = 2**22  # entries of an unfolded array of training rows, beyond which fewer pieces are made
_ROWS_FOR_KNOTS = 10_000


def as_numbers(X: Any) -> Any:
    """Rows as a dense or CSR array of finite floats, or None if that is not what they are.

    >>> as_numbers(np.array([[1, 2]])), as_numbers([["a", "b"]]), as_numbers([[1.0, np.nan]])
    (array([[1., 2.]]), None, None)
    """
    if sparse.issparse(X):
        X = sparse.csr_array(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
        return X if np.isfinite(X.data).all() else None
    try:
        X = np.asarray(X)
        X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    except (TypeError, ValueError):
        return None
    return X if X.ndim == 2 and np.isfinite(X).all() else None


@storable
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
            deviation = np.sqrt(np.maximum(w @ squares + np.where(full, 0, 1 - w @ present) * centre**2, 0))
        else:
            low, high = (end.astype(np.float64) for end in (X.min(axis=0), X.max(axis=0)))
            # Squares of very large or small numbers are not numbers any more.
            reach = np.where(high > low, np.maximum(np.abs(high - centre), np.abs(low - centre)), 1.0)
            deviation = np.sqrt(w @ np.square((X - centre) / reach)) * reach
            # A column may vary only in rows of no weight; nothing may become larger than float32 can hold.
            deviation = np.maximum(deviation, 1e-6 * reach)
        # What rounding alone can produce in a constant column is no spread.
        with np.errstate(over="ignore"):
            spread = high - low > 16 * np.finfo(X.dtype).eps * np.maximum(np.abs(low), np.abs(high))
        scale = np.where(spread, deviation, 1.0)
        return cls(centre.astype(X.dtype), scale.astype(X.dtype))

    @classmethod
    def none(cls, X: Array) -> Self:
        """Columns as they are."""
        return cls(np.zeros(X.shape[1], dtype=X.dtype), np.ones(X.shape[1], dtype=X.dtype))

    def apply(self, X: Array) -> tuple[Array, np.ndarray | None]:
        """Scaled rows with a constant last column, and what is still to be taken off them.

        Sparse rows are scaled but not centred, which would fill in their zeros; see `Training`.
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


@storable
class Knots(NamedTuple):
    """Ramps ``r_j(x) = min(max(x_c(j) - a_j, 0), b_j)`` between quantiles of a column.

    A linear function of ``x`` and its ramps is linear between the knots, and free to bend at each. Ramps are bounded,
    so an outlier weighs no more than the last knot.

    >>> Knots(np.array([0, 0]), np.array([0.0, 1.0]), np.array([1.0, 2.0])).ramps(np.array([[2.5]]))
    array([[1. , 1.5]])
    """

    column: np.ndarray
    start: np.ndarray
    width: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, weight: np.ndarray | None = None, pieces: int = _PIECES) -> Self | None:
        """Knots at evenly spaced quantiles of each column that has more than two values; None if there are none."""
        k, p = X.shape
        some = slice(None, None, -(-k // _ROWS_FOR_KNOTS))
        part, w = X[some], np.ones(k)[some] if weight is None else weight[some]
        bends = [j for j in range(p) if len(np.unique(part[:, j])) > 2]
        if not bends:
            return None
        pieces = min(pieces, (_LARGEST // k - p) // len(bends))
        if pieces < 3:
            return None
        at = (np.arange(pieces + 1) + 0.5) / (pieces + 1) * w.sum()
        column, start, width = [], [], []
        for j in bends:
            order = np.argsort(part[:, j], kind="stable")
            x = part[order, j]
            knots = np.unique(x[np.searchsorted(np.cumsum(w[order]), at).clip(max=len(x) - 1)])
            gaps = np.diff(knots)
            real = gaps > 1e-6 * (knots[-1] - knots[0])
            column += [j] * int(real.sum())
            start += list(knots[:-1][real])
            width += list(gaps[real])
        if not column:
            return None
        return cls(np.array(column), np.array(start, dtype=X.dtype), np.array(width, dtype=X.dtype))

    def ramps(self, X: np.ndarray) -> np.ndarray:
        result = X[:, self.column]
        result -= self.start
        return np.clip(result, 0, self.width, out=result)


@storable
class Columns(NamedTuple):
    """From raw rows ``(n, p)`` to what a measure multiplies with its parameters, ``(n, m)``."""

    scaling: Scaling
    knots: Knots | None = None
    at: np.ndarray | None = None  # which columns of the rows; all by default
    dense: bool = False  # they are full, even if the rows are sparse
    name: str = "plain"

    @classmethod
    def plain(cls, X: Array, weight: np.ndarray | None = None, *, standardise: bool = True) -> Self:
        return cls(Scaling.of(X, weight) if standardise else Scaling.none(X))

    @classmethod
    def unfolded(cls, X: Array, weight: np.ndarray | None = None, *, standardise: bool = True) -> Self | None:
        """Each column and its ramps; None where there is nothing to unfold (two values a column) or it is too large."""
        knots = None if sparse.issparse(X) else Knots.of(X, weight)
        if knots is None:
            return None
        wide = np.hstack([X, knots.ramps(X)])
        return cls(Scaling.of(wide, weight) if standardise else Scaling.none(wide), knots, name="unfolded")

    @classmethod
    def of_scores(cls, scores: np.ndarray, at: np.ndarray, name: str) -> Self:
        """Scores ``(k, C)`` as they are; ``at`` is where they lie in the rows."""
        return cls(Scaling.none(scores), at=at, dense=True, name=name)

    def after(self, scores: Self) -> Self:
        """These columns, plain ones that come first in the rows, after others that are scores."""
        scaling = Scaling(*(np.concatenate(both) for both in zip(scores.scaling, self.scaling, strict=True)))
        at = np.append(np.asarray(scores.at), np.arange(len(self.scaling.scale)))
        return self._replace(scaling=scaling, at=at, name=f"{scores.name} and {self.name}")

    def apply(self, X: Array) -> tuple[Array, np.ndarray | None]:
        if self.at is not None:
            X = X[:, self.at]
            X = X.toarray() if self.dense and sparse.issparse(X) else X
        if self.knots is not None and sparse.issparse(X):
            X = X.toarray()  # a chunk of rows that are sparse, though those of training were not
        return self.scaling.apply(X if self.knots is None else np.hstack([X, self.knots.ramps(X)]))
