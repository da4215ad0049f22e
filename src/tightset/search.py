"""The default search: candidates from paths, judged on training rows, the best combined, never worse than the baseline.

1. Logistic regressions, on plain and on unfolded columns, by cross-validation.
2. From the best of them, paths of measures trained for small sets (`paths`).
3. Every step of every path is judged on rows that its fold held out (`choice`).
4. The best few are combined (`models.Ensemble`).
5. Unless cross-validation says that the combination is smaller than plain logistic regression by more than a standard
   error, plain logistic regression it is. Likelihood has a say, since every row contributes to it and not only those
   near the threshold: without signal nothing is believed, and any gain where unfolded columns are clearly likelier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.arrays import to_numpy
from tightset.choice import Judge, fold_of_rows
from tightset.columns import Columns
from tightset.icp import significance
from tightset.inefficiency import SIZE, Inefficiency
from tightset.measures import MEASURES
from tightset.models import Ensemble, Member, combine
from tightset.paths import Candidate, Search, View, logistic_candidates, path_candidates
from tightset.progress import Progress
from tightset.surrogate import centred
from tightset.threads import Threads

__all__ = ["Found", "Verdict", "path_search"]

_MEMBERS = 8
_PER_PATH = 2
_TOLERANCE = 0.03  # members are at most so much worse than the best
_DOUBT = 1.0  # standard errors that the gain must exceed
_CLEAR = 2.0  # standard errors by which a likelihood is clearly better


class Verdict(NamedTuple):
    """What cross-validation said: mean inefficiencies on training rows, and the standard error of their difference."""

    baseline: float
    ensemble: float
    error: float
    accepted: bool
    unit: str = "labels a set"


class Found(NamedTuple):
    """The model of one level, the table of candidates it was made from, and how it compares with the baseline."""

    model: Ensemble
    table: dict[str, np.ndarray]
    verdict: Verdict


class _Judged(NamedTuple):
    candidate: Candidate
    criterion: float
    error: float
    threshold: float  # of the model trained on all rows
    likelihood: float  # mean held-out score of the own label: the log-likelihood of a logistic regression


class _HeldOut(NamedTuple):
    margins: np.ndarray  # (k, C)
    own: np.ndarray  # (k,)
    threshold: float


def path_search(
    X: Any,
    y: np.ndarray,
    n_classes: int,
    *,
    confidences: list[Any],
    search: Search | None,
    f: Inefficiency = SIZE,
    sample_weight: np.ndarray | None = None,
    unfold: bool = True,
    standardise: bool = True,
    seed: Sequence[int] = (0,),
    device: str | None = None,
    n_jobs: int | None = None,
    progress: Progress,
) -> list[Found]:
    """The model of each level, from raw training rows ``X (k, p)`` and labels ``y`` in ``0 ... n_classes - 1``.

    A level's model does not depend on which others are asked for. Without a search there is no choice: the model is
    logistic regression with C = 1.
    """
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    weight = None if sample_weight is None else sample_weight[order] / sample_weight.mean()
    if search is None:
        return _without_choice(X, y, n_classes, confidences, weight, standardise=standardise, progress=progress)
    fold = fold_of_rows(y, min(search.folds, len(y)), np.random.default_rng(seed))
    columns = [Columns.plain(X, weight, standardise=standardise)]
    if unfold and (unfolded := Columns.unfolded(X, weight, standardise=standardise)) is not None:
        columns.append(unfolded)
    fits = np.stack([*(fold != held for held in range(fold.max() + 1)), np.ones(len(y), dtype=bool)])
    views = [View.of(one, X, y, n_classes, fits if weight is None else fits * weight, device) for one in columns]
    with Threads(n_jobs if device is None else 1) as threads:
        logistic = logistic_candidates(views, search.strengths, threads=threads, progress=progress)
        levels = []
        for confidence in confidences:
            eps = significance(confidence)
            rng = np.random.default_rng([*seed, eps.numerator, eps.denominator])
            judge = Judge(y, weight, float(eps), f, rng=rng)
            levels.append(_search_level(logistic, fold, judge, confidence, search, rng, threads, progress))
        return levels


def _without_choice(
    X: Any,
    y: np.ndarray,
    n_classes: int,
    confidences: list[Any],
    weight: np.ndarray | None,
    *,
    standardise: bool,
    progress: Progress,
) -> list[Found]:
    fits = np.ones((2, len(y))) * (1.0 if weight is None else weight)
    view = View.of(Columns.plain(X, weight, standardise=standardise), X, y, n_classes, fits, None)
    with Threads(1) as threads:
        ((only,),) = logistic_candidates([view], (1.0,), threads=threads, progress=progress)
    unknown = Verdict(np.nan, np.nan, np.nan, accepted=False)
    judged = _Judged(only, np.nan, np.nan, 0.0, np.nan)
    return [Found(Ensemble([_member(judged)]), _table([judged], [judged], level), unknown) for level in confidences]


def _search_level(
    logistic: list[list[Candidate]],
    fold: np.ndarray,
    judge: Judge,
    confidence: Any,
    search: Search,
    rng: np.random.Generator,
    threads: Threads,
    progress: Progress,
) -> Found:
    def examine(candidate: Candidate) -> _Judged:
        held = _held_out(candidate, fold, judge)
        curve = judge.curve(held.margins)
        likelihood = float(judge.weight @ held.own)
        return _Judged(candidate, judge.criterion(curve), judge.error(curve), held.threshold, likelihood)

    by_columns = [list(threads.map(examine, candidates)) for candidates in logistic]
    best = [_best_of_row(judged) for judged in by_columns]
    baseline = best[0]
    judged = [one for some in by_columns for one in some]
    for start in best if search.both_columns else [min(best, key=_criterion)]:
        found = path_candidates(
            start.candidate, search, judge.eps, judge.f, rng=rng, threads=threads, progress=progress
        )
        judged += threads.map(examine, found)

    # Held-out scores are computed again where they are needed: those of all candidates would not fit in memory.
    members = _shortlist(judged)
    together = combine([_held_out(one.candidate, fold, judge).margins for one in members])
    ours, theirs = judge.curve(together), judge.curve(_held_out(baseline.candidate, fold, judge).margins)
    error = float(np.std(judge.resampled(theirs) - judge.resampled(ours)))
    figures = judge.criterion(theirs), judge.criterion(ours)
    needed = _doubt(by_columns, fold, judge, unfolded=best[-1] is min(best, key=_criterion))
    unit = "labels a set" if judge.f.name == "size" else f"of mean inefficiency ({judge.f.name})"
    accepted = bool(figures[0] - figures[1] > needed * max(error, 1e-12))
    verdict = Verdict(*figures, error, accepted, unit)
    if not verdict.accepted:
        members = [baseline]
    model = Ensemble([_member(one) for one in members])
    return Found(model, _table(judged, members, confidence), verdict)


def _criterion(judged: _Judged) -> float:
    return judged.criterion


def _best_of_row(judged: list[_Judged]) -> _Judged:
    """The best of candidates in a row, by a criterion averaged with the neighbours': one lucky figure is not enough."""
    figures = np.pad([one.criterion for one in judged], 1, mode="edge")
    smooth = (figures[:-2] + 2 * figures[1:-1] + figures[2:]) / 4
    return judged[int(np.argmin(smooth))]


def _shortlist(judged: list[_Judged]) -> list[_Judged]:
    """The best few, not all from one path, and none much worse than the best: combined they err less than any one."""
    ranked = sorted(judged, key=_criterion)
    chosen: list[_Judged] = []
    for one in ranked:
        worst = ranked[0].criterion + _TOLERANCE * abs(ranked[0].criterion)
        if one.criterion > worst or len(chosen) == _MEMBERS:
            break
        path = (one.candidate.view.columns.name, one.candidate.path)
        if sum((other.candidate.view.columns.name, other.candidate.path) == path for other in chosen) < _PER_PATH:
            chosen.append(one)
    return chosen


def _doubt(by_columns: list[list[_Judged]], fold: np.ndarray, judge: Judge, *, unfolded: bool) -> float:
    """How many standard errors the gain must exceed.

    Infinitely many if logistic regression is not clearly likelier than the mere frequencies of the labels: on noise
    there is nothing to gain, and the luckiest of many candidates seems to. None if unfolded columns are clearly
    likelier than plain ones (and the paths start there).
    """
    frequencies = np.empty(len(fold))
    for held in range(fold.max() + 1):
        seen = np.bincount(judge.y, judge.weight * (fold != held)) / judge.weight[fold != held].sum()
        frequencies[fold == held] = np.log(np.maximum(seen, 1e-12))[judge.y[fold == held]]
    likeliest = [max(judged, key=lambda one: one.likelihood) for judged in by_columns]
    own = [_held_out(one.candidate, fold, judge).own for one in likeliest]
    if not any(_clearly_positive(ours - frequencies, judge.weight) for ours in own):
        return np.inf
    if unfolded and len(own) > 1 and all(_clearly_positive(own[-1] - other, judge.weight) for other in own[:-1]):
        return 0.0
    return float(_DOUBT * judge.caution)


def _clearly_positive(x: np.ndarray, weight: np.ndarray) -> bool:
    """Whether the mean is above nothing by more than its standard error allows for."""
    mean = weight @ x
    return bool(mean > _CLEAR * np.sqrt(np.sum((weight * (x - mean)) ** 2)))


def _held_out(candidate: Candidate, fold: np.ndarray, judge: Judge) -> _HeldOut:
    """Margins ``A - q`` of every row by the model that has not seen it, and ``q`` of the model of all rows.

    Models of different folds differ in scale and offset. Taking off each model's own threshold, on the rows that it
    was trained on, makes their scores comparable. For new rows that threshold is too high, by as much as the
    ``eps``-quantile of the held-out margins says; that is taken off as well.
    """
    view = candidate.view
    theta = view.place(centred(candidate.theta, view.centre))
    margins = np.empty((len(fold), view.n_classes), dtype=np.float32)
    own = np.empty(len(fold), dtype=np.float32)
    for fit in range(len(theta)):
        A = to_numpy(MEASURES[candidate.measure].forward(view.X, theta[fit : fit + 1])[0][0])
        held = fold == fit  # none for the last fit, which has all rows
        own_now = judge.own(A)
        q = judge.threshold(own_now, ~held)
        margins[held], own[held] = A[held] - q, own_now[held]
    excess = judge.threshold(judge.own(margins))
    return _HeldOut(margins - np.float32(excess), own, q + excess)


def _member(judged: _Judged) -> Member:
    candidate = judged.candidate
    view = candidate.view
    theta = candidate.theta[-1].astype(view.columns.scaling.scale.dtype)
    return Member(view.columns, candidate.measure, theta, judged.threshold)


def _table(judged: list[_Judged], members: list[_Judged], confidence: Any) -> dict[str, np.ndarray]:
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
