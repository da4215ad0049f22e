"""Other people's classifiers: one score a class from each, and cross-fitting.

`cross_fit` trains a classifier on the rows of every fold and on all rows. Scores of a row come from models that have
not seen it; in-sample ones would be far too good. The models of the folds are not thrown away: averaged with the one of
all rows they are a better classifier than that alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter, validate_data

from tightset.arrays import settle
from tightset.progress import Progress
from tightset.rowtypes import without_half

__all__ = [
    "PRECOMPUTED",
    "Averaged",
    "CrossFitted",
    "Given",
    "are_probabilities",
    "auto_classifiers",
    "check_any_rows",
    "check_base",
    "class_scores",
    "classes_of_columns",
    "copy_input_tags",
    "cross_fit",
    "fit_base",
    "known_classes",
    "trained_classes",
    "untrained",
]

PRECOMPUTED = "precomputed"
_LEAST = 1e-5  # probabilities below are alike: a tree that says 0 has just not seen enough rows
_LEAST_GIVEN = 1e-10  # not trees, perhaps, and sure of themselves
_TINY = 1e-30  # for a classifier as it is: its own ranking, to the last
_WHOLE = 0.5  # weight of the model of all rows among those of the folds


class Given:
    """A classifier whose scores are the rows themselves."""

    def __init__(self, classes: np.ndarray) -> None:
        self.classes_ = classes

    def decision_function(self, X: Any) -> np.ndarray:
        scores = np.asarray(X).view()
        scores.flags.writeable = False  # they are the user's
        return scores


def check_base(estimator: Any) -> None:
    """Raise unless the estimator is a classifier that scores every class."""
    name = type(estimator).__name__
    if isinstance(estimator, type):
        raise ValueError(f"estimator must be an instance, such as {estimator.__name__}(); got the class itself")  # noqa: TRY004
    if not (hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")):
        raise ValueError(f"estimator must have predict_proba or decision_function to score labels; {name} has neither")
    if hasattr(estimator, "__sklearn_tags__") and not is_classifier(estimator):
        raise ValueError(f"estimator must be a classifier; {name} is not")
    if getattr(_innermost(estimator), "decision_function_shape", None) == "ovo" and not hasattr(
        estimator, "predict_proba"
    ):
        raise ValueError("estimator must score classes, not pairs of them: set decision_function_shape='ovr'")


def copy_input_tags(tags: Any, estimator: Any) -> None:
    """What the classifier says of the rows that it takes, said of the one around it."""
    if hasattr(estimator, "__sklearn_tags__"):  # a prefit model need not be scikit-learn's
        for name in ("sparse", "allow_nan", "string", "categorical"):
            setattr(tags.input_tags, name, getattr(get_tags(estimator).input_tags, name))


def check_any_rows(owner: Any, X: Any, *, reset: bool) -> Any:
    """Rows for a classifier that decides itself what rows are: frames, missing values, texts pass untouched."""
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) == 1 and getattr(X, "dtype", None) is not None and X.dtype.kind in "OUT" and len(X):
        return X  # texts, for an estimator that reads them
    if len(X.shape) != 2:
        raise ValueError(f"Expected a 2D array X, got shape {X.shape}. Reshape your data: one row a sample")
    if X.shape[0] == 0:
        raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
    if sparse.issparse(X) and X.format not in {"csr", "csc"}:
        X = X.tocsr()  # others cannot be cut by rows
    validate_data(owner, X, reset=reset, skip_check_array=True)
    return without_half(X)


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
        raise ValueError(f"{_name(model)} must be trained already if it is to stay as it is; it has no classes_")
    return np.unique(model.classes_)


def known_classes(model: Any, present: np.ndarray) -> np.ndarray:
    """The classes of a model that is trained already, among them all of ``y``."""
    classes = trained_classes(model)
    unknown = set(present.tolist()) - set(classes.tolist())
    if unknown:
        raise ValueError(f"y has labels that {_name(model)} was not trained on: {sorted(unknown, key=str)[:5]}")
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


def fit_base(
    estimator: Any, X: Any, y: np.ndarray, weight: np.ndarray | None = None, *, seed: int | None = None
) -> Any:
    """A trained copy; ``y`` holds labels as the user gave them; a seed is for what has no ``random_state`` yet."""
    model = untrained(estimator, seed)
    weights = {} if weight is None else {_weight_argument(model): weight}
    model.fit(X, y, **weights)
    return model


def class_scores(model: Any, X: Any, classes: np.ndarray) -> np.ndarray:
    """Scores ``(n, C)``, columns as ``classes``; a class that the model has not seen conforms least."""
    name = "X" if isinstance(model, Given) else _name(model)
    if not hasattr(model, "classes_"):
        raise ValueError(f"{name} has no classes_: it was not trained, or is no classifier")
    with_probabilities = hasattr(model, "predict_proba")
    scores = np.asarray(model.predict_proba(X) if with_probabilities else model.decision_function(X))
    if scores.dtype.kind not in "fbiu" or scores.ndim not in (1, 2):
        raise ValueError(f"{name} must give an array of real scores, a column for each class; it gave {scores!r:.60}")
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.ndim == 1:  # two classes, one signed distance
        scores = np.stack([-scores, scores], axis=1)
    if len(scores) != X.shape[0]:
        raise ValueError(f"{name} gave {len(scores)} rows of scores for {X.shape[0]} rows of X")
    if scores.shape[1] != len(model.classes_):
        raise ValueError(
            f"{name} gave {scores.shape[1]} scores a row for {len(model.classes_)} classes; one score a class is needed"
        )
    if np.isnan(scores).any():
        verb = "has" if isinstance(model, Given) else "gave"
        raise ValueError(
            f"{name} {verb} scores that are NaN, first in row {int(np.isnan(scores).any(axis=1).argmax())}"
        )
    if np.array_equal(model.classes_, classes):
        return scores
    unknown = set(np.asarray(model.classes_).tolist()) - set(classes.tolist())
    if unknown:
        raise ValueError(f"{name} predicts the classes {sorted(unknown, key=str)[:5]}, which y does not have")
    full = np.full((len(scores), len(classes)), 0.0 if with_probabilities else -np.inf, dtype=scores.dtype)
    full[:, np.searchsorted(classes, model.classes_)] = scores
    return full


def are_probabilities(scores: np.ndarray) -> bool:
    """Whether every row holds numbers from 0 to 1 that add up to 1."""
    return bool((scores >= 0).all() and (np.abs(scores.sum(axis=1) - 1) < 1e-3).all())


class Averaged(NamedTuple):
    """Classifiers whose probabilities are averaged, on a log scale; or scores, divided by a common ``scale``.

    ``scores`` gives ``log(max(sum_m w_m p_m, least))`` for probabilities, ``sum_m w_m a_m / scale`` for other scores.
    """

    models: Sequence[Any]
    weights: np.ndarray
    classes: np.ndarray
    scale: float | None  # None for probabilities
    least: float = _LEAST
    lowest: float = 0.0  # score of a class that a model has not seen, where they are no probabilities

    def scores(self, X: Any) -> np.ndarray:
        total: Any = 0.0
        for model, weight in zip(self.models, self.weights, strict=True):
            scores = class_scores(model, X, self.classes)
            if scores.dtype == np.float32:
                scores = settle(scores)  # before a float64 makes digits of its rounding
            total = total + weight * np.where(np.isneginf(scores), self.lowest, scores).astype(np.float64)
        return _as_logs(total, self.scale, self.least)


class CrossFitted(NamedTuple):
    """A classifier trained on all rows, and averaged with those of the folds; held-out scores of both, ``(k, C)``.

    ``given`` is whether it was trained before, on other rows.
    """

    name: str
    whole: Averaged
    averaged: Averaged
    held_out_whole: np.ndarray
    held_out_averaged: np.ndarray
    given: bool = False


def cross_fit(
    estimator: Any,
    X: Any,
    y: np.ndarray,
    classes: np.ndarray,
    folds: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    progress: Progress,
) -> CrossFitted:
    """Train on the rows outside each fold and on all rows; ``y (k,)`` in ``0 ... C - 1``, ``folds (repeats, k)``.

    The held-out score of a row is that of the model whose fold it is; averaged over the repeats, whose folds differ, it
    is that of an average of models, none of which has seen the row. Without folds they are in-sample, and say nothing.
    """
    given = isinstance(estimator, str)
    name = "given scores" if given else _name(estimator)
    if given or isinstance(estimator, FrozenEstimator):
        model = Given(classes) if given else estimator
        scores = class_scores(model, X, classes)
        scale = None if are_probabilities(scores) else _spread(scores)
        whole, clipped = (Averaged([model], np.ones(1), classes, scale, least) for least in (_TINY, _LEAST_GIVEN))
        held, held_clipped = (_as_logs(scores, scale, one.least) for one in (whole, clipped))
        return CrossFitted(name, whole, clipped, held, held_clipped, given=True)
    n_folds = folds.max(initial=-1) + 1
    parts = [(repeat, fold, folds[repeat] != fold) for repeat in range(len(folds)) for fold in range(n_folds)]
    parts.append((-1, -1, np.ones(len(y), dtype=bool)))  # all rows
    seeds = rng.integers(2**31, size=len(parts)).tolist()
    progress.expect(len(parts))
    held_out = np.empty((len(folds), len(y), len(classes)))
    models = []

    def train(fold: int, rows: np.ndarray, seed: int) -> tuple[Any, np.ndarray | None]:
        at, rest = np.flatnonzero(rows), np.flatnonzero(~rows)
        where = f"outside fold {fold + 1} of {n_folds}" if fold >= 0 else "that train"
        done = "trained on"
        try:
            own_weight = None if weight is None else weight[at]
            model = fit_base(estimator, _safe_indexing(X, at), classes[y[at]], own_weight, seed=seed)
            if not len(rest):
                return model, None
            done = "used on rows that it has not seen, once trained on"
            return model, class_scores(model, _safe_indexing(X, rest), classes)
        except Exception as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{name} could not be {done} the {len(at)} rows {where}: {type(error).__name__}: {error}"
            ) from error

    jobs = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(train)(*part[1:], seed) for part, seed in zip(parts, seeds, strict=True)
    )
    for (repeat, _, rows), (model, scores) in zip(parts, _closing(jobs), strict=True):
        models.append(model)
        if scores is not None:
            held_out[repeat, ~rows] = scores
        progress.advance()

    if not len(folds):
        held_out = class_scores(models[-1], X, classes)[None]
    lowest = float(held_out.min(initial=np.inf, where=np.isfinite(held_out)))
    held_out[np.isneginf(held_out)] = lowest  # a class that a fold has not seen
    scale = None if are_probabilities(held_out.reshape(-1, len(classes))) else _spread(held_out[0])
    weights = np.append(np.full(len(models) - 1, (1 - _WHOLE) / max(len(models) - 1, 1)), _WHOLE)
    return CrossFitted(
        name,
        Averaged(models[-1:], np.ones(1), classes, scale, _TINY, lowest),
        Averaged(models, weights, classes, scale, _LEAST, lowest),
        _as_logs(held_out[0], scale, _TINY),
        _as_logs(held_out.mean(axis=0), scale),
    )


def _closing(jobs: Any) -> Iterator[Any]:
    """The results one by one; what is left is cancelled if something goes wrong."""
    try:
        yield from jobs
    finally:
        jobs.close()


def _as_logs(scores: np.ndarray, scale: float | None, least: float = _LEAST) -> np.ndarray:
    if scale is None:
        return np.asarray(np.log(np.clip(scores, least, 1.0)))
    return np.clip(scores / scale, -1e6, 1e6)


def _spread(scores: np.ndarray) -> float:
    """The typical distance between the scores of a row, so that scores of any unit come out alike."""
    largest = float(np.abs(scores).max(initial=0.0, where=np.isfinite(scores)))
    if largest == 0:
        return 1.0
    spread = largest * float(np.sqrt(np.mean(np.var(np.clip(scores / largest, -1, 1), axis=1))))
    return spread if spread > 0 else 1.0


def _name(estimator: Any) -> str:
    return type(_innermost(estimator)).__name__


def _innermost(estimator: Any) -> Any:
    """The classifier inside pipelines, frozen ones and searches."""
    while isinstance(estimator, (Pipeline, FrozenEstimator, BaseSearchCV)):
        estimator = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator.estimator
    return estimator


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
        raise ValueError(f"sample_weight was given, but {type(final).__name__} cannot be trained with weights")
    return f"{path}sample_weight"


def _final_step(estimator: Any) -> tuple[Any, str]:
    """The classifier at the end of a pipeline, and the prefix by which the pipeline's ``fit`` addresses it."""
    path = ""
    while isinstance(estimator, Pipeline):
        step, estimator = estimator.steps[-1]
        path += f"{step}__"
    return estimator, path
