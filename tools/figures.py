"""Draw the pictures of the pages that explain: `python tools/figures.py` writes them into docs/figures/.

Three are made of the rows that docs/confidence.md and docs/p-values.md use, so the pages and the pictures agree, and
one of the law of coverage that docs/confidence.md describes. Those of docs/figures.md are what the code of that page
draws, and the card there is drawn by chromium, with its chromedriver.
"""

import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split

from tightset import ConformalClassifier
from tightset.conformal.ranks import rank, threshold

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
NEW = np.array([[0.0, 0.0], [1.4, 0.0], [1.4, 1.4], [6.0, 6.0]])
WHERE = ["amid the ash", "between two", "between three", "far from all"]
MARKS, SHADES = "o^s", ["#1f4e79", "#d9822b", "#7a9a3a"]  # apart in grey as well


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Three kinds of trees in the plane: rows to fit, new rows, and the labels of both."""
    X, y = make_blobs(4000, centers=[[0, 0], [3, 0], [0, 3]], random_state=0)
    X, X_new, y, y_new = train_test_split(X, np.array(["ash", "elm", "oak"])[y], test_size=0.5, random_state=0)
    return X, X_new, y, y_new


def draw_calibration(folder: Path) -> None:
    """From calibration scores to a threshold, and from the threshold to sets."""
    X, _, y, _ = rows()
    clf = ConformalClassifier(confidence=0.95, random_state=0).fit(X, y)
    scored = clf.folds_[0]
    own = scored.calibrations[0].alphas[None, -1]
    least = threshold(own, 0.95)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    bins = np.linspace(0, 1, 41)
    left.hist(own[own >= least], bins, color="0.75", label="95 % of the rows")
    left.hist(own[own < least], bins, color="0.25", label="5 %: these may be lost")
    left.axvline(least, color="#b03030", lw=1.5)
    left.annotate("threshold", (least, left.get_ylim()[1] * 0.45), (least + 0.12, left.get_ylim()[1] * 0.45),
                  arrowprops={"arrowstyle": "->", "color": "#b03030"}, color="#b03030", va="center")  # fmt: skip
    left.set(xlabel="score of the own label", ylabel="calibration rows", title="1. A threshold from rows held aside")
    left.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.32, 1))
    scores = scored.models[0].scores(NEW, clf.fitted_.shared(range(len(NEW))))
    sets = clf.predict_set(NEW, as_labels=True)
    for at, (mark, shade) in enumerate(zip(MARKS, SHADES, strict=True)):
        kept = scores[:, at] >= least
        height = -np.arange(len(NEW)) + 0.16 * (1 - at)  # apart, where scores are alike
        style: dict[str, Any] = {"ls": "none", "marker": mark, "ms": 8, "color": shade}
        right.plot(scores[kept, at], height[kept], **style)
        right.plot(scores[~kept, at], height[~kept], mfc="white", **style)
        right.plot([], [], **style, label=clf.classes_[at])
    right.axvline(least, color="#b03030", lw=1.5)
    named = [f"{where}\n{{{', '.join(labels)}}}" for where, labels in zip(WHERE, sets, strict=True)]
    right.set_yticks(-np.arange(len(NEW)), named)
    right.set(xlabel="score of each label", xlim=(-0.04, 1.04), ylim=(-3.5, 0.5), title="2. Sets of new rows")
    right.legend(fontsize=8, title="filled: in the set", title_fontsize=8, loc="center right", bbox_to_anchor=(1, 0.62))
    figure.savefig(folder / "calibration.png", dpi=130)


def draw_levels(folder: Path) -> None:
    """What kinds of sets there are at each level, and how large they are on average."""
    X, X_new, y, y_new = rows()
    clf = ConformalClassifier(confidence=0.95, random_state=0).fit(X, y)
    levels = [0.7, 0.75, 0.8, 0.85, 0.875, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995]
    found = clf.evaluate(X_new, y_new, confidence=levels)
    right_ones = (clf.predict(X_new) == y_new).mean()
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    ax = figure.subplots()
    shares = [[row["empty"] for row in found], *([row[f"share_of_size_{w}"] for row in found] for w in (1, 2, 3))]
    names = ["no label", "one label", "two", "three"]
    ax.stackplot(levels, shares, labels=names, colors=["0.35", "0.92", "0.75", "0.55"], edgecolor="white", lw=0.5)
    ax.axvline(right_ones, color="#b03030", ls="--", lw=1.2)
    ax.text(
        right_ones - 0.004,
        0.75,
        "share that the classifier\ngets right",
        color="#b03030",
        ha="right",
        va="center",
        fontsize=8,
    )
    ax.set(xlabel="confidence", ylabel="share of the sets", xlim=(0.7, 0.995), ylim=(0, 1))
    size = ax.twinx()
    size.plot(levels, [row["mean_size"] for row in found], color="#1f4e79", lw=2)
    size.set(ylim=(0, 2), ylabel="labels per set (line)")
    size.yaxis.label.set_color("#1f4e79")
    figure.legend(fontsize=8, loc="outside right center", title="sets with", title_fontsize=8)
    figure.savefig(folder / "levels.png", dpi=130)


def draw_p_values(folder: Path) -> None:
    """The p-values of four rows, and the lines that a label must reach above to be in a set."""
    X, _, y, _ = rows()
    clf = ConformalClassifier(confidence=0.95, random_state=0).fit(X, y)
    p = clf.predict_p(NEW)
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    for at, ax in enumerate(figure.subplots(1, len(NEW), sharey=True)):
        ax.bar(clf.classes_, p[at], color=SHADES, width=0.7)
        for level, style in ((0.8, ":"), (0.9, "--"), (0.95, "-")):
            ax.axhline(1 - level, color="0.2", ls=style, lw=1, label=f"{level:.0%} confidence")
        ax.set_title(f"{WHERE[at]}\nsum {p[at].sum():.2f}", fontsize=9)
        ax.set_ylim(0, 0.5)
    figure.axes[0].set_ylabel("p-value")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        fontsize=8,
        loc="outside lower center",
        ncols=3,
        title="in the set above the line of",
        title_fontsize=8,
    )
    figure.savefig(folder / "p-values.png", dpi=130)


def draw_assurance(folder: Path) -> None:
    """How coverage varies with the calibration rows, by the plain rank and with assurance."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    at = np.linspace(0.9, 1, 1001)[:-1]
    for ax, n in zip(figure.subplots(1, 2, sharey=True), (200, 1000), strict=True):
        for sure, shade, words in ((None, SHADES[0], "by default"), (0.95, SHADES[1], "assurance=0.95")):
            r = rank(0.95, n, sure)
            law = stats.beta(n + 1 - r, r)
            ax.plot(
                at,
                law.pdf(at),
                color=shade,
                lw=2,
                label=f"{words}: above 95 % in {100 * law.sf(0.95):.0f} % of samples",
            )
            above = at >= 0.95
            ax.fill_between(at[above], law.pdf(at[above]), color=shade, alpha=0.25, lw=0)
        ax.axvline(0.95, color="#b03030", ls="--", lw=1.2)
        ax.set(title=f"{n:,} calibration rows", xlabel="coverage of new rows", xlim=(0.9, 1), ylim=(0, 90))
        ax.set_xticks([0.91, 0.93, 0.95, 0.97, 0.99], ["91 %", "93 %", "95 %", "97 %", "99 %"])
        ax.set_yticks([])
        ax.legend(fontsize=8, loc="upper right")
    figure.axes[0].set_ylabel("how often, over samples")
    figure.savefig(folder / "assurance.png", dpi=130)


def draw_page(folder: Path, page: Path = FOLDER.parent / "figures.md") -> dict[str, Any]:
    """Run the code of docs/figures.md; where a picture follows a block, it is what the block has drawn."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")

    names: dict[str, Any] = {"__name__": "__main__"}
    block = re.compile(r"^```python\n(.*?)^```$(?:\n+!\[[^]]*\]\(figures/(.*?\.png)\))?", re.MULTILINE | re.DOTALL)
    with (
        tempfile.TemporaryDirectory() as elsewhere,
        contextlib.chdir(elsewhere),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        for code, picture in block.findall(page.read_text()):
            exec(compile(code, page.name, "exec"), names)  # noqa: S102 - our own page
            if picture:
                plt.gcf().savefig(folder.resolve() / picture, dpi=100)
            plt.close("all")
    return names


def browser_of(width: int, height: int, scale: float = 1.5) -> Any:
    """Chromium with a window of this size."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    size = (f"--window-size={width},{height}", f"--force-device-scale-factor={scale}")
    for word in ("--headless=new", "--no-sandbox", "--hide-scrollbars", *size):
        options.add_argument(word)
    return webdriver.Chrome(options, webdriver.ChromeService(executable_path=shutil.which("chromedriver")))


def draw_report(folder: Path) -> None:
    """The beginning of a report on the fruits of `tightset demo`."""
    from tightset import SCPOClassifier, write_report
    from tightset.cli.demo import CENTRES, KINDS, SPREAD

    X, codes = make_blobs(4500, centers=CENTRES, cluster_std=SPREAD, random_state=0)
    X, X_new, y, y_new = train_test_split(X, KINDS[codes], test_size=2000, random_state=0)
    models = SCPOClassifier(0.95, search="fast", random_state=0), ConformalClassifier(random_state=0)
    for model in models:
        model.fit(X, y)
    with tempfile.TemporaryDirectory() as where, browser_of(1100, 1750, scale=1) as browser:
        write_report(f"{where}/report.html", models[0], X_new, y_new, baseline=models[1])
        browser.get(f"file://{where}/report.html")
        browser.save_screenshot(str(folder / "report.png"))


def draw_card(folder: Path, model: Any) -> None:
    """What a notebook shows of a fitted model, by Chromium."""
    with tempfile.NamedTemporaryFile("w", suffix=".html") as page, browser_of(760, 600) as browser:
        page.write(f'<meta charset="utf-8"><body style="font: 14px sans-serif">{model._repr_html_()}')
        page.flush()
        browser.get(f"file://{page.name}")
        browser.find_element("class name", "tightset-card").screenshot(str(folder / "card.png"))


def draw(folder: Path) -> dict[str, Any]:
    """All but the card and the report; the names that the page on figures has defined."""
    draw_calibration(folder)
    draw_levels(folder)
    draw_p_values(folder)
    draw_assurance(folder)
    return draw_page(folder)


if __name__ == "__main__":
    draw_card(FOLDER, draw(FOLDER)["scpo"])
    draw_report(FOLDER)
