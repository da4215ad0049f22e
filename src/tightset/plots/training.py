"""What training tried: losses of the grid's candidates step by step, and candidates by what they were judged on."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tightset.conformal.ranks import significance
from tightset.estimators.base import ConformalPredictor
from tightset.plots.canvas import COLOURS, axes_for, colour_of_text, legend_above
from tightset.search.settings import Grid, as_search

__all__ = ["candidates", "traces"]


def traces(model: ConformalPredictor, *, confidence: Any = None, fold: int = 0, ax: Any = None) -> Any:
    """Draw the loss of every candidate of the paper's grid at every step, the chosen one emphasised.

    Parameters
    ----------
    model : SCPOClassifier
        A fitted ``SCPOClassifier(search=Grid(keep_trace=True))``.
    confidence : float, optional
        One of its levels; by default the first.
    fold : int, default 0
        One of its folds, if it has ``cv``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Notes
    -----
    The losses of the default search have no common scale; `candidates` shows what it tried.
    """
    at, table = _table(model, confidence, fold)
    grid = as_search(model.search)
    if not (isinstance(grid, Grid) and grid.keep_trace):
        raise ValueError("model keeps no traces: fit SCPOClassifier(search=Grid(keep_trace=True)), or see candidates()")
    trace = np.where(np.isfinite(model.traces_[fold][at]), model.traces_[fold][at], np.nan)
    ax = axes_for(ax)
    text, steps = colour_of_text(ax), np.arange(1, len(trace) + 1)
    chosen = int(np.flatnonzero(table["chosen"])[0])
    others = [b for b in range(trace.shape[1]) if b != chosen]
    for b in others:
        ax.plot(steps, trace[:, b], color=text, alpha=0.35, lw=0.7, label="_other")
    if others:
        ax.lines[-1].set_label(f"the other {len(others)} candidates")
    name = f"chosen: {_grid_name(table, chosen)}"
    ax.plot(steps, trace[:, chosen], color=COLOURS[0], lw=2.6, label=name)
    if np.nanmin(trace) > 0 and np.nanmax(trace) > 1000 * np.nanmin(trace):
        ax.set_yscale("log")
    diverged = int((table["status"] == "nonfinite").sum())
    note = f"\n({diverged} of {trace.shape[1]} candidates diverged)" if diverged else ""
    ax.set(xscale="log", xlabel=f"step{note}", ylabel=f"surrogate loss, {grid.loss_form}", xlim=(1, max(len(trace), 2)))
    legend_above(ax)
    return ax


def candidates(
    model: ConformalPredictor, *, confidence: Any = None, fold: int = 0, most: int = 25, ax: Any = None
) -> Any:
    """Draw what the search tried, best first: the criterion, its standard error, and the baseline to beat.

    Parameters
    ----------
    model : SCPOClassifier
        The fitted classifier.
    confidence : float, optional
        One of its levels; by default the first.
    fold : int, default 0
        One of its folds, if it has ``cv``.
    most : int, default 25
        How many candidates are shown. Those that were chosen are always among them.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Notes
    -----
    The criterion is the mean inefficiency on training rows held out, or for the paper's grid that of the training rows
    themselves (or the loss), without an error. Candidates that were chosen are filled.
    """
    at, table = _table(model, confidence, fold)
    if most < 1:
        raise ValueError(f"most must be a positive number of candidates; got {most!r}")
    found = model.folds_[fold].record[at]
    grid = "criterion" not in table
    if grid:
        value = table[_selection(model)].astype(float)
        names = [_grid_name(table, b) for b in range(len(value))]
        error = np.zeros(len(value))
    else:
        value, error, names = table["criterion"].astype(float), table["error"].astype(float), list(table["candidate"])
    finite = np.flatnonzero(np.isfinite(value))
    if not len(finite):
        raise ValueError("no candidates were judged: there were too few training rows")
    order = finite[np.argsort(value[finite], kind="stable")]
    kept = np.flatnonzero(table["chosen"][order] | (np.arange(len(order)) < most))
    shown = order[kept]
    ax = axes_for(ax, 7.2, 1.5 + 0.2 * max(len(shown), 4))
    text, place = colour_of_text(ax), np.arange(len(shown))
    for chosen, fill, words in ((True, COLOURS[0], "chosen"), (False, "none", "not chosen")):
        own = table["chosen"][shown] == chosen
        if own.any():
            how = {
                "ls": "none",
                "marker": "o",
                "ms": 6,
                "mfc": fill,
                "mec": COLOURS[0],
                "ecolor": text,
                "elinewidth": 0.9,
            }
            ends = None if grid else np.where(np.isfinite(error), error, 0.0)[shown][own]
            ax.errorbar(value[shown][own], place[own], xerr=ends, label=words, **how)
    if not grid and np.isfinite(found.verdict.baseline):
        _draw_verdict(ax, found.verdict)
    ax.set_yticks(place, [str(names[b]) for b in shown], fontsize="small")
    ax.set_ylim(len(shown) - 0.5, -0.5)
    left_out = len(order) - len(shown)
    note = f"\n({left_out} more are worse, up to {value[order[-1]]:.3g})" if left_out else ""
    ax.set_xlabel(
        (_grid_unit(model) if grid else f"{found.verdict.unit}, training rows held out, ± standard error") + note
    )
    ax.grid(axis="y", lw=0.4, alpha=0.4)
    legend_above(ax)
    return ax


def _draw_verdict(ax: Any, verdict: Any) -> None:
    text = colour_of_text(ax)
    ax.axvline(verdict.baseline, color=text, lw=1.2, ls="--", label=f"to beat: {verdict.name}")
    used = "the combination" if verdict.accepted else "the combination, not used"
    ax.axvline(verdict.ensemble, color=COLOURS[1], lw=1.6, ls="-.", label=used)


def _selection(model: ConformalPredictor) -> str:
    """What the grid's candidates were chosen by."""
    settings = as_search(model.search)
    return settings.selection if isinstance(settings, Grid) else "inefficiency"


def _grid_unit(model: ConformalPredictor) -> str:
    if _selection(model) == "loss":
        return "surrogate loss"
    return "inefficiency (f of labels per set) of the training rows"


def _grid_name(table: dict[str, np.ndarray], b: int) -> str:
    penalty, sharpness, rate = (table[name][b] for name in ("penalty", "sharpness", "learning_rate"))
    return rf"$\lambda$ = {penalty:g}, $\gamma$ = {sharpness:g}, $\eta$ = {rate:g}"


def _table(model: ConformalPredictor, confidence: Any, fold: int) -> tuple[int, dict[str, np.ndarray]]:
    """Which of the trained levels, and the table of its candidates."""
    if not hasattr(type(model), "selection_"):
        raise ValueError(f"model must be a fitted SCPOClassifier; got {type(model).__name__}")
    check_is_fitted(model, "fitted_")
    known = [significance(level) for level in model.levels_]
    wanted = known[0] if confidence is None else significance(confidence)
    if wanted not in known:
        own = ", ".join(f"{100 * float(level):g}%" for level in model.levels_)
        raise ValueError(f"confidence must be a level that the model was trained for ({own}); got {confidence!r}")
    if not 0 <= fold < len(model.folds_):
        raise ValueError(f"fold must be from 0 to {len(model.folds_) - 1}; got {fold!r}")
    if model.folds_[fold].record is None:
        raise ValueError("model has no record of its training; use the model that was fitted")
    at = known.index(wanted)
    return at, model.folds_[fold].record[at].table
