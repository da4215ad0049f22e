"""Whole fits against tuned logistic regression, how long they take and how they grow, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import numpy as np

from clock import Ledger, Side, median_ms, quotients, seconds, slopes, take_turns
from samples import data, rows_of
from tightset import SCPOClassifier

FIVE = (0.8, 0.9, 0.95, 0.975, 0.99)
WIDE = (6000, 784, 10)
TIMED = [(k, m, C) for k in (1000, 10_000, 100_000) for m in (10, 100) for C in (2, 10)]


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


def scpo_fit(X: np.ndarray, y: np.ndarray, search: str = "default", confidence: Any = 0.95) -> None:
    some = slice(0, 1000)  # calibration costs next to nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = SCPOClassifier(confidence, search=search, random_state=0, verbose=False)
        clf.fit(X, y, X_cal=X[some], y_cal=y[some])


def importing(statement: str) -> Side:
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True)


def measure(ledger: Ledger) -> None:
    _against_logistic(ledger, "avila", "")
    _against_logistic(ledger, "covtype", "_covtype")
    _wide(ledger)
    _on_classifiers(ledger)
    _times(ledger)
    _imports(ledger)


def _against_logistic(ledger: Ledger, name: str, suffix: str) -> None:
    d = data(name)
    X, y = d.X[:, :-1], d.y  # estimators bring the constant themselves
    sides = {
        "default": partial(scpo_fit, X, y),
        "fast": partial(scpo_fit, X, y, "fast"),
        "five": partial(scpo_fit, X, y, confidence=FIVE),
        "logistic": partial(tuned_logistic, X, y),
        "logistic_cv": partial(tuned_logistic, X, y, own_cv=True),
    }
    scpo_fit(X[:500], y[:500], "fast")  # imports
    times = take_turns(sides, 3, warm=False)
    for search in ("default", "fast"):
        for base, how in (("logistic", "GridSearchCV"), ("logistic_cv", "LogisticRegressionCV")):
            ours, theirs = (median_ms(times[side]) / 1000 for side in (search, base))
            note = f"{d.source}, one level: {ours:.1f} s over {theirs:.2f} s of {how}, 5 folds, 5 C"
            key = f"{search}_fit_over_{base}{suffix}"
            ledger.add(key, quotients(times[search], times[base]), note, fit_s=ours, logistic_s=theirs)
    ours, one = (median_ms(times[side]) / 1000 for side in ("five", "default"))
    note = f"{d.source}: {ours:.1f} s over {one:.1f} s"
    ledger.add(f"five_levels_over_one{suffix}", quotients(times["five"], times["default"]), note, fit_s=ours, one_s=one)
    if not suffix:
        _growth(ledger, X, y, d.source, times["default"][:2])


def _wide(ledger: Ledger) -> None:
    """Made rows: 784 columns as of small images, at 99 %; too wide to be unfolded, and so are fewer of them."""
    k, m, C = WIDE
    X, y = rows_of(k, m + 1, C)
    X = X[:, :-1].astype(np.float32)
    sides = {part: partial(scpo_fit, X[:, :part], y, confidence=0.99) for part in (m // 4, m // 2, m)}
    times = take_turns(sides, 1, warm=False)
    logistic = seconds(partial(tuned_logistic, X, y))
    fits = {str(part): row[0] for part, row in times.items()}
    note = f"{k} x {m}, {C} classes, 99 %: {fits[str(m)]:.1f} s over {logistic:.1f} s of GridSearchCV"
    ledger.add("wide_fit_over_logistic", [fits[str(m)] / logistic], note, fit_s=fits[str(m)], logistic_s=logistic)
    note = f"default fit by columns: {', '.join(f'{part}: {s:.1f} s' for part, s in fits.items())}"
    ledger.add("slope_default_fit_columns", slopes(times), note, what=f"{k} made rows, {C} classes", fit_s=fits)


def _on_classifiers(ledger: Ledger) -> None:
    """Five levels on top of a classifier over one fit of it; eleven are needed, ten on four fifths of the rows."""
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    d = data("avila")
    X, X_cal = d.X[:, :-1], d.X_cal[:, :-1]
    for name, base in (
        ("hist_gradient_boosting", HistGradientBoostingClassifier(random_state=0)),
        ("random_forest", RandomForestClassifier(random_state=0)),
        ("lightgbm", LGBMClassifier(random_state=0, verbose=-1)),
    ):
        clf = SCPOClassifier(FIVE, estimator=base, random_state=0, verbose=False)
        base.fit(X[::20], d.y[::20])  # imports, threads
        sides = {"five": partial(clf.fit, X, d.y, X_cal=X_cal, y_cal=d.y_cal), "one": partial(base.fit, X, d.y)}
        times = take_turns(sides, 3, warm=False)
        five, one = (median_ms(times[side]) / 1000 for side in ("five", "one"))
        note = f"{d.source}, with calibration: {five:.1f} s over {one:.2f} s"
        key = f"five_levels_over_{name}_fits"
        ledger.add(key, quotients(times["five"], times["one"]), note, fit_s=five, classifier_s=one)


def _times(ledger: Ledger) -> None:
    """How long fits take, to be read off: seconds of default and fast, for rows, columns and classes."""
    cells = []
    for k, m, C in TIMED:
        X, y = rows_of(k, m + 1, C)
        X, both = X[:, :-1], {}
        for search in ("default", "fast"):
            both[search] = seconds(partial(scpo_fit, X, y, search))
        cells.append({"rows": k, "columns": m, "classes": C} | both)
    ratio = [cell["fast"] / cell["default"] for cell in cells]
    ledger.add("fast_fit_over_default", ratio, "over made rows of many shapes, each once", cells=cells)


def _growth(ledger: Ledger, X: np.ndarray, y: np.ndarray, source: str, whole: list[float]) -> None:
    """The full size was measured already."""
    order = np.random.default_rng(0).permutation(len(y))
    sides = {}
    for part in (16, 4):
        some = order[: len(y) // part]
        sides[len(some)] = partial(scpo_fit, X[some], y[some])
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
