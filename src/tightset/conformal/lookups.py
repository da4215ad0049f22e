"""Lookups in calibration scores: ranks among them, and the rows of each group.

Conventions
-----------
rank : of ``s`` among sorted numbers ``a``: ``#{j : a_j <= s}`` on the right side, ``#{j : a_j < s}`` on the left.
NaN is larger than any number, as NumPy sorts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

__all__ = ["SortedScores", "members_of"]

_FEW = 2**10  # scores that `np.searchsorted` ranks in less time than the calls of all steps take
_IN_CACHE = 2**15  # sorted scores that a core has at hand, wherever a search starts
_TABLE = 2**11  # distinct ones for which it pays to look up where to start
_SAMPLE = 2**12  # of them, on which centres are tried
_IN_BUCKET = 4  # of them on average, at most, in the buckets of an octave
_NEAR = 7  # ranks within which a search ends as a rule: so many of them are next to each other in memory
_BLOCK = 2**16  # of them put into buckets at once
_DIGITS = 52  # of a float64, below the bits of its octave: exponent and sign
_SUMMABLE = 1e290  # centres up to here can be taken from any float64 without overflow


class SortedScores:
    """Ranks of many scores among sorted ones, exactly those of `np.searchsorted`, two to five times as fast.

    All searches halve what is left of their ranges in one step, which is three calls of NumPy. So the processor has
    many reads of memory under way at once, while `np.searchsorted` waits for each. Among more numbers than fit in
    cache, searches start where a table says. Few end further than `_NEAR` ranks from there, and those go on by
    themselves. Where many numbers are equal, searches are among the distinct ones.

    Tried side by side, in ns of a core for each of two million scores among a million (AVX-512): such a table 15, on
    blocks sorted first, as keys packed with positions, 19; halving without a table 31; sorting both together 33;
    `np.searchsorted` on blocks so packed and sorted 40, on sorted blocks in slices of both 46, on sorted blocks 50.

    >>> numbers = SortedScores(np.array([1.0, 2.0, 2.0]))
    >>> numbers.ranks(np.array([[2.0, 0.0]]), side="right"), numbers.ranks(np.array([[2.0, 0.0]]), side="left")
    (array([[3, 0]]), array([[1, 0]]))
    """

    def __init__(self, scores: np.ndarray) -> None:
        self._all = scores
        self._distinct = scores[: np.count_nonzero(~np.isnan(scores))]
        self._rank_of: np.ndarray | None = None  # ranks among all from those among the distinct
        self._table: _Table | None = None
        if len(scores) <= _IN_CACHE:
            return
        change = self._distinct[1:] != self._distinct[:-1]
        if np.count_nonzero(change) < 3 * len(change) // 4:
            changes = np.flatnonzero(change) + 1
            self._rank_of = np.concatenate([[0], changes, [len(self._distinct)]], dtype=_whole(scores))
            self._distinct = self._distinct[np.append(0, changes)]
        if len(self._distinct) > _TABLE:
            table = _Table.of(self._distinct)
            self._table = table if table.crowded < len(self._distinct) // 2 else None

    def __reduce__(self) -> tuple[type[SortedScores], tuple[np.ndarray]]:
        return SortedScores, (self._all,)  # what is made for lookups is larger than the scores

    def __len__(self) -> int:
        return len(self._all)

    def ranks(self, scores: np.ndarray, *, side: Literal["left", "right"]) -> np.ndarray:
        """How many sorted scores are at most each of these, or below it (``side="left"``)."""
        if scores.size < _FEW:
            return self._one_by_one(scores, side)
        flat, n = scores.ravel(), len(self._distinct)
        if self._table is None:
            found = self._search(flat, np.zeros(len(flat), dtype=np.intp), n, side)
        else:
            first = self._table.first.take(self._table.buckets(flat))
            found = self._search(flat, first.astype(np.intp), _NEAR, side)
            far = np.flatnonzero(found == first + _NEAR)
            far = far[found[far] < n]
            width = self._table.largest
            found[far] = self._search(flat[far], np.minimum(found[far], n - width), width, side)
        if self._rank_of is not None:
            found = self._rank_of.take(found)
        nan = np.isnan(flat)
        if nan.any():
            found[nan] = np.searchsorted(self._all, np.nan, side=side)
        return found.reshape(scores.shape)

    def _search(self, scores: np.ndarray, found: np.ndarray, width: int, side: str) -> np.ndarray:
        """Ranks among the distinct: at least ``found``, which is changed, and at most ``width`` more."""
        reaches = np.less_equal if side == "right" else np.less
        while width and len(scores):
            half = (width + 1) // 2
            step = np.min_scalar_type(half).type(half)  # a byte as a rule: a product of less memory
            found += step * reaches(self._distinct[half - 1 :].take(found), scores)
            width //= 2
        return found

    def _one_by_one(self, scores: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
        """Among more than fit in cache scores are looked up in their own order: neighbours read the same memory."""
        if len(self) <= _IN_CACHE:
            return np.asarray(np.searchsorted(self._all, scores, side=side))
        order = np.argsort(scores, axis=None)
        found = np.empty(scores.size, dtype=np.intp)
        found[order] = np.searchsorted(self._all, scores.ravel()[order], side=side)
        return found.reshape(scores.shape)


class _Table:
    """The first rank in each bucket of sorted numbers without NaN.

    Buckets are by the distance from a centre: each octave of it (from a power of two to the next) is cut into equal
    parts, more of them where it holds more of the numbers. Rounded or not, the bucket never falls as scores rise; so
    numbers in buckets before that of a score are smaller, and those in buckets after it larger.
    """

    def __init__(self, numbers: np.ndarray, centre: float) -> None:
        self._shift = 0.0 - centre  # not -0.0, to which -0.0 could be added
        blocks = [numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK)]
        octaves = np.arange(-(2**11), 2**11)
        held = sum(np.bincount((self._keys(block) >> _DIGITS) + 2**11, minlength=2**12) for block in blocks)
        digits = np.ceil(np.log2(np.maximum(held / _IN_BUCKET, 1))).astype(np.int64)
        dropped, ends = _DIGITS - digits, np.cumsum(1 << digits)
        offset = ends - (1 << digits) - ((octaves << _DIGITS) >> dropped)
        self._dropped, self._offset = np.roll(dropped, 2**11), np.roll(offset, 2**11)  # -1 is the last place
        held = np.zeros(ends[-1], dtype=np.int64)
        for block in blocks:
            at = self.buckets(block)  # in order
            some = np.bincount(at - at[0])
            held[at[0] : at[0] + len(some)] += some
        self.first = np.minimum(np.cumsum(held) - held, len(numbers) - _NEAR).astype(_whole(numbers))
        self.largest = int(held.max())
        self.crowded = int(held[held > _NEAR].sum())

    @classmethod
    def of(cls, numbers: np.ndarray) -> _Table:
        """About the centre that leaves the fewest numbers in crowded buckets: 0, the median or the largest of them."""
        sample = numbers[:: max(len(numbers) // _SAMPLE, 1)]
        centres = [0.0, float(sample[len(sample) // 2]), float(numbers[-1])]
        centres = [centre for centre in centres if abs(centre) < _SUMMABLE]
        return cls(numbers, min(centres, key=lambda centre: cls(sample, centre).crowded))

    def buckets(self, scores: np.ndarray) -> np.ndarray:
        keys = self._keys(scores)
        octaves = keys >> _DIGITS
        keys >>= self._dropped.take(octaves)
        keys += self._offset.take(octaves)
        return keys

    def _keys(self, scores: np.ndarray) -> np.ndarray:
        """Whole numbers in the order of the distances: the bits of a float64, turned round where it is negative."""
        keys: np.ndarray = np.add(scores, self._shift, dtype=np.float64).view(np.int64)
        keys ^= (keys >> 63) & np.int64(2**63 - 1)
        return keys


def _whole(numbers: np.ndarray) -> type[np.signedinteger[Any]]:
    """A type of whole numbers that holds the ranks among so many."""
    return np.int32 if len(numbers) < 2**31 else np.int64


def members_of(groups: np.ndarray | None) -> Iterable[tuple[Any, Any]]:
    """Each group with the indices of its rows; one nameless group of all rows where there are none."""
    if groups is None:
        return [(None, slice(None))]
    names, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
    return list(zip(names.tolist(), parts, strict=True))
