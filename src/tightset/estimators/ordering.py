"""The order of labels whose sets are intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["label_order"]


def label_order(ordered: Any, classes: np.ndarray) -> np.ndarray | None:
    """Indices of the classes in the order that ``ordered`` says: True is their own; None if they have none.

    >>> label_order(["low", "high"], np.array(["high", "low"]))
    array([1, 0])
    """
    if ordered is None or (isinstance(ordered, (bool, np.bool_)) and not ordered):
        return None
    if isinstance(ordered, (bool, np.bool_)):
        return np.arange(len(classes))
    if isinstance(ordered, str) or not hasattr(ordered, "__iter__"):
        raise ValueError(f"ordered must be True, False or a list of the labels in their order; got {ordered!r}")
    given = [one.item() if isinstance(one, np.generic) else one for one in ordered]
    labels = classes.tolist()
    unknown = [one for one in given if one not in labels]
    lacking = [one for one in labels if one not in given]
    if unknown or lacking or len(given) != len(labels):
        why = f"it lacks {lacking[0]!r}" if lacking else f"y has no {unknown[0]!r}" if unknown else "one is there twice"
        raise ValueError(f"ordered must name every label once: {why}")
    return np.array([labels.index(one) for one in given])
