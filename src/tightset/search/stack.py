"""Measures on top of other classifiers: trained on held-out scores, starting as the classifier's own ranking.

1. Each classifier is trained on folds and on all rows (`bases.cross_fit`). Averaged over those models it is a better
   classifier; that average, or the mixture of several classifiers with the weights of largest held-out likelihood, is
   the *anchor*.
2. Paths lead away from the anchor (`paths`): on its log-probabilities alone, and beside the columns of X. If logistic
   regression has a part in the mixture, there are those on the columns themselves too (`search`).
3. All candidates are judged on held-out rows and the best combined, as in the default search.
4. Unless the combination is smaller than the anchor by more than two standard errors, the anchor it is. If the best
   classifier as it is is smaller than the anchor by as much, it stands in the anchor's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LinearRegression
from sklearn.utils import _safe_indexing

from tightset.compute.progress import Progress
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.conformal.splits import fold_of_rows
from tightset.models.columns import Columns
from tightset.models.crossfit import CrossFitted, cross_fit
from tightset.models.ensembles import Block, Ensemble, LogProbabilities, Stacked, Tempered, beside, mixture, tempered
from tightset.models.trees import Grown, grow
from tightset.search.from_columns import (
    Chosen,
    Level,
    column_views,
    fits_of,
    has_signal,
    nested,
    train_columns,
    unit_of,
)
from tightset.search.judging import Curve
from tightset.search.paths import Candidate, View, logistic_candidates
from tightset.search.settings import Search
from tightset.search.shortlist import (
    Found,
    Judged,
    Verdict,
    held_out,
    held_out_scores,
    shortlist,
    table,
)

__all__ = ["stacked_search", "without_choice"]

_DOUBT = 2.0  # standard errors that a gain must exceed
_FIRMER = 10.0  # scores are held to the anchor so many times as firmly as standardised columns to logistic regression
_EM_STEPS = 200
_LINEAR = 0.98  # share of the variance; logistic regressions have 0.997 to 1, other classifiers at most 0.97
_WIDEST = 1000  # columns beside the scores; more cost more than they gain
_POWERS = (np.log(0.1), np.log(4.0))


class _Part(NamedTuple):
    """A classifier's scores among the columns of the stacked rows: held out, and of new rows."""

    name: str
    held_out: np.ndarray
    block: Block


class _Family(NamedTuple):
    """One kind of columns: the anchor as a candidate there, and logistic regressions."""

    anchor: Candidate
    logistic: list[Candidate]


def stacked_search(
    rows: Any,
    X: Any,
    y: np.ndarray,
    classes: np.ndarray,
    estimators: Sequence[Any],
    *,
    confidences: list[Any],
    search: Search,
    with_columns: bool,
    average: bool = True,
    boost: str | None = None,
    f: Inefficiency = SIZE,
    sample_weight: np.ndarray | None = None,
    unfold: bool = True,
    standardise: bool = True,
    nest: bool = False,
    seed: Sequence[int] = (0,),
    device: str | None = None,
    n_jobs: int | None = None,
    progress: Progress,
) -> list[Found]:
    """The model of each level over classifiers that take ``rows``; labels ``y`` in ``0 ... C - 1``.

    ``X`` are the same rows as numbers, or None if they are not. ``with_columns`` makes measures on those columns
    candidates as well, and logistic regression a part of the mixture; ``boost`` makes trees of that library.
    """
    order = np.argsort(y, kind="stable")
    rows, X, y = _safe_indexing(rows, order), None if X is None else X[order], y[order]
    given = None if sample_weight is None else sample_weight[order]  # classifiers may ask for more than ratios
    weight = None if given is None else np.maximum(given / given.max(), 1e-12)
    weight = None if weight is None else weight / weight.mean()
    rng = np.random.default_rng(seed)
    folds = np.stack([fold_of_rows(y, min(search.folds, len(y)), rng) for _ in range(search.repeats if average else 1)])
    fold = folds[0]
    fitted = [
        cross_fit(one, rows, y, classes, folds, weight=given, rng=rng, n_jobs=n_jobs, progress=progress)
        for one in estimators
    ]
    if not average:
        fitted = [one._replace(averaged=one.whole, held_out_averaged=one.held_out_whole) for one in fitted]
    with Threads(n_jobs if device is None else 1) as threads:
        linear: list[list[Candidate]] = []
        if with_columns and X is not None:
            own = column_views(X, y, len(classes), fold, weight, unfold=unfold, standardise=standardise, device=device)
            linear = logistic_candidates(own, search.strengths, threads=threads, progress=progress)
        fill = None if X is None else np.zeros(X.shape[1]) if sparse.issparse(X) else X.mean(axis=0)
        parts = _parts(fitted, linear, fill, fold, y, weight)
        weights = _mixture_weights([part.held_out for part in parts], y, weight, skip=len(fitted))
        stack = _Stack(
            parts, weights, X, fill, y, len(classes), len(fitted), fits_of(fold, weight), device, standardise
        )
        if X is not None and _own_label_shows(fitted, parts, weights, rows, X):
            stack.columns = None
        families = stack.families(search.strengths, threads, progress)
        tools = {"fold": fold, "search": search, "threads": threads, "progress": progress}
        levels, chosen = [Level.of(one, y, weight, f, seed, **tools) for one in confidences], []
        for level in levels:
            grown = _grown(boost, rows, stack, level, given, n_jobs)
            chosen.append(_search_level(stack, families, linear, grown, level))
        return [one.found for one in (nested(levels, chosen) if nest and len(levels) > 1 else chosen)]


def _grown(
    library: str | None, rows: Any, stack: _Stack, level: Level, weight: np.ndarray | None, n_jobs: int | None
) -> list[Grown]:
    if library is None:
        return []
    judge = level.judge
    return grow(
        library,
        rows,
        judge.y,
        stack.scores,
        level.fold,
        judge.eps,
        judge.f,
        weight=weight,
        seed=int(level.rng.integers(2**31)),
        n_jobs=n_jobs,
        check=level.threads.check,
        progress=level.progress,
    )


def without_choice(
    rows: Any,
    y: np.ndarray,
    classes: np.ndarray,
    estimator: Any,
    confidences: list[Any],
    sample_weight: np.ndarray | None,
    seed: Sequence[int],
) -> list[Found]:
    """The classifier as it is, for rows that are too few to choose by."""
    with Progress("", show=False) as progress:
        folds, rng = np.empty((0, len(y)), dtype=np.intp), np.random.default_rng(seed)
        fitted = cross_fit(estimator, rows, y, classes, folds, weight=sample_weight, rng=rng, progress=progress)
    part = _Part(fitted.name, fitted.held_out_whole, fitted.whole)
    stack = _Stack([part], np.ones(1), None, None, y, len(classes), 1)
    judged = Judged(stack.anchor(0), np.nan, np.nan, 0.0, np.nan)
    unknown = Verdict(np.nan, np.nan, np.nan, accepted=False, fallback=f"{fitted.name} as it is")
    return [Found(stack.model([judged]), table([judged], [judged], level), unknown) for level in confidences]


def _is_linear(scores: np.ndarray, X: Any) -> bool:
    """Whether scores, but for what is common to all labels, are a linear function of the columns."""
    Z, _ = Columns.plain(X).apply(X)
    if Z.shape[1] >= len(scores):
        return True
    differences = scores - scores.mean(axis=1, keepdims=True)
    rest = differences - LinearRegression().fit(Z, differences).predict(Z)
    return bool(np.sum(rest**2) < (1 - _LINEAR) * np.sum((differences - differences.mean(axis=0)) ** 2))


def _own_label_shows(fitted: list[CrossFitted], parts: list[_Part], weights: np.ndarray, rows: Any, X: Any) -> bool:
    """Whether columns beside the scores would give away the labels of the very rows that are judged.

    A held-out score lacks what the row's own label would have added. If the classifier is linear, columns beside its
    scores can tell by how much: a linear function of them is what the classifier would say with all labels known. Sizes
    on held-out rows then come out far too small (by a fifth on fotp, with logistic regression), and new rows, for
    which nothing is lacking, pay for it. Trees, networks, kernels and splines are not linear enough to show it.
    """
    at = int(np.argmax(weights))
    if weights[at] < 0.5:
        return False
    if at == 2 * len(fitted):  # logistic regression
        return _is_linear(parts[at].block.scores(X), X)
    one = fitted[at - len(fitted)]
    return not one.given and _is_linear(one.whole.scores(rows), X)


def _parts(
    fitted: list[CrossFitted],
    linear: list[list[Candidate]],
    fill: Any,
    fold: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
) -> list[_Part]:
    """Each classifier as it is, then each one averaged, then the likeliest logistic regression."""
    parts = [_Part(one.name, one.held_out_whole, one.whole) for one in fitted]
    for one in fitted:
        name = one.name if len(one.averaged.models) == 1 else f"averaged {one.name}"
        parts.append(_Part(name, one.held_out_averaged, one.averaged))
    if linear:
        scored = [(one, held_out_scores(one, fold)) for some in linear for one in some]
        best, scores = max(scored, key=lambda pair: np.average(pair[1][np.arange(len(y)), y], weights=weight))
        member = Judged(best, np.nan, np.nan, 0.0, np.nan).member
        parts.append(_Part("logistic regression", scores, LogProbabilities(member, fill)))
    if len(parts) > len(fitted) + 1:  # to be mixed: each as sure of itself as it may be
        parts[len(fitted) :] = [_tempered(part, y, weight) for part in parts[len(fitted) :]]
    return parts


def _tempered(part: _Part, y: np.ndarray, weight: np.ndarray | None) -> _Part:
    """The part with the power of largest held-out likelihood."""

    def loss(log_power: float) -> float:
        own = tempered(part.held_out, np.exp(log_power))[np.arange(len(y)), y]
        return -float(np.average(own, weights=weight))

    power = float(np.exp(minimize_scalar(loss, bounds=_POWERS, method="bounded", options={"xatol": 1e-3}).x))
    return _Part(part.name, tempered(part.held_out, power), Tempered(part.block, power))


def _mixture_weights(scores: list[np.ndarray], y: np.ndarray, weight: np.ndarray | None, skip: int) -> np.ndarray:
    """The weights of largest likelihood of a mixture, by expectation maximisation; none for the first few."""
    result = np.zeros(len(scores))
    if len(scores) == skip + 1:
        result[skip] = 1
        return result
    own = np.exp(np.stack([A[np.arange(len(y)), y] for A in scores[skip:]]))
    share = np.full(len(own), 1 / len(own))
    for _ in range(_EM_STEPS):
        posterior = share[:, None] * own
        posterior /= posterior.sum(axis=0)
        share = np.average(posterior, axis=1, weights=weight)
    share[share < 0.01] = 0  # not worth the time that its scores take
    result[skip:] = share / share.sum()
    return result


class _Stack:
    """The stacked rows ``[X | scores of the mixture | scores of each part]``, and views of them."""

    def __init__(
        self,
        parts: list[_Part],
        weights: np.ndarray,
        X: Any,
        fill: np.ndarray | None,
        y: np.ndarray,
        n_classes: int,
        n_bases: int,
        fits: np.ndarray | None = None,
        device: str | None = None,
        standardise: bool = True,
    ) -> None:
        self.parts, self.weights, self.n_classes, self.n_bases = parts, weights, n_classes, n_bases
        fits = np.ones((2, len(y))) if fits is None else fits
        self.n_columns = 0 if X is None else X.shape[1]
        self.fill = fill
        self.columns = None
        if X is not None and X.shape[1] <= _WIDEST:
            self.columns = Columns.plain(X, fits[-1], standardise=standardise)
        held_out = [part.held_out for part in parts]
        self.scores = mixture(held_out, weights)
        self.rows = beside([*([] if X is None else [X]), self.scores, *held_out])
        self._fits = y, n_classes, fits, device

    def anchor(self, part: int | None = None, *, beside: bool = False) -> Candidate:
        """The ranking of a part, or of the mixture: the identity on its scores, nothing on columns."""
        C = self.n_classes
        at = self.n_columns + (0 if part is None else part + 1) * C + np.arange(C)
        name = self.name if part is None else self.parts[part].name
        columns = Columns.of_scores(np.zeros((1, C)), at, name)
        if beside and self.columns is not None:
            columns = self.columns.after(columns)
        view = View.of(columns, self.rows, *self._fits)
        theta = np.zeros((len(view.weight), view.X.shape[1], C))
        theta[:, :C] = np.eye(C)
        return Candidate("own ranking", view, "linear", theta, 1.0, np.inf, 0)

    @property
    def name(self) -> str:
        """Of the mixture."""
        used = [part.name for part, weight in zip(self.parts, self.weights, strict=True) if weight > 0]
        return used[0] if len(used) == 1 else "mixture"

    def families(self, strengths: Sequence[float], threads: Threads, progress: Progress) -> list[_Family]:
        """The anchor, and the anchor beside the columns."""
        anchors = [self.anchor(), *([] if self.columns is None else [self.anchor(beside=True)])]
        fits = logistic_candidates([one.view for one in anchors], strengths, threads=threads, progress=progress)
        return [_Family(anchor, some) for anchor, some in zip(anchors, fits, strict=True)]

    def with_trees(self, grown: list[Grown]) -> Self:
        """The same with more parts, of no weight in the mixture."""
        more = copy(self)
        more.parts = [*self.parts, *(_Part(f"{one.trees.rounds} rounds", one.held_out, one.trees) for one in grown)]
        more.weights = np.append(self.weights, np.zeros(len(grown)))
        return more

    def boosted(self, part: int, rounds: int) -> Candidate:
        """The mixture and trees on top of it; held to it the less the more rounds there are."""
        C = self.n_classes
        at = self.n_columns + np.append(np.arange(C), (part + 1) * C + np.arange(C))
        columns = Columns.of_scores(np.zeros((1, 2 * C)), at, f"boosted {self.name}")
        rows = np.hstack([self.scores, self.parts[part].held_out])
        view = View.of(columns._replace(at=None), rows, *self._fits)._replace(columns=columns)
        theta = np.zeros((len(view.weight), 2 * C + 1, C))
        theta[:, : 2 * C] = np.vstack([np.eye(C), np.eye(C)])
        return Candidate("boosted", view, "softmax", theta, 1.0, 1 / rounds, rounds)

    def model(self, members: list[Judged]) -> Stacked:
        """The members on rows that hold what they ask for and nothing else."""
        p, C = self.n_columns, self.n_classes
        own = [one.member for one in members]
        where = {id(m.columns): np.arange(p) if m.columns.at is None else m.columns.at for m in own}
        used = np.zeros(p + (len(self.parts) + 1) * C, dtype=bool)
        for at in where.values():
            used[at] = True
        used[:p] = used[:p].any()
        asked: list[bool] = np.any(used[p:].reshape(-1, C), axis=1).tolist()
        mixed, shown = asked[0], asked[1:]
        kept = [at for at in range(len(self.parts)) if shown[at] or (mixed and self.weights[at] > 0)]
        moved = np.cumsum(used) - 1  # columns that are left out close ranks
        columns = {id(m.columns): m.columns._replace(at=moved[where[id(m.columns)]]) for m in own}
        return Stacked(
            [self.parts[at].block for at in kept],
            self.weights[kept] if mixed else None,
            self.fill if used[:p].any() else None,
            [kept.index(at) for at in np.flatnonzero(shown).tolist()],
            Ensemble([m._replace(columns=columns[id(m.columns)]) for m in own]),
        )


def _search_level(
    stack: _Stack, families: list[_Family], linear: list[list[Candidate]], grown: list[Grown], level: Level
) -> Chosen:
    pulls = level.search.pulls[:-1] or level.search.pulls
    firm = replace(level.search, pulls=[_FIRMER * pull for pull in pulls])
    plain = level.examined([stack.anchor(at) for at in range(stack.n_bases)])
    judged: list[Judged] = []
    for start, logistic in families:
        judged += level.examined([start, *logistic]) + level.paths_from(start, firm)
    anchor, likeliest = judged[0], max(judged, key=_likelihood)
    if linear and stack.weights[-1] > 0:
        by_columns, best, trained = train_columns(linear, level)
        judged += [one for some in by_columns for one in some] + trained
        plain.append(best[0])
    if grown:
        first, stack = len(stack.parts), stack.with_trees(grown)
        judged += level.examined([stack.boosted(first + at, one.trees.rounds) for at, one in enumerate(grown)])
    baseline = min(plain, key=lambda one: one.criterion)
    theirs, its = level.curve(baseline), level.curve(anchor)
    stays, its = (baseline, theirs) if _clearly_smaller(theirs, its, level) else (anchor, its)
    members = shortlist(judged)
    ours = level.curve(*members)
    signal = has_signal(held_out(likeliest.candidate, level.fold, level.judge).own, level.fold, level.judge)
    accepted = signal and _clearly_smaller(ours, its, level)
    error = level.told_error(level.gain(ours, theirs)[1])
    figures = level.judge.criterion(theirs), level.judge.criterion(ours), error
    verdict = Verdict(*figures, accepted, unit_of(level.judge.f), _title(baseline), _title(stays))
    members = members if accepted else [stays]
    everyone = list({id(one.candidate): one for one in (*plain, *judged)}.values())
    return Chosen(Found(stack.model(members), table(everyone, members, level.confidence), verdict), members, baseline)


def _title(one: Judged) -> str:
    if one.candidate.path == "logistic":
        return "tuned logistic regression"
    name = one.candidate.view.columns.name
    return "the mixture of classifiers" if name == "mixture" else name


def _likelihood(one: Judged) -> float:
    return one.likelihood if one.candidate.path == "logistic" else -np.inf  # other scores are no log-probabilities


def _clearly_smaller(ours: Curve, theirs: Curve, level: Level) -> bool:
    """Whether the inefficiency is smaller, by more than two standard errors of the difference."""
    gain, error = level.gain(ours, theirs)
    return bool(gain > _DOUBT * level.judge.caution * max(error, 1e-12))
