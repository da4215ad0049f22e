"""Checks of values read from a file: types by annotations, shapes of arrays, numbers that are not NaN."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np

from tightset.compute.contracts import members_of
from tightset.exceptions import ModelFileError

__all__ = ["fits", "floats", "must", "places", "shown"]


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; a whole number is a float too.

    >>> fits([1, 2], list[int]), fits([1, "a"], list[int]), fits(None, int | None), fits(True, int)
    (True, False, True, False)
    """
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in of)
    if hint is None or hint is NoneType:
        return value is None
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(of) and all(map(fits, value, of))
    if origin in (list, Sequence):
        return isinstance(value, list if origin is list else (list, tuple)) and all(fits(one, of[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, of[0]) and fits(v, of[1]) for k, v in value.items())
    if hint in (int, float):
        kinds = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, kinds) and not isinstance(value, bool)
    if getattr(hint, "_is_protocol", False):
        own = type(value).__module__.startswith("tightset.")
        return own and all(hasattr(value, name) for name in members_of(hint))
    return isinstance(value, bool | np.bool_ if hint is bool else (origin or hint))


def shown(value: Any) -> str:
    return f"{value!r:.40}" if isinstance(value, (str, int, float, NoneType)) else f"a {type(value).__name__}"


def must(holds: Any, what: str) -> None:
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        raise ModelFileError(what)


def floats(value: Any, what: str, *shape: int | None, finite: bool = True) -> np.ndarray:
    """An array of floats of a shape, in which None is any length."""
    right = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim == len(shape)
    right = right and all(size in (None, own) for size, own in zip(shape, value.shape, strict=True))
    wanted = " x ".join("?" if size is None else str(size) for size in shape)
    must(right, f"{what} must be an array of floats, {wanted}; it is {shown(value)} {getattr(value, 'shape', '')}")
    must(np.isfinite(value) if finite else ~np.isnan(value), f"{what} has values that are not numbers")
    return np.asarray(value)


def places(value: Any, what: str, below: int) -> np.ndarray:
    right = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1
    must(right and ((value >= 0) & (value < below)).all(), f"{what} must be whole numbers below {below}")
    return np.asarray(value)
