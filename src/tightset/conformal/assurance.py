"""The rank that gives coverage with assurance: a binomial tail compared with a fraction, exactly.

Sets ``{y : A(x, y) >= alpha_(r)}`` cover a share of new rows that is ``Beta(n + 1 - r, r)`` over samples of ``n``
calibration rows, if scores are continuous. It is at least ``1 - eps`` with probability ``P(Bin(n, eps) >= r)``, so that
the largest ``r`` for which this is at least the assurance keeps the promise. Ties only raise coverage.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, log1p

from scipy.special import betaincinv

__all__ = ["assured_rank", "least_error", "rows_for_assurance"]

_BITS = 256  # of the terms that are summed; their sums are off by less than 2^-200
_UNDECIDED = 128  # what differs by less than 2^-128 is decided by exact sums


@lru_cache(maxsize=65536)
def assured_rank(eps: Fraction, n: int, assurance: Fraction, most: int) -> int:
    """The largest ``r <= most`` with ``P(Bin(n, eps) < r) <= 1 - assurance``, which 0 always satisfies.

    >>> assured_rank(Fraction(1, 10), 100, Fraction(95, 100), 10)
    5
    """
    first, terms = _terms(eps, n)
    risk, total, below = 1 - assurance, sum(terms), 0
    for r, term in enumerate(terms, first + 1):
        if r > most:
            break
        below += term
        gap = risk.numerator * total - below * risk.denominator
        near = abs(gap) <= risk.denominator * total >> _UNDECIDED
        if not (_decided_exactly(r, n, eps, risk) if near else gap > 0):
            return r - 1
    return most


def rows_for_assurance(eps: Fraction, assurance: Fraction) -> int:
    """The least ``n`` with ``1 - (1 - eps)^n >= assurance``: ``ceil(log(1 - assurance) / log(1 - eps))``.

    >>> rows_for_assurance(Fraction(1, 20), Fraction(95, 100)), rows_for_assurance(Fraction(1, 10), Fraction(19, 100))
    (59, 2)
    """
    n = max(1, ceil(log1p(-float(assurance)) / log1p(-float(eps))))
    while not assured_rank(eps, n, assurance, 1):
        n += 1
    while n > 1 and assured_rank(eps, n - 1, assurance, 1):
        n -= 1
    return n


def least_error(p: float, n: int, assurance: Fraction | None) -> float:
    """The error rate from which on a label with p-value ``p`` among ``n`` calibration rows is not in the set.

    That is ``p``, or with assurance the rate at which the rank exceeds ``p (n + 1) - 1``, the scores at most its own.

    >>> least_error(0.06, 99, None), round(least_error(0.06, 99, Fraction(95, 100)), 4)
    (0.06, 0.1033)
    """
    count = round(p * (n + 1)) - 1
    if assurance is None or count >= n:
        return float(p)
    return max(float(p), float(betaincinv(count + 1, n - count, float(assurance))))


def _terms(eps: Fraction, n: int) -> tuple[int, list[int]]:
    """Terms ``C(n, k) p^k q^(n - k)`` relative to the largest, in whole numbers of `_BITS` bits, and the first ``k``.

    A few times ``sqrt(n)`` of them are not zero. They fall on both sides of the largest, so that an error of one unit
    never grows, and the sum of all is off by less than the square of their number.
    """
    p, q = eps.numerator, eps.denominator - eps.numerator
    mode = min(n, (n + 1) * p // eps.denominator)
    up, down = [1 << _BITS], [1 << _BITS]
    for k in range(mode, n):
        up.append(up[-1] * (n - k) * p // ((k + 1) * q))
        if not up[-1]:
            break
    for k in range(mode, 0, -1):
        down.append(down[-1] * k * q // ((n - k + 1) * p))
        if not down[-1]:
            break
    return mode - len(down) + 1, [*reversed(down[1:]), *up]


def _decided_exactly(r: int, n: int, eps: Fraction, risk: Fraction) -> bool:
    """Whether ``P(Bin(n, eps) < r) <= risk``, by all terms: for ties, which many rows have at the median only."""
    if eps == Fraction(1, 2) and n == 2 * r - 1:
        return risk >= eps
    p, q = eps.numerator, eps.denominator - eps.numerator
    term = below = q**n
    for k in range(r - 1):
        term = term * ((n - k) * p) // ((k + 1) * q)
        below += term
    return bool(below * risk.denominator <= risk.numerator * eps.denominator**n)
