"""The scores of recent rows, from which thresholds are computed: those of one batch are too few."""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Memory", "OwnScores", "by_category", "follow", "solve", "tolerance"]

_STEPS = 60  # of Newton's method, from anywhere
_STEPS_ON = 1  # from the threshold of the batch before
_STEPS_AFTER = 5  # of Newton's method for log-odds, from there
_FURTHEST = 4.0  # that one of these goes
_TINY = 1e-30


class OwnScores(NamedTuple):
    """Scores of own labels in units of the sigmoid, their categories in ``0 ... T - 1``, weights: ``(k,)`` each.

    ``category`` is None if there is one only, and ``weight`` if then all rows count the same.
    """

    z: Tensor
    category: Tensor | None
    weight: Tensor | None

    def total(self, x: Tensor, T: int) -> Tensor:
        """Weighted sums ``(T,)`` of ``x (k,)`` by category; the mean if all rows count the same."""
        return x.mean().reshape(1) if self.weight is None else by_category(self.weight * x, self.category, T)

    def unit(self) -> Any:
        """The mean weight."""
        return 1.0 if self.weight is None else self.weight.mean().clamp_min(_TINY)

    def share(self, T: int) -> Any:
        """The weight ``(T,)`` of the rows of each category; 1 if all rows count the same."""
        return 1.0 if self.weight is None else by_category(self.weight, self.category, T).clamp_min(_TINY)


def by_category(x: Tensor, category: Tensor | None, T: int) -> Tensor:
    """Sums ``(T,)`` of ``x`` over the entries of each category.

    >>> by_category(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 0]), 2)
    tensor([5., 2.])
    """
    if category is None:
        return x.sum().reshape(1)
    return torch.zeros(T, dtype=x.dtype, device=x.device).index_add_(0, category.reshape(-1), x.reshape(-1))


class Memory(nn.Module):
    """The last ``rows`` rows that were seen, with the scores that they had then.

    A threshold at 99 % of a batch of 256 rows hangs on two or three of them. Over the rows of many batches it is
    nearly that of all rows; their scores are as old as they are, which a small step size makes good.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.seen, self.weighted = rows, 0, False
        self.batches = 0  # that came to be remembered, those that are no smaller among them
        self.register_buffer("z", torch.zeros(rows, dtype=torch.float64))
        self.register_buffer("weight", torch.ones(rows, dtype=torch.float64))
        self.register_buffer("category", torch.zeros(rows, dtype=torch.int64))

    def forget(self) -> None:
        self.seen, self.weighted, self.batches = 0, False, 0
        self.weight.fill_(1)

    def get_extra_state(self) -> Any:
        return {"seen": self.seen, "weighted": self.weighted}

    def set_extra_state(self, state: Any) -> None:
        self.seen, self.weighted = int(state["seen"]), bool(state["weighted"])

    def with_those_before(self, batch: OwnScores) -> OwnScores:
        """What thresholds are computed from where a batch is not to be remembered."""
        if self.seen == 0 or len(batch.z) >= self.rows:
            return batch
        return self._kept(batch)

    def slots(self, k: int, device: torch.device) -> Tensor | None:
        """Where the next ``k`` rows go, before they wrap around: ``(k,)``; None if so many are not kept. They count."""
        self.batches += 1
        if k >= self.rows:
            return None
        start = self.seen % self.rows
        self.seen += k
        return torch.arange(start, start + k, device=device)

    @property
    def full(self) -> bool:
        return self.seen >= self.rows

    def remember(self, batch: OwnScores, slots: Tensor) -> OwnScores:
        """What thresholds are computed from once a batch has come: the last rows."""
        if self.z.dtype != batch.z.dtype or self.z.device != batch.z.device:
            self.to(device=batch.z.device, dtype=batch.z.dtype)
        self.weighted = self.weighted or batch.weight is not None
        weight = torch.ones_like(batch.z) if self.weighted and batch.weight is None else batch.weight
        slots = slots % self.rows
        for kept, new in ((self.z, batch.z), (self.weight, weight), (self.category, batch.category)):
            if new is not None:
                kept.index_copy_(0, slots, new.nan_to_num())
        return self._kept(batch)

    def _kept(self, batch: OwnScores) -> OwnScores:
        there = slice(0, min(self.seen, self.rows))
        category = None if batch.category is None else self.category[there]
        return OwnScores(self.z[there], category, self.weight[there] if self.weighted else None)


def tolerance(kind: torch.dtype) -> float:
    """How exactly coverage is met where thresholds are solved for."""
    return 1e-12 if kind == torch.float64 else 1e-6


def solve(own: OwnScores, eps: float, q: Tensor | None, T: int, *, exactly: bool) -> tuple[Tensor, Tensor]:
    """Thresholds ``q (T,)`` at which coverage is ``1 - eps``, and its slope: ``sum of w sigma'`` by category.

    Newton's method in a bracket, or if not ``exactly`` a step of it from the thresholds ``q`` that there were: the loss
    is corrected to first order for what is left.

    >>> own = OwnScores(torch.tensor([0.0, 4.0]), None, torch.ones(2))
    >>> solve(own, 0.5, None, 1, exactly=True)[0]
    tensor([2.])
    """
    z, category, share = own.z, own.category, own.share(T)
    if q is None:
        q = torch.quantile(z[:: max(1, len(z) // 1000)], eps).expand(T)
        exactly = True
    if exactly:
        low, high = (z.min() - 40).expand(T), (z.max() + 40).expand(T)
    tol = tolerance(z.dtype)
    look_every = 1 if z.device.type == "cpu" else 8  # to look holds the device up
    for step in range(1, (_STEPS if exactly else _STEPS_ON) + 1):
        t = torch.sigmoid(z - (q if category is None else q[category]))
        covered, slope = own.total(t, T), own.total(torch.addcmul(t, t, t, value=-1), T)
        excess = covered / share - (1 - eps)
        if exactly and step % look_every == 0 and bool((excess.abs() <= tol).all()):
            break
        change = excess * share / slope.clamp_min(_TINY)
        if exactly:
            low, high = torch.where(excess > 0, q, low), torch.where(excess < 0, q, high)
            newton = q + change
            q = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
        else:
            q = q + change.clamp(-1, 1)
    return q, slope


def follow(own: OwnScores, eps: float, q: Tensor, T: int) -> tuple[Tensor, Tensor]:
    """As `solve` exactly, in a fixed number of steps from thresholds ``q`` that are near, without looking at a number.

    Newton's method for the log-odds of coverage, which are nearly linear in ``q``, and in its tails are.

    >>> own = OwnScores(torch.tensor([0.0, 4.0]), None, None)
    >>> follow(own, 0.5, torch.tensor([5.0]), 1)[0]
    tensor([2.])
    """
    z, category, share = own.z, own.category, own.share(T)
    goal = log((1 - eps) / eps)
    for _ in range(_STEPS_AFTER):
        t = torch.sigmoid(z - (q if category is None else q[category]))
        covered, slope = own.total(t, T), own.total(torch.addcmul(t, t, t, value=-1), T)
        inside = (covered / share).clamp(1e-6, 1 - 1e-6)
        change = (torch.logit(inside) - goal) * inside * (1 - inside) * share / slope.clamp_min(_TINY)
        q = q + change.clamp(-_FURTHEST, _FURTHEST)
    return q, slope
