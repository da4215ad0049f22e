"""What sets and p-values are worth: coverage, inefficiency, the criteria of Vovk et al., and paired tests.

Conventions
-----------
sets : (n, C) bool; p : (n, C); y : (n,) integer labels. An evaluation is one flat dict, a row of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr

from tightset.conformal.inefficiency import SIZE, Inefficiency
from tightset.conformal.tallies import means, row_of, tally, tally_of_vovk

__all__ = [
    "Interval",
    "Row",
    "SignTest",
    "bootstrap_difference",
    "checked",
    "evaluate",
    "sign_test",
    "sign_test_p_value",
    "vovk_criteria",
]

Row = dict[str, Any]


CRITERIA = {
    "S": "sum of the p-values of all labels, mean over rows",
    "N": "number of labels in the set, mean over rows",
    "U": "second largest p-value, mean over rows",
    "M": "share of sets with more than one label",
    "F": "sum of the p-values without the largest, mean over rows",
    "E": "number of labels in the set beyond the first, mean over rows",
    "OU": "largest p-value of a false label, mean over rows",
    "OM": "share of sets with a false label",
    "OF": "sum of the p-values of false labels, mean over rows",
    "OE": "number of false labels in the set, mean over rows",
}  # of efficiency, each better when smaller (Vovk et al., 2016)


def evaluate(
    sets: np.ndarray,
    y: np.ndarray,
    *,
    confidence: float,
    p: np.ndarray | None = None,
    f: Inefficiency = SIZE,
    labels: Sequence[Any] | None = None,
) -> Row:
    """Measure coverage, mean ``f(size)``, the distribution of sizes, and coverage by label and by size.

    Parameters
    ----------
    sets : ndarray of bool of shape (n_samples, n_classes)
        Whether each label is in the set of each row.
    y : ndarray of int of shape (n_samples,)
        The column of each row's label. A label below 0 is one that no set can hold: the row is missed.
    confidence : float
        The level that was asked for.
    p : ndarray of shape (n_samples, n_classes), optional
        P-values, for the criteria of Vovk et al. (2016); see `vovk_criteria`.
    f : Inefficiency, optional
        What is averaged over rows as ``inefficiency``: a function of an array of set sizes, by default the size; or of
        numbers of false labels, if it is ``observed``.
    labels : sequence of length n_classes, optional
        Names of the columns; by default their numbers.

    Returns
    -------
    row : dict
        One flat dict, a row of a table: ``confidence``, ``n`` (rows), ``coverage``, ``inefficiency``, ``mean_size``,
        shares of ``empty`` sets and of those with one label (``singleton``); with ``p`` also S, N, U, M, F, E, OU, OM,
        OF and OE, which `vovk_criteria` explains; then the share of the sets of each size and their coverage
        (``share_of_size_2``, ``coverage_of_size_2``) and ``coverage_of_label_...``. ``worst_label_gap`` is how far the
        label covered least falls short of the confidence, and ``unknown_label`` the share of rows with a label below 0,
        if there are any.

    Examples
    --------
    >>> sets = np.array([[True, True], [False, True]])
    >>> row = evaluate(sets, np.array([0, 0]), confidence=0.9)
    >>> row["coverage"], row["mean_size"], row["singleton"]
    (0.5, 1.5, 0.5)
    """
    sets, y = checked(sets, y)
    C = sets.shape[1]
    names = range(C) if labels is None else list(labels)
    if len(names) != C:
        raise ValueError(f"labels must have a name for each of the {C} columns of sets; got {len(names)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    if p is not None:
        p = _p_of(p, sets)
    return row_of(tally(sets, y, p, f, names), confidence)


def vovk_criteria(sets: np.ndarray, p: np.ndarray, y: np.ndarray) -> Row:
    """Measure the ten criteria of efficiency of Vovk et al. (2016); each is better when smaller.

    Parameters
    ----------
    sets : ndarray of bool of shape (n_samples, n_classes)
        Whether each label is in the set of each row.
    p : ndarray of shape (n_samples, n_classes)
        P-values.
    y : ndarray of int of shape (n_samples,)
        The column of each row's label, below 0 for one that no set can hold.

    Returns
    -------
    criteria : dict of str to float
        The mean of each criterion over the rows.

    Notes
    -----
    What each is the mean of, over rows (`CRITERIA` has the same in words):

    | criterion | mean over rows of |
    |---|---|
    | S, N | sum of p-values; size of the set |
    | U, M | second largest p-value; whether the set has more than one label |
    | F, E | sum of p-values without the largest; labels beyond the first |
    | OU, OM | largest p-value of a false label; whether the set holds a false label |
    | OF, OE | sum of p-values of false labels; false labels in the set |
    """
    sets, y = checked(sets, y)
    return means(tally_of_vovk(sets, _p_of(p, sets), y))


def _p_of(p: Any, sets: np.ndarray) -> Any:
    """P-values of the shape of the sets."""
    p = np.asarray(p, dtype=np.float64)
    if p.shape != sets.shape:
        raise ValueError(f"p must have the shape of sets, {sets.shape}; got {p.shape}")
    return p


def checked(sets: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sets as bool ``(n, C)`` and labels as whole numbers ``(n,)`` below C."""
    if np.ma.is_masked(sets) or np.ma.is_masked(y):
        raise ValueError("sets and y must not be masked: leave those rows out")
    sets, y = np.asarray(sets), np.asarray(y)
    if sets.ndim != 2 or not len(sets) or (sets.dtype != bool and not np.isin(sets, (0, 1)).all()):
        raise ValueError(f"sets must be rows x labels of True and False; got {sets.dtype} of shape {sets.shape}")
    if y.shape != sets.shape[:1] or y.dtype.kind not in "iu" or y.max() >= sets.shape[1]:
        raise ValueError(
            f"y must be the column of each row's label in sets, {len(sets)} whole numbers below {sets.shape[1]} "
            f"(below 0 for a label that has none); got {y.dtype} of shape {y.shape}"
            + (f" up to {y.max()}" if y.dtype.kind in "iu" and y.size else "")
        )
    return sets.astype(bool, copy=False), y.astype(np.intp, copy=False)


class SignTest(NamedTuple):
    """How often each predictor had the smaller set, and whether that may be chance.

    Attributes
    ----------
    first_smaller : int
        Rows where the first has the smaller set.
    second_smaller : int
        Rows where the second has the smaller set.
    p_value : float
        The two-sided p-value of a fair coin.
    """

    first_smaller: int
    second_smaller: int
    p_value: float


def sign_test(first: np.ndarray, second: np.ndarray) -> SignTest:
    """Compare paired set sizes by the paper's binomial test.

    Parameters
    ----------
    first : array-like of shape (n_samples,)
        Set sizes of one predictor.
    second : array-like of shape (n_samples,)
        Set sizes of the other, for the same rows. Rows where both are equal do not count.

    Returns
    -------
    test : SignTest
        The counts and the p-value.

    Examples
    --------
    >>> sign_test(np.array([1, 1, 1, 2]), np.array([2, 2, 2, 2]))
    SignTest(first_smaller=3, second_smaller=0, p_value=0.25)
    """
    first, second = _paired(first, second)
    a, b = int((first < second).sum()), int((second < first).sum())
    return SignTest(a, b, sign_test_p_value(a, b))


def sign_test_p_value(first_smaller: int, second_smaller: int) -> float:
    """Return the two-sided probability of a split at least this uneven, if both were equally likely.

    Parameters
    ----------
    first_smaller : int
        Rows where the first has the smaller set.
    second_smaller : int
        Rows where the second has the smaller set.

    Returns
    -------
    p_value : float
    """
    for count in (first_smaller, second_smaller):
        if not count >= 0 or count != int(count):
            raise ValueError(f"a sign test counts rows: whole numbers of at least 0; got {count!r}")
    n = first_smaller + second_smaller
    return float(min(1.0, 2 * bdtr(min(first_smaller, second_smaller), n, 0.5))) if n else 1.0


def _paired(first: Any, second: Any) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(
            f"first and second must be a number for each of the same rows; got {first.shape}, {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite; leave out rows that are not, in both")
    return first, second


class Interval(NamedTuple):
    """A mean difference with its bootstrap interval.

    Attributes
    ----------
    difference : float
        The mean difference.
    low : float
        The lower end of the interval.
    high : float
        The upper end of the interval.
    """

    difference: float
    low: float
    high: float


def bootstrap_difference(
    first: np.ndarray,
    second: np.ndarray,
    *,
    level: float = 0.95,
    n_resamples: int = 10_000,
    random_state: Any = None,
) -> Interval:
    """Compute a percentile interval of ``mean(first - second)`` for paired rows, such as set sizes of two predictors.

    Parameters
    ----------
    first : array-like of shape (n_samples,)
        A number for each row.
    second : array-like of shape (n_samples,)
        A number for each of the same rows.
    level : float, default 0.95
        The level of the interval.
    n_resamples : int, default 10_000
        How many resamples are drawn.
    random_state : int, RandomState or None, default None
        For the resamples.

    Returns
    -------
    interval : Interval
        The mean difference and its interval.

    Notes
    -----
    Set sizes take few values, so a resample of the rows is a multinomial draw of the distinct differences.

    Examples
    --------
    >>> bootstrap_difference(np.array([1, 2, 1, 1]), np.array([2, 3, 2, 2]), random_state=0)
    Interval(difference=-1.0, low=-1.0, high=-1.0)
    """
    from sklearn.utils import check_random_state

    first, second = _paired(first, second)
    values, counts = np.unique(first - second, return_counts=True)
    n = len(first)
    rng = check_random_state(np.random.RandomState() if random_state is None else random_state)
    step = max(1, 2**22 // len(values))  # resamples drawn at once
    parts = [min(step, n_resamples - start) for start in range(0, n_resamples, step)]
    draws = np.concatenate([rng.multinomial(n, counts / n, size=part) @ values / n for part in parts])
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(counts @ values / n), float(low), float(high))
