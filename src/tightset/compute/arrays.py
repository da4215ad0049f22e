"""Which array library a computation runs on, and how rows are addressed by label.

Kernels ask their inputs for an array API namespace and never name a library, so the same lines run on NumPy (the
reference) and on PyTorch tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

__all__ = [
    "Array",
    "Run",
    "Scratch",
    "add_up",
    "as_array",
    "exp_into",
    "label_counts",
    "label_runs",
    "namespace",
    "own_label",
    "room_for_scores",
    "row_dots",
    "settle",
    "tanh_inplace",
    "to_numpy",
]

Array = Any  # an array of whichever library the caller brought

namespace = array_namespace

_SCORES_ON_DEVICE = 2**30  # more at once do not run faster
_COPIES_OF_SCORES = 10
_CODES_AT_ONCE = 2**16
_ALIGNED = 16  # numbers


class Run(NamedTuple):
    """Rows ``start:stop`` all carry the label ``label``."""

    label: int
    start: int
    stop: int


def label_counts(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """How many rows have each label ``(C,)``, of codes ``(n,)`` of any width, where those below 0 are none.

    >>> label_counts(np.array([0, 2, 2, -1], dtype=np.int8), 3)
    array([1, 0, 2])
    """
    counts = np.zeros(n_classes, dtype=np.intp)
    for at in range(0, len(codes), _CODES_AT_ONCE):  # they are widened while they are counted
        piece = codes[at : at + _CODES_AT_ONCE]
        piece = piece if piece.min() >= 0 else piece[piece >= 0]
        counts += np.bincount(piece, minlength=n_classes)
    return counts


def label_runs(y: np.ndarray) -> list[Run]:
    """Cut a vector of labels into runs of equal neighbours.

    Rows sorted by label have one run a label, so the score of a row's own label is read with a few slices
    where a gather over ``(B, k)`` indices would cost as much as the sigmoids do.

    >>> label_runs(np.array([0, 0, 2, 1]))
    [Run(label=0, start=0, stop=2), Run(label=2, start=2, stop=3), Run(label=1, start=3, stop=4)]
    """
    edges = np.concatenate([[0], np.flatnonzero(np.diff(y)) + 1, [len(y)]])
    return [Run(int(y[a]), int(a), int(b)) for a, b in pairwise(edges) if a < b]


def own_label(A: Array, runs: list[Run]) -> Array:
    """``alpha_i = A(x_i, y_i)``: from scores ``(B, k, C)`` to ``(B, k)``."""
    parts = [A[:, run.start : run.stop, run.label] for run in runs]
    return namespace(A).concat(parts, axis=1)


def tanh_inplace(x: Array) -> Array:
    """``x <- tanh(x)`` without a new array; the standard has no ``out``, but NumPy, CuPy and PyTorch do."""
    xp = namespace(x)
    try:
        return xp.tanh(x, out=x)
    except TypeError:
        x[...] = xp.tanh(x)
        return x


def row_dots(a: Array, b: Array) -> Array:
    """``sum_i a_i b_i`` of each row ``(B,)`` for ``(B, k)``, without an array of products."""
    return (a[:, None, :] @ b[:, :, None])[:, 0, 0]


def exp_into(x: Array, out: Array) -> Array:
    """``out <- exp(x)``; ``out`` may be ``x``. As `tanh_inplace`."""
    xp = namespace(x)
    try:
        return xp.exp(x, out=out)
    except TypeError:
        out[...] = xp.exp(x)
        return out


def add_up(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Sums of several blocks of rows, in their order."""
    return tuple(sum(same[1:], same[0]) for same in zip(*parts, strict=True))


def as_array(x: Any, dtype: Any, device: str | None = None) -> Array:
    """``x`` as an array of the library that computes: NumPy, or PyTorch on ``device``. Nothing else decides it."""
    if x is None or device is None:
        return None if x is None else x.astype(dtype, copy=False)
    try:
        import torch
    except ImportError:
        raise ImportError(f'device={device!r} needs PyTorch: pip install "tightset[torch]"') from None
    try:
        return torch.as_tensor(np.asarray(x, dtype=dtype), device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} cannot be used: {str(error).splitlines()[0]}") from None


def room_for_scores(device: str | None, on_host: int) -> int:
    """How many float32 scores may be worked on at once: ``on_host`` of them, or what the memory of a device holds.

    Kernels have a handful of arrays as large as the scores.
    """
    if device is None:
        return on_host
    import torch

    if torch.device(device).type != "cuda":
        return _SCORES_ON_DEVICE
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # held, but to be used again
    return min(max(int(free) // (4 * _COPIES_OF_SCORES), 1), _SCORES_ON_DEVICE)


def to_numpy(x: Array) -> np.ndarray:
    """A NumPy array on the host, whatever ``x`` was."""
    return np.asarray(x.cpu() if hasattr(x, "cpu") else x)


class Scratch(threading.local):
    """Work memory of a thread, used again: fresh megabytes cost more in page faults than the products that fill them.

    >>> scratch = Scratch()
    >>> one, other = (scratch.take((2, 3), np.zeros(1)) for _ in range(2))
    >>> bool(np.shares_memory(one, other))
    False
    """

    buffer: Array = None
    used = 0

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()  # work memory does not travel

    def clear(self) -> None:
        """What this thread took may be overwritten from now on."""
        self.used = 0

    def take(self, shape: tuple[int, ...], like: Array) -> Array:
        """An uninitialised array of this shape, valid until `clear`."""
        xp, start, size = namespace(like), self.used, prod(shape)
        if self.buffer is None or self.buffer.dtype != like.dtype or self.buffer.shape[0] < start + size:
            # What was taken keeps the memory that it has; the next round finds room for everything.
            self.buffer = xp.empty((start + size,), dtype=like.dtype, device=like.device)
            start = 0
        self.used = start + size + -size % _ALIGNED
        return xp.reshape(self.buffer[start : start + size], shape)


def settle(scores: np.ndarray) -> np.ndarray:
    """Scores rounded to 40 (float32: 19) binary digits, so that the same row scores the same in any batch.

    Matrix products round differently for one row and for many. Where features are discrete, a new row equal to a
    calibration row must tie with it; a last digit that falls the wrong way would cost coverage.
    """
    single = scores.dtype == np.float32
    whole: Any = np.uint32 if single else np.uint64
    drop = 4 if single else 12
    scores = np.asarray(scores, dtype=np.float32 if single else np.float64)
    # One copy, even of scores that nobody needs again: they may be the user's own array, or one that a model keeps.
    bits: np.ndarray = np.add(scores.view(whole), whole(1 << (drop - 1)), order="C")
    bits &= ~whole((1 << drop) - 1)
    return bits.view(scores.dtype)
