"""Scorers for model selection: set size as a score that scikit-learn's searches maximise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tightset.conformal.ranks import threshold
from tightset.estimators.base import ConformalPredictor

__all__ = ["SizeScorer", "size_scorer"]


@dataclass(frozen=True)
class SizeScorer:
    """Minus the mean set size at exact coverage, as a callable of a fitted predictor, rows and labels."""

    confidence: float | None = None

    def __call__(self, estimator: ConformalPredictor, X: Any, y: Any) -> float:
        levels, _ = estimator.levels_asked(self.confidence)
        if len(levels) > 1:
            raise ValueError("the predictor has several levels: name one, size_scorer(0.9)")
        rows, groups = estimator.check_new_rows(X, None)
        codes = estimator.label_codes(rows, y, "y", unknown="miss")
        fitted = estimator.fitted_
        scored = fitted.scored(fitted.ask(levels, of=X), rows.gather(), groups)
        A = np.concatenate([one.comparable for _, [one] in scored])
        own = np.where(codes >= 0, A[np.arange(len(A)), codes], -np.inf)  # a label that training lacked is missed
        return -float((A >= threshold(own, levels[0])).sum(axis=1).mean())


def size_scorer(confidence: float | None = None) -> SizeScorer:
    """Make a scorer that tunes for small prediction sets, for ``scoring=`` of `GridSearchCV` and `cross_validate`.

    The score is minus the mean size of the sets, with the threshold moved so that the share ``confidence`` of the rows
    at hand is covered, and no more. So sets that are small because they miss labels gain nothing.

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
