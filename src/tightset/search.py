"""Many candidates trained at once, and the choice among them on training rows only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.arrays import Array
from tightset.icp import significance, threshold
from tightset.inefficiency import SIZE, Inefficiency
from tightset.measures import Linear
from tightset.objective import Penalised, Surrogate
from tightset.optimise import Adam, GradientDescent, minimise
from tightset.rows import Rows

__all__ = ["OPTIMISERS", "SELECTIONS", "Chosen", "grid_search", "training_inefficiency"]

OPTIMISERS = {"gradient-descent": GradientDescent, "adam": Adam}
SELECTIONS = ("inefficiency", "loss")

Progress = Callable[[int, int], None]


class Chosen(NamedTuple):
    """The measure of each level, ``theta (levels, m, C)``, and the table it was chosen from."""

    theta: np.ndarray
    table: dict[str, np.ndarray]
    trace: np.ndarray | None


def grid_search(
    X: Array,
    y: np.ndarray,
    n_classes: int,
    *,
    confidences: Sequence[Any],
    penalties: Sequence[float],
    sharpnesses: Sequence[float],
    learning_rates: Sequence[float],
    sample_weight: np.ndarray | None = None,
    centre: np.ndarray | None = None,
    f: Inefficiency = SIZE,
    form: str = "-1/L",
    optimiser: str = "gradient-descent",
    selection: str = "inefficiency",
    max_iter: int = 2000,
    tol: float = 1e-7,
    dtype: Any = np.float32,
    keep_trace: bool = False,
    n_jobs: int | None = None,
    callback: Progress | None = None,
) -> Chosen:
    """The search of the paper: all (level, lambda, gamma, eta) as one batched descent from zeros.

    For each level the candidate with the smallest inefficiency of the training ICP is taken (``selection =
    "inefficiency"``), or the one with the smallest loss. A candidate that failed is never taken; where all of a
    level's did, an error says so.

    Conventions
    -----------
    X : (k, m) standardised, the last column constant 1; theta : (levels, m, C) in float64.
    The descent runs in ``dtype``; what is compared to choose is computed in float64.
    """
    grid = np.array(
        list(itertools.product(range(len(confidences)), penalties, sharpnesses, learning_rates)), dtype=float
    )
    level = grid[:, 0].astype(int)
    eps = np.array([float(significance(c)) for c in confidences])[level]
    eps_, lam, gamma, rate = (column.astype(dtype) for column in (eps, *grid.T[1:]))
    B, m = len(grid), X.shape[1]
    measure = Linear()
    rows = Rows(
        X.astype(dtype),
        y,
        None if sample_weight is None else sample_weight.astype(dtype),
        scores_per_row=B * n_classes,
        n_jobs=n_jobs,
    )
    surrogate = Surrogate(
        rows,
        measure,
        Penalised(eps_, lam, gamma, f=f, form=form),
        centre=None if centre is None else centre.astype(dtype),
    )
    with rows:
        solution = minimise(
            surrogate,
            np.zeros((B, *measure.n_parameters(m, n_classes)), dtype=dtype),
            OPTIMISERS[optimiser](rate),
            max_iter=max_iter,
            tol=tol,
            keep_trace=keep_trace,
            callback=callback,
        )
    theta = solution.theta.astype(np.float64)
    table = {
        "confidence": np.array([float(c) for c in confidences])[level],
        "penalty": grid[:, 1],
        "sharpness": grid[:, 2],
        "learning_rate": grid[:, 3],
        "loss": solution.loss.astype(np.float64),
        "inefficiency": training_inefficiency(
            X, y, theta, [confidences[one] for one in level], f, sample_weight, centre
        ),
        "status": solution.status,
        "n_iter": solution.n_iter,
        "chosen": np.zeros(B, dtype=bool),
    }
    criterion = np.where(solution.status == "nonfinite", np.inf, table[selection])
    for one, confidence in enumerate(confidences):
        members = np.flatnonzero(level == one)
        best = members[np.argmin(criterion[members])]
        if not np.isfinite(criterion[best]):
            raise FloatingPointError(
                f"every candidate diverged at confidence {confidence}; try smaller learning rates or penalties"
            )
        table["chosen"][best] = True
    return Chosen(theta[table["chosen"]], table, solution.trace)


def training_inefficiency(
    X: Array,
    y: np.ndarray,
    theta: np.ndarray,
    confidences: Sequence[Any],
    f: Inefficiency = SIZE,
    sample_weight: np.ndarray | None = None,
    centre: np.ndarray | None = None,
) -> np.ndarray:
    """Mean ``f(size)`` of the training ICP, calibrated and applied on the training rows: ``(B,)``."""
    k = len(y)
    result = np.empty(len(theta))
    for b, (candidate, confidence) in enumerate(zip(theta, confidences, strict=True)):
        A = X @ candidate
        if centre is not None:
            A -= centre @ candidate[:-1]
        alpha = A[np.arange(k), y]
        size = (A >= threshold(alpha, confidence, sample_weight)).sum(axis=1)
        result[b] = np.average(f(size.astype(float)), weights=sample_weight)
    return result
