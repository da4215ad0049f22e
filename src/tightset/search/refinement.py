"""Training on all rows of a model that was chosen on a sample: more rows than the search uses, or than memory holds.

Losses and gradients are sums over blocks of rows, wherever those lie, so they are those of all rows together. An
evaluation takes one pass for logistic regression and two for the profiled objective: own-label scores are counted in
narrow bins, from which the threshold follows; then everything is summed up at that threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Run, add_up, label_runs, own_label
from tightset.compute.identity import Same
from tightset.compute.rows import Summed
from tightset.conformal.inefficiency import Inefficiency
from tightset.measures import MEASURES
from tightset.measures.products import centred
from tightset.models.columns import Columns
from tightset.models.ensembles import Member
from tightset.objectives import OBJECTIVES, Objective
from tightset.objectives.log_loss import LogLoss
from tightset.search.paths import Candidate
from tightset.search.settings import Search
from tightset.search.shortlist import Judged
from tightset.solvers.lbfgs import lbfgs

__all__ = ["refine"]

_BINS = 2**14
_REACH = 30.0  # bins reach so far to either side of a threshold, in units of 1 / sharpness; sigmoids are flat beyond
_TOLERANCE = 1e-9  # of the coverage that the bins tell
_GAIN = 1e-4  # of a step, relative; three in a row that gain less end a descent
_WINDOWS = 50  # how often bins may be moved to where the threshold is
_ENTRIES_AT_ONCE = 2**17  # of rows that are worked on together, so that they and their scores stay in cache
_PARAMETERS_AT_ONCE = 2**21  # L-BFGS keeps twenty times as many
_LOGISTIC_ITERATIONS = 200

Sums = tuple[np.ndarray, ...]


class _Piece(NamedTuple):
    """A measure that is trained from ``theta (m, D)``, held to ``anchor (m, D)`` by ``pull (m, 1)``.

    Its threshold, at the level ``eps``, is looked for about ``about``.
    """

    columns: Columns
    measure: str
    objective: Objective
    eps: float
    sharpness: float
    theta: np.ndarray
    anchor: np.ndarray
    pull: np.ndarray
    about: float

    @property
    def step(self) -> float:
        """The width of a bin."""
        return 2 * _REACH / self.sharpness / _BINS


def refine(
    levels: Sequence[tuple[float, list[Judged]]],
    rows: Summed,
    f: Inefficiency,
    search: Search,
    callback: Callable[[], None] | None = None,
) -> list[list[Member]]:
    """The members of each level ``(eps, members)``, trained on all rows from where the sample brought them.

    First the logistic regressions among them and those that paths started from; then the steps of the paths, held to
    these as they were in the search.
    """
    chosen = [(eps, one.candidate, one.threshold) for eps, members in levels for one in members]
    starts = list(dict.fromkeys(Same(one.start or one) for _, one, _ in chosen))
    total = float(rows.total(_weight)[0])
    trained = _descended([_logistic(one.of, total) for one in starts], rows, _LOGISTIC_ITERATIONS, callback)
    logistic = {key: piece.theta for key, piece in zip(starts, trained, strict=True)}
    how = OBJECTIVES[search.objective]
    pieces = [_piece(one, logistic[Same(one.start or one)], eps, f, about, how) for eps, one, about in chosen]
    on_paths = [at for at, (_, one, _) in enumerate(chosen) if one.start is not None]
    if on_paths:
        found = _descended([pieces[at] for at in on_paths], rows, search.max_iter, callback)
        for at, piece in zip(on_paths, found, strict=True):
            pieces[at] = piece
    thresholds = _OnAllRows.of(rows, pieces, callback).thresholds([piece.theta for piece in pieces], hard=True)
    members = iter(_member(piece, q) for piece, q in zip(pieces, thresholds, strict=True))
    return [[next(members) for _ in own] for _, own in levels]


def _logistic(candidate: Candidate, total: float) -> _Piece:
    theta = candidate.theta[-1].astype(np.float64)
    held = np.full((len(theta), 1), candidate.pull / total)
    held[-1] = 0  # the intercept is free
    return _Piece(candidate.view.columns, "softmax", LogLoss(), 0.5, 1.0, theta, np.zeros_like(theta), held, 0.0)


def _piece(
    candidate: Candidate,
    logistic: np.ndarray,
    eps: float,
    f: Inefficiency,
    about: float,
    objective_of: Callable[..., Objective],
) -> _Piece:
    """A step of a path, which moves along with what it started from; or a logistic regression itself."""
    measure = MEASURES[candidate.measure]
    theta = anchor = measure.start(logistic[None])[0]
    if candidate.start is not None:
        theta = anchor + candidate.theta[-1] - measure.start(candidate.start.theta[-1:])[0]
    objective = objective_of(np.array([eps]), np.array([candidate.sharpness]), f, _TOLERANCE)
    pull = np.full((len(theta), 1), candidate.pull)
    columns = candidate.view.columns
    return _Piece(columns, candidate.measure, objective, eps, candidate.sharpness, theta, anchor, pull, about)


def _member(piece: _Piece, threshold: float) -> Member:
    theta = piece.theta.astype(piece.columns.scaling.scale.dtype)
    return Member(piece.columns, piece.measure, theta, float(threshold))


def _descended(pieces: list[_Piece], rows: Summed, max_iter: int, callback: Callable[[], None] | None) -> list[_Piece]:
    """The pieces where they end, as many together as memory should hold.

    They differ in the number of parameters: zeros fill the rest of a row of `lbfgs`.
    """
    at_once = max(_PARAMETERS_AT_ONCE // max(piece.theta.size for piece in pieces), 1)
    if len(pieces) > at_once:
        parts = [pieces[at : at + at_once] for at in range(0, len(pieces), at_once)]
        return [piece for part in parts for piece in _descended(part, rows, max_iter, callback)]
    theta = np.zeros((len(pieces), max(piece.theta.size for piece in pieces)))
    for row, piece in zip(theta, pieces, strict=True):
        row[: piece.theta.size] = piece.theta.ravel()
    problem = _OnAllRows.of(rows, pieces, callback)
    solution = lbfgs(problem, theta, max_iter=max_iter, tol=_GAIN)
    found = problem.unpacked(solution.theta)
    return [
        piece._replace(theta=own, about=q) for piece, own, q in zip(pieces, found, problem.about.tolist(), strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _OnAllRows:
    """Losses ``(B,)`` and gradients ``(B, P)`` of several measures over all rows, as `lbfgs` wants them.

    ``about`` is where thresholds were found last, and are looked for next.
    """

    rows: Summed
    pieces: list[_Piece]
    about: np.ndarray
    at: np.ndarray  # of these pieces in ``about``
    callback: Callable[[], None] | None

    @classmethod
    def of(cls, rows: Summed, pieces: list[_Piece], callback: Callable[[], None] | None) -> Self:
        about = np.array([piece.about for piece in pieces], dtype=np.float64)
        return cls(rows, pieces, about, np.arange(len(pieces)), callback)

    def take(self, candidates: np.ndarray) -> Self:
        return replace(self, pieces=[self.pieces[b] for b in candidates], at=self.at[candidates])

    def unpacked(self, theta: np.ndarray) -> list[np.ndarray]:
        shapes = [piece.anchor.shape for piece in self.pieces]
        return [row[: m * D].reshape(m, D) for row, (m, D) in zip(theta, shapes, strict=True)]

    def __call__(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parameters = self.unpacked(theta)
        if self.pieces[0].objective.needs_threshold:
            self.thresholds(parameters)
        groups = _groups(self.pieces, parameters)
        found = iter(self.rows.total(_losses, groups, self.about[self.at]))
        loss, gradient = np.empty(len(theta)), np.zeros_like(theta)
        for group in groups:
            sums, by_all, by_own = next(found), next(found), next(found)
            loss[group.at], of_all, of_own = group.objective.combine(tuple(sums))
            pulled = of_own[:, None, None] * by_own
            if of_all is not None:
                pulled += of_all[:, None, None] * by_all
            gradient[group.at, : group.theta[0].size] = pulled.reshape(len(group.at), -1)
        for b, (piece, own) in enumerate(zip(self.pieces, parameters, strict=True)):
            away = own - piece.anchor
            loss[b] += np.sum(piece.pull * away**2) / 2
            gradient[b, : own.size] += (piece.pull * away).ravel()
        if self.callback is not None:
            self.callback()
        return loss, gradient

    def thresholds(self, parameters: list[np.ndarray], *, hard: bool = False) -> np.ndarray:
        """``q (B,)`` of smooth coverage, or the ``eps``-quantiles of the own-label scores; ``about`` follows them."""
        for _ in range(_WINDOWS):
            about = self.about[self.at]
            for b, counts in enumerate(self.rows.total(_counts, _groups(self.pieces, parameters), about)):
                piece = self.pieces[b]
                middles = about[b] + (np.arange(_BINS) - _BINS / 2 + 0.5) * piece.step
                if hard:
                    found = np.interp(piece.eps, np.cumsum(counts) / counts.sum(), middles + piece.step / 2)
                else:
                    found = piece.objective.threshold(middles[None], counts[None] / counts.sum())[0]
                self.about[self.at[b]] = found
            moved = np.abs(self.about[self.at] - about) * [piece.sharpness for piece in self.pieces]
            if (moved <= _REACH / 3).all():  # what lies beyond the bins is then far from the threshold
                break
        else:
            raise FloatingPointError("scores of the training rows are too far apart to find a threshold among them")
        found_at: np.ndarray = self.about[self.at]
        return found_at


def _weight(X: Any, y: np.ndarray, weight: np.ndarray | None) -> Sums:  # noqa: ARG001
    return (np.array(len(y) if weight is None else weight.sum(), dtype=np.float64),)


class _Group(NamedTuple):
    """Pieces of one measure on the same columns, which share their matrix products; ``at`` are their places."""

    at: np.ndarray
    columns: Columns
    measure: str
    objective: Objective
    theta: np.ndarray  # (B, m, D)
    step: np.ndarray  # (B,)


def _groups(pieces: list[_Piece], parameters: list[np.ndarray]) -> list[_Group]:
    alike: dict[tuple[Same, str], list[int]] = {}
    for b, piece in enumerate(pieces):
        alike.setdefault((Same(piece.columns), piece.measure), []).append(b)
    groups = []
    for at in alike.values():
        first, own = pieces[at[0]], [pieces[b] for b in at]
        objective = first.objective.beside([piece.objective for piece in own[1:]])
        theta, step = np.stack([parameters[b] for b in at]), np.array([piece.step for piece in own])
        groups.append(_Group(np.array(at), first.columns, first.measure, objective, theta, step))
    return groups


def _counts(X: Any, y: np.ndarray, weight: np.ndarray | None, groups: list[_Group], about: np.ndarray) -> Sums:
    """Own-label scores of each piece, counted in bins; those beyond are in the last ones."""
    counts = np.zeros((len(about), _BINS))
    for g, Z, centre, runs, w in _parts(X, y, weight, groups):
        group = groups[g]
        own = own_label(MEASURES[group.measure].forward(Z, centred(group.theta, centre))[0], runs)
        bins = (own - about[group.at][:, None]) / group.step[:, None] + _BINS / 2
        bins = bins.clip(0, _BINS - 1).astype(np.intp)
        for b, own_bins in zip(group.at, bins, strict=True):
            counts[b] += np.bincount(own_bins, w[0], minlength=_BINS)
    return tuple(counts)


def _losses(X: Any, y: np.ndarray, weight: np.ndarray | None, groups: list[_Group], q: np.ndarray) -> Sums:
    """Of each group the sums of its objective ``(., B)``, and its two raw derivatives pulled back, ``(B, m, D)``."""
    totals: list[Any] = [None] * len(groups)
    for g, Z, centre, runs, w in _parts(X, y, weight, groups):
        group, measure = groups[g], MEASURES[groups[g].measure]
        A, saved = measure.forward(Z, centred(group.theta, centre))
        sums, dF, dV = group.objective.block(A.copy(), runs, w, q[group.at])
        scattered = np.zeros_like(A)
        for label, start, stop in runs:
            scattered[:, start:stop, label] = dV[:, start:stop]
        pulled = [np.zeros(()) if dF is None else measure.backward(Z, None if saved is None else saved.copy(), dF)]
        pulled.append(measure.backward(Z, saved, scattered))
        for gradient in pulled:
            if centre is not None and gradient.ndim:
                gradient[:, :-1] -= centre[:, None] * gradient[:, -1:]
        own = (np.stack(sums), *pulled)
        totals[g] = own if totals[g] is None else add_up([totals[g], own])
    return tuple(part for total in totals for part in total)


def _parts(
    X: Any, y: np.ndarray, weight: np.ndarray | None, groups: list[_Group]
) -> Iterator[tuple[int, Any, np.ndarray | None, list[Run], np.ndarray]]:
    """A few rows at a time, sorted by label, as each group sees them, with their weights ``(1, r)``; in float64."""
    order = np.argsort(y, kind="stable")
    entries = X.nnz / len(y) if sparse.issparse(X) else max(group.theta.shape[1] for group in groups)
    size = max(int(_ENTRIES_AT_ONCE / max(entries, 1)), 64)
    for start in range(0, len(y), size):
        rows = order[start : start + size]
        part, runs = X[rows].astype(np.float64, copy=False), label_runs(y[rows])
        w = np.ones((1, len(rows))) if weight is None else weight[rows][None]
        seen: dict[Same, Any] = {}
        for g, group in enumerate(groups):
            columns = Same(group.columns)
            if columns not in seen:
                seen[columns] = group.columns.apply(part)
            yield g, *seen[columns], runs, w
