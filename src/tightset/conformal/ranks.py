"""The rank of the threshold at a confidence level, computed from an exact fraction."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np

__all__ = ["calibration_rows_needed", "rank", "significance", "threshold"]


def significance(confidence: Any) -> Fraction:
    """``eps = 1 - confidence`` as the fraction that was meant: 0.9 is nine tenths, not its nearest double.

    >>> significance(0.9), significance(1 - 0.05)
    (Fraction(1, 10), Fraction(1, 20))
    """
    try:
        level = Fraction(0 if isinstance(confidence, str) else str(confidence)).limit_denominator(10**9)
    except ValueError:
        level = Fraction(0)
    if not 0 < level < 1:
        digits = " of at most nine digits" if isinstance(confidence, float) and 0 < confidence < 1 else ""
        raise ValueError(f"confidence must be a number between 0 and 1{digits}, such as 0.95; got {confidence!r}")
    return 1 - level


def rank(confidence: Any, n: int) -> int:
    """``r = floor(eps (n + 1))``: the set is ``{y : A(x, y) >= alpha_(r)}``, and every label if ``r = 0``.

    >>> rank(0.9, 9), rank(0.95, 18), rank(0.95, 19)
    (1, 0, 1)
    """
    return floor(significance(confidence) * (n + 1))


def calibration_rows_needed(confidence: Any) -> int:
    """The least number of calibration rows that can exclude a label: ``ceil(1 / eps) - 1``.

    >>> calibration_rows_needed(0.95), calibration_rows_needed(0.99)
    (19, 99)
    """
    return ceil(1 / significance(confidence)) - 1


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
