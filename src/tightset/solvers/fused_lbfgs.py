"""L-BFGS on a CUDA device without the host: one kernel moves every candidate a step, and a graph replays the steps.

As `solvers.lbfgs`: the same tests, the same steps, but the direction comes of the two-loop recursion. A candidate that
has converged stays where it is, and the host looks only now and then whether all have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any, Protocol

import numpy as np

from tightset.compute.arrays import Array
from tightset.solvers.descent import Solution
from tightset.solvers.fused_step import step_kernel

__all__ = ["FusedLoss", "fused_lbfgs"]

_SUFFICIENT = 1e-4
_STALLS = 3
_MEMORY = 10  # pairs
_LOOK_EVERY = 16  # steps
_AT_ONCE = 4096  # parameters that a program works on together
_STATUS = np.array(["max_iter", "converged", "nonfinite"])


class FusedLoss(Protocol):
    """Loss ``(B,)`` and gradient ``(B, D, width)`` by kernels alone, in the same memory every time."""

    shape: tuple[int, int, int]

    def __call__(self, theta: Array) -> tuple[Array, Array]: ...


class _Descent:
    """The state of all candidates on the device; parameters lie as `FusedLoss` wants them."""

    def __init__(self, problem: FusedLoss, theta: Array, anchor: Array, hold: Array, scale: Array, tol: float) -> None:
        import torch

        self.problem, self.anchor, self.hold, self.scale = problem, anchor, hold, scale
        self.tol = tol
        B, D, width = problem.shape
        self.P, self.width = D * width, width
        how = {"dtype": theta.dtype, "device": theta.device}
        self.theta, self.x, self.g, self.d = torch.empty((4, B, self.P), **how)
        self.S, self.Y = torch.zeros((2, B, _MEMORY, self.P), **how)
        self.rho, self.alpha = torch.zeros((B, _MEMORY), **how), torch.zeros((B, _MEMORY), **how)
        # each aligned, as kernels are compiled for that
        self.pairs, self.stalls, self.status, self.n_iter = (
            torch.full((B,), start, dtype=torch.int32, device=theta.device) for start in (0, 0, 0, 1)
        )
        self._begin(torch, theta)

    def _begin(self, torch: Any, theta: Array) -> None:
        scale = self.scale[:, None, :]
        B, shape = len(theta), self.problem.shape
        self.theta.copy_(theta.reshape(B, -1))
        loss, slopes = self.problem(self.theta.view(shape))
        away = theta - self.anchor
        held = self.hold[:, None, :] * away
        self.loss = loss + (held * away).sum(dim=(1, 2)) / 2
        self.x.copy_((theta / scale).reshape(B, -1))
        self.g.copy_(((slopes + held) * scale).reshape(B, -1))
        self.d.copy_(-self.g)
        self.length = (1 / self.g.abs().sum(dim=1).clamp(min=1e-12)).clamp(max=1.0)
        self.slope = -(self.g * self.g).sum(dim=1)
        self.status.copy_((self.g.abs().amax(dim=1) <= 0).int())
        self.status.masked_fill_(~torch.isfinite(self.loss), 2)
        going = (self.status == 0)[:, None]
        trial = (self.x + self.length[:, None] * self.d).view(shape) * scale
        self.theta.copy_(torch.where(going, trial.reshape(B, -1), self.theta))

    def step(self) -> None:
        loss, slopes = self.problem(self.theta.view(self.problem.shape))
        step_kernel()[(len(self.theta),)](
            *(self.theta, self.anchor, self.hold, self.scale, self.x, self.g, self.d, slopes, self.S, self.Y),
            *(self.rho, self.alpha, loss, self.loss, self.length, self.slope, self.pairs, self.stalls, self.status),
            *(self.n_iter, self.P, self.width, self.tol, _SUFFICIENT, _STALLS, _MEMORY, _AT_ONCE),
            num_warps=16,
        )

    def recorded(self) -> Callable[[], None]:
        """A step, as a graph if it can be recorded; what it launches must have been launched before."""
        import torch

        if self.theta.device.type != "cuda":
            return self.step
        graph: Any = torch.cuda.CUDAGraph()
        try:
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.step()
            finally:
                graph.capture_end()
        except RuntimeError:
            return self.step
        replay: Callable[[], None] = graph.replay
        return replay


@cache
def _stream(device: Any, thread: int) -> Any:  # noqa: ARG001 - each thread has its own
    """The stream that descents of a thread run on: graphs are not recorded on the default one."""
    import torch

    return torch.cuda.Stream(device)


@contextmanager
def _aside(theta: Array) -> Iterator[None]:
    import torch

    if theta.device.type != "cuda":
        yield
        return
    own, before = _stream(theta.device, get_ident()), torch.cuda.current_stream(theta.device)
    own.wait_stream(before)
    with torch.cuda.stream(own):
        yield
    before.wait_stream(own)


def fused_lbfgs(
    problem: FusedLoss,
    theta: Array,
    anchor: Array,
    hold: Array,
    scale: Array,
    *,
    max_iter: int,
    tol: float = 1e-6,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """Minimise ``problem(theta) + 1/2 sum hold (theta - anchor)^2`` from ``theta (B, D, width)``.

    Descent is in ``theta / scale``; scale and hold are ``(B, width)``. Everything else is as in `lbfgs`.
    """
    with _aside(theta):
        return _descended(problem, theta, (anchor, hold, scale), max_iter, tol, callback)


def _descended(
    problem: FusedLoss,
    theta: Array,
    held: tuple[Array, Array, Array],
    max_iter: int,
    tol: float,
    callback: Callable[[int, int], None] | None,
) -> Solution:
    descent = _Descent(problem, theta, *held, tol)
    advance = descent.step  # the first step compiles
    for iteration in range(1, max_iter):
        if iteration == 2:
            advance = descent.recorded()
        if iteration % _LOOK_EVERY == 0:
            running = int((descent.status == 0).sum())
            if callback is not None:
                callback(iteration, running)
            if running == 0:
                break
        advance()
    status = descent.status.cpu().numpy()
    n_iter = np.where(status == 0, max_iter, descent.n_iter.cpu().numpy())
    found = descent.x.view(problem.shape) * descent.scale[:, None, :]
    loss = np.where(status == 2, np.inf, descent.loss.cpu().numpy())
    return Solution(found, loss, _STATUS[status], n_iter, None)
