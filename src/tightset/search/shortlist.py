"""Candidates of any origin: judged on rows that their fold held out, the best few chosen and combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.arrays import to_numpy
from tightset.compute.threads import Threads
from tightset.measures import MEASURES
from tightset.measures.products import centred
from tightset.models.ensembles import Member, combine
from tightset.search.judging import Judge
from tightset.search.judging_on_device import can_judge, figures, held_out_on_device
from tightset.search.paths import Candidate

__all__ = [
    "Judged",
    "best_of_row",
    "combined_scores",
    "examine",
    "examined",
    "held_out",
    "held_out_scores",
    "shortlist",
    "table",
]

_MEMBERS = 8
_PER_PATH = 2
_TOLERANCE = 0.03  # members are at most so much worse than the best


class Judged(NamedTuple):
    candidate: Candidate
    criterion: float
    error: float
    threshold: Any  # of the model trained on all rows, or that of each label (C,)
    likelihood: float  # mean held-out score of the own label: the log-likelihood of a logistic regression

    @property
    def member(self) -> Member:
        view = self.candidate.view
        theta = self.candidate.theta[-1].astype(view.columns.scaling.scale.dtype)
        threshold = self.threshold if isinstance(self.threshold, float) else self.threshold.astype(theta.dtype)
        return Member(view.columns, self.candidate.measure, theta, threshold, self.candidate.rule)


class HeldOut(NamedTuple):
    margins: np.ndarray  # (k, C)
    own: np.ndarray  # (k,)
    threshold: Any


def examined(candidates: Sequence[Candidate], fold: np.ndarray, judge: Judge, threads: Threads) -> list[Judged]:
    """Each of them judged, on the device that it was trained on if that can be."""
    if can_judge(judge, candidates):
        found = zip(candidates, figures(candidates, fold, judge), strict=True)
        return [Judged(candidate, *its) for candidate, its in found]
    return list(threads.map(lambda one: examine(one, fold, judge), candidates))


def examine(candidate: Candidate, fold: np.ndarray, judge: Judge) -> Judged:
    held = held_out(candidate, fold, judge)
    curve = judge.curve(held.margins)
    likelihood = float(judge.weight @ held.own)
    return Judged(candidate, judge.criterion(curve), judge.error(curve), held.threshold, likelihood)


def held_out(candidate: Candidate, fold: np.ndarray, judge: Judge) -> HeldOut:
    """Margins ``A - q`` of every row by the model that has not seen it, and ``q`` of the model of all rows.

    Models of different folds differ in scale and offset. Taking off each model's own threshold, on the rows that it
    was trained on, makes their scores comparable. For new rows that threshold is too high, by as much as the
    ``eps``-quantile of the held-out margins says; that is taken off as well.
    """
    if can_judge(judge, [candidate]):
        return HeldOut(*held_out_on_device(candidate, fold, judge))
    margins = np.empty((len(fold), candidate.view.n_classes), dtype=np.float32)
    own = np.empty(len(fold), dtype=np.float32)
    for fit, A in _scores_of_fits(candidate):
        held = fold == fit  # none for the last fit, which has all rows
        q = judge.thresholds(A, ~held)
        margins[held], own[held] = A[held] - q, judge.own(A)[held]
    excess = judge.excess(margins)
    return HeldOut(margins - np.float32(excess), own, q + excess)


def held_out_scores(candidate: Candidate, fold: np.ndarray) -> np.ndarray:
    """Scores ``(k, C)`` of every row by the model that has not seen it, as they are."""
    scores = np.empty((len(fold), candidate.view.n_classes))
    for fit, A in _scores_of_fits(candidate):
        scores[fold == fit] = A[fold == fit]
    return scores


def _scores_of_fits(candidate: Candidate) -> Iterator[tuple[int, np.ndarray]]:
    view = candidate.view
    theta = view.place(centred(candidate.theta, view.centre))
    for fit in range(len(theta)):
        A = to_numpy(MEASURES[candidate.measure].forward(view.X, theta[fit : fit + 1])[0][0])
        yield fit, A if candidate.rule is None else candidate.rule(A)


def best_of_row(judged: list[Judged]) -> Judged:
    """The best of candidates in a row, by a criterion averaged with the neighbours': one lucky figure is not enough."""
    figures = np.pad([one.criterion for one in judged], 1, mode="edge")
    smooth = (figures[:-2] + 2 * figures[1:-1] + figures[2:]) / 4
    return judged[int(np.argmin(smooth))]


def shortlist(judged: Sequence[Judged], members: int = _MEMBERS, per_path: int = _PER_PATH) -> list[Judged]:
    """The best few, not all from one path, and none much worse than the best: combined they err less than any one."""
    ranked = sorted(judged, key=lambda one: one.criterion)
    chosen: list[Judged] = []
    for one in ranked:
        worst = ranked[0].criterion + _TOLERANCE * abs(ranked[0].criterion)
        if one.criterion > worst or len(chosen) == members:
            break
        path = (one.candidate.view.columns.name, one.candidate.path)
        if sum((other.candidate.view.columns.name, other.candidate.path) == path for other in chosen) < per_path:
            chosen.append(one)
    return chosen


def combined_scores(members: list[Judged], fold: np.ndarray, judge: Judge) -> np.ndarray:
    # Held-out scores are computed again where they are needed: those of all candidates would not fit in memory.
    return combine([held_out(one.candidate, fold, judge).margins for one in members])


def table(judged: list[Judged], members: list[Judged], confidence: Any) -> dict[str, np.ndarray]:
    chosen = np.array([any(one is member for member in members) for one in judged])
    candidates = [one.candidate for one in judged]
    return {
        "confidence": np.full(len(judged), float(confidence)),
        "candidate": np.array([one.name for one in candidates]),
        "columns": np.array([one.view.columns.name for one in candidates]),
        "measure": np.array([one.measure for one in candidates]),
        "sharpness": np.array([one.sharpness for one in candidates]),
        "pull": np.array([one.pull for one in candidates]),
        "n_iter": np.array([one.n_iter for one in candidates]),
        "criterion": np.array([one.criterion for one in judged]),
        "error": np.array([one.error for one in judged]),
        "chosen": chosen,
        "weight": chosen / len(members),
    }
