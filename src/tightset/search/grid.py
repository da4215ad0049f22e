"""Many candidates trained at once, and the choice among them on training rows only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.arrays import Array, as_array, room_for_scores, to_numpy
from tightset.compute.blocks import Rows
from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.conformal.ranks import significance, threshold
from tightset.measures import Linear
from tightset.objectives.cuda import can_fuse, fused
from tightset.objectives.penalised import FORMS, Penalised
from tightset.objectives.training import Surrogate
from tightset.solvers.descent import Adam, GradientDescent, Solution, minimise
from tightset.storage.registry import storable

__all__ = ["GRID", "OPTIMISERS", "SELECTIONS", "Chosen", "check_grid", "grid_search", "training_inefficiency"]

OPTIMISERS = {"gradient-descent": GradientDescent, "adam": Adam}
SELECTIONS = ("inefficiency", "loss")
_CHECK_EVERY_ON_DEVICE = 25  # steps; to look holds the device up

Progress = Callable[[int, int], None]


@storable
class Chosen(NamedTuple):
    """The measure that was taken, ``theta (m, C)``, the table it was chosen from, and the loss traces if kept."""

    theta: np.ndarray
    table: dict[str, np.ndarray]
    trace: np.ndarray | None


GRID: dict[str, Any] = {
    "penalty": (10, 100, 500, 1000, 5000),
    "sharpness": (1, 2, 5, 10),
    "learning_rate": (1, 10, 100, 1000),
    "loss_form": "-1/L",
    "optimiser": "gradient-descent",
    "selection": "inefficiency",
    "max_iter": 1000,
    "tol": 1e-7,
}


def check_grid(settings: dict[str, Any]) -> None:
    """Raise unless the settings are such as those of `GRID`."""
    for name, letter in (("penalty", "lambda"), ("sharpness", "gamma"), ("learning_rate", "eta")):
        try:
            values = np.atleast_1d(np.asarray(settings[name], dtype=float))
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim > 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                f"{name} ({letter}) must be a positive number or a sequence of them; got {settings[name]!r}"
            )
    for name, allowed in (("loss_form", FORMS), ("optimiser", tuple(OPTIMISERS)), ("selection", SELECTIONS)):
        if settings[name] not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {settings[name]!r}")
    if not (isinstance(settings["tol"], (int, float, np.number)) and settings["tol"] >= 0):
        raise ValueError(f"tol must be zero or a positive number; got {settings['tol']!r}")


def grid_search(
    X: Array,
    y: np.ndarray,
    n_classes: int,
    *,
    confidences: Sequence[Any],
    penalties: Iterable[float],
    sharpnesses: Iterable[float],
    learning_rates: Iterable[float],
    sample_weight: np.ndarray | None = None,
    centre: np.ndarray | None = None,
    f: Inefficiency = SIZE,
    form: str = "-1/L",
    optimiser: str = "gradient-descent",
    selection: str = "inefficiency",
    max_iter: int = 1000,
    tol: float = 1e-7,
    dtype: Any = np.float32,
    device: str | None = None,
    keep_trace: bool = False,
    n_jobs: int | None = None,
    callback: Progress | None = None,
) -> list[Chosen]:
    """The search of the paper: all (level, lambda, gamma, eta) as one batched descent from zeros.

    Taken for each level is the candidate with the smallest inefficiency of the training ICP (``selection =
    "inefficiency"``) or the one with the smallest loss; never one that failed; the first of the grid among equals.

    Conventions
    -----------
    X : (k, m) standardised, the last column constant 1; theta : (m, C) in float64.
    The descent runs in ``dtype``, on NumPy or on the torch ``device``; choosing is done in float64.
    """
    grid = np.array(
        list(itertools.product(range(len(confidences)), penalties, sharpnesses, learning_rates)), dtype=float
    )
    level = grid[:, 0].astype(int)
    eps = np.array([float(significance(c)) for c in confidences])[level]
    B = len(grid)
    place = partial(as_array, dtype=dtype, device=device)
    Z, weight = place(X), place(sample_weight)

    def descend(some: np.ndarray) -> Solution:
        penalty, sharpness, rate = (place(grid[some, at]) for at in (1, 2, 3))
        objective = Penalised(place(eps[some]), penalty, sharpness, f=f, form=form)
        rows = None if can_fuse(Z) else Rows(Z, y, weight, scores_per_row=len(some) * n_classes, n_jobs=n_jobs)
        with rows or nullcontext():
            return minimise(
                fused(Z, y, weight, objective) if rows is None else Surrogate(rows, Linear(), objective, place(centre)),
                place(np.zeros((len(some), X.shape[1], n_classes))),
                OPTIMISERS[optimiser](rate),
                max_iter=max_iter,
                tol=tol,
                check_every=1 if device is None else _CHECK_EVERY_ON_DEVICE,
                keep_trace=keep_trace,
                callback=callback,
            )

    at_once = max(room_for_scores(device, B * n_classes * len(y)) // (n_classes * len(y)), 1)
    solutions = [descend(np.arange(at, min(at + at_once, B))) for at in range(0, B, at_once)]
    solution = solutions[0] if len(solutions) == 1 else _joined(solutions)
    theta = to_numpy(solution.theta).astype(np.float64)
    found = []
    for at, confidence in enumerate(confidences):
        own = level == at
        table = {
            "confidence": np.full(own.sum(), float(confidence)),
            "penalty": grid[own, 1],
            "sharpness": grid[own, 2],
            "learning_rate": grid[own, 3],
            "loss": solution.loss[own],
            "inefficiency": training_inefficiency(X, y, theta[own], confidence, f, sample_weight, centre),
            "status": solution.status[own],
            "n_iter": solution.n_iter[own],
        }
        criterion = np.where(table["status"] == "nonfinite", np.inf, table[selection])
        best = int(np.argmin(criterion))
        if not np.isfinite(criterion[best]):
            raise FloatingPointError(
                f"every candidate diverged at confidence {confidence}; try smaller learning rates or penalties"
            )
        chosen = {"chosen": np.arange(own.sum()) == best}
        trace = None if solution.trace is None else solution.trace[:, own]
        found.append(Chosen(theta[own][best], table | chosen, trace))
    return found


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
    X: Array,
    y: np.ndarray,
    theta: np.ndarray,
    confidence: Any,
    f: Inefficiency = SIZE,
    sample_weight: np.ndarray | None = None,
    centre: np.ndarray | None = None,
) -> np.ndarray:
    """Mean ``f(size)`` of the training ICP, calibrated and applied on the training rows, of each candidate ``(B,)``."""
    k = len(y)
    result = np.empty(len(theta))
    for b, candidate in enumerate(theta):
        A = X @ candidate
        if centre is not None:
            A -= centre @ candidate[:-1]
        q = threshold(A[np.arange(k), y], confidence, sample_weight)
        size = np.sum(A >= q, axis=1)
        result[b] = np.average(f(size.astype(float)), weights=sample_weight)
    return result
