"""Sample weights of other people's classifiers under scikit-learn's metadata routing: which requested them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.utils.metadata_routing import MetadataRequest, MetadataRouter, MethodMapping, get_routing_for_object

__all__ = ["FIT", "Unweighted", "request_of_weights", "weights_requested", "without_requests"]

WEIGHT = "sample_weight"
FIT = MethodMapping().add(caller="fit", callee="fit")


class Unweighted(NamedTuple):
    """A classifier that did not request the weights of rows. It gets those of labels, if there are some.

    >>> Unweighted(None, (np.array(["a", "b"]), np.array([1.0, 3.0]))).weight(np.array(["b", "a", "b"]))
    array([3., 1., 3.])
    """

    estimator: Any
    by_label: tuple[np.ndarray, np.ndarray] | None = None  # labels, sorted, and their weights

    def weight(self, y: np.ndarray) -> np.ndarray | None:
        """Weights of rows with the labels ``y``."""
        if self.by_label is None:
            return None
        labels, weights = self.by_label
        return np.asarray(weights[np.searchsorted(labels, y)])


def request_of_weights(estimator: Any) -> bool | None:
    """Whether ``fit`` of an estimator requests sample weights; False if it takes none, None if nobody has said.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> request_of_weights(LogisticRegression()), request_of_weights(KNeighborsClassifier())
    (None, False)
    """
    try:
        if get_routing_for_object(estimator).consumes("fit", [WEIGHT]):
            return True
        router = MetadataRouter(owner="tightset").add(estimator=estimator, method_mapping=FIT)
        return None if router.route_params(caller="fit", params={WEIGHT: 0})["estimator"]["fit"] else False
    except (UnsetMetadataPassedError, NotImplementedError):  # the latter: it does not support routing
        return None


def weights_requested(estimator: Any) -> MetadataRequest:
    """What an estimator requests of the metadata that can be passed on to its ``fit``, which is only the weights."""
    request = MetadataRequest(owner=type(estimator).__name__)
    request.fit.add_request(param=WEIGHT, alias=request_of_weights(estimator))
    return request


def without_requests(value: Any) -> Any:
    """The same estimator without requests of metadata, its own and those of its parts; a copy where there were some.

    What is trained needs them no more, and a model file cannot hold them.
    """
    if isinstance(value, BaseEstimator):
        state = vars(value)
        kept = {name: without_requests(one) for name, one in state.items() if name != "_metadata_request"}
        if len(kept) == len(state) and all(one is state[name] for name, one in kept.items()):
            return value
        copy = object.__new__(type(value))
        vars(copy).update(kept)
        return copy
    if type(value) in (list, tuple):
        parts = [without_requests(one) for one in value]
        return value if all(map(_same, parts, value)) else type(value)(parts)
    if type(value) is dict:
        pairs = {key: without_requests(one) for key, one in value.items()}
        return value if all(map(_same, pairs.values(), value.values())) else pairs
    return value


def _same(one: Any, other: Any) -> bool:
    return one is other
