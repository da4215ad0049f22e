"""L-BFGS with a separate line search for every candidate of a batch.

Each iteration evaluates the whole batch once. A candidate whose trial point is good enough accepts it and computes a
new direction; any other shortens its step and tries again. No candidate waits for the line search of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from tightset.compute.arrays import Array, namespace, row_dots, to_numpy
from tightset.solvers.descent import Problem, Solution

__all__ = ["lbfgs"]

_SUFFICIENT = 1e-4  # of the decrease that the slope promises
_STALLS = 3  # steps in a row without progress, after which a candidate has converged
_LOOK_EVERY_ON_DEVICE = 10  # steps; to look who has converged holds the device up


@dataclass
class _State:
    """Of each candidate: the point taken last, the direction from it and how far to go, and the last pairs."""

    x: Array  # (B, P)
    loss: Array  # (B,)
    gradient: Array  # (B, P)
    direction: Array  # (B, P)
    length: Array  # (B,)
    slope: Array  # (B,), along the direction
    S: Array  # (B, memory, P): steps; a new one takes the place of the oldest
    Y: Array  # (B, memory, P): changes of the gradient
    pairs: Array  # (B,): how many there were
    stalls: Array  # (B,)

    def take(self, keep: np.ndarray) -> Self:
        return replace(self, **{f.name: getattr(self, f.name)[keep] for f in fields(self)})


def lbfgs(
    problem: Problem,
    theta: Array,
    *,
    max_iter: int,
    memory: int = 10,
    tol: float = 1e-6,
    scale: Array | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """Minimise from ``theta (B, ...)``; a candidate stops when three steps in a row gain less than ``tol`` (relative).

    Descent is in ``theta / scale``, with ``scale`` of the shape of ``theta`` or one that broadcasts to it: the better
    the loss is conditioned there, the fewer steps. ``max_iter`` counts evaluations. A candidate without a finite start
    gets the status ``nonfinite`` and the loss infinity; trial points that are not finite are only stepped back from.

    >>> class Bowl:
    ...     def __call__(self, theta):
    ...         return (theta**2).sum(axis=1), 2 * theta
    ...
    ...     def take(self, candidates):
    ...         return self
    >>> lbfgs(Bowl(), np.ones((1, 2)), max_iter=20).loss.item()
    0.0
    """
    xp = namespace(theta)
    B, shape = theta.shape[0], theta.shape[1:]
    found = xp.asarray(theta, copy=True)
    loss_of = np.full(B, np.inf)
    status = np.full(B, "max_iter", dtype="<U9")
    n_iter = np.full(B, max_iter)
    active, current = np.arange(B), problem
    scales = xp.reshape(xp.ones_like(theta) if scale is None else xp.broadcast_to(scale, theta.shape), (B, -1))

    def evaluate(x: Array) -> tuple[Array, Array]:
        loss, gradient = current(xp.reshape(x * scales, (len(active), *shape)))
        return loss, xp.reshape(gradient, x.shape) * scales

    x = xp.reshape(xp.asarray(theta, copy=True), (B, -1)) / scales
    with np.errstate(all="ignore"):
        loss, gradient = evaluate(x)
    none = xp.zeros((B, memory, x.shape[1]), dtype=x.dtype, device=x.device)
    size = xp.sum(xp.abs(gradient), axis=1)
    state = _State(
        x,
        loss,
        gradient,
        direction=-gradient,
        length=xp.clip(1 / xp.clip(size, 1e-12, None), None, 1.0),
        slope=-row_dots(gradient, gradient),
        S=none,
        Y=xp.zeros_like(none),
        pairs=xp.zeros(B, dtype=xp.int64, device=x.device),
        stalls=xp.zeros(B, dtype=xp.int64, device=x.device),
    )
    failed = ~np.isfinite(to_numpy(loss))
    every = 1 if isinstance(x, np.ndarray) else _LOOK_EVERY_ON_DEVICE
    for iteration in range(1, max_iter + 1):
        still = np.zeros(len(active), dtype=bool)
        if (iteration - 1) % every == 0 or iteration == max_iter:
            still = to_numpy((state.stalls >= _STALLS) | (xp.max(xp.abs(state.gradient), axis=1) <= 0))
        done = failed | still | (iteration == max_iter)
        if done.any():
            at = np.flatnonzero(done)
            found[active[at]] = xp.reshape(state.x[at] * scales[at], (len(at), *shape))
            loss_of[active[at]] = np.where(failed[at], np.inf, to_numpy(state.loss)[at])
            status[active[still]] = "converged"
            status[active[failed]] = "nonfinite"
            n_iter[active[at]] = iteration
            keep = np.flatnonzero(~done)
            if len(keep) == 0:
                break
            active, state, failed, scales = active[keep], state.take(keep), failed[keep], scales[keep]
            current = problem.take(active)
        with np.errstate(all="ignore"):  # a trial point may overflow; it is then stepped back from
            trial = state.x + state.length[:, None] * state.direction
            state = _advance(state, trial, *evaluate(trial), tol)
        if callback is not None:
            callback(iteration, len(active))
    return Solution(found, loss_of, status, n_iter, None)


def _advance(old: _State, trial: Array, loss: Array, gradient: Array, tol: float) -> _State:
    """Take the trial point and turn, or stay and shorten the step. The memory of pairs is written in place."""
    xp = namespace(trial)
    rounding = 4 * xp.finfo(loss.dtype).eps * xp.abs(old.loss)
    good = loss <= old.loss + _SUFFICIENT * old.length * old.slope + rounding
    # the minimum of the parabola through both losses and the slope, kept between a tenth and a half
    parabola = -old.slope * old.length / (2 * ((loss - old.loss) / old.length - old.slope))
    shorter = xp.where(xp.isfinite(parabola), parabola, old.length / 10)
    shorter = xp.minimum(xp.maximum(shorter, old.length / 10), old.length / 2)
    pick = good[:, None]
    x, g = xp.where(pick, trial, old.x), xp.where(pick, gradient, old.gradient)
    s, y = x - old.x, g - old.gradient
    sy, ss, yy = row_dots(s, y), row_dots(s, s), row_dots(y, y)
    # A pair without curvature would make the direction go uphill.
    curved = good & (sy > 1e-8 * xp.sqrt(ss * yy))
    place = xp.arange(len(s), device=s.device), old.pairs % old.S.shape[1]
    old.S[place] = xp.where(curved[:, None], s, old.S[place])
    old.Y[place] = xp.where(curved[:, None], y, old.Y[place])
    pairs = old.pairs + xp.astype(curved, old.pairs.dtype)
    direction = _direction(old.S, old.Y, pairs, g)
    slope = row_dots(direction, g)
    downhill = slope < 0
    direction = xp.where(downhill[:, None], direction, -g)
    slope = xp.where(downhill, slope, -row_dots(g, g))
    # A step that gained next to nothing, or a rejected one that could not have gained more.
    little = tol * xp.abs(old.loss)
    stalled = xp.where(good, old.loss - loss <= little, -old.length * old.slope <= little)
    stalls = xp.where(stalled, old.stalls + 1, xp.where(good, xp.zeros_like(old.stalls), old.stalls))
    return _State(
        x,
        xp.where(good, loss, old.loss),
        g,
        direction=xp.where(pick, direction, old.direction),
        length=xp.where(good, xp.where(pairs > 0, xp.ones_like(slope), old.length), shorter),
        slope=xp.where(good, slope, old.slope),
        S=old.S,
        Y=old.Y,
        pairs=pairs,
        stalls=stalls,
    )


def _direction(S: Array, Y: Array, pairs: Array, g: Array) -> Array:
    """``-H g`` by the compact form of the inverse BFGS matrix (Byrd, Nocedal and Schnabel).

        H = c I + [S  c Y] [[R^-T (D + c Y'Y) R^-1, -R^-T], [-R^-1, 0]] [S  c Y]',    R = triu(S'Y), D = diag(S'Y)

    with ``c`` from the latest pair. The small matrices are put in order of age first, as ``R`` demands. Slots not yet
    filled are zero; a one on the diagonal of ``R`` leaves them out.
    """
    xp = namespace(g)
    B, M, _ = S.shape
    age = (pairs[:, None] + xp.arange(M, device=g.device)) % M  # slots, the oldest first
    place = (xp.arange(M, device=g.device) - pairs[:, None]) % M  # of each slot in that order
    square = xp.broadcast_to(age[:, :, None], (B, M, M)), xp.broadcast_to(age[:, None, :], (B, M, M))

    def small(a: Array) -> Array:
        return xp.astype(a, xp.float64)

    def aged(a: Array) -> Array:
        return xp.take_along_axis(xp.take_along_axis(small(a), square[0], axis=1), square[1], axis=2)

    Yt = xp.matrix_transpose(Y)
    SY, YY = aged(S @ Yt), aged(Y @ Yt)
    Sg, Yg = (xp.take_along_axis(small((a @ g[..., None])[..., 0]), age, axis=1) for a in (S, Y))
    diagonal = xp.linalg.diagonal(SY)
    empty = diagonal <= 0
    eye = xp.eye(M, dtype=xp.float64, device=g.device)
    R = xp.triu(SY) * (1 - eye) + eye * xp.where(empty, 1.0, diagonal)[:, None, :]
    last = YY[:, -1, -1]
    c = xp.where(last > 0, diagonal[:, -1] / xp.where(last > 0, last, 1.0), 1.0)[:, None]
    u = xp.linalg.solve(R, Sg[..., None])[..., 0]
    v = xp.where(empty, 0.0, diagonal) * u + c * ((YY @ u[..., None])[..., 0] - Yg)
    v = xp.linalg.solve(xp.matrix_transpose(R), v[..., None])[..., 0]
    u, v = (xp.astype(xp.take_along_axis(a, place, axis=1), g.dtype)[:, None, :] for a in (c * u, v))
    return (u @ Y - v @ S)[:, 0] - xp.astype(c, g.dtype) * g
