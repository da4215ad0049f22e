"""Checks of input that need no estimator, the rows held aside for calibration, and the one kind of warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d, validate_data

from tightset.compute.partitions import in_memory
from tightset.conformal.icp import calibration_rows_needed, significance
from tightset.exceptions import warn

__all__ = [
    "check_columns",
    "check_folds",
    "check_groups",
    "check_labels",
    "check_levels",
    "check_weight",
    "distinct_labels",
    "generator",
    "label_codes",
    "nearest_level",
    "rows_to_hold",
    "sound_rows",
    "warn_of_absent_labels",
    "warn_of_few_rows",
    "warn_of_guessing",
    "warn_of_unknown_labels",
    "warn_of_untrained_labels",
]

_SMALL, _LARGE = 1e-100, 1e100  # weights
_COUNTED = 2**12  # whole numbers below are counted where others are sorted


def check_labels(y: Any, name: str = "y") -> np.ndarray:
    """Labels ``(n,)`` of one kind, none missing: numbers, booleans or strings."""
    if y is None:
        raise ValueError(f"{name} must be given: this estimator requires y to be passed, but the target y is None")
    y = in_memory(y)
    if np.ma.is_masked(y):
        raise ValueError(f"{name} is a masked array in which labels are masked: leave those rows out, or fill them")
    numpy_dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if getattr(numpy_dtype, "kind", "O") != "O" and not y.isna().any():  # pandas' nullable numbers
        y = y.to_numpy(dtype=numpy_dtype)
    if isinstance(y, (list, tuple)) and len(y) and isinstance(y[0], (list, tuple)) and len(y[0]) != 1:
        raise ValueError(f"{name} must hold one label per row; got {y[0]!r} in the first")
    labels: np.ndarray = column_or_1d(y, warn=True, dtype=None)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(f"Input {name} contains infinity or a value too large for {labels.dtype!r}.")
    if labels.dtype == object:  # NaN differs from itself, and pandas' NA compares as neither
        missing = np.array([value is None or (value == value) is not True for value in labels], dtype=bool)
    else:
        missing = labels != labels
    if np.any(missing):
        raise ValueError(f"Input {name} contains NaN or a missing label, first in row {int(np.argmax(missing))}")
    if labels.dtype == object and not all(isinstance(value, str) for value in labels):
        if any(isinstance(value, bytes) for value in labels):
            raise ValueError(f"{name} has labels that are bytes; decode them, or make all of them numbers")
        if any(isinstance(value, str) for value in labels):
            raise ValueError(f"{name} mixes strings with other labels; make all of them strings or all numbers")
        try:
            labels = np.array(labels.tolist())
        except ValueError:
            raise ValueError(f"{name} must hold one label per row; got {labels[0]!r}") from None
    return labels


def distinct_labels(labels: np.ndarray) -> np.ndarray:
    """Each label once, sorted: `np.unique`, without sorting where labels can be counted.

    >>> distinct_labels(np.array([3, 1, 3]))
    array([1, 3])
    """
    if not _can_be_counted(labels):
        return np.unique(labels)
    return np.flatnonzero(np.bincount(labels.astype(np.intp, copy=False))).astype(labels.dtype)


def _can_be_counted(labels: np.ndarray) -> bool:
    """Whether these are whole numbers from 0 to a few thousand."""
    return labels.dtype.kind in "iu" and len(labels) > 0 and bool(labels.min() >= 0 and labels.max() < _COUNTED)


def label_codes(labels: np.ndarray, classes: np.ndarray, name: str, *, unknown: str = "raise") -> np.ndarray:
    """Labels as indices of the sorted ``classes``; one that is not among them is an error.

    With ``unknown="miss"`` it is -1, and an error only if none of the labels is known.
    """
    codes: np.ndarray = np.zeros(len(labels), dtype=np.intp)
    known = np.zeros(len(labels), dtype=bool)
    if _can_be_counted(labels) and _can_be_counted(classes):
        table = np.full(_COUNTED, -1, dtype=np.intp)
        table[classes] = np.arange(len(classes))
        codes = table[labels]
        known = codes >= 0
    elif (labels.dtype.kind in "biuf") == (classes.dtype.kind in "biuf"):  # numbers do not compare with strings
        own, fits = labels, np.ones(len(labels), dtype=bool)
        if labels.dtype.kind in "iu" and classes.dtype.kind in "iu" and labels.dtype != classes.dtype:
            # int64 meets uint64 in float64, which cannot tell large numbers apart
            own = labels.astype(classes.dtype)
            fits = (own < 0) == (labels < 0)
        codes = np.minimum(np.searchsorted(classes, own), len(classes) - 1)
        known = (classes[codes] == own) & fits & (own.astype(labels.dtype) == labels)
    if unknown == "miss" and known.any():
        return np.where(known, codes, -1)
    if not known.all():
        raise ValueError(
            f"{name} has labels that were not in training: {np.unique(labels[~known])[:5].tolist()}; "
            f"known labels are {classes[:10].tolist()}"
        )
    return codes


def check_levels(confidence: Any) -> tuple[list[Any], bool]:
    """The levels, and whether one was given by itself.

    >>> check_levels(0.9), check_levels([0.8, 0.9])
    (([0.9], True), ([0.8, 0.9], False))
    """
    single = np.ndim(confidence) == 0
    levels = [confidence] if single else list(confidence)
    if not levels:
        raise ValueError("confidence must name at least one level; got an empty sequence")
    if len({significance(level) for level in levels}) < len(levels):
        raise ValueError(f"confidence must not name a level twice; got {confidence!r}")
    return levels, single


def nearest_level(level: Any, trained: Sequence[Any]) -> int:
    """The index of the level whose error rate is nearest, as a ratio.

    >>> nearest_level(0.97, [0.9, 0.95, 0.99])
    1
    """
    eps, known = significance(level), [significance(one) for one in trained]
    return min(range(len(known)), key=lambda i: (max(eps / known[i], known[i] / eps), known[i]))


def check_columns(owner: Any, X: Any) -> None:
    """The number and names of the columns of a Dask collection, which is not computed for that."""
    if hasattr(X, "columns") and hasattr(X, "_meta"):
        validate_data(owner, X._meta, reset=False, skip_check_array=True)
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
        raise ValueError("sample_weight is zero for every row; at least one row of each of two classes must count")
    if not _SMALL < weight.max() < _LARGE:  # sums of them would overflow or vanish; their ratios say the same
        weight /= weight.max()
    return weight


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
        raise ValueError("X is a lazy frame: give X.collect()")
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM" and np.isnat(X).any():
        raise ValueError("X has dates or times that are missing (NaT): leave those rows out, or fill them")
    if sparse.issparse(X):
        try:
            _check_sparse(X)
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(f"X is a sparse matrix that is damaged: {error}") from None
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
            raise ValueError("cv has a fold that calibrates on rows it trains on; no coverage could be promised")
        calibrated[parts[1]] += 1
        if calibrated.max() > 1 or len(np.unique(parts[1])) < len(parts[1]):
            raise ValueError("cv calibrates on a row more than once; each row may be held out in one fold only")
        checked.append((parts[0], parts[1]))
    if not checked:
        raise ValueError("cv gives no folds; a generator can be used only once, so give a list or a splitter")
    return checked


def rows_to_hold(calibration_size: Any, n: int, strictest: Any, calibrating: float = 1.0) -> int:
    """How many rows to hold aside: a quarter by default, more (up to half) if the level could not be met with it.

    Of those, a share ``calibrating`` calibrates.
    """
    if calibration_size is None:
        needed = ceil(calibration_rows_needed(strictest) / calibrating)
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


def warn_of_unknown_labels(labels: np.ndarray, n: int, name: str) -> None:
    """Warn of ``labels``, those of ``n`` rows that were not in training: nothing can be predicted but what was seen."""
    distinct = np.unique(labels)
    shown = ", ".join(map(str, distinct[:5].tolist())) + (" ..." if len(distinct) > 5 else "")
    warn(
        f"{len(labels):,} of {n:,} rows ({len(labels) / n:.1%}) in {name} have labels that were not in training "
        f"({shown}): no set can hold these labels, so the rows count as missed"
    )


def warn_of_untrained_labels(codes: np.ndarray, trained: np.ndarray, classes: np.ndarray) -> None:
    """Warn of calibration rows with labels that no training row has: new rows will have such labels, too."""
    rows = np.bincount(codes[codes >= 0], minlength=len(classes))
    new = (rows > 0) & (np.bincount(trained, minlength=len(classes)) == 0)
    if not new.any():
        return
    count, shown = int(rows[new].sum()), ", ".join(map(str, classes[new][:5].tolist()))
    warn(
        f"{count:,} of {len(codes):,} calibration rows ({count / len(codes):.1%}) have a label that no training row "
        f"has ({shown}{' ...' if new.sum() > 5 else ''}): expect new rows with labels that were never seen, too, which "
        "no set can hold and the guarantee leaves out; give more rows, or merge rare labels"
    )


def warn_of_guessing(first: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> None:
    """Warn if scores are worse than a guess: ``first (n,)`` tells of calibration rows whether the own label is on top.

    That is, if fewer rows have their own label on top than the commonest label has rows, and labels are on top in their
    own rows no more often than in any. (The first alone is not enough: weights that balance labels do that.)
    """
    rows = np.bincount(codes[codes >= 0], minlength=len(classes))
    there = rows > 0
    n, most = len(codes), rows.max() / len(codes)
    recall = np.bincount(codes[first & (codes >= 0)], minlength=len(classes))[there] / rows[there]
    chance = 1 / there.sum()
    error = np.sqrt(np.sum(chance * (1 - chance) / rows[there])) / there.sum()
    if there.sum() > 1 and first.mean() + 3 * np.sqrt(most / n) < most and recall.mean() < chance + 2 * error:
        warn(
            f"the true label has the highest score in {first.mean():.0%} of the calibration rows, where always saying "
            f"{classes[rows.argmax()]} would be right in {most:.0%}: the classifier did not learn, or has diverged. "
            "Sets are valid but tell nothing; look at its training, its scaling, and labels with very few rows"
        )


def warn_of_absent_labels(y: np.ndarray, classes: np.ndarray) -> None:
    """Warn of classes without a calibration row."""
    rows = np.bincount(y[y >= 0], minlength=len(classes))
    absent = [str(label) for label, count in zip(classes, rows, strict=True) if not count]
    if absent:
        warn(
            f"no calibration row has the label {', '.join(absent)}: coverage holds on average over all labels, "
            "but nothing is known of these; give calibration rows of every label"
        )


def warn_of_few_rows(rows: Mapping[tuple[Any, int], int], confidence: Any, classes: np.ndarray) -> None:
    """Say once where too few calibration rows are to exclude a label: ``rows`` by (group or None, label or -1)."""
    needed = calibration_rows_needed(confidence)
    few = {key: count for key, count in rows.items() if count < needed}
    if not few:
        return
    (group, label), count = min(few.items(), key=lambda item: item[1])
    where = "calibration has" if group is None else f"group {group!r} has"
    what = "every set holds all labels" if group is None else "every set of that group holds all labels"
    if label >= 0:
        what = f"label {classes[label]} stays in every set" + ("" if group is None else " of that group")
    rows_of = "rows" if label < 0 else f"rows of label {classes[label]}"
    warn(
        f"{where} {count} {rows_of}, but confidence {confidence} needs {needed} to exclude a label, so {what}"
        + (f" (and likewise for {len(few) - 1} more)" if len(few) > 1 else "")
        + "; give more calibration rows or ask for less confidence"
    )
