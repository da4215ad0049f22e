"""The figures of a report with the tables below them, for the page as it opens and for every stop of its slider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from tightset.conformal.ranks import significance
from tightset.estimators.base import ConformalPredictor
from tightset.report import figures
from tightset.report.numbers import ByLabel, Tally
from tightset.report.words import band, number, percent, percents

__all__ = ["LabelTexts", "halves", "label_texts", "labels_now", "pairs_now", "panels", "twins", "without_rows"]

LabelTexts = dict[str, Any]
_TAIL = 8  # characters at the end of a label that stay if it is shortened and begins like another; as in the script


def panels(
    model: ConformalPredictor,
    found: Tally,
    other: Tally | None,
    of_labels: ByLabel | None,
    levels: list[Any],
    labels: list[str],
    baseline_name: str,
) -> dict[str, Any]:
    """Coordinates, and the rows of the table of levels; what is of one level has ``stops``."""
    n = found.size.shape[1]
    marked = [significance(level) in map(significance, model.levels_) for level in levels]
    mean = found.size.mean(axis=1)
    series = [("the model", mean)]
    if other is not None:
        series.append((baseline_name, other.size.mean(axis=1)))
    result: dict[str, Any] = {
        "size": figures.curves(
            levels, series, marked=marked, floor_at=0.0, logarithmic=bool(max(one.max() for _, one in series) > 20)
        ),
        "together": figures.shared_labels(found.together, n),
        "by_label": None if of_labels is None else figures.label_bars(labels, of_labels, levels),
        "table": [{"mean": number(mean[k])} for k in range(len(levels))],
    }
    if other is not None:
        for row, one in zip(result["table"], other.size.mean(axis=1), strict=True):
            row["baseline"] = number(one)
    if found.covered is None:
        return result
    asked = np.array([float(level) for level in levels])
    chance = np.array([band(model, level, n) for level in levels])
    seen = found.covered.mean(axis=1)
    result["coverage"] = figures.curves(
        levels,
        [("the model", 100 * (seen - asked))],
        marked=marked,
        band=(100 * (chance[:, 0] - asked), 100 * (chance[:, 1] - asked)),
        signed=True,
    )
    for row, one, ends in zip(result["table"], seen, chance, strict=True):
        row |= {"coverage": percent(one), "band": " to ".join(percents(*ends))}
    return result


def label_texts(labels: ByLabel) -> LabelTexts:
    """What the page says of each label that has rows, at every stop.

    Many labels have the same share of as many rows at some stop, so ``shares`` has coverage and interval of each that
    occurs once, and ``share (K, L)`` says which. ``short`` has the places of the labels that fall short.
    """
    L = len(labels.of)
    kinds, first, which = np.unique(
        np.stack([labels.covered.ravel(), np.tile(labels.rows, len(labels.covered))]),
        axis=1,
        return_index=True,
        return_inverse=True,
    )
    ends = labels.ends.reshape(2, -1)[:, first]
    return {
        "of": labels.of.tolist(),
        "rows": [f"{count:,}" for count in labels.rows.tolist()],
        "shares": [
            [percent(float(hits / rows)), " to ".join(percents(float(low), float(high)))]
            for hits, rows, low, high in zip(*kinds, *ends, strict=True)
        ],
        "share": which.reshape(-1, L).tolist(),
        "size": [[number(float(one)) for one in sizes] for sizes in labels.size],
        "short": [[one.label for one in short.labels] for short in labels.short],
    }


def labels_now(texts: LabelTexts | None, labels: list[str], chosen: int) -> list[dict[str, Any]]:
    """The labels that have rows, at the level at which the page opens."""
    if texts is None:
        return []
    shares = [texts["shares"][at] for at in texts["share"][chosen]]
    short = set(texts["short"][chosen])
    return [
        {"name": labels[c], "rows": rows, "coverage": share, "interval": interval, "size": size, "short": at in short}
        for at, (c, rows, (share, interval), size) in enumerate(
            zip(texts["of"], texts["rows"], shares, texts["size"][chosen], strict=True)
        )
    ]


def pairs_now(figure: dict[str, Any] | None, labels: list[str], n: int, chosen: int) -> dict[str, Any] | None:
    """Labels that share sets, at the level at which the page opens; None if pairs are not counted."""
    if figure is None:
        return None
    stop = figure["stops"][chosen]
    now: dict[str, Any] = {"follows": len(figure["stops"]) > 1, "names": [], "cells": [], "table": []}
    if stop is not None:
        now |= {
            "names": [labels[c] for c in stop["labels"]],
            "cells": figures.shared_cells(stop, labels, n),
            "table": [(labels[a], labels[b], count) for a, b, count in stop["pairs"]],
        }
    return now


def without_rows(labels: list[str], of_labels: ByLabel) -> list[str]:
    """The labels that no row has."""
    there = set(of_labels.of.tolist())
    return [label for c, label in enumerate(labels) if c not in there]


def _begin(name: str) -> str:
    """What is left of a long label where there is little room; others are shown whole, or nearly so."""
    return name[: 2 * _TAIL - 4] if len(name) > 2 * _TAIL else ""


def twins(labels: list[str]) -> list[str]:
    """How labels begin that would look the same if only their ends were cut off.

    >>> twins(["Front seat, left side", "Front seat, right side", "Back seat, right side", "None"])
    ['Front seat, ']
    """
    return [begin for begin, count in Counter(map(_begin, labels)).items() if begin and count > 1]


def halves(name: str, alike: Collection[str]) -> tuple[str, str]:
    """A label as the part that the style of the page may shorten and the end that stays.

    >>> halves("Front seat, left side", ["Front seat, "]), halves("Back seat, right side", ["Front seat, "])
    (('Front seat, l', 'eft side'), ('Back seat, right side', ''))
    """
    return (name[:-_TAIL], name[-_TAIL:]) if _begin(name) in alike else (name, "")
