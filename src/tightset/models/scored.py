"""Classifiers with a conformity score computed from their probabilities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tightset.compute.arrays import settle
from tightset.compute.hashing import hash_uniform
from tightset.compute.label_intervals import as_intervals
from tightset.compute.row_forms import as_floats
from tightset.conformal.contract import Score
from tightset.conformal.scores import named
from tightset.models.class_scores import are_probabilities, class_scores
from tightset.models.contract import Shared
from tightset.models.ensembles import LogProbabilities, Member
from tightset.storage.registry import storable

__all__ = ["Logistic", "Scored"]


@storable
class Scored(NamedTuple):
    """A classifier, and the score that is made of its probabilities."""

    classifier: Any
    score: Score
    order: np.ndarray | None = None  # (C,), of the labels, if gaps in sets are filled

    @property
    def randomised(self) -> bool:
        return self.score.randomised

    def scores(self, X: Any, shared: Shared) -> np.ndarray:
        """Conformity scores ``(n, C)``; those that are randomised hang on the seed and the positions of the rows."""
        P = self.probabilities(X, shared.classes)
        u = self.uniform(P, shared)
        scores = np.asarray(self.score(P) if u is None else self.score(P, u))
        if scores.shape != P.shape:
            raise ValueError(
                f"conformity_score must return an array of the shape it is given, {P.shape}; it returned {scores.shape}"
            )
        if scores is not P and np.isnan(scores).any():  # those of the classifier were looked at
            raise ValueError(
                f"conformity_score={named(self.score)} returned NaN scores; no set can be computed from them"
            )
        scores = scores if scores.dtype.kind == "f" else scores.astype(np.float64)
        return as_intervals(scores, self.order)

    def probabilities(self, X: Any, classes: np.ndarray) -> np.ndarray:
        """Those of the classifier ``(n, C)``, or other scores if its conformity score takes them."""
        P = class_scores(self.classifier, X, classes)
        if self.score.needs_probabilities and not are_probabilities(P):
            raise ValueError(
                f"conformity_score={named(self.score)} needs probabilities, but {type(self.classifier).__name__} gave "
                "scores that do not add up to 1 in every row; 'lac', 'margin' and 'top-k' take any scores"
            )
        return P

    def uniform(self, P: np.ndarray, shared: Shared) -> np.ndarray | None:
        """A random number for each row, if the score is randomised."""
        if not self.randomised:
            return None
        return hash_uniform(settle(P), shared.seed, shared.positions)


@storable
class Logistic(NamedTuple):
    """A logistic regression that was trained on rows in partitions."""

    classes_: np.ndarray
    member: Member

    def predict_proba(self, X: Any) -> np.ndarray:
        scores = LogProbabilities(self.member, np.zeros(X.shape[1])).scores(as_floats(X))
        return np.asarray(np.exp(scores))
