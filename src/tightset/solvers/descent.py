"""Optimisers with a rate, for the paper's grid, as pure ``init`` / ``update`` pairs, and their loop.

Every candidate descends on its own: its rate, its stopping, its failure. Nothing here knows what is minimised.

Conventions
-----------
theta, gradient, step : (B, ...) with the candidate axis first; rates : (B,).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from tightset.compute.arrays import Array, namespace, to_numpy

__all__ = ["OPTIMISERS", "Adam", "GradientDescent", "Problem", "Solution", "minimise"]


class Problem(Protocol):
    """Loss and gradient of all candidates at once; `take` keeps only some of them."""

    def __call__(self, theta: Array) -> tuple[Array, Array]: ...
    def take(self, candidates: Array) -> Problem: ...


def _per_candidate(rate: Array, like: Array) -> Array:
    return namespace(rate).reshape(rate, (-1,) + (1,) * (like.ndim - 1))


class GradientDescent(NamedTuple):
    """``step = -rate * gradient`` with a constant rate, as in the paper."""

    rate: Array

    def init(self, theta: Array) -> tuple[()]:  # noqa: ARG002 - no memory
        return ()

    def update(self, gradient: Array, state: tuple[()]) -> tuple[Array, tuple[()]]:
        return -_per_candidate(self.rate, gradient) * gradient, state

    def take(self, state: tuple[()], keep: Array) -> tuple[Self, tuple[()]]:
        return self._replace(rate=self.rate[keep]), state


class AdamState(NamedTuple):
    steps: int
    mean: Array
    square: Array


class Adam(NamedTuple):
    """Adam (Kingma and Ba): steps of about ``rate`` in every coordinate, whatever the gradient's scale."""

    rate: Array
    decay_mean: float = 0.9
    decay_square: float = 0.999
    eps: float = 1e-8

    def init(self, theta: Array) -> AdamState:
        zeros = namespace(theta).zeros_like
        return AdamState(0, zeros(theta), zeros(theta))

    def update(self, gradient: Array, state: AdamState) -> tuple[Array, AdamState]:
        b1, b2 = self.decay_mean, self.decay_square
        count = state.steps + 1
        mean = b1 * state.mean + (1 - b1) * gradient
        square = b2 * state.square + (1 - b2) * gradient**2
        size = (square / (1 - b2**count)) ** 0.5 + self.eps
        step = -_per_candidate(self.rate, gradient) * mean / (1 - b1**count) / size
        return step, AdamState(count, mean, square)

    def take(self, state: AdamState, keep: Array) -> tuple[Self, AdamState]:
        kept = AdamState(state.steps, state.mean[keep], state.square[keep])
        return self._replace(rate=self.rate[keep]), kept


OPTIMISERS = {"gradient-descent": GradientDescent, "adam": Adam}


class Solution(NamedTuple):
    """Where each candidate ended.

    theta : (B, ...); loss : (B,), infinite where the descent failed; status : (B,) of ``"converged"``,
    ``"max_iter"``, ``"nonfinite"``; n_iter : (B,); trace : (iterations, B) or None, NaN after a candidate stopped.
    """

    theta: Array
    loss: np.ndarray
    status: np.ndarray
    n_iter: np.ndarray
    trace: np.ndarray | None


def minimise(
    problem: Problem,
    theta: Array,
    optimiser: Any,
    *,
    max_iter: int,
    tol: float = 0.0,
    check_every: int = 1,
    keep_trace: bool = False,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """Descend from ``theta`` until each candidate no longer moves, fails, or has taken ``max_iter`` steps.

    A candidate has converged (or stalled on a plateau) when its largest step is at most ``tol * max(1, largest
    parameter)``. One whose loss or step is no longer finite keeps its last finite parameters and gets the loss
    infinity; the others go on.
    Finished candidates leave the batch, so the rest run faster. With ``check_every`` above 1 candidates are looked at
    only then, and an accelerator is not held up in between. ``callback(iteration, running)`` serves progress bars.

    >>> class Bowl:
    ...     def __call__(self, theta):
    ...         return (theta**2).sum(axis=1), 2 * theta
    ...
    ...     def take(self, candidates):
    ...         return self
    >>> found = minimise(Bowl(), np.ones((1, 2)), GradientDescent(np.array([0.25])), max_iter=100, tol=1e-6)
    >>> found.status.item(), found.n_iter.item()
    ('converged', 20)
    """
    xp = namespace(theta)
    B = theta.shape[0]
    result = xp.asarray(theta, copy=True)
    loss_of = np.full(B, np.inf)
    status = np.full(B, "max_iter", dtype="<U9")
    n_iter = np.full(B, max_iter)
    trace: list[np.ndarray] = []
    active = np.arange(B)
    state = optimiser.init(theta)
    current, checked = problem, theta

    for iteration in range(1, max_iter + 1):
        with np.errstate(all="ignore"):  # a candidate that overflows is reported by its status
            loss, gradient = current(theta)
            step, state = optimiser.update(gradient, state)
        if keep_trace:
            row = np.full(B, np.nan)
            row[active] = to_numpy(loss)
            trace.append(row)
        if iteration % check_every == 0:
            size = to_numpy(xp.max(xp.reshape(xp.abs(step), (len(active), -1)), axis=1))
            scale = to_numpy(xp.max(xp.reshape(xp.abs(theta), (len(active), -1)), axis=1))
            value = to_numpy(loss)
            failed = ~(np.isfinite(value) & np.isfinite(size))
            still = (size <= tol * np.maximum(scale, 1.0)) & ~failed
            done = failed | still
            if done.any():
                result[active[still]] = theta[np.flatnonzero(still)]
                result[active[failed]] = checked[np.flatnonzero(failed)]
                loss_of[active[still]] = value[still]
                status[active[failed]] = "nonfinite"
                status[active[still]] = "converged"
                n_iter[active[done]] = iteration
                keep = np.flatnonzero(~done)
                active = active[keep]
                if len(active) == 0:
                    break
                theta, step = theta[keep], step[keep]
                optimiser, state = optimiser.take(state, keep)
                current = problem.take(active)
            checked = theta
        theta = theta + step
        if callback is not None:
            callback(iteration, len(active))
    if len(active):
        with np.errstate(all="ignore"):
            value = to_numpy(current(theta)[0])
        finite = np.isfinite(value) & np.isfinite(to_numpy(theta)).reshape(len(active), -1).all(axis=1)
        result[active[finite]] = theta[np.flatnonzero(finite)]
        result[active[~finite]] = checked[np.flatnonzero(~finite)]
        loss_of[active[finite]] = value[finite]
        status[active[~finite]] = "nonfinite"
    return Solution(result, loss_of, status, n_iter, np.array(trace) if keep_trace else None)
