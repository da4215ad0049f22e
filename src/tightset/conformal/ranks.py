"""The rank of the threshold at a confidence level, computed from an exact fraction."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np

from tightset.conformal.assurance import assured_rank, rows_for_assurance

__all__ = ["as_assurance", "calibration_rows_needed", "rank", "significance", "threshold"]


def significance(confidence: Any) -> Fraction:
    """``eps = 1 - confidence`` as the fraction that was meant: 0.9 is nine tenths, not its nearest double.

    >>> significance(0.9), significance(1 - 0.05)
    (Fraction(1, 10), Fraction(1, 20))
    """
    return 1 - _fraction(confidence, "confidence")


def as_assurance(assurance: Any) -> Fraction | None:
    """The assurance as the fraction that was meant, or None.

    >>> as_assurance(0.95), as_assurance(None)
    (Fraction(19, 20), None)
    """
    return None if assurance is None else _fraction(assurance, "assurance")


def _fraction(share: Any, name: str) -> Fraction:
    try:
        found = Fraction(0 if isinstance(share, str) else str(share)).limit_denominator(10**9)
    except ValueError:
        found = Fraction(0)
    if not 0 < found < 1:
        digits = " of at most nine digits" if isinstance(share, float) and 0 < share < 1 else ""
        raise ValueError(f"{name} must be a number between 0 and 1{digits}, such as 0.95; got {share!r}")
    return found


def rank(confidence: Any, n: int, assurance: Any = None) -> int:
    """``r = floor(eps (n + 1))``: the set is ``{y : A(x, y) >= alpha_(r)}``, and every label if ``r = 0``.

    With ``assurance`` it is the largest rank, up to that one, at which coverage given the calibration rows is at least
    the confidence with that probability: ``P(Bin(n, eps) >= r) >= assurance``. So both promises hold.

    >>> rank(0.9, 9), rank(0.95, 18), rank(0.95, 19)
    (1, 0, 1)
    >>> rank(0.95, 1000), rank(0.95, 1000, 0.95), rank(0.95, 58, 0.95), rank(0.95, 59, 0.95)
    (50, 39, 0, 1)
    """
    eps, sure = significance(confidence), as_assurance(assurance)
    plain = floor(eps * (n + 1))
    return plain if sure is None else assured_rank(eps, n, sure, plain)


def calibration_rows_needed(confidence: Any, assurance: Any = None) -> int:
    """The least number of calibration rows that can exclude a label: ``ceil(1 / eps) - 1``.

    With ``assurance`` also at least ``ceil(log(1 - assurance) / log(1 - eps))``.

    >>> calibration_rows_needed(0.95), calibration_rows_needed(0.99), calibration_rows_needed(0.95, 0.95)
    (19, 99, 59)
    """
    eps, sure = significance(confidence), as_assurance(assurance)
    plain = ceil(1 / eps) - 1
    return plain if sure is None else max(plain, rows_for_assurance(eps, sure))


def threshold(alphas: np.ndarray, confidence: Any, weight: np.ndarray | None = None) -> float:
    """``alpha_(r)``, the score from which labels are kept; minus infinity where every label must be.

    With weights each row counts by its weight, and the new row by their mean, so that equal weights give the rule
    without any. (Only the training ICP is weighted; calibration never is.)

    >>> float(threshold(np.array([5.0, 1.0, 3.0]), 0.5)), float(threshold(np.array([5.0, 1.0, 3.0]), 0.9))
    (3.0, -inf)
    """
    if weight is None or (weight == weight[0]).all():
        r = rank(confidence, len(alphas))
        return np.partition(alphas, r - 1)[r - 1] if r > 0 else -np.inf
    order = np.argsort(alphas)
    counted = np.cumsum(weight[order] / weight.mean())
    needed = float(significance(confidence)) * (len(alphas) + 1) - 1
    return alphas[order[np.searchsorted(counted, needed, side="right")]] if needed >= 0 else -np.inf
