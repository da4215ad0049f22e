"""Figures of coverage and set size: against confidence, as histograms, and by label."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.conformal.intervals import coverage_band, mean_interval, share_interval
from tightset.plots.canvas import (
    COLOURS,
    HATCHES,
    LINES,
    MARKERS,
    axes_for,
    colour_of_text,
    legend_above,
    percent,
    percent_ticks,
    shortened,
)
from tightset.plots.inputs import Sets, calibration_rows, is_model, named, rows_of, sets_of, trained_levels

__all__ = ["class_coverage", "class_size", "coverage", "mean_size", "size_histogram"]

_SHARE = 0.95  # of cases that fall into bands and intervals
_BARS = 20  # sizes that are drawn as bars; more are drawn as steps


def coverage(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    confidence: Any = None,
    groups: Any = None,
    calibration_rows: int | None = None,
    minus_confidence: bool = False,
    ax: Any = None,
) -> Any:
    """Coverage against confidence, with the band in which it falls if the guarantee holds.

    Parameters
    ----------
    source : a fitted predictor, with ``X`` and ``y``; rows of ``evaluate``; or a dict of these by name.
    X, y : rows and their labels, which must not have trained or calibrated the predictor.
    confidence : levels; by default those of the predictor and, for a curve, others from 50 to 99 %.
    groups : the groups of ``X``, for a predictor that was calibrated group by group.
    calibration_rows : how many rows calibrated, where rows of ``evaluate`` are given; a predictor knows.
    minus_confidence : draw the difference, which shows more.
    ax : axes to draw on.

    Notes
    -----
    19 in 20 cases fall into the band, level by level. Coverage varies with the test rows and with the calibration rows:
    the band is beta-binomial (`tightset.conformal.intervals.coverage_band`). Where the number of calibration rows is
    not known it is binomial, for the test rows only, and too narrow. Of several predictors it is that of the fewest
    rows.
    """
    series = _series(source, X, y, confidence, groups, need="coverage")
    ax = axes_for(ax)
    text = colour_of_text(ax)
    counts = [calibration_rows if calibration_rows is not None else _counted(one) for one in named(source).values()]
    known = None if any(count is None for count in counts) else min(count for count in counts if count is not None)
    levels = np.array(sorted({row["confidence"] for rows in series.values() for row in rows}))
    n = min(row["n"] for rows in series.values() for row in rows)
    edges = np.array([coverage_band(level, n, known, level=_SHARE) for level in levels])
    off = levels if minus_confidence else np.zeros_like(levels)
    for at, (name, rows) in enumerate(series.items()):
        own = np.array([row["confidence"] for row in rows])
        covered = np.array([row["coverage"] for row in rows])
        ax.plot(own, covered - own if minus_confidence else covered, label=name or "measured", **_line(at))
    ax.plot(levels, levels - off, color=text, lw=0.9, zorder=1.5, label="coverage = confidence")
    how = {"color": text, "alpha": 0.16, "lw": 0, "zorder": 1, "label": f"{percent(_SHARE)} band"}
    ax.fill_between(levels, edges[:, 0] - off, edges[:, 1] - off, **how)
    _confidence_axis(ax, source, levels)
    calibrated = "binomial, calibration rows not known" if known is None else f"{known:,} calibration rows"
    ax.set_xlabel(f"confidence\n(band for {n:,} rows; {calibrated})")
    ax.set_ylabel("coverage minus confidence" if minus_confidence else "coverage")
    percent_ticks(ax.yaxis)
    legend_above(ax)
    return ax


def mean_size(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    confidence: Any = None,
    groups: Any = None,
    ax: Any = None,
) -> Any:
    """Mean set size against confidence, with Student's intervals of the mean; smaller is better.

    ``source`` is a fitted predictor with ``X`` (``y`` is not needed), rows of ``evaluate``, or a dict of these by name.
    The intervals are of each mean by itself: predictors compared on the same rows differ more surely than overlapping
    intervals suggest (`tightset.metrics.bootstrap_difference` compares row by row).
    """
    series = _series(source, X, y, confidence, groups, need="mean_size")
    ax = axes_for(ax)
    levels = np.array(sorted({row["confidence"] for rows in series.values() for row in rows}))
    for at, (name, rows) in enumerate(series.items()):
        own = np.array([row["confidence"] for row in rows])
        mean = np.array([row["mean_size"] for row in rows])
        low, high = np.array([_size_interval(row) for row in rows]).T
        ax.fill_between(own, low, high, color=_line(at)["color"], alpha=0.22, lw=0)
        ax.plot(own, mean, label=name or "mean size", **_line(at))
    ax.set_ylabel(f"labels per set, mean with {percent(_SHARE)} interval")
    _confidence_axis(ax, source, levels)
    legend_above(ax)
    return ax


def size_histogram(
    source: Any, X: Any = None, y: Any = None, *, confidence: Any = None, groups: Any = None, ax: Any = None
) -> Any:
    """How many labels the sets have: the share of rows by size, for each predictor and each level.

    ``source`` as in `mean_size`; a predictor is drawn at its own levels unless others are asked for.
    """
    series = _series(source, X, y, confidence, groups, need="n", own_levels=True)
    drawn: dict[str, np.ndarray] = {}
    colours: list[int] = []  # by predictor, or by level if there is but one
    for at, (name, rows) in enumerate(series.items()):
        for of_level, row in enumerate(rows):
            drawn[", ".join(filter(None, [name, percent(row["confidence"])]))] = _shares(row)
            colours.append(at if len(series) > 1 else of_level)
    ax = axes_for(ax)
    largest = max(int(np.flatnonzero(share)[-1]) for share in drawn.values())
    sizes = np.arange(largest + 1)
    width = 0.84 / len(drawn)
    for at, ((name, share), colour) in enumerate(zip(drawn.items(), colours, strict=True)):
        shown = np.pad(share, (0, max(0, largest + 1 - len(share))))[: largest + 1]
        paint = COLOURS[colour % len(COLOURS)]
        if largest < _BARS:
            how = {"fc": (paint, 0.85), "ec": colour_of_text(ax), "lw": 0.6, "hatch": HATCHES[at % len(HATCHES)]}
            ax.bar(sizes - 0.42 + at * width, shown, width, align="edge", label=name, **how)
        else:
            ax.stairs(shown, np.arange(-0.5, largest + 1), color=paint, ls=LINES[at % len(LINES)], lw=1.6, label=name)
    if largest < _BARS:
        ax.set_xticks(sizes)
    ax.set(xlabel="labels in the set", ylabel="share of rows", ylim=(0, None))
    percent_ticks(ax.yaxis)
    legend_above(ax)
    return ax


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
    """Coverage of the rows of each label, the lowest first, with Clopper and Pearson's intervals.

    The guarantee is for the average over labels unless the predictor has ``label_conditional=True``; this shows who
    pays for it. The intervals are for the test rows.

    Parameters
    ----------
    source : a fitted predictor with ``X`` and ``y``; sets ``(n, C)`` of bool with ``y``; or a dict of these by name.
    X, y : rows and their labels.
    confidence : one level; by default the first of the predictor.
    groups : the groups of ``X``.
    labels : names of the columns of the sets, for sets that are given; ``y`` is in these words.
    most : how many labels are shown, of those covered least.
    ax : axes to draw on.
    """
    found = _by_class(source, X, y, confidence, groups, labels)
    figures = {}
    for name, one in found.items():
        hit, rows = _covered(one)
        with np.errstate(invalid="ignore"):
            figures[name] = hit / rows, *share_interval(hit, rows, level=_SHARE)
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
    """Mean set size of the rows of each label, the largest first, with Student's intervals; see `class_coverage`."""
    found = _by_class(source, X, y, confidence, groups, labels)
    figures = {}
    for name, one in found.items():
        size, C = one.sets.sum(axis=1), len(one.labels)
        _, rows = _covered(one)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(one.codes, weights=size, minlength=C) / rows  # type: ignore[arg-type]
            square = np.bincount(one.codes, weights=size**2, minlength=C) / rows  # type: ignore[arg-type]
            deviation = np.sqrt(np.maximum(square - mean**2, 0) * rows / (rows - 1))
            figures[name] = mean, *mean_interval(mean, np.nan_to_num(deviation), rows, level=_SHARE)
    ax = _draw_by_class(ax, found, figures, most, lowest_first=False, what="of the largest sets")
    _append(ax, "labels per set, for the label's rows")
    if len(found) > 1:
        legend_above(ax)
    return ax


# ---- the parts of these figures -------------------------------------------------------------------------------------


def _series(
    source: Any, X: Any, y: Any, confidence: Any, groups: Any, *, need: str, own_levels: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Rows by name, each with the figure that is needed."""
    series = {
        name: rows_of(one, X, y, confidence, groups, own_levels=own_levels) for name, one in named(source).items()
    }
    if any(need not in row for rows in series.values() for row in rows):
        raise ValueError(
            "y must be given: coverage needs the true labels"
            if need == "coverage"
            else f"the rows lack {need!r}; give rows of evaluate()"
        )
    return series


def _counted(source: Any) -> int | None:
    return calibration_rows(source) if is_model(source) else None


def _line(at: int) -> dict[str, Any]:
    return {
        "color": COLOURS[at % len(COLOURS)],
        "ls": LINES[at % len(LINES)],
        "marker": MARKERS[at % len(MARKERS)],
        "ms": 4.5,
        "lw": 1.6,
    }


def _confidence_axis(ax: Any, source: Any, levels: np.ndarray) -> None:
    """Ticks in percent, and marks at the levels that predictors were trained for, where others are drawn too."""
    label = "levels trained for"
    for at, one in enumerate(named(source).values()):
        trained = trained_levels(one, levels.tolist()) if is_model(one) else []
        if trained:
            height = [0.03 + 0.04 * at] * len(trained)
            how = {"marker": 6, "ms": 7, "ls": "none", "color": _line(at)["color"]}
            ax.plot(trained, height, transform=ax.get_xaxis_transform(), gid="trained", label=label, **how)
            label = "_again"
    ax.set_xlabel("confidence")
    percent_ticks(ax.xaxis)


def _shares(row: dict[str, Any]) -> np.ndarray:
    """The share of sets of each size from 0 up."""
    shares = {int(key.rpartition("_")[2]): value for key, value in row.items() if key.startswith("share_of_size_")}
    if not shares:
        raise ValueError("the rows lack 'share_of_size_0' and so on; give rows of evaluate()")
    return np.array([shares[w] for w in sorted(shares)])


def _size_interval(row: dict[str, Any]) -> tuple[float, float]:
    share, n, mean = _shares(row), row["n"], row["mean_size"]
    spread = max(float(share @ np.arange(len(share)) ** 2) - mean**2, 0.0)
    deviation = np.sqrt(spread * n / (n - 1)) if n > 1 else 0.0
    low, high = mean_interval(mean, deviation, n, level=_SHARE)
    return float(low), float(high)


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
        line, place = _line(at), np.arange(len(shown)) + (at - (len(figures) - 1) / 2) * step
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
    ax.set_xlabel(f"{words}, with {percent(_SHARE)} interval{ax.get_xlabel()}")
