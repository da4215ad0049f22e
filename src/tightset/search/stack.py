"""Measures on top of other classifiers: trained on held-out scores, starting as the classifier's own ranking.

1. Each classifier is trained on folds and on all rows (`crossfit`). Averaged over those models it is a better
   classifier; that average, or the mixture of several classifiers with the weights of largest held-out likelihood, is
   the *anchor*.
2. Paths start from the anchor (`paths`): on its log-probabilities alone or with the columns of X added, whichever
   logistic regressions are better on. If logistic regression on the columns is part of the mixture, there are also
   paths on these themselves (`from_columns`). There are none where sets are about as small as they can be.
3. All candidates are judged on held-out rows and the best combined, as in the default search.
4. The anchor is kept unless the sets of the combination are smaller by more than two standard errors. If the sets of
   the best plain classifier are smaller than those of the anchor by as much, it takes the anchor's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LinearRegression

from tightset.compute.identity import Same
from tightset.compute.progress import Progress
from tightset.compute.rows import MemoryRows, take
from tightset.compute.threads import Threads
from tightset.models.columns import Columns, as_numbers
from tightset.models.crossfit import CrossFitted, CrossFitting, cross_fit
from tightset.models.ensembles import LogProbabilities, Tempered, tempered
from tightset.models.trees import Grown, Growth, grow, numbers_or_missing
from tightset.search.cross_fitted import cross_fitted
from tightset.search.from_columns import column_views, on_all_rows, train_columns
from tightset.search.judging import Curve
from tightset.search.levels import Chosen, Level, has_signal, nested, outermost_first, unit_of
from tightset.search.paths import Candidate, fits_of, logistic_candidates
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows
from tightset.search.settings import Search
from tightset.search.shortlist import Judged, best_of_row, held_out, held_out_scores, shortlist, table
from tightset.search.stacked_rows import Part, StackedRows
from tightset.search.verdict import FEW_ROWS, Found, Verdict

__all__ = ["Bases", "stacked_search"]

_DOUBT = 2.0  # standard errors that a gain must exceed
_FIRMER = 10.0  # scores are held to the anchor so many times as firmly as standardised columns to logistic regression
_EM_STEPS = 200
_LOOSE = 1e-3, 1e-4  # when steps of paths and logistic regressions end: in few columns, more gains nothing
_NEGLIGIBLE = 0.005  # sets that are at most so much larger than they can be are left as they are
_LINEAR = 0.98  # share of the variance; logistic regressions have 0.997 to 1, other classifiers at most 0.97
_CROSS_FIT, _LOGISTIC = 4.0, 1.0  # about how long they take, compared with a level
_ROWS_FOR_LINEAR, _ROWS_PER_COLUMN = 2000, 20  # that show whether scores are linear
_POWERS = (np.log(0.1), np.log(4.0))


@dataclass(frozen=True)
class Bases:
    """The classifiers that measures are trained on top of.

    ``mixed`` says that logistic regression on the columns is one more of them, and ``columns`` that measures may see
    the columns of X beside the scores, where these are numbers.
    """

    estimators: Sequence[Any]
    mixed: bool = False
    columns: bool = True

    def sampled(self, search: Search, n: int) -> bool:
        """Whether of ``n`` training rows a sample is searched: not where trees or logistic regressions are added."""
        return not self.mixed and search.boost is None and search.samples(n)


class _Family(NamedTuple):
    """One kind of columns: the anchor as a candidate there, and logistic regressions."""

    anchor: Candidate
    logistic: list[Candidate]


def stacked_search(bases: Bases, rows: TrainingRows, aim: Aim, search: Search, runtime: Runtime) -> Outcome:
    """The model of each level; of few rows there is no choice, and it is the first classifier as it is."""
    if len(rows) < FEW_ROWS:
        return _without_choice(bases.estimators[0], rows, aim, runtime)
    if search.boost is not None:
        numbers_or_missing(rows.X.gather())  # says so now if it cannot be done later
    rng = np.random.default_rng(runtime.seed)
    sampled = bases.sampled(search, len(rows))
    mixes = bases.mixed and as_numbers(rows.X.gather()) is not None
    weights = [_CROSS_FIT] * len(bases.estimators), [_LOGISTIC * mixes, _LOGISTIC], [1.0] * len(aim.levels)
    *parts, on_all = runtime.progress.split(*chain.from_iterable(weights), float(sampled))
    how: Any = {"sampled": sampled, "columns": bases.columns}
    seen = cross_fitted(bases.estimators, rows, search, runtime, parts[: len(bases.estimators)], rng, **how).by_fold()
    given, rows, fold, fitted, X = seen.given, seen.rows, seen.fold, seen.fitted, seen.columns()
    on_columns, on_scores, *of_levels = parts[len(fitted) :]
    if not search.average:
        fitted = [one._replace(averaged=one.whole, held_out_averaged=one.held_out_whole) for one in fitted]
    with runtime.threads() as threads:
        linear: list[list[Candidate]] = []
        if mixes:
            on_columns.stage("fitting logistic regressions")
            views = column_views(replace(rows, X=MemoryRows(X)), fold, search, runtime.device)
            linear = logistic_candidates(views, search, threads=threads, progress=on_columns)
        fill = None if X is None else np.zeros(X.shape[1]) if sparse.issparse(X) else X.mean(axis=0)
        plain, mixed = _parts(fitted, linear, fill, fold, rows)
        stack = StackedRows.of(
            [*plain, *mixed],
            rows,
            X,
            fill,
            fits_of(fold, rows.weight),
            standardise=search.standardise,
            device=runtime.device,
        )
        if X is not None and _own_label_shows(fitted, mixed, given.X.gather(), X):
            stack = replace(stack, columns=None)
        on_scores.stage("fitting logistic regressions on scores")
        levels = [Level.of(one, rows, fold, aim, search, runtime, threads) for one in aim.levels]
        levels = [one._replace(from_each=1, tol=_LOOSE[0]) for one in levels]
        families = _families(stack, search, levels, threads, on_scores)

        def at_level(level: Level) -> Chosen:
            trees, paths = level.progress.split(search.boost is not None, 1)
            grown = _grown(search.boost, given, stack, level._replace(progress=trees), runtime)
            return _search_level(stack, len(plain), families, linear, grown, level._replace(progress=paths))

        chosen = outermost_first(levels, at_level, of_levels)
    chosen = nested(levels, chosen) if aim.nested and len(levels) > 1 else chosen
    found = [one.found for one in chosen]
    if seen.everything is not None:
        on_all.stage("refining on all rows")
        everything = seen.everything.stacked(stack.n_columns, average=search.average)
        runtime = runtime._replace(progress=on_all, device=None)
        found = on_all_rows(everything, aim, chosen, search, runtime, stack.model)
        found = [one._replace(sample=(len(rows), len(everything))) for one in found]
    return Outcome([one.model for one in found], found)


def _families(
    stack: StackedRows, search: Search, levels: Sequence[Level], threads: Threads, progress: Progress
) -> list[_Family]:
    """The anchor, and the anchor beside the columns; without more if there is nothing to gain at any level."""
    anchors = [stack.anchor(), *([] if stack.columns is None else [stack.anchor(beside=True)])]
    if all(_smallest(level.examined(anchors[:1])[0], level) for level in levels):
        return [_Family(anchors[0], [])]
    views = [one.view for one in anchors]
    firm = replace(search, strengths=search.strengths[:-1] or search.strengths)
    fits = logistic_candidates(views, firm, threads=threads, progress=progress, tol=_LOOSE[1])
    return [_Family(anchor, some) for anchor, some in zip(anchors, fits, strict=True)]


def _smallest(one: Judged, level: Level) -> bool:
    """Whether sets are about as small as they can be: each row that is covered has a label at least."""
    judge = level.judge
    by_size = judge.f.name == "size" and judge.terms is None
    return by_size and one.criterion <= (1 + _NEGLIGIBLE) * (1 - judge.eps)


def _grown(library: str | None, rows: TrainingRows, stack: StackedRows, level: Level, runtime: Runtime) -> list[Grown]:
    if library is None:
        return []
    seed = int(level.rng.integers(2**31))
    growth = Growth(
        library, level.judge.eps, level.judge.f, seed, runtime.n_jobs, level.threads.check, level.judge.terms
    )
    order = np.argsort(rows.y, kind="stable")
    rows = rows.take(order)
    scores, fold = stack.scores[order], level.fold[order]
    grown = grow(growth, rows.X.gather(), rows.y, scores, fold, rows.weight, progress=level.progress)
    back = np.argsort(order)
    return [one._replace(held_out=one.held_out[back]) for one in grown]


def _without_choice(estimator: Any, rows: TrainingRows, aim: Aim, runtime: Runtime) -> Outcome:
    """The classifier as it is, for rows that are too few to choose by."""
    no_folds, rng = np.empty((0, len(rows)), dtype=np.intp), np.random.default_rng(runtime.seed)
    how = CrossFitting(rows.classes, no_folds, rng, runtime.progress)
    fitted = cross_fit(estimator, rows.X.gather(), rows.y, rows.weight, how)
    stack = StackedRows.of([Part(fitted.name, fitted.held_out_whole, fitted.whole, 1.0)], rows)
    judged = Judged(stack.anchor(0), np.nan, np.nan, aim.offset(rows), np.nan)
    unknown = Verdict(np.nan, np.nan, np.nan, accepted=False, fallback=f"plain {fitted.name}")
    model = stack.model([judged.member], **aim.combining)
    found = [Found(model, table([judged], [judged], level), unknown) for level in aim.levels]
    return Outcome([one.model for one in found], found)


def _is_linear(scores: np.ndarray, X: Any) -> bool:
    """Whether scores, but for what is common to all labels, are a linear function of the columns."""
    Z, _ = Columns.plain(X).apply(X)
    if Z.shape[1] >= len(scores):
        return True
    differences = scores - scores.mean(axis=1, keepdims=True)
    rest = differences - LinearRegression().fit(Z, differences).predict(Z)
    return bool(np.sum(rest**2) < (1 - _LINEAR) * np.sum((differences - differences.mean(axis=0)) ** 2))


def _own_label_shows(fitted: list[CrossFitted], mixed: list[Part], raw: Any, X: Any) -> bool:
    """Whether columns beside the scores would give away the labels of the very rows that are judged.

    A held-out score lacks what the row's own label would have added. If the classifier is linear, columns beside its
    scores can tell by how much: a linear function of them is what the classifier would say with all labels known. Sizes
    on held-out rows then come out far too small (by a fifth on fotp, with logistic regression), and new rows, for
    which nothing is lacking, pay for it. Trees, networks, kernels and splines are not linear enough to show it.
    """
    at = int(np.argmax([part.weight for part in mixed]))
    if mixed[at].weight < 0.5:
        return False
    enough = max(_ROWS_FOR_LINEAR, _ROWS_PER_COLUMN * X.shape[1])
    some = np.linspace(0, X.shape[0] - 1, min(X.shape[0], enough)).round().astype(int)
    if at == len(fitted):  # logistic regression, behind the classifiers
        return _is_linear(mixed[at].block.scores(X[some]), X[some])
    one = fitted[at]
    return not one.given and _is_linear(one.whole.scores(take(raw, some)), X[some])


def _parts(
    fitted: list[CrossFitted], linear: list[list[Candidate]], fill: Any, fold: np.ndarray, rows: TrainingRows
) -> tuple[list[Part], list[Part]]:
    """Each classifier as it is; and what is mixed: each one averaged, then the likeliest logistic regression."""
    y, weight = rows.y, rows.weight
    plain = [Part(one.name, one.held_out_whole, one.whole) for one in fitted]
    mixed = []
    for one in fitted:
        name = one.name if len(one.averaged.models) == 1 else f"averaged {one.name}"
        mixed.append(Part(name, one.held_out_averaged, one.averaged))
    if linear:
        scored = [(one, held_out_scores(one, fold)) for some in linear for one in some]
        best, scores = max(scored, key=lambda pair: np.average(pair[1][np.arange(len(y)), y], weights=weight))
        member = Judged(best, np.nan, np.nan, 0.0, np.nan).member
        mixed.append(Part("logistic regression", scores, LogProbabilities(member, fill)))
    if len(mixed) == 1:
        return plain, [mixed[0]._replace(weight=1.0)]
    mixed = [_tempered(part, y, weight) for part in mixed]  # each as sure of itself as it may be
    shares = _mixture_weights([part.held_out for part in mixed], y, weight)
    return plain, [part._replace(weight=share) for part, share in zip(mixed, shares.tolist(), strict=True)]


def _tempered(part: Part, y: np.ndarray, weight: np.ndarray | None) -> Part:
    """The part with the power of largest held-out likelihood."""

    def loss(log_power: float) -> float:
        own = tempered(part.held_out, np.exp(log_power))[np.arange(len(y)), y]
        return -float(np.average(own, weights=weight))

    power = float(np.exp(minimize_scalar(loss, bounds=_POWERS, method="bounded", options={"xatol": 1e-3}).x))
    return Part(part.name, tempered(part.held_out, power), Tempered(part.block, power))


def _mixture_weights(scores: list[np.ndarray], y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """The weights of largest likelihood of a mixture, by expectation maximisation."""
    own = np.exp(np.stack([A[np.arange(len(y)), y] for A in scores]))
    share = np.full(len(own), 1 / len(own))
    for _ in range(_EM_STEPS):
        posterior = share[:, None] * own
        posterior /= posterior.sum(axis=0)
        share = np.average(posterior, axis=1, weights=weight)
    share[share < 0.01] = 0  # not worth the time that its scores take
    return np.asarray(share / share.sum())


def _search_level(
    stack: StackedRows,
    n_bases: int,
    families: list[_Family],
    linear: list[list[Candidate]],
    grown: list[Grown],
    level: Level,
) -> Chosen:
    plain = level.examined([stack.anchor(at) for at in range(n_bases)])
    anchors = level.examined([one.anchor for one in families])
    searched = not _smallest(anchors[0], level)
    found = [
        [one, *level.examined(own.logistic if searched else [])] for one, own in zip(anchors, families, strict=True)
    ]
    judged = [one for some in found for one in some]
    calibrated = [max(some[1:], key=_likelihood) for some in found if some[1:]]
    anchor, likeliest = judged[0], max(judged, key=_likelihood)
    if searched:
        with_columns = bool(linear) and stack.parts[-1].weight > 0
        on_scores, on_columns = level.progress.split(1, with_columns)
        judged += _paths(found, level._replace(progress=on_scores))
        if with_columns:
            by_columns, best, trained = train_columns(linear, level._replace(progress=on_columns))
            judged += [one for some in by_columns for one in some] + trained
            plain.append(best[0])
    if ruled := level.by_rule([*plain, anchor, *calibrated]):
        anchor = min(anchor, ruled[len(plain)], key=lambda one: one.criterion)
        plain, judged = plain + ruled[: len(plain)], judged + ruled
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
    names = unit_of(level.judge), _title(baseline), _title(stays)
    verdict = Verdict(*figures, accepted, *names, aimed=level.aimed)
    members = members if accepted else [stays]
    everyone = list({Same(one.candidate): one for one in (*plain, *judged)}.values())
    return Chosen(
        Found(
            stack.model([one.member for one in members], **level.combining),
            table(everyone, members, level.confidence),
            verdict,
        ),
        members,
        baseline,
        [one for one in judged if one.candidate.start is not None],
    )


def _paths(found: list[list[Judged]], level: Level) -> list[Judged]:
    """The steps of paths from the anchor, on the better columns as logistic regressions tell, or on both."""
    starts = [anchor.candidate for anchor, *_ in found]
    if not (level.search.both_columns or level.near):
        criteria = [best_of_row(logistic).criterion for _, *logistic in found]
        starts = [starts[int(np.argmin(criteria))]]
    pulls = level.search.pulls[1:-1] or level.search.pulls[:1]
    firm = replace(level.search, pulls=[_FIRMER * pull for pull in pulls])
    parts = level.progress.split(*[1] * len(starts))
    on = [level._replace(progress=part) for part in parts]
    return [one for own, start in zip(on, starts, strict=True) for one in own.paths_from(start, firm)]


def _title(one: Judged) -> str:
    candidate = one.candidate
    name = candidate.view.columns.name
    if candidate.path.startswith("logistic"):
        name = "tuned logistic regression"
    elif name == "mixture":
        name = "the mixture of classifiers"
    return name if candidate.rule is None else f"{name} by {candidate.rule.name}"


def _likelihood(one: Judged) -> float:
    return one.likelihood if one.candidate.path == "logistic" else -np.inf  # other scores are no log-probabilities


def _clearly_smaller(ours: Curve, theirs: Curve, level: Level) -> bool:
    """Whether the inefficiency is smaller, by more than two standard errors of the difference."""
    gain, error = level.gain(ours, theirs)
    return bool(gain > _DOUBT * level.judge.caution * max(error, 1e-12))
