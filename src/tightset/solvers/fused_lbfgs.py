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

__all__ = ["FusedLoss", "fused_lbfgs"]

_SUFFICIENT = 1e-4
_STALLS = 3
_LOOK_EVERY = 16  # steps
_AT_ONCE = 4096  # parameters that a program works on together
_STATUS = np.array(["max_iter", "converged", "nonfinite"])


class FusedLoss(Protocol):
    """Loss ``(B,)`` and gradient ``(B, D, width)`` by kernels alone, in the same memory every time."""

    shape: tuple[int, int, int]

    def __call__(self, theta: Array) -> tuple[Array, Array]: ...


@cache
def _kernels() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def advance(
        theta, anchor, hold, scale, x, g, d, g_trial, S, Y, rho, alpha, loss_trial, loss, length, slope, pairs, stalls,
        status, n_iter, P, width, tol, sufficient, STALLS: tl.constexpr, MEMORY: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Take the trial point and turn, or stay and shorten the step; ``theta`` is the next trial point."""
        b = tl.program_id(0).to(tl.int64)
        if tl.load(status + b) == 0:
            off = tl.arange(0, BLOCK)
            base = b * P
            memory = b * MEMORY * P
            old = tl.load(loss + b)
            far = tl.load(length + b)
            down = tl.load(slope + b)
            n = tl.load(pairs + b)
            stalled = tl.load(stalls + b)
            # the whole loss at the trial point, and its gradient by x = theta / scale
            held = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, P, BLOCK):
                at = start + off
                there = at < P
                pull = tl.load(hold + b * width + at % width, mask=there, other=0.0)
                unit = tl.load(scale + b * width + at % width, mask=there, other=0.0)
                away = tl.load(theta + base + at, mask=there, other=0.0) - tl.load(
                    anchor + base + at, mask=there, other=0.0
                )
                held += pull * away * away
                slopes = tl.load(g_trial + base + at, mask=there, other=0.0) + pull * away
                tl.store(g_trial + base + at, slopes * unit, mask=there)
            new = tl.load(loss_trial + b) + tl.sum(held, axis=0) / 2
            tl.debug_barrier()
            good = new <= old + sufficient * far * down + 4 * 1.1920929e-7 * tl.abs(old)
            little = tol * tl.abs(old)
            if good:
                stalled = tl.where(old - new <= little, stalled + 1, 0)
                sy = tl.zeros((BLOCK,), tl.float32)
                ss = tl.zeros((BLOCK,), tl.float32)
                yy = tl.zeros((BLOCK,), tl.float32)
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    here = tl.load(x + base + at, mask=there, other=0.0)
                    s = here + far * tl.load(d + base + at, mask=there, other=0.0) - here
                    y = tl.load(g_trial + base + at, mask=there, other=0.0) - tl.load(
                        g + base + at, mask=there, other=0.0
                    )
                    sy += s * y
                    ss += s * s
                    yy += y * y
                s_y = tl.sum(sy, axis=0)
                y_y = tl.sum(yy, axis=0)
                # A pair without curvature would make the direction go uphill.
                curved = s_y > 1e-8 * tl.sqrt(tl.sum(ss, axis=0)) * tl.sqrt(y_y)
                kept = tl.where(curved, P, 0)
                slot = n % MEMORY
                last = (n + MEMORY - 1) % MEMORY  # the newest pair, once this one is in
                if curved:
                    last = slot
                    n += 1
                    tl.store(rho + b * MEMORY + slot, 1 / s_y)
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    here = tl.load(x + base + at, mask=there, other=0.0)
                    taken = here + far * tl.load(d + base + at, mask=there, other=0.0)
                    slopes = tl.load(g_trial + base + at, mask=there, other=0.0)
                    s = taken - here
                    y = slopes - tl.load(g + base + at, mask=there, other=0.0)
                    tl.debug_barrier()  # what is read is overwritten
                    tl.store(S + memory + slot * P + at, s, mask=at < kept)
                    tl.store(Y + memory + slot * P + at, y, mask=at < kept)
                    tl.store(x + base + at, taken, mask=there)
                    tl.store(g + base + at, slopes, mask=there)
                    tl.store(d + base + at, slopes, mask=there)
                tl.debug_barrier()
                count = tl.minimum(n, MEMORY)
                if count > 0:
                    first_dot = tl.zeros((BLOCK,), tl.float32)
                    latest = tl.zeros((BLOCK,), tl.float32)
                    # the two-loop recursion; each pass takes one pair off and multiplies with the next
                    for start in range(0, P, BLOCK):
                        at = start + off
                        there = at < P
                        first_dot += tl.load(S + memory + last * P + at, mask=there, other=0.0) * tl.load(
                            d + base + at, mask=there, other=0.0
                        )
                        y = tl.load(Y + memory + last * P + at, mask=there, other=0.0)
                        latest += y * y
                    dot = tl.sum(first_dot, axis=0)
                    newest = tl.load(rho + b * MEMORY + last)
                    curvature = 1 / (newest * tl.maximum(tl.sum(latest, axis=0), 1e-37))
                    for i in range(count):
                        slot = (last + 2 * MEMORY - i) % MEMORY
                        before = (last + 2 * MEMORY - i - 1) % MEMORY
                        a = dot * tl.load(rho + b * MEMORY + slot)
                        tl.store(alpha + b * MEMORY + slot, a)
                        of_oldest = tl.where(i == count - 1, P, 0)
                        factor = tl.where(i == count - 1, curvature, 1.0)
                        next_dot = tl.zeros((BLOCK,), tl.float32)
                        for start in range(0, P, BLOCK):
                            at = start + off
                            there = at < P
                            v = tl.load(d + base + at, mask=there, other=0.0)
                            v -= a * tl.load(Y + memory + slot * P + at, mask=there, other=0.0)
                            v *= factor
                            tl.store(d + base + at, v, mask=there)
                            # the pair before, or where there is none the first product of the way back
                            s = tl.load(S + memory + before * P + at, mask=there & (at >= of_oldest), other=0.0)
                            y = tl.load(Y + memory + slot * P + at, mask=at < of_oldest, other=0.0)
                            next_dot += v * (s + y)
                        dot = tl.sum(next_dot, axis=0)
                        tl.debug_barrier()
                    for i in range(count):
                        slot = (last + 2 * MEMORY - count + 1 + i) % MEMORY
                        after = (slot + 1) % MEMORY
                        more = tl.load(alpha + b * MEMORY + slot) - dot * tl.load(rho + b * MEMORY + slot)
                        next_dot = tl.zeros((BLOCK,), tl.float32)
                        for start in range(0, P, BLOCK):
                            at = start + off
                            there = at < P
                            v = tl.load(d + base + at, mask=there, other=0.0)
                            v += more * tl.load(S + memory + slot * P + at, mask=there, other=0.0)
                            tl.store(d + base + at, v, mask=there)
                            next_dot += v * tl.load(Y + memory + after * P + at, mask=there, other=0.0)
                        dot = tl.sum(next_dot, axis=0)
                        tl.debug_barrier()
                along = tl.zeros((BLOCK,), tl.float32)
                steep = tl.zeros((BLOCK,), tl.float32)
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    slopes = tl.load(g + base + at, mask=there, other=0.0)
                    along += slopes * tl.load(d + base + at, mask=there, other=0.0)
                    steep += slopes * slopes
                down = -tl.sum(along, axis=0)
                downhill = down < 0
                down = tl.where(downhill, down, -tl.sum(steep, axis=0))
                tl.debug_barrier()
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    v = tl.load(d + base + at, mask=there, other=0.0)
                    slopes = tl.load(g + base + at, mask=there, other=0.0)
                    tl.store(d + base + at, tl.where(downhill, -v, -slopes), mask=there)
                tl.debug_barrier()
                far = tl.where(n > 0, 1.0, far)
                tl.store(loss + b, new)
                tl.store(slope + b, down)
                tl.store(pairs + b, n)
            else:
                stalled = tl.where(-far * down <= little, stalled + 1, stalled)
                # the minimum of the parabola through both losses and the slope, kept between a tenth and a half
                parabola = -down * far / (2 * ((new - old) / far - down))
                finite = tl.abs(parabola) < float("inf")  # not of what is no number either
                far = tl.minimum(tl.maximum(tl.where(finite, parabola, far / 10), far / 10), far / 2)
            greatest = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, P, BLOCK):
                at = start + off
                greatest = tl.maximum(greatest, tl.abs(tl.load(g + base + at, mask=at < P, other=0.0)))
            still = (stalled >= STALLS) | (tl.max(greatest, axis=0) <= 0)
            tl.store(length + b, far)
            tl.store(stalls + b, stalled)
            tl.store(status + b, tl.where(still, 1, 0))
            tl.store(n_iter + b, tl.load(n_iter + b) + 1)
            ahead = tl.where(still, 0.0, far)
            for start in range(0, P, BLOCK):
                at = start + off
                there = at < P
                unit = tl.load(scale + b * width + at % width, mask=there, other=0.0)
                v = tl.load(x + base + at, mask=there, other=0.0)
                v += ahead * tl.load(d + base + at, mask=there, other=0.0)
                tl.store(theta + base + at, v * unit, mask=there)

    return advance


class _Descent:
    """The state of all candidates on the device; parameters lie as `FusedLoss` wants them."""

    def __init__(
        self, problem: FusedLoss, theta: Array, anchor: Array, hold: Array, scale: Array, memory: int, tol: float
    ) -> None:
        import torch

        self.problem, self.anchor, self.hold, self.scale = problem, anchor, hold, scale
        self.memory, self.tol = memory, tol
        B, D, width = problem.shape
        self.P, self.width = D * width, width
        how = {"dtype": theta.dtype, "device": theta.device}
        self.theta, self.x, self.g, self.d = torch.empty((4, B, self.P), **how)
        self.S, self.Y = torch.zeros((2, B, memory, self.P), **how)
        self.rho, self.alpha = torch.zeros((B, memory), **how), torch.zeros((B, memory), **how)
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
        _kernels()[(len(self.theta),)](
            *(self.theta, self.anchor, self.hold, self.scale, self.x, self.g, self.d, slopes, self.S, self.Y),
            *(self.rho, self.alpha, loss, self.loss, self.length, self.slope, self.pairs, self.stalls, self.status),
            *(self.n_iter, self.P, self.width, self.tol, _SUFFICIENT, _STALLS, self.memory, _AT_ONCE),
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
    memory: int = 10,
    tol: float = 1e-6,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """Minimise ``problem(theta) + 1/2 sum hold (theta - anchor)^2`` from ``theta (B, D, width)``.

    Descent is in ``theta / scale``; scale and hold are ``(B, width)``. Everything else is as in `lbfgs`.
    """
    with _aside(theta):
        return _descended(problem, theta, (anchor, hold, scale), max_iter, memory, tol, callback)


def _descended(
    problem: FusedLoss,
    theta: Array,
    held: tuple[Array, Array, Array],
    max_iter: int,
    memory: int,
    tol: float,
    callback: Callable[[int, int], None] | None,
) -> Solution:
    descent = _Descent(problem, theta, *held, memory, tol)
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
