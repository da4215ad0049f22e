"""The fitted fields of an estimator, as model files store them."""

from __future__ import annotations

from typing import Any

from tightset.compute.row_kinds import RowKind
from tightset.estimators.fitted import Fitted
from tightset.exceptions import ModelFileError

__all__ = ["fields_of_fitted", "fitted_of_fields"]

_NAMES = ("classes_", "levels_", "folds_", "_dtypes")
# What files of the first version may lack.
_LATER: dict[str, Any] = {
    "_trained_types": None,
    "_calibrated_types": None,
    "_form": None,
    "_gap": None,
    "_mark": 0,
    "_seed": 0,
    "_one_for_all": None,
}


def fields_of_fitted(fitted: Fitted) -> dict[str, Any]:
    kind = fitted.kind
    return {
        "classes_": fitted.classes,
        "levels_": fitted.levels,
        "folds_": list(fitted.folds),
        "_dtypes": kind.given,
        "_trained_types": kind.trained,
        "_calibrated_types": kind.calibrated,
        "_form": kind.form,
        "_gap": kind.gap,
        "_mark": fitted.mark,
        "_seed": fitted.seed,
        "_one_for_all": fitted.one_for_all,
    }


def fitted_of_fields(owner: str, parts: dict[str, Any], *, one_for_all: bool) -> tuple[Fitted, dict[str, Any]]:
    """What was learnt, not checked yet, and the fields that are left."""
    rest = dict(parts)
    for name in _NAMES:
        if name not in rest:
            raise ModelFileError(f"{owner}.{name} is missing")
    classes, levels, folds, given = (rest.pop(name) for name in _NAMES)
    trained, calibrated, form, gap, mark, seed, stored = (rest.pop(name, value) for name, value in _LATER.items())
    kind = RowKind(given, trained, calibrated, form, gap, rest.get("feature_names_in_"))
    one_for_all = one_for_all if stored is None else stored
    return Fitted(classes, levels, kind, folds, one_for_all, mark, seed), rest
