"""Trained networks of fully connected layers, as arrays: they score rows, and are stored, without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tightset.models.columns import Scaling
from tightset.models.contract import Block, Shared
from tightset.storage.registry import storable

__all__ = ["Network", "Perceptron"]


@storable
@dataclass(frozen=True, eq=False)
class Perceptron:
    """Layers ``x W + b`` with rectifiers between them, in float32: rows ``(n, p)`` to numbers ``(n, L C)``.

    Rows are scaled first, or if they are logits (``scaling`` is None) made log-probabilities.
    """

    scaling: Scaling | None
    weights: list[np.ndarray]
    biases: list[np.ndarray]

    def scores(self, X: Any) -> np.ndarray:
        if self.scaling is None:
            Z = _log_softmax(np.asarray(X, dtype=np.float32))
        else:
            Z = ((X - self.scaling.centre) / self.scaling.scale).astype(np.float32)
        for at, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            Z = (np.maximum(Z, 0) if at else Z) @ W + b
        return np.asarray(Z)


@storable
@dataclass(frozen=True, eq=False)
class Network:
    """The measure of one level: ``A = log of mean over members of softmax(Z_level) - shift``, ``(n, C)``.

    Members give numbers ``Z (n, L C)`` for all levels, each of which has its own columns. Where one member is sure that
    a label is wrong and another is not, a mean of probabilities leaves it a chance, and one of their logarithms none.

    >>> layers = Perceptron(Scaling.none(np.zeros((1, 2))), [np.eye(2, dtype=np.float32)], [np.zeros(2, np.float32)])
    >>> Network([layers], 0, np.zeros(2)).scores(np.array([[0.0, 0.0]]), Shared(np.arange(2))).round(2)
    array([[-0.69, -0.69]], dtype=float32)
    """

    members: Sequence[Block]
    level: int
    shift: np.ndarray

    def scores(self, X: Any, shared: Shared) -> np.ndarray:
        C = len(self.shift)
        own = slice(self.level * C, (self.level + 1) * C)
        with np.errstate(over="ignore", invalid="ignore"):  # NaN is looked for in the end
            first, *others = (_log_softmax(shared.once(member, X)[:, own]) for member in self.members)
            A = reduce(np.logaddexp, others, first) - np.log(np.float32(len(self.members)))
        lost = np.isnan(A).any(axis=1)
        if lost.any():
            raise ValueError(
                f"the network gives NaN, first in row {int(lost.argmax())} of X: its numbers may be too large for "
                "float32, or the network divides by 0"
            )
        return np.asarray(A - self.shift.astype(np.float32), dtype=np.float32)


def _log_softmax(Z: np.ndarray) -> np.ndarray:
    Z = Z - Z.max(axis=1, keepdims=True)
    return np.asarray(Z - np.log(np.exp(Z).sum(axis=1, keepdims=True)))
