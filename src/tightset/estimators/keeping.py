"""The part of all conformal classifiers that keeps them in files and shows them in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tightset.estimators import card
from tightset.estimators.description import describe
from tightset.estimators.fields import fields_of_fitted, fitted_of_fields
from tightset.estimators.fitted import Fitted
from tightset.models.cluster import without_cluster
from tightset.models.routing import without_requests
from tightset.storage.file import save_model

__all__ = ["Keeping"]


class Keeping(BaseEstimator):
    """What `ConformalPredictor` is kept and shown by."""

    fitted_: Fitted
    trains_for_level: bool

    def save(self, path: Any, *, about: dict[str, Any] | None = None, trusted: Sequence[str] = ()) -> None:
        """Write the predictor to a file that `tightset.load` opens without running code.

        Parameters
        ----------
        path : str or os.PathLike
            The file, usually ``name.tightset``. It is written completely or not at all.
        about : dict, optional
            Notes on the model that JSON can hold: where the rows come from, who trained it.
        trusted : sequence of str, default ()
            Full names of further types that may be stored; `load` must be given the same names.
        """
        check_is_fitted(self, "fitted_")
        save_model(self, path, says={**describe(self), "about": about or {}}, trusted=trusted)

    def stored_fields(self) -> dict[str, Any]:
        """What a model file holds: parameters, and what was learnt; nothing of it needs a cluster."""
        rest = {name: value for name, value in vars(without_requests(self)).items() if name != "fitted_"}
        if "estimator" in rest:  # networks have none
            rest["estimator"] = without_cluster(rest["estimator"])
        return {**rest, **fields_of_fitted(self.fitted_)}

    @classmethod
    def upgraded(cls, parts: dict[str, Any]) -> dict[str, Any]:
        """What a model file holds, as an object has it today."""
        one_for_all = not cls.trains_for_level or parts.get("nested") is True
        fitted, rest = fitted_of_fields(cls.__name__, parts, one_for_all=one_for_all)
        return {"class_weight": None, "assurance": None, **rest, "fitted_": fitted}

    def _repr_html_inner(self) -> str:
        return card.with_card(self, super()._repr_html_inner())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # unless scikit-learn was told to show text
            bundle["text/html"] = card.with_card(self, bundle["text/html"])
        return bundle
