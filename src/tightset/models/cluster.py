"""Dask classifiers of LightGBM and XGBoost: trained where rows lie, used without a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from tightset.compute.arrays import label_counts
from tightset.compute.rows import RowSource
from tightset.models.class_scores import name_of
from tightset.models.classifiers import untrained
from tightset.models.routing import Unweighted, without_requests

__all__ = ["fit_on_cluster", "needs_cluster", "without_cluster"]

_MODULES = ("lightgbm.dask", "xgboost.dask")


def needs_cluster(estimator: Any) -> bool:
    """Whether it is a classifier that is trained, and predicts, on Dask collections only."""
    return any(base.__module__ in _MODULES for base in type(estimator).__mro__)


def without_cluster(estimator: Any) -> Any:
    """The same classifier, trained or not, for rows in memory; any other as it is.

    >>> without_cluster("auto")
    'auto'
    """
    if isinstance(estimator, Unweighted):
        return estimator._replace(estimator=without_cluster(estimator.estimator))
    if isinstance(estimator, FrozenEstimator):
        inner = without_cluster(estimator.estimator)
        return estimator if inner is estimator.estimator else FrozenEstimator(inner)
    if not needs_cluster(estimator):
        return estimator
    if hasattr(estimator, "to_local"):
        return without_requests(estimator).to_local()  # which LightGBM cannot copy
    from xgboost import XGBClassifier

    local = XGBClassifier(**estimator.get_params())
    for name in ("_Booster", "n_classes_", "evals_result_"):
        if name in vars(estimator):
            setattr(local, name, vars(estimator)[name])
    return local


def fit_on_cluster(
    estimator: Any, X: RowSource, y: np.ndarray, classes: np.ndarray, weight: np.ndarray | None, *, seed: int
) -> Any:
    """A trained copy for rows in memory; ``y (k,)`` in ``0 ... C - 1``."""
    check = partial(_check_labels, name_of(estimator), classes)
    return without_cluster(X.fit_together(partial(untrained, estimator, seed), y, classes, weight, check))


def _check_labels(name: str, classes: np.ndarray, parts: list[np.ndarray]) -> None:
    """Raise if a worker would not see some of the labels, which neither library can bear."""
    rows = np.stack([label_counts(part, len(classes)) for part in parts])
    absent = np.flatnonzero((rows.sum(axis=0) > 0) & (rows == 0).any(axis=0))
    if len(absent):
        shown = ", ".join(map(str, classes[absent][:5].tolist()))
        raise ValueError(
            f"{name} is trained by {len(parts)} workers, each on its part of the rows, and not every part has rows of "
            f"the labels {shown}: shuffle the rows, leave out labels that are so rare, or give another classifier"
        )
