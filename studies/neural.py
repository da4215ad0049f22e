"""Networks trained for small sets, on Fashion-MNIST: SCPO beside cross-entropy, ConfTr, VR-ConfTr and others.

Every method has the same network, the same rows and the same training: AdamW, weights averaged over epochs, and the
epoch and the settings that have the smallest sets on training rows held aside. Only the loss differs, and whether
training starts at the network that cross-entropy gave, or from scratch. Five networks are trained, each with another
fifth of the training rows held aside: settings are chosen by all five, and sets are measured of each network alone and
of the five together. Calibration and test rows of a split are pooled and divided at random twenty times. A row depends
on nothing but its own key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from studies.datasets import check_file, data_folder
from studies.efficiency import DIVISIONS
from studies.networks import CAL, FASHION, LOSSES, MEMBERS, Job, Run, Trainers
from studies.recipes import RawFile
from studies.runner import Study
from tightset.conformal.calibration import Calibration
from tightset.neural.settings import Training

__all__ = [
    "AFTER",
    "COLUMNS",
    "COUNTED",
    "CROSS_ENTROPY",
    "FAMILIES",
    "LEVELS",
    "METHODS",
    "NEURAL",
    "SPLITS",
    "Trained",
    "plan",
]

LEVELS = (0.95, 0.99)
SPLITS = range(10, 15)  # settings were found while those before were in view

# Settings that are chosen on rows held aside: of cross-entropy, and of the losses after it.
CROSS_ENTROPY = [
    Training(epochs=0, warm_epochs=epochs, input_dropout=of_inputs, dropout=dropout, weight_decay=decay)
    for epochs, of_inputs, dropout, decay in [
        *((40, 0.0, dropout, 0.1) for dropout in (0.1, 0.2, 0.3)),
        (40, 0.0, 0.2, 1.0),
        (80, 0.0, 0.2, 0.1),
        (80, 0.0, 0.3, 0.1),
        (80, 0.2, 0.1, 0.1),
        (120, 0.3, 0.0, 0.3),
    ]
]
# Of all that are trained after it: the longer training needs more regularisation.
AFTER: dict[str, Any] = {"input_dropout": 0.3, "dropout": 0.0, "weight_decay": 0.3}
_RATE, _LOWER_RATE = 2e-3, 1e-3
_EPOCHS = 60
_HALVES = 512  # rows of a batch of which half calibrates

SCRATCH, SHARED = ", from scratch", ", shared body"
FAMILIES = {
    "scpo": ("cross-entropy", "cross-entropy, averaged", "SCPO"),
    "fine": ("ConfTr, class loss", "VR-ConfTr, class loss", "ConfTr", "VR-ConfTr", "rank-weighted"),
    "other": ("SCPO" + SCRATCH, "SCPO" + SHARED),
    "scratch": tuple(
        method + SCRATCH for method in ("ConfTr, class loss", "VR-ConfTr, class loss", "ConfTr", "VR-ConfTr")
    ),
}
METHODS = tuple(method for family in FAMILIES.values() for method in family)


class Trained(NamedTuple):
    """What is measured: the key of a row."""

    dataset: str
    seed: int
    method: str
    confidence: float


COUNTED = ("coverage", "mean_size", "accuracy")
COLUMNS = (*Trained._fields, *COUNTED, *(f"{name}_together" for name in COUNTED), "size_aside", "settings")


def plan(seeds: Iterable[int] = SPLITS, families: Iterable[str] = FAMILIES) -> list[Trained]:
    """The table of experiments, split by split."""
    families = list(families)
    return [
        Trained("fashion-mnist", seed, method, level)
        for seed in seeds
        for family in families
        for method in FAMILIES[family]
        for level in LEVELS
    ]


class Group(NamedTuple):
    """Networks of one method with the same settings, one for each fifth held aside."""

    settings: Training
    told: dict[str, Any]
    runs: list[Run]

    def aside(self, levels: Sequence[float]) -> float:
        """The size of sets on rows held aside, the geometric mean over networks and levels."""
        return float(np.exp(np.mean([np.log(run.aside[level]) for run in self.runs for level in levels])))


class Workshop:
    """One split of the data; networks are kept for the rows that follow."""

    def __init__(
        self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None, workers: int = 1
    ) -> None:
        self.dataset, self.seed = dataset, seed
        self.trainers = Trainers(seed, data_dir, device, workers)
        self.of_cross_entropy = cache(self._of_cross_entropy)
        self.best = cache(self._best)

    # ---- training -----------------------------------------------------------------------------------------------

    def groups(self, several: Sequence[tuple[Training, dict[str, Any], list[Job]]]) -> list[Group]:
        """All of these trainings at once."""
        runs = iter(self.trainers.train([job for _, _, jobs in several for job in jobs]))
        return [Group(settings, told, [next(runs) for _ in jobs]) for settings, told, jobs in several]

    def _of_cross_entropy(self, level: float, epochs: int) -> list[Group]:
        """With each of its settings of so many epochs; the level chooses the epoch."""
        several = [how for how in CROSS_ENTROPY if how.warm_epochs == epochs]
        jobs = [[Job(how, (level,), member) for member in range(MEMBERS)] for how in several]
        return self.groups([(how, _told(how), own) for how, own in zip(several, jobs, strict=True)])

    def start(self, level: float) -> Group:
        """Where other losses begin: the best networks of cross-entropy that were not trained for long."""
        least = min(how.warm_epochs for how in CROSS_ENTROPY)
        return min(self.of_cross_entropy(level, least), key=lambda one: one.aside((level,)))

    def _best(self, method: str, levels: tuple[float, ...]) -> Group:
        """The networks of a method, with the settings that are best on rows held aside."""
        if method == "cross-entropy":
            lengths = sorted({how.warm_epochs for how in CROSS_ENTROPY})
            every = [one for epochs in lengths for one in self.of_cross_entropy(levels[0], epochs)]
            return min(every, key=lambda one: one.aside(levels))
        kind = method.removesuffix(SCRATCH)
        from_scratch = method != kind
        begun = None if from_scratch else self.start(levels[-1]).runs
        several = []
        halves = "ConfTr" in kind
        rates = (_RATE, _LOWER_RATE) if halves and not from_scratch else (_RATE,)
        for (at, make), rate in product(enumerate(LOSSES[kind]), rates):
            settings = replace(
                Training(),
                warm_epochs=0,
                epochs=_EPOCHS,
                patience=_EPOCHS,
                fine_rate=rate,
                batch_size=_HALVES if halves else 256,
                **AFTER,
            )
            jobs = [
                Job(settings, levels, member, (kind, at), begun[member].state if begun else None)
                for member in range(MEMBERS)
            ]
            several.append((settings, {"fine_rate": rate, **getattr(make, "keywords", {})}, jobs))
        return min(self.groups(several), key=lambda one: one.aside(levels))

    # ---- measuring ----------------------------------------------------------------------------------------------

    def measure(self, experiment: Trained) -> dict[str, Any]:
        """One row of results."""
        _, _, method, level = experiment
        name = method.removesuffix(SHARED)
        levels = (level,) if name == method else LEVELS
        group = self.best(name, levels)
        head = LEVELS.index(level) if len(group.runs[0].scores) > 1 else 0
        A = np.array([run.scores[head] for run in group.runs], dtype=float)
        single = np.mean([self.counted(one, level) for one in A], axis=0)
        together = self.counted(logsumexp(A, axis=0), level)
        told = {"size_aside": group.aside((level,)), "settings": json.dumps(group.told, sort_keys=True)}
        figures = dict(zip(COUNTED, map(float, single), strict=True))
        return (
            experiment._asdict()
            | figures
            | {f"{name}_together": one for name, one in zip(COUNTED, together, strict=True)}
            | told
        )

    def counted(self, A: np.ndarray, level: float) -> tuple[float, ...]:
        """Coverage and size over divisions of the rows that did not train, and accuracy."""
        y = self.trainers.ground.y
        rng = np.random.default_rng([self.seed, 1])
        covered, sizes = [], []
        for _ in range(DIVISIONS):
            order = rng.permutation(len(y))
            cal, test = order[:CAL], order[CAL:]
            sets = Calibration.of(A[cal], y[cal]).sets(A[test], level)
            covered.append(sets[np.arange(len(test)), y[test]].mean())
            sizes.append(sets.sum(axis=1).mean())
        return float(np.mean(covered)), float(np.mean(sizes)), float((A.argmax(axis=1) == y).mean())


def _told(settings: Training) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if value != getattr(Training(), name)}


def _files(_: str, data_dir: str | Path | None = None) -> tuple[RawFile]:
    check_file(data_folder(data_dir), FASHION)
    return (FASHION,)


def _cost(experiment: Trained) -> float:
    return 2.0 if SCRATCH in experiment.method else 1.0


NEURAL = Study(Trained._fields, COLUMNS, Workshop, _cost, packages=("torch",), files=_files)
