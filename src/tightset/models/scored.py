"""Classifiers with the conformity score that is made of their probabilities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tightset.compute.partitions import as_floats
from tightset.models.ensembles import LogProbabilities, Member
from tightset.storage.registry import storable

__all__ = ["Logistic", "Scored"]


@storable
class Scored(NamedTuple):
    """A classifier, and the score that is made of its probabilities."""

    classifier: Any
    score: Any


@storable
class Logistic(NamedTuple):
    """A logistic regression that was trained on partitions."""

    classes_: np.ndarray
    member: Member

    def predict_proba(self, X: Any) -> np.ndarray:
        scores = LogProbabilities(self.member, np.zeros(X.shape[1])).scores(as_floats(X))
        return np.asarray(np.exp(scores))
