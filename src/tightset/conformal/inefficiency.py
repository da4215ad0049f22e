"""Inefficiency measures ``f(w)`` of a set size ``w``, with their derivatives.

One object serves the smooth loss (``w`` is a sum of sigmoids) and the evaluation (``w`` is a count), so what is
minimised and what is reported are the same thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tightset.compute.arrays import Array, namespace

__all__ = ["LOG", "SIZE", "Inefficiency", "as_inefficiency", "power"]

# Between whole numbers, where f may have kinks, and well past the usual number of labels.
_PROBES = (0.1, 0.45, 0.9, 1.4, 2.3, 3.6, 5.7, 8.8, 13.3, 47.7, 211.1)


@dataclass(frozen=True)
class Inefficiency:
    """``f`` and ``f'``, both elementwise on arrays of set sizes.

    A pair whose derivative does not fit is refused when it is made.

    >>> square = Inefficiency("square", lambda w: w**2, lambda w: 2 * w)
    >>> square(np.array([1.0, 3.0]))
    array([1., 9.])
    """

    name: str
    value: Callable[[Array], Array]
    derivative: Callable[[Array], Array]

    def __post_init__(self) -> None:
        w = np.array(_PROBES)
        step = 1e-5 * (1 + w)
        given = np.asarray(self.derivative(w), dtype=float)
        up, down = (np.asarray(self.value(x), dtype=float) for x in (w + step, w - step))
        if given.shape != w.shape or up.shape != w.shape:
            raise ValueError(
                f"inefficiency {self.name!r}: f and its derivative must work elementwise on arrays; "
                f"for input of shape {w.shape} they returned shapes {up.shape} and {given.shape}"
            )
        if not np.isfinite(np.asarray(self.value(np.zeros(1)), dtype=float)).all():
            raise ValueError(f"inefficiency {self.name!r}: f(0) must be finite, since a set can be empty")
        numeric = (up - down) / (2 * step)
        wrong = ~(np.abs(given - numeric) <= 1e-4 * (np.abs(numeric) + 1e-2))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(
                f"inefficiency {self.name!r}: the derivative does not match the function at w = {w[at]:g}: "
                f"it returns {given[at]:.6g}, finite differences give {numeric[at]:.6g}"
            )

    def __call__(self, w: Array) -> Array:
        return self.value(w)


def _identity(w: Array) -> Array:
    return w


def _one(w: Array) -> Array:
    return namespace(w).ones_like(w)


def _log1p(w: Array) -> Array:
    return namespace(w).log1p(w)


def _log1p_derivative(w: Array) -> Array:
    return 1 / (1 + w)


def _power(w: Array, *, p: float) -> Array:
    return w**p


def _power_derivative(w: Array, *, p: float) -> Array:
    # For p < 1 the slope is infinite at 0, which a saturated sigmoid can reach.
    xp = namespace(w)
    return p * xp.clip(w, 1e-6, None) ** (p - 1)


def power(p: float) -> Inefficiency:
    """``f(w) = w**p`` for ``p > 0``; a larger ``p`` punishes large sets more."""
    if not (np.isfinite(p) and p > 0):
        raise ValueError(f"power must be a positive number; got {p!r}")
    return Inefficiency(f"w**{p:g}", partial(_power, p=p), partial(_power_derivative, p=p))


SIZE = Inefficiency("size", _identity, _one)
LOG = Inefficiency("log", _log1p, _log1p_derivative)


def as_inefficiency(spec: object) -> Inefficiency:
    """Read what a user may write: ``"size"``, ``"log"`` (``log(1+w)``), a number ``p`` for ``w**p``, or ``(f, f')``.

    >>> as_inefficiency("log").name, as_inefficiency(2).name
    ('log', 'w**2')
    """
    if isinstance(spec, Inefficiency):
        return spec
    if isinstance(spec, str) and spec in {"size", "log"}:
        return SIZE if spec == "size" else LOG
    if isinstance(spec, (int, float, np.number)) and not isinstance(spec, bool) and 0 < spec < np.inf:
        return power(float(spec))
    if isinstance(spec, tuple) and len(spec) == 2 and all(callable(part) for part in spec):
        return Inefficiency(getattr(spec[0], "__name__", "custom"), *spec)
    raise ValueError(
        f"inefficiency must be 'size', 'log', a positive power or a pair (f, derivative of f); got {spec!r}"
    )
