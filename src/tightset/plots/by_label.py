"""Figures label by label: the coverage and the set size of the rows of each label."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.conformal.intervals import mean_interval, share_interval
from tightset.plots.canvas import (
    SHARE,
    axes_for,
    colour_of_text,
    legend_above,
    line_style,
    percent,
    percent_ticks,
    shortened,
)
from tightset.plots.inputs import Sets, named, sets_of

__all__ = ["class_coverage", "class_size"]


def class_coverage(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    confidence: Any = None,
    groups: Any = None,
    labels: Any = None,
    most: int = 25,
    ax: Any = None,
) -> Any:
    """Draw the coverage of the rows of each label, the lowest first, with Clopper and Pearson's intervals.

    Parameters
    ----------
    source : predictor, ndarray of bool of shape (n_samples, n_classes) or dict
        A fitted predictor with ``X`` and ``y``; sets with ``y``; or a dict of these by name.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows that neither trained nor calibrated the predictor. They are needed with a predictor.
    y : array-like of shape (n_samples,)
        The labels. They are always needed.
    confidence : float, optional
        One level; by default the first of the predictor.
    groups : array-like of shape (n_samples,), optional
        The groups of ``X``, if the predictor was calibrated group by group.
    labels : sequence of length n_classes, optional
        Names of the columns of sets that are given; ``y`` is in these words.
    most : int, default 25
        How many labels are shown, of those covered least.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Notes
    -----
    The guarantee is for the average over labels unless the predictor has ``label_conditional=True``; this shows which
    labels are covered less. The intervals are for the test rows.
    """
    found = _by_class(source, X, y, confidence, groups, labels)
    figures = {}
    for name, one in found.items():
        hit, rows = _covered(one)
        with np.errstate(invalid="ignore"):
            figures[name] = hit / rows, *share_interval(hit, rows, level=SHARE)
    ax = _draw_by_class(ax, found, figures, most, lowest_first=True, what="covered least")
    levels = {one.confidence for one in found.values()} - {None}
    for level in levels:
        ax.axvline(level, color=colour_of_text(ax), lw=0.9, ls="--", label=f"confidence, {percent(level)}")
    ax.set_xlim(right=1.0 + 0.02 * (1.0 - ax.get_xlim()[0]))
    percent_ticks(ax.xaxis)
    _append(ax, "coverage of the label's rows")
    legend_above(
        ax, sorted(ax.get_legend_handles_labels()[0], key=lambda one: one.get_label().startswith("confidence,"))
    )
    return ax


def class_size(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    confidence: Any = None,
    groups: Any = None,
    labels: Any = None,
    most: int = 25,
    ax: Any = None,
) -> Any:
    """Draw the mean set size of the rows of each label, the largest first, with Student's intervals.

    Parameters
    ----------
    source : predictor, ndarray of bool of shape (n_samples, n_classes) or dict
        A fitted predictor with ``X`` and ``y``; sets with ``y``; or a dict of these by name.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows that neither trained nor calibrated the predictor. They are needed with a predictor.
    y : array-like of shape (n_samples,)
        The labels. They are always needed.
    confidence : float, optional
        One level; by default the first of the predictor.
    groups : array-like of shape (n_samples,), optional
        The groups of ``X``, if the predictor was calibrated group by group.
    labels : sequence of length n_classes, optional
        Names of the columns of sets that are given; ``y`` is in these words.
    most : int, default 25
        How many labels are shown, of those with the largest sets.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
    """
    found = _by_class(source, X, y, confidence, groups, labels)
    figures = {}
    for name, one in found.items():
        size, C = one.sets.sum(axis=1), len(one.labels)
        _, rows = _covered(one)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(one.codes, weights=size, minlength=C) / rows  # type: ignore[arg-type]
            square = np.bincount(one.codes, weights=size**2, minlength=C) / rows  # type: ignore[arg-type]
            deviation = np.sqrt(np.maximum(square - mean**2, 0) * rows / (rows - 1))
            figures[name] = mean, *mean_interval(mean, np.nan_to_num(deviation), rows, level=SHARE)
    ax = _draw_by_class(ax, found, figures, most, lowest_first=False, what="of the largest sets")
    _append(ax, "labels per set, for the label's rows")
    if len(found) > 1:
        legend_above(ax)
    return ax


# ---- the parts of these figures -------------------------------------------------------------------------------------


def _by_class(source: Any, X: Any, y: Any, confidence: Any, groups: Any, labels: Any) -> dict[str, Sets]:
    if y is None:
        raise ValueError("y must be given: figures by label need the true labels")
    found = {name: sets_of(one, X, y, confidence, groups, labels) for name, one in named(source).items()}
    if len({tuple(one.labels) for one in found.values()}) > 1:
        raise ValueError("the predictors must know the same labels to be compared label by label")
    return found


def _covered(one: Sets) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each label that are covered, and rows of each label."""
    assert one.codes is not None  # noqa: S101 - asked for by _by_class
    hit = one.sets[np.arange(len(one.codes)), one.codes]
    C = len(one.labels)
    return np.bincount(one.codes, weights=hit, minlength=C), np.bincount(one.codes, minlength=C)


def _draw_by_class(
    ax: Any, found: dict[str, Sets], figures: dict[str, Any], most: int, *, lowest_first: bool, what: str
) -> Any:
    """A line for each label that has rows, ordered by the first predictor, with a point and an interval for each."""
    if most < 1:
        raise ValueError(f"most must be a positive number of labels; got {most!r}")
    first = next(iter(found.values()))
    _, rows = _covered(first)
    value = next(iter(figures.values()))[0]
    there = np.flatnonzero(rows)
    order = there[np.argsort(value[there] if lowest_first else -value[there], kind="stable")]
    shown = order[:most]
    ax = axes_for(ax, 6.0, 1.4 + 0.27 * max(len(shown), 3))
    step = 0.6 / len(figures)
    for at, (name, (middle, low, high)) in enumerate(figures.items()):
        line, place = line_style(at), np.arange(len(shown)) + (at - (len(figures) - 1) / 2) * step
        ends = np.array([(middle - low)[shown], (high - middle)[shown]])
        ends[~np.isfinite(ends)] = 0.0  # of a single row there is no interval
        how = {
            "color": line["color"],
            "marker": line["marker"],
            "ms": 5,
            "elinewidth": 1.4,
            "capsize": 2.5,
            "ls": "none",
        }
        ax.errorbar(middle[shown], place, xerr=ends, label=name or "measured", **how)
    ax.set_yticks(np.arange(len(shown)), [f"{shortened(first.labels[c])}  ({rows[c]:,})" for c in shown])
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_ylabel("label (rows)")
    ax.grid(axis="y", lw=0.4, alpha=0.4)
    cut = len(order) - len(shown)
    ax.set_xlabel(f"\n(the {len(shown)} labels {what}, of {len(order)})" if cut else "")
    return ax


def _append(ax: Any, words: str) -> None:
    """The name of the axis before the note that may stand there."""
    ax.set_xlabel(f"{words}, with {percent(SHARE)} interval{ax.get_xlabel()}")
