"""The paper's loss on a CUDA device: two matrix products and two passes over the scores per step, nothing on the host.

    t = tanh(X theta'),     theta' = gamma / 2 (theta - q e),     e the intercept
    s = (C + sum_y t_y) / 2,     L = mean f(s) + lam V^2
    dA = a (t^2 - 1) (w f'(s) + 2 lam V w [own]),     dL/dtheta = X' dA

The first pass writes ``t`` over the scores and reads off ``s`` and ``t`` of the own label; the second writes ``dA``
over ``t``. The first product is made of three of TF32 numbers, which are exact to float32 together and faster than one
of float32; the second would have to split the largest array for that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tightset.compute.arrays import Array
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.objectives.penalised import Penalised, Sums

__all__ = ["FusedSurrogate", "can_fuse", "fused"]

_ROWS = 256  # of a program
_ALIGNED = 8  # columns: rows begin where the matrix units want them to


def can_fuse(X: Array) -> bool:
    """Whether ``X`` is of float32 and lies on a device that Triton compiles for."""
    if getattr(getattr(X, "device", None), "type", "") != "cuda" or X.dtype.itemsize != 4:
        return False
    try:
        _kernels()
    except ImportError:
        return False
    return True


@cache
def _kernels() -> tuple[Any, Any]:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def squash(scores, sizes, own, labels, k, C: tl.constexpr, ROWS: tl.constexpr):
        candidate = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = rows < k
        label = tl.load(labels + rows, mask=there, other=-1)
        total = tl.zeros((ROWS,), tl.float32)
        of_own = tl.zeros((ROWS,), tl.float32)
        for c in range(C):
            at = scores + (candidate * C + c) * k + rows
            t = libdevice.tanh(tl.load(at, mask=there, other=0.0))
            tl.store(at, t, mask=there)
            total += t
            of_own = tl.where(label == c, t, of_own)
        tl.store(sizes + candidate * k + rows, (C + total) / 2, mask=there)
        tl.store(own + candidate * k + rows, of_own, mask=there)

    @triton.jit
    def slopes(t, by_row, stride, by_candidate, weight, labels, k, C: tl.constexpr, ROWS: tl.constexpr):
        candidate = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = rows < k
        label = tl.load(labels + rows, mask=there, other=-1)
        outer = tl.load(by_row + candidate * stride + rows, mask=there, other=0.0)
        extra = tl.load(by_candidate + candidate) * tl.load(weight + rows, mask=there, other=0.0)
        for c in range(C):
            at = t + (candidate * C + c) * k + rows
            value = tl.load(at, mask=there, other=0.0)
            tl.store(at, (value * value - 1) * (outer + tl.where(label == c, extra, 0.0)), mask=there)

    return squash, slopes


def _in_two(x: Array) -> tuple[Array, Array]:
    """``x`` rounded to TF32, and the rest."""
    import torch

    high = ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return high, x - high


class FusedSurrogate:
    """`Surrogate` for float32 tensors ``X (k, m)`` on a CUDA device, all rows at once.

    X has columns of zeros to a multiple of 8; y : (k,) int32 tensor; weight : (k,) tensor, ones where rows are not
    weighted. What a call returns is valid until the next one: the second call records its kernels as a graph, and all
    later ones replay that, which spares the host forty launches a step.
    """

    def __init__(self, X: Array, y: Array, weight: Array, objective: Penalised) -> None:
        import torch

        self.X, self.y, self.weight, self.objective = X, y, weight, objective
        high, low = _in_two(X)
        self._X_in_three = torch.cat([high, low, high], dim=1)
        self._total = weight.sum()
        self._theta: Array = None
        self._graph: Any = None
        self._found: Any = None

    def take(self, candidates: Any) -> FusedSurrogate:
        return FusedSurrogate(self.X, self.y, self.weight, self.objective.take(candidates))

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        import torch

        if self.objective.f not in (SIZE, LOG):  # somebody else's function may look at its values, which no graph can
            return self._step(theta)
        if self._theta is None:  # compiles, and lets the libraries make themselves ready
            self._theta = theta.clone()
            return self._step(theta)
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._found = self._step(self._theta)
        self._theta.copy_(theta)
        self._graph.replay()
        loss, gradient = self._found
        return loss, gradient

    def _step(self, theta: Array) -> tuple[Array, Array]:
        import torch

        objective, (k, width), (B, m, C) = self.objective, self.X.shape, theta.shape
        squash, slopes = _kernels()
        scaled = torch.zeros((B, C, width), dtype=theta.dtype, device=theta.device)
        torch.mul(theta.transpose(1, 2), (objective.gamma / 2)[:, None, None], out=scaled[:, :, :m])
        scaled[:, :, m - 1] -= (objective.q * objective.gamma / 2)[:, None]
        t = self._scores(scaled.view(B * C, width))
        s, own = torch.empty((2, B, k), dtype=t.dtype, device=t.device)
        programs = (-(-k // _ROWS), B)
        squash[programs](t, s, own, self.y, k, C, _ROWS)
        covered = (self._total + own @ self.weight) / 2
        loss, a, b = objective.combine(Sums(self._total.expand(B), objective.f(s) @ self.weight, covered))
        if objective.f == SIZE:
            by_row, stride = self.weight, 0
        else:
            by_row, stride = (objective.f.derivative(s) * self.weight).contiguous(), k
        slopes[programs](t, by_row, stride, (b / a).contiguous(), self.weight, self.y, k, C, _ROWS)
        gradient = (t @ self.X).view(B, C, width)[:, :, :m].transpose(1, 2)
        return loss, gradient * a[:, None, None]

    def _scores(self, theta: Array) -> Array:
        """``theta X'`` as the sum of products of TF32 numbers: high with high, high with low, low with high."""
        import torch

        high, low = _in_two(theta)
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return torch.cat([high, high, low], dim=1) @ self._X_in_three.T
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed


def fused(X: Array, y: np.ndarray, weight: Array | None, objective: Penalised) -> FusedSurrogate:
    """The loss over rows and weights that are on the device; the labels are brought there."""
    import torch

    labels = torch.as_tensor(np.asarray(y, dtype=np.int32), device=X.device)
    weight = torch.ones(len(y), dtype=X.dtype, device=X.device) if weight is None else weight
    wide = torch.nn.functional.pad(X, (0, -X.shape[1] % _ALIGNED))
    return FusedSurrogate(wide, labels, weight, objective)
