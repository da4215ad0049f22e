"""Candidates of any origin: judged on rows that their fold held out, the best few chosen and combined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.arrays import to_numpy
from tightset.measures import MEASURES
from tightset.measures.products import centred
from tightset.models.ensembles import Ensemble, Member, Stacked, combine
from tightset.search.judging import Judge
from tightset.search.paths import Candidate
from tightset.storage.registry import storable

__all__ = [
    "FEW_ROWS",
    "Found",
    "Judged",
    "Verdict",
    "best_of_row",
    "combined_scores",
    "examine",
    "held_out",
    "held_out_scores",
    "shortlist",
    "table",
]

FEW_ROWS = 50  # with fewer training rows cross-validation has nothing to say
_MEMBERS = 8
_PER_PATH = 2
# The bootstrap tells chance in rows that are held out, not in those that train. With K folds the variance of both is
# 1 + K / (K - 1) times as large (Nadeau and Bengio), whatever K is nearly.
_OTHER_ROWS = 1.5
_TOLERANCE = 0.03  # members are at most so much worse than the best


@storable
class Verdict(NamedTuple):
    """What cross-validation said: mean inefficiencies on training rows, and the standard error of their difference.

    ``accepted`` is whether the combination is used; if not, ``fallback`` is, by name.
    """

    baseline: float
    ensemble: float
    error: float
    accepted: bool
    unit: str = "labels per set"
    name: str = "tuned logistic regression"  # of the baseline
    fallback: str = "tuned logistic regression"
    shared: float | None = None  # the level whose measure serves all, if sets are nested
    price: float = 0.0  # how much larger its sets are than those of this level's own measure, as a share

    def gain(self) -> tuple[float, float, float]:
        """How much smaller the sets are than the baseline's, as a share, and the ends of its 95 % interval."""
        if not self.baseline:
            return 0.0, 0.0, 0.0
        gain, reach = 1 - self.ensemble / self.baseline, 1.96 * _OTHER_ROWS * self.error / abs(self.baseline)
        return gain, gain - reach, gain + reach


@storable
class Found(NamedTuple):
    """The model of one level, the table of candidates it was made from, and how it compares with the baseline."""

    model: Ensemble | Stacked
    table: dict[str, np.ndarray]
    verdict: Verdict
    sample: tuple[int, int] | None = None  # rows that were searched, of those that were trained on, if not all

    def sentence(self) -> str:
        """What the verdict says, in a few sentences."""
        told = [self._comparison()]
        if self.verdict.shared is not None:
            price = f"{100 * self.verdict.price:.1f} % larger" if self.verdict.price >= 0.0005 else "no larger"
            level = f"{100 * self.verdict.shared:g} %"
            told.append(f"The measure of {level} serves all levels, which makes sets nested and {price}.")
        if self.sample is not None:
            some, of_all = self.sample
            told.append(f"It was chosen on a sample of {some:,} of {of_all:,} training rows, and trained on all.")
        return " ".join(told)

    def _comparison(self) -> str:
        baseline, ours, _, accepted, unit, name, fallback, *_ = self.verdict
        if not np.isfinite(baseline):
            return f"fewer than {FEW_ROWS} training rows are too few to choose a model; {fallback} is used."
        gain, low, high = self.verdict.gain()
        interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
        if not accepted:
            return (
                f"no clear gain, so {fallback} is used unchanged ({name}: {baseline:.3g} {unit} "
                f"on held-out training rows; the best combination was {_smaller(gain)}, {interval})."
            )
        members, tried = int(self.table["chosen"].sum()), len(self.table["chosen"])
        how = f"{_smaller(gain)} ({interval})" if low > 0 else f"not clearly different ({interval} smaller)"
        return (
            f"{ours:.3g} {unit} on held-out training rows, against {baseline:.3g} for {name}: {how}. "
            f"{members} of {tried} candidates {'were combined' if members > 1 else 'was chosen'} on the same rows, "
            f"so this figure is slightly optimistic."
        )


def _smaller(gain: float) -> str:
    return f"{100 * gain:.1f} % smaller" if gain >= 0.0005 else "no smaller"


class Judged(NamedTuple):
    candidate: Candidate
    criterion: float
    error: float
    threshold: float  # of the model trained on all rows
    likelihood: float  # mean held-out score of the own label: the log-likelihood of a logistic regression

    @property
    def member(self) -> Member:
        view = self.candidate.view
        theta = self.candidate.theta[-1].astype(view.columns.scaling.scale.dtype)
        return Member(view.columns, self.candidate.measure, theta, self.threshold)


class HeldOut(NamedTuple):
    margins: np.ndarray  # (k, C)
    own: np.ndarray  # (k,)
    threshold: float


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
    margins = np.empty((len(fold), candidate.view.n_classes), dtype=np.float32)
    own = np.empty(len(fold), dtype=np.float32)
    for fit, A in _scores_of_fits(candidate):
        held = fold == fit  # none for the last fit, which has all rows
        own_now = judge.own(A)
        q = judge.threshold(own_now, ~held)
        margins[held], own[held] = A[held] - q, own_now[held]
    excess = judge.threshold(judge.own(margins))
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
        yield fit, to_numpy(MEASURES[candidate.measure].forward(view.X, theta[fit : fit + 1])[0][0])


def best_of_row(judged: list[Judged]) -> Judged:
    """The best of candidates in a row, by a criterion averaged with the neighbours': one lucky figure is not enough."""
    figures = np.pad([one.criterion for one in judged], 1, mode="edge")
    smooth = (figures[:-2] + 2 * figures[1:-1] + figures[2:]) / 4
    return judged[int(np.argmin(smooth))]


def shortlist(judged: list[Judged]) -> list[Judged]:
    """The best few, not all from one path, and none much worse than the best: combined they err less than any one."""
    ranked = sorted(judged, key=lambda one: one.criterion)
    chosen: list[Judged] = []
    for one in ranked:
        worst = ranked[0].criterion + _TOLERANCE * abs(ranked[0].criterion)
        if one.criterion > worst or len(chosen) == _MEMBERS:
            break
        path = (one.candidate.view.columns.name, one.candidate.path)
        if sum((other.candidate.view.columns.name, other.candidate.path) == path for other in chosen) < _PER_PATH:
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
