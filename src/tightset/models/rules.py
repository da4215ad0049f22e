"""The best rule for known probabilities, on the log-probabilities of a measure, where it is not their own ranking."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tightset.compute.graphs import GraphWriter, in_order, log_sum
from tightset.conformal.hull import Hull
from tightset.conformal.label_ranks import rank_in
from tightset.conformal.priced import expected_costs
from tightset.objectives.terms import FREE
from tightset.storage.registry import storable

__all__ = ["ByExpectedCost", "ByHull", "Rule", "hull_rule"]

_APART = 2.0**-10  # by what share the least likely label of a piece is lowered, so that float32 tells them apart
_LEAST = 1e-30


@storable
class ByHull(NamedTuple):
    """``log A`` of `Hull`: the best rule where the cost of a set is not linear in its size.

    >>> ByHull(Hull(2))(np.log([[0.5, 0.3, 0.2]])).round(2)  # p over 1, 3 and 5
    array([[-0.69, -2.3 , -3.22]])
    """

    hull: Hull

    @property
    def name(self) -> str:
        return f"scores.{self.hull!r}"

    def __call__(self, A: np.ndarray) -> np.ndarray:
        """Scores ``(k, C)`` of log-probabilities, or of other scores as if they were."""
        p = np.exp(_normalised(A))
        lower = 1 - _APART * (1 - p / p.max(axis=1, keepdims=True))
        return np.asarray(np.log(np.maximum(self.hull.scores(p, 0.0) * lower, _LEAST)), dtype=A.dtype)

    def export(self, graph: GraphWriter, scores: str, error: str, C: int) -> tuple[str, str]:
        """The same as nodes of a graph, with what rounding may do to them."""
        p = _probabilities(graph, scores)
        ordered = in_order(graph, p, C)
        place = graph.cast(graph.add("Sub", rank_in(graph, ordered, p, C), 1.0), "INT64")
        slopes = graph.add("GatherElements", self.hull.slopes_in(graph, ordered, C), place, axis=1)
        share = graph.add("Div", p, graph.reduce("ReduceMax", p))
        lower = graph.add("Sub", 1.0, graph.add("Mul", graph.add("Sub", 1.0, share), _APART))
        found = graph.add("Log", graph.add("Max", graph.add("Mul", slopes, lower), _LEAST))
        return found, _with_others(graph, error)


@storable
class ByExpectedCost(NamedTuple):
    """``log p_y - log d_y + offset_y``, ``d_y = sum_i p_i cost_iy``: the best rule where costs hang on the true label.

    It is `PerCost`, on the scale of log-probabilities that are compared with ``q + offset``, where ``offset (C,)`` is
    the logarithm of the mean cost. With one cost for each label nothing changes.

    >>> rule = ByExpectedCost(np.array([[1.0, 4.0], [4.0, 4.0]]), np.log([2.5, 4.0]))
    >>> rule(np.log([[0.5, 0.5], [0.9, 0.1]])).round(2)
    array([[-0.69, -0.69],
           [ 0.55, -2.3 ]])
    """

    cost: np.ndarray
    offset: np.ndarray

    @property
    def name(self) -> str:
        return "expected costs"

    def __call__(self, A: np.ndarray) -> np.ndarray:
        """Scores ``(k, C)`` of log-probabilities, or of other scores as if they were."""
        p = np.exp(_normalised(A))
        expected = np.maximum(expected_costs(p, self.cost), self._least)
        return np.asarray(A - np.log(expected) + self.offset, dtype=A.dtype)

    @property
    def _least(self) -> float:
        return float(FREE * np.exp(self.offset.max()))

    def export(self, graph: GraphWriter, scores: str, error: str, C: int) -> tuple[str, str]:  # noqa: ARG002
        """The same as nodes of a graph, with what rounding may do to them."""
        p = _probabilities(graph, scores)
        expected = graph.add("Max", graph.add("MatMul", p, self.cost.astype(np.float64)), self._least)
        found = graph.add("Add", graph.add("Sub", scores, graph.add("Log", expected)), self.offset.astype(np.float64))
        return found, _with_others(graph, error)


Rule = ByHull | ByExpectedCost


def hull_rule(f: Any, C: int) -> ByHull | None:
    """The rule for an inefficiency, as users give it, of up to ``C`` labels; None if it falls, or never grows."""
    try:
        hull = Hull(float(f) if isinstance(f, (int, np.number)) else f)
        hull(np.full((1, C), 1 / C))
    except ValueError:
        return None
    return ByHull(hull)


def _probabilities(graph: GraphWriter, scores: str) -> str:
    top, rest = log_sum(graph, scores)
    return graph.add("Exp", graph.add("Sub", graph.add("Sub", scores, top), rest))


def _with_others(graph: GraphWriter, error: str) -> str:
    """How far a score may move. If all move by ``e``, probabilities, and what adds them up, move by ``exp 2e``."""
    return graph.add("Add", error, graph.add("Mul", graph.reduce("ReduceMax", error), 4.0))


def _normalised(A: np.ndarray) -> np.ndarray:
    A = np.asarray(A, dtype=np.float64)
    A = A - A.max(axis=1, keepdims=True)
    return np.asarray(A - np.log(np.exp(A).sum(axis=1, keepdims=True)))
