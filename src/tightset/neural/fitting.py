"""From training rows to the measures of all levels: what `SCPONeuralClassifier` leaves to PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
from tightset.neural.loss import SCPOLoss
from tightset.neural.records import Trained
from tightset.neural.settings import MEMBERS, Training
from tightset.neural.training import Course, Rows
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows, normalised

__all__ = ["fit_networks"]

FEW_ROWS = 50  # of which none can be spared to judge by


def fit_networks(
    rows: TrainingRows, aim: Aim, network: Any, settings: Training, runtime: Runtime, checkpoint: Any
) -> Outcome:
    """A measure for each level, from one network (or several, averaged) with a head for each."""
    device = checked_device(runtime.device)
    X, C, seed = np.asarray(rows.X.gather()), len(rows.classes), runtime.seed[0]
    given = isinstance(network, nn.Module)
    check_network(network, X, C)
    scaling = None
    if not (given or isinstance(network, str)):
        scaling = Scaling.of(X, rows.weight)
        X = (X - scaling.centre) / scaling.scale

    def tensor(x: np.ndarray | None, kind: torch.dtype) -> Any:
        return None if x is None else torch.as_tensor(np.ascontiguousarray(x)).to(device, kind)

    group, weight = tensor(rows.groups, torch.int64), tensor(normalised(rows.weight), torch.float32)
    there = Rows(tensor(X, torch.float32), tensor(rows.y, torch.int64), weight, group)
    eps, cost = map(float, map(aim.significance, aim.levels)), None if aim.cost is None else aim.cost.tolist()
    aimed = [*eps, aim.f.name, aim.by_label, cost]
    start = [*network.state_dict().values()] if given else []
    parts = (*there, settings, aimed, seed, str(network), device, *start)
    kept = Checkpoint(checkpoint, "" if checkpoint is None else fingerprint(*parts), device)
    members = settings.members or (1 if scaling is None else MEMBERS)
    with _random(seed, device):
        found = kept.read()
        done = -1 if found is None else len(found["states"]) - 1
        courses: list[Course] = []
        for at, progress in enumerate(runtime.progress.split(*[1] * members)):
            body = made(network, X.shape[1], C, settings.dropout).to(device)
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


def checked_device(device: str | None) -> str:
    """The device, if it is there."""
    try:
        torch.zeros(1, device=device or "cpu")
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={device!r} cannot be used: {str(error).splitlines()[0]}; device=None is the CPU"
        ) from None
    return device or "cpu"


def check_network(network: Any, X: np.ndarray, C: int) -> None:
    """Raise unless it makes a number for each class of a row."""
    if isinstance(network, str):
        if X.shape[1] != C:
            raise ValueError(
                f"network={network!r} takes X with a logit for each of the {C} classes of y; got {X.shape[1]} columns"
            )
    elif isinstance(network, nn.Module):
        if not any(one.requires_grad for one in network.parameters()):
            raise ValueError("network has no parameters that can be trained: set requires_grad on some")
        at = next(network.parameters())
        was, some = network.training, torch.as_tensor(np.asarray(X[:2], dtype=np.float32)).to(at.device)
        try:
            with torch.no_grad():
                shape = tuple(network.eval()(some).shape)
        finally:
            network.train(was)
        if shape != (len(some), C):
            raise ValueError(
                f"network must give a number for each of the {C} classes of y, shape {(len(some), C)} for "
                f"{len(some)} rows; it gives {shape}"
            )


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
    """PyTorch's own random numbers are as they were when this ends."""
    devices = [torch.device(device)] if "cuda" in device else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
