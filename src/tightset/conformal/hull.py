"""The score for costs other than set size: the slope of the concave hull of covered probability over cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Self

import numpy as np

from tightset.compute.graphs import GraphWriter
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.label_ranks import chunks
from tightset.storage.fields import fits, must, shown
from tightset.storage.registry import storable

__all__ = ["Hull"]

_BREAKS_TIES = 2.0**-30  # of the way down to the next slope, for labels of one piece
_CEILING = 1e30  # of slopes, where costs differ between rows
_FREE, _NEVER = 1e250, 1e300
_PROBED = 10  # labels, so that an f that falls is refused before there are any probabilities


@storable
@dataclass(frozen=True)
class Hull:
    """The score whose sets have the smallest mean ``f(size)``, if probabilities are right.

    With ``p_1 >= ... >= p_C``, the ``k`` likeliest labels cost ``f(k) - f(0)`` and cover ``p_1 + ... + p_k``. `Hull`
    takes the upper concave hull of these points, ``k = 0, ..., C``. The score of a label is the slope of its piece of
    the hull: the probability that is covered per unit of cost.

        A = (p_{i+1} + ... + p_j) / (f(j) - f(i)),    where the piece of the label goes from i to j

    For ``f(w) = w`` this is `LAC`, bit by bit.

    Parameters
    ----------
    f : "size", "log", "excess", "multiple", "M", "OM", float or pair of functions
        The cost of a set by its size (by its false labels for "OM"), as ``inefficiency`` of
        `tightset.SCPOClassifier`. It must not fall.

    Notes
    -----
    Labels of one piece enter the best sets together. To rank them as their probabilities do, their scores are lowered
    by less than a billionth of the distance to the next piece. Labels that tie score alike: the hull has no corner
    between them. Labels that cost nothing, such as the first one for ``"multiple"``, score above all others, in the
    order of their probabilities.

    Where probabilities are badly calibrated, `LAC` may be better. Compare both by ``evaluate(...)["inefficiency"]``.
    `Hull` is not exported to ONNX.

    Examples
    --------
    >>> Hull("multiple")(np.array([[0.5, 0.25, 0.25]])).round(3)
    array([[40.5  ,  0.455,  0.455]])
    >>> Hull(2)(np.array([[0.5, 0.3, 0.2]]))
    array([[0.5 , 0.1 , 0.04]])
    """

    f: Any
    randomised: ClassVar[bool] = False
    needs_probabilities: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True
    is_open: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._costs(_PROBED)

    def stored_fields(self) -> dict[str, Any]:
        return _by_name({"f": self.f})

    @classmethod
    def from_stored(cls, parts: dict[str, Any]) -> Self:
        """Return a score made of the fields of a model file, which are checked.

        Parameters
        ----------
        parts : dict
            The fields.

        Returns
        -------
        score : Hull
        """
        return cls(**_by_name(parts))

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Self]:  # noqa: ARG002
        return [self]

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        return self.scores(P, _BREAKS_TIES)

    def scores(self, P: np.ndarray, apart: float) -> np.ndarray:
        """Compute the scores, those of one piece a given share of the way to the next piece apart.

        Parameters
        ----------
        P : ndarray of shape (n_samples, n_classes)
            Probabilities.
        apart : float
            How far labels of one piece are lowered, as a share of the distance to the next piece.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes)
        """
        f, costs = as_inefficiency(self.f), self._costs(P.shape[1])
        scores = np.empty(P.shape, dtype=np.float64)
        for rows in chunks(*P.shape):
            part = np.asarray(P[rows], dtype=np.float64)
            order = np.argsort(-part, axis=1, kind="stable")
            p = np.take_along_axis(part, order, axis=1)
            found = _scores(p, _of_false_labels(p, costs) if f.observed else costs, apart, self._ceiling(P.shape[1]))
            np.put_along_axis(scores[rows], order, found, axis=1)
        return scores

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        raise NotImplementedError("hulls are not; the scores with a name are, such as 'lac'")

    def slopes_in(self, graph: GraphWriter, ordered: str, C: int) -> str:
        """Write the scores of probabilities that are sorted, the largest first, as nodes of a graph.

        The slope at a label ``k`` is the least over all ``i < k`` of the largest over all ``j >= k`` of the slopes from
        ``i`` to ``j``, corners of the hull. Labels of one piece tie.

        Parameters
        ----------
        graph : GraphWriter
            The graph.
        ordered : str
            The tensor of probabilities, of shape (n_samples, n_classes).
        C : int
            The number of classes.

        Returns
        -------
        slopes : str
            The tensor of scores, in the same order.
        """
        costs, observed = self._costs(C), as_inefficiency(self.f).observed
        p = [graph.columns(ordered, [k]) for k in range(C)]
        cost: list[Any] = [np.full((1, 1), one) for one in costs]
        if observed:
            covered = list(accumulate(p, partial(graph.add, "Add")))
            most = [graph.add("Min", one, 1.0) for one in covered]
            steps = np.diff(costs)
            cost[1:] = [graph.add("Sub", costs[k + 1], graph.add("Mul", most[k], steps[k])) for k in range(C)]
            cost[1:] = list(accumulate(cost[1:], partial(graph.add, "Max")))
        origin = graph.add("Concat", *(graph.add("Add", graph.add("Mul", p[0], 0.0), one) for one in cost[:-1]), axis=1)
        corner = [graph.add("Less", after, own) for own, after in pairwise(p)]
        # No piece begins within labels that tie: such a slope is never the least. None ends there: never the largest.
        begins = [graph.add("Where", one, 0.0, _NEVER) for one in corner]
        never = graph.add("Concat", graph.add("Mul", p[0], 0.0), *begins, axis=1)
        places = np.arange(C)
        slopes: list[str] = []
        total = graph.add("Mul", ordered, 0.0)
        for j in range(C):
            total = graph.add("Add", total, graph.add("Mul", p[j], (places <= j).astype(np.float64)[None]))
            rise = graph.add("Sub", cost[j + 1], origin)
            free = graph.add("Not", graph.add("Greater", rise, 0.0))
            slope = graph.add("Where", free, _FREE, graph.add("Div", total, graph.add("Where", free, 1.0, rise)))
            slopes.append(graph.add("Where", corner[j], slope, -1.0) if j < C - 1 else slope)
        largest = list(accumulate(slopes[::-1], partial(graph.add, "Max")))[::-1]
        for k in range(C):
            later = np.where(places <= k, 0.0, _NEVER)[None]
            slopes[k] = graph.reduce("ReduceMin", graph.add("Add", graph.add("Add", largest[k], later), never))
        found = graph.add("Concat", *slopes, axis=1)
        free = graph.add("Greater", found, _FREE / 2)
        return graph.add("Where", free, graph.add("Add", ordered, self._ceiling(C)), found)

    def _ceiling(self, C: int) -> float:
        """What labels score that cost nothing, less their probability; no slope is larger than half of it."""
        steps = np.diff(self._costs(C))
        return _CEILING if as_inefficiency(self.f).observed else float(2 / steps[steps > 0].min())

    def _costs(self, C: int) -> np.ndarray:
        """``f(k) - f(0)`` for ``k = 0, ..., C``."""
        f = as_inefficiency(self.f)
        costs = np.asarray(f(np.arange(C + 1.0)), dtype=np.float64)
        fine = np.isfinite(costs[1:]) & (costs[1:] >= costs[:-1])
        if not fine.all():
            k = int(np.argmin(fine))
            raise ValueError(
                f"f must be finite and must not fall where sets grow; {f.name!r} is {costs[k]:g} for {k} labels and "
                f"{costs[k + 1]:g} for {k + 1}"
            )
        if costs[-1] == costs[0]:
            raise ValueError(f"f must grow with the size of a set; {f.name!r} is {costs[0]:g} for 0 to {C} labels")
        return np.asarray(costs - costs[0])


def _by_name(parts: dict[str, Any]) -> dict[str, Any]:
    """The field of a model file. Functions are refused: f is called when a score is made, and opening runs no code."""
    f = parts.get("f")
    must(
        parts.keys() == {"f"} and fits(f, str | float),
        f"Hull.f is {shown(f)}; a model file holds only a name or a power there, because opening one never runs code: "
        "use one of those, or pickle the model",
    )
    return parts


def _of_false_labels(p: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """What the likeliest labels are expected to cost ``(n, C + 1)``, if only false ones count.

    With ``P_k = p_1 + ... + p_k`` that is ``P_k f(k - 1) + (1 - P_k) f(k)``.
    """
    covered = np.cumsum(p, axis=1).clip(max=1.0)
    found = np.zeros((len(p), len(costs)))
    found[:, 1:] = covered * costs[:-1] + (1 - covered) * costs[1:]
    return np.maximum.accumulate(found, axis=1)


def _scores(p: np.ndarray, costs: np.ndarray, apart: float, ceiling: float) -> np.ndarray:
    """Scores of probabilities ``p (n, C)``, the largest first; ``costs (C + 1,)``, or of each row ``(n, .)``."""
    n, C = p.shape
    costs = np.broadcast_to(costs, (n, C + 1))
    corner = np.ones((n, C), dtype=bool)  # whether the hull may have a corner after a label
    corner[:, :-1] = p[:, 1:] < p[:, :-1]
    begins = np.ones((n, C), dtype=bool)
    begins[:, 1:] = corner[:, :-1]
    first = np.maximum.accumulate(np.where(begins, np.arange(C), 0), axis=1)  # label of those that tie
    piece, slopes = _pieces(p, costs, corner, first)
    own = np.take_along_axis(slopes, piece, axis=1)
    below = np.take_along_axis(slopes, np.minimum(piece + 1, C), axis=1)
    top = np.ones((n, C), dtype=bool)
    top[:, 1:] = piece[:, 1:] != piece[:, :-1]
    largest = np.take_along_axis(p, np.maximum.accumulate(np.where(top, np.arange(C), 0), axis=1), axis=1)
    free = np.isinf(own)
    with np.errstate(invalid="ignore", divide="ignore"):
        down = np.where(largest > 0, 1 - p / largest, 0) * apart
        return np.asarray(np.where(free, ceiling + p, own - down * np.where(free, 0, own - below)))


def _pieces(p: np.ndarray, costs: np.ndarray, corner: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The piece of each label ``(n, C)``, and the slope of each piece ``(n, C + 1)``, 0 after the last.

    Pool adjacent violators: labels are pieces at first, and one that is not less steep than the piece before it joins
    it. Columns are walked through, all rows at once.
    """
    n, C = p.shape
    covers, cost, slope = np.zeros((3, n, C + 1))
    start = np.zeros((n, C), dtype=np.intp)
    last = np.full(n, -1)
    for k in range(C):
        rows = np.flatnonzero(corner[:, k])
        last[rows] += 1
        at = last[rows]
        tied = k + 1 - first[rows, k]
        start[rows, at] = first[rows, k]
        covers[rows, at] = p[rows, k] * tied
        cost[rows, at] = costs[rows, k + 1] - costs[rows, first[rows, k]]
        with np.errstate(divide="ignore", invalid="ignore"):
            each = cost[rows, at] / tied  # p over this, not their sum over the sum, is p itself where f is the size
            slope[rows, at] = np.where(each > 0, p[rows, k] / each, np.inf)
            while True:
                at = last[rows]
                rows = rows[(at > 0) & (slope[rows, at] >= slope[rows, at - 1])]
                if not len(rows):
                    break
                at = last[rows]
                last[rows] -= 1
                covers[rows, at - 1] += covers[rows, at]
                cost[rows, at - 1] += cost[rows, at]
                joint = covers[rows, at - 1] / cost[rows, at - 1]
                slope[rows, at - 1] = np.where(cost[rows, at - 1] > 0, joint, np.inf)
    kept = np.arange(C + 1) <= last[:, None]
    begins = np.zeros((n, C), dtype=np.intp)
    row, at = np.nonzero(kept[:, :C])
    begins[row, start[row, at]] = 1
    return np.cumsum(begins, axis=1) - 1, np.where(kept, slope, 0.0)
