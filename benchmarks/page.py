"""The page about speed, written from stored results: docs/performance.md.

Read are latest.json and latest-details.json (`make bench`), ways.json (`make bench-ways`), and, where they are there,
gpu.json (`make bench-gpu`) and dask.json (`make bench-dask`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpu_page import gpu_section
from studies.sections import listed, table
from words import megabytes, number, paragraph, rounded, with_spread

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
Json = dict[str, Any]
QUIET = 0.25  # cores that others may keep busy before a run whose figures are taken at face value


class Line(NamedTuple):
    """A ratio of the first table: what it is, and between which bounds it was to be (None: no bound was set)."""

    what: str
    least: float | None = None
    most: float | None = None

    def bound(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}"
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"

    def verdict(self, value: float) -> str:
        if self.least is None and self.most is None:
            return ""
        low, high = self.least or 0.0, float("inf") if self.most is None else self.most
        return "yes" if low <= value <= high else "**no**"


LINES = {
    "step_over_floor": Line("a batched step over its two matrix products and one tanh", most=1.8),
    "step_speedup_vs_loop": Line("80 float64 NumPy steps over one batched step", least=6),
    "profiled_step_over_floor_linear": Line("a profiled step over its floor, linear measure", most=2),
    "profiled_step_over_floor_softmax": Line("the same, softmax measure", most=2),
    "profiled_step_over_floor_two_matrix": Line("the same, two-matrix measure", most=2),
    "grid_speedup_vs_loop": Line("the paper's grid in a loop over one batch, avila's shape"),
    "grid_speedup_vs_loop_covtype": Line("the same, covtype's shape"),
    "slope_rows_avila": Line("growth with rows, avila", 0.9, 1.1),
    "slope_rows_covtype": Line("growth with rows, covtype", 0.9, 1.1),
    "slope_candidates_avila": Line("growth with candidates, avila", 0.9, 1.1),
    "slope_candidates_covtype": Line("growth with candidates, covtype", 0.9, 1.1),
    "float32_over_float64_size": Line("set size trained in float32 over float64", 0.995, 1.005),
    "default_fit_over_logistic": Line("default fit over `GridSearchCV` of logistic regression", most=12),
    "default_fit_over_logistic_cv": Line("default fit over `LogisticRegressionCV`, avila", most=8),
    "default_fit_over_logistic_cv_covtype": Line("the same, covtype", most=8),
    "fast_fit_over_logistic": Line('`search="fast"` over `GridSearchCV`'),
    "fast_fit_over_logistic_cv": Line('`search="fast"` over `LogisticRegressionCV`, avila', most=4),
    "fast_fit_over_logistic_cv_covtype": Line("the same, covtype", most=4),
    "five_levels_over_one": Line("a default fit for five levels over one level, avila", most=2.2),
    "five_levels_over_one_covtype": Line("the same, covtype", most=2.2),
    "five_levels_over_hist_gradient_boosting_fits": Line(
        "five levels on top of HistGradientBoosting over one fit of it, avila", most=15
    ),
    "five_levels_over_random_forest_fits": Line("the same, random forest", most=15),
    "five_levels_over_lightgbm_fits": Line("the same, LightGBM", most=15),
    "wide_fit_over_logistic": Line("default fit of 784 columns at 99 % over `GridSearchCV`", most=4),
    "slope_default_fit_columns": Line("growth of the default fit with columns, 196 to 784", most=1.1),
    "mapie_over_tightset_sets_1m": Line("MAPIE over tightset: calibrate, and sets for a million rows", least=5),
    "mapie_over_tightset_predict_1m": Line("MAPIE over tightset: sets for a million rows"),
    "pvalues_over_sort_10m": Line("ten million p-values over `np.sort` of as many numbers", most=2.5),
    "crepes_over_tightset_pvalues": Line("crepes over tightset: p-values"),
    "torchcp_over_tightset_pvalues": Line("TorchCP over tightset: p-values"),
    "import_over_sklearn_linear_model": Line("`import tightset` over `import sklearn.linear_model`"),
    "import_classes_over_sklearn_linear_model": Line("importing the classes over `import sklearn.linear_model`"),
}

WAYS = {
    "one_thread": "NumPy in blocks, one thread",
    "whole": "NumPy, whole arrays",
    "numexpr": "numexpr, whole arrays",
    "numba": "numba, one compiled loop between the products",
    "torch": "PyTorch, eager",
    "torch_compile": "PyTorch, `torch.compile`",
}


def text(folder: Path = HERE) -> str:
    """The whole page, from the results stored in ``folder``."""
    ratios, details = read(folder / "latest.json"), read(folder / "latest-details.json")
    sections = [
        opening(details),
        summary(ratios, details),
        growth(ratios, details["measured"]),
        ways_section(read(folder / "ways.json")),
        prediction_section(ratios, details),
        training_section(details["measured"]),
        gpu_section(read(folder / "gpu.json")),
        dask_section(read(folder / "dask.json")),
        CLOSING,
    ]
    return "\n".join(section for section in sections if section)


def read(path: Path) -> Json:
    """A stored result; empty where there is none."""
    found: Json = json.loads(path.read_text()) if path.exists() else {}
    return found


def versions(machine: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in machine.items() if name not in ("hardware", "seconds", "load")
    )


def measured_on(machine: Mapping[str, Any]) -> str:
    """Where; and that the machine was busy, if it was."""
    busy = f" **The machine was busy with other work (load {machine['load']:.1f} before the run): read the figures as rough.**"
    return f"Measured on {machine['hardware']}, with {versions(machine)}.{busy if machine['load'] > QUIET else ''}"


def opening(details: Json) -> str:
    machine = details["machine"]
    return f"""# How fast it is

Speed as ratios: the sides take turns in one process, so that a slow machine is slow for all of them. This page
is written by a program from stored results; no figure on it was typed. To make it again:

```text
make bench         # about {machine["seconds"] / 60:.0f} minutes on the machine below; the paper's data are used if TIGHTSET_DATA is set
make bench-ways    # the comparison of ways to run a step; needs what it compares, or leaves it out
```

{measured_on(machine)}
"""


def summary(ratios: Json, details: Json) -> str:
    """The first table, with what was missed said before it."""
    found = {key: line for key, line in LINES.items() if key in ratios}
    bounded = {key: line.verdict(ratios[key]) for key, line in found.items() if line.bound()}
    missed = [f"`{key}`" for key, verdict in bounded.items() if verdict != "yes"]
    rows = [
        (f"`{key}`", line.what, number(ratios[key]), number(ratios[f"{key}_spread"]), line.bound(), verdict)
        for key, line in found.items()
        for verdict in [line.verdict(ratios[key])]
    ]
    said = f"Of {len(bounded)} bounds that were set, {len(bounded) - len(missed)} are met."
    said += f" Missed: {listed(missed)}." if missed else ""
    out = [f"- `{key}` was left out: {reason}" for key, reason in details["left_out"].items()]
    return f"""## What holds

{said} The value is the median over the rounds, the spread the distance between their quartiles.

{table(["name", "what", "value", "spread", "bound", "met"], rows)}{paragraph(out)}"""


def growth(ratios: Json, measured: Json) -> str:
    """Slopes, and the milliseconds that they were drawn through."""
    rows = []
    for key in measured:
        if key.startswith("slope_") and "step_ms" in measured[key]:
            name = key.split("_")[1]
            cost = ", ".join(f"{size}: {number(ms)}" for size, ms in measured[key]["step_ms"].items())
            rows.append((name, measured[key]["what"], cost, with_spread(ratios, key)))
    fit = measured.get("slope_default_fit_rows")
    last = ""
    if fit:
        cost = ", ".join(f"{s:.1f} s for {k} rows" for k, s in fit["fit_s"].items())
        slope = with_spread(ratios, "slope_default_fit_rows")
        last = f"The default fit on {fit['what']} takes {cost}: slope {slope}.\n"
    return f"""## How cost grows

The paper's grid for one level, choosing included, with nobody stopping early. The slope is that of log time over log size by
least squares: 1 means that twice the size costs twice the time. From the full size of a set upwards, by a factor of 16, cost
is linear in rows and in candidates. Below it a step has a part that does not grow, some tenths of a millisecond of Python for
each block, and two threads have too little to do each: small problems cost more than their share. Every row, candidate and class
adds scores, each with a tanh; a column only adds to the two matrix products, so it costs less than in proportion.

{table(["growing", "on", "ms a step, by size", "slope"], rows)}
{last}"""


def ways_section(ways: Json) -> str:
    if not ways:
        return ""
    ratios, measured = ways["ratios"], ways["measured"]
    sets = [name for name in ("avila", "covtype") if any(key.endswith(f"_blocks_{name}") for key in ratios)]
    rows = [["NumPy in blocks, a thread a core (used)", *["1"] * len(sets)]]
    for way, title in WAYS.items():
        keys = [f"way_{way}_over_blocks_{name}" for name in sets]
        if any(key in ratios for key in keys):
            rows.append([title, *(with_spread(ratios, key) for key in keys)])
    ours = listed(f"{number(measured[f'way_whole_over_blocks_{name}']['blocks_ms'])} ms for {name}" for name in sets)
    others = {way: [f"way_{way}_over_blocks_{name}" for name in sets] for way in WAYS if way != "one_thread"}
    quicker = [WAYS[way] for way, keys in others.items() if any(ratios.get(key, 2) < 0.98 for key in keys)]
    out = [f"- `{key}` was left out: {reason}" for key, reason in ways["left_out"].items()]
    verdict = (
        f"Quicker somewhere: {listed(quicker)}."
        if quicker
        else "No way is quicker than blocks on either shape, and each of the others needs a further package or more memory."
    )
    return f"""## Ways to run a step

One step of the penalised objective for all 80 settings, in float32, each way checked against the others' losses and gradients;
time over that of blocks, with half the spread. A step in blocks takes {ours}.

{table(["way", *sets], rows)}
{verdict}
Blocks were chosen because the scores of one block stay in cache from the first matrix product to the second, in memory
that is reused: whole arrays are written to main memory and read back several times. NumPy's float32 tanh uses the
vector units of the processor; the compiled loops of numba and numexpr as they are installed from PyPI call one that does not.

{measured_on(ways["machine"])}
{paragraph(out)}"""


def prediction_section(ratios: Json, details: Json) -> str:
    """Beside other libraries: seconds of both, the ratio, and memory beyond input and output."""
    rows = []
    for key, what, side in (
        ("mapie_over_tightset_sets_1m", "calibrate and predict sets: MAPIE", "mapie"),
        ("mapie_over_tightset_predict_1m", "predict sets: MAPIE", "mapie"),
        ("crepes_over_tightset_pvalues", "p-values: crepes", "theirs"),
        ("torchcp_over_tightset_pvalues", "p-values: TorchCP", "theirs"),
        ("pvalues_over_sort_10m", "p-values over `np.sort`", "pvalues"),
    ):
        if key not in ratios:
            continue
        m = details["measured"][key]
        own = "sort_s" if side == "pvalues" else "tightset_s"
        memory = [megabytes(m.get(f"{side}_mb")), "" if side == "pvalues" else megabytes(m.get("tightset_mb"))]
        times = [number(m[f"{side}_s"]), number(m[own])]
        rows.append((what, m["rows"], *times, with_spread(ratios, key), *memory))
    first = []
    if one := details["measured"].get("mapie_over_tightset_predict_1m"):
        calls = f"{number(one['mapie_first_s'])} s for MAPIE and {number(one['tightset_first_s'])} s for tightset"
        first.append(f"All times are of repeated calls. The first prediction of a process took {calls}.")
    heads = ["what", "rows", "s", "s, tightset (or sort)", "ratio", "MB extra", "MB extra, tightset"]
    return f"""## Prediction beside other libraries

Ten classes, as many calibration rows as new ones, the same probabilities handed to every library by a classifier that does
nothing else. MAPIE's sets are equal to ours label by label; p-values of crepes (not smoothed) and TorchCP are the same to
rounding. These two are measured at the largest size, doubled from a thousand rows, that they finish in about 8 seconds and
half the memory of the machine. Memory is the peak of the resident set beyond what was there before and what is returned.

{table(heads, rows)}{paragraph(first)}"""


def training_section(measured: Json) -> str:
    precision = measured["float32_over_float64_size"]
    cells = precision["cells"]
    far = max(cells, key=lambda cell: abs(cell["float32"] / cell["float64"] - 1))
    rows = [
        (
            c["set"],
            f"{100 * c['level']:g}",
            f"{c['float32']:.4f}",
            f"{c['float64']:.4f}",
            f"{c['float32'] / c['float64']:.4f}",
        )
        for c in cells
    ]
    default, fast = measured["default_fit_over_logistic"], measured["fast_fit_over_logistic"]
    rows_used = measured["slope_default_fit_rows"]["what"]
    times = measured["fast_fit_over_default"]["cells"]
    shapes = [
        (f"{cell['rows']:,}", cell["columns"], cell["classes"], rounded(cell["fast"]), rounded(cell["default"]))
        for cell in times
    ]
    heads = ["rows", "columns", "classes", "fast", "default"]
    return f"""## Whole fits

How long a fit will take: seconds for one level on the machine above, on made rows whose columns are all of use. Of more than 30,000
rows a sample of 20,000 is searched, and what it finds is trained on all. Five levels take about twice as long as one. A fit that
takes over a minute says how long it will take. Costs of other rows, in proportion: scores are rows x classes, and each takes
its part of the matrix products, in proportion to columns (eleven times as many where columns are unfolded, up to four million numbers).

{table(heads, shapes)}
`SCPOClassifier(0.95)` takes {default["fit_s"]:.1f} s on {rows_used} and `search="fast"` {fast["fit_s"]:.1f} s, where one logistic
regression tuned by `GridSearchCV` (5 folds, 5 strengths) takes {default["logistic_s"]:.2f} s.

Descents run in float32; choosing, calibrating and predicting in the precision of the rows. Labels per set on test rows after
the default search trained in either, which took {precision["float32_s"]:.0f} s in float32 and {precision["float64_s"]:.0f} s in float64:

{table(["set", "level %", "float32", "float64", "ratio"], rows)}
The farthest apart are {far["set"]} at {100 * far["level"]:g} %, by {100 * abs(far["float32"] / far["float64"] - 1):.2f} %.
"""


def dask_section(dask: Json) -> str:
    """From what `dask_scale.py` stores of rows on a cluster."""
    if not dask:
        return ""
    seconds, peaks = dask["small_seconds"], [f"{gb:.2f}" for gb in dask["peak_worker_gb"]]
    return f"""## More rows than memory

`make bench-dask`, with dask {dask["dask"]}: {dask["workers"]} workers of one thread each, limited to {dask["memory_limit"]}, on the machine of the first table.
[distributed.md](distributed.md) says how it works and how a cluster is started.

{dask["rows"]:,} rows of {dask["columns"]} columns ({dask["gb_of_rows"]:.0f} GB in float32; {dask["classes"]} classes), generated again at every pass and kept nowhere, are trained on and
calibrated in {dask["fit_s"] / 60:.0f} minutes (`search="fast"`, `unfold=False`, 90 %), of which {dask["calibration_rows"]:,} rows calibrate. The peak memory of the workers
was {listed(peaks)} GB. On 500,000 new rows coverage is {100 * dask["coverage"]:.2f} % and the mean size {dask["mean_size"]:.3f}.

On {dask["small_rows"]:,} rows, which fit both: in memory {seconds["in_memory"]:.0f} s, in partitions {seconds["dask"]:.0f} s. Parameters differ by at most {dask["theta_difference"]:.1g}, and the
sets of 100,000 new rows are {"equal" if dask["sets_equal"] else "**not** equal"}. With one of the two workers killed in the middle of the fit: {seconds["dask_one_killed"]:.0f} s, parameters differ by
{dask["killed_theta_difference"]:.1g}, and sets are {"equal" if dask["killed_sets_equal"] else "**not** equal"}.
{base_section(dask.get("base", {}))}"""


def base_section(base: Json) -> str:
    """What `dask_scale.py` stores of classifiers that are trained where the rows lie."""
    if not base:
        return ""
    bayes, trees = base["bayes"], base["trees"]
    return f"""
The same workers on top of a classifier (`estimator=DaskLGBMClassifier(n_estimators=10, num_leaves=15, learning_rate=0.3)`,
`search=Search.fast(folds=3)`, 90 %): {base["rows"]:,} rows are cross-fitted, trained on and calibrated in {base["fit_s"] / 60:.0f} minutes. The client, which has the
scheduler too, took {base["client_mb_before"]:.0f} MB before and at most {base["client_mb"]:.0f} MB while it fitted, {base["client_bytes_per_row"]:.1f} bytes for each row beyond the first
million (with an allocator that returns what is freed: [distributed.md](distributed.md)). {after_kill(base)}

On {base["small_rows"]:,} rows, in memory and in partitions, of the sets of 100,000 new rows {bayes["sets_that_differ"]:,} differ on top of naive Bayes (`BernoulliNB`; p-values by
at most {bayes["p_difference"]:.1g}), which learns the same from partitions, and {trees["sets_that_differ"]:,} on top of the trees, which a cluster grows otherwise than one machine: sets
hold {trees["mean_size_in_memory"]:.3f} labels in memory and {trees["mean_size_dask"]:.3f} in partitions.
"""


def after_kill(base: Json) -> str:
    """What a second fit of the same rows gave, with a worker killed."""
    if "killed_fit_s" not in base:
        return ""
    return f"""The peak memory of the workers was {listed([f"{gb:.2f}" for gb in base["peak_worker_gb"]])} GB. On 500,000 new rows coverage is {100 * base["coverage"]:.2f} %
and the mean size {base["mean_size"]:.3f} (the trees alone on held-out rows: {base["held_out_size_of_trees"]:.3f}). With a worker lost on the way: {base["killed_fit_s"] / 60:.0f} minutes, and
the sets of 100,000 new rows are {"equal" if base["killed_sets_equal"] else "**not** equal"}."""


CLOSING = """## How noise is handled

- The sides of a ratio take turns in one process, after a turn that is not counted, and a ratio is formed within each round.
  A slow minute is then on all sides, and shows in the spread more than in the median.
- That does not make up for a machine that is busy all along: a BLAS whose threads wait for each other loses far more to a
  neighbour than our blocks do, which flatters us. The load before the run is stored, and this page says if there was one.
- There is a pause between turns: threads of a BLAS spin for a while after their last work, and would slow the next side.
- First calls are not counted, though somebody who predicts once pays for one.
- Short steps are timed several together, so that neither the clock nor the start of threads counts.
- Libraries are imported, and classifiers made, before the clock starts. Whole fits are long and run three times; their spread
  says little.
- Slopes are fitted in each round by itself; sizes a factor of 16 apart, the largest being the whole data.
- No test measures time: bounds are looked at here, when the figures are made. `tests/project/test_performance_page.py` only checks that
  this page says what the stored figures say.
- `python benchmarks/run.py engine` (or slopes, precision, fits, prediction) prints one part and stores nothing.
"""


def main() -> None:
    PAGE.write_text(text())


if __name__ == "__main__":
    main()
