"""From training rows to the measures of all levels: what `SCPONeuralClassifier` leaves to PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from tightset.exceptions import needed_for

with needed_for("SCPONeuralClassifier", "torch"):
    import torch
    from torch import nn

from tightset.models.columns import Scaling
from tightset.models.networks import Network
from tightset.neural.bodies import block_of, made
from tightset.neural.checkpoints import Checkpoint, fingerprint
from tightset.neural.checks import checked_device, checked_network
from tightset.neural.loss import SCPOLoss
from tightset.neural.records import Trained
from tightset.neural.settings import MEMBERS, Training
from tightset.neural.training import Course, Rows
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows, normalised
from tightset.search.verdict import FEW_ROWS

__all__ = ["fit_networks"]

_COPIES = 4  # up to so many of a row on average are looked for, where rows are few
_PROBES = 9
_ONE_AT_A_TIME = RLock()  # PyTorch's random numbers are those of the process


def fit_networks(
    rows: TrainingRows, aim: Aim, network: Any, settings: Training, runtime: Runtime, checkpoint: Any
) -> Outcome:
    """A measure for each level, from one network (or several, averaged) with a head for each."""
    device = checked_device(runtime.device)
    if len(rows) < _COPIES * FEW_ROWS and len(distinct := rows.distinct()) < FEW_ROWS:
        rows = distinct  # of which none can be spared to judge by
    X, C, seed = np.asarray(rows.X.gather()), len(rows.classes), runtime.seed[0]
    with _random(seed, device):
        network = checked_network(network, X, C)
    given = isinstance(network, nn.Module)
    scaling = None
    if not (given or isinstance(network, str)):
        scaling = Scaling.of(X, rows.weight)
        X = (X - scaling.centre) / scaling.scale

    def tensor(x: np.ndarray | None, kind: torch.dtype) -> Any:
        return None if x is None else torch.as_tensor(np.ascontiguousarray(x)).to(device, kind)

    with torch.inference_mode(mode=False), torch.enable_grad():
        group, weight = tensor(rows.groups, torch.int64), tensor(normalised(rows.weight), torch.float32)
        there = Rows(tensor(X, torch.float32), tensor(rows.y, torch.int64), weight, group)
        if not bool(there.X.isfinite().all()):
            raise ValueError(
                "X has numbers that float32, in which networks are trained, cannot hold: scale its columns"
            )
        eps, cost = map(float, map(aim.significance, aim.levels)), None if aim.cost is None else aim.cost.tolist()
        f = aim.f(np.linspace(0, C, _PROBES)).tolist()  # its name is that of many
        start = (
            [] if not given else [*network.state_dict().values(), *(one.requires_grad for one in network.parameters())]
        )
        parts = (*there, settings, [*eps, aim.f.name, f, aim.by_label, cost], seed, str(network), device, *start)
        kept = Checkpoint(checkpoint, "" if checkpoint is None else fingerprint(*parts), device)
        members = settings.members or (1 if scaling is None else MEMBERS)
        with _random(seed, device):
            found = kept.read()
            done = -1 if found is None else len(found["states"]) - 1
            courses: list[Course] = []
            for at, progress in enumerate(runtime.progress.split(*[1] * members)):
                body = made(network, X.shape[1], C, settings.dropout, settings.input_dropout).to(device)
                aside = _aside(len(there.y), settings.held_aside, seed, at)
                course = Course.begun(body, there, aside, partial(_losses, rows, aim), settings, progress)
                courses.append(course)
                if found is not None and at < done:
                    course.restore(found["states"][at])
                    continue
                if found is not None and at == done:
                    kept.resume(course, found)
                course.run(partial(kept.write, courses))
    models = [block_of(one.result(), scaling, given=given) for one in courses]
    shift = np.broadcast_to(np.asarray(aim.offset(rows), dtype=float), (C,)).copy()
    record = [Trained.of(level, [one.history for one in courses]) for level in aim.levels]
    kept.remove()
    return Outcome([Network(models, level, shift) for level in range(len(aim.levels))], record)


def _losses(rows: TrainingRows, aim: Aim, **how: Any) -> list[SCPOLoss]:
    """A loss for each level."""
    return [
        SCPOLoss(
            len(rows.classes),
            1 - aim.significance(level),
            inefficiency=aim.f,
            label_conditional=aim.by_label,
            n_groups=None if rows.groups is None else int(rows.groups.max()) + 1,
            cost=aim.cost,
            labels=rows.y,
            label_groups=rows.groups,
            **how,
        )
        for level in aim.levels
    ]


def _aside(n: int, share: float, seed: int, member: int) -> np.ndarray | None:
    """Rows that are held aside, other ones for each member while there are any; none if there are few."""
    if n < FEW_ROWS:
        return None
    number = min(max(round(share * n), 1), n - 1)
    places = np.arange(member * number, (member + 1) * number)
    return np.random.default_rng(seed).permutation(n).take(places, mode="wrap")


@contextmanager
def _random(seed: int, device: str) -> Iterator[None]:
    """PyTorch's own random numbers are as they were when this ends; another fit in another thread waits for it."""
    devices = [torch.device(device)] if "cuda" in device else []
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
