"""The default search: candidates from paths, judged on training rows, the best combined, never worse than the baseline.

1. Logistic regressions, on plain and on unfolded columns, by cross-validation.
2. From the best of them, paths of measures trained for small sets (`paths`).
3. Every step of every path is judged on rows that its fold held out (`judging`, `shortlist`).
4. The best few are combined (`models.ensembles`).
5. Plain logistic regression is kept unless, by cross-validation, the sets of the combination are smaller by more than a
   standard error. Likelihood counts too, since every row contributes to it and not only those near the threshold:
   without signal no gain is accepted, and any gain is if unfolded columns are clearly more likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tightset.compute.progress import Progress
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import SIZE
from tightset.conformal.splits import fold_of_rows, sample_of_rows
from tightset.models.columns import Columns
from tightset.models.ensembles import Ensemble, Member, Stacked
from tightset.objectives.terms import Terms
from tightset.search.judging import Judge
from tightset.search.levels import Chosen, Level, clearly_positive, has_signal, nested, outermost_first, unit_of
from tightset.search.paths import Candidate, View, fits_of, logistic_candidates
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows, normalised
from tightset.search.refinement import refine
from tightset.search.refinement_on_device import RowsOnDevice
from tightset.search.settings import Search
from tightset.search.shortlist import Judged, held_out, shortlist, table
from tightset.search.verdict import FEW_ROWS, Found, Verdict

__all__ = ["column_views", "logistic_regression", "on_all_rows", "path_search", "train_columns"]

_LOGISTIC = 1  # logistic regressions on one kind of columns take about as long as so many paths
_BETWEEN = 0.2  # of the time of a level, where others were searched before
_ROWS_TO_START = 20_000  # of a logistic regression on all rows
_DOUBT = 1.0  # standard errors that the gain must exceed


def path_search(rows: TrainingRows, aim: Aim, search: Search, runtime: Runtime) -> Outcome:
    """The model of each level.

    The lowest and the highest level do not depend on which others are asked for, unless one model is to serve all;
    those between start from these two. Of many rows (``search.samples``) a sample is searched, and what was chosen
    there is trained on all of them, wherever they lie.
    Few rows leave no choice: the model is logistic regression with C = 1.
    """
    if len(rows) < FEW_ROWS:
        return _without_choice(rows, aim, search, runtime)
    everything = rows = replace(rows, weight=normalised(rows.weight))
    sampled = search.samples(len(rows))
    if sampled:
        rows = rows.take(sample_of_rows(rows.y, search.rows, np.random.RandomState(list(runtime.seed))))
    rows = rows.sorted()
    rows, fold = rows.by_fold(fold_of_rows(rows.y, min(search.folds, len(rows)), np.random.default_rng(runtime.seed)))
    views = column_views(rows, fold, search, runtime.device)
    of_level = len(search.paths) * (search.restarts + 1) * (len(views) if search.both_columns else 1)
    of_levels = [of_level, of_level, *[_BETWEEN * of_level] * len(aim.levels)][: len(aim.levels)]
    weights = [_LOGISTIC * len(views), *of_levels, len(aim.levels) * len(search.paths) * sampled]
    first, *parts, last = runtime.progress.split(*weights)
    first.stage("fitting logistic regressions")
    with runtime.threads() as threads:
        logistic = logistic_candidates(views, search, threads=threads, progress=first)
        levels = [Level.of(one, rows, fold, aim, search, runtime, threads) for one in aim.levels]
        chosen = outermost_first(levels, partial(_search_level, logistic), parts)
        chosen = nested(levels, chosen) if aim.nested and len(levels) > 1 else chosen
    found = [one.found for one in chosen]
    if sampled:
        last.stage("refining on all rows")
        found = on_all_rows(everything, aim, chosen, search, runtime._replace(progress=last))
        found = [one._replace(sample=(len(rows), len(everything))) for one in found]
    return Outcome([one.model for one in found], found)


def on_all_rows(
    rows: TrainingRows,
    aim: Aim,
    chosen: Sequence[Chosen],
    search: Search,
    runtime: Runtime,
    combined: Callable[..., Ensemble | Stacked] = Ensemble.of,
) -> list[Found]:
    """What was chosen on a sample, trained on all rows; on the device if it has room for them.

    ``combined`` makes a model of the members of a level, by default one on the columns of the rows.
    """
    found = [one.found for one in chosen]
    own_level = [one.verdict.shared or level for one, level in zip(found, aim.levels, strict=True)]
    parts = [(float(aim.significance(at)), one.members) for at, one in zip(own_level, chosen, strict=True)]
    terms = [_terms(rows, aim, eps) for eps, _ in parts]
    one_measure = aim.nested and len(found) > 1
    some = slice(1) if one_measure else slice(None)
    with Threads(runtime.n_jobs) as threads:
        summed = rows.X.summed(rows.codes, rows.weight, threads=threads)
        there = _on_device(rows, aim, parts[some], terms[some], runtime.device, threads)
        how = (aim.f, search, runtime.progress.approach(), terms[some], aim.order, there)
        trained = refine(parts[some], summed, *how)
    models = [combined(own, **aim.combining) for own in trained] * (len(found) if one_measure else 1)
    return [one._replace(model=own) for one, own in zip(found, models, strict=True)]


def _on_device(
    rows: TrainingRows,
    aim: Aim,
    levels: Sequence[tuple[float, list[Judged]]],
    terms: Sequence[tuple[Terms, Terms] | None],
    device: str | None,
    threads: Threads,
) -> RowsOnDevice | None:
    """The rows on the device, for measures with one threshold."""
    candidates = [one.candidate for _, members in levels for one in members]
    if aim.order is not None or any(terms) or any(one.rule is not None for one in candidates):
        return None
    columns = [one.view.columns for one in candidates]
    return RowsOnDevice.of(rows, device, columns, threads)


def _terms(rows: TrainingRows, aim: Aim, eps: float) -> tuple[Terms, Terms] | None:
    """What measures of a level are trained on, and combined by."""
    terms = aim.terms(rows, eps)
    return None if terms is None else (terms, terms.without_groups(rows.y, eps))


def column_views(rows: TrainingRows, fold: np.ndarray, search: Search, device: str | None) -> list[View]:
    """Rows sorted by label as plain and, if wanted and possible, as unfolded columns."""
    X, weight, how = rows.X.gather(), rows.weight, {"standardise": search.standardise}
    columns = [Columns.plain(X, weight, **how)]
    if search.unfold and (unfolded := Columns.unfolded(X, weight, **how)) is not None:
        columns.append(unfolded)
    return [View.of(one, X, rows.y, len(rows.classes), fits_of(fold, weight), device) for one in columns]


def _without_choice(rows: TrainingRows, aim: Aim, search: Search, runtime: Runtime) -> Outcome:
    rows = rows.distinct()
    rows = replace(rows, weight=normalised(rows.weight))
    only = _plain_logistic(rows.sorted(), standardise=search.standardise, progress=runtime.progress)
    only = only._replace(threshold=aim.offset(rows))
    unknown = Verdict(np.nan, np.nan, np.nan, accepted=False, fallback="logistic regression with C = 1")
    found = [
        Found(Ensemble.of([only.member], **aim.combining), table([only], [only], level), unknown)
        for level in aim.levels
    ]
    return Outcome([one.model for one in found], found)


def _plain_logistic(rows: TrainingRows, *, standardise: bool, progress: Progress) -> Judged:
    """C = 1, on rows sorted by label; nothing is known of how good it is."""
    X, y, weight = rows.X.gather(), rows.y, rows.weight
    fits = np.ones((2, len(y))) * (1.0 if weight is None else weight)
    view = View.of(Columns.plain(X, weight, standardise=standardise), X, y, len(rows.classes), fits, None)
    with Threads(1) as threads:
        ((only,),) = logistic_candidates([view], Search(strengths=(1.0,)), threads=threads, progress=progress)
    return Judged(only, np.nan, np.nan, 0.0, np.nan)


def logistic_regression(rows: TrainingRows, *, seed: Sequence[int]) -> Member:
    """Logistic regression with C = 1, trained on all rows where they lie; columns are scaled as a sample says."""
    sample = sample_of_rows(rows.y, min(_ROWS_TO_START, len(rows)), np.random.RandomState(list(seed)))
    start = _plain_logistic(rows.take(sample).sorted(), standardise=True, progress=Progress())
    with Threads(1) as threads:
        summed = rows.X.summed(rows.y, rows.weight, threads=threads)
        ((member,),) = refine([(0.5, [start])], summed, SIZE, Search())  # no steps of a path
    return member


def train_columns(
    logistic: list[list[Candidate]], level: Level
) -> tuple[list[list[Judged]], list[Judged], list[Judged]]:
    """The logistic regressions of each kind of columns, judged; the best of each kind; and the steps of the paths."""
    by_columns = [level.examined(some) for some in logistic]
    best = [level.tuned(judged) for judged in by_columns]
    first = min(best, key=lambda one: one.criterion)
    starts = best if level.search.both_columns or level.near else [first]
    trained = []
    for start, part in zip(starts, level.progress.split(*[1] * len(starts)), strict=True):
        # On plain columns levels between are not near enough: sets of avila at 95 % were a tenth larger.
        in_full = start is first and start.candidate.view.columns.knots is None
        own = level._replace(progress=part, near=() if in_full else level.near)
        trained += own.paths_from(start.candidate)
    return by_columns, best, trained


def _search_level(logistic: list[list[Candidate]], level: Level) -> Chosen:
    by_columns, best, trained = train_columns(logistic, level)
    likeliest = [max(some, key=lambda one: one.likelihood) for some in by_columns]
    ruled = [level.by_rule(both) for both in zip(best, likeliest, strict=True)]
    baseline = min([best[0], *ruled[0]], key=lambda one: one.criterion)
    judged = [one for some in by_columns + ruled for one in some] + trained
    members = shortlist(judged)
    ours, theirs = level.curve(*members), level.curve(baseline)
    gain, error = level.gain(ours, theirs)
    unfolded = best[-1] is min(best, key=lambda one: one.criterion)
    accepted = bool(gain > _doubt(by_columns, level.fold, level.judge, unfolded=unfolded) * max(error, 1e-12))
    if not accepted:
        members = [baseline]
    figures = level.judge.criterion(theirs), level.judge.criterion(ours)
    name = _title(baseline)
    verdict = Verdict(*figures, level.told_error(error), accepted, unit_of(level.judge), name, name, aimed=level.aimed)
    model = Ensemble.of([one.member for one in members], **level.combining)
    return Chosen(Found(model, table(judged, members, level.confidence), verdict), members, baseline, trained)


def _title(one: Judged) -> str:
    rule = one.candidate.rule
    return f"tuned logistic regression{'' if rule is None else f' by {rule.name}'}"


def _doubt(by_columns: list[list[Judged]], fold: np.ndarray, judge: Judge, *, unfolded: bool) -> float:
    """How many standard errors the gain must exceed.

    Infinitely many if logistic regression is not clearly likelier than the mere frequencies of the labels: on noise
    there is nothing to gain, and the luckiest of many candidates seems to. None if unfolded columns are clearly
    likelier than plain ones (and the paths start there).
    """
    likeliest = [max(judged, key=lambda one: one.likelihood) for judged in by_columns]
    own = [held_out(one.candidate, fold, judge).own for one in likeliest]
    if not any(has_signal(one, fold, judge) for one in own):
        return np.inf
    if unfolded and len(own) > 1 and all(clearly_positive(own[-1] - other, judge.weight) for other in own[:-1]):
        return 0.0
    return float(_DOUBT * judge.caution)
