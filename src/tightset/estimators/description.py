"""The description of a fitted predictor in the header of a model file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tightset.conformal.calibration import Calibration
from tightset.conformal.ranks import rank
from tightset.exceptions import ModelFileError

if TYPE_CHECKING:
    from tightset.estimators.base import ConformalPredictor

__all__ = ["check_said", "describe"]


def describe(model: ConformalPredictor) -> dict[str, Any]:
    """What a fitted predictor says of itself: classes, columns, levels, and the ranks that its sets are cut at."""
    names = getattr(model, "feature_names_in_", None)
    return {
        "classes": np.asarray(model.classes_).astype(str).tolist(),
        "dtype_of_classes": str(model.classes_.dtype),
        "columns": getattr(model, "n_features_in_", 1) if names is None else [str(name) for name in names],
        "dtypes": model.fitted_.kind.given,
        "levels": [float(level) for level in model.levels_],
        **({} if model.fitted_.assurance is None else {"assurance": float(model.fitted_.assurance)}),
        "calibration": [
            {"confidence": float(level), **category}
            for at, level in enumerate(model.levels_)
            for fold in model.folds_
            for category in _ranks(fold.calibrations[min(at, len(fold.calibrations) - 1)], level)
        ],
    }


def check_said(about: Mapping[str, Any], opened: Any) -> None:
    """Raise ModelFileError if the header says other classes, columns, levels or ranks than the model has."""
    own = {"kind": type(opened).__name__, **describe(getattr(opened, "predictor", opened))}
    if hasattr(opened, "encoding"):  # of a table
        own |= {"columns": [column.name for column in opened.encoding.columns], "target": opened.target}
    for name in ("kind", "classes", "columns", "target", "levels", "assurance", "calibration"):
        if about.get(name) != own.get(name):
            raise ModelFileError(f"its header says {name} that the model inside does not have")


def _ranks(calibration: Calibration, level: Any) -> list[dict[str, Any]]:
    return [
        {"rows": len(alphas), "rank": rank(level, len(alphas), calibration.assurance)}
        | ({} if group is None else {"group": str(group)})
        | ({} if label < 0 else {"label": label})
        for (group, label), alphas in calibration.alphas.items()
    ]
