"""The search of the paper: its grid as one batched descent, and the choice among the candidates on training rows."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.arrays import as_array, room_for_scores, to_numpy
from tightset.compute.blocks import Rows
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.conformal.ranks import threshold
from tightset.measures import Linear
from tightset.models.columns import Columns
from tightset.models.ensembles import LinearModel
from tightset.objectives.cuda import can_fuse, fused
from tightset.objectives.penalised import Penalised
from tightset.objectives.training import Surrogate
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows, bounded
from tightset.search.settings import Grid
from tightset.solvers.descent import OPTIMISERS, Solution, minimise
from tightset.storage.registry import storable

__all__ = ["Chosen", "StandardisedRows", "descend", "grid_search", "training_inefficiency"]

_CHECK_EVERY_ON_DEVICE = 25  # steps; to look holds the device up


@storable
class Chosen(NamedTuple):
    """The measure that was taken, ``theta (m, C)``, the table it was chosen from, and the loss traces if kept."""

    theta: np.ndarray
    table: dict[str, np.ndarray]
    trace: np.ndarray | None


class StandardisedRows(NamedTuple):
    """Rows ``Z (k, m)``, the last column constant 1, and what was not taken off them if they are sparse."""

    Z: Any
    y: np.ndarray
    n_classes: int
    weight: np.ndarray | None = None
    centre: np.ndarray | None = None


def grid_search(rows: TrainingRows, aim: Aim, grid: Grid, runtime: Runtime) -> Outcome:
    """The linear model of each level, taken from the grid; see `descend`."""
    if aim.f.observed:
        raise ValueError(
            f"search='grid' trains for functions of set size, as the paper does; inefficiency={aim.f.name!r} counts "
            "false labels: use another search"
        )
    X, weight = rows.X.gather(), bounded(rows.weight)
    columns = Columns.plain(X, weight, standardise=grid.standardise)
    Z, centre = columns.apply(X)
    standardised = StandardisedRows(Z, rows.y, len(rows.classes), weight, centre)
    # On the host one level at a time, although levels could share a descent: a large constant rate amplifies
    # rounding, and a level's measure should not depend on which others were asked for.
    batches = [[level] for level in aim.levels] if runtime.device is None else [list(aim.levels)]
    runtime.progress.stage("searching the grid", len(batches) * grid.max_iter)
    found = [one for levels in batches for one in descend(standardised, aim._replace(levels=levels), grid, runtime)]
    return Outcome([LinearModel(columns, one.theta.astype(X.dtype)) for one in found], found)


def descend(rows: StandardisedRows, aim: Aim, grid: Grid, runtime: Runtime, dtype: Any = np.float32) -> list[Chosen]:
    """All (level, lambda, gamma, eta) as one batched descent from zeros.

    Taken for each level is the candidate with the smallest inefficiency of the training ICP (``selection =
    "inefficiency"``) or the one with the smallest loss; never one that failed; the first of the grid among equals.
    The descent runs in ``dtype``, on NumPy or on the device; choosing is done in float64.
    """
    Z, y, C, weight, centre = rows
    candidates = grid.candidates()
    level = np.repeat(np.arange(len(aim.levels)), len(candidates))
    of_all = np.tile(candidates, (len(aim.levels), 1))  # (B, 3)
    eps = np.array([float(aim.significance(one)) for one in aim.levels])[level]
    B, device = len(of_all), runtime.device
    place = partial(as_array, dtype=dtype, device=device)
    placed, placed_weight = place(Z), place(weight)

    def of_some(some: np.ndarray) -> Solution:
        penalty, sharpness, rate = (place(of_all[some, at]) for at in range(3))
        objective = Penalised(place(eps[some]), penalty, sharpness, f=aim.f, form=grid.loss_form)
        blocks = None
        if not can_fuse(placed):
            blocks = Rows(placed, y, placed_weight, scores_per_row=len(some) * C, n_jobs=runtime.n_jobs)
        with blocks or nullcontext():
            return minimise(
                fused(placed, y, placed_weight, objective)
                if blocks is None
                else Surrogate(blocks, Linear(), objective, place(centre)),
                place(np.zeros((len(some), Z.shape[1], C))),
                OPTIMISERS[grid.optimiser](rate),
                max_iter=grid.max_iter,
                tol=grid.tol,
                check_every=1 if device is None else _CHECK_EVERY_ON_DEVICE,
                keep_trace=grid.keep_trace,
                callback=lambda *_: runtime.progress.advance(),
            )

    at_once = max(room_for_scores(device, B * C * len(y)) // (C * len(y)), 1)
    solutions = [of_some(np.arange(at, min(at + at_once, B))) for at in range(0, B, at_once)]
    solution = solutions[0] if len(solutions) == 1 else _joined(solutions)
    return [
        _taken(rows, aim, confidence, grid, candidates, solution, level == at)
        for at, confidence in enumerate(aim.levels)
    ]


def _taken(
    rows: StandardisedRows,
    aim: Aim,
    confidence: Any,
    grid: Grid,
    candidates: np.ndarray,
    solution: Solution,
    own: np.ndarray,
) -> Chosen:
    """The best of a level's candidates, which are ``own (B,)`` of all."""
    theta = to_numpy(solution.theta).astype(np.float64)[own]
    table = {
        "confidence": np.full(len(candidates), float(confidence)),
        "penalty": candidates[:, 0],
        "sharpness": candidates[:, 1],
        "learning_rate": candidates[:, 2],
        "loss": solution.loss[own],
        "inefficiency": training_inefficiency(rows, theta, 1 - aim.significance(confidence), aim.f),
        "status": solution.status[own],
        "n_iter": solution.n_iter[own],
    }
    criterion = np.where(table["status"] == "nonfinite", np.inf, table[grid.selection])
    best = int(np.argmin(criterion))
    if not np.isfinite(criterion[best]):
        raise FloatingPointError(
            f"every candidate diverged at confidence {confidence}; try smaller learning rates or penalties"
        )
    chosen = {"chosen": np.arange(len(candidates)) == best}
    return Chosen(theta[best], table | chosen, None if solution.trace is None else solution.trace[:, own])


def _joined(solutions: list[Solution]) -> Solution:
    """Candidates that did not fit into memory together."""
    theta, loss, status, n_iter, traces = zip(*solutions, strict=True)
    steps = max(len(trace) for trace in traces) if traces[0] is not None else 0
    trace = None if traces[0] is None else np.hstack([_padded(one, steps) for one in traces])
    whole = np.concatenate([to_numpy(one) for one in theta])
    return Solution(whole, np.concatenate(loss), np.concatenate(status), np.concatenate(n_iter), trace)


def _padded(trace: np.ndarray, steps: int) -> np.ndarray:
    return np.pad(trace, ((0, steps - len(trace)), (0, 0)), constant_values=np.nan)


def training_inefficiency(
    rows: StandardisedRows, theta: np.ndarray, confidence: Any, f: Inefficiency = SIZE
) -> np.ndarray:
    """Mean ``f(size)`` of the training ICP, calibrated and applied on the training rows, of each candidate ``(B,)``."""
    Z, y, _, weight, centre = rows
    result = np.empty(len(theta))
    for b, candidate in enumerate(theta):
        A = Z @ candidate
        if centre is not None:
            A -= centre @ candidate[:-1]
        q = threshold(A[np.arange(len(y)), y], confidence, weight)
        size = np.sum(A >= q, axis=1)
        result[b] = np.average(f(size.astype(float)), weights=weight)
    return result
