"""The score of ordered labels whose sets are intervals that grow from the likeliest label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tightset.compute.graphs import GraphWriter
from tightset.conformal.label_ranks import chunks
from tightset.exceptions import ModelFileError
from tightset.storage.fields import fits, must, shown
from tightset.storage.registry import storable

__all__ = ["OrdinalAPS"]

_BREAKS_TIES = 2.0**-30  # of what the likeliest label lacks: else it would tie with those of all other rows
_PER_STEP = 2.0**-40  # over all steps: a label of probability 0 conforms less than those before it


@storable
@dataclass(frozen=True)
class OrdinalAPS:
    """Adaptive prediction sets of ordered labels: intervals that grow until their probabilities add up to enough.

    The interval of a row begins as its likeliest label, and grows by the likelier of its two neighbours until it holds
    all labels (Lu, Angelopoulos and Pomerantz, 2022). The score of a label is what the interval lacks before the label
    joins it:

        A = 1 - (sum of the p_c in the largest of these intervals that does not hold y),    1 for the likeliest label

    Sets ``{A >= t}`` are such intervals, for every threshold t: they grow while they hold no more than ``1 - t``.

    Parameters
    ----------
    order : sequence of int, optional
        The columns of the probabilities from the lowest label to the highest. By default that of ``ordered`` of
        `tightset.ConformalClassifier`, or else of the columns themselves, which is that of ``classes_``.

    Notes
    -----
    Of two neighbours that are equally likely the one nearer to the likeliest label comes first, then the lower one; of
    several likeliest labels the lowest is the first. Lest the likeliest labels of all rows have the same score, they
    score less by a billionth of what they lack, and the others less by a billionth. A label of probability 0 scores a
    little less than those that joined before it.

    As with `APS`, coverage is more even over rows than with `LAC` whose gaps are filled
    (``ConformalClassifier(ordered=True)``); which is narrower depends on the data. Unlike `APS`, the score does not
    count the probability of the label itself, so that a label of which a classifier is sure scores high. `OrdinalAPS`
    is not exported to ONNX.

    Examples
    --------
    >>> OrdinalAPS()(np.array([[0.1, 0.2, 0.4, 0.3]])).round(3)
    array([[0.1, 0.3, 1. , 0.6]])
    """

    order: Any = None
    randomised: ClassVar[bool] = False
    needs_probabilities: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True
    is_open: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.order is None:
            return
        try:
            given = np.asarray(self.order)
        except ValueError:  # lists of several lengths
            given = np.empty(())
        if given.ndim != 1 or given.dtype.kind not in "iu" or not np.array_equal(np.sort(given), np.arange(len(given))):
            raise ValueError(
                "order must be None, or the numbers of the columns from the lowest label to the highest, each once, "
                f"such as [0, 2, 1]; got {self.order!r}"
            )
        object.__setattr__(self, "order", tuple(given.tolist()))  # so that scores compare, and files hold them

    @classmethod
    def from_stored(cls, parts: dict[str, Any]) -> Self:
        """Return the score that a model file has stored.

        Parameters
        ----------
        parts : dict
            The fields of the file.

        Returns
        -------
        score : OrdinalAPS
        """
        order = parts.get("order")
        right = parts.keys() == {"order"} and fits(order, Sequence[int] | None)
        must(right, f"OrdinalAPS.order is {shown(order)}, which it cannot be")
        try:
            return cls(order)
        except ValueError as error:
            raise ModelFileError(f"OrdinalAPS: {error}") from None

    def along(self, order: np.ndarray | None) -> Self:
        """Return the score with the order that an estimator is given; ValueError if it has another of its own.

        Parameters
        ----------
        order : ndarray of int of shape (n_classes,) or None
            The columns in their order.

        Returns
        -------
        score : OrdinalAPS
        """
        given = None if order is None else tuple(order.tolist())
        if None not in (given, self.order) and given != self.order:
            raise ValueError(
                f"ordered and conformity_score={self!r} have different orders: give the order once, as ordered"
            )
        return type(self)(given) if self.order is None else self

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Self]:  # noqa: ARG002
        return [self]

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        C = P.shape[1]
        order = np.arange(C) if self.order is None else np.array(self.order)
        if len(order) != C:
            raise ValueError(f"order must be of the {C} labels; OrdinalAPS has {len(order)}")
        scores = np.empty(P.shape, dtype=np.float64)
        for rows in chunks(*P.shape):
            scores[rows, order] = _grown(np.asarray(P[rows], dtype=np.float64)[:, order])
        return scores

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        raise NotImplementedError("intervals that grow are not; 'lac' and the others with a formula are, also ordered")


def _grown(p: np.ndarray) -> np.ndarray:
    """Scores ``(n, C)`` of probabilities in the order of their labels: all intervals grow by a label at a time.

    Sums never fall as an interval grows, in floating point neither, so that labels that join later score lower.
    """
    n, C = p.shape
    rows = np.arange(n)
    start = p.argmax(axis=1)
    low, high, label = start.copy(), start.copy(), start
    scores, total = np.empty((n, C)), np.zeros(n)
    beyond = np.full((n, 1), -1.0)  # less likely than any label
    fenced = np.hstack([beyond, p, beyond])
    for step in range(C):
        ties = _BREAKS_TIES * (1 - p[rows, label] if step == 0 else 1.0)
        scores[rows, label] = 1 - (total + ties + step * (_PER_STEP / C))
        total = total + p[rows, label]
        below, above = fenced[rows, low], fenced[rows, high + 2]
        downwards = (below > above) | ((below == above) & (start - low <= high - start))
        label = np.where(downwards, low - 1, high + 1) % C  # of no account after the last step
        low, high = np.where(downwards, low - 1, low), np.where(downwards, high, high + 1)
        low, high = np.maximum(low, 0), np.minimum(high, C - 1)
    return scores
