"""How cost grows: log time against log size, for rows, candidates, columns and classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from clock import Ledger, Side, median_ms, slopes, take_turns
from engine import batched_grid
from samples import data, rows_of
from tightset.compute.progress import Progress
from tightset.search.grid import StandardisedRows, descend
from tightset.search.problem import Aim, Runtime
from tightset.search.settings import Grid

STEPS = 20
TIMES = (1, 4, 16)  # the rows of a set so often
PARTS = (16, 4, 1)  # a sixteenth, a quarter and all
GRIDS = {5: (5, 1, 1), 20: (5, 4, 1), 80: (5, 4, 4), 320: (5, 8, 8), 1280: (5, 16, 16)}  # penalties, sharpnesses, rates


def finer(values: tuple[float, ...], n: int) -> np.ndarray:
    """The first ``n`` values of the paper, or ``n`` between its smallest and its largest."""
    if n <= len(values):
        return np.array(values[:n])
    return np.geomspace(values[0], values[-1], n)


def search(X: np.ndarray, y: np.ndarray, C: int, candidates: int) -> None:
    """The paper's grid for one level, part of it, or a finer one; with ``tol = 0`` nobody stops early."""
    lam, gamma, eta = GRIDS[candidates]
    grid = Grid(
        finer(Grid.penalty, lam), finer(Grid.sharpness, gamma), finer(Grid.learning_rate, eta), max_iter=STEPS, tol=0.0
    )
    found = descend(StandardisedRows(X, y, C), Aim([0.95]), grid, Runtime(Progress()))
    if not (found[0].table["n_iter"] == STEPS).all():
        raise AssertionError("a candidate stopped early: the cost of a step would be understated")


def measure(ledger: Ledger) -> None:
    for name in ("avila", "covtype"):
        d = data(name)
        k = len(d.y)
        more = {n * k: partial(search, np.tile(d.X, (n, 1)), np.tile(d.y, n), d.n_classes, 80) for n in TIMES}
        _add(ledger, f"slope_rows_{name}", more, f"{d.source}, the full grid; rows 1, 4 and 16 times", 2)
        wider = {n: partial(search, d.X, d.y, d.n_classes, n) for n in (80, 320, 1280)}
        _add(ledger, f"slope_candidates_{name}", wider, f"{d.source}, the full grid and finer ones", 2)
        order = np.random.default_rng(0).permutation(k)
        less: dict[int, Side] = {}
        for part in PARTS:
            some = order[: k // part]
            less[len(some)] = partial(search, d.X[some], d.y[some], d.n_classes, 80)
        _add(ledger, f"slope_rows_{name}_below", less, f"{d.source}, the full grid; parts of the rows", 5)
        coarser = {n: partial(search, d.X, d.y, d.n_classes, n) for n in (5, 20, 80)}
        _add(ledger, f"slope_candidates_{name}_below", coarser, f"{d.source}, parts of the grid", 5)
    by_columns = {m: _grid(12000, m, 7) for m in (14, 55, 220)}
    _add(ledger, "slope_columns", by_columns, "12000 rows, 7 classes, 80 settings", 3)
    by_classes = {C: _grid(12000, 55, C) for C in (2, 7, 28)}
    _add(ledger, "slope_classes", by_classes, "12000 rows, 55 columns, 80 settings", 3)


def _grid(k: int, m: int, C: int) -> Side:
    X, y = rows_of(k, m, C)
    return lambda: batched_grid(X, y, C, STEPS)


def _add(ledger: Ledger, key: str, sides: Mapping[Any, Side], what: str, repeats: int) -> None:
    times = take_turns(sides, repeats, warm=repeats > 2)
    steps = {str(size): median_ms(row, STEPS) for size, row in times.items()}
    note = f"{what}: " + ", ".join(f"{size}: {ms:.2f} ms" for size, ms in steps.items())
    ledger.add(key, slopes(times), note, what=what, step_ms=steps)
