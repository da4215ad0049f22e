"""What sets of ordered labels are worth: how wide they are, whether they have gaps, how far off misses are.

Conventions
-----------
sets : (n, C) bool; y : (n,) integer labels, below 0 for one that no set can hold; order : (C,), columns from the lowest
label to the highest. Ranks are places in that order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.conformal.metrics import Row, checked
from tightset.conformal.tallies import ends_of_sets, means, tally_of_intervals

__all__ = ["evaluate_intervals", "widths"]


def widths(sets: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The width ``(n,)`` of sets ``(n, C)``: the distance between their ends in ranks plus one, 0 if they are empty.

    >>> widths(np.array([[True, False, True], [False, True, False], [False, False, False]]), np.arange(3))
    array([3, 1, 0])
    """
    low, high = ends_of_sets(sets[:, order])
    return np.asarray(high - low + 1)


def evaluate_intervals(sets: np.ndarray, y: np.ndarray, *, order: Any = None) -> Row:
    """Measure sets of ordered labels: their width, the share with gaps, and how far misses are from the set.

    Parameters
    ----------
    sets : ndarray of bool of shape (n_samples, n_classes)
        Whether each label is in the set of each row.
    y : ndarray of int of shape (n_samples,)
        The column of each row's label, below 0 for one that no set can hold.
    order : array-like of int of shape (n_classes,), optional
        The columns from the lowest label to the highest; by default as they are.

    Returns
    -------
    row : dict of str to float
        ``mean_width``, the mean distance between the ends of a set, in ranks, plus one: an empty set has width 0, and
        a gap counts like a label. ``with_gaps``, the share of sets that are no intervals. ``miss_distance``, the mean
        distance in ranks from the true label to the nearest one in the set, over rows that are missed, NaN if there are
        none. ``missed_by_more``, the share of all rows that are missed by more than one rank. A row with an empty set,
        or with a label below 0, has no distance, and counts for neither of the two.

    Examples
    --------
    >>> sets = np.array([[True, True, False, False], [True, False, True, False]])
    >>> evaluate_intervals(sets, np.array([3, 1]))
    {'mean_width': 2.5, 'with_gaps': 0.5, 'miss_distance': 1.5, 'missed_by_more': 0.5}
    """
    sets, y = checked(sets, y)
    C = sets.shape[1]
    order = np.arange(C) if order is None else np.asarray(order)
    if order.shape != (C,) or order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(C)):
        raise ValueError(f"order must hold the numbers of the {C} columns, each once; got {order.tolist()}")
    return means(tally_of_intervals(sets, y, order))
