"""What it costs to have a label in a set: read from what users write, and summed over sets."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np

__all__ = ["LARGEST", "cost_matrix", "costs_of_sets", "is_labelled", "numbers_in"]

LARGEST = 1e9  # functions of sums of costs are finite, as float32 too


def cost_matrix(cost: Any, classes: np.ndarray) -> np.ndarray | None:
    """``(C, C)``, the cost of label j in the set of a row whose label is i, in the order of the classes; None stays.

    ``cost`` is a number for each label, as a dict or in the order of the classes, or such a matrix; a pandas Series or
    data frame whose axes hold labels is taken by these.

    >>> cost_matrix({"a": 1, "b": 5}, np.array(["a", "b"]))
    array([[1., 5.],
           [1., 5.]])
    """
    if cost is None:
        return None
    C = len(classes)
    if isinstance(cost, Mapping):
        cost = _in_order(cost, classes)
    elif is_labelled(cost):
        cost = _along(cost, classes)
    found = numbers_in(cost)
    if found.shape == (C,):
        found = np.tile(found, (C, 1))
    if found.shape != (C, C):
        raise ValueError(
            f"cost must have a number for each of the {C} labels, or {C} x {C} of them (true label, label in the set); "
            f"got shape {found.shape}"
        )
    if not np.isfinite(found).all() or (found < 0).any():
        at = tuple(np.argwhere(~(np.isfinite(found) & (found >= 0)))[0])
        raise ValueError(f"cost must be finite and not negative; that of the label {classes[at[1]]} is {found[at]}")
    if found.max() > LARGEST:
        raise ValueError(f"cost must be at most {LARGEST:g}: write them in a larger unit")
    if not found.any():
        raise ValueError("cost is zero for every label: nothing would be minimised")
    return found


def numbers_in(cost: Any) -> np.ndarray:
    """Costs as floats, of any shape; ValueError for masked values, and for texts and booleans that look like numbers.

    >>> numbers_in([1, 5])
    array([1., 5.])
    """
    if np.ma.is_masked(cost):
        raise ValueError("cost is a masked array in which costs are masked: give a number for each label")
    if hasattr(cost, "columns") and not hasattr(cost, "iloc"):
        raise ValueError(
            "cost is a data frame whose rows have no labels: give an array, or a pandas data frame with both"
        )
    if isinstance(cost, np.ndarray) and cost.dtype.kind in "iuf":
        return np.asarray(cost, dtype=np.float64)
    try:
        each = np.asarray(cost, dtype=object)
        if all(isinstance(one, Number) and not isinstance(one, bool) for one in each.ravel().tolist()):
            return each.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"cost must be numbers; got {cost!r}")


def is_labelled(cost: Any) -> bool:
    """Whether it is a pandas Series or data frame with an axis other than 0, 1, 2, ..."""
    return hasattr(cost, "iloc") and any(axis.tolist() != list(range(len(axis))) for axis in cost.axes)


def _along(cost: Any, classes: np.ndarray) -> np.ndarray:
    """A Series or data frame with its rows, and its columns, in the order of the classes."""
    if not all(axis.is_unique for axis in cost.axes):
        raise ValueError("cost has a label twice")
    places = [_in_order({label: at for at, label in enumerate(axis)}, classes) for axis in cost.axes]
    return np.asarray(cost)[np.ix_(*places)]


def _in_order(cost: Mapping[Any, Any], classes: np.ndarray) -> list[Any]:
    known = {_plain(label): number for label, number in cost.items()}
    labels = classes.tolist()
    missing = [label for label in labels if label not in known]
    unknown = [label for label in known if label not in set(labels)]
    if missing or unknown:
        what = f"lacks the label{'s' if len(missing) > 1 else ''} {_some(missing)}" if missing else ""
        more = f"has {_some(unknown)}, which y does not have (rows of weight 0 do not count)" if unknown else ""
        raise ValueError(f"cost {' and '.join(one for one in (what, more) if one)}")
    return [known[label] for label in labels]


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _some(labels: list[Any]) -> str:
    return ", ".join(map(repr, labels[:5])) + (" ..." if len(labels) > 5 else "")


def costs_of_sets(sets: np.ndarray, cost: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    """What each of the sets ``(n, C)`` costs ``(n,)``; where the cost depends on the true label, ``y (n,)`` is needed.

    >>> costs_of_sets(np.array([[True, True], [False, True]]), np.array([[1.0, 5.0], [1.0, 5.0]]))
    array([6., 5.])
    """
    if (cost == cost[:1]).all():
        return np.asarray(sets @ cost[0])
    if y is None:
        raise ValueError("the cost depends on the true label, which is not known here: y is needed")
    return np.asarray((sets * cost[y]).sum(axis=1))
