"""Figures of the account; they need matplotlib (``pip install "tightset[plots]"``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from studies.summary import TOLERANCE, Cell

__all__ = ["draw_agreement", "draw_how_it_works", "draw_ratios", "draw_regions"]


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('figures need matplotlib: pip install "tightset[plots]"') from None
    return Figure(figsize=(width, height), layout="constrained")


def draw_agreement(cells: list[Cell], path: Path) -> None:
    """Printed against measured inefficiency, one marker a data set, with the band of what counts as reproduced."""
    figure = _figure(7, 3.6)
    markers = dict(zip(dict.fromkeys(c.dataset for c in cells), "os^Dv*P", strict=False))
    for at, (f, title) in enumerate((("size", "f(w) = w"), ("log", "f(w) = log(1 + w)"))):
        ax = figure.add_subplot(1, 2, at + 1)
        own = [c for c in cells if c.f == f]
        if not own:
            ax.set_axis_off()
            continue
        there = np.array([float(c.printed["scpo_inefficiency"]) for c in own])
        here = np.array([c.scpo.mean() for c in own])
        ends = np.array([min(there.min(), here.min()) * 0.9, max(there.max(), here.max()) * 1.1])
        ax.fill_between(ends, ends * (1 - TOLERANCE), ends * (1 + TOLERANCE), color="0.88", lw=0)
        ax.plot(ends, ends, color="0.5", lw=1)
        for name, marker in markers.items():
            mine = np.array([c.dataset == name for c in own])
            ax.plot(there[mine], here[mine], marker, ms=5, alpha=0.85, label=name)
        ax.set(xscale="log", yscale="log", xlabel="printed", ylabel="measured here" if at == 0 else "", title=title)
        ticks = [t for t in (0.6, 0.8, 1, 1.5, 2, 3, 4, 6) if ends[0] < t < ends[1]]
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=130)


def draw_regions(path: Path) -> None:
    """The paper's figure: two variables, three labels, each region a prediction set, from a real fit at 90 %."""
    from sklearn.datasets import load_wine

    from tightset.estimators.scpo import SCPOClassifier
    from tightset.plots import regions

    X, y = load_wine(return_X_y=True)
    X = X[:, [6, 9]]
    clf = SCPOClassifier.paper(0.9, random_state=0).fit(X, y)
    figure = _figure(6.4, 4.8)
    ax = regions(clf, X, y, labels=list("ABC"), ax=figure.add_subplot())
    ax.set(xlabel="flavanoids", ylabel="colour intensity")
    figure.suptitle("Linear conformity measure, 90 %")
    figure.savefig(path, dpi=130)


def draw_ratios(ratios: list[tuple[str, float, float]], path: Path) -> None:
    """Ratio of SCPO's set size to the baseline's, one line a data set over the levels."""
    figure = _figure(7, 3.6)
    ax = figure.add_subplot()
    levels = sorted({level for _, level, _ in ratios})
    for name, marker in zip(dict.fromkeys(name for name, _, _ in ratios), "os^Dv*P", strict=False):
        own = {level: ratio for other, level, ratio in ratios if other == name}
        ax.plot([levels.index(level) for level in own], list(own.values()), marker=marker, ms=5, lw=1.2, label=name)
    ax.axhline(1, color="0.5", lw=1)
    ax.set_xticks(range(len(levels)), [f"{100 * level:g} %" for level in levels])
    ax.set(xlabel="confidence", ylabel="set size / baseline's", ylim=(0, 1.1))
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(path, dpi=130)


def draw_how_it_works(path: Path) -> None:
    """Left, the smoothing of a set size; right, what a real search found on made-up data, path by path."""
    from sklearn.datasets import make_classification

    from tightset.estimators.scpo import SCPOClassifier

    X, y = make_classification(
        2000, 20, n_informative=10, n_redundant=2, n_classes=5, class_sep=0.7, flip_y=0.05, random_state=0
    )
    clf = SCPOClassifier(0.95, random_state=0, verbose=False).fit(X, y)
    table = clf.selection_
    figure = _figure(9, 3.4)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
    A = np.linspace(-3, 3, 400)
    left.step(A, A >= 0, where="post", color="k", lw=1.4, label="in the set or not")
    for gamma, style in ((1, ":"), (2, "--"), (4, "-")):
        left.plot(A, 1 / (1 + np.exp(-gamma * A)), style, color="C0", lw=1.3, label=rf"$\gamma$ = {gamma}")
    left.set(xlabel="A(x, y) - q", ylabel="counts as", title="a label, made smooth")
    left.legend(fontsize=8, loc="lower right")
    plain = (table["columns"] == "plain") & (table["measure"] == "softmax") & (table["sharpness"] == 1)
    names = np.array([name.split(", pull")[0] for name in table["candidate"]])
    for path_name, marker in zip(dict.fromkeys(names[names != "logistic"]), "os^Dv*P", strict=False):
        own = names == path_name
        right.plot(table["pull"][own], table["criterion"][own], marker=marker, ms=4, lw=1, label=path_name)
    right.axhline(table["criterion"][plain].min(), color="0.5", lw=1, label="best logistic regression, plain columns")
    chosen = table["chosen"] & (names != "logistic")
    right.plot(
        table["pull"][chosen], table["criterion"][chosen], "o", ms=11, mfc="none", mec="k", mew=1, label="combined"
    )
    right.set(
        xscale="log", xlabel="pull towards the start", ylabel="labels, held-out rows", title="every step is a candidate"
    )
    right.invert_xaxis()
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(path, dpi=130)
