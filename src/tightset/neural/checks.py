"""What networks and losses cannot take, with errors that name it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = [
    "check_batch",
    "check_choice",
    "check_number",
    "check_whole",
    "checked_categories",
    "checked_device",
    "checked_network",
]


# ---- losses ---------------------------------------------------------------------------------------------------------


def check_choice(name: str, given: Any, choices: Sequence[str]) -> None:
    if not isinstance(given, str) or given not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {given!r}")


def check_whole(name: str, given: Any, least: int) -> None:
    if not isinstance(given, (int, np.integer)) or isinstance(given, bool) or given < least:
        raise ValueError(f"{name} must be a whole number, {least} or more; got {given!r}")


def check_number(name: str, given: Any, sign: str) -> None:
    """Raise unless it is a finite number, and ``"above 0"`` or ``"0 or more"`` if that is its sign."""
    right = isinstance(given, (int, float, np.number)) and not isinstance(given, bool) and np.isfinite(given)
    if not right or (sign and (given < 0 or (sign == "above 0" and given == 0))):
        raise ValueError(f"{name} must be a number{', ' if sign else ''}{sign}; got {given!r}")


def checked_categories(name: str, given: Any, number: int, of: str) -> np.ndarray:
    """Labels or groups of training rows, ``(n,)`` in ``0 ... number - 1``."""
    found = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iub" or found.min() < 0 or found.max() >= number:
        raise ValueError(f"{name} must be whole numbers 0 ... {number - 1}, one for each row, of {number} {of}")
    return found.astype(np.intp)


def check_batch(logits: Any, y: Any, groups: Any, sample_weight: Any, *, n_classes: int, n_groups: int | None) -> None:
    """Raise unless these are logits, labels, groups and weights of the same rows.

    Numbers are looked at on a CPU only: a GPU would have to be waited for, and says itself if an index is out of range.
    """
    if (
        not isinstance(logits, Tensor)
        or logits.ndim != 2
        or logits.shape[1] != n_classes
        or not logits.is_floating_point()
    ):
        raise ValueError(
            f"logits must be a tensor of numbers with a column for each of the {n_classes} labels; got {_told(logits)}"
        )
    rows = len(logits)
    if not rows:
        raise ValueError("logits must have a row at least: the batch is empty")
    _check_vector("y", y, rows, "a label", n_classes)
    if (groups is None) != (n_groups is None):
        raise ValueError("groups belong to n_groups: give both or neither")
    if groups is not None:
        _check_vector("groups", groups, rows, "a group", n_groups or 1)
    if sample_weight is None:
        return
    if not isinstance(sample_weight, Tensor) or sample_weight.shape != (rows,):
        raise ValueError(
            f"sample_weight must be a tensor with a number for each of the {rows} rows; got {_told(sample_weight)}"
        )
    if sample_weight.device.type == "cpu" and not bool((sample_weight.isfinite() & (sample_weight >= 0)).all()):
        raise ValueError("sample_weight must be finite numbers, 0 or more")


def _check_vector(name: str, given: Any, rows: int, what: str, number: int) -> None:
    whole = isinstance(given, Tensor) and not (given.is_floating_point() or given.is_complex())
    if not whole or given.shape != (rows,):
        raise ValueError(
            f"{name} must be a tensor of whole numbers, {what} 0 ... {number - 1} for each of the {rows} rows; got "
            f"{_told(given)}"
        )
    if given.device.type == "cpu":
        low, high = (int(one) for one in given.aminmax())
        if low < 0 or high >= number:
            raise ValueError(f"{name} must be {what} 0 ... {number - 1} for each row; got {low if low < 0 else high}")


def _told(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"{given.dtype} of shape {tuple(given.shape)}"
    return f"a {type(given).__name__}"


# ---- networks -------------------------------------------------------------------------------------------------------


def checked_device(device: Any) -> str:
    """The device, if it is there."""
    try:
        torch.zeros(1, device="cpu" if device is None else device).cpu()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ValueError(
            f"device={device!r} cannot be used: {str(error).splitlines()[0]}; device=None is the CPU"
        ) from None
    return "cpu" if device is None else str(device)


def checked_network(network: Any, X: np.ndarray, C: int) -> Any:
    """The network, a copy if it is a module, once it is sure that it makes a number for each class of a row."""
    if isinstance(network, str) and X.shape[1] != C:
        raise ValueError(
            f"network={network!r} takes X with a logit for each of the {C} classes of y; got {X.shape[1]} columns"
        )
    if not isinstance(network, nn.Module):
        return network
    if not any(one.requires_grad for one in network.parameters()):
        raise ValueError("network has no parameters that can be trained: set requires_grad on some")
    other = next((one.dtype for one in network.parameters() if one.dtype != torch.float32), torch.float32)
    if other != torch.float32:
        raise ValueError(f"network must have parameters in float32, as its rows come; it has {other}: network.float()")
    network = deepcopy(network)
    was, some = network.training, torch.as_tensor(np.asarray(X[:2], dtype=np.float32))
    try:
        with torch.no_grad():
            found = network.eval()(some.to(next(network.parameters()).device))
    except Exception as error:
        raise ValueError(
            f"network cannot take rows of {X.shape[1]} columns in float32: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Tensor) or tuple(found.shape) != (len(some), C):
        told = f"{tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise ValueError(
            f"network must give a number for each of the {C} classes of y, shape {(len(some), C)} for {len(some)} "
            f"rows; it gives {told}"
        )
    return network.train(was)
