"""Whole fits against tuned logistic regression, how the default fit grows with rows, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial

import numpy as np

from clock import Ledger, Side, median_ms, quotients, slopes, take_turns
from samples import data
from tightset import SCPOClassifier


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
    some = slice(0, 1000)  # calibration costs next to nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SCPOClassifier(0.95, search=search, random_state=0, verbose=False).fit(X, y, X_cal=X[some], y_cal=y[some])


def importing(statement: str) -> Side:
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True)


def measure(ledger: Ledger) -> None:
    d = data("avila")
    X, y = d.X[:, :-1], d.y  # estimators bring the constant themselves
    sides = {
        "default": partial(scpo_fit, X, y, "default"),
        "fast": partial(scpo_fit, X, y, "fast"),
        "logistic": partial(tuned_logistic, X, y),
        "logistic_cv": partial(tuned_logistic, X, y, own_cv=True),
    }
    scpo_fit(X[:500], y[:500], "fast")  # imports
    times = take_turns(sides, 3, warm=False)
    for search in ("default", "fast"):
        for base, how in (("logistic", "GridSearchCV"), ("logistic_cv", "LogisticRegressionCV")):
            ours, theirs = (median_ms(times[side]) / 1000 for side in (search, base))
            note = f"{d.source}, one level: {ours:.1f} s over {theirs:.2f} s of {how}, 5 folds, 5 C"
            key = f"{search}_fit_over_{base}"
            ledger.add(key, quotients(times[search], times[base]), note, fit_s=ours, logistic_s=theirs)
    _growth(ledger, X, y, d.source, times["default"][:2])
    _imports(ledger)


def _growth(ledger: Ledger, X: np.ndarray, y: np.ndarray, source: str, whole: list[float]) -> None:
    """The full size was measured already."""
    order = np.random.default_rng(0).permutation(len(y))
    sides = {}
    for part in (16, 4):
        some = order[: len(y) // part]
        sides[len(some)] = partial(scpo_fit, X[some], y[some], "default")
    times = take_turns(sides, len(whole), warm=False) | {len(y): whole}
    fits = {str(k): median_ms(row) / 1000 for k, row in times.items()}
    note = f"default fit on {source}: " + ", ".join(f"{k} rows: {s:.1f} s" for k, s in fits.items())
    ledger.add("slope_default_fit_rows", slopes(times), note, what=source, fit_s=fits)


def _imports(ledger: Ledger) -> None:
    for key, statement in (
        ("import_over_sklearn_linear_model", "import tightset"),
        ("import_classes_over_sklearn_linear_model", "from tightset import SCPOClassifier"),
    ):
        times = take_turns({"ours": importing(statement), "sklearn": importing("import sklearn.linear_model")}, 5)
        ours, theirs = (median_ms(times[side]) for side in ("ours", "sklearn"))
        note = f"{statement}: {ours:.0f} ms over {theirs:.0f} ms, each with the start of Python"
        ledger.add(key, quotients(times["ours"], times["sklearn"]), note, import_ms=ours, sklearn_ms=theirs)
