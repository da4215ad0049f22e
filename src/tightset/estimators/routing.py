"""Sample weights under scikit-learn's metadata routing: what a predictor requests, and what its estimator gets."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metadata_routing import MetadataRouter, _routing_enabled

from tightset.estimators.checks import weighted_by_label
from tightset.estimators.labels import Labels
from tightset.exceptions import warn
from tightset.models.class_scores import name_of
from tightset.models.routing import FIT, Unweighted, request_of_weights, weights_requested

__all__ = ["Routing"]


class Routing:
    """The part of `ConformalPredictor` that says where metadata go."""

    estimator: Any
    class_weight: Any
    trains_for_level: bool
    # Whoever sends weights to `fit` need not say separately that accuracy is weighted, too.
    __metadata_request__score: ClassVar[dict[str, Any]] = {"sample_weight": True}

    def get_metadata_routing(self) -> MetadataRouter:
        """Get what metadata are requested: by the predictor itself, and sample weights by its estimator.

        Returns
        -------
        routing : MetadataRouter
            As scikit-learn's routing asks for it.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        if self._trains_estimator():
            router.add(estimator=weights_requested(self.estimator), method_mapping=FIT)
        return router

    def _trains_estimator(self) -> bool:
        """Whether there is an estimator of the user's to train."""
        return not (self.estimator is None or isinstance(self.estimator, (str, FrozenEstimator)))

    def _routed(self, y: np.ndarray | Labels) -> Any:
        """The estimator, `Unweighted` if routing is on and it did not request the weights that `fit` was given.

        Weights of training rows ``y`` that come from their labels are not routed.
        """
        if not (_routing_enabled() and self._trains_estimator()):
            return self.estimator
        request = request_of_weights(self.estimator)
        if request:
            if self.trains_for_level and request_of_weights(MetadataRouter(owner="").add_self_request(self)) is False:
                raise ValueError(
                    f"sample_weight is requested by estimator but not by {type(self).__name__}, which cannot train "
                    "without the weights of its estimator: call set_fit_request(sample_weight=True) on both"
                )
            return self.estimator
        if request is None:
            warn(
                f"{name_of(self.estimator)} did not request sample_weight, so it is trained without: call "
                "set_fit_request(sample_weight=True) on it, or with False if that is what you want"
            )
        by_label = weighted_by_label(None, self.class_weight, y)
        if by_label is None:
            return Unweighted(self.estimator)
        labels, first = np.unique(np.asarray(y), return_index=True)
        return Unweighted(self.estimator, (labels, by_label[first]))
