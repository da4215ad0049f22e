"""Checks of input that need no estimator, and the rows held out for calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import validate_data

from tightset.compute.rows import columns_like
from tightset.conformal.ranks import as_assurance, calibration_rows_needed, significance
from tightset.estimators.labels import Labels, check_labels

if TYPE_CHECKING:
    from tightset.estimators.base import ConformalPredictor

__all__ = [
    "check_assurance",
    "check_columns",
    "check_folds",
    "check_groups",
    "check_levels",
    "check_weight",
    "generator",
    "group_codes",
    "is_balanced",
    "nearest_level",
    "rows_to_hold",
    "sound_rows",
    "weighted_by_label",
]

_SMALL, _LARGE = 1e-100, 1e100  # weights
_HIGHEST = 0.999999999  # level: error rates are fractions whose denominators have nine digits


def check_levels(confidence: Any) -> tuple[list[Any], bool]:
    """The levels, and whether one was given by itself.

    >>> check_levels(0.9), check_levels([0.8, 0.9])
    (([0.9], True), ([0.8, 0.9], False))
    """
    single = np.ndim(confidence) == 0
    levels = [confidence] if single else list(confidence)
    if not levels:
        raise ValueError("confidence must name at least one level; got an empty sequence")
    for level in levels:
        if isinstance(level, float) and _HIGHEST < level < 1:
            needed = ceil(1 / (1 - Fraction(str(level)))) - 1
            raise ValueError(
                f"confidence must be at most {_HIGHEST}; got {level}, which would need {needed:,} calibration rows "
                "to exclude a label"
            )
    if len({significance(level) for level in levels}) < len(levels):
        raise ValueError(f"confidence must not name a level twice; got {confidence!r}")
    return levels, single


def check_assurance(assurance: Any, cv: Any) -> None:
    """Raise unless it is None or a share, for a predictor that is calibrated on rows of their own."""
    if as_assurance(assurance) is not None and cv is not None:
        raise ValueError(
            "assurance needs calibration rows that did not train, because the coverage of cross-conformal sets given "
            "the rows has no known law: use cv=None, or assurance=None"
        )


def nearest_level(level: Any, trained: Sequence[Any]) -> int:
    """The index of the level whose error rate is nearest, as a ratio.

    >>> nearest_level(0.97, [0.9, 0.95, 0.99])
    1
    """
    eps, known = significance(level), [significance(one) for one in trained]
    return min(range(len(known)), key=lambda i: (max(eps / known[i], known[i] / eps), known[i]))


def check_columns(owner: Any, X: Any) -> None:
    """The number and names of the columns of rows that lie elsewhere, which are not computed for that."""
    like = columns_like(X)
    if like is not None:
        validate_data(owner, like, reset=False, skip_check_array=True)
    elif getattr(X, "ndim", 0) == 2 and X.shape[1] != owner.n_features_in_:
        own, here = type(owner).__name__, X.shape[1]
        raise ValueError(f"X has {here} features, but {own} is expecting {owner.n_features_in_} features as input")


def check_groups(groups: Any, n: int, name: str) -> np.ndarray | None:
    """Groups ``(n,)`` of one kind, none missing, or None."""
    if groups is None:
        return None
    values = check_labels(groups, name)
    if values.shape != (n,):
        raise ValueError(f"{name} must have one value for each of the {n} rows; got shape {values.shape}")
    return values


def group_codes(groups: np.ndarray | None) -> np.ndarray | None:
    """Groups as whole numbers from 0, or None.

    >>> group_codes(np.array(["b", "a", "b"]))
    array([1, 0, 1])
    """
    return None if groups is None else np.unique(groups, return_inverse=True)[1]


def check_weight(sample_weight: Any, n: int) -> np.ndarray | None:
    """Weights ``(n,)`` that are finite, not negative and not all zero, or None."""
    if sample_weight is None:
        return None
    if np.ma.is_masked(sample_weight):
        raise ValueError(
            "sample_weight is a masked array in which weights are masked: fill them, with 0 to leave rows out"
        )
    given = np.asarray(sample_weight)
    try:
        weight = given.astype(np.float64, casting="unsafe" if given.dtype == object else "same_kind")
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight must be {n} real numbers; got {given.dtype} values") from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have one number for each of the {n} rows; got shape {weight.shape}")
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("sample_weight must be finite and not negative")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row; at least two classes must have positive weight")
    if not _SMALL < weight.max() < _LARGE:  # sums of them would overflow or vanish; their ratios say the same
        weight /= weight.max()
    return weight


def is_balanced(class_weight: Any) -> bool:
    """Whether labels are to weigh the same, however many rows they have."""
    return isinstance(class_weight, str) and class_weight == "balanced"


def weighted_by_label(weight: np.ndarray | None, class_weight: Any, y: np.ndarray | Labels) -> np.ndarray | None:
    """Weights of rows times those of their labels.

    >>> weighted_by_label(None, "balanced", np.array([0, 0, 0, 1])).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    if class_weight is None:
        return weight
    if not (isinstance(class_weight, dict) or is_balanced(class_weight)):
        raise ValueError(f"class_weight must be None, 'balanced' or a dict of labels and weights; got {class_weight!r}")
    by_label = compute_sample_weight(class_weight, np.asarray(y))
    if not (np.isfinite(by_label).all() and (by_label >= 0).all() and by_label.any()):
        raise ValueError("class_weight must be finite numbers that are not negative, and not all zero")
    return np.asarray(by_label if weight is None else weight * by_label)


def sound_rows(X: Any) -> Any:
    """Rows whose every entry can be read: nothing masked away, no sparse index outside the matrix."""
    if isinstance(X, np.ma.MaskedArray):
        if np.ma.is_masked(X):
            raise ValueError(
                f"X is a masked array with {int(np.ma.getmaskarray(X).sum()):,} masked values: fill them, "
                "X.filled(value), with NaN if the estimator takes missing values"
            )
        return X.data
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise ValueError("X is a lazy frame: pass X.collect()")
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM" and np.isnat(X).any():
        raise ValueError("X has dates or times that are missing (NaT): leave those rows out, or fill them")
    if sparse.issparse(X):
        try:
            _check_sparse(X)
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(f"X is a damaged sparse matrix: {error}") from None
        if X.format in ("csr", "csc") and not X.has_canonical_format:  # an entry that is stored in parts is their sum
            X = X.copy()
            X.sum_duplicates()
    return X


def _check_sparse(X: Any) -> None:
    """Raise if an index lies outside the matrix, which compiled code would follow."""
    rows, columns = X.shape
    if X.format in ("csr", "csc", "bsr"):
        X.check_format(full_check=True)
        return
    if X.format == "coo":
        at = [(X.row, rows), (X.col, columns)]
        lengths = {len(X.row), len(X.col), len(X.data)}
    elif X.format == "lil":
        none = [np.zeros(0, dtype=np.int64)]
        at = [(np.concatenate(none + [np.asarray(row, dtype=np.int64) for row in X.rows]), columns)]
        lengths = {rows, len(X.rows), len(X.data)}
        if any(len(row) != len(own) for row, own in zip(X.rows, X.data, strict=False)):
            raise ValueError("a row has more indices than values, or fewer")
    elif X.format == "dok":
        keys = np.array(list(X.keys()), dtype=np.int64).reshape(-1, 2)
        at, lengths = [(keys[:, 0], rows), (keys[:, 1], columns)], {0}
    else:
        at, lengths = [(np.abs(X.offsets), max(rows, columns))], {0}
    if len(lengths) > 1:
        raise ValueError("its arrays differ in length")
    for index, size in at:
        if len(index) and not (np.min(index) >= 0 and np.max(index) < size):
            raise ValueError(f"an index is outside of {size}")


def check_folds(folds: Iterable[Any], n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(training rows, calibration rows) of each fold as indices; a row must not serve twice."""
    checked = []
    calibrated = np.zeros(n, dtype=int)
    for train, held in folds:
        parts = []
        for rows in (np.asarray(train), np.asarray(held)):
            rows = np.flatnonzero(rows) if rows.dtype == bool and rows.shape == (n,) else rows  # noqa: PLW2901
            if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "iu" or rows.min() < -n or rows.max() >= n:
                raise ValueError(f"cv must give (training rows, calibration rows) as non-empty indices below {n}")
            parts.append(rows % n)
        if len(np.intersect1d(parts[0], parts[1])):
            raise ValueError("cv has a fold that calibrates on rows it trains on, so coverage could not be guaranteed")
        calibrated[parts[1]] += 1
        if calibrated.max() > 1 or len(np.unique(parts[1])) < len(parts[1]):
            raise ValueError("cv calibrates on a row more than once; each row may be held out in one fold only")
        checked.append((parts[0], parts[1]))
    if not checked:
        raise ValueError("cv yields no folds; a generator can be used only once, so pass a list or a splitter")
    return checked


def rows_to_hold(predictor: ConformalPredictor, n: int) -> int:
    """How many of ``n`` rows to hold aside: a quarter by default, more (up to half) if the level needs more.

    Of those, a share ``predictor.calibrating_share()`` calibrates.
    """
    calibration_size = predictor.calibration_size
    if calibration_size is None:
        strictest = max(predictor.levels_asked(None)[0], key=float)
        needed = ceil(calibration_rows_needed(strictest, predictor.assurance) / predictor.calibrating_share())
        return max(min(max(round(n / 4), needed), n // 2), 1)
    rows = 0
    if isinstance(calibration_size, (int, np.integer)) and not isinstance(calibration_size, bool):
        rows = int(calibration_size)
    elif isinstance(calibration_size, (float, np.floating)) and 0 < calibration_size < 1:
        rows = max(round(n * float(calibration_size)), 1)
    if not 0 < rows < n:
        raise ValueError(
            f"calibration_size must be a fraction between 0 and 1 or a number of rows from 1 to {n - 1}; "
            f"got {calibration_size!r}"
        )
    return rows


def generator(random_state: Any) -> np.random.RandomState:
    """The generator that ``random_state`` stands for; None is a fresh one, never NumPy's global one."""
    if random_state is None:
        return np.random.RandomState()
    try:
        found: np.random.RandomState = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state cannot be used: {error}") from None
    return found
