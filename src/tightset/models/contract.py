"""What a trained model must implement: scores of raw rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tightset.compute.identity import Same

__all__ = ["Block", "Model", "Shared"]


class Block(Protocol):
    """Log-probabilities, or other scores, of raw rows: ``(n, C)``."""

    def scores(self, X: Any) -> np.ndarray: ...


class Model(Protocol):
    """A conformity measure, trained: scores ``(n, C)`` of raw rows, none NaN, the larger the more typical the label.

    Models of several levels that score the same rows are given the same ``shared``.
    """

    def scores(self, X: Any, shared: Shared) -> np.ndarray: ...


class Shared:
    """What models that score the same rows share.

    ``positions (n,)`` tell rows apart that are equal, and ``seed`` is what random numbers of a score hang on.
    """

    def __init__(self, classes: np.ndarray, positions: Sequence[int] | np.ndarray = (), seed: int = 0) -> None:
        self.classes = classes
        self.positions = positions
        self.seed = seed
        self._scored: dict[Same, np.ndarray] = {}

    def once(self, block: Block, X: Any) -> np.ndarray:
        """The scores of a block, computed for the first model that asks."""
        if Same(block) not in self._scored:
            self._scored[Same(block)] = block.scores(X)
        return self._scored[Same(block)]
