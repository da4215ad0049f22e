"""Stored rows in, figures of the account out: means over splits, bands, verdicts, counts. Nothing is measured here."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from math import sqrt
from typing import NamedTuple

import numpy as np

from tightset.metrics import sign_test_p_value
from tightset.paper.experiments import BINARY, STEPS, Experiment

__all__ = ["BAND", "TOLERANCE", "Cell", "Results", "coverage_deviation", "main_table", "printed"]

TOLERANCE = 0.10  # a figure is reproduced if it is this close to the printed one
BAND = 3.3  # deviations of the binomial band of coverage: one cell in a thousand falls outside by chance

Row = dict[str, str]


def printed(name: str) -> list[Row]:
    """A table of the paper, as printed: main_results, datasets, loss_transforms or trained_at_80_applied_at_95."""
    text = files("tightset.paper").joinpath("printed", f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


class Results:
    """Rows of a results file, looked up by what was measured."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: dict[Experiment, Row] = {}
        for row in rows:
            key = Experiment(
                row["dataset"],
                int(row["seed"]),
                row["method"],
                row["f"],
                row["form"],
                int(row["steps"]),
                float(row["confidence"]),
            )
            self.rows[key] = row
        self.seeds = sorted({key.seed for key in self.rows})
        self.datasets = list(dict.fromkeys(key.dataset for key in self.rows))

    def of(
        self, dataset: str, method: str, f: str, confidence: float, *, form: str = "-1/L", steps: int = STEPS
    ) -> list[Row]:
        """The rows of all splits, without those that were not measured."""
        if not method.startswith("scpo"):
            form, steps = "", 0
        keys = [Experiment(dataset, seed, method, f, form, steps, confidence) for seed in self.seeds]
        return [self.rows[key] for key in keys if key in self.rows]


def values(rows: list[Row], column: str) -> np.ndarray:
    return np.array([float(row[column]) for row in rows])


def coverage_deviation(confidence: float, n_cal: int, n_test: int) -> float:
    """Deviation of the coverage of ``n_test`` rows after calibration on ``n_cal``: the beta-binomial law."""
    return sqrt(confidence * (1 - confidence) * (1 / (n_cal + 2) + 1 / n_test))


class Cell(NamedTuple):
    """One line of a main table: what is printed, and what was measured over the splits."""

    dataset: str
    f: str
    confidence: float
    printed: Row
    scpo: np.ndarray
    coverage: np.ndarray
    deviation: float  # of one split's coverage
    tuned: np.ndarray
    plain: np.ndarray
    reversed: np.ndarray | None
    chosen: str  # the most frequent lambda and gamma
    smaller: int  # splits in which SCPO's sets are smaller than the tuned baseline's by the paper's sign test
    larger: int

    @property
    def ratio(self) -> float:
        return float(self.scpo.mean() / float(self.printed["scpo_inefficiency"]))

    @property
    def within(self) -> bool:
        return abs(self.ratio - 1) <= TOLERANCE

    @property
    def covered(self) -> bool:
        """Mean coverage lies in its band (which reaches up by one rank, since coverage is at least the level)."""
        gap = self.coverage.mean() - self.confidence
        width = BAND * self.deviation / sqrt(len(self.coverage))
        return bool(-width <= gap <= width + self.deviation**2 / (1 - self.confidence))

    @property
    def printed_gap(self) -> float:
        """How many deviations the printed coverage is above the level."""
        return (float(self.printed["scpo_accuracy_pct"]) / 100 - self.confidence) / self.deviation

    @property
    def reason(self) -> str:
        """Why a figure differs from the printed one, as far as the printed table itself tells."""
        if self.within:
            return ""
        if self.printed_gap < -1.64:
            return f"the printed sets cover too little, by {-self.printed_gap:.1f} deviations"
        if self.printed_gap > 1.64:
            return f"the printed sets cover too much, by {self.printed_gap:.1f} deviations"
        spread = self.scpo.std(ddof=1) if len(self.scpo) > 1 else 0.0
        if spread and abs(self.scpo.mean() - float(self.printed["scpo_inefficiency"])) < 2 * spread:
            return "within twice the spread between splits"
        return "unexplained"


def main_table(results: Results, f: str) -> list[Cell]:
    """The 35 lines of a main table, as far as they were measured."""
    cells = []
    for row in printed("main_results"):
        name, level = row["dataset"], float(row["confidence_pct"]) / 100
        scpo = results.of(name, "scpo", f, level) if row["inefficiency"] == f else []
        if not scpo:
            continue
        choices = Counter((float(r["penalty"]), float(r["sharpness"])) for r in scpo)
        lam, gamma = choices.most_common(1)[0][0]
        tests = [(int(r["smaller_than_tuned"]), int(r["larger_than_tuned"])) for r in scpo]
        clear = [a > b for a, b in tests if sign_test_p_value(a, b) < 0.05]
        binary = name in BINARY
        cells.append(
            Cell(
                name,
                f,
                level,
                row,
                values(scpo, "inefficiency"),
                values(scpo, "coverage"),
                coverage_deviation(level, int(scpo[0]["n_cal"]), int(scpo[0]["n_test"])),
                values(results.of(name, "tuned", f, level), "inefficiency"),
                values(results.of(name, "plain", f, level), "inefficiency"),
                values(results.of(name, "reversed", f, level), "inefficiency") if binary else None,
                f"{lam:g}, {gamma:g}",
                sum(clear),
                len(clear) - sum(clear),
            )
        )
    return cells


def best_forms(results: Results, forms: Iterable[str]) -> Counter[str]:
    """For each data set the form of the loss with the smallest mean sets at 95 %: how often each wins."""
    wins: Counter[str] = Counter()
    for name in results.datasets:
        means = {form: values(results.of(name, "scpo", "size", 0.95, form=form), "inefficiency") for form in forms}
        if all(len(sizes) for sizes in means.values()):
            wins[min(means, key=lambda form: float(means[form].mean()))] += 1
    return wins
