"""Warnings for sets that are valid, but larger or less informative than they could be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tightset.compute.arrays import label_counts
from tightset.conformal.ranks import calibration_rows_needed
from tightset.exceptions import warn

__all__ = [
    "warn_of_absent_labels",
    "warn_of_few_rows",
    "warn_of_guessing",
    "warn_of_labels_without_weight",
    "warn_of_unknown_labels",
    "warn_of_untrained_labels",
]


def warn_of_unknown_labels(labels: np.ndarray, n: int, name: str) -> None:
    """Warn of ``labels``, those of ``n`` rows that were not in training: nothing can be predicted but what was seen."""
    distinct = np.unique(labels)
    shown = ", ".join(map(str, distinct[:5].tolist())) + (" ..." if len(distinct) > 5 else "")
    warn(
        f"{len(labels):,} of {n:,} rows ({len(labels) / n:.1%}) in {name} have labels that were not in training "
        f"({shown}): no set can hold these labels, so the rows count as missed"
    )


def warn_of_untrained_labels(codes: np.ndarray, trained: np.ndarray, classes: np.ndarray) -> None:
    """Warn of calibration rows with labels that none of the ``trained (C,)`` rows has: new rows will have such, too."""
    rows = label_counts(codes, len(classes))
    new = (rows > 0) & (trained == 0)
    if not new.any():
        return
    count, shown = int(rows[new].sum()), ", ".join(map(str, classes[new][:5].tolist()))
    warn(
        f"{count:,} of {len(codes):,} calibration rows ({count / len(codes):.1%}) have a label that no training row "
        f"has ({shown}{' ...' if new.sum() > 5 else ''}): new rows may have unseen labels too, which no set can hold "
        "and the guarantee does not cover; give more rows, or merge rare labels"
    )


def warn_of_guessing(first: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> None:
    """Warn if scores are worse than a guess: in ``first (C,)`` calibration rows of a label that label is on top.

    That is, if fewer rows have their own label on top than the commonest label has rows, and labels are on top in their
    own rows no more often than in any. (The first alone is not enough: weights that balance labels do that.)
    """
    rows = label_counts(codes, len(classes))
    there = rows > 0
    n, most, right = len(codes), rows.max() / len(codes), first.sum() / len(codes)
    recall = first[there] / rows[there]
    chance = 1 / there.sum()
    error = np.sqrt(np.sum(chance * (1 - chance) / rows[there])) / there.sum()
    if there.sum() > 1 and right + 3 * np.sqrt(most / n) < most and recall.mean() < chance + 2 * error:
        warn(
            f"the true label has the highest score in {right:.0%} of calibration rows, but always predicting "
            f"{classes[rows.argmax()]} would be right in {most:.0%}: the classifier did not learn, or has diverged. "
            "Sets are valid but not informative; check its training, its scaling, and labels with very few rows"
        )


def warn_of_absent_labels(y: np.ndarray, classes: np.ndarray) -> None:
    """Warn of classes without a calibration row."""
    rows = label_counts(y, len(classes))
    absent = [str(label) for label, count in zip(classes, rows, strict=True) if not count]
    if absent:
        warn(
            f"no calibration row has the label {', '.join(absent)}: coverage holds on average over all labels, "
            "but nothing is known about these; give calibration rows of every label"
        )


def warn_of_few_rows(
    rows: Mapping[tuple[Any, int], int], confidence: Any, classes: np.ndarray, assurance: Any = None
) -> None:
    """Say once where too few calibration rows are to exclude a label: ``rows`` by (group or None, label or -1)."""
    needed = calibration_rows_needed(confidence, assurance)
    few = {key: count for key, count in rows.items() if count < needed}
    if not few:
        return
    (group, label), count = min(few.items(), key=lambda item: item[1])
    where = "calibration has" if group is None else f"group {group!r} has"
    what = "every set holds all labels" if group is None else "every set of that group holds all labels"
    if label >= 0:
        what = f"label {classes[label]} stays in every set" + ("" if group is None else " of that group")
    sure = "" if assurance is None else f" with assurance {float(assurance):g}"
    rows_of = "rows" if label < 0 else f"rows of label {classes[label]}"
    warn(
        f"{where} {count:,} {rows_of}, but confidence {confidence}{sure} needs {needed:,} to exclude a label, so {what}"
        + (f" (and likewise for {len(few) - 1} more)" if len(few) > 1 else "")
        + f"; give more calibration rows or lower the confidence{' or the assurance' if sure else ''}"
    )


def warn_of_labels_without_weight(labels: np.ndarray) -> None:
    """Warn of labels whose rows are all left out by their weight."""
    if len(labels):
        shown = ", ".join(map(str, labels[:5].tolist())) + (" ..." if len(labels) > 5 else "")
        warn(f"every row of label {shown} has weight 0, so nothing is learnt about it: no set will contain it")
