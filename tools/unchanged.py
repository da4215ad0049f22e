"""Do changes inside change what users get? Sets and p-values of many fitted models, recorded and compared to the bit.

    python tools/unchanged.py record before.npz
    ... change things ...
    python tools/unchanged.py compare before.npz [--only NAME]

On one machine, with the same versions of everything else: other processors round sums otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import tightset
from tightset import ConformalClassifier, Grid, SCPOClassifier, Search
from tightset.conformal.scores import APS, RAPS
from tightset.tables.fitting import fit_table

Recorded = dict[str, np.ndarray]
CASES: dict[str, Callable[[], Recorded]] = {}
ROOT = Path(__file__).parents[1]


def _halves(X: Any, y: np.ndarray) -> tuple[Any, np.ndarray, Any]:
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    cut = len(y) * 7 // 10
    return X[:cut], y[:cut], X[cut:]


WINE = _halves(*load_wine(return_X_y=True))
IRIS = _halves(*load_iris(return_X_y=True))
CANCER = _halves(*load_breast_cancer(return_X_y=True))
DIGITS = _halves(*(part[:700] for part in load_digits(return_X_y=True)))


def answers(model: Any, X: Any, **how: Any) -> Recorded:
    found = {"sets": model.predict_set(X, **how), "p": model.predict_p(X, **how), "labels": model.predict(X)}
    return {name: np.asarray(one) for name, one in found.items()}


def case(name: str, model: Callable[[], Any], data: Any = WINE, **how: Any) -> None:
    def run() -> Recorded:
        X, y, new = data
        return answers(model().fit(X, y), new, **how)

    CASES[name] = run


def _scpo(confidence: Any = 0.9, **how: Any) -> Callable[[], Any]:
    return lambda: SCPOClassifier(confidence, **({"search": Search.fast(), "random_state": 0, "verbose": False} | how))


def _plain(estimator: Any = None, **how: Any) -> Callable[[], Any]:
    return lambda: ConformalClassifier(estimator, **({"confidence": 0.9, "random_state": 0} | how))


GRID = Grid([10, 100], [5, 10], [0.01, 0.1], max_iter=60)
for measure in ("linear", "softmax", "two-matrix"):
    case(f"scpo {measure}", _scpo(search=Search.fast().only(measure)))
for search in ("default", "fast"):
    case(f"search {search}", _scpo(search=search), IRIS)
case("search thorough", _scpo(search=Search.thorough(max_iter=20)), IRIS)
case("search own", _scpo(search=Search(folds=3, repeats=1, max_iter=20)), IRIS)
case("grid", _scpo(search=GRID))
case("grid adam", _scpo(search=replace(GRID, optimiser="adam", loss_form="log L")))
case("grid selection loss", _scpo(search=replace(GRID, selection="loss")))
case("grid L", _scpo(search=replace(GRID, loss_form="L")))
case("grid -1/L^2", _scpo(search=replace(GRID, loss_form="-1/L^2")))
case("paper", lambda: SCPOClassifier.paper(0.9, max_iter=40, random_state=0, verbose=False))
case("several levels", _scpo([0.8, 0.9, 0.95]), CANCER)
case("nested", _scpo([0.8, 0.9, 0.95], nested=True), CANCER)
case("digits", _scpo(0.95, search=Search.fast(max_iter=20)), DIGITS)
case("inefficiency log", _scpo(inefficiency="log"))
case("inefficiency power", _scpo(inefficiency=2))
case("no unfold", _scpo(search=Search.fast(unfold=False)), CANCER)
case("no standardise", _scpo(search=Search.fast(standardise=False)), CANCER)
case("scpo label conditional", _scpo(label_conditional=True), CANCER)
case("scpo cv", _scpo(cv=3), IRIS)
case("scpo no empty", _scpo(0.8, allow_empty=False))
case("scpo smoothed", _scpo(), WINE, smoothed=True)
case("scpo forest", _scpo(estimator=RandomForestClassifier(20, random_state=0)), CANCER)
case(
    "scpo forest alone",
    _scpo(estimator=RandomForestClassifier(20, random_state=0), search=Search.fast(average=False)),
    CANCER,
)
case("scpo auto", _scpo(estimator="auto"), IRIS)
case("scpo boost", _scpo(estimator=LogisticRegression(max_iter=500), search=Search.fast(boost="lightgbm")), CANCER)
case("scpo sparse", _scpo(), tuple(sparse.csr_array(p) if p.ndim == 2 else p for p in DIGITS[:3]))
case("plain", _plain())
case("plain float32", _plain(), tuple(p.astype(np.float32) if p.ndim == 2 else p for p in WINE))
for score in ("lac", "margin", "aps", "raps", "saps", "top-k"):
    case(f"score {score}", _plain(conformity_score=score), DIGITS)
case("score aps randomised", _plain(conformity_score=APS(randomised=True)), DIGITS)
case("score raps own", _plain(conformity_score=RAPS(penalty=0.1, rank=2)), DIGITS)
case("plain hgb", _plain(HistGradientBoostingClassifier(max_iter=10)), CANCER)
case("plain svc", _plain(make_pipeline(StandardScaler(), SVC())))
case("plain label conditional", _plain(label_conditional=True), CANCER)
case("plain cv", _plain(cv=4))
case("plain several levels", _plain(confidence=[0.8, 0.99]), CANCER)
case("plain smoothed", _plain(), CANCER, smoothed=True)


def named(run: Callable[[], Recorded]) -> Callable[[], Recorded]:
    CASES[run.__name__.replace("_", " ")] = run
    return run


@named
def frozen_scpo() -> Recorded:
    X, y, new = CANCER
    forest = RandomForestClassifier(20, random_state=0).fit(X[:150], y[:150])
    return answers(_scpo(estimator=FrozenEstimator(forest))().fit(X[150:], y[150:]), new)


@named
def frozen_plain() -> Recorded:
    X, y, new = CANCER
    forest = RandomForestClassifier(20, random_state=0).fit(X[:150], y[:150])
    return answers(_plain(FrozenEstimator(forest))().fit(X[150:], y[150:]), new)


def _probabilities() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y, new = DIGITS
    model = LogisticRegression(max_iter=200).fit(X[:200], y[:200])
    return model.predict_proba(X[200:]), y[200:], model.predict_proba(new)


@named
def precomputed_scpo() -> Recorded:
    P, y, new = _probabilities()
    return answers(_scpo(estimator="precomputed")().fit(P, y), new)


@named
def precomputed_plain() -> Recorded:
    P, y, new = _probabilities()
    return answers(_plain("precomputed")().fit(P, y), new)


@named
def groups_plain() -> Recorded:
    X, y, new = CANCER
    clf = _plain()().fit(X, y, groups=X[:, 0] > 14)
    return {"sets": clf.predict_set(new, groups=new[:, 0] > 14), "p": clf.predict_p(new, groups=new[:, 0] > 14)}


@named
def weights_scpo() -> Recorded:
    X, y, new = WINE
    return answers(_scpo()().fit(X, y, sample_weight=1.0 + (y == 1)), new)


@named
def calibrated_anew() -> Recorded:
    X, y, new = CANCER
    return answers(_scpo()().fit(X[:200], y[:200]).calibrate(X[200:], y[200:]), new)


@named
def own_calibration_rows() -> Recorded:
    X, y, new = CANCER
    return answers(_scpo()().fit(X[:200], y[:200], X_cal=X[200:], y_cal=y[200:]), new)


@named
def large_rows() -> Recorded:
    """Above 30,000 rows a sample is searched, and the choice is trained on all."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((45_000, 4))
    y = (X @ rng.standard_normal((4, 3)) + rng.gumbel(size=(45_000, 3))).argmax(axis=1)
    return answers(_scpo(search=Search.fast(max_iter=10))().fit(X[:44_000], y[:44_000]), X[44_000:])


@named
def dask_scpo() -> Recorded:
    X, y, new = CANCER
    clf = _scpo(search=Search.fast(max_iter=10))().fit(
        da.from_array(X, chunks=(100, X.shape[1])), da.from_array(y, chunks=100)
    )
    return answers(clf, da.from_array(new, chunks=(50, X.shape[1])))


@named
def dask_plain() -> Recorded:
    X, y, new = CANCER
    clf = _plain()().fit(da.from_array(X, chunks=(100, X.shape[1])), da.from_array(y, chunks=100))
    return answers(clf, da.from_array(new, chunks=(50, X.shape[1])))


def _table() -> tuple[pd.DataFrame, pd.DataFrame]:
    X, y, new = WINE
    frames = []
    for rows in (X, new):
        frame = pd.DataFrame(rows[:, :5], columns=list("abcde"))
        frame["kind"] = np.where(rows[:, 9] > 5, "strong", "weak")
        frame.loc[::7, "c"] = np.nan
        frames.append(frame)
    return frames[0].assign(label=np.array(["red", "white", "rose"])[y]), frames[1]


@named
def table_scpo() -> Recorded:
    train, new = _table()
    return answers(fit_table(train, "label", _scpo()()), new)


@named
def table_plain_saved_and_loaded() -> Recorded:
    train, new = _table()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tightset"
        fit_table(train, "label", _plain()()).save(path)
        return answers(tightset.load(path), new)


@named
def saved_and_loaded() -> Recorded:
    X, y, new = CANCER
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tightset"
        _scpo([0.8, 0.9])().fit(X, y).save(path)
        return answers(tightset.load(path), new)


@named
def exported() -> Recorded:
    import onnxruntime

    from tightset.export import to_onnx

    X, y, new = CANCER
    graph = to_onnx(_scpo()().fit(X, y), output=["sets", "p-values"])
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(("sets", "p"), session.run(None, {"X": new}), strict=True))


def _of_file(path: Path) -> Callable[[], Recorded]:
    def run() -> Recorded:
        model = tightset.load(path)
        rng = np.random.default_rng(0)
        if not hasattr(model, "encoding"):
            return answers(model, rng.standard_normal((40, model.n_features_in_)))
        frame = {}
        for column in model.encoding.columns:
            values = getattr(column, "values", None) or getattr(column, "categories", None)
            frame[column.name] = rng.choice(list(values), 40) if values else rng.standard_normal(40)
        return answers(model, pd.DataFrame(frame))

    return run


for path in sorted((ROOT / "tests" / "storage" / "model_files").rglob("*.tightset")):
    CASES[f"file {path.stem}"] = _of_file(path)


def run(only: str) -> Iterator[tuple[str, Recorded]]:
    for name, recorded in CASES.items():
        if only not in name:
            continue
        start = time.monotonic()
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            found = recorded()
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
        yield name, found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("what", choices=["record", "compare"])
    asked.add_argument("file", type=Path)
    asked.add_argument("--only", default="", help="cases whose name has this")
    given = asked.parse_args()
    found = {f"{name}/{key}": one for name, arrays in run(given.only) for key, one in arrays.items()}
    if given.what == "record":
        np.savez_compressed(given.file, **found)
        print(f"{len(CASES)} models recorded in {given.file}")
        return 0
    before = np.load(given.file)
    expected = {key for key in before.files if given.only in key.split("/")[0]}
    other = [
        key
        for key in sorted(expected | set(found))
        if key not in found
        or key not in expected
        or found[key].dtype != before[key].dtype
        or not np.array_equal(found[key], before[key], equal_nan=found[key].dtype.kind == "f")
    ]
    for key in other:
        if key in found and key in expected and found[key].shape == before[key].shape:
            print(f"  {key}: {(found[key] != before[key]).mean():.2%} of the numbers differ")
        else:
            print(f"  {key}: {'only now' if key not in expected else 'only before, or of another shape'}")
    print(f"{len({key.split('/')[0] for key in found})} models compared, {len(other)} answers differ.")
    return int(bool(other))


if __name__ == "__main__":
    sys.exit(main())
