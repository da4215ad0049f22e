"""What a conformity score must implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tightset.compute.graphs import GraphWriter

__all__ = ["Score"]


class Score(Protocol):
    """What a conformity score must implement; a new one is a class in `scores`, and a line in ``SCORES``.

    ``randomised`` says that a call needs ``u``, ``needs_probabilities`` that rows must add up to 1, ``is_open`` that
    numbers are left to choose, and ``adds_up`` that scores are sums, which other orders of adding round otherwise.
    """

    @property
    def randomised(self) -> bool: ...

    @property
    def needs_probabilities(self) -> bool: ...

    @property
    def adds_up(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:
        """Scores ``(n, C)`` of probabilities ``P (n, C)``."""
        ...

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Score]:
        """The score with numbers in place of what is open, to choose from on rows ``P`` with labels ``y``."""
        ...

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        """Scores as nodes of a graph, and the probabilities, or sums of them, that each is made of."""
        ...
