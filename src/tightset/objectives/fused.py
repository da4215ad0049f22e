"""The losses of the default search on a CUDA device: two matrix products and three or four passes over scores a step.

    z = theta' x,     A_y = z_y - r,     r = log sum_c exp g_c  with  g = z (softmax), g of its own (two-matrix), or 0
    t_y = tanh(gamma / 2 (A_y - q)),     q where coverage is exact,     s = (C + sum_y t_y) / 2

As `Profiled` and `LogLoss` on `Linear`, `Softmax` and `TwoMatrix` in `Training`; nothing waits for the host, so that a
step can be recorded as a CUDA graph. Scores are computed once and read again by every pass, which costs less than to
keep what a pass found; the last one writes their derivatives in their place.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tightset.compute.arrays import Array
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training

__all__ = ["FusedTraining", "can_fuse", "in_float32"]

_ROWS = 256  # of a program
_ROWS_OF_ONE = 4096  # that the one program of a candidate looks at together, to find its threshold
_NEWTON_STEPS = 60
_ALIGNED = 16  # rows and columns: products read them fastest, and zeros add nothing
_GATES = {"linear": 0, "softmax": 1, "two-matrix": 2}


def can_fuse(problem: Training) -> bool:
    """Whether kernels are written for a problem, which lies on a device that Triton compiles for."""
    objective: Any = problem.objective
    X = problem.X
    if getattr(getattr(X, "device", None), "type", "") != "cuda" or X.dtype.itemsize != 4 or problem.centre is not None:
        return False
    if problem.measure.name not in _GATES or type(objective) not in (Profiled, LogLoss):
        return False
    if isinstance(objective, LogLoss) and problem.measure.name != "softmax":
        return False
    if isinstance(objective, Profiled) and objective.f not in (SIZE, LOG):
        return False
    try:
        _kernels()
    except ImportError:
        return False
    return True


@cache
def _kernels() -> tuple[Any, Any, Any, Any]:
    # The numbers of labels are no constants: each would have kernels of its own, which take seconds to compile.
    import triton
    import triton.language as tl

    @triton.jit(do_not_specialize=["D", "C"])
    def gates(U, r, alpha, labels, k, D, C, GATE: tl.constexpr, ROWS: tl.constexpr):
        """``r (B, k)``, and the scores of the own labels ``alpha (B, k)``, of ``U (B, D, k)``."""
        b = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = rows < k
        scores = U + b * D * k + rows
        label = tl.load(labels + rows, mask=there, other=0)
        own = tl.load(scores + label * k, mask=there, other=0.0)
        of_row = tl.zeros((ROWS,), tl.float32)
        if GATE > 0:
            top = tl.full((ROWS,), -float("inf"), tl.float32)
            for c in range(D - C, D):
                top = tl.maximum(top, tl.load(scores + c * k, mask=there, other=0.0))
            for c in range(D - C, D):
                of_row += tl.exp(tl.load(scores + c * k, mask=there, other=0.0) - top)
            of_row = top + tl.log(of_row)
        tl.store(r + b * k + rows, of_row, mask=there)
        tl.store(alpha + b * k + rows, own - of_row, mask=there)

    @triton.jit
    def thresholds(alpha, share, eps, gamma, q, k, tol, STEPS: tl.constexpr, ROWS: tl.constexpr):
        """Newton's method in a bracket, from the ``q (B,)`` of the last step, as `Profiled.threshold`."""
        b = tl.program_id(0).to(tl.int64)
        half = tl.load(gamma + b) / 2
        aimed = 1 - 2 * tl.load(eps + b)
        least = tl.full((ROWS,), float("inf"), tl.float32)
        most = tl.full((ROWS,), -float("inf"), tl.float32)
        for start in range(0, k, ROWS):
            rows = start + tl.arange(0, ROWS)
            a = tl.load(alpha + b * k + rows, mask=rows < k, other=0.0)
            seen = tl.load(share + b * k + rows, mask=rows < k, other=0.0) > 0
            least = tl.minimum(least, tl.where(seen, a, float("inf")))
            most = tl.maximum(most, tl.where(seen, a, -float("inf")))
        low = tl.min(least, axis=0) - 20 / half
        high = tl.max(most, axis=0) + 20 / half
        here = tl.load(q + b)
        here = tl.where((here > low) & (here < high), here, (low + high) / 2)
        excess = half * 0 + 1
        step = 0
        while (step < STEPS) & (tl.abs(excess) > tol):
            covered = tl.zeros((ROWS,), tl.float32)
            slopes = tl.zeros((ROWS,), tl.float32)
            for start in range(0, k, ROWS):
                rows = start + tl.arange(0, ROWS)
                a = tl.load(alpha + b * k + rows, mask=rows < k, other=0.0)
                w = tl.load(share + b * k + rows, mask=rows < k, other=0.0)
                x = (a - here) * half
                e = tl.exp(-2 * tl.abs(x))
                part = 1 / (1 + e)
                covered += w * tl.where(x < 0, -(1 - e) * part, (1 - e) * part)
                slopes += w * (4 * e * part * part)
            excess = (tl.sum(covered, axis=0) - aimed) / 2
            low = tl.where(excess > 0, here, low)
            high = tl.where(excess < 0, here, high)
            newton = here + excess / tl.maximum(half / 2 * tl.sum(slopes, axis=0), 1e-30)
            turn = tl.where((newton > low) & (newton < high), newton, (low + high) / 2)
            here = tl.where(tl.abs(excess) > tol, turn, here)
            step += 1
        tl.store(q + b, here)

    @triton.jit(do_not_specialize=["D", "C"])
    def sums(
        U, r, share, labels, gamma, q, parts, sizes, k, D, C, IN_LOG: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        """Of each block of rows the sums of ``w f(s)``, ``w t`` of the own label, and both slopes; and all ``s``."""
        b = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = rows < k
        scores = U + b * D * k + rows
        label = tl.load(labels + rows, mask=there, other=-1)
        w = tl.load(share + b * k + rows, mask=there, other=0.0)
        half = tl.load(gamma + b) / 2
        taken = tl.load(r + b * k + rows, mask=there, other=0.0) + tl.load(q + b)
        total = tl.zeros((ROWS,), tl.float32)
        slope = tl.zeros((ROWS,), tl.float32)
        own = tl.zeros((ROWS,), tl.float32)
        slope_of_own = tl.zeros((ROWS,), tl.float32)
        for c in range(C):
            x = (tl.load(scores + c * k, mask=there, other=0.0) - taken) * half
            e = tl.exp(-2 * tl.abs(x))
            part = 1 / (1 + e)
            t = tl.where(x < 0, -(1 - e) * part, (1 - e) * part)
            d = 4 * e * part * part
            total += t
            slope += d
            own = tl.where(label == c, t, own)
            slope_of_own = tl.where(label == c, d, slope_of_own)
        s = (C + total) / 2
        f = s
        if IN_LOG:
            f = tl.log(1 + s)
            slope = slope / (1 + s)
        at = parts + (b * tl.num_programs(0) + tl.program_id(0)) * 4
        tl.store(at, tl.sum(w * f, axis=0))
        tl.store(at + 1, tl.sum(w * own, axis=0))
        tl.store(at + 2, tl.sum(w * slope, axis=0))
        tl.store(at + 3, tl.sum(w * slope_of_own, axis=0))
        tl.store(sizes + b * k + rows, s, mask=there)

    @triton.jit(do_not_specialize=["n_parts", "D", "C"])
    def derivatives(
        U, r, alpha, share, labels, eps, gamma, q, parts, sizes, loss, k, n_parts, D, C,
        GATE: tl.constexpr, PROFILED: tl.constexpr, IN_LOG: tl.constexpr,
        PARTS: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        """``dL/dU`` in the place of ``U``, and the loss ``(B,)``; of `LogLoss` its terms are left in ``sizes``."""
        b = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = rows < k
        scores = U + b * D * k + rows
        label = tl.load(labels + rows, mask=there, other=-1)
        w = tl.load(share + b * k + rows, mask=there, other=0.0)
        of_row = tl.load(r + b * k + rows, mask=there, other=0.0)
        if PROFILED:
            half = tl.load(gamma + b) / 2
            f = tl.zeros((PARTS,), tl.float32)
            covered = tl.zeros((PARTS,), tl.float32)
            all_slopes = tl.zeros((PARTS,), tl.float32)
            own_slopes = tl.zeros((PARTS,), tl.float32)
            for start in range(0, n_parts, PARTS):
                here = start + tl.arange(0, PARTS)
                at = parts + (b * n_parts + here) * 4
                f += tl.load(at, mask=here < n_parts, other=0.0)
                covered += tl.load(at + 1, mask=here < n_parts, other=0.0)
                all_slopes += tl.load(at + 2, mask=here < n_parts, other=0.0)
                own_slopes += tl.load(at + 3, mask=here < n_parts, other=0.0)
            rho = tl.sum(all_slopes, axis=0) / tl.maximum(tl.sum(own_slopes, axis=0), 1e-30)
            excess = (tl.sum(covered, axis=0) - (1 - 2 * tl.load(eps + b))) / 2
            if tl.program_id(0) == 0:
                tl.store(loss + b, tl.sum(f, axis=0) - rho * excess)
            taken = of_row + tl.load(q + b)
            outer = w * half / 2
            if IN_LOG:
                outer = outer / (1 + tl.load(sizes + b * k + rows, mask=there, other=0.0))
            cost = rho * w * half / 2
            total = tl.zeros((ROWS,), tl.float32)
            for c in range(C):
                at = scores + c * k
                z = tl.load(at, mask=there, other=0.0)
                e = tl.exp(-2 * tl.abs((z - taken) * half))
                part = 1 / (1 + e)
                d = 4 * e * part * part * tl.where(label == c, outer - cost, outer)
                total += d
                if GATE != 1:
                    tl.store(at, d, mask=there)
            for c in range(D - C, D):
                at = scores + c * k
                if GATE == 1:
                    z = tl.load(at, mask=there, other=0.0)
                    e = tl.exp(-2 * tl.abs((z - taken) * half))
                    part = 1 / (1 + e)
                    d = 4 * e * part * part * tl.where(label == c, outer - cost, outer)
                    tl.store(at, d - tl.exp(z - of_row) * total, mask=there)
                if GATE == 2:
                    g = tl.load(at, mask=there, other=0.0)
                    tl.store(at, -tl.exp(g - of_row) * total, mask=there)
        else:
            own = tl.load(alpha + b * k + rows, mask=there, other=0.0)
            tl.store(parts + b * tl.num_programs(0) + tl.program_id(0), -tl.sum(w * own, axis=0))
            for c in range(C):
                at = scores + c * k
                p = tl.exp(tl.load(at, mask=there, other=0.0) - of_row)
                tl.store(at, w * tl.where(label == c, p - 1, p), mask=there)

    return gates, thresholds, sums, derivatives


def in_float32(torch: Any, a: Array, b: Array, out: Array) -> None:
    """``out <- a b`` to the precision of float32, whatever the process allows."""
    matmul = torch.backends.cuda.matmul
    try:
        allowed = matmul.allow_tf32
    except RuntimeError:  # the process speaks of precision by other words, which do not mix with these
        torch.matmul(a, b, out=out)
        return
    matmul.allow_tf32 = False
    try:
        torch.matmul(a, b, out=out)
    finally:
        matmul.allow_tf32 = allowed


class FusedTraining:
    """Loss ``(B,)`` and gradient ``(B, D, width)`` of the objective of a `Training`, without its pull.

    Parameters lie label by label, ``theta (B, D, width)``: columns have zeros up to ``width``, a multiple of 16, and
    rows up to a multiple of 16, of no weight. What a call returns is overwritten by the next.
    """

    def __init__(self, problem: Training) -> None:
        import torch

        objective: Any = problem.objective
        pad, X = torch.nn.functional.pad, problem.X
        B, m, D = problem.anchor.shape
        rows, columns = -len(X) % _ALIGNED, -m % _ALIGNED
        how = {"dtype": X.dtype, "device": X.device}
        self.shape = (B, D, m + columns)
        self.C = problem.measure.labels(D)
        self.gate = _GATES[problem.measure.name]
        self.profiled = isinstance(objective, Profiled)
        self.in_log = self.profiled and objective.f == LOG
        self.X = pad(X, (0, columns, 0, rows)).contiguous()
        k = len(self.X)
        labels = np.concatenate([problem.y, np.zeros(rows, dtype=np.int64)]).astype(np.int32)
        self.labels = torch.as_tensor(labels, device=X.device)
        self.share = pad(problem.share, (0, rows)).contiguous()
        self.eps, self.gamma = (objective.eps, objective.gamma) if self.profiled else (torch.zeros(B, **how),) * 2
        self.tol = float(objective.tol) if self.profiled else 0.0
        self.U = torch.empty((B, D, k), **how)
        self.gradient = torch.empty(self.shape, **how)
        self.r, self.alpha, self.sizes = (torch.empty((B, k), **how) for _ in range(3))
        self.q, self.loss = torch.zeros(B, **how), torch.zeros(B, **how)  # aligned: kernels are compiled for that
        self.programs = (-(-k // _ROWS), B)
        self.parts = torch.empty((B, self.programs[0], 4 if self.profiled else 1), **how)

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        import torch

        (B, D, width), k, C = self.shape, len(self.X), self.C
        gates, thresholds, sums, derivatives = _kernels()
        in_float32(torch, theta.view(B * D, width), self.X.T, self.U.view(B * D, k))
        gates[self.programs](self.U, self.r, self.alpha, self.labels, k, D, C, self.gate, _ROWS)
        if self.profiled:
            how = (self.eps, self.gamma, self.q, k, self.tol, _NEWTON_STEPS, _ROWS_OF_ONE)
            thresholds[(B,)](self.alpha, self.share, *how, num_warps=16)
            given = (self.U, self.r, self.share, self.labels, self.gamma, self.q, self.parts, self.sizes)
            sums[self.programs](*given, k, D, C, self.in_log, _ROWS)
        derivatives[self.programs](
            *(self.U, self.r, self.alpha, self.share, self.labels, self.eps, self.gamma, self.q, self.parts),
            *(self.sizes, self.loss, k, self.programs[0], D, C, self.gate, self.profiled, self.in_log, 64, _ROWS),
        )
        if not self.profiled:
            torch.sum(self.parts, dim=(1, 2), out=self.loss)
        in_float32(torch, self.U.view(B * D, k), self.X, self.gradient.view(B * D, width))
        return self.loss, self.gradient
