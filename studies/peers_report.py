"""The page that puts tightset beside other libraries, written from stored results: ``docs/peers.md``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies.efficiency import DIVISIONS
from studies.experiments import LEVELS
from studies.peers import BASES, PEER_METHODS, PEERS, TRAINED, Peer, plan
from studies.recipes import DATASETS
from studies.runner import ResultsError, read_json, read_rows
from studies.sections import counted, listed, spread, table

__all__ = ["best_table", "ratios", "short_table", "write_peers"]

LOSS = 1.01  # mean ratio above which a cell counts as lost
SINGLE = ("logistic", "hgb", "rf", "mlp")  # the classifiers that "auto" is compared with
NAMES = {
    "logistic": "logistic regression",
    "hgb": "HistGradientBoosting",
    "rf": "random forest",
    "mlp": "MLP",
    "lightgbm": "LightGBM",
}
Rows = dict[Peer, dict[str, str]]


class Ratio(NamedTuple):
    """SCPO against the plain threshold on the same classifier: sizes by split, and with averaging alone."""

    dataset: str
    base: str
    confidence: float
    lac: np.ndarray
    scpo: np.ndarray
    averaged: np.ndarray

    @property
    def ratio(self) -> float:
        return float(self.scpo.mean() / self.lac.mean())


def write_peers(results_dir: Path, out: Path) -> None:
    """Write the page from the rows in ``results_dir``."""
    rows = read_rows(results_dir / "rows.csv", PEERS.columns)
    if not rows:
        raise ResultsError(
            f"{results_dir / 'rows.csv'} holds no results; run: python -m studies peers run --out {results_dir}"
        )
    found = {_key(row): row for row in rows}
    cells = ratios(found)
    sections = [
        _opening(found, cells, read_json(results_dir / "run.json") or []),
        _auto(found),
        _same_base(cells),
        _libraries(found),
        _losses(cells),
        _protocol(),
    ]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = out.with_suffix(".part")
        draft.write_text("\n".join(sections))
        draft.replace(out)
    except OSError as error:
        raise ResultsError(f"{error.filename or out} cannot be written: {error.strerror}") from None


def _key(row: dict[str, str]) -> Peer:
    return Peer(row["dataset"], int(row["seed"]), row["base"], row["method"], float(row["confidence"]))


def _values(found: Rows, dataset: str, base: str, method: str, level: float, column: str) -> dict[int, float]:
    """A column by split; splits without a figure are left out."""
    return {
        key.seed: float(row[column])
        for key, row in found.items()
        if key[0] == dataset and key[2:] == (base, method, level) and row[column] != ""
    }


def ratios(found: Rows) -> list[Ratio]:
    cells = []
    for name in DATASETS:
        for base in TRAINED:
            for level in LEVELS:
                methods = [
                    _values(found, name, base, method, level, "mean_size_divided")
                    for method in ("lac", "scpo", "averaged")
                ]
                common = sorted(set(methods[0]) & set(methods[1]))
                if common:
                    lac, scpo = (np.array([one[seed] for seed in common]) for one in methods[:2])
                    averaged = np.array([methods[2].get(seed, np.nan) for seed in common])
                    cells.append(Ratio(name, base, level, lac, scpo, averaged))
    return cells


def _mean(numbers: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(numbers)))))


class Best(NamedTuple):
    """On one data set, means over levels by split: each classifier with a plain threshold, and ``auto``."""

    dataset: str
    single: dict[str, np.ndarray]
    auto: np.ndarray

    @property
    def best(self) -> str:
        return min(self.single, key=lambda base: float(self.single[base].mean()))

    @property
    def ratio(self) -> float:
        return float(self.auto.mean() / self.single[self.best].mean())


def best_table(found: Rows, column: str) -> list[Best]:
    """``column`` is ``mean_size_divided``, or ``mean_size`` for MAPIE's sets on the split's own rows."""
    method = "lac" if column == "mean_size_divided" else "mapie-lac"
    result = []
    for name in DATASETS:

        def means(base: str, method: str, name: str = name) -> dict[int, float]:
            levels = [_values(found, name, base, method, level, column) for level in LEVELS]
            common = set.intersection(*(set(one) for one in levels))
            return {seed: float(np.mean([one[seed] for one in levels])) for seed in common}

        auto, single = means("auto", "scpo"), {base: means(base, method) for base in SINGLE}
        common = sorted(set(auto).intersection(*(set(one) for one in single.values())))
        if common:
            by_split = {base: np.array([one[seed] for seed in common]) for base, one in single.items()}
            result.append(Best(name, by_split, np.array([auto[seed] for seed in common])))
    return result


def short_table(best: list[Best]) -> str:
    """One line a data set, for the README."""
    rows = [
        (b.dataset, NAMES[b.best], f"{b.single[b.best].mean():.3f}", f"{b.auto.mean():.3f}", f"{b.ratio:.3f}")
        for b in best
    ]
    return table(("data set", "best of four classifiers", "its size", 'tightset, `estimator="auto"`', "ratio"), rows)


def _opening(found: Rows, cells: list[Ratio], sessions: list[dict[str, Any]]) -> str:
    planned = set(plan())
    missing = len(planned - set(found))
    warning = f"**These results are incomplete: {missing} of {len(planned)} rows are missing.**\n\n" if missing else ""
    versions = "; ".join(dict.fromkeys(", ".join(f"{n} {v}" for n, v in s["versions"].items()) for s in sessions))
    strict = [c for c in cells if c.confidence == max(LEVELS)]
    worst = max(cells, key=lambda c: c.ratio)
    best = best_table(found, "mean_size_divided")
    larger = [f"{b.dataset} ({b.ratio:.4f})" for b in best if b.ratio > 1]
    own = best_table(found, "mean_size")
    kept = [c for c in cells if np.isfinite(c.averaged).all()]
    return f"""# Beside other libraries

The same classifiers, splits and levels for MAPIE, crepes, puncc and tightset, on the seven data sets of the paper. A ratio
below 1 means that tightset's sets are smaller. This page is written by a program from stored rows; no figure on it was typed.
To make it again:

```text
python -m studies data fetch      # raw files
make bench-peers         # one to two hours on 2 cores; can be broken off and resumed
```

Measured with {versions}.

{warning}## In short

- **`SCPOClassifier(estimator=clf)` against the plain threshold (LAC) on the same `clf`: geometric mean ratio
  {_mean(c.ratio for c in cells):.3f}**, at 99 % {_mean(c.ratio for c in strict):.3f}, over {counted(len(cells), "cell")} (set, classifier,
  level); {", ".join(f"{NAMES[b]} {_mean(c.ratio for c in cells if c.base == b):.3f}" for b in TRAINED)}. Largest cell {worst.ratio:.3f} ({worst.dataset},
  {NAMES[worst.base]}, {100 * worst.confidence:g} %); {sum(c.ratio > LOSS for c in cells)} above {LOSS}. Without covtype under HistGradientBoosting, a
  special case (see the end of the page), it is {_mean(c.ratio for c in cells if (c.dataset, c.base) != ("covtype", "hgb")):.3f}, at 99 % {_mean(c.ratio for c in strict if (c.dataset, c.base) != ("covtype", "hgb")):.3f}. Of the whole, averaging the models of the folds alone makes
  {_mean(float(c.averaged.mean() / c.lac.mean()) for c in kept):.3f}.
- **`SCPOClassifier(estimator="auto")` against the best of {listed(NAMES[b] for b in SINGLE)} with a
  plain threshold**, the best picked in hindsight for each set: geometric mean ratio {_mean(b.ratio for b in best):.3f}; larger on {listed(larger) if larger else "no set"}.
  On each split's own calibration and test rows, with MAPIE's sets: {_mean(b.ratio for b in own):.3f}.
- **A plain threshold is the same everywhere, or nearly**: our sets equal MAPIE's in {_equal(found, "mapie-lac")} and puncc's in
  {_equal(found, "puncc")} cases; crepes smooths by default. Time and memory differ, below.
"""


def _equal(found: Rows, method: str) -> str:
    flags = [row["equals_lac"] for key, row in found.items() if key.method == method and row["equals_lac"] != ""]
    return f"{flags.count('True')} of {len(flags)}"


def _auto(found: Rows) -> str:
    divided, own = best_table(found, "mean_size_divided"), best_table(found, "mean_size")
    rows = []
    for b, o in zip(divided, own, strict=True):
        sizes = [f"**{b.single[x].mean():.3f}**" if x == b.best else f"{b.single[x].mean():.3f}" for x in SINGLE]
        rows.append((b.dataset, len(b.auto), *sizes, spread(b.auto, 3), f"{b.ratio:.4f}", f"{o.ratio:.4f}"))
    head = ("set", "splits", *(NAMES[b] for b in SINGLE), "auto", "ratio to the best", "with MAPIE, own rows")
    return f"""## The whole model chosen for set size

Labels per set, mean over the five levels and the splits (with the deviation between splits); the best plain classifier is bold.
On avila boosted trees need hardly more than one label at any level, and there is nothing to gain: the mean size cannot be
below the coverage, which is {np.mean(LEVELS):.3f} in the mean of the levels.

{table(head, rows)}"""


def _same_base(cells: list[Ratio]) -> str:
    rows = []
    for name in DATASETS:
        for base in TRAINED:
            own = {c.confidence: c for c in cells if (c.dataset, c.base) == (name, base)}
            if not own:
                continue
            shown = [f"**{own[x].ratio:.3f}**" if own[x].ratio > LOSS else f"{own[x].ratio:.3f}" for x in LEVELS]
            sizes = f"{own[LEVELS[0]].lac.mean():.2f} to {own[LEVELS[-1]].lac.mean():.2f}"
            alone = _mean(float(c.averaged.mean() / c.lac.mean()) for c in own.values())
            rows.append(
                (name, NAMES[base], sizes, *shown, f"{_mean(c.ratio for c in own.values()):.3f}", f"{alone:.3f}")
            )
    head = ("set", "classifier", "LAC", *(f"{100 * level:g} %" for level in LEVELS), "all", "averaging alone")
    return f"""## On top of the same classifier

Ratio of mean sizes, SCPO to LAC, at each level; cells above {LOSS} are bold. The last column is what SCPO starts from: the
classifier averaged with its models of the folds, its probabilities thresholded. Eleven such classifiers are trained; the search
for five levels takes a few more of their fits ([how many](performance.md)).

{table(head, rows)}"""


def _libraries(found: Rows) -> str:
    rows = []
    for method in ("lac", *PEER_METHODS):
        sizes, covered, seconds, memory = [], [], [], []
        for key, row in found.items():
            if key.method != method or key.base == "lightgbm" or row["mean_size"] == "":
                continue
            lac = found.get(key._replace(method="lac"))
            if lac is None:
                continue
            sizes.append(float(row["mean_size"]) / float(lac["mean_size"]))
            covered.append(float(row["coverage"]) - key.confidence)
            if row["peak_megabytes"] and key.confidence == LEVELS[0]:
                seconds.append(float(row["seconds"]) / float(lac["seconds"]))
                memory.append(float(row["peak_megabytes"]))
        if sizes:
            rows.append(
                (
                    {"lac": "tightset `ConformalClassifier`"}.get(method, method),
                    len(sizes),
                    f"{_mean(sizes):.3f}",
                    f"{100 * np.mean(covered):+.2f}",
                    f"{np.median(seconds):.1f}" if seconds else "",
                    f"{np.median(memory):.1f}" if memory else "",
                    f"{np.max(memory):.0f}" if memory else "",
                )
            )
    head = ("library", "cases", "size", "coverage above level, points", "time", "peak MB, median", "peak MB, largest")
    return f"""## Libraries on the same trained classifier

Over {listed(NAMES[b] for b in BASES if b != "lightgbm")}: sizes relative to LAC (geometric mean), mean coverage minus level,
time to calibrate and predict all levels relative to ours in the same process (median over sets and classifiers on the
first split; prediction by the classifier included), and the most memory that Python allocated meanwhile. MAPIE offers APS and RAPS for three classes or more and
refuses levels for which it counts too few rows; those cases are left out of its lines. It calibrates a randomised score for
these two, but by default keeps the last label of every set: that is their surplus of coverage.

{table(head, rows)}"""


def _losses(cells: list[Ratio]) -> str:
    worst = sorted((c for c in cells if c.ratio > 1), key=lambda c: -c.ratio)
    rows = [
        (c.dataset, NAMES[c.base], f"{100 * c.confidence:g}", spread(c.lac, 3), spread(c.scpo, 3), f"{c.ratio:.4f}")
        for c in worst[:12]
    ]
    head = ("set", "classifier", "level %", "LAC", "SCPO", "ratio")
    return f"""## Where it loses

{counted(len(worst), "cell")} of {len(cells)} on top of the same classifier {"is" if len(worst) == 1 else "are"} above 1; the largest:

{table(head, rows)}"""


def _protocol() -> str:
    return f"""## How it was measured

- Splits as in docs/paper.md; training rows train (and SCPO chooses on them alone), calibration rows calibrate, test rows are
  only counted. Nothing was chosen on these splits: constants were set on splits 100 and 101 of the same data sets.
- Classifiers as they come: `HistGradientBoostingClassifier()`, `RandomForestClassifier()`, `LGBMClassifier()`, and
  `LogisticRegression(max_iter=1000)` and `MLPClassifier()` on standardised columns. They are not tuned, as most that are
  wrapped are not. HistGradientBoosting has a flaw there: without `l2_regularization` a leaf of a rare class can ruin its
  probabilities (covtype), which flatters whatever averages them; "auto" sets it to 1.
- Sizes in the first two tables are means over {DIVISIONS} random divisions of calibration and test rows, the same for every
  method, which averages out most of what the choice of calibration rows does. The third has the split's own rows.
- Two processes ran side by side, each on a core of its own. Times of a library stand beside ours of the same process; what
  was imported before the clock started, and turning a library's sets into an array, are not counted.
- Every library is called as its documentation says: MAPIE `SplitConformalClassifier(prefit=True)`, crepes
  `WrapClassifier.calibrate` and `predict_p` once for all levels, puncc `LAC(train=False)`.
"""
