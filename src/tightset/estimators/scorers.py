"""Scorers for model selection: set size as a score that scikit-learn's searches maximise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from tightset.conformal.ranks import calibration_rows_needed, threshold
from tightset.estimators.base import ConformalPredictor
from tightset.exceptions import warn

__all__ = ["SizeScorer", "size_scorer"]


@dataclass(frozen=True)
class SizeScorer:
    """Minus the mean set size at exact coverage, as a callable of a fitted predictor, rows and labels."""

    confidence: float | None = None

    def __call__(self, estimator: Any, X: Any, y: Any, *, groups: Any = None) -> float:
        predictor, X = _predictor(estimator, X)
        levels, _ = predictor.levels_asked(self.confidence)
        if len(levels) > 1:
            raise ValueError("the predictor has several levels: name one, size_scorer(0.9)")
        fitted = predictor.fitted_
        rows, groups = predictor.check_new_rows(X, groups if fitted.by_group else None)
        codes = predictor.label_codes(rows, y, "y", unknown="miss")
        needed = calibration_rows_needed(levels[0])
        if len(codes) < needed:
            warn(
                f"{len(codes):,} rows cannot tell sizes at confidence {levels[0]}, which needs {needed:,}: every set "
                "counts as holding all labels; use fewer folds, more rows or a lower level"
            )
        scored = fitted.scored(fitted.ask(levels, of=X), rows.gather(), groups)
        A = np.concatenate([one.comparable for _, [one] in scored])
        own = np.where(codes >= 0, A[np.arange(len(A)), codes], -np.inf)  # a label that training lacked is missed
        return -float((A >= threshold(own, levels[0])).sum(axis=1).mean())

    def get_metadata_routing(self) -> MetadataRequest:
        """Groups are requested; a predictor that was fitted without groups does not get them."""
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="groups", alias=True)
        return request


def _predictor(estimator: Any, X: Any) -> tuple[ConformalPredictor, Any]:
    """The predictor at the end of pipelines and inside searches, and the rows as it is given them."""
    while isinstance(estimator, (Pipeline, BaseSearchCV)):
        if isinstance(estimator, BaseSearchCV):
            estimator = estimator.best_estimator_
        else:
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            estimator = estimator.steps[-1][1]
    if not isinstance(estimator, ConformalPredictor):
        raise TypeError(
            f"size_scorer scores an SCPOClassifier or a ConformalClassifier; got {type(estimator).__name__}"
        )
    return estimator, X


def size_scorer(confidence: float | None = None) -> SizeScorer:
    """Make a scorer that tunes for small prediction sets, for ``scoring=`` of `GridSearchCV` and `cross_validate`.

    The score is minus the mean size of the sets, with the threshold moved so that the share ``confidence`` of the rows
    at hand is covered, and no more. So sets that are small because they miss labels gain nothing. The predictor may
    stand at the end of a pipeline. Coverage within groups needs metadata routing: the scorer requests ``groups``.

    Parameters
    ----------
    confidence : float, optional
        The level, between 0 and 1; by default that of the predictor.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y) -> float``; larger is better.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import GridSearchCV
    >>> from tightset import ConformalClassifier
    >>> from tightset.metrics import size_scorer
    >>> scores = {"conformity_score": ["lac", "top-k"]}
    >>> search = GridSearchCV(ConformalClassifier(random_state=0), scores, scoring=size_scorer(0.95), cv=3)
    >>> search.fit(*load_wine(return_X_y=True)).best_params_
    {'conformity_score': 'lac'}
    """
    return SizeScorer(confidence)
