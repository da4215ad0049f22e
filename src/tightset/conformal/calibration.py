"""The inductive conformal predictor: calibrate, p-values, sets. It knows nothing of training.

    p(x, y) = (#{j : alpha_j <= A(x, y)} + 1) / (n + 1),      Gamma(x) = {y : p(x, y) > eps}

over the ``n`` calibration rows of the category of ``(x, y)``: all rows, those of label ``y``, those of the group of
``x``, or both. A set holds the true label with probability at least ``1 - eps`` if calibration rows and new rows are
exchangeable, whatever the scores are.

Conventions
-----------
scores : (n, C), larger is more typical; y : (n,) integer labels; groups : (n,) hashable values or None.
Ranks are integers: ``y`` is kept iff ``#{alpha_j <= A} >= r``, by default ``floor(eps (n + 1))`` of an exact fraction.
With assurance ``r`` may be smaller (see `ranks.rank`) and the set is ``{y : p(x, y) >= (r + 1) / (n + 1)}``, a little
larger; p-values stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.row_types import COARSE
from tightset.compute.threads import cores
from tightset.conformal.abstention import Abstention
from tightset.conformal.lookups import SortedScores, members_of
from tightset.conformal.ranks import rank, significance
from tightset.storage.fields import fits, floats, must
from tightset.storage.registry import storable

__all__ = [
    "Calibration",
    "most_conforming",
    "p_values",
    "sets",
]

_SCORES_FOR_THREADS = 2**19
_CHUNK = 2**16  # scores looked up at once by a thread; bounds the working memory of p-values to megabytes a thread
_CHUNK_OF_CATEGORY = 2**8  # and of a category, lest calls cost more than look-ups where there are thousands
_NONE = SortedScores(np.empty(0))


class Counts(NamedTuple):
    """For each score, the calibration scores of its category that are below it, at most it, and there at all."""

    below: np.ndarray
    at_most: np.ndarray
    n: np.ndarray  # (n, C), or 1 in place of n or of C where it is the same for all rows, or all labels


@storable
class Calibration:
    """Calibration scores of the own labels by category, sorted when all of them are needed for the first time.

    ``slacks`` has, for types of rows that are coarser than those of calibration, within which distance scores count
    as equal (see `row_types`), and under ``"alone"`` by how much a row may score otherwise than in a batch; `widened`
    counts so. ``abstention`` has what `predict_or_abstain` needs, where rows are not by label or by group.

    >>> scores, y = np.array([[3.0, 1.0], [2.0, 5.0], [4.0, 0.0]]), np.array([0, 1, 0])
    >>> icp = Calibration.of(scores, y)
    >>> icp.p_values(np.array([[4.0, 1.0]]))
    array([[0.75, 0.25]])
    >>> icp.sets(np.array([[4.0, 1.0]]), confidence=0.75)
    array([[ True, False]])
    """

    derived_fields = ("_sorted", "_rows", "_thresholds")
    slacks: Mapping[str, float] = MappingProxyType({})
    abstention: Abstention | None = None
    mark = 0  # a number that tells these calibration rows from others, for random numbers
    assurance: Fraction | None = None  # of coverage given the calibration rows, in each category by itself
    _slack = 0.0

    def __init__(self, alphas: dict[tuple[Any, int], np.ndarray], *, by_label: bool, by_group: bool) -> None:
        self.alphas = alphas
        self.by_label = by_label
        self.by_group = by_group
        self._sorted: dict[tuple[Any, int], SortedScores] = {}
        self._thresholds: dict[tuple[Any, int, int], np.floating] = {}  # by category and rank
        self._rows = {category: len(scores) for category, scores in alphas.items()}

    @classmethod
    def of(
        cls,
        scores: np.ndarray,
        y: np.ndarray,
        *,
        by_label: bool = False,
        groups: np.ndarray | None = None,
    ) -> Self:
        """Calibrate on scores ``(n, C)`` of rows with labels ``y``."""
        return cls.of_own(scores[np.arange(len(y)), y], y, scores.shape[1], by_label=by_label, groups=groups)

    @classmethod
    def of_own(
        cls, own: np.ndarray, y: np.ndarray, C: int, *, by_label: bool = False, groups: np.ndarray | None = None
    ) -> Self:
        """Calibrate on the scores ``(n,)`` of the own labels ``y`` of rows, of ``C`` labels that there are."""
        alphas = {}
        for group, members in members_of(groups):
            own_group, y_group = own[members], y[members]
            for label in range(C) if by_label else [-1]:
                alphas[group, label] = own_group if label < 0 else own_group[y_group == label]
        return cls(alphas, by_label=by_label, by_group=groups is not None)

    @classmethod
    def from_stored(cls, parts: dict[str, Any]) -> Self:
        """Of the fields in a model file, which are looked at; thresholds are worked out again."""
        alphas, by_label, by_group = (parts.get(name) for name in ("alphas", "by_label", "by_group"))
        must(
            type(by_label) is bool and type(by_group) is bool, "Calibration.by_label and by_group must be true or false"
        )
        must(isinstance(alphas, dict) and alphas, "Calibration.alphas must be a dict of scores by category")
        for category, scores in (alphas or {}).items():
            must(isinstance(category, tuple) and len(category) == 2, "a category of Calibration.alphas is no pair")
            group, label = category
            must((group is None) != by_group, "a category of Calibration.alphas has no group, or one too many")
            right = type(label) is int and (label >= 0 if by_label else label == -1)
            must(right, "a label of Calibration.alphas is none")
            floats(scores, "Calibration.alphas", None, finite=False)
        result = cls(dict(alphas or {}), by_label=bool(by_label), by_group=bool(by_group))
        slacks, mark = parts.get("slacks", {}), parts.get("mark", 0)
        right = fits(slacks, dict[str, float]) and set(slacks) <= {*COARSE, "alone"}
        must(right and all(0 <= slack < np.inf for slack in slacks.values()), "Calibration.slacks must be distances")
        must(fits(mark, int) and 0 <= mark < 2**63, "Calibration.mark must be a whole number")
        sure = parts.get("assurance")
        right = sure is None or (isinstance(sure, Fraction) and 0 < sure < 1 and sure.denominator <= 10**9)
        must(right, "Calibration.assurance must be a fraction between 0 and 1")
        result.slacks, result.mark, result.assurance = slacks, mark, sure
        result.abstention = abstention = parts.get("abstention")
        right = fits(abstention, Abstention | None) and (abstention is None or abstention.is_sound())
        must(right, "Calibration.abstention must be counts of answers and errors")
        return result

    def sort(self) -> None:
        """Sort the calibration scores: p-values need all of them, but sets of a level just one, the threshold."""
        if not self._sorted:
            self.alphas = {category: np.sort(alphas) for category, alphas in self.alphas.items()}
            self._sorted |= {category: SortedScores(alphas) for category, alphas in self.alphas.items()}  # in place

    def find_thresholds(self, confidences: Iterable[Any]) -> None:
        """Find the thresholds of levels that will be asked for, so that the first sets do not wait for them."""
        for confidence in confidences:
            for category in self.alphas:
                self._threshold(category, confidence)

    def _threshold(self, category: tuple[Any, int], confidence: Any) -> np.floating | float:
        """``alpha_(r)``, or minus infinity; found without sorting, which takes five times as long, and remembered."""
        r = rank(confidence, self._rows.get(category, 0), self.assurance)
        if r == 0:
            return -np.inf
        key = (*category, r)
        if key not in self._thresholds:
            self._thresholds[key] = np.partition(self.alphas[category], r - 1)[r - 1]
        return self._thresholds[key]

    def for_sets(self, confidences: Iterable[Any]) -> Self:
        """What sets of these levels need: their thresholds, and none of the scores."""
        self.find_thresholds(confidences)
        result = type(self)({}, by_label=self.by_label, by_group=self.by_group)
        result._rows, result._thresholds = self._rows, dict(self._thresholds)
        result.slacks, result.mark, result.assurance = self.slacks, self.mark, self.assurance
        return result

    def widened(self, coarse: str | None) -> Self:
        """The same for rows of a coarser type: a score ties with all calibration scores within the slack of it."""
        slack = self.slacks.get("alone", 0.0) + (self.slacks.get(coarse, 0.0) if coarse else 0.0)
        if not slack:
            return self
        result = copy(self)
        result._slack = slack
        return result

    def _categories(self, C: int, groups: np.ndarray | None) -> Iterator[tuple[Any, slice, tuple[Any, int]]]:
        """(rows, columns, category) of each category among new rows."""
        if self.by_group and groups is None:
            raise ValueError("groups must be given: the predictor was calibrated by group")
        for group, members in members_of(groups if self.by_group else None):
            for label in range(C) if self.by_label else [-1]:
                yield members, slice(None) if label < 0 else slice(label, label + 1), (group, label)

    def sets(self, scores: np.ndarray, confidence: Any, *, groups: np.ndarray | None = None) -> np.ndarray:
        """Prediction sets ``(n, C)`` of bool by one comparison a score, equal to ``p > eps`` in exact arithmetic."""
        high, _ = self._within_slack(scores)
        if not (self.by_label or self.by_group):
            return high >= self._threshold((None, -1), confidence)
        kept = np.empty(scores.shape, dtype=bool)
        for members, columns, category in self._categories(scores.shape[1], groups):
            kept[members, columns] = high[members, columns] >= self._threshold(category, confidence)
        return kept

    def _within_slack(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The highest and the lowest score that count as equal to each."""
        if not self._slack:
            return scores, scores
        exact = scores.astype(np.float64)
        return exact + self._slack, exact - self._slack

    def counts(self, scores: np.ndarray, *, groups: np.ndarray | None = None, ties: bool = True) -> Counts:
        """Where the scores stand among the calibration scores, which must be sorted.

        ``below`` is only worked out where ``ties`` matter; it is ``at_most`` otherwise.
        """
        rows, C = scores.shape
        at_most = np.empty((rows, C), dtype=np.int64)
        below = np.empty_like(at_most) if ties else at_most
        n = np.empty((rows if self.by_group else 1, C if self.by_label else 1), dtype=np.int64)
        high, low = self._within_slack(scores)
        for members, columns, category in self._categories(C, groups):
            alphas = self._sorted.get(category, _NONE)
            n[members, columns] = len(alphas)
            at_most[members, columns] = alphas.ranks(high[members, columns], side="right")
            if ties:
                below[members, columns] = alphas.ranks(low[members, columns], side="left")
        return Counts(below, at_most, n)

    def p_values(
        self,
        scores: np.ndarray,
        *,
        groups: np.ndarray | None = None,
        smoothing: np.ndarray | None = None,
    ) -> np.ndarray:
        """p-values ``(n, C)`` in the dtype of the scores; see `p_values` for ``smoothing``."""
        return p_values([self], [scores], groups=groups, smoothing=smoothing)


def p_values(
    folds: Sequence[Calibration],
    scores: Sequence[np.ndarray],
    *,
    groups: np.ndarray | None = None,
    smoothing: np.ndarray | None = None,
) -> np.ndarray:
    """p-values of one predictor, or of several that were calibrated on disjoint folds (cross-conformal).

    Plain: ``(at_most + 1) / (n + 1)``. Smoothed, with ``tau (rows,)`` uniform on (0, 1) as ``smoothing``:
    ``(below + tau (at_most - below + 1)) / (n + 1)``, whose error rate is ``eps`` exactly. Counts of folds add up.
    """
    result = np.empty(scores[0].shape, dtype=scores[0].dtype if scores[0].dtype.kind == "f" else np.float64)

    def write(rows: slice, below: np.ndarray, at_most: np.ndarray, n: np.ndarray) -> None:
        top = at_most + 1 if smoothing is None else below + smoothing[rows, None] * (at_most - below + 1)
        np.divide(top, n + 1, out=result[rows], casting="same_kind")

    _count_in_chunks(write, folds, scores, groups, ties=smoothing is not None)
    return result


def sets(
    folds: Sequence[Calibration],
    scores: Sequence[np.ndarray],
    confidence: Any,
    *,
    groups: np.ndarray | None = None,
    smoothing: np.ndarray | None = None,
    allow_empty: bool = True,
) -> np.ndarray:
    """Sets ``{y : p(x, y) > eps}`` ``(n, C)``, on integer ranks unless they are smoothed.

    Unless ``allow_empty``, a set that would be empty holds the label with the largest p-value, which is the first to
    enter at higher levels; of several the one that conforms most.
    """
    if smoothing is not None:
        exact = [np.asarray(some, dtype=np.float64) for some in scores]
        kept = p_values(folds, exact, groups=groups, smoothing=smoothing) > float(significance(confidence))
    elif len(folds) == 1:
        kept = folds[0].sets(scores[0], confidence, groups=groups)
    else:
        kept = np.empty(scores[0].shape, dtype=bool)

        def write(rows: slice, _: np.ndarray, at_most: np.ndarray, n: np.ndarray) -> None:
            totals, where = np.unique(n, return_inverse=True)
            ranks = np.array([rank(confidence, int(total)) for total in totals])
            kept[rows] = at_most >= ranks[where].reshape(n.shape)

        _count_in_chunks(write, folds, scores, groups, ties=False)
    if not allow_empty:
        empty = np.flatnonzero(~kept.any(axis=1))
        if len(empty):
            of_empty = [None if one is None else one[empty] for one in (groups, smoothing)]
            kept[empty, _first_to_enter(folds, [some[empty] for some in scores], *of_empty)] = True
    return kept


def _first_to_enter(
    folds: Sequence[Calibration],
    scores: Sequence[np.ndarray],
    groups: np.ndarray | None,
    smoothing: np.ndarray | None,
) -> np.ndarray:
    if len(folds) == 1 and not folds[0].by_label:  # p-values rise with scores
        return most_conforming(folds, scores)
    exact = [np.asarray(some, dtype=np.float64) for some in scores]
    return _largest(p_values(folds, exact, groups=groups, smoothing=smoothing), scores)


def _largest(p: np.ndarray, scores: Sequence[np.ndarray]) -> np.ndarray:
    """The index of the largest p-value of each row; among equals that of the largest sum of scores."""
    best = np.where(p == p.max(axis=1, keepdims=True), sum(scores[1:], scores[0]), -np.inf)
    return np.asarray(np.argmax(best, axis=1))


def most_conforming(folds: Sequence[Calibration], scores: Sequence[np.ndarray]) -> np.ndarray:
    """The index of the most conforming label of each row."""
    if len(folds) == 1:
        return np.asarray(np.argmax(scores[0], axis=1))
    # Scores of separately trained measures have no common scale, their p-values do; but those of each label by itself
    # are no measure of which label is likely, groups are not known here, and there the scores must serve.
    apart = folds[0].by_label or folds[0].by_group
    return _largest(np.zeros(scores[0].shape) if apart else p_values(folds, scores), scores)


def _count_in_chunks(
    use: Callable[[slice, np.ndarray, np.ndarray, np.ndarray], None],
    folds: Sequence[Calibration],
    scores: Sequence[np.ndarray],
    groups: np.ndarray | None,
    *,
    ties: bool,
) -> None:
    """``use(rows, below, at_most, n)`` of counts added up over the folds, a few rows at a time and in threads.

    There is never an array of calibration rows x new rows.
    """
    total, C = scores[0].shape
    for fold in folds:
        fold.sort()
    step = max(1, max(_CHUNK, _CHUNK_OF_CATEGORY * len(folds[0].alphas)) // C)

    def count(start: int) -> None:
        rows = slice(start, min(start + step, total))
        some_groups = None if groups is None else groups[rows]
        parts = [fold.counts(own[rows], groups=some_groups, ties=ties) for fold, own in zip(folds, scores, strict=True)]
        use(rows, *(sum(part[1:], part[0]) for part in zip(*parts, strict=True)))

    starts = range(0, total, step)
    if total * C < _SCORES_FOR_THREADS or cores() == 1:  # a pool costs more than the look-ups of a few rows
        for start in starts:
            count(start)
        return
    with ThreadPoolExecutor(min(cores(), len(starts))) as pool:
        for _ in pool.map(count, starts):
            pass
