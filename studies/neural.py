"""Networks trained for small sets, on Fashion-MNIST: SCPO beside cross-entropy, ConfTr, VR-ConfTr and others.

Every method has the same network, the same rows and the same training: AdamW, weights averaged over epochs, and the
epoch and the settings that have the smallest sets on training rows held aside. Only the loss differs, and whether
training starts at the network that cross-entropy gave, or from scratch. Calibration and test rows of a split are pooled
and divided at random twenty times. A row depends on nothing but its own key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from studies.datasets import check_file, data_folder
from studies.efficiency import DIVISIONS
from studies.recipes import RawFile
from studies.rivals import ConfTr, CrossEntropy, RankWeighted
from studies.runner import Study
from tightset.compute.progress import Progress
from tightset.conformal.calibration import Calibration
from tightset.neural.bodies import made
from tightset.neural.loss import SCPOLoss
from tightset.neural.settings import Training
from tightset.neural.training import Course, Rows

__all__ = ["COLUMNS", "FAMILIES", "LEVELS", "MEMBERS", "METHODS", "NEURAL", "Trained", "plan"]

LEVELS = (0.95, 0.99)
MEMBERS = 5
CLASSES = 10
_FASHION = RawFile(
    "fashion_mnist/fashion_mnist_20k.npz",
    size=8815740,
    sha256="6c3b97f35a5298b17633e9fc43a47f72aeda3a4de08b82497d4d5804315a79b4",
)
_TRAIN, _CAL = 10_000, 5_000
_ASIDE = 0.2

# Settings that are chosen on rows held aside: of cross-entropy, and of the losses after it.
_CROSS_ENTROPY = [
    Training(epochs=0, warm_epochs=epochs, dropout=dropout, weight_decay=decay)
    for epochs, dropout, decay in [
        *((40, dropout, 0.1) for dropout in (0.1, 0.2, 0.3)),
        (40, 0.2, 1.0),
        (80, 0.2, 0.1),
        (80, 0.3, 0.1),
    ]
]
_RATES = (1e-3, 2e-3)
_EPOCHS, _EPOCHS_FROM_SCRATCH, _PATIENCE = 40, 60, 20
_HALVES = 512  # rows of a batch of which half calibrates

Loss = Callable[[float], nn.Module]


def _scpo(eps: float, *, cross_entropy: float) -> nn.Module:
    memory = round(min(100 / eps, (1 - _ASIDE) * _TRAIN))
    return SCPOLoss(CLASSES, 1 - eps, gamma=Training().gamma, cross_entropy=cross_entropy, memory=memory)


def _conftr(class_loss: float, nearest: int | None = None) -> list[Loss]:
    """With either temperature."""
    return [partial(ConfTr, temperature=T, class_loss=class_loss, nearest=nearest) for T in (0.1, 1.0)]


# The losses of each method, one of which is chosen; those that begin from scratch say so.
LOSSES: dict[str, list[Loss]] = {
    "cross-entropy, averaged": [lambda _: CrossEntropy()],
    "SCPO": [partial(_scpo, cross_entropy=mixed) for mixed in (0.3, 1.0)],
    "rank-weighted": [lambda _: RankWeighted()],
    "ConfTr": _conftr(0.0),
    "ConfTr, class loss": _conftr(1.0),
    "VR-ConfTr": _conftr(0.0, 20),
    "VR-ConfTr, class loss": _conftr(1.0, 20),
}
SCRATCH = ", from scratch"
FAMILIES = {
    "scpo": (
        "cross-entropy",
        "cross-entropy, averaged",
        "SCPO",
        "SCPO" + SCRATCH,
        "SCPO, shared body",
        "rank-weighted",
    ),
    "members": (f"cross-entropy, {MEMBERS} members", f"SCPO, {MEMBERS} members"),
    "conftr": ("ConfTr", "ConfTr, class loss", "ConfTr" + SCRATCH, "ConfTr, class loss" + SCRATCH),
    "vr-conftr": ("VR-ConfTr", "VR-ConfTr, class loss", "VR-ConfTr" + SCRATCH, "VR-ConfTr, class loss" + SCRATCH),
}
METHODS = tuple(method for family in FAMILIES.values() for method in family)


class Trained(NamedTuple):
    """What is measured: the key of a row."""

    dataset: str
    seed: int
    method: str
    confidence: float


COLUMNS = (*Trained._fields, "coverage", "mean_size", "accuracy", "size_aside", "settings")


def plan(seeds: Iterable[int] = range(5), families: Iterable[str] = FAMILIES) -> list[Trained]:
    """The table of experiments, split by split."""
    families = list(families)
    return [
        Trained("fashion-mnist", seed, method, level)
        for seed in seeds
        for family in families
        for method in FAMILIES[family]
        for level in LEVELS
    ]


class Run(NamedTuple):
    """A network that was trained, the size of sets on rows held aside, and with which settings."""

    network: nn.Module
    aside: float
    settings: dict[str, Any]


class Workshop:
    """One split of the data; networks are kept for the rows that follow."""

    def __init__(self, dataset: str, seed: int, data_dir: str | Path | None, device: str | None) -> None:
        self.dataset, self.seed = dataset, seed
        at = torch.device(device or "cpu")
        with np.load(data_folder(data_dir) / _FASHION.path) as held:
            X, y = held["x"].reshape(len(held["x"]), -1) / np.float32(255), held["y"].astype(np.int64)
        order = np.random.default_rng([seed, 77]).permutation(len(y))
        train, rest = order[:_TRAIN], order[_TRAIN:]
        X = (X - X[train].mean()) / X[train].std()  # the images' own scale, not that of each pixel
        self.rows = Rows(torch.as_tensor(X[train]).to(at), torch.as_tensor(y[train]).to(at))
        self.X, self.y = torch.as_tensor(X[rest]).to(at), y[rest]
        self.member = cache(self._member)
        self.starts = cache(self._starts)

    # ---- training -----------------------------------------------------------------------------------------------

    def run(
        self,
        settings: Training,
        levels: Sequence[float],
        make: Loss | None = None,
        start: nn.Module | None = None,
        member: int = 0,
    ) -> Run:
        """One training, judged at these levels."""
        aside = np.random.default_rng([self.seed, member]).permutation(_TRAIN)[: round(_ASIDE * _TRAIN)]

        def losses(memory: int | None = None, **how: Any) -> list[nn.Module]:
            if memory is None and make is not None:
                return [make(1 - level) for level in levels]
            return [SCPOLoss(CLASSES, level, memory=memory, **how) for level in levels]

        with torch.random.fork_rng():
            torch.manual_seed(1000 * self.seed + member)
            network = made((64, 64), self.X.shape[1], CLASSES, settings.dropout).to(self.X.device)
            if start is not None:
                network.load_state_dict(start.state_dict())
            course = Course.begun(network, self.rows, aside, losses, settings, Progress())
            course.run(lambda: None)
        shown = {name: value for name, value in asdict(settings).items() if value != getattr(Training(), name)}
        return Run(course.result(), min(one for _, _, one in course.history), shown)

    def _starts(self, level: float) -> tuple[Run, Run]:
        """The best network of cross-entropy at a level, and the best of those that were not trained for long."""
        runs = [self.run(settings, [level]) for settings in _CROSS_ENTROPY]
        least = min(how.warm_epochs for how in _CROSS_ENTROPY)
        short = [one for one, how in zip(runs, _CROSS_ENTROPY, strict=True) if how.warm_epochs == least]
        return min(runs, key=_size_aside), min(short, key=_size_aside)

    def _member(self, method: str, levels: tuple[float, ...], at: int) -> Run:
        """A network of a method, with the settings that are best on rows held aside (for the first member's)."""
        kind = method.removesuffix(SCRATCH)
        if kind == "cross-entropy":
            best = self.starts(levels[0])[0]
            return best if at == 0 else self.run(replace(Training(), **best.settings), levels, member=at)
        from_scratch = method != kind
        begun = self.starts(levels[-1])[1]
        runs = []
        for make, rate in product(LOSSES[kind], _RATES[-1:] if from_scratch else _RATES):
            settings = replace(
                Training(),
                warm_epochs=0,
                epochs=_EPOCHS_FROM_SCRATCH if from_scratch else _EPOCHS,
                patience=_PATIENCE,
                fine_rate=rate,
                batch_size=_HALVES if "ConfTr" in method else 256,
                **{name: begun.settings[name] for name in ("dropout", "weight_decay") if name in begun.settings},
            )
            told = {"fine_rate": rate, **getattr(make, "keywords", {})}
            if at and told != self.member(method, levels, 0).settings:
                continue
            start = None if from_scratch else self._start(levels[-1], at).network
            runs.append(self.run(settings, levels, make, start, at)._replace(settings=told))
        return min(runs, key=_size_aside)

    def _start(self, level: float, at: int) -> Run:
        """The network at which a member begins."""
        first = self.starts(level)[1]
        if at == 0:
            return first
        return self.run(replace(Training(), **first.settings), [level], member=at)

    # ---- measuring ----------------------------------------------------------------------------------------------

    def scores(self, run: Run, head: int = 0) -> np.ndarray:
        """Log-probabilities of the rows that did not train."""
        network = deepcopy(run.network).eval()
        with torch.no_grad():
            Z = network(self.X)[:, head * CLASSES : (head + 1) * CLASSES]
            return np.asarray(torch.log_softmax(Z, 1).cpu().numpy(), dtype=float)

    def measure(self, experiment: Trained) -> dict[str, Any]:
        """One row of results."""
        _, _, method, level = experiment
        kind, _, ending = method.partition(", ")
        if ending == "shared body":
            runs, head = [self.member(kind, LEVELS, 0)], LEVELS.index(level)
        else:
            members = MEMBERS if ending.endswith("members") else 1
            name = kind if members > 1 else method
            runs, head = [self.member(name, (level,), at) for at in range(members)], 0
        A = np.mean([self.scores(run, head) for run in runs], axis=0)
        told = {"size_aside": runs[0].aside, "settings": json.dumps(runs[0].settings, sort_keys=True)}
        return experiment._asdict() | self.counted(A, level) | told

    def counted(self, A: np.ndarray, level: float) -> dict[str, float]:
        """Coverage and size over divisions of the rows that did not train."""
        rng = np.random.default_rng([self.seed, 1])
        covered, sizes = [], []
        for _ in range(DIVISIONS):
            order = rng.permutation(len(self.y))
            cal, test = order[:_CAL], order[_CAL:]
            sets = Calibration.of(A[cal], self.y[cal]).sets(A[test], level)
            covered.append(sets[np.arange(len(test)), self.y[test]].mean())
            sizes.append(sets.sum(axis=1).mean())
        accuracy = (A.argmax(axis=1) == self.y).mean()
        return {"coverage": np.mean(covered), "mean_size": np.mean(sizes), "accuracy": accuracy}


def _size_aside(run: Run) -> float:
    return run.aside


def _files(_: str, data_dir: str | Path | None = None) -> tuple[RawFile]:
    check_file(data_folder(data_dir), _FASHION)
    return (_FASHION,)


def _cost(experiment: Trained) -> float:
    return 2.0 if SCRATCH in experiment.method or "members" in experiment.method else 1.0


NEURAL = Study(Trained._fields, COLUMNS, Workshop, _cost, packages=("torch",), files=_files)
