"""Inefficiency measures ``f(w)`` of a set size ``w``, with their derivatives.

One object serves the smooth loss (``w`` is a sum of sigmoids) and the evaluation (``w`` is a count), so what is
minimised and what is reported are the same thing.

Three of them are criteria of Vovk et al. (2016): N is the size, M whether a set has more than one label, E the number
of labels beyond the first. M has a step and E a kink. Here both are exact at whole ``w``, and cubic on ``[1, 2]``,
which makes them continuously differentiable.

The observed criteria count false labels only, which is the size less one where the true label is in the set: OM is M of
one label more, and OE, being the size less the coverage, is trained for as N. The others (S, U, F, OU, OF) are made of
p-values: each is the mean of one of these over all levels, since a label with p-value p is in the sets of the levels
``eps < p``. A measure is trained for a level, so there is nothing to train for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tightset.compute.arrays import Array, namespace

__all__ = [
    "EXCESS",
    "LOG",
    "MULTIPLE",
    "MULTIPLE_AND_EXCESS",
    "OBSERVED_EXCESS",
    "OBSERVED_MULTIPLE",
    "SIZE",
    "Inefficiency",
    "as_inefficiency",
    "power",
]

# M alone takes all labels where one is not enough, and has no gradient beyond two. This much of E keeps 93 % of what M
# gains on LAC in sets of one label, for 25 % of the labels that M adds (five data sets, four levels, plug-in optimum);
# 0.1 keeps 86 % for 17 %, 0.01 97 % for 44 %.
_EXCESS_IN_MULTIPLE = 0.05

# Between whole numbers, where f may have kinks, and well past the usual number of labels.
_PROBES = (0.1, 0.45, 0.9, 1.4, 2.3, 3.6, 5.7, 8.8, 13.3, 47.7, 211.1)


@dataclass(frozen=True)
class Inefficiency:
    """``f`` and ``f'``, both elementwise on arrays of set sizes.

    A pair whose derivative does not fit is refused when it is made. If ``observed``, ``w`` is the number of labels in
    the set that are not the true one.

    >>> square = Inefficiency("square", lambda w: w**2, lambda w: 2 * w)
    >>> square(np.array([1.0, 3.0]))
    array([1., 9.])
    """

    name: str
    value: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    observed: bool = False

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


def _beyond_one(w: Array) -> Array:
    """``t = w - 1``, between 0 and 1."""
    return namespace(w).clip(w - 1, 0, 1)


def _multiple(w: Array) -> Array:
    t = _beyond_one(w)
    return t * t * (3 - 2 * t)


def _multiple_derivative(w: Array) -> Array:
    t = _beyond_one(w)
    return 6 * t * (1 - t)


def _any(w: Array) -> Array:
    return _multiple(w + 1)


def _any_derivative(w: Array) -> Array:
    return _multiple_derivative(w + 1)


def _excess(w: Array) -> Array:
    t = _beyond_one(w)
    return t * t * (2 - t) + namespace(w).clip(w - 2, 0, None)


def _excess_derivative(w: Array) -> Array:
    t = _beyond_one(w)
    return t * (4 - 3 * t)


def _mixture(w: Array) -> Array:
    return _multiple(w) + _EXCESS_IN_MULTIPLE * _excess(w)


def _mixture_derivative(w: Array) -> Array:
    return _multiple_derivative(w) + _EXCESS_IN_MULTIPLE * _excess_derivative(w)


def power(p: float) -> Inefficiency:
    """``f(w) = w**p`` for ``p > 0``; a larger ``p`` punishes large sets more."""
    if not (np.isfinite(p) and p > 0):
        raise ValueError(f"power must be a positive number; got {p!r}")
    return Inefficiency(f"w**{p:g}", partial(_power, p=p), partial(_power_derivative, p=p))


SIZE = Inefficiency("size", _identity, _one)
LOG = Inefficiency("log", _log1p, _log1p_derivative)
EXCESS = Inefficiency("excess", _excess, _excess_derivative)
MULTIPLE = Inefficiency("M", _multiple, _multiple_derivative)
MULTIPLE_AND_EXCESS = Inefficiency("multiple", _mixture, _mixture_derivative)
OBSERVED_EXCESS = Inefficiency("OE", _identity, _one, observed=True)
OBSERVED_MULTIPLE = Inefficiency("OM", _any, _any_derivative, observed=True)

_NAMED = (SIZE, LOG, EXCESS, MULTIPLE_AND_EXCESS, MULTIPLE, OBSERVED_EXCESS, OBSERVED_MULTIPLE)
_NAMES = {one.name: one for one in _NAMED} | {"N": SIZE, "E": EXCESS}
_OVER_LEVELS = {"S": "N", "U": "M", "F": "E", "OU": "OM", "OF": "OE"}  # the mean over levels of which each is


def as_inefficiency(spec: object) -> Inefficiency:
    """Read what a user may write: a name, a number ``p`` for ``w**p``, or ``(f, f')``.

    | name | ``f(w)`` at whole ``w`` |
    |---|---|
    | ``"size"``, ``"N"`` | ``w`` |
    | ``"log"`` | ``log(1 + w)`` |
    | ``"excess"``, ``"E"`` | ``max(w - 1, 0)`` |
    | ``"multiple"`` | ``[w > 1] + 0.05 max(w - 1, 0)`` |
    | ``"M"`` | ``[w > 1]`` |
    | ``"OE"`` | ``w``, counting false labels only |
    | ``"OM"`` | ``[w > 0]``, counting false labels only |

    >>> as_inefficiency("log").name, as_inefficiency(2).name
    ('log', 'w**2')
    >>> as_inefficiency("multiple")(np.array([0.0, 1.0, 2.0, 4.0]))
    array([0.  , 0.  , 1.05, 1.15])
    """
    if isinstance(spec, Inefficiency):
        return spec
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]
    if isinstance(spec, (int, float, np.number)) and not isinstance(spec, bool) and 0 < spec < np.inf:
        return power(float(spec))
    if isinstance(spec, tuple) and len(spec) == 2 and all(callable(part) for part in spec):
        return Inefficiency(getattr(spec[0], "__name__", "custom"), *spec)
    if isinstance(spec, str) and spec in _OVER_LEVELS:
        own = _OVER_LEVELS[spec]
        raise ValueError(
            f"inefficiency={spec!r} is made of p-values: it is the mean of {own!r} over all levels, and a measure is "
            f"trained for one. Use inefficiency={own!r} with the levels that matter as confidence, and nested=True for "
            f"one measure for all of them; evaluate() reports {spec}"
        )
    raise ValueError(
        f"inefficiency must be one of {', '.join(map(repr, _NAMES))}, a positive power or a pair "
        f"(f, derivative of f); got {spec!r}"
    )
