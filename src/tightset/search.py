"""Many candidates trained at once, and the choice among them on training rows only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
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
    """The measure that was taken, ``theta (m, C)``, the table it was chosen from, and the loss traces if kept."""

    theta: np.ndarray
    table: dict[str, np.ndarray]
    trace: np.ndarray | None


def grid_search(
    X: Array,
    y: np.ndarray,
    n_classes: int,
    *,
    confidence: Any,
    penalties: Iterable[float],
    sharpnesses: Iterable[float],
    learning_rates: Iterable[float],
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
    """The search of the paper for one level: all (lambda, gamma, eta) as one batched descent from zeros.

    Taken is the candidate with the smallest inefficiency of the training ICP (``selection = "inefficiency"``) or the
    one with the smallest loss; never one that failed. Levels are searched one at a time although they could share a
    descent: a large constant rate amplifies rounding, and a level's result should not depend on its company.

    Conventions
    -----------
    X : (k, m) standardised, the last column constant 1; theta : (m, C) in float64.
    The descent runs in ``dtype``; what is compared to choose is computed in float64.
    """
    grid = np.array(list(itertools.product(penalties, sharpnesses, learning_rates)), dtype=float)
    lam, gamma, rate = (column.astype(dtype) for column in grid.T)
    B, m = len(grid), X.shape[1]
    measure = Linear()
    rows = Rows(
        X.astype(dtype),
        y,
        None if sample_weight is None else sample_weight.astype(dtype),
        scores_per_row=B * n_classes,
        n_jobs=n_jobs,
    )
    eps = np.full(B, float(significance(confidence)), dtype=dtype)
    surrogate = Surrogate(
        rows,
        measure,
        Penalised(eps, lam, gamma, f=f, form=form),
        centre=None if centre is None else centre.astype(dtype),
    )
    with rows:
        solution = minimise(
            surrogate,
            np.zeros((B, m, n_classes), dtype=dtype),
            OPTIMISERS[optimiser](rate),
            max_iter=max_iter,
            tol=tol,
            keep_trace=keep_trace,
            callback=callback,
        )
    theta = solution.theta.astype(np.float64)
    table = {
        "confidence": np.full(B, float(confidence)),
        "penalty": grid[:, 0],
        "sharpness": grid[:, 1],
        "learning_rate": grid[:, 2],
        "loss": solution.loss.astype(np.float64),
        "inefficiency": training_inefficiency(X, y, theta, confidence, f, sample_weight, centre),
        "status": solution.status,
        "n_iter": solution.n_iter,
    }
    criterion = np.where(solution.status == "nonfinite", np.inf, table[selection])
    best = int(np.argmin(criterion))
    if not np.isfinite(criterion[best]):
        raise FloatingPointError(
            f"every candidate diverged at confidence {confidence}; try smaller learning rates or penalties"
        )
    return Chosen(theta[best], table | {"chosen": np.arange(B) == best}, solution.trace)


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
