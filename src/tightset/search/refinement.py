"""Training on all rows of a model that was chosen on a sample: more rows than the search uses, or than memory holds.

Losses and gradients are sums over blocks of rows, wherever those lie, so they are those of all rows together. An
evaluation takes one pass for logistic regression and two for the profiled objective: own-label scores are counted in
narrow bins, from which the threshold follows; then everything is summed up at that threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tightset.compute.identity import Same
from tightset.compute.rows import Summed
from tightset.conformal.inefficiency import Inefficiency
from tightset.measures import MEASURES
from tightset.models.ensembles import Member
from tightset.objectives import OBJECTIVES
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.terms import Terms
from tightset.search.all_rows import OnAllRows, Piece, total_weight
from tightset.search.paths import Candidate
from tightset.search.refinement_on_device import RowsOnDevice
from tightset.search.settings import Search
from tightset.search.shortlist import Judged
from tightset.solvers.lbfgs import lbfgs

__all__ = ["refine"]

_TOLERANCE = 1e-9  # of the coverage that the bins tell
_GAIN = 1e-4  # of a step, relative; three in a row that gain less end a descent
_PARAMETERS_AT_ONCE = 2**21  # L-BFGS keeps twenty times as many
_LOGISTIC_ITERATIONS = 200


def refine(
    levels: Sequence[tuple[float, list[Judged]]],
    rows: Summed,
    f: Inefficiency,
    search: Search,
    callback: Callable[[], None] | None = None,
    terms: Sequence[tuple[Terms, Terms] | None] | None = None,
    order: np.ndarray | None = None,
    there: RowsOnDevice | None = None,
) -> list[list[Member]]:
    """The members of each level ``(eps, members)``, trained on all rows from where the sample brought them.

    ``terms`` of a level are those that it is trained on, and those by which its members are combined; the labels of
    ``rows`` are then codes, ``y + C group``. ``order`` is that of labels whose sets are intervals. Where ``there`` has
    the same rows on a device, it trains.

    First the logistic regressions among them and those that paths started from, but for the ranking of a classifier,
    which is held to what it is; then the steps of the paths, held to these as they were in the search.
    """
    terms = terms or [None] * len(levels)
    chosen = [
        (eps, one.candidate, one.threshold, of_level)
        for (eps, members), of_level in zip(levels, terms, strict=True)
        for one in members
    ]
    starts = {Same((one.start or one).theta): one.start or one for _, one, *_ in chosen}

    def descended(pieces: list[Piece], max_iter: int) -> list[Piece]:
        if there is not None:
            return there.descended(pieces, max_iter, _GAIN, callback)
        return _descended(pieces, rows, max_iter, callback)

    total = float(rows.total(total_weight)[0])
    logistic = {key: one.theta[-1].astype(np.float64) for key, one in starts.items()}
    free = {key: one for key, one in starts.items() if np.isfinite(one.pull)}
    trained = descended([_logistic(one, total) for one in free.values()], _LOGISTIC_ITERATIONS) if free else []
    logistic |= {key: piece.theta for key, piece in zip(free, trained, strict=True)}
    pieces = [
        _piece(one, logistic[Same((one.start or one).theta)], eps, f, about, of_level, search.objective)
        for eps, one, about, of_level in chosen
    ]
    pieces = [piece._replace(order=order) for piece in pieces]
    on_paths = [at for at, (_, one, *_) in enumerate(chosen) if one.start is not None]
    if on_paths:
        found = descended([pieces[at] for at in on_paths], search.max_iter)
        for at, piece in zip(on_paths, found, strict=True):
            pieces[at] = piece
    pieces = [_to_be_combined(piece, one) for piece, one in zip(pieces, chosen, strict=True)]
    if there is not None:
        thresholds = np.array(there.thresholds(pieces))[:, None]
    else:
        thresholds = OnAllRows.of(rows, pieces, callback).thresholds([piece.theta for piece in pieces], hard=True)
    members = iter(_member(piece, q) for piece, q in zip(pieces, thresholds, strict=True))
    return [[next(members) for _ in own] for _, own in levels]


def _to_be_combined(piece: Piece, chosen: tuple[float, Candidate, Any, tuple[Terms, Terms] | None]) -> Piece:
    """With the thresholds that its level combines members by."""
    _, _, about, terms = chosen
    return piece if terms is None else piece._replace(terms=terms[1], about=_about(about, terms[1]))


def _about(threshold: Any, terms: Terms) -> np.ndarray:
    """Where to look for the threshold of each category: where that of a label with such a category was."""
    about = np.zeros(terms.n_thresholds)
    about[terms.index] = np.broadcast_to(threshold, terms.offset.shape) - terms.offset
    return about


def _logistic(candidate: Candidate, total: float) -> Piece:
    theta = candidate.theta[-1].astype(np.float64)
    held = np.full((len(theta), 1), candidate.pull / total)
    held[-1] = 0  # the intercept is free
    view, start = candidate.view, (theta, np.zeros_like(theta), held, np.zeros(1))
    return Piece(view.columns, "softmax", LogLoss(), 0.5, 1.0, *start, axes=view.axes)


def _piece(
    candidate: Candidate,
    logistic: np.ndarray,
    eps: float,
    f: Inefficiency,
    about: Any,
    terms: tuple[Terms, Terms] | None,
    objective: str,
) -> Piece:
    """A step of a path, which moves along with what it started from; or a logistic regression itself."""
    measure = MEASURES[candidate.measure]
    theta = anchor = measure.start(logistic[None])[0]
    if candidate.start is not None:
        theta = anchor + candidate.theta[-1] - measure.start(candidate.start.theta[-1:])[0]
    of_piece = OBJECTIVES[objective](np.array([eps]), np.array([candidate.sharpness]), f, _TOLERANCE)
    pull = np.full((len(theta), 1), candidate.pull)
    places = np.full(1, about) if terms is None else _about(about, terms[0])
    columns, own = candidate.view.columns, None if terms is None else terms[0]
    how = (columns, candidate.measure, of_piece, eps, candidate.sharpness)
    return Piece(*how, theta, anchor, pull, places, own, rule=candidate.rule, axes=candidate.view.axes)


def _of_labels(terms: Terms, q: np.ndarray) -> np.ndarray:
    """The threshold of each label ``(C,)``, costs among it."""
    return np.asarray(terms.thresholds(q)[0] + terms.offset)


def _member(piece: Piece, q: np.ndarray) -> Member:
    theta = piece.theta.astype(piece.columns.scaling.scale.dtype)
    threshold = float(q[0]) if piece.terms is None else _of_labels(piece.terms, q).astype(theta.dtype)
    return Member(piece.columns, piece.measure, theta, threshold, piece.rule)


def _descended(pieces: list[Piece], rows: Summed, max_iter: int, callback: Callable[[], None] | None) -> list[Piece]:
    """The pieces where they end, as many together as memory should hold."""
    at_once = max(_PARAMETERS_AT_ONCE // max(piece.theta.size for piece in pieces), 1)
    if len(pieces) > at_once:
        parts = [pieces[at : at + at_once] for at in range(0, len(pieces), at_once)]
        return [piece for part in parts for piece in _descended(part, rows, max_iter, callback)]
    problem = OnAllRows.of(rows, pieces, callback)
    solution = lbfgs(problem, problem.start(), max_iter=max_iter, tol=_GAIN)
    found = problem.unpacked(solution.theta)
    return [
        piece._replace(theta=own, about=q[: len(piece.about)])
        for piece, own, q in zip(pieces, found, problem.about, strict=True)
    ]
