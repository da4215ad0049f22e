"""The numbers of a report: sizes and coverage at every stop of its slider, the range due to chance, the listed rows.

Conventions
-----------
levels : K stops, rising; n rows, C labels, R rows listed. Sets are those of `predict_set` at each stop, to the bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.conformal.intervals import share_interval
from tightset.conformal.ranks import calibration_rows_needed, significance
from tightset.conformal.shortfall import Shortfall, short_labels
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.checks import check_levels
from tightset.estimators.fitted import Asked
from tightset.estimators.ordering import order_of
from tightset.estimators.spending import costs_of, knows_costs, sizes
from tightset.exceptions import TightsetWarning

__all__ = [
    "ByLabel",
    "Listed",
    "Tally",
    "by_label",
    "calibration",
    "hardest",
    "listed",
    "size_bins",
    "stops",
    "tally",
]

_STOPS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97,
          0.98, 0.99, 0.995, 0.999)  # fmt: skip
_LABELS_TOGETHER = 2000  # beyond, pairs of labels are not counted
_PAIRS_IN_MEMORY, _PAIRS_WORK = 2**25, 10**12  # counts, and products to sum, at most; else at one stop only
_TOP = 10  # labels of each row whose p-values are kept
_BARS = 16  # of the figure of set sizes, besides that of empty sets
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"


def calibration(model: ConformalPredictor) -> tuple[int, bool]:
    """How many rows calibrated, and whether they did so together: in one fold, not by label or group."""
    fitted = model.fitted_
    return fitted.calibration_rows().total(), len(fitted.folds) == 1 and not fitted.by_label and not fitted.by_group


def stops(model: ConformalPredictor, chosen: Any) -> tuple[list[Any], int]:
    """The stops of the slider, with the levels that the model was made for, and where the chosen one is.

    Levels for which there are too few calibration rows, so that every set holds all labels, are left out.
    """
    chosen = model.levels_[0] if chosen is None else check_levels(chosen)[0][0]
    rows, together = calibration(model)
    sure = model.fitted_.assurance
    usual = [level for level in _STOPS if not together or rows >= calibration_rows_needed(level, sure)]
    usual = usual if len(usual) > 1 else list(_STOPS[:2])
    by_error = {significance(level): level for level in (*usual, *model.levels_, chosen)}
    levels = [by_error[eps] for eps in sorted(by_error, reverse=True)]
    return levels, [significance(level) for level in levels].index(significance(chosen))


class Tally(NamedTuple):
    """One predictor on all rows."""

    size: np.ndarray  # (K, n)
    covered: np.ndarray | None  # (K, n), where the labels of the rows are known
    best: np.ndarray  # (n,), the largest p-value of each row at the chosen level, or NaN
    together: dict[int, np.ndarray]  # for stops (C, C), rows whose set holds both labels: all, the chosen one, or none
    spent: np.ndarray | None = None  # (K, n), what sets cost, where labels have a cost that can be known


def tally(
    model: ConformalPredictor,
    X: Any,
    y: np.ndarray | None,
    levels: list[Any],
    chosen: int | None = None,
    groups: Any = None,
    priced: Any = None,
) -> Tally:
    """Sizes and coverage at every level, in memory that does not grow with the number of labels times rows.

    What is of the ``chosen`` level only is worked out if there is one. Costs, and the order of labels that makes sizes
    widths, are those of the predictor ``priced``, by default the model itself, which the model may be compared with.
    """
    asked = _asked(model, levels, X)
    new, groups = model.check_new_rows(X, groups)
    n, C = new.shape[0], len(model.classes_)
    size = np.empty((len(levels), n), dtype=np.int32)
    covered = None if y is None else np.empty((len(levels), n), dtype=bool)
    best = np.full(n, np.nan)
    priced = model if priced is None else priced
    order = order_of(priced)
    spent = np.empty((len(levels), n)) if knows_costs(priced, y) else None
    pairs_at = () if chosen is None else _stops_with_pairs(len(levels), n, C, chosen)
    together = {k: np.zeros((C, C), dtype=np.int32) for k in pairs_at}
    for rows, scored in model.fitted_.scored(asked, new.gather(), groups):
        if chosen is not None:
            best[rows] = scored[chosen].p.max(axis=1)
        for k, (level, piece) in enumerate(zip(levels, scored, strict=True)):
            kept = piece.sets(level, allow_empty=model.allow_empty)
            size[k, rows] = sizes(kept, order)
            if spent is not None:
                spent[k, rows] = costs_of(priced, kept, np.zeros(len(kept), dtype=int) if y is None else y[rows])
            if covered is not None and y is not None:
                covered[k, rows] = kept[np.arange(len(kept)), y[rows]] & (y[rows] >= 0)  # -1 is a label of no column
            if k in together:
                numbers = kept.astype(np.float32)  # exact up to 2^24 rows, and a piece has fewer
                together[k] += (numbers.T @ numbers).astype(np.int32)
    return Tally(size, covered, best, together, spent)


def _stops_with_pairs(K: int, n: int, C: int, chosen: int) -> Sequence[int]:
    """Where pairs of labels are counted: at every stop, unless labels and rows are so many that only one can be.

    >>> [len(_stops_with_pairs(23, 20_000, C, 7)) for C in (29, 1000, 1500, 3000)]
    [23, 23, 1, 0]
    """
    if C > _LABELS_TOGETHER:
        return ()
    return range(K) if K * C**2 <= _PAIRS_IN_MEMORY and K * n * C**2 <= _PAIRS_WORK else (chosen,)


def _asked(model: ConformalPredictor, levels: list[Any], X: Any) -> list[Asked]:
    """Levels with their measures; the page itself says for which of them none was trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TightsetWarning)
        return model.fitted_.ask(levels, of=X)


def hardest(size: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Rows by difficulty: the largest sets, then empty ones, then single labels; the lowest best p-value first.

    >>> hardest(np.array([1, 0, 3, 2, 1]), np.array([0.9, 0.01, 0.5, 0.5, 0.2])).tolist()
    [2, 3, 1, 4, 0]
    """
    return np.lexsort((best, -np.where(size == 0, 1.5, size)))


class Listed(NamedTuple):
    """Some rows with all that a page needs to show their sets at every stop."""

    kept: np.ndarray  # (K, R, C)
    measure: list[int]  # (K,), which of the p-values belong to a stop
    top: list[np.ndarray]  # for each measure (R, T), the labels of the largest p-values, largest first
    top_p: list[np.ndarray]  # and these p-values
    own_p: list[np.ndarray] | None  # for each measure (R,), the p-values of the true labels
    rank: list[int] | None = None  # (C,), the places of labels that have an order

    def encoded(self) -> tuple[list[str], int, list[str]]:
        """Who is in which set at which stop: patterns over the stops, characters a code, a string of codes a row.

        A measure for each of several levels makes sets that need not grow from stop to stop, so that there is a code
        for every pattern of in and out that occurs. There are few: one more than stops, if one measure serves all.

        >>> kept = np.array([[[True, False]], [[True, True]]])
        >>> Listed(kept, [0, 0], [], [], None).encoded()
        (['01', '11'], 1, ['10'])
        """
        K, R, C = self.kept.shape
        bits = np.ascontiguousarray(np.packbits(self.kept.reshape(K, R * C), axis=0).T)
        _, first, codes = np.unique(
            bits.view(f"V{bits.shape[1]}").ravel(), return_index=True, return_inverse=True
        )  # a pattern is a string of bytes
        flat = self.kept.reshape(K, R * C)
        patterns = ["".join("01"[int(one)] for one in flat[:, at]) for at in first]
        width = 1 + (len(patterns) > 64) + (len(patterns) > 64**2)
        names = np.array([_digits(code, width) for code in range(len(patterns))])
        return patterns, width, ["".join(names[row]) for row in codes.reshape(R, C)]


def _digits(code: int, width: int) -> str:
    return "".join(_ALPHABET[code // 64**place % 64] for place in reversed(range(width)))


def listed(
    model: ConformalPredictor,
    X: Any,
    y: np.ndarray | None,
    levels: list[Any],
    groups: Any = None,
    at: np.ndarray | None = None,
) -> Listed:
    """Sets and p-values of a few rows, at every level; ``at`` is where they stand among all rows."""
    asked = _asked(model, levels, X)
    new, groups = model.check_new_rows(X, groups)
    found = model.fitted_.sets_and_p(asked, new.gather(), groups, at, allow_empty=model.allow_empty)
    measures, order = list(dict.fromkeys(one.model for one in asked)), order_of(model)
    p = [found[[one.model for one in asked].index(at)][1] for at in measures]
    top = [np.argsort(-one, axis=1, kind="stable")[:, :_TOP] for one in p]
    return Listed(
        np.stack([kept for kept, _ in found]),
        [measures.index(one.model) for one in asked],
        top,
        [np.take_along_axis(one, best, axis=1) for one, best in zip(p, top, strict=True)],
        None if y is None else [np.where(y >= 0, one[np.arange(len(one)), y], 0.0) for one in p],
        None if order is None else np.argsort(order).tolist(),
    )


def size_bins(size: np.ndarray, C: int) -> list[tuple[int, int | None]]:
    """Bins of set sizes as pairs (from, to): each size by itself, or bins of equal width after the empty set.

    Up to `_BARS` labels every size has its bin. Of more labels the bins are as narrow as they can be with 95% of the
    rows in the first `_BARS`; larger sets are in a last one that is open (None).

    >>> size_bins(np.array([1, 2]), 3)
    [(0, 0), (1, 1), (2, 2), (3, 3)]
    >>> size_bins(np.array([1, 5] * 20 + [300]), 1000)[-2:]
    [(16, 16), (17, None)]
    >>> size_bins(np.array([3, 40, 62]), 64)[:3], size_bins(np.array([3, 40, 62]), 64)[-1]
    ([(0, 0), (1, 5), (6, 10)], (61, 64))
    """
    if C <= _BARS:
        return [(w, w) for w in range(C + 1)]
    most = int(size.max())
    usual = np.quantile(size, 0.95, method="inverted_cdf")
    width = next(m * 10**e for e in range(9) for m in (1, 2, 5) if _BARS * m * 10**e >= usual)
    ends = [min(width * at, C) for at in range(1, min(_BARS, max(1, -(-most // width))) + 1)]
    bins: list[tuple[int, int | None]] = [(0, 0), *((width * at + 1, end) for at, end in enumerate(ends))]
    return bins if most <= ends[-1] else [*bins, (ends[-1] + 1, C if ends[-1] + 1 == C else None)]


class ByLabel(NamedTuple):
    """Coverage and size by true label, for the L labels that have rows, at every stop."""

    of: np.ndarray  # (L,), which labels
    rows: np.ndarray  # (L,)
    covered: np.ndarray  # (K, L), rows
    size: np.ndarray  # (K, L), the mean
    ends: np.ndarray  # (2, K, L), the interval of the coverage
    short: list[Shortfall]  # for each stop the labels that fall short, as places in these arrays


def by_label(model: ConformalPredictor, y: np.ndarray, found: Tally, levels: list[Any]) -> ByLabel:
    """What was found, by true label; rows of a label that the model does not know (-1) belong to none."""
    assert found.covered is not None  # noqa: S101 - there are labels
    known = y >= 0
    of, at, rows = np.unique(y[known], return_inverse=True, return_counts=True)
    L = len(of)
    covered = np.array([np.bincount(at[one[known]], minlength=L) for one in found.covered])
    size = np.array([np.bincount(at, weights=one[known], minlength=L) for one in found.size]) / rows
    calibrated = model.fitted_.rows_of_labels()[of]
    how: dict[str, Any] = {"assurance": model.fitted_.assurance}
    short = [short_labels(rows, one, level, calibrated, **how) for level, one in zip(levels, covered, strict=True)]
    return ByLabel(of, rows, covered, size, np.stack(share_interval(covered, rows)), short)
