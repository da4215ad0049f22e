"""Does coverage hold whatever types rows come in? Over many calibration sets, for every pair of types (`make claims`).

Columns of two values, of which the first is the label but for 7 % of the rows: nearly all scores tie, and a tie that is
broken by rounding costs dozens of percent. A cell is a way in for rows, a classifier and the types of its training
rows, of its calibration rows and of new rows: the mean coverage over draws of 99 calibration rows and 50 new rows. It
must not be below 0.9 by more than four standard errors, and sets must stay small.

    python claims/coverage.py [--draws 300] [--jobs 2]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from itertools import groupby, product
from typing import Any

import dask
import dask.array as da
import numpy as np
import onnxruntime
import pandas as pd
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from threadpoolctl import threadpool_limits

from tightset import ConformalClassifier, SCPOClassifier, Search
from tightset.export import to_onnx
from tightset.tables.fitting import fit_table

FLOATS = ("float16", "float32", "float64")
TYPES = (*FLOATS, "int64", "bool", "Float64", "Int64")
EVEN, UNEVEN = (0.0, 1.0), (0.1, 0.7)  # numbers that all types hold alike, and that no two float types do
CALIBRATED, NEW, LEVEL = 99, 50, 0.9


def plain(estimator: Any = None) -> Any:
    return ConformalClassifier(estimator, confidence=LEVEL, random_state=0)


MAKERS: dict[str, Callable[[], Any]] = {
    "SCPO": lambda: SCPOClassifier(LEVEL, search=Search.fast(max_iter=5), random_state=0, verbose=False),
    "logistic regression": plain,
    "HistGradientBoosting": lambda: plain(HistGradientBoostingClassifier(max_iter=5)),
    "random forest": lambda: plain(RandomForestClassifier(5, n_jobs=1)),
    "LightGBM": lambda: plain(LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)),
}


def rows(seed: Any, n: int, values: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.choice(values, size=(n, 2))
    return X, ((X[:, 0] == values[1]) ^ (rng.uniform(size=n) < 0.07)).astype(int)


def as_frame(X: np.ndarray, name: str) -> pd.DataFrame:
    return pd.DataFrame(X.astype("int64" if name == "Int64" else "float64"), columns=["a", "b"]).astype(name)


def as_array(X: np.ndarray, name: str) -> Any:
    """A frame for the types of pandas."""
    return as_frame(X, name) if name[0].isupper() else X.astype(name)


class Arrays:
    """Each way in: how it is fitted, calibrated, and asked for the sets of new rows."""

    of_type = staticmethod(as_array)

    def __init__(self, maker: str, X: np.ndarray, y: np.ndarray, trained: str):
        self.model = self.fitted(MAKERS[maker](), self.of_type(X, trained), y)

    def fitted(self, clf: Any, X: Any, y: np.ndarray) -> Any:
        return clf.fit(X, y)

    def calibrate(self, X: Any, y: np.ndarray) -> None:
        self.model.calibrate(X, y)

    def sets(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict_set(X))


class Tables(Arrays):
    of_type = staticmethod(as_frame)

    def fitted(self, clf: Any, X: Any, y: np.ndarray) -> Any:
        return fit_table(X.assign(label=y), "label", clf)

    def calibrate(self, X: Any, y: np.ndarray) -> None:
        self.model.predictor.calibrate(self.model.encode(X), y)


class Partitions(Arrays):
    """Dask's rows, but for those of training: what is fitted on them is another thing."""

    def calibrate(self, X: Any, y: np.ndarray) -> None:
        self.model.calibrate(da.from_array(X, chunks=(50, 2)), y)

    def sets(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict_set(da.from_array(X, chunks=(25, 2))))


class Graphs(Arrays):
    """An exported graph takes one type only, in which new rows are given to it."""

    def calibrate(self, X: Any, y: np.ndarray) -> None:
        super().calibrate(X, y)
        graph = to_onnx(self.model).SerializeToString()
        self.session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def sets(self, X: Any) -> np.ndarray:
        takes = {"tensor(float)": "float32", "tensor(double)": "float64"}[self.session.get_inputs()[0].type]
        return np.asarray(self.session.run(None, {"X": np.asarray(X, dtype=takes)})[0])


def pairs(types: Iterable[str]) -> list[tuple[str, str, str]]:
    """Triples of types (training, calibration, new rows) in which at most two differ."""
    return [triple for triple in product(types, repeat=3) if len(set(triple)) <= 2]


ARRAY_TYPES = tuple(name for name in TYPES if name.islower())
NUMBERS = tuple(name for name in TYPES if name != "bool")  # True and False in a table are categories, and 1 is refused
# The way in, its classifiers, and for each pair of values the types of training, calibration and new rows.
SWEEPS: list[tuple[type[Arrays], Iterable[str], tuple[float, float], list[tuple[str, str, str]]]] = [
    (Arrays, MAKERS, EVEN, pairs(TYPES)),
    (Arrays, MAKERS, UNEVEN, list(product(FLOATS, repeat=3))),
    (Tables, ("SCPO", "logistic regression", "HistGradientBoosting"), EVEN, [*pairs(NUMBERS), ("bool",) * 3]),
    (Tables, ("SCPO", "logistic regression", "HistGradientBoosting"), UNEVEN, pairs(FLOATS)),
    (Partitions, ("SCPO", "logistic regression"), EVEN, pairs(ARRAY_TYPES)),
    (Partitions, ("SCPO", "logistic regression"), UNEVEN, pairs(FLOATS)),
    (Graphs, ("SCPO", "logistic regression", "random forest"), UNEVEN, pairs(FLOATS)),
]


def coverage(way: Arrays, calibrated: str, new: list[str], values: tuple[float, float], draws: int) -> np.ndarray:
    """The mean coverage and size of sets for each type of new rows, ``(2, types)``."""
    found = np.zeros((2, len(new)))
    for draw in range(draws):
        (X_cal, y_cal), (X_new, y_new) = rows([3, draw], CALIBRATED, values), rows([4, draw], NEW, values)
        way.calibrate(way.of_type(X_cal, calibrated), y_cal)
        for at, name in enumerate(new):
            sets = way.sets(way.of_type(X_new, name))
            found[:, at] += sets[np.arange(NEW), y_new].mean(), sets.sum(axis=1).mean()
    return found / draws


def sweep(
    way: type[Arrays], maker: str, values: tuple[float, float], types: list[tuple[str, str, str]], draws: int
) -> tuple[int, int]:
    """How many cells there were, and how many of them fell short; told when done."""
    least = LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) * (1 / (CALIBRATED + 2) + 1 / NEW) / draws)
    start, lowest, largest, failed = time.monotonic(), 1.0, 0.0, 0
    X, y = rows(0, 400, values)
    with warnings.catch_warnings(), threadpool_limits(1), dask.config.set(scheduler="sync"):
        warnings.filterwarnings("ignore", message="X (does not have valid|has) feature names")
        fitted = {trained: way(maker, X, y, trained) for trained in {one[0] for one in types}}
        for (trained, calibrated), cells in groupby(sorted(types), key=lambda one: one[:2]):
            new = [name for *_, name in cells]
            found = coverage(fitted[trained], calibrated, new, values, draws)
            lowest, largest = min(lowest, found[0].min()), max(largest, found[1].max())
            for name, (covered, size) in zip(new, found.T, strict=True):
                if covered < least or size > 1.5:
                    failed += 1
                    print(f"  {way.__name__}, {maker}: {trained}, {calibrated}, {name}: {covered:.3f}, {size:.2f}")
    told = f"lowest coverage {lowest:.3f} (at least {least:.3f}), largest sets {largest:.2f}"
    seconds = time.monotonic() - start
    print(f"{way.__name__}, {maker}, values {values}, {len(types)} cells: {told}; {seconds:.0f} s", flush=True)
    return len(types), failed


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--draws", type=int, default=300)
    asked.add_argument("--jobs", type=int, default=2)
    given = asked.parse_args()
    jobs = [(way, maker, values, types) for way, makers, values, types in SWEEPS for maker in makers]
    done = Parallel(n_jobs=given.jobs)(delayed(sweep)(*job, given.draws) for job in jobs)
    cells, failed = np.sum(done, axis=0)
    print(f"{cells} cells of {given.draws} draws, {failed} of them short.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
