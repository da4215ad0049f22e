"""Columns that give the label away: each may be known only once the label is."""

from __future__ import annotations

import numpy as np

from tightset.exceptions import warn
from tightset.tables.encoding import Encoding

__all__ = ["warn_of_giveaways"]

_ROWS = 4000  # are looked at
_COLUMNS = 300
_NEARLY_ALL = 0.99  # of rows that were not learnt from


def warn_of_giveaways(encoding: Encoding, X: np.ndarray, codes: np.ndarray) -> None:
    """Say which columns ``(n, columns)`` predict the label ``(n,)`` alone, where it is not nearly always the same."""
    if len(codes) < 100 or len(encoding.columns) > _COLUMNS or len(encoding.columns) < 2:
        return
    some = np.random.default_rng(0).permutation(len(codes))[:_ROWS]
    learnt, seen = some[::2], some[1::2]
    commonest = np.bincount(codes[seen]).max() / len(seen)
    if 1 - commonest < 5 * (1 - _NEARLY_ALL):
        return
    at, found = 0, []
    for column in encoding.columns:
        width = len(column.names)
        of_column = slice(at, at + width)
        at += width
        share = _predicted(X[learnt, of_column], codes[learnt], X[seen, of_column], codes[seen])
        if share >= _NEARLY_ALL:
            found.append(f"{column.name!r} ({100 * share:.1f}%)")
    if found:
        warn(
            f"the label can be predicted from one column alone: {', '.join(found[:5])} of rows. Is it known when you "
            "predict? If not, drop it"
        )


def _predicted(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> float:
    """The share of new rows whose label a small tree on these columns predicts."""
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_leaf_nodes=4 * (int(y.max()) + 1), min_samples_leaf=3, random_state=0)
    most = 1e30  # trees compute in single precision
    return float((tree.fit(X.clip(-most, most), y).predict(X_new.clip(-most, most)) == y_new).mean())
