"""The search at one level: candidates judged, gains with their errors, and one measure that serves all levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.identity import Same
from tightset.compute.progress import Progress
from tightset.compute.threads import Threads
from tightset.conformal.ranks import significance
from tightset.models.rules import Rule
from tightset.search.judging import Curve, Judge
from tightset.search.judging_terms import JudgeOnTerms
from tightset.search.paths import Candidate, path_candidates
from tightset.search.problem import Aim, Runtime, TrainingRows
from tightset.search.settings import Search
from tightset.search.shortlist import Judged, best_of_row, combined_scores, examine
from tightset.search.verdict import Found

__all__ = ["Chosen", "Level", "clearly_positive", "has_signal", "nested", "unit_of", "watched"]

_CLEAR = 2.0  # standard errors by which a likelihood is clearly better


class Level(NamedTuple):
    """A level to search at, and what with."""

    confidence: Any
    judge: Judge
    fold: np.ndarray
    search: Search
    rng: np.random.Generator
    threads: Threads
    progress: Progress
    named: str = "searching"  # for who watches
    combining: Mapping[str, Any] = MappingProxyType({})  # see `Aim`
    rule: Rule | None = None  # the best one for known probabilities, if that is not their own ranking

    @property
    def aimed(self) -> float | None:
        """The coverage that is trained for, if it is not the level."""
        return None if self.judge.eps == float(significance(self.confidence)) else 1 - self.judge.eps

    @classmethod
    def of(
        cls,
        confidence: Any,
        rows: TrainingRows,
        fold: np.ndarray,
        aim: Aim,
        search: Search,
        runtime: Runtime,
        threads: Threads,
    ) -> Self:
        """For training rows sorted by label, in folds ``fold (k,)``."""
        eps = aim.significance(confidence)
        rng = np.random.default_rng([*runtime.seed, eps.numerator, eps.denominator])
        terms = aim.terms(rows, float(eps))
        if terms is None:
            judge = Judge(rows.y, rows.weight, float(eps), aim.f, rng=rng)
        else:
            judge = JudgeOnTerms(rows.y, rows.weight, float(eps), aim.f, terms, rng=rng)
        judge.order = aim.order
        rule = aim.rule(rows) if search.plug_in else None
        return cls(confidence, judge, fold, search, rng, threads, runtime.progress, combining=aim.combining, rule=rule)

    def examined(self, candidates: Sequence[Candidate]) -> list[Judged]:
        return list(self.threads.map(lambda one: examine(one, self.fold, self.judge), candidates))

    def paths_from(self, start: Candidate, search: Search | None = None) -> list[Judged]:
        """Every step of every path away from a candidate, judged."""
        return self.examined(
            path_candidates(
                start,
                search or self.search,
                self.judge,
                rng=self.rng,
                threads=self.threads,
                progress=self.progress,
            )
        )

    def by_rule(self, judged: Sequence[Judged]) -> list[Judged]:
        """The same by the best rule for known probabilities, if that is not their own ranking.

        Paths do not start from it. Both ways were tried: a softmax measure trained through the hull, by derivatives
        that are pulled back through it, ended no better than it began; two-matrix measures fitted to hulls by least
        squares began worse than logistic regression, and ended about where paths from there do.
        """
        if self.rule is None:
            return []
        once = list({Same(one): one for one in judged}.values())
        ruled = self.examined([one.candidate.by(self.rule) for one in once])
        return [new._replace(likelihood=one.likelihood) for new, one in zip(ruled, once, strict=True)]

    def tuned(self, judged: list[Judged]) -> Judged:
        """The best of logistic regressions in a row.

        Costs hang on the few rows of costly labels near the threshold: too noisy to tell neighbours apart. So of
        those that cost at most a standard error more than the cheapest the likeliest is taken: every row tells of that.
        """
        if self.judge.terms is None or self.judge.terms.cost is None:
            return best_of_row(judged)
        its = self.curve(min(judged, key=lambda one: one.criterion))
        dearer = [self.gain(its, self.curve(one)) for one in judged]
        close = [one for one, (more, error) in zip(judged, dearer, strict=True) if more <= error]
        return max(close, key=lambda one: one.likelihood)

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


def watched(levels: Sequence[Level], parts: Sequence[Progress]) -> list[Level]:
    """The levels, each with its part of the progress."""
    names = (
        ["searching"]
        if len(levels) == 1
        else [f"searching level {at + 1} of {len(levels)}" for at in range(len(levels))]
    )
    return [level._replace(progress=part, named=name) for level, part, name in zip(levels, parts, names, strict=True)]


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


def unit_of(judge: Judge) -> str:
    """What a figure of the judge is in."""
    if judge.f.name != "size":
        return f"of mean inefficiency ({judge.f.name})"
    return "labels per set" if judge.terms is None or judge.terms.cost is None else "of cost per set"


def has_signal(own: np.ndarray, fold: np.ndarray, judge: Judge) -> bool:
    """Whether held-out log-probabilities of the own labels are clearly above those of the labels' mere frequencies."""
    frequencies = np.empty(len(fold))
    for held in range(fold.max() + 1):
        seen = np.bincount(judge.y, judge.weight * (fold != held)) / judge.weight[fold != held].sum()
        frequencies[fold == held] = np.log(np.maximum(seen, 1e-12))[judge.y[fold == held]]
    return clearly_positive(own - frequencies, judge.weight)


def clearly_positive(x: np.ndarray, weight: np.ndarray) -> bool:
    """Whether the mean is above nothing by more than its standard error allows for."""
    mean = weight @ x
    return bool(mean > _CLEAR * np.sqrt(np.sum((weight * (x - mean)) ** 2)))
