"""Stored rows in, figures of the account out: means over splits, bands, verdicts, counts. Nothing is measured here."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from studies.experiments import BINARY, STEPS, Experiment
from tightset.conformal.metrics import sign_test_p_value
from tightset.conformal.ranks import rank

__all__ = [
    "BAND",
    "TOLERANCE",
    "Cell",
    "Results",
    "best_forms",
    "claims",
    "compare",
    "coverage_law",
    "main_table",
    "printed",
    "values",
]

TOLERANCE = 0.10  # a figure is reproduced if it is this close to the printed one
BAND = 3.3  # deviations on either side of the expected coverage: one cell in a thousand falls outside by chance
FIXED_TEST = ("avila",)  # sets whose splits share their test rows: averaging over splits does not sharpen coverage

Row = dict[str, str]


def printed(name: str) -> list[Row]:
    """A table of the paper: main_results, datasets, loss_transforms, trained_at_80_applied_at_95."""
    text = files("studies").joinpath("printed", f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def claims() -> dict[str, str]:
    """What the paper says in its text only."""
    return {row["claim"]: row["value"] for row in printed("claims")}


class Results:
    """Rows of a results file, looked up by what was measured."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: dict[Experiment, Row] = {}
        for row in rows:
            texts = {name: row[name] for name in ("dataset", "method", "f", "form")}
            numbers = {"seed": int(row["seed"]), "steps": int(row["steps"]), "confidence": float(row["confidence"])}
            self.rows[Experiment(**texts, **numbers)] = row  # type: ignore[arg-type]
        self.seeds = sorted({key.seed for key in self.rows})
        self.datasets = list(dict.fromkeys(key.dataset for key in self.rows))

    def of(
        self, dataset: str, method: str, f: str, confidence: float, *, form: str = "-1/L", steps: int = STEPS
    ) -> dict[int, Row]:
        """The rows of all splits by seed, without those that were not measured."""
        if not method.startswith("scpo"):
            form, steps = "", 0
        keys = {seed: Experiment(dataset, seed, method, f, form, steps, confidence) for seed in self.seeds}
        return {seed: self.rows[key] for seed, key in keys.items() if key in self.rows}


def values(rows: dict[int, Row], column: str = "inefficiency") -> np.ndarray:
    return np.array([float(row[column]) for row in rows.values()])


def coverage_law(confidence: float, n_cal: int, n_test: int) -> tuple[float, float]:
    """Mean and deviation of the coverage of ``n_test`` rows after calibration on ``n_cal``: the beta-binomial law."""
    mean = 1 - rank(confidence, n_cal) / (n_cal + 1)
    return mean, sqrt(mean * (1 - mean) * (n_cal + 1 + n_test) / (n_test * (n_cal + 2)))


class Cell(NamedTuple):
    """One line of a main table: what is printed, and what was measured over the splits (arrays by split)."""

    dataset: str
    f: str
    confidence: float
    printed: Row
    scpo: np.ndarray
    coverage: np.ndarray
    law: tuple[float, float]  # of one split's coverage
    tuned: np.ndarray
    plain: np.ndarray
    reversed: np.ndarray | None
    chosen: str  # the most frequent lambda and gamma, and how often
    against_tuned: tuple[int, int]  # splits in which the sign test finds SCPO's sets smaller, larger (p < 0.05)
    against_paper: tuple[int, int]
    p_paper: list[float]  # of that test against the re-created baseline, by split

    @property
    def goal(self) -> float:
        return float(self.printed["scpo_inefficiency"])

    @property
    def recreated(self) -> np.ndarray:
        """The paper's own baseline."""
        return self.plain if self.reversed is None else self.reversed

    @property
    def ratio(self) -> float:
        return float(self.scpo.mean()) / self.goal

    @property
    def within(self) -> bool:
        return abs(self.ratio - 1) <= TOLERANCE

    def in_band(self, deviations: float = BAND) -> bool:
        """Whether the mean coverage is as near to what it should be as chance allows."""
        mean, deviation = self.law
        width = deviations * deviation / (1 if self.dataset in FIXED_TEST else sqrt(len(self.coverage)))
        return abs(float(self.coverage.mean()) - mean) <= width

    @property
    def printed_gap(self) -> float:
        """How many deviations the printed coverage is above what it should be."""
        mean, deviation = self.law
        return (float(self.printed["scpo_accuracy_pct"]) / 100 - mean) / deviation


def main_table(results: Results, f: str) -> list[Cell]:
    """The 35 lines of a main table, as far as they were measured; each over the splits that have every method."""
    cells = []
    for row in printed("main_results"):
        name, level = row["dataset"], float(row["confidence_pct"]) / 100
        if row["inefficiency"] != f:
            continue
        found = {m: results.of(name, m, f, level) for m in ("scpo", "tuned", "plain", "reversed")}
        needed = [m for m in found if m != "reversed" or name in BINARY]
        seeds = [seed for seed in results.seeds if all(seed in found[m] for m in needed)]
        if not seeds:
            continue
        by = {m: {seed: found[m][seed] for seed in seeds} for m in needed}
        scpo = by["scpo"]
        choices = Counter((float(r["penalty"]), float(r["sharpness"])) for r in scpo.values())
        (lam, gamma), often = choices.most_common(1)[0]
        first = next(iter(scpo.values()))
        cells.append(
            Cell(
                name,
                f,
                level,
                row,
                values(scpo),
                values(scpo, "coverage"),
                coverage_law(level, int(first["n_cal"]), int(first["n_test"])),
                values(by["tuned"]),
                values(by["plain"]),
                values(by["reversed"]) if name in BINARY else None,
                f"{lam:g}, {gamma:g} ({often} of {len(seeds)})",
                _tests(scpo, "tuned"),
                _tests(scpo, "paper"),
                [sign_test_p_value(*_counts(r, "paper")) for r in scpo.values()],
            )
        )
    return cells


def _counts(row: Row, other: str) -> tuple[int, int]:
    return int(row[f"smaller_than_{other}"]), int(row[f"larger_than_{other}"])


def _tests(rows: dict[int, Row], other: str) -> tuple[int, int]:
    clear = [a > b for a, b in (_counts(row, other) for row in rows.values()) if sign_test_p_value(a, b) < 0.05]
    return sum(clear), len(clear) - sum(clear)


def reason(cell: Cell, cells: list[Cell]) -> str:
    """Why a figure differs from the printed one, as far as can be told; ``cells`` are those of its table."""
    own = sorted((c for c in cells if c.dataset == cell.dataset), key=lambda c: c.confidence)
    there = float(cell.printed["scpo_accuracy_pct"]) / 100
    at_printed = float(np.interp(there, [c.coverage.mean() for c in own], [c.scpo.mean() for c in own]))
    if abs(at_printed / cell.goal - 1) <= TOLERANCE:
        side = "less" if there < cell.law[0] else "more"
        return f"the printed sets cover {side} ({100 * there:g} %); at that coverage these have {at_printed:.3g}"
    if len(cell.scpo) > 1 and abs(float(cell.scpo.mean()) - cell.goal) <= 2 * float(cell.scpo.std(ddof=1)):
        return "within twice the deviation between splits"
    return "unexplained"


class Comparison(NamedTuple):
    """Geometric mean ratio of one method's sizes to another's, with its 95 % interval over splits."""

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        return "smaller" if self.high < 1 else "larger" if self.low > 1 else "not clearly different"


def compare(first: Iterable[np.ndarray], second: Iterable[np.ndarray]) -> Comparison:
    """Two methods over the same levels: arrays by split, one for each level; Student's t over the splits."""
    logs = np.mean([np.log(a / b) for a, b in zip(first, second, strict=True)], axis=0)
    mean, n = float(logs.mean()), len(logs)
    half = float(stdtrit(n - 1, 0.975)) * float(logs.std(ddof=1)) / sqrt(n) if n > 1 else np.inf
    return Comparison(float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)))


def best_forms(results: Results, forms: Iterable[str]) -> Counter[str]:
    """For each data set the form of the loss with the smallest mean sets at 95 %: how often each wins."""
    wins: Counter[str] = Counter()
    for name in results.datasets:
        means = {form: values(results.of(name, "scpo", "size", 0.95, form=form)) for form in forms}
        if all(len(sizes) for sizes in means.values()):
            wins[min(means, key=lambda form: float(means[form].mean()))] += 1
    return wins
