"""The figures of a report as coordinates; its template writes them as SVG, where text is escaped like all other text.

Conventions
-----------
Curves are `WIDTH` units wide, which is about their width in pixels on a screen. Bars and squares are placed in percent
of the width that there is, beside names that the style of the page shortens where they do not fit. Levels lie on a
logarithmic axis of the error rate, so that 90%, 99% and 99.9% are equally far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import floor, log10
from typing import Any

import numpy as np

from tightset.conformal.ranks import significance
from tightset.report.numbers import ByLabel, size_bins

__all__ = ["WIDTH", "curves", "label_bars", "shared_cells", "shared_labels", "size_bars"]

WIDTH = 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 20, 34, 46
_TICKS = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
_LABELS = 20  # of the figure by label
_SHARING = 12  # of the figure of labels that share sets
_STEP = 26  # pixels from row to row of the figure of labels that share sets

Figure = dict[str, Any]


def _log_error(level: Any) -> float:
    return -log10(float(significance(level)))


def _round(values: Any) -> list[float]:
    return [round(float(value), 2) for value in np.asarray(values).ravel()]


def ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers within a range.

    >>> ticks(0.0, 2.3), ticks(-3.2, 4.0)
    ([0.0, 0.5, 1.0, 1.5, 2.0], [-2.0, 0.0, 2.0, 4.0])
    """
    tens = 10.0 ** floor(log10((high - low) / 6))
    step = next(m * tens for m in (1, 2, 5, 10) if (high - low) / (m * tens) <= 6)
    first = int(np.ceil(low / step - 1e-9))
    return [round(at * step, 10) + 0.0 for at in range(first, int(np.floor(high / step + 1e-9)) + 1)]


def curves(
    levels: Sequence[Any],
    series: Sequence[tuple[str, np.ndarray]],
    *,
    marked: Sequence[bool],
    band: tuple[np.ndarray, np.ndarray] | None = None,
    signed: bool = False,
    logarithmic: bool = False,
    floor_at: float | None = None,
    height: int = 280,
) -> Figure:
    """Lines over the levels; ``marked`` levels have full points, and a ``band`` (low, high) lies behind."""
    x = np.array([_log_error(level) for level in levels])
    x = _LEFT + (x - x[0]) / (x[-1] - x[0]) * (WIDTH - _LEFT - _RIGHT)
    all_values = np.concatenate([values for _, values in series] + list(band or ()))
    bottom, top = height - _BOTTOM, _TOP
    if logarithmic:
        low = 10.0 ** np.floor(np.log10(max(all_values[all_values > 0].min(initial=1.0), 0.01)))
        high = 10.0 ** np.ceil(np.log10(max(all_values.max(), 10 * low)))
        marks = [10.0**e for e in range(round(log10(low)), round(log10(high)) + 1)]
    else:
        low = float(all_values.min()) if floor_at is None else floor_at
        high = float(all_values.max())
        pad = 0.06 * max(high - low, 1e-3)
        low, high = (low - pad if floor_at is None else low), high + pad
        marks = ticks(low, high)

    def place(values: Any) -> np.ndarray:
        share = np.log10(np.maximum(values, low) / low) / np.log10(high / low) if logarithmic else None
        share = (np.asarray(values) - low) / (high - low) if share is None else share
        return np.asarray(bottom - share * (bottom - top))

    lines = []
    for name, values in series:
        y = _round(place(values))
        points = [{"x": a, "y": b, "full": bool(m)} for a, b, m in zip(_round(x), y, marked, strict=True)]
        lines.append({"name": name, "points": points, "path": _path(_round(x), y)})
    outline = None
    if band is not None:
        there, back = _round(place(band[1])), _round(place(band[0]))
        outline = _path(_round(x), there) + "L" + _path(_round(x)[::-1], back[::-1])[1:] + "Z"
    known = {significance(level): at for level, at in zip(levels, _round(x), strict=True)}
    return {
        "width": WIDTH,
        "height": height,
        "left": _LEFT,
        "right": WIDTH - _RIGHT,
        "top": top,
        "bottom": bottom,
        "x_ticks": [
            {"x": known[significance(at)], "text": f"{100 * at:g}"} for at in _TICKS if significance(at) in known
        ],
        "y_ticks": [
            {"y": _round(place([at]))[0], "text": _signed(at) if signed else f"{at:g}", "zero": at == 0} for at in marks
        ],
        "lines": lines,
        "band": outline,
        "x": _round(x),
        "logarithmic": logarithmic,
    }


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"  # noqa: RUF001


def _path(x: Sequence[float], y: Sequence[float]) -> str:
    return "M" + "L".join(f"{a:g} {b:g}" for a, b in zip(x, y, strict=True))


def size_bars(size: np.ndarray, C: int) -> Figure:
    """Bars of the shares of set sizes, the rows of a table: ``stops`` has names, counts and shares at each level."""
    stops = []
    for one in size:
        bins = size_bins(one, C)
        counts = np.histogram(one, bins=[*(low for low, _ in bins), C + 1])[0]
        stops.append(
            {
                "names": [_of_size(low, high, C) for low, high in bins],
                "counts": counts.tolist(),
                "shares": _round(100 * counts / len(one)),
            }
        )
    return {"stops": stops, "bars": max(len(stop["names"]) for stop in stops)}


def _of_size(low: int, high: int | None, C: int) -> str:
    if high is None:
        return f"{low:,} or more"
    if low < high:
        return f"{low:,} to {high:,}"
    return "empty" if low == 0 else f"all {low:,}" if low == C > 1 else f"{low:,}"


def label_bars(names: Sequence[str], labels: ByLabel, levels: Sequence[Any]) -> Figure:
    """Coverage with its interval and mean size, by label; ``stops`` has the places of each level, in % of the width.

    Of many labels those are shown with most rows missed beyond what was asked at that level.
    """
    asked = np.array([float(level) for level in levels])
    missing = asked[:, None] * labels.rows - labels.covered
    shown = np.sort(np.argsort(-missing, axis=1, kind="stable")[:, :_LABELS], axis=1)

    def stop(k: int) -> Figure:
        some = shown[k]
        share, ends, size = labels.covered[k, some] / labels.rows[some], labels.ends[:, k, some], labels.size[k, some]
        low = max(0.0, floor(10 * (min(float(ends[0].min()), asked[k]) - 0.01)) / 10)

        def x(shares: Any) -> list[float]:
            return _round(100 * (np.asarray(shares) - low) / (1.0 - low))

        width = _round(100 * size / (float(size.max()) or 1.0))
        return {
            "asked": x(asked[k])[0],
            "ticks": [f"{100 * at:.0f}" for at in (low, (1 + low) / 2, 1.0)],
            "bars": list(zip(some.tolist(), x(share), x(ends[0]), x(ends[1]), width, strict=True)),
        }

    return {
        "stops": [stop(k) for k in range(len(levels))],
        "shown": shown.shape[1],
        "of": len(labels.of),
        "longest": max(len(names[c]) for c in labels.of[np.unique(shown)]),
    }


def shared_labels(together: dict[int, np.ndarray], rows: int) -> Figure | None:
    """A heat map of the share of rows whose set holds both labels, for the labels that share most.

    ``stops`` has labels and counts of each level that was counted, None where no set holds two; None if none was.
    """
    return {"stops": {k: _sharing(one, rows) for k, one in together.items()}, "step": _STEP} if together else None


def _sharing(together: np.ndarray, rows: int) -> Figure | None:
    """The labels that share most at a level, how often, pair by pair, and the pairs that do so most of all."""
    pairs = together - np.diag(np.diag(together))
    if not pairs.any():
        return None
    shown = np.argsort(-pairs.sum(axis=1), kind="stable")[: min(_SHARING, int(pairs.any(axis=1).sum()))]
    shown = np.sort(shown)
    per = 100 if pairs.max() / rows >= 0.005 else 10_000
    counts = pairs[np.ix_(shown, shown)][np.triu_indices(len(shown), 1)]
    return {
        "labels": shown.tolist(),
        "per": f"{per:,}",
        "counts": counts.tolist(),
        "texts": [_short_number(per * count / rows) for count in counts.tolist()],
        "shades": [round(0.5 * count / int(pairs.max()), 3) for count in counts.tolist()],
        "pairs": [(a, b, f"{pairs[a, b]:,} ({100 * pairs[a, b] / rows:.1f}%)") for a, b in _most(pairs)],
    }


def shared_cells(stop: Figure, names: Sequence[str], rows: int) -> list[Figure]:
    """The squares of a stop of `shared_labels`, row by row; the script of the page has the same rule."""
    S = len(stop["labels"])
    place = {pair: at for at, pair in enumerate(combinations(range(S), 2))}
    cells = []
    for i, a in enumerate(stop["labels"]):
        for j, b in enumerate(stop["labels"]):
            left, middle = _round([100 * j / S, 100 * (j + 0.5) / S])
            cell: Figure = {"x": left, "middle": middle, "y": _STEP * i, "own": i == j}
            if i != j:
                at = place[min(i, j), max(i, j)]
                title = f"{names[a]} and {names[b]}: {stop['counts'][at]:,} of {rows:,} sets"
                cell |= {"shade": stop["shades"][at], "text": stop["texts"][at], "title": title}
            cells.append(cell)
    return cells


def _most(pairs: np.ndarray, count: int = 40) -> list[tuple[int, int]]:
    above = np.triu(pairs).ravel()
    some = np.argpartition(-above, min(count, len(above) - 1))[:count]  # sorting all of a million takes long
    order = some[np.lexsort((some, -above[some]))]
    return [(int(at // len(pairs)), int(at % len(pairs))) for at in order if above[at] > 0]


def _short_number(value: float) -> str:
    if value == 0:
        return ""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.05 else "·"
