"""The figures of a report as coordinates; its template writes them as SVG, where text is escaped like all other text.

Conventions
-----------
A figure is `WIDTH` units wide, which is about its width in pixels on a screen. Levels lie on a logarithmic axis of the
error rate, so that 90, 99 and 99.9 % are equally far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import Any

import numpy as np

from tightset.icp import significance

__all__ = ["WIDTH", "curves", "label_bars", "shared_labels", "size_bars"]

WIDTH = 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 40
_TICKS = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
_LABELS = 20  # of the figure by label
_SHARING = 12  # of the figure of labels that share sets

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
    }


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"  # noqa: RUF001


def _path(x: Sequence[float], y: Sequence[float]) -> str:
    return "M" + "L".join(f"{a:g} {b:g}" for a, b in zip(x, y, strict=True))


def size_bars(bins: Sequence[tuple[int, int]], size: np.ndarray) -> tuple[Figure, np.ndarray]:
    """Bars of the shares of set sizes, and their counts ``(K, bins)``; ``widths`` has those of each level."""
    edges = [low for low, _ in bins] + [bins[-1][1] + 1]
    counts = np.array([np.histogram(one, bins=edges)[0] for one in size])
    names = [_of_size(low, high, last=at == len(bins) - 1) for at, (low, high) in enumerate(bins)]
    start = 24 + 6.5 * max(map(len, names))
    widths = counts / size.shape[1] * (WIDTH - start - 112)
    step = 25
    return {
        "width": WIDTH,
        "height": step * len(bins) + 8,
        "start": start,
        "bars": [{"y": 6 + step * at, "name": name} for at, name in enumerate(names)],
        "widths": [_round(one) for one in widths],
    }, counts


def _of_size(low: int, high: int, *, last: bool) -> str:
    if high == 0:
        return "empty"
    if low == high:
        return f"all {low:,} labels" if last and low > 1 else f"{low:,} label{'s' if low > 1 else ''}"
    return f"{low:,} to {high:,} labels"


def label_bars(
    names: Sequence[str], rows: np.ndarray, coverage: np.ndarray, ends: np.ndarray, size: np.ndarray, asked: float
) -> Figure:
    """Coverage with its interval and mean size, by label: all, or the labels that are covered least."""
    there = np.flatnonzero(rows)
    worst = there[np.lexsort((-rows[there], coverage[there]))]
    shown = np.sort(worst[:_LABELS]) if len(there) > _LABELS else there
    step, top, left = 22, 26, _room(names, shown)
    mid = left + round((WIDTH - left) / 2)
    right = mid + 28
    low = min(float(ends[shown, 0].min()), asked) - 0.01
    low = max(0.0, floor(low * 10) / 10)
    span = (1.0 - low) or 1.0
    most = float(size[shown].max()) or 1.0

    def x(share: float) -> float:
        return round(left + (share - low) / span * (mid - left), 2)

    return {
        "width": WIDTH,
        "height": top + step * len(shown) + 26,
        "top": top,
        "bottom": top + step * len(shown),
        "left": left,
        "mid": mid,
        "right": right,
        "asked": x(asked),
        "ticks": [{"x": x(at), "text": f"{100 * at:.0f}"} for at in (low, (1 + low) / 2, 1.0)],
        "bars": [
            {
                "y": top + step * at + step / 2,
                "name": names[c],
                "x": x(coverage[c]),
                "from": x(ends[c, 0]),
                "to": x(ends[c, 1]),
                "size": round(float(size[c] / most) * (WIDTH - right - 44), 2),
                "text": f"{size[c]:.2f}" if most < 100 else f"{size[c]:.0f}",
            }
            for at, c in enumerate(shown)
        ],
        "of": len(there),
    }


def _room(names: Sequence[str], shown: np.ndarray) -> int:
    """Units for the names of labels on the left; the template shortens what is longer."""
    return 24 + 7 * min(13, max(2, *(len(names[c]) for c in shown), 0))


def shared_labels(names: Sequence[str], together: np.ndarray, rows: int) -> Figure | None:
    """A heat map of the share of rows whose set holds both labels, for the labels that share most; None if none do."""
    pairs = together - np.diag(np.diag(together))
    if not pairs.any():
        return None
    C = len(names)
    shown = np.argsort(-pairs.sum(axis=1), kind="stable")[: min(_SHARING, int(pairs.any(axis=1).sum()))]
    shown = np.sort(shown)
    left, top = _room(names, shown), 30 + round(0.6 * _room(names, shown))
    step = round(min(34.0, (WIDTH - left - 56) / len(shown)), 2)
    most = pairs.max()
    per = 100 if most / rows >= 0.005 else 10_000
    return {
        "per": f"{per:,}",
        "width": WIDTH,
        "height": round(top + step * len(shown) + 8, 2),
        "left": left,
        "top": top,
        "step": step,
        "names": [names[c] for c in shown],
        "cells": [
            {
                "x": round(left + step * j, 2),
                "y": round(top + step * i, 2),
                "own": a == b,
                "shade": round(0.5 * float(pairs[a, b] / most), 3),
                "text": _short_number(per * pairs[a, b] / rows),
                "title": f"{names[a]} and {names[b]}: {pairs[a, b]:,.0f} of {rows:,} sets",
            }
            for i, a in enumerate(shown)
            for j, b in enumerate(shown)
        ],
        "of": C,
        "pairs": [
            {"first": names[a], "second": names[b], "count": int(pairs[a, b]), "share": float(pairs[a, b] / rows)}
            for a, b in _most(pairs)
        ],
    }


def _most(pairs: np.ndarray, count: int = 40) -> list[tuple[int, int]]:
    above = np.triu(pairs)
    order = np.argsort(-above, axis=None, kind="stable")[:count]
    return [(int(at // len(pairs)), int(at % len(pairs))) for at in order if above.flat[at] > 0]


def _short_number(value: float) -> str:
    if value == 0:
        return ""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.05 else "·"
