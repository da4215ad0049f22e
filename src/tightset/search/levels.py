"""The search at one level: candidates judged, gains with their errors, and one measure that serves all levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from tightset.search.paths import TOLERANCE, Candidate, beginnings, trained
from tightset.search.problem import Aim, Runtime, TrainingRows
from tightset.search.settings import Search
from tightset.search.shortlist import Judged, best_of_row, combined_scores, examined, shortlist
from tightset.search.verdict import Found

__all__ = ["Chosen", "Level", "clearly_positive", "has_signal", "nested", "outermost_first", "unit_of"]

_CLEAR = 2.0  # standard errors by which a likelihood is clearly better
_BEHIND = 0.1  # a path whose sets are so much larger than the smallest is given up
_RISEN = 0.005  # and one whose sets have become larger again by so much
_ONWARD = 0.5  # of the iterations of a step: what was trained for a level close by is close


class Level(NamedTuple):
    """A level to search at, and what with."""

    confidence: Any
    judge: Judge
    fold: np.ndarray
    search: Search
    rng: np.random.Generator
    threads: Threads
    progress: Progress
    combining: Mapping[str, Any] = MappingProxyType({})  # see `Aim`
    near: Sequence[Sequence[Candidate]] = ()  # the best of the outer levels, between which this one lies
    rule: Rule | None = None  # the best one for known probabilities, if that is not their own ranking
    from_each: int = 2  # candidates of each outer level, of different paths, that are trained for a level between
    tol: float = TOLERANCE  # of the steps of paths

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
        return examined(candidates, self.fold, self.judge, self.threads)

    def paths_from(self, start: Candidate, search: Search | None = None) -> list[Judged]:
        """Steps of the paths away from a candidate, judged; or, between levels that were searched, the best of these.

        Along a path sets become smaller, and then larger again: it ends where they no longer become smaller. It ends
        sooner if they are far larger than those of another path.
        """
        search = search or self.search
        if self.near:
            near = [[one for one in outer if one.view is start.view] for outer in self.near]
            onward = [one for outer in near for one in _of_different_paths(outer)[: self.from_each]]
            self.progress.expect(len(onward))
            as_they_are = self.examined([one for outer in near for one in outer])
            few = replace(search, max_iter=max(1, round(_ONWARD * search.max_iter)))
            return as_they_are + self.trained(onward, [one.pull for one in onward], few)
        going = beginnings(start, search, self.rng)
        least = [np.inf] * len(going)
        self.progress.expect(len(search.pulls) * len(going))
        found: list[Judged] = []
        for pull in search.pulls:
            steps = self.trained(going, [pull] * len(going), search)
            found += steps
            worst = _more(min([one.criterion for one in found], default=np.inf), _BEHIND)
            least = [min(so_far, one.criterion) for so_far, one in zip(least, steps, strict=True)]
            goes = [
                one.criterion <= min(_more(so_far, _RISEN), worst) for so_far, one in zip(least, steps, strict=True)
            ]
            going = [one.candidate for one, on in zip(steps, goes, strict=True) if on]
            least = [so_far for so_far, on in zip(least, goes, strict=True) if on]
        return found

    def trained(self, candidates: Sequence[Candidate], pulls: Sequence[float], search: Search) -> list[Judged]:
        """Each candidate a step further, held by its pull, judged."""
        how: Any = {"threads": self.threads, "progress": self.progress, "tol": self.tol}
        if not candidates:
            return []
        return self.examined(trained(candidates, pulls, search.max_iter, search.objective, self.judge, **how))

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


class Chosen(NamedTuple):
    """What the search at a level found, what it is made of, and the baseline that it was compared with."""

    found: Found
    members: list[Judged]
    baseline: Judged
    steps: Sequence[Judged] = ()  # of all paths


def outermost_first(
    levels: Sequence[Level], search: Callable[[Level], Chosen], parts: Sequence[Progress]
) -> list[Chosen]:
    """What is found at each level: the lowest and the highest are searched in full, those between from their best.

    Measures for neighbouring levels have much in common, and those in between lie between them.
    """
    order = sorted(range(len(levels)), key=lambda at: float(levels[at].confidence))
    order = [*order[:1], *order[:0:-1][:1], *order[1:-1]]
    found: dict[int, Chosen] = {}
    near: list[list[Candidate]] = []
    for turn, (at, part) in enumerate(zip(order, parts, strict=True)):
        name = "searching" if len(levels) == 1 else f"searching level {turn + 1} of {len(levels)}"
        level = levels[at]._replace(progress=part, near=near if turn > 1 and any(near) else ())
        part.stage(name)
        found[at] = search(level)
        if turn < 2:
            told = f" for {float(level.confidence):g}"
            best = [one.candidate for one in shortlist(found[at].steps)]
            near.append([one._replace(path=one.path + told) for one in best])
    return [found[at] for at in range(len(levels))]


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
        result.append(own._replace(found=found, members=best.members))
    return result


def _of_different_paths(best: Sequence[Candidate]) -> list[Candidate]:
    first = {one.path: one for one in reversed(best)}
    return [one for one in best if first[one.path] is one]


def _more(criterion: float, share: float) -> float:
    return criterion + share * abs(criterion)


def unit_of(judge: Judge) -> str:
    """What a figure of the judge is in."""
    if judge.f.name != "size":
        return f"(mean inefficiency {judge.f.name!r})"
    return "labels per set" if judge.terms is None or judge.terms.cost is None else "(cost per set)"


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
