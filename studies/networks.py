"""Networks of the study of networks, trained one by one or by several processes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from studies.datasets import data_folder
from studies.recipes import RawFile
from studies.rivals import ConfTr, CrossEntropy, RankWeighted
from tightset.compute.progress import Progress
from tightset.neural.bodies import made
from tightset.neural.loss import SCPOLoss
from tightset.neural.settings import Training
from tightset.neural.training import Course, Rows

__all__ = ["CAL", "CLASSES", "FASHION", "LOSSES", "MEMBERS", "Ground", "Job", "Run", "Trainers"]

MEMBERS = 5
CLASSES = 10
CAL = 5_000
_TRAIN = 10_000
FASHION = RawFile(
    "fashion_mnist/fashion_mnist_20k.npz",
    size=8815740,
    sha256="6c3b97f35a5298b17633e9fc43a47f72aeda3a4de08b82497d4d5804315a79b4",
)

Loss = Callable[[float], nn.Module]


def _scpo(eps: float, *, cross_entropy: float) -> nn.Module:
    memory = round(min(100 / eps, _TRAIN * (1 - 1 / MEMBERS)))
    return SCPOLoss(CLASSES, 1 - eps, gamma=Training().gamma, cross_entropy=cross_entropy, memory=memory)


def _conftr(class_loss: float, nearest: int | None = None) -> list[Loss]:
    """With either temperature."""
    return [partial(ConfTr, temperature=T, class_loss=class_loss, nearest=nearest) for T in (0.1, 1.0)]


# The losses of each method, one of which is chosen.
LOSSES: dict[str, list[Loss]] = {
    "cross-entropy, averaged": [lambda _: CrossEntropy()],
    "SCPO": [partial(_scpo, cross_entropy=mixed) for mixed in (1.0, 3.0)],
    "rank-weighted": [lambda _: RankWeighted()],
    "ConfTr": _conftr(0.0),
    "ConfTr, class loss": _conftr(1.0),
    "VR-ConfTr": _conftr(0.0, 20),
    "VR-ConfTr, class loss": _conftr(1.0, 20),
}


class Job(NamedTuple):
    """A training, judged at these levels: which fold is aside, a method's loss after cross-entropy, where it begins."""

    settings: Training
    levels: tuple[float, ...]
    member: int
    loss: tuple[str, int] | None = None
    start: dict[str, np.ndarray] | None = None


class Run(NamedTuple):
    """What came of it: log-probabilities ``(L, n, C)`` of rows that did not train, the size of sets aside, weights."""

    scores: np.ndarray
    aside: dict[float, float]
    state: dict[str, np.ndarray]


class Ground:
    """One split of the data, and the trainings on it. Each member has another fifth of the training rows held aside."""

    def __init__(self, seed: int, data_dir: str | Path | None, device: str | None) -> None:
        self.seed, self.device = seed, torch.device(device or "cpu")
        with np.load(data_folder(data_dir) / FASHION.path) as held:
            X, y = held["x"].reshape(len(held["x"]), -1) / np.float32(255), held["y"].astype(np.int64)
        order = np.random.default_rng([seed, 77]).permutation(len(y))
        train, rest = order[:_TRAIN], order[_TRAIN:]
        X = (X - X[train].mean()) / X[train].std()  # the images' own scale, not that of each pixel
        self.rows = Rows(torch.as_tensor(X[train]).to(self.device), torch.as_tensor(y[train]).to(self.device))
        self.X, self.y = torch.as_tensor(X[rest]).to(self.device), y[rest]
        self.folds = np.random.default_rng([seed, 78]).permutation(_TRAIN).reshape(MEMBERS, -1)

    def train(self, job: Job) -> Run:
        def losses(memory: int | None = None, **how: Any) -> list[nn.Module]:
            if memory is None and job.loss is not None:
                return [LOSSES[job.loss[0]][job.loss[1]](1 - level) for level in job.levels]
            return [SCPOLoss(CLASSES, level, memory=memory, **how) for level in job.levels]

        with torch.random.fork_rng():
            torch.manual_seed(1000 * self.seed + job.member)
            how = job.settings
            network = made((64, 64), self.X.shape[1], CLASSES, how.dropout, how.input_dropout).to(self.device)
            if job.start is not None:
                network.load_state_dict({name: torch.as_tensor(one) for name, one in job.start.items()})
            course = Course.begun(network, self.rows, self.folds[job.member], losses, job.settings, Progress())
            course.run(lambda: None)
        result = course.result()
        with torch.no_grad():
            Z = result(self.X).reshape(len(self.X), -1, CLASSES).transpose(0, 1)
        scores = torch.log_softmax(Z, 2).cpu().numpy()
        state = {name: one.cpu().numpy() for name, one in result.state_dict().items()}
        aside = self.rows.take(torch.as_tensor(self.folds[job.member]).to(self.device))
        return Run(scores, _sizes(course, result, aside, job.levels), state)


def _sizes(course: Course, network: nn.Module, rows: Rows, levels: Sequence[float]) -> dict[float, float]:
    """By level, as the course judges."""
    with torch.no_grad():
        heads = network(rows.X).reshape(len(rows.X), -1, CLASSES).unbind(1)
        found = [float(judge(Z, rows.y)) for judge, Z in zip(course.judges, heads, strict=True)]
    return dict(zip(levels, found, strict=True))


class Trainers:
    """Trainings on one split, by this process or by several others; what comes of them is the same."""

    def __init__(self, seed: int, data_dir: str | Path | None, device: str | None, workers: int) -> None:
        self.ground = Ground(seed, data_dir, device)
        self.pool = None
        if workers > 1:
            self.pool = ProcessPoolExecutor(workers, get_context("spawn"), _open, (seed, data_dir, device))

    def train(self, jobs: Sequence[Job]) -> list[Run]:
        return list(map(self.ground.train, jobs) if self.pool is None else self.pool.map(_train, jobs))


_grounds: list[Ground] = []  # of a process that trains: its one split


def _open(seed: int, data_dir: str | Path | None, device: str | None) -> None:
    torch.set_num_threads(1)
    _grounds[:] = [Ground(seed, data_dir, device)]


def _train(job: Job) -> Run:
    return _grounds[0].train(job)
