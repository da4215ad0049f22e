"""The score for costs of labels: the probability of a label beside what it is expected to cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tightset.compute.graphs import GraphWriter
from tightset.conformal.costs import cost_matrix, is_labelled, numbers_in
from tightset.conformal.label_ranks import chunks
from tightset.exceptions import ModelFileError
from tightset.storage.fields import fits, must, shown
from tightset.storage.registry import storable

__all__ = ["PerCost", "expected_costs"]


@storable
@dataclass(frozen=True)
class PerCost:
    """The score whose sets have the smallest mean cost, if probabilities are right.

    A label is worth its cost where ``p_y / d_y`` is large, ``d_y`` being what it is expected to cost in the set:

        A = p_y / (p_y + d_y),    d_y = sum_i p_i cost[i, y] / max(cost)

    ``A`` grows with ``p_y / d_y`` and stays between 0 and 1. With one cost for each label, ``d_y`` is that cost; if all
    are equal, the sets are those of `LAC`. A label that costs nothing scores above all others, ``1 + p_y``.

    Parameters
    ----------
    cost : array-like of shape (n_classes,) or (n_classes, n_classes)
        What a label in a set costs, in the order of ``classes_``; or by true label (row) and label in the set (column).

    Notes
    -----
    `tightset.SCPOClassifier` with ``cost`` is trained for the same aim; this is the baseline for it. `PerCost` is not
    exported to ONNX.

    Examples
    --------
    >>> PerCost([1, 4])(np.array([[0.5, 0.5]])).round(3)
    array([[0.667, 0.333]])
    >>> PerCost([[0, 1], [1, 0]])(np.array([[0.75, 0.25]]))
    array([[0.75, 0.25]])
    """

    cost: Any
    randomised: ClassVar[bool] = False
    needs_probabilities: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True
    is_open: ClassVar[bool] = False

    def __post_init__(self) -> None:
        found = np.empty(()) if isinstance(self.cost, Mapping) or is_labelled(self.cost) else numbers_in(self.cost)
        if found.ndim not in (1, 2) or not found.size:
            raise ValueError(
                "cost must be numbers, one for each label in the order of the classes, or a square matrix of them; got "
                f"{self.cost!r}"
            )
        cost_matrix(found, np.arange(found.shape[-1]))
        plain: Any = found.tolist()
        plain = tuple(map(tuple, plain)) if found.ndim == 2 else tuple(plain)
        object.__setattr__(self, "cost", plain)  # so that scores compare, and files hold them

    @classmethod
    def from_stored(cls, parts: dict[str, Any]) -> Self:
        """Return the score that a model file has stored.

        Parameters
        ----------
        parts : dict
            The fields of the file.

        Returns
        -------
        score : PerCost
        """
        cost = parts.get("cost")
        right = fits(cost, Sequence[float] | Sequence[Sequence[float]])
        must(parts.keys() == {"cost"} and right, f"PerCost.cost is {shown(cost)}, which it cannot be")
        try:
            return cls(cost)
        except ValueError as error:
            raise ModelFileError(f"PerCost: {error}") from None

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Self]:  # noqa: ARG002
        return [self]

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        cost = np.asarray(self.cost)
        if cost.shape[-1] != P.shape[1]:
            raise ValueError(f"cost must be for the {P.shape[1]} labels; PerCost has {cost.shape[-1]}")
        cost = cost / cost.max()
        scores = np.empty(P.shape, dtype=np.float64)
        for rows in chunks(*P.shape):
            p = np.asarray(P[rows], dtype=np.float64)
            expected = np.broadcast_to(cost, p.shape) if cost.ndim == 1 else expected_costs(p, cost)
            free = expected == 0
            scores[rows] = np.where(free, 1 + p, p / np.where(free, 1, p + expected))
        return scores

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        raise NotImplementedError("costs are not; the scores with a name are, such as 'lac'")


def expected_costs(p: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """``p @ cost`` ``(n, C)``, added up in one order: a product of matrices may round a row otherwise among others."""
    found = np.zeros_like(p)
    for i in range(len(cost)):
        found += p[:, [i]] * cost[i]
    return found
