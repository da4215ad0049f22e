"""Other people's classifiers: what they must provide, and how they are trained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import _routing_enabled
from sklearn.utils.validation import has_fit_parameter, validate_data

from tightset.compute.row_types import plain_numbers
from tightset.compute.threads import openmp_for
from tightset.exceptions import warn
from tightset.models.class_scores import class_scores, innermost, name_of
from tightset.models.routing import Unweighted, request_of_weights, without_requests

__all__ = [
    "Trained",
    "auto_classifiers",
    "check_any_rows",
    "check_base",
    "check_size",
    "classes_of_columns",
    "copy_input_tags",
    "fit_base",
    "known_classes",
    "trained_classes",
    "untrained",
    "warn_of_broken",
]

_RARE_ROWS, _RARE_SHARE = 20, 0.02  # of a label that may break a classifier: fewer than both
_ROWS_LOOKED_AT = 2000
_LARGEST = 1e150  # numbers


def check_base(estimator: Any) -> None:
    """Raise unless the estimator is a classifier that scores every class."""
    name = type(estimator).__name__
    if isinstance(estimator, type):
        raise ValueError(f"estimator must be an instance, such as {estimator.__name__}(); got the class itself")  # noqa: TRY004
    if not (hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")):
        raise ValueError(f"estimator must have predict_proba or decision_function to score labels; {name} has neither")
    if _has_tags(estimator) and not is_classifier(estimator):
        raise ValueError(f"estimator must be a classifier; {name} is not")
    if getattr(innermost(estimator), "decision_function_shape", None) == "ovo" and not hasattr(
        estimator, "predict_proba"
    ):
        raise ValueError("estimator must score classes, not pairs of them: set decision_function_shape='ovr'")


def copy_input_tags(tags: Any, estimator: Any) -> None:
    """What the classifier says of the rows that it takes, said of the one around it."""
    if _has_tags(estimator):
        for name in ("sparse", "allow_nan", "string", "categorical"):
            setattr(tags.input_tags, name, getattr(get_tags(estimator).input_tags, name))


def _has_tags(estimator: Any) -> bool:
    """Whether it speaks as scikit-learn's estimators do; one that was trained elsewhere need not."""
    return hasattr(estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator, "__sklearn_tags__")


def check_any_rows(owner: Any, X: Any, *, reset: bool) -> Any:
    """Rows for a classifier that decides itself what rows are: frames, missing values, texts pass untouched."""
    if not (sparse.issparse(X) or hasattr(X, "columns") or (hasattr(X, "shape") and hasattr(X, "iloc"))):
        X = np.asarray(X)
    if len(X.shape) == 1 and getattr(X, "dtype", None) is not None and X.dtype.kind in "OUT" and len(X):
        return X  # texts, for an estimator that reads them
    if len(X.shape) != 2:
        raise ValueError(f"Expected a 2D array X, got shape {X.shape}. Reshape your data: one row per sample")
    if X.shape[0] == 0:
        raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
    if sparse.issparse(X) and X.format not in {"csr", "csc"}:
        X = X.tocsr()  # others cannot be cut by rows
    validate_data(owner, X, reset=reset, skip_check_array=True)
    return plain_numbers(X)


def classes_of_columns(columns: int, names: Iterable[Any], classes: np.ndarray) -> np.ndarray:
    """The classes that columns of precomputed scores stand for: the labels in order, or ``0 ... columns - 1``."""
    names = [str(name) for name in names]
    labels = [str(label) for label in classes]
    if names != labels and sorted(names) == sorted(labels):
        raise ValueError(f"the columns of X must be in the order of the sorted labels, {labels[:10]}; got {names[:10]}")
    if len(classes) == columns:
        return classes
    if classes.dtype.kind in "iu" and classes[0] >= 0 and classes[-1] < columns:
        return np.arange(columns, dtype=classes.dtype)
    raise ValueError(
        f"X has {columns} columns of scores, but y holds {len(classes)} classes: give one column for each class, "
        "in the order of the sorted labels, or labels 0 ... columns - 1"
    )


def trained_classes(model: Any) -> np.ndarray:
    """The classes of a model that is trained already."""
    if not hasattr(model, "classes_"):
        raise ValueError(f"{name_of(model)} must already be trained, since it is not trained again; it has no classes_")
    return np.unique(model.classes_)


def known_classes(model: Any, present: np.ndarray) -> np.ndarray:
    """The classes of a model that is trained already, among them all of ``y``."""
    classes = trained_classes(model)
    unknown = set(present.tolist()) - set(classes.tolist())
    if unknown:
        raise ValueError(f"y has labels that {name_of(model)} was not trained on: {sorted(unknown, key=str)[:5]}")
    return classes


def auto_classifiers(*, sparse_rows: bool) -> list[Any]:
    """The classifiers of ``estimator="auto"``."""
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    # Without regularisation a leaf of a rare class can have a value that ruins all probabilities.
    boosted = HistGradientBoostingClassifier(early_stopping=False, l2_regularization=1.0, max_features=0.5)
    return [ExtraTreesClassifier()] if sparse_rows else [boosted, ExtraTreesClassifier()]


def untrained(estimator: Any, seed: int | None) -> Any:
    """A copy that is still to be trained."""
    return clone(estimator) if seed is None else _seeded(estimator, seed)


class Trained(NamedTuple):
    """A trained classifier; the labels that it was trained ``without``, if those broke it, and how they did."""

    model: Any
    without: tuple[Any, ...] = ()
    why: str = ""


def fit_base(
    estimator: Any, X: Any, y: np.ndarray, weight: np.ndarray | None = None, *, seed: int | None = None
) -> Trained:
    """A trained copy; ``y`` holds labels as the user gave them; a seed is for what has no ``random_state`` yet.

    Labels with a handful of rows can break a classifier: scikit-learn's gradient boosting gives leaves of such a label
    values without bound, and then half of all other rows the wrong label, or finds too few rows to stop early by. One
    that fails, or that explains its own training rows worse than the mere frequencies of the labels do, is trained
    again without the rare labels, and that is kept if it is sound.
    """
    if isinstance(estimator, Unweighted):
        estimator, weight = estimator.estimator, estimator.weight(y)
    labels, rows = np.unique(y, return_counts=True)
    rare = labels[(rows < _RARE_ROWS) & (rows < _RARE_SHARE * len(y))]
    if len(labels) < len(rare) + 2:
        rare = rare[:0]
    try:
        model = _fitted(estimator, X, y, weight, seed)
        if not len(rare) or _explains(model, X, y):
            return Trained(model)
        why = "it explains its own training rows worse than the frequencies of the labels do"
    except Exception as error:
        if not len(rare):
            raise
        model, why, failed = None, f"{type(error).__name__}: {error}", error
    common = np.flatnonzero(~np.isin(y, rare))
    some, own_weight = _safe_indexing(X, common), None if weight is None else weight[common]
    try:
        second = _fitted(estimator, some, y[common], own_weight, seed)
    except Exception:  # noqa: BLE001 - the rare labels were not to blame
        if model is None:
            raise failed from None
        return Trained(model)
    if model is None or _explains(second, some, y[common]):
        return Trained(second, tuple(rare.tolist()), why)
    return Trained(model)


def _fitted(estimator: Any, X: Any, y: np.ndarray, weight: np.ndarray | None, seed: int | None) -> Any:
    model = untrained(estimator, seed)
    try:
        with openmp_for(len(y)):
            if weight is None:
                model.fit(X, y)
            elif _routing_enabled() and request_of_weights(estimator):
                model.fit(X, y, sample_weight=weight)
            else:
                with config_context(enable_metadata_routing=False):  # weights that are not routed
                    model.fit(X, y, **{_weight_argument(model): weight})
    except ValueError:
        check_size(X)  # what overflows is often called NaN
        raise
    return without_requests(model)


def check_size(X: Any) -> None:
    """Raise if numbers are so large that their squares, which scalers and linear models need, overflow."""
    numbers = X.data if sparse.issparse(X) else X
    if getattr(getattr(numbers, "dtype", None), "kind", "O") not in "fiu":
        return
    largest = float(np.abs(numbers).max(initial=0.0, where=np.isfinite(numbers)))
    if largest > _LARGEST:
        raise ValueError(f"X has values as large as {largest:.0e}, whose squares overflow: scale or clip them")


def _explains(model: Any, X: Any, y: np.ndarray) -> bool:
    """Whether rows that trained a model are likelier by its probabilities than by the frequencies of the labels."""
    if not hasattr(model, "predict_proba"):
        return True
    at = np.unique(np.linspace(0, len(y) - 1, _ROWS_LOOKED_AT).astype(int))
    labels, codes, rows = np.unique(y, return_inverse=True, return_counts=True)
    try:
        P = class_scores(model, _safe_indexing(X, at), labels)
    except ValueError:  # NaN
        return False
    own = np.log(np.maximum(P[np.arange(len(at)), codes[at]], 1e-300))
    return bool(own.mean() >= np.log(rows / len(y))[codes[at]].mean())


def warn_of_broken(name: str, trained: Sequence[Trained]) -> None:
    """Say once that a classifier was broken by rare labels, in some of the times that it was trained."""
    broken = [one for one in trained if one.without]
    if broken:
        labels = sorted({str(label) for one in broken for label in one.without})
        shown = ", ".join(labels[:5]) + (" ..." if len(labels) > 5 else "")
        times = f" in {len(broken)} of {len(trained)} trainings" if len(trained) > 1 else ""
        warn(
            f"{name} is broken by labels with very few rows ({shown}){times}: {broken[0].why}. It was trained without "
            "those rows instead; merge such labels, leave them out, or choose another classifier"
        )


def _seeded(estimator: Any, seed: int) -> Any:
    """A copy whose open ``random_state`` arguments, its own and those of its parts, have a number."""
    copy = clone(estimator)
    if hasattr(copy, "get_params"):
        open_ = [
            name
            for name, value in copy.get_params(deep=True).items()
            if re.fullmatch(r"(.*__)?random_state", name) and value is None
        ]
        copy.set_params(**{name: (seed + at) % 2**31 for at, name in enumerate(sorted(open_))})
    return copy


def _weight_argument(estimator: Any) -> str:
    """The name by which ``fit`` takes sample weights; a pipeline passes them to its last step."""
    final, path = _final_step(estimator)
    if not has_fit_parameter(final, "sample_weight"):
        raise ValueError(
            f"sample_weight or class_weight was given, but {type(final).__name__} cannot be trained with weights"
        )
    return f"{path}sample_weight"


def _final_step(estimator: Any) -> tuple[Any, str]:
    """The classifier at the end of a pipeline, and the prefix by which the pipeline's ``fit`` addresses it."""
    path = ""
    while isinstance(estimator, Pipeline):
        step, estimator = estimator.steps[-1]
        path += f"{step}__"
    return estimator, path
