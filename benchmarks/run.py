"""Speed as ratios, measured side by side in one run: `make bench`.

Machines are noisy, so no test asserts a time. Each ratio is the median over repetitions that alternate between the two
sides; the spread is the distance between the quartiles. Results go to benchmarks/latest.json, a flat object.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tightset.measures import Linear
from tightset.objective import Penalised
from tightset.optimise import GradientDescent, minimise
from tightset.rows import Rows
from tightset.surrogate import Surrogate

GRID = [(lam, g, eta) for lam in (10, 100, 500, 1000, 5000) for g in (1, 2, 5, 10) for eta in (1, 10, 100, 1000)]
EPS = 0.05


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def ratio(slow: Callable[[], object], fast: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median of slow / fast over alternating runs, its quartile distance, and the median seconds of ``fast``."""
    slow(), fast()
    pairs = [(seconds(slow), seconds(fast)) for _ in range(repeats)]
    ratios = [a / b for a, b in pairs]
    low, _, high = statistics.quantiles(ratios, n=4)
    return statistics.median(ratios), high - low, statistics.median(b for _, b in pairs)


def rows_of(k: int, m: int, C: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal columns, a constant, and labels that depend on them; the shape is what costs."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((k, m - 1)), np.ones(k)])
    return X, np.argmax(X @ rng.standard_normal((m, C)) + rng.gumbel(size=(k, C)), axis=1)


@np.errstate(over="ignore")
def plain_numpy_grid(X: np.ndarray, y: np.ndarray, C: int, steps: int) -> None:
    """The paper's method as one would write it: each setting by itself, float64, the form -1/L."""
    k, own = len(y), (np.arange(len(y)), y)
    for lam, gamma, eta in GRID:
        T = np.zeros((X.shape[1], C))
        for _ in range(steps):
            s = 1 / (1 + np.exp(-gamma * (X @ T - 1)))
            V = s[own].mean() - (1 - EPS)
            L = s.sum(axis=1).mean() + lam * V**2
            slope = gamma * s * (1 - s)
            dA = slope / k
            dA[own] += 2 * lam * V * slope[own] / k
            T = T - eta * (X.T @ dA) / L**2


def batched_grid(X: np.ndarray, y: np.ndarray, C: int, steps: int) -> None:
    lam, gamma, eta = (np.array(column, dtype=np.float32) for column in zip(*GRID, strict=True))
    rows = Rows(X.astype(np.float32), y, scores_per_row=len(GRID) * C)
    surrogate = Surrogate(rows, Linear(), Penalised(np.full(len(GRID), EPS, dtype=np.float32), lam, gamma))
    theta = np.zeros((len(GRID), X.shape[1], C), dtype=np.float32)
    with rows:
        minimise(surrogate, theta, GradientDescent(eta), max_iter=steps)


def importing(statement: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True)


def avila_rows() -> tuple[np.ndarray, np.ndarray, str]:
    """The training rows of avila where the raw data are there, else rows of its shape."""
    from tightset.paper.datasets import DataError, load

    try:
        split = load("avila")
    except DataError:
        return *rows_of(6954, 11, 9), "rows of avila's shape"
    return split.X_train, split.y_train, "avila"


def tuned_logistic(X: np.ndarray, y: np.ndarray, *, own_cv: bool = False) -> None:
    """One tuned logistic regression: 5 folds, 5 values of C; by scikit-learn's own path with ``own_cv``."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    strengths = [0.01, 0.1, 1, 10, 100]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if own_cv:
            make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=strengths, cv=5, max_iter=1000)).fit(X, y)
        else:
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            GridSearchCV(model, {"logisticregression__C": strengths}, cv=5).fit(X, y)


def scpo_fit(X: np.ndarray, y: np.ndarray, search: str) -> None:
    from tightset import SCPOClassifier

    some = slice(0, 1000)  # calibration costs next to nothing
    SCPOClassifier(0.95, search=search, random_state=0, verbose=False).fit(X, y, X_cal=X[some], y_cal=y[some])


def main() -> None:
    steps = 40
    found: dict[str, float] = {}
    print(f"{'ratio':<44}{'median':>8}{'spread':>8}   note")
    for name, shape in (("avila", (6954, 11, 9)), ("covtype", (12000, 55, 7))):
        X, y = rows_of(*shape)
        C = shape[2]
        value, spread, fast = ratio(
            lambda X=X, y=y, C=C: plain_numpy_grid(X, y, C, steps),
            lambda X=X, y=y, C=C: batched_grid(X, y, C, steps),
            repeats=5,
        )
        key = "grid_speedup_vs_loop" if name == "avila" else f"grid_speedup_vs_loop_{name}"
        found |= {key: value, f"{key}_spread": spread}
        note = f"80 settings, {name}'s shape: {1000 * fast / steps:.1f} ms a step, {fast / steps * 2000:.0f} s for 2000"
        print(f"{key:<44}{value:>8.2f}{spread:>8.2f}   {note}")
    X, y, what = avila_rows()
    for search in ("default", "fast"):
        for own_cv in (False, True):
            value, spread, _ = ratio(
                lambda search=search: scpo_fit(X, y, search),
                lambda own_cv=own_cv: tuned_logistic(X, y, own_cv=own_cv),
                repeats=3,
            )
            key = f"{search}_fit_over_logistic{'_cv' if own_cv else ''}"
            found |= {key: value, f"{key}_spread": spread}
            note = f"{what}, one level; against {'LogisticRegressionCV' if own_cv else 'GridSearchCV'}, 5 folds, 5 C"
            print(f"{key:<44}{value:>8.2f}{spread:>8.2f}   {note}")
    for key, statement in (
        ("import_over_sklearn_linear_model", "import tightset"),
        ("import_classes_over_sklearn_linear_model", "from tightset import SCPOClassifier"),
    ):
        value, spread, _ = ratio(importing(statement), importing("import sklearn.linear_model"), repeats=7)
        found |= {key: value, f"{key}_spread": spread}
        print(f"{key:<44}{value:>8.2f}{spread:>8.2f}   {statement}")
    machine = {"hardware": f"{os.cpu_count()} cores, {platform.machine()}", "python": platform.python_version()}
    machine |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    here = Path(__file__).parent
    (here / "latest.json").write_text(json.dumps(found, indent=2) + "\n")
    (here / "latest-machine.json").write_text(json.dumps(machine, indent=2) + "\n")


if __name__ == "__main__":
    main()
