"""The inputs of figures, predictors or precomputed results, converted to rows of `evaluate` or to sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tightset.compute.rows import lies_elsewhere
from tightset.conformal import metrics
from tightset.conformal.ranks import calibration_rows_needed, significance
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.checks import check_levels
from tightset.estimators.labels import check_labels, label_codes
from tightset.exceptions import TightsetWarning

__all__ = [
    "Sets",
    "calibration_rows",
    "codes_of",
    "is_model",
    "named",
    "one_level",
    "quiet",
    "rows_of",
    "sets_of",
    "trained_levels",
]

_LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
_WANTED = "a fitted predictor, rows of its evaluate(), or a dict of these by name"


def is_model(source: Any) -> bool:
    """Whether this is a predictor; it must be fitted then."""
    if not hasattr(source, "predict_set"):
        return False
    if hasattr(source, "encoding"):
        raise TypeError("for a model of a table pass model.predictor, with rows model.encode(frame)")
    check_is_fitted(source, "fitted_")
    return True


def named(source: Any) -> dict[str, Any]:
    """Predictors, or rows of theirs, by name: a dict as it is, anything else under the name of its class."""
    if isinstance(source, Mapping) and "confidence" not in source:
        if not source:
            raise ValueError(f"nothing to draw: give {_WANTED}; got an empty dict")
        return {str(name): one for name, one in source.items()}
    return {type(source).__name__ if is_model(source) else "": source}


@contextmanager
def quiet() -> Iterator[None]:
    """No warning that a level was not trained for: a figure over many levels notes those that were."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no measure was trained", category=TightsetWarning)
        yield


def calibration_rows(model: ConformalPredictor) -> int:
    """The calibration rows of a predictor, of all folds, labels and groups together."""
    return model.fitted_.calibration_rows().total()


def trained_levels(model: ConformalPredictor, asked: Sequence[Any]) -> list[float]:
    """The levels that a predictor was trained for, if others were asked for too and it matters to it."""
    if not (is_model(model) and model.trains_for_level):
        return []
    known = {significance(level) for level in model.levels_}
    return [float(level) for level in model.levels_] if {significance(one) for one in asked} - known else []


def one_level(model: ConformalPredictor, confidence: Any) -> Any:
    """The level that is drawn: the one asked for, or the first that the predictor was made for."""
    if confidence is None:
        return model.levels_[0]
    levels, single = check_levels(confidence)
    if not single:
        raise ValueError(f"confidence must be one level here, such as {levels[0]!r}; got {confidence!r}")
    return confidence


def _levels_for(model: ConformalPredictor) -> list[Any]:
    """The levels of the constructor, and the usual ones for which there are calibration rows enough."""
    rows = min(model.fitted_.calibration_rows().values())
    known = {significance(level) for level in model.levels_}
    sure = model.fitted_.assurance
    usual = [one for one in _LEVELS if calibration_rows_needed(one, sure) <= rows and significance(one) not in known]
    return sorted([*model.levels_, *usual], key=float)


def _predicted(model: ConformalPredictor, X: Any, levels: list[Any], groups: Any) -> np.ndarray:
    """Sets ``(levels, n, C)``."""
    if X is None:
        raise ValueError("X must be given with a fitted predictor: the rows whose sets are drawn")
    if lies_elsewhere(X):
        raise ValueError("X is a Dask collection: give the rows of model.evaluate(X, y) in place of the model and X")
    with quiet():
        return np.asarray(model.predict_set(X, confidence=levels, groups=groups))


def rows_of(
    source: Any, X: Any, y: Any, confidence: Any, groups: Any, *, own_levels: bool = False
) -> list[dict[str, Any]]:
    """Rows as of `metrics.evaluate`, one a level, by level; without ``y`` only what needs no labels.

    Of a predictor they are computed: at the levels asked for, or its own, and unless ``own_levels`` more, for a curve.
    """
    if is_model(source):
        levels = check_levels(confidence)[0] if confidence is not None else list(source.levels_)
        if confidence is None and not own_levels:
            levels = _levels_for(source)
        sets = _predicted(source, X, levels, groups)
        codes = None if y is None else codes_of(y, sets.shape[1], source.classes_)
        made = [
            _sizes_only(one, level) if codes is None else metrics.evaluate(one, codes, confidence=float(level))
            for level, one in zip(levels, sets, strict=True)
        ]
        return sorted(made, key=lambda row: row["confidence"])
    if hasattr(source, "to_dict") and hasattr(source, "columns"):  # a data frame of rows
        source = source.to_dict("records")
    rows = [source] if isinstance(source, Mapping) else source
    if not (isinstance(rows, Sequence) and rows and all(isinstance(r, Mapping) and "confidence" in r for r in rows)):
        raise ValueError(f"give {_WANTED}; got {type(source).__name__}")
    if confidence is not None:
        asked = {significance(level) for level in check_levels(confidence)[0]}
        rows = [row for row in rows if significance(row["confidence"]) in asked]
        if not rows:
            raise ValueError(f"none of the rows has confidence {confidence!r}")
    return sorted((dict(row) for row in rows), key=lambda row: float(row["confidence"]))


def _sizes_only(sets: np.ndarray, level: Any) -> dict[str, Any]:
    size = sets.sum(axis=1)
    share = np.bincount(size, minlength=sets.shape[1] + 1) / len(size)
    row: dict[str, Any] = {"confidence": float(level), "n": len(size), "mean_size": float(size.mean())}
    return row | {f"share_of_size_{w}": float(share[w]) for w in range(len(share))}


def codes_of(y: Any, n: int, classes: np.ndarray) -> np.ndarray:
    """Labels as indices of the sorted ``classes``."""
    labels = check_labels(y)
    if len(labels) != n:
        raise ValueError(f"y must have a label for each of the {n} rows; got {len(labels)}")
    return label_codes(labels, classes, "y")


class Sets(NamedTuple):
    """Sets ``(n, C)`` of one level, true labels as columns of it if they are known, and the labels' names."""

    sets: np.ndarray
    codes: np.ndarray | None
    labels: list[Any]
    confidence: float | None


def sets_of(source: Any, X: Any, y: Any, confidence: Any, groups: Any, labels: Any) -> Sets:
    """Sets that were given as an array of bool, or those that a predictor makes of ``X`` at one level."""
    if is_model(source):
        level = one_level(source, confidence)
        sets, classes = _predicted(source, X, [level], groups)[0], source.classes_
        confidence = level
    else:
        sets = np.asarray(source)
        if sets.ndim != 2 or sets.dtype != bool or not sets.size:
            raise ValueError(
                f"give a fitted predictor with X, or sets as an array of bool with a column for each label; got "
                f"{type(source).__name__} of {sets.dtype}, shape {sets.shape}"
            )
        classes = np.arange(sets.shape[1]) if labels is None else np.asarray(labels)
    names = list(classes) if labels is None else list(labels)
    if len(names) != sets.shape[1]:
        raise ValueError(f"labels must name each of the {sets.shape[1]} labels; got {len(names)}")
    order = np.argsort(classes)  # names that are given may be in any order
    codes = None if y is None else order[codes_of(y, len(sets), classes[order])]
    return Sets(sets, codes, names, None if confidence is None else float(1 - significance(confidence)))
