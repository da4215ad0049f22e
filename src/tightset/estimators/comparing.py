"""Comparison of two predictors on the same rows: sizes at equal coverage, with intervals, and a verdict in words.

A predictor whose sets cover 96 % tends to have smaller sets than one that covers 99 %, even if it is no better. So our
set size is compared with the size that the baseline has at our coverage on these rows, read off the curve of its size
against its coverage over levels around the requested one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtr, stdtrit

from tightset.conformal.ranks import significance
from tightset.conformal.shortfall import Shortfall, counts_of, short_labels
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.spending import criterion
from tightset.exceptions import TightsetWarning

__all__ = [
    "WORDS",
    "Change",
    "Comparison",
    "at_equal_coverage",
    "compare",
    "levels_around",
    "over_splits",
    "short_over_splits",
    "verdict",
]

WORDS = {
    "mean_size": ("smaller", "larger"),
    "mean_cost": ("cheaper", "dearer"),
    "mean_width": ("narrower", "wider"),
    "inefficiency": ("better", "worse"),
}
_LEAST = 2e-9  # of an error rate that can be asked for
_AROUND = (4.0, 2.5, 1.8, 1.4, 1.15, 1.0, 0.87, 0.75, 0.6, 0.4, 0.2, 0.05)  # times the error rate asked for
_FAR = (0.02, 0.1, 0.2, 0.35, 0.5, 0.65)  # and lower levels, for rows that are covered far less than was asked
_RESAMPLES = 400
_AT_ONCE = 2**22  # weights of resampled rows


class Change(NamedTuple):
    """How much smaller (below 0) or larger ours are than the baseline's at equal coverage, as a share of the latter.

    With its 95 % interval and the p-value of no change, both by the bootstrap over rows. NaN where no sets of the
    baseline cover about as many rows as ours do.
    """

    change: float
    low: float
    high: float
    p_value: float


class Comparison(NamedTuple):
    """Baseline and SCPO at one level on the same test rows, and the `Change` from the one to the other.

    The interval tells chance in the test rows, not in the rows that trained and calibrated.
    """

    confidence: float
    baseline: dict[str, Any]
    scpo: dict[str, Any]
    change: float
    low: float
    high: float
    p_value: float
    by: str = "mean_size"  # what changes, a key of both: the cost if there is one, or another inefficiency


def levels_around(confidences: Sequence[Any]) -> list[list[float]]:
    """For each level those around it, rising, among which a curve of size against coverage is drawn.

    >>> [round(level, 3) for level in levels_around([0.9])[0]][4:8]
    [0.5, 0.6, 0.75, 0.82]
    """
    errors = [float(significance(level)) for level in confidences]
    around = [[round(1 - times * eps, 12) for times in _AROUND if _LEAST < times * eps < 0.99] for eps in errors]
    return [[*(level for level in _FAR if level < some[0]), *some] for some in around]


def at_equal_coverage(
    size: np.ndarray,
    covered: np.ndarray,
    their_size: np.ndarray,
    their_covered: np.ndarray,
    confidence: Any,
    *,
    seed: int = 0,
) -> Change:
    """Ours, ``size`` and ``covered (n,)`` at a level, beside the baseline at several around it, ``(K, n)``, rising.

    >>> size, covered = np.full(200, 2), np.arange(200) < 190
    >>> theirs = np.stack([np.full(200, 2), np.full(200, 4)]), np.stack([np.arange(200) < 180, np.arange(200) < 200])
    >>> round(at_equal_coverage(size, covered, *theirs, 0.95).change, 2)  # theirs have 3 labels at the same coverage
    -0.33
    """
    known = ~np.isnan(size)  # costs may hang on labels that are not
    size, covered, their_size, their_covered = (
        one if known.all() else one[..., known] for one in (size, covered, their_size, their_covered)
    )
    n = len(size)
    ours = np.stack([covered, size]).astype(float)
    theirs = np.concatenate([their_covered, their_size]).astype(float)
    # Rows with the same figures are drawn together: there are few kinds of them.
    both, rows = np.unique(np.concatenate([ours, theirs]), axis=1, return_counts=True)
    rng = np.random.default_rng(seed)

    def changes(weights: np.ndarray) -> np.ndarray:
        means = weights @ both.T / n
        K = len(their_size)
        found = np.empty(len(weights))
        for at, (own_covered, own_size, *curve) in enumerate(means):
            coverage, first = np.unique(curve[:K], return_index=True)  # of equal ones that with the smallest sets
            other = np.interp(own_covered, coverage, np.take(curve[K:], first))
            found[at] = own_size / other - 1 if other else 0.0 if not own_size else np.nan
        return found

    coverage = covered.mean()
    lowest, highest = their_covered.mean(axis=1)[[0, -1]]
    by_chance = 2 * np.sqrt(max(coverage * (1 - coverage), 1 / n) / n)
    if not lowest - by_chance <= coverage <= highest + by_chance:
        return Change(*[float("nan")] * 4)  # the baseline has no sets that cover as much, or as little
    step = max(1, _AT_ONCE // len(rows))
    drawn = [min(step, _RESAMPLES - start) for start in range(0, _RESAMPLES, step)]
    change = float(changes(rows[None].astype(float))[0])
    if np.isnan(change):
        return Change(*[float("nan")] * 4)  # their sets are empty
    error = float(np.nanstd(np.concatenate([changes(rng.multinomial(n, rows / n, size=some)) for some in drawn])))
    error *= 1 + 1 / max(float(significance(confidence)) * n, 0.5)  # of few misses the bootstrap sees too little noise
    error = max(error, 1e-6)  # and rounding is no difference
    reach = 1.96 * error
    return Change(change, change - reach, change + reach, float(2 * ndtr(-abs(change) / error)))


def compare(baseline: Any, scpo: Any, X: Any, y: Any, *, groups: Any = None, seed: int = 0) -> list[Comparison]:
    """Compare the set sizes of two fitted predictors at equal coverage, on the same test rows.

    Parameters
    ----------
    baseline : SCPOClassifier or ConformalClassifier
        The fitted predictor to compare with.
    scpo : SCPOClassifier or ConformalClassifier
        The fitted predictor of interest. It is compared at each of its levels.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows that neither trained nor calibrated either of them.
    y : array-like of shape (n_samples,)
        The labels.
    groups : array-like of shape (n_samples,), optional
        The group of each row, if both were calibrated group by group.
    seed : int, default 0
        For the bootstrap.

    Returns
    -------
    comparisons : list of Comparison
        One for each level: ``confidence``; ``baseline`` and ``scpo``, what `evaluate` measures of each; ``change``, the
        relative change in mean set size from the baseline, below 0 if sets are smaller; its 95 % interval, ``low`` and
        ``high``; and the ``p_value`` of no change. NaN where the baseline has no sets of about the same coverage. If
        ``scpo`` has a cost, ordered labels or another inefficiency than set size, the change is in that, or in the
        width of intervals, and ``by`` says so.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from tightset import ConformalClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = ConformalClassifier(confidence=[0.8, 0.9], random_state=0).fit(X, y)
    >>> [row.change for row in compare(clf, clf, X, y)]
    [0.0, 0.0]
    """
    levels = [float(level) for level in scpo.levels_]
    rows = [predictor.evaluate(X, y, confidence=levels, groups=groups) for predictor in (baseline, scpo)]
    curve = levels_around(levels)
    by, spent = criterion(scpo)
    theirs = sizes_and_coverage(baseline, X, y, np.concatenate(curve).tolist(), spent, groups=groups)
    ours = sizes_and_coverage(scpo, X, y, levels, spent, groups=groups)
    found, start = [], 0
    for at, level in enumerate(levels):
        some = slice(start, start + len(curve[at]))
        change = at_equal_coverage(ours[0][at], ours[1][at], theirs[0][some], theirs[1][some], level, seed=seed)
        if by != "mean_size":  # the baseline may be made for something else
            same = int(np.argmin(np.abs(np.array(curve[at]) - level)))
            rows[0][at][by] = float(np.nanmean(theirs[0][some][same]))
        found.append(Comparison(level, rows[0][at], rows[1][at], *change, by))
        start = some.stop
    return found


def sizes_and_coverage(
    model: ConformalPredictor,
    X: Any,
    y: Any,
    levels: Sequence[Any],
    spent: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    groups: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What the sets of rows cost ``(K, n)`` at each level, and whether they hold the true labels ``(K, n)``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TightsetWarning)  # of labels and levels that `evaluate` has told of
        rows, groups = model.check_new_rows(X, groups)
        codes = model.label_codes(rows, y, "y", unknown="miss")
        asked = model.fitted_.ask(levels, of=X)
    size = np.empty((len(levels), len(codes)))
    covered = np.empty(size.shape, dtype=bool)
    for some, scored in model.fitted_.scored(asked, rows.gather(), groups):
        for k, (level, piece) in enumerate(zip(levels, scored, strict=True)):
            kept = piece.sets(level, allow_empty=model.allow_empty)
            size[k, some] = spent(kept, codes[some])
            covered[k, some] = kept[np.arange(len(kept)), codes[some]] & (codes[some] >= 0)
    return size, covered


def over_splits(found: Sequence[Sequence[Comparison]], test_share: float) -> list[Comparison]:
    """Means over splits of the same rows, and what changes from split to split as an interval of the mean change.

    Which rows train and calibrate moves sizes more than which rows test. Splits share rows, so the variance of their
    mean is not a ``J``-th of that between them but ``1 / J + test / (1 - test)`` (Nadeau and Bengio).
    """
    result = []
    for rows in zip(*found, strict=True):
        baseline, scpo = (
            {
                key: float(np.mean([row[side][key] for row in rows]))
                for key in dict.fromkeys(("coverage", "mean_size", rows[0].by))
            }
            for side in (1, 2)
        )
        changes = np.array([row.change for row in rows])
        mean, J = float(changes.mean()), len(rows)
        error = max(float(changes.std(ddof=1)), 1e-12) * np.sqrt(1 / J + test_share / (1 - test_share))
        reach = float(stdtrit(J - 1, 0.975)) * error
        p_value = float(2 * stdtr(J - 1, -abs(mean) / error))
        result.append(
            Comparison(rows[0].confidence, baseline, scpo, mean, mean - reach, mean + reach, p_value, rows[0].by)
        )
    return result


def short_over_splits(
    found: Sequence[Sequence[Comparison]],
    labels: Sequence[np.ndarray],
    names: Sequence[Any],
    calibration_rows: Any,
    test_share: float,
) -> list[Shortfall]:
    """For each level, the labels that SCPO's sets cover less than was asked, over the test rows of all splits.

    ``labels`` has those of the test rows of each split, ``names`` all labels that there are. A row may be tested in
    several of ``J`` splits, and tells little new then: ``1 + (J - 1) test_share`` rows count as one, as if a row had
    the same fate in every split.
    """
    repeats = 1 + (len(found) - 1) * test_share
    result = []
    for rows in zip(*found, strict=True):
        counts = [counts_of(row.scpo, y, names) for row, y in zip(rows, labels, strict=True)]
        there, covered = np.sum(counts, axis=0)
        how = {"repeats": repeats, "assurance": rows[0].scpo.get("assurance")}
        result.append(short_labels(there, covered, rows[0].confidence, calibration_rows, **how))
    return result


def verdict(rows: Sequence[Comparison]) -> str:
    """At which levels the sets are clearly smaller or larger (cheaper or dearer): where the interval excludes zero."""
    less, more = WORDS[rows[0].by]
    levels = {
        f"{less} at": [row for row in rows if row.high < 0],
        f"{more} at": [row for row in rows if row.low > 0],
        "not clearly different at": [row for row in rows if row.low <= 0 <= row.high],
        "not comparable (coverage differs too much) at": [row for row in rows if row.change != row.change],
    }
    said = [f"{how} {', '.join(f'{row.confidence:g}' for row in some)}" for how, some in levels.items() if some]
    return f"At equal coverage, SCPO's sets are {', '.join(said)}."
