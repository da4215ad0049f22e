"""Figures of coverage and set size: against confidence, and as histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.conformal.intervals import coverage_band, mean_interval
from tightset.plots.canvas import (
    COLOURS,
    HATCHES,
    LINES,
    SHARE,
    axes_for,
    colour_of_text,
    legend_above,
    line_style,
    percent,
    percent_ticks,
)
from tightset.plots.inputs import calibration_rows, is_model, named, rows_of, trained_levels

__all__ = ["coverage", "mean_size", "size_histogram"]

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
    """Draw coverage against confidence, with the band in which it falls if the guarantee holds.

    Parameters
    ----------
    source : predictor, dict, list of dict or data frame
        A fitted predictor with ``X`` and ``y``; rows of ``evaluate``; or a dict of these by name.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows that neither trained nor calibrated the predictor. They are needed with a predictor.
    y : array-like of shape (n_samples,), optional
        The labels. They are needed with a predictor.
    confidence : float or sequence of float, optional
        Levels; by default those of the predictor and, for a curve, others from 50 to 99 %.
    groups : array-like of shape (n_samples,), optional
        The groups of ``X``, if the predictor was calibrated group by group.
    calibration_rows : int, optional
        How many rows calibrated, where rows of ``evaluate`` are given; a predictor knows.
    minus_confidence : bool, default False
        Draw the difference, which shows more.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Notes
    -----
    At each level, 19 in 20 cases fall into the band. Coverage varies with the test rows and with the calibration rows:
    the band is beta-binomial (`tightset.conformal.intervals.coverage_band`). Where the number of calibration rows is
    not known it is binomial, for the test rows only, and too narrow. Of several predictors it is that of the fewest
    rows. With ``assurance`` the band lies above the level, as coverage should.
    """
    series = _series(source, X, y, confidence, groups, need="coverage")
    ax = axes_for(ax)
    text = colour_of_text(ax)
    counts = [
        (calibration_rows, _assurance(one, rows)) if calibration_rows is not None else _counted(one)
        for one, rows in zip(named(source).values(), series.values(), strict=True)
    ]
    known, sure = min(counts, key=lambda one: np.sum(one[0] or 0))  # none if some are not known
    levels = np.array(sorted({row["confidence"] for rows in series.values() for row in rows}))
    n = min(row["n"] for rows in series.values() for row in rows)
    edges = np.array([coverage_band(level, n, known, level=SHARE, assurance=sure) for level in levels])
    off = levels if minus_confidence else np.zeros_like(levels)
    for at, (name, rows) in enumerate(series.items()):
        own = np.array([row["confidence"] for row in rows])
        covered = np.array([row["coverage"] for row in rows])
        ax.plot(own, covered - own if minus_confidence else covered, label=name or "measured", **line_style(at))
    ax.plot(levels, levels - off, color=text, lw=0.9, zorder=1.5, label="coverage = confidence")
    how = {"color": text, "alpha": 0.16, "lw": 0, "zorder": 1, "label": f"{percent(SHARE)} band"}
    ax.fill_between(levels, edges[:, 0] - off, edges[:, 1] - off, **how)
    _confidence_axis(ax, source, levels)
    calibrated = "binomial, calibration rows not known" if known is None else f"{np.sum(known):,} calibration rows"
    calibrated += "" if sure is None else f", {percent(float(sure))} assurance"
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
    """Draw mean set size against confidence, with Student's intervals of the mean; smaller is better.

    Parameters
    ----------
    source : predictor, dict, list of dict or data frame
        A fitted predictor with ``X``; rows of ``evaluate``; or a dict of these by name.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows that neither trained nor calibrated the predictor. They are needed with a predictor.
    y : array-like of shape (n_samples,), optional
        The labels; they are not needed here.
    confidence : float or sequence of float, optional
        Levels; by default those of the predictor and, for a curve, others from 50 to 99 %.
    groups : array-like of shape (n_samples,), optional
        The groups of ``X``, if the predictor was calibrated group by group.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Notes
    -----
    Each interval is of one mean by itself. Predictors on the same rows can differ clearly although their intervals
    overlap; `tightset.metrics.bootstrap_difference` compares row by row.
    """
    series = _series(source, X, y, confidence, groups, need="mean_size")
    ax = axes_for(ax)
    levels = np.array(sorted({row["confidence"] for rows in series.values() for row in rows}))
    for at, (name, rows) in enumerate(series.items()):
        own = np.array([row["confidence"] for row in rows])
        mean = np.array([row["mean_size"] for row in rows])
        low, high = np.array([_size_interval(row) for row in rows]).T
        ax.fill_between(own, low, high, color=line_style(at)["color"], alpha=0.22, lw=0)
        ax.plot(own, mean, label=name or "mean size", **line_style(at))
    ax.set_ylabel(f"labels per set, mean with {percent(SHARE)} interval")
    _confidence_axis(ax, source, levels)
    legend_above(ax)
    return ax


def size_histogram(
    source: Any, X: Any = None, y: Any = None, *, confidence: Any = None, groups: Any = None, ax: Any = None
) -> Any:
    """Draw how many labels the sets have: the share of rows by size, for each predictor and each level.

    Parameters
    ----------
    source : predictor, dict, list of dict or data frame
        A fitted predictor with ``X``; rows of ``evaluate``; or a dict of these by name.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows that neither trained nor calibrated the predictor. They are needed with a predictor.
    y : array-like of shape (n_samples,), optional
        The labels; they are not needed here.
    confidence : float or sequence of float, optional
        Levels; by default those of the predictor.
    groups : array-like of shape (n_samples,), optional
        The groups of ``X``, if the predictor was calibrated group by group.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
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


def _counted(source: Any) -> tuple[Any, Any]:
    """The calibration rows of a predictor, with assurance those of each category, and its assurance."""
    if not is_model(source):
        return None, None
    sure = source.fitted_.assurance
    return calibration_rows(source) if sure is None else list(source.fitted_.calibration_rows().values()), sure


def _assurance(source: Any, rows: list[dict[str, Any]]) -> Any:
    """That of a predictor, or what rows of `evaluate` say of it."""
    told = rows[0].get("assurance")
    return source.fitted_.assurance if is_model(source) else None if told != told else told


def _confidence_axis(ax: Any, source: Any, levels: np.ndarray) -> None:
    """Ticks in percent, and marks at the levels that predictors were trained for, where others are drawn too."""
    label = "levels trained for"
    for at, one in enumerate(named(source).values()):
        trained = trained_levels(one, levels.tolist()) if is_model(one) else []
        if trained:
            height = [0.03 + 0.04 * at] * len(trained)
            how = {"marker": 6, "ms": 7, "ls": "none", "color": line_style(at)["color"]}
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
    low, high = mean_interval(mean, deviation, n, level=SHARE)
    return float(low), float(high)
