"""`ConformalClassifier`: a plain inductive conformal predictor over any classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter, validate_data

from tightset.predictor import ConformalPredictor, Fold

__all__ = ["ConformalClassifier"]


class ConformalClassifier(ConformalPredictor):
    """A plain inductive conformal predictor over any classifier: the honest baseline.

    The score of a label is its probability (``predict_proba``), or its ``decision_function`` where there are none.

    Parameters
    ----------
    estimator : a classifier, a pipeline of one, or a `FrozenEstimator`. By default logistic regression on
        standardised columns.
    prefit : ``estimator`` is trained already and must not be touched; all rows given to `fit` calibrate.
    confidence, inefficiency, calibration_size, label_conditional, cv, random_state : as in `SCPOClassifier`. One
        model serves every level.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = ConformalClassifier(confidence=0.9, random_state=0).fit(X, y)
    >>> clf.predict_set(X[:2], as_labels=True)
    [array([0]), array([0])]
    """

    trains_for_level = False

    def __init__(
        self,
        estimator: Any = None,
        *,
        confidence: Any = 0.95,
        inefficiency: Any = "size",
        prefit: bool = False,
        calibration_size: Any = None,
        label_conditional: bool = False,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.inefficiency = inefficiency
        self.prefit = prefit
        self.calibration_size = calibration_size
        self.label_conditional = label_conditional
        self.cv = cv
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.input_tags.sparse = True
            return tags
        if hasattr(self.estimator, "__sklearn_tags__"):  # a prefit model need not be scikit-learn's
            for name in ("sparse", "allow_nan", "string", "categorical"):
                setattr(tags.input_tags, name, getattr(get_tags(self.estimator).input_tags, name))
        return tags

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_cal: Any, y_cal: Any, groups: Any, groups_cal: Any) -> None:
        if not (self.prefit or isinstance(self.estimator, FrozenEstimator)):
            super()._fit(X, y, sample_weight, X_cal, y_cal, groups, groups_cal)
            return
        if any(given is not None for given in (sample_weight, X_cal, y_cal, groups_cal, self.cv)):
            raise ValueError(
                "a prefit estimator is not trained: give fit nothing but the calibration rows, as X, y and groups"
            )
        self._check_parameters()
        if not hasattr(self.estimator, "classes_"):
            raise ValueError(
                f"estimator must be trained already where prefit=True; {type(self.estimator).__name__} has no classes_"
            )
        self.classes_ = np.unique(self.estimator.classes_)
        calibration = self._calibration_rows(self._check_rows(X, reset=True), y, groups)
        self.folds_ = [Fold([self.estimator], self._calibrations([self.estimator], *calibration))]
        self._warn_of_calibration(calibration[1])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.prefit and self.estimator is None:
            raise ValueError("prefit=True needs an estimator that is trained already")
        if self.estimator is None:
            return
        name = type(self.estimator).__name__
        if not _has_scores(self.estimator):
            raise ValueError(
                f"estimator must have predict_proba or decision_function to score labels; {name} has neither"
            )
        if hasattr(self.estimator, "__sklearn_tags__") and not is_classifier(self.estimator):
            raise ValueError(f"estimator must be a classifier; {name} is not")
        if getattr(_final_step(self.estimator)[0], "decision_function_shape", None) == "ovo" and not hasattr(
            self.estimator, "predict_proba"
        ):
            raise ValueError("estimator must score classes, not pairs of them: set decision_function_shape='ovr'")

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        # The estimator decides what its rows are: frames, missing values and strings pass through untouched.
        X = X if hasattr(X, "shape") else np.asarray(X)
        if len(X.shape) == 1 and getattr(X, "dtype", None) is not None and X.dtype.kind in "OUT" and len(X):
            return X  # texts, for an estimator that reads them
        if len(X.shape) != 2:
            raise ValueError(f"Expected a 2D array X, got shape {X.shape}. Reshape your data: one row a sample")
        if X.shape[0] == 0:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        if sparse.issparse(X) and X.format not in {"csr", "csc"}:
            X = X.tocsr()  # others cannot be cut by rows
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[Any], None]:
        estimator = (
            _default_classifier(sparse_rows=sparse.issparse(X)) if self.estimator is None else clone(self.estimator)
        )
        weights = {} if sample_weight is None else {_weight_argument(estimator): sample_weight}
        estimator.fit(X, self.classes_[y], **weights)
        return [estimator], None

    def _scores(self, model: Any, X: Any) -> np.ndarray:
        scores = np.asarray(model.predict_proba(X) if hasattr(model, "predict_proba") else model.decision_function(X))
        if scores.dtype.kind != "f":
            scores = scores.astype(np.float64)
        if scores.ndim == 1:  # two classes, one signed distance
            scores = np.stack([-scores, scores], axis=1)
        if scores.shape[1] != len(model.classes_):
            raise ValueError(
                f"estimator {type(model).__name__} gave {scores.shape[1]} scores a row for {len(model.classes_)} "
                "classes; one score a class is needed"
            )
        if np.array_equal(model.classes_, self.classes_):
            return scores
        full = np.full((len(scores), len(self.classes_)), -np.inf, dtype=scores.dtype)
        full[:, np.searchsorted(self.classes_, model.classes_)] = scores  # a class unseen in training conforms least
        return full


def _default_classifier(*, sparse_rows: bool = False) -> Pipeline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(with_mean=not sparse_rows), LogisticRegression(max_iter=1000))


def _has_scores(estimator: Any) -> bool:
    return hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")


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
