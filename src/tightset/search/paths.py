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

from tightset.compute.arrays import Array, as_array, room_for_scores, to_numpy
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
from tightset.search.settings import Search
from tightset.solvers.descent import Solution
from tightset.solvers.lbfgs import lbfgs

__all__ = ["Candidate", "View", "fits_of", "logistic_candidates", "path_candidates"]

_TRAINED_IN = np.float32  # judging, calibrating and predicting are in the precision of X
_LOGISTIC_ITERATIONS = 200
_UNFOLDED_ITERATIONS = 60  # the weakly held ones take long to converge, and sets are no smaller for it
_SCORES_PER_CHUNK = 2**20  # scores of the candidates that one thread trains together
_PARAMETERS_PER_CHUNK = 2**20  # L-BFGS keeps twenty times as many
_RESTART_NOISE = 0.3  # of the root mean square of the parameters


@dataclass(frozen=True, eq=False)
class View:
    """Training rows as the measures see them, sorted by label, with the fold weights of every fit.

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

    @classmethod
    def of(
        cls, columns: Columns, X: Any, y: np.ndarray, n_classes: int, weight: np.ndarray, device: str | None
    ) -> Self:
        Z, centre = columns.apply(X)
        view = cls(columns, None, y, n_classes, weight, centre, device)
        return replace(view, X=view.laid_out(Z))

    @cached_property
    def axes(self) -> Axes | None:
        """The principal axes of dense rows."""
        return None if sparse.issparse(self.X) else Axes.of(to_numpy(self.X), self.weight[-1])

    @cached_property
    def along_axes(self) -> Any:
        """The rows ``(k, m)`` that training sees."""
        axes = self.axes
        return self.X if axes is None else self.laid_out(to_numpy(self.X) @ axes.vectors)

    def laid_out(self, Z: Any) -> Any:
        """Rows as products read them fastest: scores then come out with rows last, so sums add long vectors."""
        Z = self.place(Z)
        return np.asfortranarray(Z) if isinstance(Z, np.ndarray) else Z

    def place(self, x: Any) -> Any:
        return as_array(x, _TRAINED_IN, self.device)

    def into(self, theta: np.ndarray) -> np.ndarray:
        """Parameters of columns ``(..., m, D)`` as those of axes."""
        return theta if self.axes is None else self.axes.into(theta)

    def back(self, theta: Array) -> np.ndarray:
        """Parameters of axes as those of columns."""
        return to_numpy(theta) if self.axes is None else self.axes.back(to_numpy(theta))

    def steps(self, pull: np.ndarray) -> Array | None:
        """The scale of parameters held by ``pull (B, m, 1)``, for `lbfgs`."""
        return None if self.axes is None else self.place(self.axes.steps(pull))

    def training(
        self, measure: str, objective: Objective, fits: np.ndarray, anchor: np.ndarray, pull: np.ndarray
    ) -> Training:
        """The losses of some fits, for `lbfgs`."""
        weight, anchor, pull = (self.place(x) for x in (self.weight[fits], anchor, pull))
        centre = self.place(self.centre)
        return Training(self.along_axes, self.y, MEASURES[measure], objective, weight, anchor, pull, centre)


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
    views: Sequence[View], strengths: Sequence[float], *, threads: Threads, progress: Progress
) -> list[list[Candidate]]:
    """Logistic regressions on each view; ``pull = 1 / C`` in the notation of scikit-learn."""
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
        return _logistic_path(views[at], fits, of_view[at], threads, progress)

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
    view: View, fits: np.ndarray, strengths: Sequence[float], threads: Threads, progress: Progress
) -> list[Solution]:
    """From the most to the least regularised; the intercept is free."""
    start = np.zeros((len(fits), view.X.shape[1], view.n_classes))
    held = np.ones((len(fits), view.X.shape[1], 1))
    held[:, -1] = 0
    held /= view.weight[fits].sum(axis=1)[:, None, None]
    theta = view.place(start)
    max_iter = _LOGISTIC_ITERATIONS if view.columns.knots is None else _UNFOLDED_ITERATIONS
    found = []
    for C in strengths:
        problem = view.training("softmax", LogLoss(), fits, start, held / C)
        steps = view.steps(held / C)
        solution = lbfgs(problem, theta, max_iter=max_iter, scale=steps, callback=threads.tick)
        theta = solution.theta
        found.append(solution._replace(theta=view.back(theta)))
        progress.advance()
    return found


class _Run(NamedTuple):
    measure: str
    gamma: float
    again: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.measure} gamma={self.gamma:g}" + (f" restart {self.again}" if self.again else "")


def path_candidates(
    start: Candidate,
    search: Search,
    judge: Judge,
    *,
    rng: np.random.Generator,
    threads: Threads,
    progress: Progress,
) -> list[Candidate]:
    """Every step of every path that leads away from one logistic regression, trained for what is judged."""
    view, origin = start.view, start.view.into(start.theta)
    F, m, _ = origin.shape
    steps = len(search.pulls)
    runs = [
        _Run(measure, gamma, again, int(rng.integers(2**62)))
        for measure, gamma in search.paths
        for again in range(search.restarts + 1)
    ]
    width = {run.measure: MEASURES[run.measure].start(start.theta[:1]).shape[2] for run in runs}
    parameters = {run: np.empty((steps, F, m, width[run.measure]), dtype=_TRAINED_IN) for run in runs}
    n_iter = {run: np.zeros((steps, F), dtype=int) for run in runs}

    of_objective: Callable[..., Objective] = partial(OBJECTIVES[search.objective], f=judge.f)
    if judge.terms is not None:
        of_objective = partial(OnTerms, f=judge.f, rows=TermsOfRows.of(judge.terms, view.y, judge.f, view.place))

    def follow(pairs: list[tuple[_Run, int]]) -> list[Solution]:
        measure = pairs[0][0].measure
        fits = np.array([fit for _, fit in pairs])
        anchor, whole = MEASURES[measure].start(origin[fits]), MEASURES[measure].start(origin[-1:])[0]
        theta = view.place(anchor + np.stack([_displacement(run, whole) for run, _ in pairs]))
        gamma = view.place(np.array([run.gamma for run, _ in pairs]))
        objective = of_objective(view.place(np.full(len(pairs), judge.eps)), gamma)
        if judge.order is not None:
            objective = Ordered(objective, judge.order)
        found = []
        for pull in search.pulls:
            held = np.full((len(pairs), m, 1), pull)
            problem = view.training(measure, objective, fits, anchor, held)
            steps = view.steps(held)
            solution = lbfgs(problem, theta, max_iter=search.max_iter, scale=steps, callback=threads.tick)
            theta = solution.theta
            found.append(solution._replace(theta=view.back(theta)))
            progress.advance()
        return found

    chunks = []
    for measure, D in width.items():
        pairs = [(run, fit) for run in runs if run.measure == measure for fit in range(F)]
        budget = room_for_scores(view.device, _SCORES_PER_CHUNK)
        parameters_at_once = _PARAMETERS_PER_CHUNK if view.device is None else budget // 10
        size = max(1, min(budget // (len(view.y) * D), parameters_at_once // (m * D)))
        chunks += [pairs[at : at + size] for at in range(0, len(pairs), size)]
    progress.expect(steps * len(chunks))
    for pairs, found in zip(chunks, threads.spread(follow, chunks), strict=True):
        for step, solution in enumerate(found):
            for (run, fit), theta, took in zip(pairs, solution.theta, solution.n_iter, strict=True):
                parameters[run][step, fit], n_iter[run][step, fit] = theta, took
            if threads.elsewhere:
                progress.advance()
    return [
        Candidate(run.name, view, run.measure, theta, run.gamma, pull, int(took.max()), start)
        for run in runs
        for pull, theta, took in zip(search.pulls, parameters[run], n_iter[run], strict=True)
    ]


def _displacement(run: _Run, anchor: np.ndarray) -> np.ndarray:
    """Nothing at first, random for a restart; the same for every fold, so that their scores can be pooled."""
    if run.again == 0:
        return np.zeros_like(anchor)
    size = _RESTART_NOISE * np.sqrt(np.mean(anchor**2))
    noise = np.random.default_rng(run.seed).standard_normal(anchor.shape)
    return np.asarray(size * noise)
