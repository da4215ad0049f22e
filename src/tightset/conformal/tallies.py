"""Sums over rows that evaluations are made of: those of parts of the rows add up to those of all.

Conventions
-----------
sets : (n, C) bool; p : (n, C); y : (n,) integer labels, below 0 for one that no set can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tightset.conformal.inefficiency import Inefficiency

__all__ = ["Tally", "added", "ends_of_sets", "means", "row_of", "tally", "tally_of_intervals", "tally_of_vovk"]

_OF_LABEL = "coverage_of_label_"

Tally = dict[str, tuple[Any, Any]]  # by figure its sum over rows, and over how many


def added(tallies: Iterable[Tally]) -> Tally:
    """Those of parts in one.

    >>> added([{"coverage": (3, 4)}, {"coverage": (6, 6)}])
    {'coverage': (9, 10)}
    """
    total: Tally = {}
    for one in tallies:
        for name, (value, n) in one.items():
            so_far, rows = total.get(name, (0, 0))
            total[name] = so_far + value, rows + n
    return total


def means(sums: Tally) -> dict[str, float]:
    """The mean of each figure, NaN of one that no row has."""
    return {name: float(total / n) if n else float("nan") for name, (total, n) in sums.items()}


def tally(sets: np.ndarray, y: np.ndarray, p: np.ndarray | None, f: Inefficiency, names: Sequence[Any]) -> Tally:
    """What `metrics.evaluate` takes the means of."""
    n, C = sets.shape
    size = sets.sum(axis=1)
    covered = sets[np.arange(n), y] & (y >= 0)
    sums: Tally = {
        "coverage": (covered.sum(), n),
        "inefficiency": (np.sum(f((size - covered if f.observed else size).astype(float))), n),
        "mean_size": (size.sum(), n),
        "empty": ((size == 0).sum(), n),
        "singleton": ((size == 1).sum(), n),
        "unknown_label": ((y < 0).sum(), n),
    }
    if p is not None:
        sums |= tally_of_vovk(sets, p, y)
    share = np.bincount(size, minlength=C + 1)
    sums |= {f"share_of_size_{w}": (share[w], n) for w in range(C + 1)}
    sums |= {f"coverage_of_size_{w}": (covered[size == w].sum(), share[w]) for w in range(C + 1)}
    return sums | {f"{_OF_LABEL}{name}": (covered[y == c].sum(), (y == c).sum()) for c, name in enumerate(names)}


def row_of(sums: Tally, confidence: float) -> dict[str, Any]:
    """A row of a table from sums over all rows, as `metrics.evaluate` describes it."""
    found = means(sums)
    of_labels = [value for name, value in found.items() if name.startswith(_OF_LABEL) and not np.isnan(value)]
    at = list(found).index("unknown_label")
    first, rest = dict(list(found.items())[:at]), dict(list(found.items())[at:])
    row = {"confidence": float(confidence), "n": int(sums["coverage"][1]), **first}
    row["worst_label_gap"] = float(confidence - min(of_labels, default=np.nan))
    return row | {name: value for name, value in rest.items() if name != "unknown_label" or value > 0}


def tally_of_vovk(sets: np.ndarray, p: np.ndarray, y: np.ndarray) -> Tally:
    """What `metrics.vovk_criteria` takes the means of."""
    n, C = p.shape
    size = sets.sum(axis=1)
    total = p.sum(axis=1)
    largest = p.max(axis=1)
    known = y >= 0
    true = np.where(known, p[np.arange(n), y], 0.0)
    false_p = np.where(np.arange(C) == y[:, None], -np.inf, p)
    false_in_set = size - (sets[np.arange(n), y] & known)
    of_rows = {
        "S": total,
        "N": size,
        "U": np.partition(p, C - 2, axis=1)[:, C - 2],
        "M": size > 1,
        "F": total - largest,
        "E": np.maximum(size - 1, 0),
        "OU": false_p.max(axis=1),
        "OM": false_in_set > 0,
        "OF": total - true,
        "OE": false_in_set,
    }
    return {name: (values.sum(), n) for name, values in of_rows.items()}


def tally_of_intervals(sets: np.ndarray, y: np.ndarray, order: np.ndarray) -> Tally:
    """What `interval_metrics.evaluate_intervals` takes the means of; ``order (C,)`` are columns, the lowest first."""
    C = sets.shape[1]
    inside = sets[:, order]
    low, high = ends_of_sets(inside)
    rank = np.argsort(order)[np.maximum(y, 0)]  # of no account where y is below 0
    distance = np.min(np.where(inside, np.abs(np.arange(C) - rank[:, None]), C), axis=1)
    off = distance[(y >= 0) & (distance > 0) & inside.any(axis=1)]
    width = high - low + 1
    return {
        "mean_width": (width.sum(), len(y)),
        "with_gaps": ((inside.sum(axis=1) < width).sum(), len(y)),
        "miss_distance": (off.sum(), len(off)),
        "missed_by_more": ((off > 1).sum(), len(y)),
    }


def ends_of_sets(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest rank of each set; an empty one ends before it begins."""
    C, some = inside.shape[1], inside.any(axis=1)
    return np.where(some, inside.argmax(axis=1), 0), np.where(some, C - 1 - inside[:, ::-1].argmax(axis=1), -1)
