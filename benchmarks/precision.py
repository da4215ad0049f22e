"""Set sizes of the default search, trained in float32 and in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from clock import Ledger, timed
from samples import Data, data
from tightset import SCPOClassifier
from tightset.search import paths

LEVELS = (0.9, 0.99)


def size(d: Data, level: float, dtype: Any) -> float:
    """Mean set size on test rows after a default fit whose descents run in ``dtype``."""
    before, paths._TRAINED_IN = paths._TRAINED_IN, dtype
    try:
        clf = SCPOClassifier(level, random_state=0, verbose=False).fit(
            d.X[:, :-1], d.y, X_cal=d.X_cal[:, :-1], y_cal=d.y_cal
        )
    finally:
        paths._TRAINED_IN = before
    return float(clf.predict_set(d.X_test[:, :-1]).sum(axis=1).mean())


def measure(ledger: Ledger) -> None:
    cells: list[dict[str, Any]] = []
    took = {"float32_s": 0.0, "float64_s": 0.0}
    for name in ("avila", "covtype"):
        d = data(name)
        for level in LEVELS:
            cell: dict[str, Any] = {"set": d.source, "level": level}
            for dtype in (np.float32, np.float64):
                cell[dtype.__name__], spent = timed(partial(size, d, level, dtype))
                took[f"{dtype.__name__}_s"] += spent
            cells.append(cell)
    note = f"mean set size over {len(cells)} default fits; the spread is between them"
    single, double = (sum(cell[dtype] for cell in cells) for dtype in ("float32", "float64"))
    ratios = [cell["float32"] / cell["float64"] for cell in cells]
    ledger.add("float32_over_float64_size", ratios, note, value=single / double, cells=cells, **took)
