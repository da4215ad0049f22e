"""Sets and p-values for a million rows, with their memory, beside MAPIE, crepes, TorchCP and a sort.

Every library gets the same probabilities through a classifier that only hands them on, so nothing but conformal
prediction is timed. A library that is not installed is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from clock import Ledger, PeakMemory, Side, available, median_ms, quotients, seconds, take_turns, timed
from tightset import ConformalClassifier

ROWS = 1_000_000
CLASSES = 10
LEVEL = 0.95
PATIENCE = 8.0  # seconds that a slower library is given for one call


class Given(ClassifierMixin, BaseEstimator):
    """A trained classifier whose probabilities are the rows themselves."""

    def __init__(self) -> None:
        self.classes_ = np.arange(CLASSES)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: np.ndarray, y: np.ndarray) -> Given:  # noqa: ARG002
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        labels: np.ndarray = X.argmax(axis=1)
        return labels


def probabilities(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``(n, CLASSES)`` and labels drawn from them."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(CLASSES, 0.3), size=n)
    return P, np.minimum((P.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1), CLASSES - 1)


def ours(P: np.ndarray, y: np.ndarray) -> Any:
    return ConformalClassifier(FrozenEstimator(Given()), confidence=LEVEL).fit(P, y)


def mapie(P: np.ndarray, y: np.ndarray) -> Any:
    from mapie.classification import SplitConformalClassifier

    split = SplitConformalClassifier(Given(), confidence_level=LEVEL, conformity_score="lac", prefit=True)
    return split.conformalize(P, y)


def crepes(P: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from crepes import WrapClassifier

    wrapped = WrapClassifier(Given())
    wrapped.calibrate(P, y)
    return lambda X: np.asarray(wrapped.predict_p(X, smoothing=False))


def torchcp(P: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import LAC

    score = LAC(score_type="identity")
    predictor = SplitPredictor(score_function=score, model=torch.nn.Identity(), device=torch.device("cpu"))
    rows = TensorDataset(torch.from_numpy(P), torch.from_numpy(y))
    predictor.calibrate(DataLoader(rows, batch_size=len(y)), alpha=1 - LEVEL)
    return lambda X: np.asarray(predictor.predict_p(torch.from_numpy(X)))


def measure(ledger: Ledger) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        P, y = probabilities(ROWS, 0)
        X, _ = probabilities(ROWS, 1)
        _sets(ledger, P, y, X)
        _p_values(ledger, P, y, X)
        for name, library in (("crepes", crepes), ("torchcp", torchcp)):
            _beside(ledger, f"{name}_over_tightset_pvalues", library)


def _sets(ledger: Ledger, P: np.ndarray, y: np.ndarray, X: np.ndarray) -> None:
    keys = ("mapie_over_tightset_sets_1m", "mapie_over_tightset_predict_1m")
    try:
        theirs = mapie(P, y)
    except ImportError as error:
        for key in keys:
            ledger.leave_out(key, error)
        return
    clf = ours(P, y)
    own, own_s = timed(lambda: clf.predict_set(X))
    other, other_s = timed(lambda: theirs.predict_set(X)[1][:, :, 0])
    first = {"tightset_first_s": own_s, "mapie_first_s": other_s}
    if not np.array_equal(own, other):
        raise AssertionError("MAPIE and tightset make different sets")
    both: list[tuple[Side, Side]] = [
        (lambda: mapie(P, y).predict_set(X)[1], lambda: ours(P, y).predict_set(X)),
        (lambda: theirs.predict_set(X)[1], lambda: clf.predict_set(X)),
    ]
    for key, what, (slow, fast) in zip(keys, ("calibrated, sets", "sets"), both, strict=True):
        times = take_turns({"mapie": slow, "tightset": fast}, 9)
        a, b = (median_ms(times[side]) / 1000 for side in ("mapie", "tightset"))
        details = first | {"mapie_s": a, "tightset_s": b, "mapie_mb": extra(slow), "tightset_mb": extra(fast)}
        note = f"{what} for {ROWS} x {CLASSES}: {a:.2f} s over {b:.3f} s"
        ledger.add(key, quotients(times["mapie"], times["tightset"]), note, rows=ROWS, **details)


def _p_values(ledger: Ledger, P: np.ndarray, y: np.ndarray, X: np.ndarray) -> None:
    clf, flat = ours(P, y), X.ravel()
    times = take_turns({"p": lambda: clf.predict_p(X), "sort": lambda: np.sort(flat)}, 5)
    a, b = (median_ms(times[side]) / 1000 for side in ("p", "sort"))
    details = {"pvalues_s": a, "sort_s": b, "pvalues_mb": extra(lambda: clf.predict_p(X))}
    note = f"{ROWS} x {CLASSES} after {ROWS} calibration rows: {a:.2f} s over {b:.2f} s of np.sort"
    ledger.add("pvalues_over_sort_10m", quotients(times["p"], times["sort"]), note, rows=ROWS, **details)


def _beside(ledger: Ledger, key: str, library: Callable[..., Callable[[np.ndarray], np.ndarray]]) -> None:
    """Both at the largest size, doubled from a thousand rows, that the library finishes within `PATIENCE`."""
    try:
        rows = largest(library)
    except Exception as error:  # noqa: BLE001 - another's library, on which nothing here depends
        ledger.leave_out(key, error)
        return
    (P, y), (X, _) = probabilities(rows, 0), probabilities(rows, 1)
    p, clf = library(P, y), ours(P, y)
    off = float(np.abs(p(X) - clf.predict_p(X)).max() * (rows + 1))
    if off > 2:
        raise AssertionError(f"{key}: p-values differ by {off} ranks")
    times = take_turns({"theirs": lambda: p(X), "ours": lambda: clf.predict_p(X)}, 3, warm=False)
    a, b = (median_ms(times[side]) / 1000 for side in ("theirs", "ours"))
    details = {"theirs_s": a, "tightset_s": b, "theirs_mb": extra(lambda: p(X)), "ranks_apart": off}
    note = f"{rows} x {CLASSES} after {rows} calibration rows: {a:.1f} s over {b:.4f} s"
    ledger.add(key, quotients(times["theirs"], times["ours"]), note, rows=rows, **details)


def largest(library: Callable[..., Callable[[np.ndarray], np.ndarray]]) -> int:
    """Doubles the rows while the next call should end in time and, if memory grows fourfold, fit in half of it."""
    rows, before = 1000, 0.0
    while True:
        (P, y), (X, _) = probabilities(rows, 0), probabilities(rows, 1)
        p = library(P, y)
        if not before:
            p(X)
        with PeakMemory() as memory:
            took = seconds(partial(p, X))
        growth = min(max(took / before, 2.0), 4.0) if before else 4.0
        room = available()
        too_large = memory.extra is not None and room is not None and 4 * memory.extra > room / 2
        if took * growth > PATIENCE or too_large or 2 * rows > ROWS:
            return rows
        rows, before = 2 * rows, took


def extra(side: Callable[[], Any]) -> float | None:
    """Megabytes at the peak beyond what was there and what comes out."""
    with PeakMemory() as memory:
        out = side()
    return None if memory.extra is None else max(memory.extra - out.nbytes / 1e6, 0.0)
