"""`ConformalClassifier`: a plain inductive conformal predictor over any classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from tightset.compute.hashing import mark_of
from tightset.compute.row_forms import as_floats, as_they_are
from tightset.conformal.ordinal import OrdinalAPS
from tightset.conformal.priced import PerCost
from tightset.conformal.ranks import calibration_rows_needed
from tightset.conformal.scores import as_score, settled
from tightset.conformal.splits import stratified_split
from tightset.estimators.base import ConformalPredictor, GivenRows
from tightset.estimators.calibrating import CalibrationRows
from tightset.estimators.checks import check_groups, generator
from tightset.estimators.fitted import Fitted, Fold
from tightset.estimators.labels import checked_labels, distinct_labels
from tightset.estimators.ordering import check_order_of_categories, label_order
from tightset.estimators.predicting import codes_of
from tightset.models.class_scores import PRECOMPUTED, Given, name_of
from tightset.models.classifiers import (
    check_any_rows,
    check_base,
    check_size,
    classes_of_columns,
    copy_input_tags,
    fit_base,
    trained_classes,
    untrained,
    warn_of_broken,
)
from tightset.models.cluster import fit_on_cluster, needs_cluster, without_cluster
from tightset.models.crossfit_there import partial_fit
from tightset.models.named import NAMES, named_classifier
from tightset.models.routing import Unweighted, without_requests
from tightset.models.scored import Logistic, Scored
from tightset.search.from_columns import logistic_regression
from tightset.search.problem import Outcome, TrainingRows
from tightset.storage.registry import storable

__all__ = ["ConformalClassifier"]


_TO_CHOOSE = 0.2  # of the calibration rows, for scores with numbers to choose


@storable
class ConformalClassifier(ConformalPredictor):
    """A plain inductive conformal predictor over any classifier: the baseline.

    Scores are made of its probabilities (``predict_proba``), or of its ``decision_function`` where it has none.

    Parameters
    ----------
    estimator : classifier, str or None, default None
        What gives the probabilities.

        - None: logistic regression on standardised columns.
        - ``"hgb"``, ``"lightgbm"``, ``"rf"``, ``"et"``, ``"mlp"`` or ``"logistic"``: a classifier by name.
        - A classifier, or a pipeline that ends in one. On a Dask collection it needs ``partial_fit``, or is a Dask
          classifier of LightGBM or XGBoost.
        - A classifier in a `sklearn.frozen.FrozenEstimator`: it stays as it is, and all rows given to `fit` calibrate.
        - ``"precomputed"``: X holds the scores of a classifier, a column for each class, and all rows calibrate.
    confidence : float or sequence of float, default 0.95
        The level, or several. One model serves every level.
    conformity_score : str, score or callable, default "lac"
        ``"lac"``, the probability itself, which makes the smallest sets; ``"margin"``, ``"aps"``, ``"raps"``,
        ``"saps"`` or ``"top-k"``; one of `tightset.scores` with settings of your own, such as
        ``APS(randomised=True)``; or a function of an array of probabilities. (`tightset.scores` has the formulas.)
    ordered : bool or list of labels, default False
        Labels have an order, that of ``classes_`` or of the list: gaps in the sets are filled, so that they are
        intervals, and the filled sets are what is calibrated. Not for ``cv`` and ``label_conditional``. The score
        `tightset.scores.OrdinalAPS` makes intervals in another way.
    inefficiency : str, float or pair of functions, default "size"
        What `evaluate` reports as inefficiency, as in `SCPOClassifier`. It does not change the sets; the score
        `tightset.scores.Hull` makes it small, and `tightset.scores.PerCost` makes costs of labels small.
    calibration_size : float, int or None, default None
        Rows held aside, a fraction or a number. By default a quarter, and more (up to half) if the level needs more.
    assurance : float or None, default None
        The probability with which coverage given the calibration rows is at least the level, as in `SCPOClassifier`.
    label_conditional : bool, default False
        Make coverage hold for each label, not only on average.
    class_weight : dict, "balanced" or None, default None
        Weights of the labels in training, as in `SCPOClassifier`.
    allow_empty : bool, default True
        An empty set says that no label conforms. With False it gets the label with the largest p-value, so coverage is
        never smaller.
    cv : int, splitter, iterable or None, default None
        Folds for cross-conformal prediction, as in `SCPOClassifier`.
    random_state : int, RandomState or None, default None
        For the rows held aside, randomised scores, and smoothing.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        As in scikit-learn.
    feature_names_in_ : ndarray of str
        As in scikit-learn; there if the columns of X have names.
    fitted_ : Fitted
        Models and calibrations (`tightset.estimators.fitted.Fitted`), and what is answered from them.

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
        ordered: Any = False,
        inefficiency: Any = "size",
        calibration_size: Any = None,
        assurance: float | None = None,
        label_conditional: bool = False,
        class_weight: Any = None,
        allow_empty: bool = True,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.conformity_score = conformity_score
        self.ordered = ordered
        self.inefficiency = inefficiency
        self.calibration_size = calibration_size
        self.assurance = assurance
        self.label_conditional = label_conditional
        self.class_weight = class_weight
        self.allow_empty = allow_empty
        self.cv = cv
        self.random_state = random_state

    @classmethod
    def upgraded(cls, parts: dict[str, Any]) -> dict[str, Any]:
        """Fields of a model file as they are called now: before, ``conformity_score`` was ``score``."""
        parts = {"conformity_score" if name == "score" else name: value for name, value in parts.items()}
        if parts.pop("prefit", False) is True and not isinstance(parts.get("estimator"), FrozenEstimator):
            parts["estimator"] = FrozenEstimator(parts.get("estimator"))
        return super().upgraded({"ordered": False, **parts})

    @property
    def cost(self) -> Any:
        """What labels in sets cost, if the conformity score knows it."""
        return self.conformity_score.cost if isinstance(self.conformity_score, PerCost) else None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.input_tags.sparse = True
        else:
            copy_input_tags(tags, _named(self.estimator))
        return tags

    def _fit(self, given: GivenRows) -> Fitted:
        if not self._is_trained():
            return super()._fit(given)
        if self.cv is not None or not given.only_rows():
            raise ValueError(
                "nothing is trained here, because the estimator is already trained or scores are given: pass only the "
                "calibration rows to fit, as X, y and groups"
            )
        if self.class_weight is not None:
            raise ValueError("class_weight is for training, but the estimator is already trained or scores are given")
        levels = self.check_parameters()
        X, kind = self._first_rows(given.X)
        check_order_of_categories(self.ordered, given.y)
        model, present = without_requests(without_cluster(self.estimator)), distinct_labels(checked_labels(given.y))
        if isinstance(self.estimator, str):
            names = getattr(self, "feature_names_in_", ())
            model = Given(classes_of_columns(X.shape[-1], names, present))
        classes, seed = trained_classes(model), self._seed()
        codes = codes_of(X, given.y, classes, "y", unknown="miss")
        rows = CalibrationRows(X, codes, check_groups(given.groups, len(codes), "groups"))
        draft = Fitted(classes, levels, kind, one_for_all=True, mark=mark_of(codes), seed=seed)
        models, rows = self._settle([model], rows, draft)
        fitted = replace(draft, folds=[self._calibrated(draft, Fold(list(models), []), rows)])
        self._warn_of_calibration(fitted, rows.y)
        return fitted

    def check_parameters(self) -> tuple[Any, ...]:
        levels = super().check_parameters()
        as_score(self.conformity_score)
        if isinstance(self.estimator, str):
            if self.estimator not in (PRECOMPUTED, *NAMES):
                names = ", ".join(map(repr, NAMES))
                raise ValueError(
                    f"estimator must be a classifier, 'precomputed' or one of {names}; got {self.estimator!r}"
                )
        elif self.estimator is not None:
            check_base(self.estimator)
        return levels

    def _is_trained(self) -> bool:
        """Whether there is nothing to train: the estimator is trained already, or scores are given."""
        precomputed = isinstance(self.estimator, str) and self.estimator == PRECOMPUTED
        return precomputed or isinstance(self.estimator, FrozenEstimator)

    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> Any:
        if not hasattr(self, "fitted_") and self._is_trained():  # to calibrate is all that there is to fit
            return self.fit(X, y, groups=groups)
        return super().calibrate(X, y, groups=groups)

    def _seed(self) -> int:
        return int(generator(self.random_state).randint(2**31, size=2)[1])

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        return check_any_rows(self, X, reset=reset)

    def _prepare(self) -> Callable[[Any], Any]:
        return as_floats if self.estimator is None else as_they_are

    def _train(self, rows: TrainingRows, levels: Any, estimator: Any, errors: Any) -> Outcome:  # noqa: ARG002 - one for all
        seed = None if self.random_state is None else generator(self.random_state).randint(2**31)
        estimator = _named(estimator)
        if rows.X.lazy:
            return Outcome([_train_in_parts(estimator, rows, seed)])
        estimator = without_cluster(estimator)
        X = rows.X.gather()
        if estimator is None:
            estimator = _default_classifier(sparse_rows=sparse.issparse(X))
            check_size(X)
        trained = fit_base(estimator, X, rows.classes[rows.y], rows.weight, seed=seed)
        warn_of_broken(name_of(estimator), [trained])
        return Outcome([trained.model])

    def calibrating_share(self) -> float:
        return 1 - _TO_CHOOSE if as_score(self.conformity_score).is_open else 1.0

    def _settle(
        self, models: Sequence[Any], rows: CalibrationRows, fitted: Fitted
    ) -> tuple[Sequence[Scored], CalibrationRows]:
        """The classifier with its score; what that leaves open is chosen on rows that then do not calibrate."""
        (model,), order = models, label_order(self.ordered, fitted.classes)
        score = as_score(self.conformity_score)
        if isinstance(score, OrdinalAPS):
            score, order = score.along(order), None  # its sets are intervals as they are
        scored = Scored(model, score, order)
        if not score.is_open:
            return [scored], rows
        y = rows.y
        if len(y) < 2:
            raise ValueError(
                f"conformity_score={self.conformity_score!r} needs calibration rows to choose its parameters on; got "
                f"{len(y)}"
            )
        rest, held = stratified_split(
            np.zeros_like(y), max(1, round(_TO_CHOOSE * len(y))), generator(self.random_state)
        )
        P = scored.probabilities(fitted.kind.prepared(rows.take(held).X.gather()), fitted.classes)
        u = scored.uniform(P, fitted.shared(range(len(P))))
        by_strictness = sorted(fitted.levels, key=float)
        judged = [level for level in by_strictness if calibration_rows_needed(level) <= len(held)]
        score = settled(score, P, y[held], (judged or by_strictness[:1])[-1], u, order)
        return [scored._replace(score=score)], rows.take(rest)


def _named(estimator: Any) -> Any:
    """The estimator, which a name may stand for."""
    return named_classifier(estimator) if isinstance(estimator, str) and estimator in NAMES else estimator


def _train_in_parts(estimator: Any, rows: TrainingRows, seed: int | None) -> Any:
    """On rows that lie elsewhere: logistic regression by sums over them, others shown one part after the other."""
    if estimator is None:
        return Logistic(rows.classes, logistic_regression(rows, seed=[seed or 0]))
    weight = rows.weight
    if isinstance(estimator, Unweighted):
        estimator, weight = estimator.estimator, estimator.weight(rows.classes[rows.y])
    if needs_cluster(estimator):
        return fit_on_cluster(estimator, rows.X, rows.y, rows.classes, weight, seed=seed or 0)
    if not hasattr(estimator, "partial_fit"):
        raise ValueError(
            f"X is a Dask collection, on which {type(estimator).__name__} cannot be trained, having no "
            "partial_fit: train it yourself and give it as FrozenEstimator(model), or use SCPOClassifier, which "
            "trains it on a sample, or a Dask classifier of LightGBM or XGBoost"
        )
    start = untrained(without_requests(estimator), seed)
    return rows.X.fold(partial(partial_fit, rows.classes), start, rows.y, weight)


def _default_classifier(*, sparse_rows: bool = False) -> Pipeline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(with_mean=not sparse_rows), LogisticRegression(max_iter=1000))
