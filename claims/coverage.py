"""Does coverage hold whatever types rows come in? Over many calibration sets, for every pair of types (`make claims`).

Columns of two values, of which the first is the label but for 7 % of the rows: nearly all scores tie, and a tie that is
broken by rounding costs dozens of percent. A cell is the mean coverage over draws of 99 calibration rows and 50 new
rows; it must not be below 0.9 by more than four standard errors, and sets must stay small.

    python claims/coverage.py [--draws 300]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from tightset import ConformalClassifier, SCPOClassifier

FLOATS = ("float16", "float32", "float64")
TYPES = (*FLOATS, "int64", "bool", "Float64", "Int64")
CALIBRATED, NEW, LEVEL = 99, 50, 0.9


def plain(estimator: Any = None) -> Any:
    return ConformalClassifier(estimator, confidence=LEVEL, random_state=0)


MAKERS: dict[str, Callable[[], Any]] = {
    "SCPO": lambda: SCPOClassifier(LEVEL, search="fast", max_iter=5, random_state=0, verbose=False),
    "logistic regression": plain,
    "HistGradientBoosting": lambda: plain(HistGradientBoostingClassifier(max_iter=5)),
    "random forest": lambda: plain(RandomForestClassifier(5, n_jobs=1)),
    "LightGBM": lambda: plain(LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)),
}


def rows(seed: Any, n: int, values: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.choice(values, size=(n, 2))
    return X, ((X[:, 0] == values[1]) ^ (rng.uniform(size=n) < 0.07)).astype(int)


def of_type(X: np.ndarray, name: str) -> Any:
    """An array, or a frame for the types of pandas."""
    if name[0].isupper():
        return pd.DataFrame(X.astype("int64" if name == "Int64" else "float64"), columns=["a", "b"]).astype(name)
    return X.astype(name)


def coverage(clf: Any, calibrated: str, new: str, values: tuple[float, float], draws: int) -> tuple[float, float]:
    covered, size = [], []
    for draw in range(draws):
        (X_cal, y_cal), (X_new, y_new) = rows([3, draw], CALIBRATED, values), rows([4, draw], NEW, values)
        clf.calibrate(of_type(X_cal, calibrated), y_cal)
        sets = clf.predict_set(of_type(X_new, new))
        covered.append(sets[np.arange(NEW), y_new].mean())
        size.append(sets.sum(axis=1).mean())
    return float(np.mean(covered)), float(np.mean(size))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--draws", type=int, default=300)
    draws = asked.parse_args().draws
    variance = LEVEL * (1 - LEVEL) * (1 / (CALIBRATED + 2) + 1 / NEW)
    least = LEVEL - 4 * np.sqrt(variance / draws)
    failed = cells = 0
    for name, (values, types) in product(MAKERS, (((0.0, 1.0), TYPES), ((0.1, 0.7), FLOATS))):
        start, lowest, largest = time.monotonic(), 1.0, 0.0
        X, y = rows(0, 400, values)
        for trained in ("float32", "float64"):
            clf = MAKERS[name]().fit(of_type(X, trained), y)
            for calibrated, new in product(types, types):
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="X (does not have valid|has) feature names")
                    covered, size = coverage(clf, calibrated, new, values, draws)
                lowest, largest, cells = min(lowest, covered), max(largest, size), cells + 1
                if covered < least or size > 1.5:
                    failed += 1
                    print(f"  {name}, trained {trained}, calibrated {calibrated}, new {new}: {covered:.3f}, {size:.2f}")
        told = f"lowest coverage {lowest:.3f} (at least {least:.3f}), largest sets {largest:.2f}"
        print(f"{name}, values {values}: {told}; {time.monotonic() - start:.0f} s", flush=True)
    print(f"{cells} cells of {draws} draws, {failed} of them short.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
