"""The column of labels: read chunk by chunk; and how labels with few rows are treated.

A label with only a few rows can neither be learnt nor calibrated. By default it is *kept*; *other* merges all such
labels into one; *drop* leaves their rows out, as if they were not in the table. Rows are counted in the whole table, so
that every split has the same labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from tightset.conformal.ranks import calibration_rows_needed
from tightset.estimators.base import ConformalPredictor
from tightset.exceptions import TableError, warn
from tightset.tables.numbers import is_number
from tightset.tables.texts import without_point

__all__ = ["KEEP", "POLICIES", "Labelled", "Labels", "Rare", "meant"]

POLICIES = ("keep", "other", "drop")
_FEW_ROWS = 10  # a quarter of which calibrates: two or three
_MOST_LABELS = 1000
_MOST_NAMED = 20  # columns, in an error
_ADVICE = (
    ". --rare-labels other merges rare labels into one, --rare-labels drop leaves their rows out, and --rare-rows "
    "sets the number of rows below which a label is rare"
)


class Rare(NamedTuple):
    """Labels of fewer than ``rows`` rows are rare; where coverage is by label, ``needed`` rows of each calibrate."""

    policy: str = "keep"
    rows: int = _FEW_ROWS
    level: Any = None
    needed: int = 0
    drop_unlabelled: bool = False  # rows without a label are left out, too

    @classmethod
    def of(cls, predictor: ConformalPredictor, policy: str = "keep", rows: int | None = None) -> Rare:
        """By default fewer than 10, and where coverage is by label fewer than four times as many as must calibrate.

        Of the rows of a label about a quarter calibrates, and with fewer than ``ceil(1 / eps) - 1`` of those the label
        is in every set: at 95 % these are 19, so that a label needs 76 rows.

        >>> from tightset import ConformalClassifier
        >>> Rare.of(ConformalClassifier()).rows, Rare.of(ConformalClassifier(label_conditional=True)).rows
        (10, 76)
        """
        if policy not in POLICIES:
            raise TableError(f"rare_labels must be one of {', '.join(map(repr, POLICIES))}; got {policy!r}")
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1):
            raise TableError(f"rare_rows must be a positive whole number of rows; got {rows!r}")
        if not predictor.label_conditional:
            return cls(policy, _FEW_ROWS if rows is None else int(rows))
        strictest = max(predictor.levels_asked(None)[0], key=float)
        needed = calibration_rows_needed(strictest, predictor.assurance)
        return cls(policy, max(_FEW_ROWS, 4 * needed) if rows is None else int(rows), strictest, needed)


KEEP = Rare()


class Labelled(NamedTuple):
    """Labels in order, and the code ``(n,)`` of each row, -1 if it was dropped; what became of rare labels."""

    classes: np.ndarray
    codes: np.ndarray
    merged: dict[str, str]  # into which label
    dropped: list[str]
    told: str | None  # in words
    order: Sequence[str] = ()  # of an ordered categorical column


class Labels:
    """The target column, chunk by chunk, as codes."""

    def __init__(self, table: Any, target: str, rare: Rare) -> None:
        self._table, self._target, self._rare = table.name, target, rare
        self._order = table.orders.get(target, ())
        self._codes: list[np.ndarray] = []
        self._at: dict[str, int] = {}

    def see(self, frame: Any) -> None:
        if self._target not in frame.columns:
            raise TableError(
                f"there is no column {self._target!r} in {self._table}{meant(self._target, frame.columns)}"
            )
        texts = frame[self._target]
        missing = texts.isna().to_numpy()
        if missing.any() and not self._rare.drop_unlabelled:
            raise TableError(
                f"the target column {self._target!r} has no value in row {int(frame.index[missing.argmax()]) + 1}"
                f"{f', nor in {int(missing.sum()) - 1:,} more' if missing.sum() > 1 else ''}: give them a label, "
                "or --drop-unlabelled to leave such rows out"
            )
        codes, distinct = texts.factorize()
        # -1, of a missing value, is the last of them
        own = np.array([*(self._at.setdefault(str(value), len(self._at)) for value in distinct), -1], dtype=np.int32)
        self._codes.append(own[codes])

    def settle(self) -> Labelled:
        rare = self._rare
        codes = np.concatenate([np.empty(0, dtype=np.int32), *self._codes])
        if not len(codes):
            raise TableError(f"{self._table} has a header but no rows")
        if not self._at:
            raise TableError(f"the target column {self._target!r} has no value in any row; it must hold the labels")
        names = list(self._at)
        unlabelled = int((codes < 0).sum())
        if unlabelled:
            warn(f"{unlabelled:,} of {len(codes):,} rows have no label and are left out")
        if len(names) < 2:
            raise TableError(
                f"the target column {self._target!r} is {names[0]!r} in every row; at least two labels are needed"
            )
        rows = dict(zip(names, np.bincount(codes[codes >= 0], minlength=len(names)).tolist(), strict=True))
        few = {name: n for name, n in sorted(rows.items(), key=lambda pair: pair[1]) if n < rare.rows}
        merged = dict.fromkeys(few if rare.policy == "other" else (), _free_name(names))
        dropped = list(few) if rare.policy == "drop" else []
        becomes = {name: merged.get(name, name) for name in names if name not in dropped}
        left = list(dict.fromkeys(becomes.values()))
        self._check(left, len(codes), rare, few)
        _warn_of_doubles(left)
        distinct = _as_numbers(left)
        order = np.argsort(distinct)
        place = dict(zip(np.array(left)[order].tolist(), range(len(left)), strict=True))
        own = np.array([*(place[becomes[name]] if name in becomes else -1 for name in names), -1])
        told = _told(rare, few, merged) if few else None
        if told and rare.policy != "other":
            warn(told + (_ADVICE if rare.policy == "keep" else ""))
        return Labelled(distinct[order], own[codes], merged, dropped, told, self._order)

    def _check(self, left: Sequence[str], rows: int, rare: Rare, few: Mapping[str, int]) -> None:
        if len(left) < 2:
            raise TableError(
                f"{len(few):,} labels of the target column {self._target!r} have fewer than {rare.rows} rows, and "
                f"--rare-labels {rare.policy} leaves {len(left) or 'none'}: at least two labels are needed. Give a "
                "smaller number as --rare-rows"
            )
        if len(left) > _MOST_LABELS or len(left) > rows / 2:
            raise TableError(
                f"the target column {self._target!r} has {len(left):,} different values in {rows:,} rows: it seems to "
                "be a number, a name or an identifier, and not a label; or there are too few rows"
            )


def _as_numbers(names: Sequence[str]) -> np.ndarray:
    """Whole numbers, if that is what all of them are, and no two of them are the same; else the texts."""
    short = [without_point(name) for name in names]
    whole = all(one.lstrip("-").isdecimal() and str(int(one)) == one for one in short)
    return np.array([int(one) for one in short] if whole and len(set(short)) == len(short) else names)


def _warn_of_doubles(names: Sequence[str]) -> None:
    """Say which labels may be one, but are not written alike."""
    alike: dict[Any, str] = {}
    for name in names:
        other = alike.setdefault(" ".join(name.split()).casefold(), name)
        if other != name:
            warn(f"the labels {other!r} and {name!r} differ only in case or spaces, and count as two")
        if is_number(name) and abs(float(name)) < 1e300:
            other = alike.setdefault(Decimal(name), name)  # a float cannot tell large numbers apart
            if other != name:
                warn(
                    f"the labels {other!r} and {name!r} are the same number written differently, and count as two; if "
                    "they are one label, write them in the same way"
                )


def _free_name(names: Sequence[str]) -> str:
    """``(other)``, or something like it that is no label yet."""
    tried = ["(other)", "(other labels)", *(f"(other labels {at})" for at in range(2, len(names) + 2))]
    return next(name for name in tried if name not in names)


def _told(rare: Rare, few: Mapping[str, int], merged: Mapping[str, str]) -> str:
    total, one = sum(few.values()), len(few) == 1
    shown = ", ".join(f"{name!r} ({n:,})" for name, n in list(few.items())[:8])
    shown += f" and {len(few) - 8:,} more" if len(few) > 8 else ""
    which = f"{len(few):,} label{'' if one else 's'} with fewer than {rare.rows} rows: {shown}"
    if rare.policy == "other":
        still = f", still fewer than {rare.rows}" if total < rare.rows else ""
        return f"{next(iter(merged.values()))} ({total:,} rows{still}) stands for {which}"
    if rare.policy == "drop":
        return (
            f"{total:,} row{'' if total == 1 else 's'} left out, of {which}. Coverage is guaranteed for rows of the "
            f"other labels; a new row of {'this label' if one else 'these labels'} is never covered"
        )
    them = "it" if one else "them"
    meaning = f"too few to train and calibrate on, so sets may miss {them} more often than the level allows on average"
    if rare.needed:
        meaning = f"a label with fewer than {rare.needed} calibration rows is in every set at confidence {rare.level}"
    return f"kept {which}; {meaning}"


def meant(name: str, columns: Any) -> str:
    """Which column somebody may have meant, and which there are, if they are few.

    >>> meant("preis", ["Preis", "Ort"]), meant("x", ["Preis"])
    ("; did you mean 'Preis'? There are 'Preis', 'Ort'", "; there are 'Preis'")
    """
    names = [str(one) for one in columns]
    alike = [one for one in names if one.strip().casefold() == name.strip().casefold()]
    near = alike or get_close_matches(name, names, n=1, cutoff=0.75)
    shown = f"here are {', '.join(map(repr, names[:_MOST_NAMED]))}{' ...' if len(names) > _MOST_NAMED else ''}"
    if near:
        return f"; did you mean {near[0]!r}?" + (f" T{shown}" if len(names) <= _MOST_NAMED else "")
    return f"; t{shown}"
