"""Descents of the search on a device: by kernels that never wait for the host, where there are some for the task."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tightset.compute.arrays import Array
from tightset.exceptions import warn
from tightset.measures import MEASURES
from tightset.objectives.fused import FusedTraining, can_fuse
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training
from tightset.solvers.descent import Solution
from tightset.solvers.fused_lbfgs import fused_lbfgs
from tightset.solvers.lbfgs import lbfgs

__all__ = ["descended"]


def descended(
    problem: Training,
    theta: Array,
    *,
    max_iter: int,
    tol: float = 1e-6,
    scale: Array | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """`lbfgs` from ``theta (B, m, D)``, on whatever the problem lies; ``scale (B, m, 1)``."""
    if not (can_fuse(problem) and _kernels_work(problem.X.device)):
        return lbfgs(problem, theta, max_iter=max_iter, tol=tol, scale=scale, callback=callback)
    return _fused(problem, theta, scale, max_iter, tol, callback)


@cache
def _kernels_work(device: Any) -> bool:
    """Whether a small descent by kernels comes to an end here: they need a compiler, which may be missing."""
    import torch

    def place(x: Any) -> Array:
        return torch.as_tensor(np.asarray(x, dtype=np.float32), device=device)

    rng, y = np.random.default_rng(0), np.repeat([0, 1], 20)
    X = np.column_stack([y + rng.standard_normal(40), np.ones(40)])
    start, numbers = place(np.zeros((1, 2, 4))), place(np.ones(1))
    objective = Profiled(numbers / 10, numbers, tol=1e-4)
    problem = Training(
        place(X), y, MEASURES["two-matrix"], objective, place(np.ones((1, 40))), start, start[..., :1] + 1
    )
    try:
        _fused(problem, start, None, max_iter=4, tol=0.0, callback=None)
    except Exception as error:  # noqa: BLE001 - of a compiler, a linker, a driver
        warn(f"the kernels for device {str(device)!r} do not run here ({error!r}); fits there take longer without them")
        return False
    return True


def _fused(
    problem: Training,
    theta: Array,
    scale: Array | None,
    max_iter: int,
    tol: float,
    callback: Callable[[int, int], None] | None,
) -> Solution:
    import torch

    pad, loss = torch.nn.functional.pad, FusedTraining(problem)
    (B, m, _), width = theta.shape, loss.shape[2]

    def by_label(parameters: Array) -> Array:
        return pad(parameters.transpose(1, 2), (0, width - m)).contiguous()

    hold = pad(problem.pull.expand(B, m, 1)[..., 0], (0, width - m)).contiguous()
    unit = torch.ones_like(hold) if scale is None else pad(scale.expand(B, m, 1)[..., 0], (0, width - m), value=1.0)
    parts = by_label(theta), by_label(problem.anchor), hold, unit.contiguous()
    found = fused_lbfgs(loss, *parts, max_iter=max_iter, tol=tol, callback=callback)
    return found._replace(theta=found.theta[:, :, :m].transpose(1, 2))
