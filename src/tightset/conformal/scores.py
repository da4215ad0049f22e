"""Scores on probabilities that people know, as conformity measures, so that one predictor serves all.

Conventions
-----------
P : (n, C) probabilities, or any scores where larger means likelier (`LAC`, `Margin` and `TopK` only compare them);
u : (n,) uniform on (0, 1), or None. ``o`` is the rank of a label in its row, 1 for the likeliest; labels that tie share
the better rank, and their probabilities are added together, so no label wins by its position.

The published scores measure non-conformity; here they have a minus. A randomised score has coverage of ``1 - eps``
almost exactly, on average over seeds and calibration rows, and may leave sets empty; the other has at least
that, and larger sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from tightset.compute.contracts import check_offers
from tightset.compute.graphs import GraphWriter, in_order, larger_in_row
from tightset.compute.label_intervals import as_intervals
from tightset.conformal.contract import Score
from tightset.conformal.hull import Hull
from tightset.conformal.label_ranks import by_rank, rank_in
from tightset.conformal.ranks import threshold
from tightset.storage.registry import storable

__all__ = [
    "APS",
    "LAC",
    "RAPS",
    "SAPS",
    "SCORES",
    "Hull",
    "Margin",
    "OwnScore",
    "Score",
    "TopK",
    "as_score",
    "named",
    "settled",
]

_BREAKS_TIES = 2.0**-30  # a label of probability 0 adds nothing to the sum, but conforms less than the one before it


class _Plain:
    """What most scores are: the same at every call, of any scores, with no number to choose."""

    randomised: bool = False
    needs_probabilities: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False

    @property
    def is_open(self) -> bool:
        return False

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Self]:  # noqa: ARG002
        return [self]


@storable
@dataclass(frozen=True)
class LAC(_Plain):
    """``A = p_y``: keep labels above a threshold.

    The smallest sets on average; empty ones where nothing is likely.

    Examples
    --------
    >>> LAC()(np.array([[0.7, 0.3]]))
    array([[0.7, 0.3]])
    """

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        return P

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:  # noqa: ARG002
        return P, [P]


@storable
@dataclass(frozen=True)
class Margin(_Plain):
    """``A = p_y - max_{c != y} p_c``: how far ahead of the others a label is.

    Examples
    --------
    >>> Margin()(np.array([[3.0, 1.0, 0.0]]))
    array([[ 2., -2., -3.]])
    """

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        first, second = np.partition(P, -2, axis=1)[:, [-1, -2]].T[..., None]
        return np.asarray(P - np.where(first > P, first, second))

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:  # noqa: ARG002
        two = in_order(graph, P, 2)
        first, second = graph.columns(two, [0]), graph.columns(two, [1])
        other = graph.add("Where", graph.add("Less", P, first), first, second)
        return graph.add("Sub", P, other), [P, other]


@storable
@dataclass(frozen=True)
class TopK(_Plain):
    """``A = -o``, randomised ``-(o - u)``: sets of the likeliest labels, all of one size but for ties.

    Parameters
    ----------
    randomised : bool, default False
        Randomise the score, for coverage of almost exactly ``1 - eps``.

    Examples
    --------
    >>> TopK()(np.array([[0.1, 0.7, 0.2]]))
    array([[-3., -1., -2.]])
    """

    randomised: bool = False

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:
        return by_rank(P, lambda o, _, u: -o if u is None else u - o, _if(u, self.randomised))

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        return graph.add("Neg", rank_in(graph, in_order(graph, P, C), P, C)), []


@storable
@dataclass(frozen=True)
class APS(_Plain):
    """``A = -(sum of all p_c >= p_y)``, randomised ``+ u p_y``: labels until their probabilities add up to enough.

    Larger sets than `LAC`, but coverage is spread more evenly over easy and hard rows (Romano, Sesia and Candes).

    Parameters
    ----------
    randomised : bool, default False
        Randomise the score, for coverage of almost exactly ``1 - eps``.

    Examples
    --------
    >>> APS()(np.array([[0.5, 0.25, 0.25]])).round(6)
    array([[-0.5, -1. , -1. ]])
    """

    randomised: bool = False
    needs_probabilities: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:
        u = _if(u, self.randomised)
        share = _BREAKS_TIES if u is None else u[:, None] + _BREAKS_TIES
        return np.asarray(by_rank(P, lambda o, total, u: -total) + share * P)  # noqa: ARG005

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        ordered = in_order(graph, P, C)
        last = graph.add("Sub", larger_in_row(graph, ordered, P, C, "GreaterOrEqual"), 1)
        total = graph.add("GatherElements", graph.add("CumSum", ordered, 1), last, axis=1)
        return graph.add("Add", graph.add("Neg", total), graph.add("Mul", P, _BREAKS_TIES)), [total]


@storable
@dataclass(frozen=True)
class RAPS(_Plain):
    """`APS` with a penalty for ranks: ``A = A_APS - penalty max(o - rank, 0)`` (Angelopoulos et al.).

    Parameters
    ----------
    penalty : float or None, default None
        The penalty for each rank beyond ``rank``. None chooses it (0.001 to 0.5) by set size.
    rank : int or None, default None
        The ranks without a penalty. None chooses the one that holds the true label as often as asked for.
    randomised : bool, default False
        Randomise the score, for coverage of almost exactly ``1 - eps``.

    Notes
    -----
    What is None is chosen on a fifth of the calibration rows, which then do not calibrate, for the strictest level that
    they can judge.

    Examples
    --------
    >>> RAPS(penalty=0.1, rank=1)(np.array([[0.5, 0.3, 0.2]])).round(6)
    array([[-0.5, -0.9, -1.2]])
    """

    penalty: float | None = None
    rank: int | None = None
    randomised: bool = False
    needs_probabilities: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_number(self.penalty, "penalty")
        _check_number(self.rank, "rank")
        if self.rank is not None and (isinstance(self.rank, bool) or self.rank != int(self.rank)):
            raise ValueError(f"rank must be None or a whole number; got {self.rank!r}")

    @property
    def is_open(self) -> bool:
        return None in (self.penalty, self.rank)

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Self]:
        rank = self.rank
        if rank is None:
            least = threshold(-by_rank(P, lambda o, *_: o)[np.arange(len(y)), y], confidence)
            rank = int(-least) if np.isfinite(least) else P.shape[1]
        penalties = (0.001, 0.01, 0.1, 0.2, 0.5) if self.penalty is None else (self.penalty,)
        return [replace(self, penalty=one, rank=rank) for one in penalties]

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:
        penalty, allowed = self.penalty, self.rank
        if penalty is None or allowed is None:
            raise ValueError("RAPS needs its penalty and rank as numbers; ConformalClassifier chooses what is None")
        over = by_rank(P, lambda o, *_: np.maximum(o - allowed, 0))
        return APS(self.randomised)(P, u) - penalty * over

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        adaptive, total = APS().export(graph, P, C)
        over = graph.add("Sub", rank_in(graph, in_order(graph, P, C), P, C), float(self.rank or 0))
        return graph.add(
            "Sub", adaptive, graph.add("Mul", graph.add("Max", over, 0.0), float(self.penalty or 0))
        ), total


@storable
@dataclass(frozen=True)
class SAPS(_Plain):
    """Of the probabilities only the largest: ``A = -p_max``, and ``weight`` less for each further rank (Huang et al.).

    Parameters
    ----------
    weight : float or None, default None
        What each further rank costs. None chooses it (0.02 to 1) as in `RAPS`.
    randomised : bool, default False
        Randomise the score, for coverage of almost exactly ``1 - eps``.

    Notes
    -----
    Randomised: ``-u p_max`` for the first label, ``-(p_max + (o - 2 + u) weight)`` for the others; else ``u = 1``.

    Examples
    --------
    >>> SAPS(weight=0.25)(np.array([[0.5, 0.3, 0.2]]))
    array([[-0.5 , -0.75, -1.  ]])
    """

    weight: float | None = None
    randomised: bool = False
    needs_probabilities: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_number(self.weight, "weight")

    @property
    def is_open(self) -> bool:
        return self.weight is None

    def choices(self, P: np.ndarray, y: np.ndarray, confidence: Any) -> Sequence[Self]:  # noqa: ARG002
        return [replace(self, weight=one) for one in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)]

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:
        weight = self.weight
        if weight is None:
            raise ValueError("SAPS needs its weight as a number; ConformalClassifier chooses it where it is None")
        top = P.max(axis=1, keepdims=True)
        share = 1.0 if (u := _if(u, self.randomised)) is None else u[:, None]
        o = by_rank(P, lambda o, *_: o)
        return np.asarray(-np.where(o == 1, share * top, top + (o - 2 + share) * weight))

    def export(self, graph: GraphWriter, P: str, C: int) -> tuple[str, list[str]]:
        ordered = in_order(graph, P, C)
        top, o = graph.columns(ordered, [0]), rank_in(graph, ordered, P, C)
        lower = graph.add("Add", top, graph.add("Mul", graph.add("Sub", o, 1.0), float(self.weight or 0)))
        return graph.add("Neg", lower), [top]


@dataclass(frozen=True)
class OwnScore(_Plain):
    """A function of your own, from an array of probabilities to one of scores; it is neither stored nor exported."""

    function: Callable[[np.ndarray], np.ndarray]

    def __repr__(self) -> str:
        return repr(self.function)

    def __call__(self, P: np.ndarray, u: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        return self.function(P.copy())  # which may work in place, on what belongs to the classifier


SCORES: dict[str, Callable[[], Score]] = {
    "lac": LAC,
    "margin": Margin,
    "aps": APS,
    "raps": RAPS,
    "saps": SAPS,
    "top-k": TopK,
}


def as_score(score: Any) -> Score:
    """The score of a name, a score as it is, or one that is a function of yours."""
    if isinstance(score, str) and score in SCORES:
        return SCORES[score]()
    if isinstance(score, type) or not callable(score):
        raise ValueError(  # noqa: TRY004
            f"conformity_score must be one of {', '.join(map(repr, SCORES))}, a score such as "
            "tightset.scores.RAPS(0.1, 2), or a function of an array of probabilities that returns an array of the "
            f"same shape; got {score!r}"
        )
    if hasattr(score, "is_open"):
        check_offers(score, Score)
        return cast("Score", score)
    return cast("Score", OwnScore(score))


def named(score: Score) -> str:
    """As it is written: the name of a score with its usual settings.

    >>> named(LAC()), named(APS(randomised=True))
    ("'lac'", 'APS(randomised=True)')
    """
    return next((repr(name) for name, usual in SCORES.items() if usual() == score), repr(score))


def settled(
    score: Score, P: np.ndarray, y: np.ndarray, confidence: Any, u: np.ndarray | None, order: np.ndarray | None = None
) -> Score:
    """The score with what was left open chosen: the smallest sets on rows with probabilities ``P`` and labels ``y``."""
    choices = score.choices(P, y, confidence)
    return min(choices, key=lambda one: _mean_size(as_intervals(one(P, u), order), y, confidence))


def _mean_size(scores: np.ndarray, y: np.ndarray, confidence: Any) -> float:
    return float(np.sum(scores >= threshold(scores[np.arange(len(y)), y], confidence), axis=1).mean())


def _if(u: np.ndarray | None, randomised: bool) -> np.ndarray | None:
    if randomised and u is None:
        raise ValueError("a randomised score needs u, one number on (0, 1) for each row")
    return u if randomised else None


def _check_number(value: Any, name: str) -> None:
    if value is not None and not (isinstance(value, (int, float, np.number)) and 0 <= value < np.inf):
        raise ValueError(f"{name} must be None or a number that is not negative; got {value!r}")
