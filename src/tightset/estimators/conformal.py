"""`ConformalClassifier`: a plain inductive conformal predictor over any classifier."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from tightset.compute.arrays import settle
from tightset.compute.hashing import hash_uniform, mark_of
from tightset.compute.partitions import Partitions, as_floats, as_they_are
from tightset.conformal.ranks import calibration_rows_needed
from tightset.conformal.scores import as_score, settled
from tightset.conformal.splits import stratified_split
from tightset.estimators.base import CalibrationRows, ConformalPredictor
from tightset.estimators.checks import generator
from tightset.estimators.labels import check_labels, distinct_labels
from tightset.estimators.pieces import take
from tightset.estimators.predicting import Fold
from tightset.models.classifiers import (
    PRECOMPUTED,
    Given,
    are_probabilities,
    check_any_rows,
    check_base,
    check_size,
    class_scores,
    classes_of_columns,
    copy_input_tags,
    fit_base,
    name_of,
    trained_classes,
    untrained,
    warn_of_broken,
)
from tightset.models.scored import Logistic, Scored
from tightset.search.from_columns import logistic_regression
from tightset.storage.registry import storable

__all__ = ["ConformalClassifier"]


_TO_CHOOSE = 0.2  # of the calibration rows, for scores with numbers to choose


@storable
class ConformalClassifier(ConformalPredictor):
    """A plain inductive conformal predictor over any classifier: the honest baseline.

    Scores are made of its probabilities (``predict_proba``), or of its ``decision_function`` where it has none.

    Parameters
    ----------
    estimator : a classifier, or a pipeline of one. By default logistic regression on standardised columns. One that is
        trained already, in a `sklearn.frozen.FrozenEstimator`, is not touched, and all rows given to `fit` calibrate.
        On a Dask collection one that has ``partial_fit``, or is trained already, or the default. Or ``"precomputed"``:
        X holds the scores of a classifier, a column for each class, and all rows calibrate.
    conformity_score : ``"lac"``, the probability itself, which makes the smallest sets; ``"margin"``, ``"aps"``,
        ``"raps"``, ``"saps"``, ``"top-k"``; one of `tightset.scores` with settings of your own, such as
        ``APS(randomised=True)``; or a function of an array of probabilities. (`tightset.scores` has the formulas.)
    confidence, inefficiency, calibration_size, label_conditional, allow_empty, cv, random_state : as in
        `SCPOClassifier`. One model serves every level.

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
        conformity_score: Any = "lac",
        inefficiency: Any = "size",
        calibration_size: Any = None,
        label_conditional: bool = False,
        allow_empty: bool = True,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.conformity_score = conformity_score
        self.inefficiency = inefficiency
        self.calibration_size = calibration_size
        self.label_conditional = label_conditional
        self.allow_empty = allow_empty
        self.cv = cv
        self.random_state = random_state

    @classmethod
    def upgraded(cls, parts: dict[str, Any]) -> dict[str, Any]:
        """Fields of a model file as they are called now: before, ``conformity_score`` was ``score``."""
        parts = {"conformity_score" if name == "score" else name: value for name, value in parts.items()}
        if parts.pop("prefit", False) is True and not isinstance(parts.get("estimator"), FrozenEstimator):
            parts["estimator"] = FrozenEstimator(parts.get("estimator"))
        return parts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.input_tags.sparse = True
        else:
            copy_input_tags(tags, self.estimator)
        return tags

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        X_cal: Any,
        y_cal: Any,
        groups: Any,
        groups_cal: Any,
        classes: np.ndarray | None = None,
    ) -> None:
        precomputed = isinstance(self.estimator, str) and self.estimator == PRECOMPUTED
        if not (precomputed or isinstance(self.estimator, FrozenEstimator)):
            super()._fit(X, y, sample_weight, X_cal, y_cal, groups, groups_cal, classes)
            return
        if any(given is not None for given in (sample_weight, X_cal, y_cal, groups_cal, self.cv)):
            raise ValueError(
                "nothing is trained here, the estimator being trained already or scores being given: give fit nothing "
                "but the calibration rows, as X, y and groups"
            )
        self._check_parameters()
        X = self._rows(X, reset=True)
        model, present = self.estimator, distinct_labels(check_labels(y))
        if precomputed:
            names = getattr(self, "feature_names_in_", ())
            model = Given(classes_of_columns(X.shape[-1], names, present))
        self.classes_ = trained_classes(model)
        rows = self._calibration_rows(X, y, groups)
        self._mark = mark_of(rows[1])
        models, rows = self._settle([model], rows)
        self.folds_ = [Fold(models, self._calibrations(models, *rows))]
        self._warn_of_calibration(rows[1])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        as_score(self.conformity_score)
        self._seed = int(generator(self.random_state).randint(2**31, size=2)[1])  # of randomised scores, at every call
        if isinstance(self.estimator, str):
            if self.estimator != PRECOMPUTED:
                raise ValueError(f"estimator must be a classifier or 'precomputed'; got {self.estimator!r}")
        elif self.estimator is not None:
            check_base(self.estimator)

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        return check_any_rows(self, X, reset=reset)

    def _prepare(self) -> Any:
        return as_floats if self.estimator is None else as_they_are

    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[Any], None]:
        estimator = _default_classifier(sparse_rows=sparse.issparse(X)) if self.estimator is None else self.estimator
        seed = None if self.random_state is None else generator(self.random_state).randint(2**31)
        if isinstance(X, Partitions):
            if self.estimator is None:
                member = logistic_regression(X, y, len(self.classes_), sample_weight, seed=[seed or 0])
                return [Logistic(self.classes_, member)], None
            return [_fit_by_parts(estimator, X, self.classes_, y, sample_weight, seed)], None
        if self.estimator is None:
            check_size(X)
        trained = fit_base(estimator, X, self.classes_[y], sample_weight, seed=seed)
        warn_of_broken(name_of(estimator), [trained])
        return [trained.model], None

    def _calibrating(self) -> float:
        return 1 - _TO_CHOOSE if getattr(as_score(self.conformity_score), "choices", list)() else 1.0

    def _settle(self, models: list[Any], rows: CalibrationRows) -> tuple[list[Any], CalibrationRows]:
        """The classifier with its score; what that leaves open is chosen on rows that then do not calibrate."""
        (model,), score = models, as_score(self.conformity_score)
        if not getattr(score, "choices", list)():
            return [Scored(model, score)], rows
        X, y, groups = rows
        if len(y) < 2:
            raise ValueError(f"{self._named()} needs calibration rows to choose its numbers on; got {len(y)}")
        rest, held = stratified_split(
            np.zeros_like(y), max(1, round(_TO_CHOOSE * len(y))), generator(self.random_state)
        )
        chosen_on = take(X, held)
        chosen_on = chosen_on.gather() if isinstance(X, Partitions) else chosen_on
        P = self._probabilities(model, chosen_on, score)
        u = self._uniform(P, score, range(len(P)))
        by_strictness = sorted(self.levels_, key=float)
        judged = [level for level in by_strictness if calibration_rows_needed(level) <= len(held)]
        score = settled(score, P, y[held], (judged or by_strictness[:1])[-1], u)
        return [Scored(model, score)], (
            take(X, rest),
            y[rest],
            None if groups is None else groups[rest],
        )

    def _scores(self, model: Scored, X: Any, known: dict[int, np.ndarray], positions: Any) -> np.ndarray:  # noqa: ARG002
        P = self._probabilities(model.classifier, X, model.score)
        u = self._uniform(P, model.score, positions)
        scores = np.asarray(model.score(P) if u is None else model.score(P, u))
        if scores.shape != P.shape:
            raise ValueError(
                f"conformity_score must give an array of the shape that it gets, {P.shape}; it gave {scores.shape}"
            )
        if scores is not P and np.isnan(scores).any():  # those of the classifier were looked at
            raise ValueError(f"{self._named()} gave scores that are NaN; no set can be made of them")
        return scores if scores.dtype.kind == "f" else scores.astype(np.float64)

    def _named(self) -> str:
        return f"conformity_score={self.conformity_score!r}"

    def _probabilities(self, model: Any, X: Any, score: Any) -> np.ndarray:
        P = class_scores(model, X, self.classes_)
        if getattr(score, "needs_probabilities", False) and not are_probabilities(P):
            raise ValueError(
                f"{self._named()} needs probabilities, but {type(model).__name__} gave scores that do not "
                "add up to 1 in every row; 'lac', 'margin' and 'top-k' take any scores"
            )
        return P

    def _uniform(self, P: np.ndarray, score: Any, positions: Any) -> np.ndarray | None:
        if not getattr(score, "randomised", False):
            return None
        return hash_uniform(settle(P), self._seed ^ self._mark, positions)

    def _is_randomised(self) -> bool:
        return bool(getattr(as_score(self.conformity_score), "randomised", False))


def _fit_by_parts(
    estimator: Any, X: Partitions, classes: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None, seed: Any
) -> Any:
    """The classifier, shown one partition after the other."""
    if not hasattr(estimator, "partial_fit"):
        raise ValueError(
            f"X is a Dask collection, on which {type(estimator).__name__} cannot be trained, having no partial_fit: "
            "train it yourself and give it as FrozenEstimator(model), or use SCPOClassifier, which trains on all of X"
        )
    return X.fold(partial(_partial_fit, classes), untrained(estimator, seed), y, sample_weight)


def _partial_fit(classes: np.ndarray, model: Any, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> Any:
    more = {} if sample_weight is None else {"sample_weight": sample_weight}
    return model.partial_fit(X, classes[y], classes=classes, **more)


def _default_classifier(*, sparse_rows: bool = False) -> Pipeline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(with_mean=not sparse_rows), LogisticRegression(max_iter=1000))
