"""The page about training for what is asked, written from stored results: ``docs/asked.md``."""
# ruff: noqa: E501 - lines of the page are as long as they are

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.asked import ASKED, COST_SEEDS, GROUPS, LEVELS, plan
from studies.efficiency import DIVISIONS
from studies.ordered_data import ORDERED
from studies.runner import ResultsError, read_json, read_rows
from studies.sections import table

__all__ = ["write_asked"]

_LOSS = 1.01  # mean ratio above which a cell counts as lost
Key = tuple[str, str, str, str, str]  # dataset, asked, variant, method, confidence
Found = dict[Key, dict[int, dict[str, float]]]

_TITLES = {
    "label": "Coverage by label",
    "group": "Coverage by group",
    "cost": "Costs of labels",
    "ordered": "Ordered labels",
    "single": "Sets of one label",
}
_ABOUT = {
    "label": """Every method is calibrated by label. *Logistic* is tuned logistic regression, its C chosen for sets by label on held-out
training rows. *Trained by label* is `SCPOClassifier(label_conditional=True)`; *for size* is the same search without, so that only
the calibration is by label. *Plain* is without unfolded columns. Figures are mean labels per set, as ratios.""",
    "group": f"""Every method is calibrated by group. The groups are the values of a categorical column that is left out of X:
{", ".join(f"{name} ({of})" for name, (of, _) in GROUPS.items())}. *Trained by group* is `fit(..., groups=...)`;
*the group in X* is the same with these columns among the others.

Sets by group can hardly gain from training by group what sets by label gain: for known probabilities the smallest sets with coverage in each
group are `{{y: p(y|x) >= q_g}}`, the ranking that training for size aims at, too. What does help is to let the measure see the group, where that is allowed.""",
    "cost": f"""Labels cost from 1 to 10, a geometric series in random order, {COST_SEEDS} orders. *Best rule* is tuned logistic regression with
`p(y|x) / cost(y)` thresholded, the best rule if the probabilities were right. Figures are mean costs per set, as ratios.""",
    "ordered": f"""Sets are intervals, whatever was trained: the scores of all methods become hulls before they are calibrated, which fills gaps in
the sets. *Logistic* is tuned logistic regression (the hull of LAC), its C chosen for the width of intervals on held-out training rows;
*ordinal APS* is the score `OrdinalAPS` on the same. *Trained for intervals* is `SCPOClassifier(ordered=True)`; *for size* is the same
search without. Figures are mean widths, as ratios. The data: {"; ".join(f"{one.name}, {one.labels} labels ({one.note})" for one in ORDERED.values())}.
Half of the rows train, a quarter each calibrates and tests, drawn anew for every split.""",
    "single": """`inefficiency="multiple"` against `"size"`: the share of sets with exactly one label, in percent, and mean labels per set.""",
}


def write_asked(results_dir: Path, out: Path, elsewhere: Sequence[Path] = ()) -> None:
    """Write the page from the rows in ``results_dir``, and from those measured ``elsewhere`` that are not there."""
    folders = [*elsewhere, results_dir]
    rows = [row for folder in folders for row in read_rows(folder / "rows.csv", ASKED.columns)]
    if not rows:
        raise ResultsError(
            f"{results_dir / 'rows.csv'} holds no results; run: python -m studies asked run --out {results_dir}"
        )
    found: Found = {}
    for row in rows:
        key = (row["dataset"], row["asked"], row["variant"], row["method"], row["confidence"])
        figures = {name: float(row[name]) for name in ("coverage", "worst_coverage", "inefficiency", "single")}
        found.setdefault(key, {})[int(row["seed"])] = figures
    sections = [_opening(folders, found)]
    sections += [_section(asked, found) for asked in _TITLES if any(key[1] == asked for key in found)]
    out.write_text("\n\n".join(sections) + "\n")


def _opening(folders: Sequence[Path], found: Found) -> str:
    runs = [run for folder in folders for run in read_json(folder / "run.json") or []]
    where = sorted({str(run["hardware"]) for run in runs})
    measured, planned = sum(map(len, found.values())), len(plan())
    missing = (
        "" if measured == planned else f" **{measured:,} of {planned:,} rows are measured; the others are missing.**"
    )
    return f"""# Training for what you ask

Written by `make asked` from `results/asked/rows.csv` (trained on: {"; ".join(where) or "unknown"}). The seven data sets of the paper,
and others for ordered labels, five splits, levels {", ".join(f"{100 * level:g} %" for level in LEVELS)}. A cell is the mean over splits, with the deviation between splits; calibration and
test rows of a split are divided {DIVISIONS} times. Ratios below 1 are gains. Cells above {_LOSS} are losses, and are marked **so**.{missing}"""


def _section(asked: str, found: Found) -> str:
    if asked == "single":
        return f"## {_TITLES[asked]}\n\n{_ABOUT[asked]}\n\n{_single(found)}"
    pairs = [("asked", "logistic"), ("asked", "size")]
    if asked == "label":
        pairs += [("asked-plain", "logistic"), ("asked-plain", "size-plain"), ("hgb-asked", "hgb")]
    if asked == "group":
        pairs += [("asked-seen", "logistic"), ("asked-seen", "size")]
    if asked == "ordered":
        pairs += [("asked", "aps"), ("size", "logistic")]
    parts = [f"## {_TITLES[asked]}", _ABOUT[asked]]
    for ours, theirs in pairs:
        cells = _cells(asked, ours, theirs, found)
        if cells:
            parts.append(_ratios(asked, ours, theirs, cells))
    parts.append(_coverage(asked, found))
    return "\n\n".join(parts)


def _cells(asked: str, ours: str, theirs: str, found: Found) -> dict[tuple[str, str, float], np.ndarray]:
    """Ratios by split, over variants of the costs."""
    cells: dict[tuple[str, str, float], list[float]] = {}
    for (dataset, one, variant, method, level), by_seed in found.items():
        other = found.get((dataset, one, variant, theirs, level), {})
        if one == asked and method == ours:
            ratios = [by_seed[seed]["inefficiency"] / other[seed]["inefficiency"] for seed in by_seed if seed in other]
            name = variant if asked == "group" else ""
            cells.setdefault((dataset, name, float(level)), []).extend(ratios)
    return {key: np.array(ratios) for key, ratios in cells.items() if ratios}


_NAMES = {
    "asked": {
        "label": "trained by label",
        "group": "trained by group",
        "cost": "trained for the cost",
        "ordered": "trained for intervals",
    },
    "aps": {"ordered": "ordinal APS"},
    "asked-seen": {"group": "trained by group, the group in X"},
    "asked-plain": {"label": "trained by label, plain columns"},
    "size": dict.fromkeys(_TITLES, "trained for size"),
    "size-plain": {"label": "trained for size, plain columns"},
    "hgb": {"label": "gradient boosting"},
    "hgb-asked": {"label": "trained by label on top of gradient boosting"},
    "logistic": {"label": "logistic regression", "group": "logistic regression", "cost": "the best rule"}
    | {"ordered": "logistic regression, gaps filled"},
}


def _ratios(asked: str, ours: str, theirs: str, cells: dict[tuple[str, str, float], np.ndarray]) -> str:
    logs = np.concatenate([np.log(one) for one in cells.values()])
    means = {key: float(np.exp(np.log(one).mean())) for key, one in cells.items()}
    lost = sum(one > _LOSS for one in means.values())
    rows = []
    for dataset, variant in dict.fromkeys(key[:2] for key in cells):
        row = [dataset if not variant else f"{dataset}, {variant}"]
        for level in LEVELS:
            one = cells.get((dataset, variant, level))
            if one is None:
                row.append("")
                continue
            mean = means[dataset, variant, level]
            told = f"{mean:.3f}" if mean <= _LOSS else f"**{mean:.3f}**"
            row.append(f"{told} ± {one.std(ddof=1) if len(one) > 1 else 0:.3f}")
        rows.append(row)
    name = _NAMES[ours][asked]
    title = f"**{name[0].upper()}{name[1:]} over {_NAMES[theirs][asked]}**"
    verdict = (
        f"geometric mean **{np.exp(logs.mean()):.3f}** over {len(logs)} comparisons; {lost} of {len(means)} cells lost, "
        f"the worst {max(means.values()):.3f}."
    )
    return f"{title}: {verdict}\n\n" + table(["data", *(f"{100 * level:g} %" for level in LEVELS)], rows)


def _coverage(asked: str, found: Found) -> str:
    """How far coverage was from what it should be, over all methods."""
    off, least = [], []
    for (_, one, _, _, level), by_seed in found.items():
        if one == asked:
            off += [figures["coverage"] - float(level) for figures in by_seed.values()]
            least += [figures["worst_coverage"] - float(level) for figures in by_seed.values()]
    text = f"Coverage less the level, over all methods and splits: mean {np.mean(off):+.4f}, from {min(off):+.3f} to {max(off):+.3f}"
    if asked not in ("cost", "ordered"):
        text += f"; of the worst category of each, from {min(least):+.3f} to {max(least):+.3f}"
    return text + "."


def _single(found: Found) -> str:
    rows, more = [], 0
    sets = list(dict.fromkeys(key[0] for key in found if key[1] == "single"))
    for dataset in sets:
        row = [dataset]
        for level in LEVELS:
            both = [found.get((dataset, "single", "", method, str(level)), {}) for method in ("size", "asked")]
            seeds = sorted(set(both[0]) & set(both[1]))
            if not seeds:
                row += ["", ""]
                continue
            single = [100 * np.mean([one[seed]["single"] for seed in seeds]) for one in both]
            size = [np.mean([one[seed]["inefficiency"] for seed in seeds]) for one in both]
            row += [f"{single[0]:.1f} → {single[1]:.1f}", f"{size[0]:.2f} → {size[1]:.2f}"]
            more += level == 0.95 and single[1] > single[0]
        rows.append(row)
    headings = [name for level in LEVELS for name in (f"single, {100 * level:g} %", "labels")]
    return f"At 95 % the share is higher in {more} of {len(sets)} sets.\n\n" + table(["data", *headings], rows)
