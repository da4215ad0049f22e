"""Training of one network: cross-entropy first, then small sets; the best state on rows held aside stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from math import cos, isfinite, pi
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tightset.compute.progress import Progress
from tightset.exceptions import warn
from tightset.neural.bodies import with_heads
from tightset.neural.loss import SCPOLoss
from tightset.neural.settings import Training, rows_in_batch

__all__ = ["Course", "Rows"]

_SHARPER = 4.0  # sigmoids that judge, than those that train: nearly counts, and yet smooth
_AT_ONCE = 8192


class Rows(NamedTuple):
    """Rows ``X (k, p)``, labels ``(k,)``; weights and groups ``(k,)`` or None; all of them on the device."""

    X: Tensor
    y: Tensor
    weight: Tensor | None = None
    groups: Tensor | None = None

    def take(self, index: Tensor) -> Self:
        return type(self)(*(None if one is None else one[index] for one in self))

    def more(self) -> dict[str, Tensor | None]:
        """What the loss takes beside logits and labels."""
        return {"groups": self.groups, "sample_weight": self.weight}


class Course:
    """One network on its way: stage 0 is cross-entropy, stage 1 trains for small sets at all levels.

    ``averaged`` is the network that is judged and kept: with weights averaged over steps in stage 1. ``history`` has
    (stage, epoch, criterion) of each epoch, ``best`` the state with the smallest criterion.
    """

    @classmethod
    def begun(
        cls,
        network: nn.Module,
        rows: Rows,
        aside: np.ndarray | None,
        losses: Callable[..., list[SCPOLoss]],
        settings: Training,
        progress: Progress,
    ) -> Self:
        """Train ``network`` on all rows but those ``aside``; ``losses(memory, ...)`` makes a loss for each level."""
        held = np.zeros(len(rows.y), dtype=bool)
        held[[] if aside is None else aside] = True
        train, judge = (torch.as_tensor(np.flatnonzero(one)).to(rows.y.device) for one in (~held, held))
        return cls(network, rows.take(train), None if aside is None else rows.take(judge), losses, settings, progress)

    def __init__(
        self,
        network: nn.Module,
        rows: Rows,
        aside: Rows | None,
        losses: Callable[..., list[SCPOLoss]],
        settings: Training,
        progress: Progress,
    ) -> None:
        self.rows, self.aside, self.settings, self.progress, self._make = rows, aside, settings, progress, losses
        self.judges = [one.eval() for one in losses(memory=0, gamma=_SHARPER * settings.gamma, cross_entropy=0.0)]
        self.C, self.levels = self.judges[0].n_classes, len(self.judges)
        self.history: list[tuple[int, int, float]] = []
        self.best: dict[str, Any] = {}
        self._begin(network, 0)

    # ---- stages -------------------------------------------------------------------------------------------------

    def _begin(self, network: nn.Module, stage: int) -> None:
        s = self.settings
        self.network, self.stage, self.epoch = network, stage, 0
        self.averaged = deepcopy(network)
        trained = [one for one in network.parameters() if one.requires_grad]
        groups = [
            {"params": [one for one in trained if one.ndim > 1], "weight_decay": s.weight_decay},
            {"params": [one for one in trained if one.ndim <= 1], "weight_decay": 0.0},
        ]
        on_gpu = self.rows.y.device.type == "cuda"
        self.optimiser = torch.optim.AdamW(groups, lr=s.fine_rate if stage else s.learning_rate, fused=on_gpu)
        self.losses = nn.ModuleList(self._make(gamma=s.gamma, cross_entropy=s.cross_entropy) if stage else [])

    def _go_on(self) -> None:
        """To stage 1, which begins at the best state of stage 0, with a head for each level."""
        if self.best:
            self.network.load_state_dict(self.best)
        self._begin(with_heads(self.network, self.C, self.levels), 1)
        if self.best:
            self.best = deepcopy(self.network.state_dict())
        if self.aside is not None and self.settings.epochs:
            self.network.train()
            with torch.no_grad():  # fills the memory of the losses
                for batch in self._batches():
                    self._loss(self.network(batch.X), batch)

    def run(self, keep: Callable[[], None]) -> None:
        """To the end; ``keep`` is called after each epoch."""
        if self.stage == 0:
            self._run_stage(self.settings.warm_epochs, "training with cross-entropy", keep)
            self._go_on()
        self._run_stage(0 if self.aside is None else self.settings.epochs, "training for small sets", keep)

    def result(self) -> nn.Module:
        """The network in its best state."""
        if self.best:
            self.averaged.load_state_dict(self.best)
        return self.averaged.eval()

    def _run_stage(self, epochs: int, name: str, keep: Callable[[], None]) -> None:
        self.progress.stage(name, self.settings.warm_epochs + self.settings.epochs)
        self.progress.advance(self.epoch + self.stage * self.settings.warm_epochs)
        while self.epoch < epochs and not self._waited():
            loss = self._run_epoch(epochs)
            self.epoch += 1
            if not self._judged(loss):
                break
            keep()
            self.progress.advance()

    def _waited(self) -> bool:
        """Whether sets have not become smaller for long, in training for them."""
        found = [criterion for _, _, criterion in self.history]
        best = int(np.argmin(found)) if found else 0
        return self.stage == 1 and min(len(found) - 1 - best, self.epoch) >= self.settings.patience

    # ---- an epoch -----------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[Rows]:
        """The rows in random order; the last few of them, too few for a batch, wait for another epoch."""
        n, size = len(self.rows.y), rows_in_batch(self.settings, len(self.rows.y))
        order = torch.randperm(n).to(self.rows.y.device)
        for at in range(0, n - size + 1, size):
            yield self.rows.take(order[at : at + size])

    def _run_epoch(self, epochs: int) -> Tensor:
        """The sum of the losses of its batches."""
        s, n = self.settings, len(self.rows.y)
        per_epoch = n // rows_in_batch(s, n)
        self.network.train()
        parameters, averaged = list(self.network.parameters()), list(self.averaged.parameters())
        total = torch.zeros((), device=self.rows.y.device)
        for at, batch in enumerate(self._batches()):
            step = self.epoch * per_epoch + at
            if self.stage == 0:
                for group in self.optimiser.param_groups:
                    group["lr"] = s.learning_rate * 0.5 * (1 + cos(pi * step / (epochs * per_epoch)))
            loss = self._loss(self.network(batch.X), batch)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            total += loss.detach()
            with torch.no_grad():
                if self.stage and s.averaged_epochs:
                    rate = max(1 / (step + 2), min(1.0, 1 / (s.averaged_epochs * per_epoch)))
                    get_ema_multi_avg_fn(1 - rate)(averaged, parameters, 0)
        with torch.no_grad():
            if not (self.stage and s.averaged_epochs):
                get_ema_multi_avg_fn(0.0)(averaged, parameters, 0)
            for kept, now in zip(self.averaged.buffers(), self.network.buffers(), strict=True):
                kept.copy_(now)
        return total

    def _loss(self, Z: Tensor, batch: Rows) -> Tensor:
        if self.stage == 0:
            each = nn.functional.cross_entropy(Z, batch.y, reduction="none")
            return each.mean() if batch.weight is None else (batch.weight * each).mean()
        heads = Z.reshape(len(Z), self.levels, self.C).unbind(1)
        parts = [one(own, batch.y, **batch.more()) for one, own in zip(self.losses, heads, strict=True)]
        return torch.stack(parts).sum()

    # ---- judging ------------------------------------------------------------------------------------------------

    def _judged(self, loss: Tensor) -> bool:
        """Judge the state after an epoch; False if numbers are not finite any more, so that training must end."""
        criterion = self._criterion() if isfinite(float(loss)) else float("inf")
        if not isfinite(criterion):
            self._tell_of_broken()
            return False
        best = min((one for _, _, one in self.history), default=float("inf"))
        self.history.append((self.stage, self.epoch, criterion))
        if criterion < best:
            self.best = deepcopy(self.averaged.state_dict())
        return True

    def _criterion(self) -> float:
        """Size of sets on rows held aside; the geometric mean over levels."""
        rows = self.aside
        if rows is None:  # nothing to judge by: the last is the best
            return -float(len(self.history))
        self.averaged.eval()
        with torch.no_grad():
            Z = torch.cat([self.averaged(part) for part in rows.X.split(_AT_ONCE)])
            heads = Z.reshape(len(Z), -1, self.C).expand(-1, self.levels, -1).unbind(1)
            found = [float(one(own, rows.y, **rows.more())) for one, own in zip(self.judges, heads, strict=True)]
        return float(np.exp(np.mean(np.log(np.maximum(found, 1e-12)))))

    def _tell_of_broken(self) -> None:
        rate = "fine_rate" if self.stage else "learning_rate"
        if not self.best:
            raise ValueError(
                f"the loss is not a finite number from the first epoch on: try a smaller {rate} in Training, or "
                "columns of similar size"
            )
        what = "training for small sets" if self.stage else "cross-entropy"
        warn(
            f"the loss is not a finite number in epoch {self.epoch} of {what}: training ends there, and the best state "
            f"before is kept. Try a smaller {rate} in Training"
        )

    # ---- to be resumed ------------------------------------------------------------------------------------------

    _PLAIN = ("stage", "epoch", "history", "best")
    _HELD = ("network", "averaged", "optimiser", "losses")

    def state(self) -> dict[str, Any]:
        """All that is needed to go on."""
        held = {name: getattr(self, name).state_dict() for name in self._HELD}
        return held | {name: getattr(self, name) for name in self._PLAIN}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if state["stage"]:
            self._go_on()
        for name in self._HELD:
            getattr(self, name).load_state_dict(state[name])
        for name in self._PLAIN:
            setattr(self, name, state[name])
