"""Labels in sets: regions of the plane, which labels share sets, the p-values of one row."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.conformal.ranks import significance
from tightset.estimators.base import ConformalPredictor
from tightset.plots.canvas import (
    COLOURS,
    LINES,
    MARKERS,
    axes_for,
    colour_of_text,
    draw_cuts,
    legend_above,
    percent,
    percent_ticks,
    shortened,
)
from tightset.plots.inputs import codes_of, is_model, one_level, quiet, sets_of

__all__ = ["p_values", "regions", "shared_labels"]

_RESOLUTION = 400
_WITH_NUMBERS = 12  # labels of a heat map in whose cells there is room for numbers
_NAMED_SETS = 12


def regions(
    model: ConformalPredictor,
    X: Any,
    y: Any = None,
    *,
    confidence: Any = None,
    labels: Any = None,
    resolution: int = _RESOLUTION,
    ax: Any = None,
) -> Any:
    """Draw the plane cut into regions, one for each prediction set, as in the paper; more labels, fuller colour.

    Parameters
    ----------
    model : SCPOClassifier or ConformalClassifier
        A predictor that was fitted on two columns.
    X : array-like of shape (n_samples, 2)
        Rows, which say what part of the plane is drawn.
    y : array-like of shape (n_samples,), optional
        The labels, to draw the rows too.
    confidence : float, optional
        One level; by default the first of the model.
    labels : sequence of length n_classes, optional
        Names to write in place of ``classes_``.
    resolution : int, default 400
        Points along each side at which sets are computed.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
    """
    if not is_model(model):
        raise ValueError(f"model must be a fitted predictor; got {type(model).__name__}")
    if model.n_features_in_ != 2:
        raise ValueError(f"regions need a model of two columns; this one was fitted on {model.n_features_in_}")
    if model.fitted_.by_group:
        raise ValueError("regions need a model without groups: each group has its own regions")
    rows = np.asarray(X, dtype=float)
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.isfinite(rows).all():
        raise ValueError(f"X must be finite numbers in two columns; got shape {rows.shape}")
    level, C = one_level(model, confidence), len(model.classes_)
    names = [shortened(one) for one in (model.classes_ if labels is None else labels)]
    if len(names) != C:
        raise ValueError(f"labels must name each of the {C} labels; got {len(names)}")
    margin = 0.06 * np.maximum(np.ptp(rows, axis=0), 1e-9)
    low, high = rows.min(axis=0) - margin, rows.max(axis=0) + margin
    across, up = np.meshgrid(*(np.linspace(low[i], high[i], resolution) for i in (0, 1)))
    sets = _sets_on_grid(model, np.column_stack([across.ravel(), up.ravel()]), level).reshape(*across.shape, C)
    kinds, code = np.unique(sets.reshape(-1, C), axis=0, return_inverse=True)
    code = code.reshape(across.shape)

    ax = axes_for(ax, 6.4, 4.8)
    text = colour_of_text(ax)
    colours = np.array([_colour_of_set(kind) for kind in kinds])
    extent = (low[0], high[0], low[1], high[1])
    ax.imshow(colours[code], origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    for c in range(C):
        if 0 < sets[..., c].mean() < 1:  # there is a boundary
            ax.contour(
                across, up, sets[..., c], [0.5], colors=[text], linestyles=[LINES[c % len(LINES)]], linewidths=1.1
            )
    if y is not None:
        codes = codes_of(y, len(rows), model.classes_)
        for c in np.unique(codes):
            how = {"marker": MARKERS[c % len(MARKERS)], "ms": 3.5, "mfc": "none", "mec": text, "mew": 0.7, "ls": "none"}
            ax.plot(*rows[codes == c].T, **how)
    written = _write_sets(ax, kinds, code, extent, names, rows if y is not None else rows[:0])
    _legend_of_regions(ax, kinds, colours, code, names, written, points=y is not None)
    columns = getattr(model, "feature_names_in_", ["first column", "second column"])
    ax.set(xlabel=shortened(columns[0], 40), ylabel=shortened(columns[1], 40), xlim=extent[:2], ylim=extent[2:])
    return ax


def shared_labels(
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
    """Draw which labels share sets, as a heat map.

    With ``y``: of the rows of each true label, the share whose sets hold each label (the diagonal is coverage).
    Without: of the sets that hold each label, the share that hold each other one. The diagonal is not coloured.

    Parameters
    ----------
    source : predictor or ndarray of bool of shape (n_samples, n_classes)
        A fitted predictor with ``X``, or sets.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        The rows. They are needed with a predictor.
    y : array-like of shape (n_samples,), optional
        The labels, if they are known.
    confidence : float, optional
        One level; by default the first of the predictor.
    groups : array-like of shape (n_samples,), optional
        The groups of ``X``, if the predictor was calibrated group by group.
    labels : sequence of length n_classes, optional
        Names of the columns of sets that are given; ``y`` is in these words.
    most : int, default 25
        How many labels are shown, of those that share most.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
    """
    if most < 2:
        raise ValueError(f"most must be at least two labels; got {most!r}")
    found = sets_of(source, X, y, confidence, groups, labels)
    share, C = _shares(found.sets, found.codes), len(found.labels)
    apart = np.where(np.eye(C, dtype=bool), np.nan, share)
    shared = np.nan_to_num(apart)
    shown = np.sort(np.argsort(-(shared.sum(axis=0) + shared.sum(axis=1)), kind="stable")[:most])
    apart, share = apart[np.ix_(shown, shown)], share[np.ix_(shown, shown)]
    side = 2.2 + 0.42 * max(len(shown), 4) if len(shown) <= _WITH_NUMBERS else 2.6 + 0.2 * len(shown)
    ax = axes_for(ax, side + 1.3, side)
    top = float(np.nanmax(apart, initial=0.01))
    image = ax.imshow(apart, cmap="cividis", vmin=0, vmax=top)
    if len(shown) <= _WITH_NUMBERS:
        for (i, j), value in np.ndenumerate(share):
            if np.isfinite(value):
                on = colour_of_text(ax) if i == j else "white" if value < 0.5 * top else "black"
                ax.text(j, i, f"{100 * value:.0f}", ha="center", va="center", color=on, fontsize="small")
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8)
    percent_ticks(bar.ax.yaxis)
    bar.set_label("share of its rows" if y is not None else "share of its sets")
    names = [shortened(found.labels[c], 20) for c in shown]
    turned = {"rotation": 90} if max(map(len, names)) * len(names) > 40 else {}
    ax.set_xticks(range(len(shown)), names, **turned)
    ax.set_yticks(range(len(shown)), names)
    level = "" if found.confidence is None else f" at {percent(found.confidence)} confidence"
    note = f"\n(the {len(shown)} labels that share most, of {C})" if len(shown) < C else ""
    unit = "\n(numbers in %)" if len(shown) <= _WITH_NUMBERS else ""
    ax.set_xlabel(f"{'label' if y is not None else 'other label'} in the set{level}{note}{unit}")
    ax.set_ylabel("true label" if y is not None else "label in the set")
    return ax


def p_values(
    source: Any,
    x: Any = None,
    *,
    confidence: Any = None,
    groups: Any = None,
    labels: Any = None,
    true: Any = None,
    most: int = 20,
    ax: Any = None,
) -> Any:
    """Draw the p-values of one row as bars, largest first: labels above the line are in the set.

    The line is at ``1 - confidence``, or with assurance at ``r / (n + 1)``, for each label if calibrated so. A p-value
    says how unusual the row would be with that label. It is not a probability, and they do not add up to one.

    Parameters
    ----------
    source : predictor or array-like of shape (n_classes,)
        A fitted predictor with ``x``, or p-values.
    x : array-like of shape (n_features,) or (1, n_features), optional
        One row, a frame of one row, or ``frame.iloc[i]``. It is needed with a predictor.
    confidence : float, optional
        One level; by default the first of the predictor, and 0.95 for p-values that are given.
    groups : array-like of shape (1,), optional
        The group of ``x``.
    labels : sequence of length n_classes, optional
        Names of the p-values that are given.
    true : label, optional
        The true label, to be marked.
    most : int, default 20
        How many labels are shown; the others have smaller p-values.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
    """
    if is_model(source):
        if x is None:
            raise ValueError("x must be given with a fitted predictor: the row whose p-values are drawn")
        row = x
        if np.ndim(x) == 1:  # a row of a pandas frame keeps the names of its columns
            row = x.to_frame().T.infer_objects() if hasattr(x, "infer_objects") else np.reshape(x, (1, -1))
        if len(row) != 1:
            raise ValueError(f"x must be one row; got {len(row)}")
        level, names = one_level(source, confidence), list(source.classes_)
        with quiet():
            p = np.asarray(source.predict_p(row, confidence=level, groups=groups))[0]
            kept = np.asarray(source.predict_set(row, confidence=level, groups=groups))[0]
        cuts = source.fitted_.cuts(level, None if groups is None else np.asarray(groups).tolist()[0])
    else:
        p, level = np.asarray(source, dtype=float), 0.95 if confidence is None else confidence
        if p.ndim != 1 or not len(p) or not ((p >= 0) & (p <= 1)).all():
            raise ValueError(f"give a fitted predictor with x, or p-values (C,) of one row; got shape {p.shape}")
        cuts = np.full(len(p), float(significance(level)))
        kept, names = p > cuts, list(range(len(p)) if labels is None else labels)
    if len(names) != len(p):
        raise ValueError(f"labels must name each of the {len(p)} p-values; got {len(names)}")
    if true is not None and true not in names:
        raise ValueError(f"true must be one of the labels; got {true!r}")
    if most < 1:
        raise ValueError(f"most must be a positive number of labels; got {most!r}")
    shown = np.argsort(-p, kind="stable")[:most]
    ax, place = axes_for(ax, 5.6, 1.5 + 0.28 * max(len(shown), 3)), np.arange(len(shown))
    for inside, words in ((True, "in the set"), (False, "not in the set")):
        own = kept[shown] == inside
        if own.any():
            how = {"fc": COLOURS[0], "hatch": ""} if inside else {"fc": "none", "hatch": "////"}
            ax.barh(place[own], p[shown][own], 0.7, ec=COLOURS[0], lw=0.8, label=words, **how)
    for at, c in enumerate(shown):
        beside = (max(p[c], cuts[c]), at)  # not across the line
        ax.annotate(f"{p[c]:.3f}", beside, (4, 0), textcoords="offset points", va="center", fontsize="small")
    draw_cuts(ax, cuts[shown], float(significance(level)))
    marks = ["  (true)" if true is not None and names[c] == true else "" for c in shown]
    ax.set_yticks(place, [f"{shortened(names[c])}{mark}" for c, mark in zip(shown, marks, strict=True)])
    note = f"\n(the {len(shown)} largest of {len(p)})" if len(shown) < len(p) else ""
    right = min(1.18, 1.18 * max(float(p.max()), 2 * float(cuts.max())))
    ax.set(xlim=(0, right), ylim=(len(shown) - 0.5, -0.5), xlabel=f"p-value{note}", ylabel="label")
    legend_above(ax)
    return ax


# ---- the parts of these figures -------------------------------------------------------------------------------------


def _sets_on_grid(model: ConformalPredictor, points: np.ndarray, level: Any) -> np.ndarray:
    rows: Any = points
    if hasattr(model, "feature_names_in_"):
        import pandas as pd

        rows = pd.DataFrame(points, columns=model.feature_names_in_)
    with quiet():
        return np.asarray(model.predict_set(rows, confidence=level))


def _colour_of_set(kind: np.ndarray) -> tuple[float, ...]:
    """The mean of the colours of its labels, the fuller the more there are; nothing for the empty set."""
    from matplotlib.colors import to_rgb

    members = np.flatnonzero(kind)
    if not len(members):
        return (0.0, 0.0, 0.0, 0.0)
    rgb = np.mean([to_rgb(COLOURS[c % len(COLOURS)]) for c in members], axis=0)
    return (*rgb, 0.36 + 0.34 * (len(members) - 1) / max(len(kind) - 1, 1))


def _name_of_set(kind: np.ndarray, names: list[str]) -> str:
    return "{" + ", ".join(names[c] for c in np.flatnonzero(kind)) + "}" if kind.any() else "empty"


def _write_sets(
    ax: Any, kinds: np.ndarray, code: np.ndarray, extent: Any, names: list[str], points: np.ndarray
) -> set[int]:
    """Write each set where its region has most room, off the ``points`` if possible; which ones were written."""
    from matplotlib import patheffects
    from scipy.ndimage import distance_transform_edt

    ground = ax.get_facecolor() if ax.get_facecolor()[3] else ax.figure.get_facecolor()
    how = {"weight": "bold", "path_effects": [patheffects.withStroke(linewidth=2.5, foreground=ground)]}
    low, span, size = np.array(extent[::2]), np.ptp(np.reshape(extent, (2, 2)), axis=1), len(code)
    taken = np.zeros(code.shape, dtype=bool)
    taken[tuple(np.clip((points - low) / span * size, 0, size - 1).astype(int).T[::-1])] = True
    inches = ax.get_window_extent().size / ax.figure.dpi
    written = set()
    for at, kind in enumerate(kinds):
        name = _name_of_set(kind, names)
        half = np.array([0.045 * len(name) + 0.06, 0.11]) / inches * size  # of the text, in points of the grid
        for free in ((code == at) & ~taken, code == at):
            room = distance_transform_edt(np.pad(free, 1), sampling=1 / half[::-1])[1:-1, 1:-1]
            up, across = np.unravel_index(int(np.argmax(room)), room.shape)
            if room[up, across] > 1:
                x, y = low + span * (np.array([across, up]) + 0.5) / size
                ax.text(x, y, name, ha="center", va="center", color=colour_of_text(ax), **how)
                written.add(at)
                break
    return written


def _legend_of_regions(
    ax: Any,
    kinds: np.ndarray,
    colours: np.ndarray,
    code: np.ndarray,
    names: list[str],
    written: set[int],
    *,
    points: bool,
) -> None:
    """What stands for which label, and the sets in whose regions there was no room for their names."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    text = colour_of_text(ax)
    handles: list[Any] = []
    if len(names) <= len(MARKERS):
        for c, name in enumerate(names):
            marker = MARKERS[c] if points else ""
            how = {"color": text, "ls": LINES[c], "marker": marker, "mfc": "none", "ms": 4, "lw": 1.1}
            handles.append(Line2D([], [], label=f"label {name}", **how))
    area = np.bincount(code.ravel(), minlength=len(kinds))
    rest = [at for at in np.argsort(-area, kind="stable") if at not in written][:_NAMED_SETS]
    handles += [Patch(fc=tuple(colours[at]), ec=text, lw=0.6, label=_name_of_set(kinds[at], names)) for at in rest]
    legend_above(ax, handles)


def _shares(sets: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
    """``(C, C)``: of the rows of a label, or without ``codes`` of the sets that hold it, the share that hold each."""
    own = sets.astype(float)
    of = own if codes is None else np.eye(sets.shape[1])[codes]
    with np.errstate(invalid="ignore"):
        return np.asarray((of.T @ own) / of.sum(axis=0)[:, None])
