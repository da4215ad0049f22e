"""How cost grows: log time against log size, for rows, candidates, columns and classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from clock import Ledger, Side, median_ms, slopes, take_turns
from engine import batched_grid
from samples import data, rows_of
from tightset.grid import GRID, grid_search

STEPS = 100
PARTS = (16, 4, 1)  # a sixteenth, a quarter and all
CANDIDATES = {5: (5, 1, 1), 20: (5, 4, 1), 80: (5, 4, 4)}  # of the paper's penalties, sharpnesses, learning rates


def search(X: np.ndarray, y: np.ndarray, C: int, candidates: int, n_jobs: int | None = None) -> None:
    """The paper's grid for one level, or part of it; with ``tol = 0`` nobody stops before the last step."""
    lam, gamma, eta = CANDIDATES[candidates]
    found = grid_search(
        X,
        y,
        C,
        confidences=[0.95],
        penalties=GRID["penalty"][:lam],
        sharpnesses=GRID["sharpness"][:gamma],
        learning_rates=GRID["learning_rate"][:eta],
        max_iter=STEPS,
        tol=0.0,
        n_jobs=n_jobs,
    )
    if not (found[0].table["n_iter"] == STEPS).all():
        raise AssertionError("a candidate stopped early: the cost of a step would be understated")


def measure(ledger: Ledger) -> None:
    for name in ("avila", "covtype"):
        d = data(name)
        k = len(d.y)
        order = np.random.default_rng(0).permutation(k)
        # A small problem may be one block, and so one thread's work; with one thread for all, only work is compared.
        for n_jobs, end, repeats in ((None, "", 7), (1, "_one_thread", 3)):
            how = "" if n_jobs is None else ", one thread"
            by_rows: dict[int, Side] = {}
            for part in PARTS:
                some = order[: k // part]
                by_rows[len(some)] = partial(search, d.X[some], d.y[some], d.n_classes, 80, n_jobs)
            _add(ledger, f"slope_rows_{name}{end}", by_rows, f"80 settings on {d.source}{how}", repeats)
            by_candidates = {n: partial(search, d.X, d.y, d.n_classes, n, n_jobs) for n in CANDIDATES}
            _add(ledger, f"slope_candidates_{name}{end}", by_candidates, f"all rows of {d.source}{how}", repeats)
    by_columns = {m: _grid(12000, m, 7) for m in (14, 55, 220)}
    _add(ledger, "slope_columns", by_columns, "12000 rows, 7 classes, 80 settings", 3)
    by_classes = {C: _grid(12000, 55, C) for C in (2, 7, 28)}
    _add(ledger, "slope_classes", by_classes, "12000 rows, 55 columns, 80 settings", 3)


def _grid(k: int, m: int, C: int) -> Side:
    X, y = rows_of(k, m, C)
    return lambda: batched_grid(X, y, C, STEPS)


def _add(ledger: Ledger, key: str, sides: Mapping[Any, Side], what: str, repeats: int) -> None:
    times = take_turns(sides, repeats)
    steps = {str(size): median_ms(row, STEPS) for size, row in times.items()}
    note = f"{what}: " + ", ".join(f"{size}: {ms:.2f} ms" for size, ms in steps.items())
    ledger.add(key, slopes(times), note, what=what, step_ms=steps)
