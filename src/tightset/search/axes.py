"""Principal axes of the training rows, along which descent is well conditioned."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from tightset.compute.arrays import Array, namespace, to_numpy

__all__ = ["Axes"]

_WIDEST = 1000  # columns; finding axes takes their third power
_CURVATURE = 0.1  # of a loss of scores, about; twice and half as much are alike


class Axes(NamedTuple):
    """Orthogonal ``vectors (m, m)`` with ``Z' W Z = V diag(spread) V'`` for rows ``Z (k, m)``; the constant stays.

    A loss of the scores ``Z theta`` has about the curvature ``c spread_j`` along axis ``j``, for every label, and a
    pull adds its own, in all directions alike. So with steps of ``1 / sqrt(c spread_j + pull)`` the loss curves about
    as much in every direction, however much columns have in common, as ramps of one column have.

    >>> Z = np.array([[1.0, 1.1, 1.0], [-1.0, -0.9, 1.0], [1.0, 0.9, 1.0], [-1.0, -1.1, 1.0]])
    >>> Axes.of(Z, np.ones(4)).spread.round(3)
    array([0.005, 2.005, 1.   ])
    """

    vectors: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, Z: Array, weight: np.ndarray) -> Self | None:
        """For rows with a constant last column; None where there are too many columns."""
        m = Z.shape[1]
        if m > _WIDEST:
            return None
        xp = namespace(Z)
        columns = xp.astype(Z[:, :-1], xp.float64, copy=False)
        share = xp.asarray(weight / weight.sum(), device=Z.device)
        vectors, spread = np.eye(m), np.ones(m)
        found, vectors[:-1, :-1] = map(to_numpy, xp.linalg.eigh(columns.T @ (columns * share[:, None])))
        spread[:-1] = np.maximum(found, 0)
        return cls(vectors, spread)

    def into(self, theta: np.ndarray) -> np.ndarray:
        """Parameters ``(..., m, D)`` of columns as those of axes."""
        return np.asarray(self.vectors.T @ theta)

    def back(self, theta: np.ndarray) -> np.ndarray:
        """Parameters of axes as those of columns."""
        return np.asarray(self.vectors @ theta)

    def steps(self, pull: Array) -> np.ndarray:
        """How far to go along each axis, ``(..., m, 1)`` as ``pull``."""
        return np.asarray(1 / np.sqrt(_CURVATURE * self.spread[:, None] + np.maximum(pull, 1e-6)))
