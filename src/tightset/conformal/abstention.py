"""One label or none: how certain a row must be for a certified error rate among answered rows.

A row is answered with its most conforming label if its margin, the lead of that label over the next, exceeds a
threshold ``t``. Let ``r(t) = P(wrong | margin > t)``. The promise is that ``r(t) <= error`` with probability at least
``assurance`` over the calibration rows. A tenth of them, drawn by position, proposes thresholds ``t_1 > ... > t_J`` by
its margins alone. The others test them: ``p_j = P(Bin(m_j, error) <= k_j)`` if ``m_j`` are answered, ``k_j`` wrongly.

A few thresholds are starts. Start ``s`` has a level ``w_s``, fixed before testing, and the levels add up to at most
``delta = 1 - assurance``. ``t_j`` is certified if ``p_j <= a_j``, the sum of ``w_s`` over the starts ``s <= j`` with
all of ``t_s, ..., t_{j-1}`` certified (the fallback procedure of Wiens and Dmitrienko; with one start it is a fixed
sequence). The promise is kept:

1. The thresholds do not depend on the testing rows. So given ``m_j``, ``k_j`` is ``Bin(m_j, r(t_j))``, and where
   ``r(t_j) > error`` (call ``t_j`` bad) ``P(p_j <= a) <= a`` for every fixed ``a``.
2. Let ``t_d`` be the first bad threshold that is certified. For every ``s`` in the sum ``a_d``, ``t_s, ..., t_{d-1}``
   are certified, hence not bad, and ``d`` is the first bad one from ``s`` on. So ``a_d <= W_d``, the sum of ``w_s``
   over the starts whose first bad threshold is ``d``, which is a fixed number.
3. The chance that a bad threshold is certified is at most ``sum_d P(p_d <= W_d) <= sum_d W_d <= delta``.

Conventions
-----------
margins : (n,), not negative; wrong : (n,) bool; rows are independent draws from the law of new rows.
"""

from __future__ import annotations

from math import ceil, log, log1p
from typing import NamedTuple, Self

import numpy as np
from scipy import special

from tightset.storage.registry import storable

__all__ = [
    "Abstention",
    "answered_and_wrong",
    "highest_and_margin",
    "proposed_thresholds",
    "proposing_rows",
    "rows_needed",
    "top_and_margin",
]

_SHARE, _MOST = 10, 250  # of the calibration rows one in ten proposes thresholds, but no more than these
_PARTS = 4  # thresholds between two margins
_FEW = 0.7  # of the testing rows
_ALL = -1.0  # a threshold that every margin exceeds
_ENDLESS = 1e300  # the margin over a label whose score is minus infinity
_SORTED = 2**17  # margins at a time
_COLUMNS, _ROWS = 40, 2**12  # up to so many labels two are found column by column, of so many rows at once
_SAME = 1e-6  # of the largest margin: margins this close may be copies of a row that were rounded differently


@storable
class Abstention(NamedTuple):
    """What calibration rows say of thresholds ``(J,)``: how many of those that test are answered, and wrong.

    The last threshold is below every margin, so all testing rows are answered there. ``share (J,)`` is about the
    share of answers among the rows that proposed the thresholds, by which tests are planned; ``rows`` counts all
    calibration rows.

    >>> found = Abstention.of(np.linspace(0, 1, 1000), np.arange(1000) < 200)  # the 200 least certain are wrong
    >>> found.threshold(0.05, 0.95), found.threshold(0.3, 0.95), found.threshold(0.001, 0.95)
    (0.1642892892892893, -1.0, None)
    """

    thresholds: np.ndarray
    share: np.ndarray
    answered: np.ndarray
    wrong: np.ndarray
    rows: int

    @classmethod
    def of(cls, margins: np.ndarray, wrong: np.ndarray) -> Self:
        """From the margins of calibration rows, and whether their most conforming labels are wrong."""
        proposing = proposing_rows(len(margins))
        thresholds, share = proposed_thresholds(margins[proposing])
        answered, mistaken = answered_and_wrong(thresholds, margins, wrong, proposing)
        return cls(thresholds, share, answered, mistaken, len(margins))

    def threshold(self, error: float, assurance: float) -> float | None:
        """The lowest threshold that is certified, with which most rows are answered; None if there is none."""
        p = special.bdtr(self.wrong.astype(np.float64), self.answered, error)
        weights = self._weights(error, 1 - assurance)
        level, lowest = 0.0, None
        for j in range(len(p)):
            level += weights[j]
            if 0 < level and p[j] <= level:  # a p-value may be so small that it is 0
                lowest = float(self.thresholds[j])
            else:
                level = 0.0
        return lowest

    def _weights(self, error: float, delta: float) -> np.ndarray:
        """Levels ``(J,)`` at the starts, zero elsewhere: where about ``m, 2 m, 4 m, ...`` rows are answered.

        ``m`` rows can pass with one error among them; if most rows would be needed for that, there is one start, which
        passes without an error. (One start alone is unlucky too often where there are many rows.)
        """
        starts, tested = [], int(self.answered[-1])
        at_least = _rows_to_pass(1, error, delta)
        if at_least <= _FEW * tested:
            most = 1 + int(np.log2(tested / at_least))
            first = _rows_to_pass(1, error, delta / most)
            starts = [first * 2**i for i in range(most) if first * 2**i <= tested]
        starts = starts or [m for m in (_rows_to_pass(0, error, delta),) if m <= tested]
        weights = np.zeros(len(self.thresholds))
        np.add.at(weights, np.searchsorted(self.share * tested, starts), delta / max(len(starts), 1))
        return weights

    def is_sound(self) -> bool:
        """Whether counts read from a file can be what `of` counted."""
        t, share, answered, wrong, rows = self
        right = t.ndim == 1 and len(t) > 0 and t.dtype.kind == share.dtype.kind == "f"
        right = right and answered.dtype.kind == wrong.dtype.kind == "i"
        right = right and share.shape == answered.shape == wrong.shape == t.shape
        if not (right and np.isfinite(t).all() and np.isfinite(share).all()):
            return False
        ordered = (np.diff(t) <= 0).all() and all((np.diff(one) >= 0).all() for one in (share, answered, wrong))
        counted = wrong[0] >= 0 and (wrong <= answered).all() and answered[-1] <= rows < 2**53
        return bool(ordered and counted and t[-1] == _ALL and share[0] >= 0 and share[-1] == 1)


def proposing_rows(n: int) -> np.ndarray:
    """Which of ``n`` rows propose thresholds ``(n,)``; the others test them."""
    proposing = np.zeros(n, dtype=bool)
    proposing[np.random.default_rng(n).choice(n, min(n // _SHARE, _MOST), replace=False)] = True
    return proposing


def proposed_thresholds(margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds ``(J,)`` from the margins of the rows that propose them, and the share of these that is above each."""
    grid = np.append(np.sort(margins)[::-1], 0.0)
    scale = np.max(grid, initial=0.0, where=grid < _ENDLESS)
    # Between margins, not at them: then a copy of a row falls on the same side whatever the rounding.
    above = np.flatnonzero(grid[:-1] - grid[1:] > _SAME * scale)[:, None]
    parts = (np.arange(_PARTS) + 0.5) / _PARTS
    thresholds = np.append(grid[above] + parts * (grid[above + 1] - grid[above]), _ALL)
    return thresholds, np.append(np.minimum((above + 0.5 + parts) / max(len(grid) - 1, 1), 1.0), 1.0)


def answered_and_wrong(
    thresholds: np.ndarray, margins: np.ndarray, wrong: np.ndarray, proposing: np.ndarray
) -> np.ndarray:
    """How many of the rows that test are above each threshold, and how many of these are wrong ``(2, J)``.

    Those of parts of the rows add up.
    """
    total = -_above(thresholds, margins[proposing], wrong[proposing])
    for at in range(0, len(margins), _SORTED):
        total += _above(thresholds, margins[at : at + _SORTED], wrong[at : at + _SORTED])
    return total


def _above(thresholds: np.ndarray, margins: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """How many margins exceed each threshold, and how many of them are of wrong rows ``(2, J)``: one sort of both."""
    keys = np.sort(np.where(wrong, -margins, margins))
    failed = np.searchsorted(keys, -thresholds)
    answered = failed + len(keys) - np.searchsorted(keys, thresholds, side="right")
    every = np.array([[len(keys)], [np.count_nonzero(wrong)]])
    return np.where(thresholds < 0, every, np.array([answered, failed]))


def top_and_margin(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most conforming label ``(n,)`` of scores ``(n, C)``, of equals the first, and its lead over the next.

    >>> top_and_margin(np.array([[1.0, 3.0, 2.5], [4.0, 4.0, 0.0]]))
    (array([1, 0]), array([0.5, 0. ]))
    """
    return np.argmax(scores, axis=1), highest_and_margin(scores)[1]


def highest_and_margin(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The highest score ``(n,)`` of each row, and its lead over the next: 0 if two are equal.

    >>> highest_and_margin(np.array([[1.0, 3.0, 2.5], [4.0, 4.0, 0.0]]))
    (array([3., 4.]), array([0.5, 0. ]))
    """
    if scores.shape[1] < 2:
        return scores[:, 0], np.zeros(len(scores))
    highest, second = _two_by_column(scores) if scores.shape[1] <= _COLUMNS else np.partition(scores, -2).T[:-3:-1]
    with np.errstate(invalid="ignore", over="ignore"):
        margin = np.subtract(highest, second, dtype=np.float64)
    if np.isnan(margin.max(initial=0.0)):
        margin[np.isnan(margin)] = 0.0  # both are infinite
    return highest, np.minimum(margin, _ENDLESS, out=margin)


def _two_by_column(scores: np.ndarray) -> np.ndarray:
    """The two highest scores of each row ``(2, n)``, label by label: few labels are not worth a call for each row."""
    two = np.empty((2, len(scores)), dtype=scores.dtype)
    for at in range(0, len(scores), _ROWS):
        columns = np.ascontiguousarray(scores[at : at + _ROWS].T)
        first, second = two[:, at : at + _ROWS]
        first[:], second[:] = columns[0], -np.inf
        for column in columns[1:]:
            np.maximum(second, np.minimum(first, column), out=second)
            np.maximum(first, column, out=first)
    return two


def _rows_to_pass(wrong: int, error: float, level: float) -> int:
    """The least ``m`` with ``P(Bin(m, error) <= wrong) <= level``."""
    if wrong == 0:
        return max(1, ceil(log(level) / log1p(-error) - 1e-9))
    low, high = wrong, 2 * wrong + 2  # passes at high, not at low
    while special.bdtr(wrong, high, error) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if special.bdtr(wrong, middle, error) <= level else (middle, high)
    return high


def rows_needed(error: float, assurance: float) -> int:
    """The calibration rows without which no error rate is certified, even if none of them is wrong.

    >>> rows_needed(0.05, 0.95), rows_needed(0.01, 0.95)
    (65, 332)
    """
    testing = _rows_to_pass(0, error, 1 - assurance)
    return testing + min((testing - 1) // (_SHARE - 1), _MOST)
