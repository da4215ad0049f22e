"""The account of the reproduction, written from stored results: ``docs/paper.md`` and its figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from studies.experiments import PAPER, plan
from studies.recipes import DATASETS
from studies.runner import ResultsError, read_rows
from studies.sections import (
    TITLES,
    against,
    counted,
    errata_section,
    forms_section,
    gains_section,
    listed,
    reproduction_section,
    spread,
    steps_section,
    table,
    transfer_section,
)
from studies.summary import TOLERANCE, Cell, Results, main_table, printed, reason

__all__ = ["write_report"]


def write_report(results_dir: Path, out: Path, *, other_devices: Iterable[Path] = (), figures: bool = True) -> None:
    """Write the page (and, with matplotlib, its figures beside it) from the rows in ``results_dir``.

    ``other_devices`` are result folders of the same experiments elsewhere, for the times they took.
    """
    rows = read_rows(results_dir / "rows.csv", PAPER.columns)
    if not rows:
        raise ResultsError(
            f"{results_dir / 'rows.csv'} holds no results; run: python -m studies paper run --out {results_dir}"
        )
    results = Results(rows)
    tables = {f: main_table(results, f) for f in TITLES}
    sections = [
        _opening(results, tables, _read(results_dir / "run.json")),
        _times([_read(folder / "run.json") for folder in (results_dir, *other_devices)]),
        _data_sets(_read(results_dir / "errata.json")),
        *(reproduction_section(f, tables[f]) for f in TITLES if tables[f]),
        _figures(),
        *(gains_section(f, tables[f]) for f in TITLES if tables[f]),
        forms_section(results),
        transfer_section(results),
        steps_section(results),
        errata_section(results, tables, _read(results_dir / "errata.json")),
    ]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if figures:
            from studies.figures import draw_agreement, draw_regions

            folder = out.parent / "figures"
            folder.mkdir(parents=True, exist_ok=True)
            draw_agreement([cell for cells in tables.values() for cell in cells], folder / "paper-agreement.png")
            draw_regions(folder / "paper-regions.png")
        draft = out.with_suffix(".part")
        draft.write_text("\n".join(section for section in sections if section))
        draft.replace(out)
    except OSError as error:
        raise ResultsError(f"{error.filename or out} cannot be written: {error.strerror}") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"{path} cannot be read ({error}); run: python -m studies paper run --out {path.parent}"
        ) from None


def _opening(results: Results, tables: dict[str, list[Cell]], sessions: list[dict[str, Any]]) -> str:
    planned = plan(results.seeds)
    missing = sum(experiment not in results.rows for experiment in planned)
    warning = (
        f"**These results are incomplete: {missing} of {len(planned)} rows are missing, and with them parts of this page.**\n\n"
        if missing
        else ""
    )
    versions = "; ".join(
        dict.fromkeys(", ".join(f"{n} {v}" for n, v in session["versions"].items()) for session in sessions)
    )
    commits = ", ".join(dict.fromkeys(session["git"] for session in sessions if session["git"]))
    counts = "\n".join(
        f"- {TITLES[f]}: {sum(c.within for c in cells)} of {len(cells)} figures are within {TOLERANCE:.0%} of the printed "
        f"ones; mean coverage is in its band in {sum(c.in_band() for c in cells)} of {len(cells)} cells (and in its 95 % "
        f"interval in {sum(c.in_band(1.96) for c in cells)})."
        for f, cells in tables.items()
        if cells
    )
    outside = [
        f"- {c.dataset} at {100 * c.confidence:g} %, {TITLES[f]}: printed {c.goal:g}, here {spread(c.scpo, 3)}: {reason(c, cells)}."
        for f, cells in tables.items()
        for c in cells
        if not c.within
    ] + [
        f"- {c.dataset} at {100 * c.confidence:g} %, {TITLES[f]}: coverage {c.coverage.mean():.4f}, {c.law[0]:.4f} expected."
        for f, cells in tables.items()
        for c in cells
        if not c.in_band()
    ]
    gains = ""
    if tables["size"]:
        found = against(tables["size"], "tuned")
        groups = {
            v: [n for n, c in found.items() if c.verdict == v] for v in ("smaller", "larger", "not clearly different")
        }
        gains = f"""
Against logistic regression with its penalty tuned and its probabilities thresholded ({TITLES["size"]}, all levels, 95 %
intervals over the splits), the method's sets are smaller on {listed(groups["smaller"])}, larger on {listed(groups["larger"])},
and not clearly different on {listed(groups["not clearly different"])}. The printed gains are against another baseline, which
can be re-created: see "Which gain is real".
"""
    return f"""# The paper, reproduced

A. Bellotti, *Optimized conformal classification using gradient descent approximation*. The paper's tables, measured anew on
{counted(len(results.seeds), "split")} of {counted(len(results.datasets), "data set")}, beside what is printed. This page is
written by a program from stored rows; no figure on it was typed. To make it again:

```text
python -m studies data fetch                                # raw files; says what to place by hand where an archive has no usable file
python -m studies paper run --out results/paper             # measures every row; can be broken off and resumed
python -m studies paper report --results results/paper      # writes this page
```

Measured with {versions}{f" (commit {commits})" if commits else ""}.

{warning}## In short

{counts}

{"Outside:" if outside else "No cell is outside."}

{chr(10).join(outside)}
{gains}"""


def _times(runs: list[list[dict[str, Any]]]) -> str:
    rows = []
    for sessions in runs:
        of_split: dict[str, float] = {}
        for session in sessions:
            for seed, seconds in session["seconds_of_split"].items():
                of_split[seed] = of_split.get(seed, 0.0) + seconds
        total = sum(session["seconds"] for session in sessions)
        rows.append(
            (
                listed(dict.fromkeys(session["hardware"] for session in sessions)),
                sum(session["rows"] for session in sessions),
                f"{total / 60:.1f}",
                ", ".join(f"{seconds:.0f}" for _, seconds in sorted(of_split.items())),
            )
        )
    return f"""## Time

Whole runs: both main tables, their baselines, the forms of the loss, and the rest of this page. The first split also
measures other numbers of steps.

{table(("hardware", "rows", "minutes", "seconds of each split"), rows)}"""


def _data_sets(spot: dict[str, Any]) -> str:
    rows = []
    for row in printed("datasets"):
        one = DATASETS[row["dataset"]]
        here = (f"{one.variables}", f"{one.labels}", *map(str, one.parts))
        there = (row["variables"], row["labels"], row["train"], row["calibration"], row["test"])
        majority = spot["majority_pct"].get(one.name)
        rows.append(
            (
                one.name,
                ", ".join(there),
                "the same" if here == there else ", ".join(here),
                row["majority_pct"],
                "" if majority is None else f"{majority:.1f}",
                one.note,
            )
        )
    head = ("set", "variables, labels, train, cal., test printed", "here", "majority % printed", "here", "recipe")
    return "## Data sets\n\n" + table(head, rows)


def _figures() -> str:
    return f"""## Figures

![Printed and measured inefficiency of all cells](figures/paper-agreement.png)

Each point is a cell of the main tables: the printed figure across, the one measured here up; the band is ± {TOLERANCE:.0%}.

![Regions of the linear measure in two dimensions](figures/paper-regions.png)

The linear measure with two variables and three labels, from a real fit (scikit-learn's wine data, flavanoids and colour):
each region is a prediction set; the lines are where a label enters it.
"""
