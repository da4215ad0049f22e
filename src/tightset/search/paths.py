"""Candidates: logistic regressions, and the paths that lead away from them towards smaller sets.

A path follows one measure at one sharpness from the logistic coefficients, held to them more and more loosely; each
step starts where the one before ended. Every step is a candidate, trained on all rows and on the rows of each fold.
All of it is one batch: candidates and folds differ only in their parameters and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Array, Scratch, as_array, room_for_scores, to_numpy
from tightset.compute.identity import Same
from tightset.compute.progress import Progress
from tightset.compute.threads import Threads
from tightset.measures import MEASURES
from tightset.models.columns import Columns
from tightset.models.rules import Rule
from tightset.objectives import OBJECTIVES, Objective
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.on_terms import OnTerms, TermsOfRows
from tightset.objectives.ordered import Ordered
from tightset.objectives.training import Training
from tightset.search.axes import Axes
from tightset.search.judging import Judge
from tightset.search.on_device import descended
from tightset.search.settings import Search
from tightset.solvers.descent import Solution

__all__ = ["TOLERANCE", "Candidate", "View", "beginnings", "fits_of", "logistic_candidates", "trained"]

_TRAINED_IN = np.float32  # judging, calibrating and predicting are in the precision of X
TOLERANCE = 1e-6  # of the loss, relative
_LOGISTIC_ITERATIONS = 200
_UNFOLDED_ITERATIONS = 1.5  # times those of a step: weakly held ones take long to converge, and gain nothing by it
_LOGISTIC_TOLERANCE = 1e-5
_SCORES_PER_CHUNK = 2**20  # scores of the candidates that one thread trains together
_SCORES_FOR_TWO = 2**17  # below that a second thread costs more than it saves
_PARAMETERS_PER_CHUNK = 2**20  # L-BFGS keeps twenty times as many
_RESTART_NOISE = 0.3  # of the root mean square of the parameters


@dataclass(frozen=True, eq=False)
class View:
    """Training rows as the measures see them, sorted by fold and label, with the fold weights of every fit.

    X : (k, m); weight : (folds + 1, k), zero on the rows that a fold leaves out; the last one has them all. Training is
    along principal axes of the rows; judging is not, because scores that tie would be told apart by rounding.
    """

    columns: Columns
    X: Any
    y: np.ndarray
    n_classes: int
    weight: np.ndarray
    centre: np.ndarray | None
    device: str | None
    scratch: Scratch | None = None

    @classmethod
    def of(
        cls, columns: Columns, X: Any, y: np.ndarray, n_classes: int, weight: np.ndarray, device: str | None
    ) -> Self:
        Z, centre = columns.apply(X)
        view = cls(columns, None, y, n_classes, weight, centre, device, Scratch() if device is None else None)
        return replace(view, X=view.laid_out(Z))

    @cached_property
    def axes(self) -> Axes | None:
        """The principal axes of dense rows."""
        return None if sparse.issparse(self.X) else Axes.of(self.X, self.weight[-1])

    @cached_property
    def placed_weight(self) -> Array:
        return self.place(self.weight)

    @cached_property
    def along_axes(self) -> Any:
        """The rows ``(k, m)`` that training sees."""
        axes = self.axes
        if axes is None:
            return self.X
        if self.device is None:
            return self.laid_out(self.X @ axes.vectors)
        return (self.X.to(self._vectors.dtype) @ self._vectors).to(self.X.dtype)

    def laid_out(self, Z: Any) -> Any:
        """Rows as products read them fastest: scores then come out with rows last, so sums add long vectors."""
        Z = self.place(Z)
        return np.asfortranarray(Z) if isinstance(Z, np.ndarray) else Z

    def place(self, x: Any) -> Any:
        return as_array(x, _TRAINED_IN, self.device)

    def into(self, theta: np.ndarray) -> np.ndarray:
        """Parameters of columns ``(..., m, D)`` as those of axes."""
        if self.axes is None or self.device is None:
            return theta if self.axes is None else self.axes.into(theta)
        return to_numpy(self._vectors.T @ as_array(theta, np.float64, self.device))

    def back(self, theta: Array) -> np.ndarray:
        """Parameters of axes as those of columns."""
        if self.axes is None or self.device is None:
            return to_numpy(theta) if self.axes is None else self.axes.back(theta)
        return to_numpy(self._vectors @ theta.to(self._vectors.dtype))

    @cached_property
    def _vectors(self) -> Array:
        """Those of the axes, on the device."""
        assert self.axes is not None  # noqa: S101 - who asks has seen to that
        return as_array(self.axes.vectors, np.float64, self.device)

    def steps(self, pull: np.ndarray) -> Array | None:
        """The scale of parameters held by ``pull (B, m, 1)``, for `lbfgs`."""
        return None if self.axes is None else self.place(self.axes.steps(pull))

    def training(
        self, measure: str, objective: Objective, fits: np.ndarray, anchor: np.ndarray, pull: np.ndarray
    ) -> Training:
        """The losses of some fits, for `lbfgs`."""
        weight, anchor, pull = self.placed_weight[fits], self.place(anchor), self.place(pull)
        rest = self.place(self.centre), self.scratch, self.place(np.full(len(fits), np.nan))
        return Training(self.along_axes, self.y, MEASURES[measure], objective, weight, anchor, pull, *rest)


def fits_of(fold: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Weights ``(folds + 1, k)``: without the rows of each fold, and with all."""
    fits = np.stack([*(fold != held for held in range(fold.max() + 1)), np.ones(len(fold), dtype=bool)])
    return fits if weight is None else fits * weight


class Candidate(NamedTuple):
    """Parameters ``(folds + 1, m, D)`` of one measure: of each fold, and of all rows last."""

    path: str
    view: View
    measure: str
    theta: np.ndarray
    sharpness: float
    pull: float
    n_iter: int
    start: Candidate | None = None  # what a path led away from, and is held to
    rule: Rule | None = None  # by which its scores, log-probabilities, are scored

    @property
    def name(self) -> str:
        return f"{self.path}, pull {self.pull:.2g}, {self.view.columns.name} columns"

    def by(self, rule: Rule) -> Self:
        """The same with another score."""
        return self._replace(path=f"{self.path} by {rule.name}", rule=rule)


def logistic_candidates(
    views: Sequence[View],
    search: Search,
    *,
    threads: Threads,
    progress: Progress,
    tol: float = _LOGISTIC_TOLERANCE,
) -> list[list[Candidate]]:
    """Logistic regressions on each view; ``pull = 1 / C`` in the notation of scikit-learn."""
    strengths = search.strengths
    of_view = [[C / 10 if view.columns.knots is not None else C for C in strengths] for view in views]
    halves = [
        (at, fits)
        for at, view in enumerate(views)
        for fits in np.array_split(np.arange(len(view.weight)), 2 if view.device is None else 1)
    ]
    progress.expect(len(halves) * len(strengths))
    for view in views:
        _ = view.along_axes  # once, and not in every thread

    def follow(half: tuple[int, np.ndarray]) -> list[Solution]:
        at, fits = half
        unfolded = views[at].columns.knots is not None
        max_iter = int(_UNFOLDED_ITERATIONS * search.max_iter) if unfolded else _LOGISTIC_ITERATIONS
        return _logistic_path(views[at], fits, of_view[at], max_iter, tol, threads, progress)

    solved = list(threads.spread(follow, halves))
    found = []
    for at, view in enumerate(views):
        own = [solution for (of, _), solution in zip(halves, solved, strict=True) if of == at]
        found.append(
            [
                Candidate(
                    "logistic",
                    view,
                    "softmax",
                    np.concatenate([part.theta for part in parts]),
                    1.0,
                    1 / C,
                    int(max(part.n_iter.max() for part in parts)),
                )
                for C, parts in zip(of_view[at], zip(*own, strict=True), strict=True)
            ]
        )
    return found


def _logistic_path(
    view: View,
    fits: np.ndarray,
    strengths: Sequence[float],
    max_iter: int,
    tol: float,
    threads: Threads,
    progress: Progress,
) -> list[Solution]:
    """From the most to the least regularised; the intercept is free."""
    start = np.zeros((len(fits), view.X.shape[1], view.n_classes))
    held = np.ones((len(fits), view.X.shape[1], 1))
    held[:, -1] = 0
    held /= view.weight[fits].sum(axis=1)[:, None, None]
    theta = view.place(start)
    found = []
    for C in strengths:
        problem = view.training("softmax", LogLoss(), fits, start, held / C)
        steps = view.steps(held / C)
        how: Any = {"max_iter": max_iter, "tol": tol, "scale": steps, "callback": threads.tick}
        solution = descended(problem, theta, **how)
        theta = solution.theta
        found.append(solution._replace(theta=view.back(theta)))
        progress.advance()
    return found


def beginnings(start: Candidate, search: Search, rng: np.random.Generator) -> list[Candidate]:
    """Where each path begins that leads away from a logistic regression, or from the ranking of a classifier."""
    found = []
    for measure, gamma in search.paths:
        theta = MEASURES[measure].start(start.theta)
        for again in range(search.restarts + 1):
            name = f"{measure} gamma={gamma:g}" + (f" restart {again}" if again else "")
            moved = (
                theta + _displacement(theta[-1], np.random.default_rng(int(rng.integers(2**62)))) if again else theta
            )
            found.append(Candidate(name, start.view, measure, moved, gamma, np.inf, 0, start))
    return found


def trained(
    candidates: Sequence[Candidate],
    pulls: Sequence[float],
    max_iter: int,
    objective: str,
    judge: Judge,
    *,
    threads: Threads,
    progress: Progress,
    tol: float = TOLERANCE,
) -> list[Candidate]:
    """Candidates of one view, each a step further on its path: held by its pull, and trained for what is judged."""
    view = candidates[0].view
    F, m, _ = candidates[0].theta.shape
    of_objective: Callable[..., Objective] = partial(OBJECTIVES[objective], f=judge.f)
    if judge.terms is not None:
        of_objective = partial(OnTerms, f=judge.f, rows=TermsOfRows.of(judge.terms, view.y, judge.f, view.place))
    anchors = {Same(one.start): view.into(one.start.theta) for one in candidates if one.start is not None}
    begun = [view.into(one.theta) for one in candidates]

    def descend(pairs: np.ndarray) -> Solution:
        own, fits = [candidates[at] for at, _ in pairs], pairs[:, 1]
        measure = own[0].measure
        origin = np.stack([anchors[Same(one.start)][fit] for one, fit in zip(own, fits, strict=True)])
        theta = view.place(np.stack([begun[at][fit] for at, fit in pairs]))
        gamma = view.place(np.array([one.sharpness for one in own]))
        target = of_objective(view.place(np.full(len(pairs), judge.eps)), gamma)
        if judge.order is not None:
            target = Ordered(target, judge.order)
        held = np.broadcast_to(np.array([pulls[at] for at, _ in pairs])[:, None, None], (len(pairs), m, 1))
        problem = view.training(measure, target, fits, MEASURES[measure].start(origin), held)
        how: Any = {"max_iter": max_iter, "tol": tol, "scale": view.steps(held), "callback": threads.tick}
        found = descended(problem, theta, **how)
        progress.advance(len(pairs) / F)
        return found._replace(theta=view.back(found.theta))

    theta: list[Any] = [np.empty(one.theta.shape, dtype=_TRAINED_IN) for one in candidates]
    n_iter = np.zeros(len(candidates), dtype=int)
    chunks = _chunks(candidates)
    for pairs, found in zip(chunks, threads.spread(descend, chunks), strict=True):
        for (at, fit), own, took in zip(pairs, found.theta, found.n_iter, strict=True):
            theta[at][fit], n_iter[at] = own, max(n_iter[at], took)
        if threads.elsewhere:
            progress.advance(len(pairs) / F)
    return [
        one._replace(theta=own, pull=float(pull), n_iter=int(took))
        for one, own, pull, took in zip(candidates, theta, pulls, n_iter, strict=True)
    ]


def _chunks(candidates: Sequence[Candidate]) -> list[np.ndarray]:
    """Pairs (candidate, fit) that are trained together, ``(n, 2)``: of one measure, and no more than memory holds.

    What keeps two threads busy is cut in two at least, the same on every machine.
    """
    view = candidates[0].view
    F, m, _ = candidates[0].theta.shape
    budget = room_for_scores(view.device, _SCORES_PER_CHUNK)
    chunks = []
    for measure in dict.fromkeys(one.measure for one in candidates):
        own = [at for at, one in enumerate(candidates) if one.measure == measure]
        pairs = np.array([(at, fit) for at in own for fit in range(F)])
        D = candidates[own[0]].theta.shape[2]
        parameters_at_once = _PARAMETERS_PER_CHUNK if view.device is None else budget // 10
        size = max(1, min(budget // (len(view.y) * D), parameters_at_once // (m * D)))
        worth_two = view.device is None and len(pairs) * len(view.y) * D > _SCORES_FOR_TWO
        chunks += np.array_split(pairs, max(-(-len(pairs) // size), 1 + worth_two))
    return chunks


def _displacement(anchor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same for every fold, so that their scores can be pooled."""
    size = _RESTART_NOISE * np.sqrt(np.mean(anchor**2))
    return np.asarray(size * rng.standard_normal(anchor.shape))
