"""Set sizes of grids that were trained in float32 and in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from clock import Ledger, timed
from samples import Data, data
from tightset.grid import GRID, grid_search
from tightset.icp import Calibration

LEVELS = (0.8, 0.9, 0.95, 0.975, 0.99)
STEPS = 100


def sizes(d: Data, level: float, dtype: type) -> float:
    """Mean set size on test rows, calibrated on rows of their own, after the paper's grid in ``dtype``."""
    chosen = grid_search(
        d.X,
        d.y,
        d.n_classes,
        confidences=[level],
        penalties=GRID["penalty"],
        sharpnesses=GRID["sharpness"],
        learning_rates=GRID["learning_rate"],
        max_iter=STEPS,
        dtype=dtype,
    )[0]
    sets = Calibration.of(d.X_cal @ chosen.theta, d.y_cal).sets(d.X_test @ chosen.theta, level)
    return float(sets.sum(axis=1).mean())


def measure(ledger: Ledger) -> None:
    cells: list[dict[str, Any]] = []
    took = {"float32_s": 0.0, "float64_s": 0.0}
    for name in ("avila", "covtype"):
        d = data(name)
        for level in LEVELS:
            cell: dict[str, Any] = {"set": d.source, "level": level}
            for dtype in (np.float32, np.float64):
                cell[dtype.__name__], spent = timed(partial(sizes, d, level, dtype))
                took[f"{dtype.__name__}_s"] += spent
            cells.append(cell)
    note = f"mean set size over {len(cells)} cases, {STEPS} steps; the spread is between cases"
    single, double = (sum(cell[dtype] for cell in cells) for dtype in ("float32", "float64"))
    ratios = [cell["float32"] / cell["float64"] for cell in cells]
    ledger.add("float32_over_float64_size", ratios, note, value=single / double, steps=STEPS, cells=cells, **took)
