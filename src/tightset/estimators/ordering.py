"""The order of labels whose sets are intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.conformal.ordinal import OrdinalAPS
from tightset.models.ensembles import Ensemble, Stacked
from tightset.models.scored import Scored

__all__ = ["check_order", "check_order_as_fitted", "check_order_of_categories", "label_order", "order_of"]


def label_order(ordered: Any, classes: np.ndarray) -> np.ndarray | None:
    """Indices of the classes in the order that ``ordered`` says: True is their own; None if they have none.

    >>> label_order(["low", "high"], np.array(["high", "low"]))
    array([1, 0])
    """
    if not _is_asked(ordered):
        return None
    if isinstance(ordered, (bool, np.bool_)):
        return np.arange(len(classes))
    if np.ndim(ordered) != 1:  # as texts, sets and iterators have no dimension
        raise ValueError(f"ordered must be True, False or a list of the labels in their order; got {ordered!r}")
    given = [one.item() if isinstance(one, np.generic) else one for one in ordered]
    labels = classes.tolist()
    unknown = [one for one in given if one not in labels]
    lacking = [one for one in labels if one not in given]
    if unknown or lacking or len(given) != len(labels):
        more = f"y has no {unknown[0]!r} (rows of weight 0 do not count)" if unknown else "one is there twice"
        why = f"it lacks {', '.join(map(repr, lacking))}" if lacking else more
        raise ValueError(f"ordered must name every label once: {why}")
    return np.array([labels.index(one) for one in given])


def order_of(model: Any) -> np.ndarray | None:
    """The order of the labels of a fitted predictor ``(C,)``, which its sets are intervals of; None if it has none.

    It is that of what was fitted: parameters may have been set since.
    """
    return _order_within(model.fitted_.folds[0].models[0], len(model.classes_))


def _order_within(trained: Any, C: int) -> np.ndarray | None:
    match trained:
        case Scored(score=OrdinalAPS(order=order)):
            return np.arange(C) if order is None else np.array(order)
        case Stacked(ensemble=Ensemble(order=order)) | Ensemble(order=order) | Scored(order=order):
            return order
        case _:
            return None


def check_order(model: Any) -> None:
    """Raise if what is asked for beside an order would cut intervals up."""
    score = getattr(model, "conformity_score", None)
    if not _is_asked(model.ordered) and not isinstance(score, OrdinalAPS):
        return
    what = "ordered" if _is_asked(model.ordered) else f"conformity_score={score!r}"
    if model.label_conditional:
        raise ValueError(
            f"{what} is not for label_conditional: thresholds that differ between labels would cut intervals up"
        )
    if model.cv is not None:
        raise ValueError(f"{what} is not for cv: the intervals of its folds, counted together, may have gaps")


def check_order_as_fitted(model: Any) -> None:
    """Raise if the parameters of a fitted predictor ask for another order of labels than it was fitted with."""
    asked, score = label_order(model.ordered, model.classes_), getattr(model, "conformity_score", None)
    if isinstance(score, OrdinalAPS):
        asked = _order_within(Scored(None, score.along(asked)), len(model.classes_))
    fitted = order_of(model)
    if not (asked is fitted or (asked is not None and fitted is not None and np.array_equal(asked, fitted))):
        raise ValueError(
            "ordered and conformity_score ask for another order of labels than the predictor was fitted with: fit "
            "again, or set them as they were"
        )


def check_order_of_categories(ordered: Any, y: Any) -> None:
    """Raise if ``ordered=True`` stands for another order than that which a categorical ``y`` has itself.

    >>> import pandas as pd
    >>> check_order_of_categories(True, pd.Categorical(["a", "b"], ["a", "b"], ordered=True))
    """
    kind: Any = getattr(y, "dtype", None)
    if ordered is not True or not (getattr(kind, "ordered", False) or type(kind).__name__ == "Enum"):  # of polars
        return
    given = [one for one in np.asarray(kind.categories).tolist() if (np.asarray(y) == one).any()]
    if given != sorted(given):
        raise ValueError(
            f"ordered=True is the order of classes_, {', '.join(map(repr, sorted(given)))}; y has another. For that "
            f"give ordered={given!r}"
        )


def _is_asked(ordered: Any) -> bool:
    return not (ordered is None or (isinstance(ordered, (bool, np.bool_)) and not ordered))
