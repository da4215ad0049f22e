"""The default search: candidates from paths, judged on training rows, the best combined, never worse than the baseline.

1. Logistic regressions, on plain and on unfolded columns, by cross-validation.
2. From the best of them, paths of measures trained for small sets (`paths`).
3. Every step of every path is judged on rows that its fold held out (`pool`, `choice`).
4. The best few are combined (`models.Ensemble`).
5. Unless cross-validation says that the combination is smaller than plain logistic regression by more than a standard
   error, plain logistic regression it is. Likelihood has a say, since every row contributes to it and not only those
   near the threshold: without signal nothing is believed, and any gain where unfolded columns are clearly likelier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.partitions import Partitions
from tightset.compute.progress import Progress
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.conformal.ranks import significance
from tightset.conformal.splits import fold_of_rows, stratified_split
from tightset.models.columns import Columns
from tightset.models.ensembles import Ensemble, Member
from tightset.search.judging import Curve, Judge
from tightset.search.paths import Candidate, View, logistic_candidates, path_candidates
from tightset.search.refinement import InMemory, RowSource, refine
from tightset.search.settings import Search
from tightset.search.shortlist import (
    Found,
    Judged,
    Verdict,
    best_of_row,
    combined_scores,
    examine,
    held_out,
    shortlist,
    table,
)

__all__ = [
    "Chosen",
    "Level",
    "column_views",
    "fits_of",
    "has_signal",
    "logistic_regression",
    "nested",
    "path_search",
    "train_columns",
    "unit_of",
]

_EVALUATIONS = 30  # of a loss over all rows that are expected next
_ROWS_TO_START = 20_000  # of a logistic regression on partitions
_DOUBT = 1.0  # standard errors that the gain must exceed
_CLEAR = 2.0  # standard errors by which a likelihood is clearly better


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
    nest: bool = False,
    seed: Sequence[int] = (0,),
    device: str | None = None,
    n_jobs: int | None = None,
    progress: Progress,
) -> list[Found]:
    """The model of each level, from raw training rows ``X (k, p)`` and labels ``y`` in ``0 ... n_classes - 1``.

    A level's model does not depend on which others are asked for, unless one is to serve all (``nest``). Without a
    search there is no choice: the model is logistic regression with C = 1. Of many rows (``search.samples``) a sample
    is searched, and what was chosen there is trained on all of them; those may be `Partitions`.
    """
    weight = None if sample_weight is None else sample_weight / sample_weight.mean()
    everything = None
    if search is not None and search.samples(len(y)):
        everything = X, y, weight
        _, sample = stratified_split(y, search.rows, np.random.RandomState(list(seed)))
        X = X.take(sample).gather() if isinstance(X, Partitions) else X[sample]
        y, weight = y[sample], None if weight is None else weight[sample]
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    weight = None if weight is None else weight[order]
    if search is None:
        return _without_choice(X, y, n_classes, confidences, weight, standardise=standardise, progress=progress)
    fold = fold_of_rows(y, min(search.folds, len(y)), np.random.default_rng(seed))
    views = column_views(X, y, n_classes, fold, weight, unfold=unfold, standardise=standardise, device=device)
    with Threads(n_jobs if device is None else 1) as threads:
        logistic = logistic_candidates(views, search.strengths, threads=threads, progress=progress)
        tools = {"fold": fold, "search": search, "threads": threads, "progress": progress}
        levels = [Level.of(one, y, weight, f, seed, **tools) for one in confidences]
        chosen = [_search_level(logistic, level) for level in levels]
        one_measure = nest and len(levels) > 1
        chosen = nested(levels, chosen) if one_measure else chosen
        found = [one.found for one in chosen]
        if everything is not None:
            own_level = [one.verdict.shared or level.confidence for one, level in zip(found, levels, strict=True)]
            parts = [(float(significance(at)), one.members) for at, one in zip(own_level, chosen, strict=True)]
            parts = parts[:1] if one_measure else parts
            advance = _open_ended(progress)
            with Threads(n_jobs) as all_threads:  # on the host, whatever the search ran on
                trained = refine(parts, _source(*everything, all_threads), f, search.max_iter, advance)
            models = [Ensemble(own) for own in trained]
            models = models * len(found) if one_measure else models
            rows = len(y), len(everything[1])
            return [one._replace(model=own, sample=rows) for one, own in zip(found, models, strict=True)]
        return found


def _open_ended(progress: Progress) -> Callable[[], None]:
    """For evaluations of which nobody knows how many there will be: the bar has ever some more to go."""
    done = 0

    def advance() -> None:
        nonlocal done
        if done % _EVALUATIONS == 0:
            progress.expect(_EVALUATIONS)
        done += 1
        progress.advance()

    return advance


def _source(X: Any, y: np.ndarray, weight: np.ndarray | None, threads: Threads) -> RowSource:
    if isinstance(X, Partitions):
        return X.source(y.astype(np.min_scalar_type(int(y.max()))), weight)
    return InMemory(X, y, weight, threads)


def column_views(
    X: Any,
    y: np.ndarray,
    n_classes: int,
    fold: np.ndarray,
    weight: np.ndarray | None,
    *,
    unfold: bool,
    standardise: bool,
    device: str | None,
) -> list[View]:
    """Rows sorted by label as plain and, if wanted and possible, as unfolded columns."""
    columns = [Columns.plain(X, weight, standardise=standardise)]
    if unfold and (unfolded := Columns.unfolded(X, weight, standardise=standardise)) is not None:
        columns.append(unfolded)
    return [View.of(one, X, y, n_classes, fits_of(fold, weight), device) for one in columns]


def fits_of(fold: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Weights ``(folds + 1, k)``: without the rows of each fold, and with all."""
    fits = np.stack([*(fold != held for held in range(fold.max() + 1)), np.ones(len(fold), dtype=bool)])
    return fits if weight is None else fits * weight


class Level(NamedTuple):
    """A level to search at, and what with."""

    confidence: Any
    judge: Judge
    fold: np.ndarray
    search: Search
    rng: np.random.Generator
    threads: Threads
    progress: Progress

    @classmethod
    def of(
        cls,
        confidence: Any,
        y: np.ndarray,
        weight: np.ndarray | None,
        f: Inefficiency,
        seed: Sequence[int],
        **more: Any,
    ) -> Self:
        eps = significance(confidence)
        rng = np.random.default_rng([*seed, eps.numerator, eps.denominator])
        return cls(confidence, Judge(y, weight, float(eps), f, rng=rng), rng=rng, **more)

    def examined(self, candidates: Sequence[Candidate]) -> list[Judged]:
        return list(self.threads.map(lambda one: examine(one, self.fold, self.judge), candidates))

    def paths_from(self, start: Candidate, search: Search | None = None) -> list[Judged]:
        """Every step of every path away from a candidate, judged."""
        return self.examined(
            path_candidates(
                start,
                search or self.search,
                self.judge.eps,
                self.judge.f,
                rng=self.rng,
                threads=self.threads,
                progress=self.progress,
            )
        )

    def curve(self, *members: Judged) -> Curve:
        return self.judge.curve(self.scores(*members))

    def scores(self, *members: Judged) -> np.ndarray:
        """Those of members that are combined, on rows that they have not seen ``(k, C)``."""
        return combined_scores(list(members), self.fold, self.judge)

    def gain(self, ours: Curve, theirs: Curve) -> tuple[float, float]:
        """How much smaller ours is, and the standard error of that."""
        gain = self.judge.criterion(theirs) - self.judge.criterion(ours)
        return gain, float(np.std(self.judge.resampled(theirs) - self.judge.resampled(ours)))

    def told_error(self, error: float) -> float:
        """A standard error as it is told: of few rows near the threshold the bootstrap sees too little noise."""
        return float(error * self.judge.caution)


class Chosen(NamedTuple):
    """What the search at a level found, what it is made of, and the baseline that it was compared with."""

    found: Found
    members: list[Judged]
    baseline: Judged


def nested(levels: Sequence[Level], chosen: Sequence[Chosen]) -> list[Chosen]:
    """One measure for all levels, that of the level whose sets are smallest over all of them: then sets are nested.

    Sizes are compared as ratios, on held-out rows.
    """
    held_out = [level.scores(*one.members) for level, one in zip(levels, chosen, strict=True)]
    curves = [[level.judge.curve(scores) for level in levels] for scores in held_out]
    sizes = np.array(
        [[level.judge.criterion(curve) for level, curve in zip(levels, some, strict=True)] for some in curves]
    )
    at = int(np.argmin(np.log(np.maximum(sizes, 1e-9)).mean(axis=1)))
    best = chosen[at]
    result = []
    for place, (level, own) in enumerate(zip(levels, chosen, strict=True)):
        _, error = level.gain(curves[at][place], level.curve(own.baseline))
        verdict = own.found.verdict._replace(
            ensemble=float(sizes[at, place]),
            error=level.told_error(error),
            accepted=best.found.verdict.accepted,
            fallback=best.found.verdict.fallback,
            shared=float(levels[at].confidence),
            price=float(sizes[at, place] / max(sizes[place, place], 1e-9) - 1),
        )
        found = own.found._replace(model=best.found.model, table=best.found.table, verdict=verdict)
        result.append(Chosen(found, best.members, own.baseline))
    return result


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
    only = _plain_logistic(X, y, n_classes, weight, standardise=standardise, progress=progress)
    unknown = Verdict(np.nan, np.nan, np.nan, accepted=False, fallback="logistic regression with C = 1")
    return [Found(Ensemble([only.member]), table([only], [only], level), unknown) for level in confidences]


def _plain_logistic(
    X: Any, y: np.ndarray, n_classes: int, weight: np.ndarray | None, *, standardise: bool, progress: Progress
) -> Judged:
    """C = 1, on rows sorted by label; nothing is known of how good it is."""
    fits = np.ones((2, len(y))) * (1.0 if weight is None else weight)
    view = View.of(Columns.plain(X, weight, standardise=standardise), X, y, n_classes, fits, None)
    with Threads(1) as threads:
        ((only,),) = logistic_candidates([view], (1.0,), threads=threads, progress=progress)
    return Judged(only, np.nan, np.nan, 0.0, np.nan)


def logistic_regression(
    X: Partitions, y: np.ndarray, n_classes: int, sample_weight: np.ndarray | None, *, seed: Sequence[int]
) -> Member:
    """Logistic regression with C = 1, trained on all rows of partitions; columns are scaled as a sample says."""
    _, sample = stratified_split(y, min(_ROWS_TO_START, len(y)), np.random.RandomState(list(seed)))
    order = np.argsort(y[sample], kind="stable")
    some, of_some = X.take(sample).gather()[order], sample[order]
    weight = None if sample_weight is None else sample_weight[of_some]
    start = _plain_logistic(some, y[of_some], n_classes, weight, standardise=True, progress=Progress())
    everything = _source(X, y, sample_weight, Threads(1))
    ((member,),) = refine([(0.5, [start])], everything, SIZE, 1)  # no steps of a path
    return member


def train_columns(
    logistic: list[list[Candidate]], level: Level
) -> tuple[list[list[Judged]], list[Judged], list[Judged]]:
    """The logistic regressions of each kind of columns, judged; the best of each kind; and the steps of the paths."""
    by_columns = [level.examined(some) for some in logistic]
    best = [best_of_row(judged) for judged in by_columns]
    starts = best if level.search.both_columns else [min(best, key=lambda one: one.criterion)]
    return by_columns, best, [one for start in starts for one in level.paths_from(start.candidate)]


def _search_level(logistic: list[list[Candidate]], level: Level) -> Chosen:
    by_columns, best, trained = train_columns(logistic, level)
    baseline = best[0]
    judged = [one for some in by_columns for one in some] + trained
    members = shortlist(judged)
    ours, theirs = level.curve(*members), level.curve(baseline)
    gain, error = level.gain(ours, theirs)
    unfolded = best[-1] is min(best, key=lambda one: one.criterion)
    accepted = bool(gain > _doubt(by_columns, level.fold, level.judge, unfolded=unfolded) * max(error, 1e-12))
    if not accepted:
        members = [baseline]
    figures = level.judge.criterion(theirs), level.judge.criterion(ours)
    verdict = Verdict(*figures, level.told_error(error), accepted, unit_of(level.judge.f))
    model = Ensemble([one.member for one in members])
    return Chosen(Found(model, table(judged, members, level.confidence), verdict), members, baseline)


def unit_of(f: Inefficiency) -> str:
    return "labels per set" if f.name == "size" else f"of mean inefficiency ({f.name})"


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
    if unfolded and len(own) > 1 and all(_clearly_positive(own[-1] - other, judge.weight) for other in own[:-1]):
        return 0.0
    return float(_DOUBT * judge.caution)


def has_signal(own: np.ndarray, fold: np.ndarray, judge: Judge) -> bool:
    """Whether held-out log-probabilities of the own labels are clearly above those of the labels' mere frequencies."""
    frequencies = np.empty(len(fold))
    for held in range(fold.max() + 1):
        seen = np.bincount(judge.y, judge.weight * (fold != held)) / judge.weight[fold != held].sum()
        frequencies[fold == held] = np.log(np.maximum(seen, 1e-12))[judge.y[fold == held]]
    return _clearly_positive(own - frequencies, judge.weight)


def _clearly_positive(x: np.ndarray, weight: np.ndarray) -> bool:
    """Whether the mean is above nothing by more than its standard error allows for."""
    mean = weight @ x
    return bool(mean > _CLEAR * np.sqrt(np.sum((weight * (x - mean)) ** 2)))
