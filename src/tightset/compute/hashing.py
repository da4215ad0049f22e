"""Hashes of rows: to find copies, and for pseudo-random numbers that depend only on the row."""

from __future__ import annotations

import hashlib
from typing import Any
from zlib import crc32

import numpy as np
from scipy import sparse

__all__ = ["distinct_rows", "hash_uniform", "mark_of"]

_HASHED = 2**16  # numbers at a time


def distinct_rows(X: Any, y: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Which rows to keep so that none is there twice, in an order of their own, and the weights that they then have."""
    if sparse.issparse(X):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
        parts = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        keys = np.array([X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in parts], dtype=object)
    else:
        packed = np.ascontiguousarray(X + 0.0)  # no minus zero
        keys = packed.view(np.dtype((np.void, packed.shape[1] * packed.itemsize)))[:, 0]
    _, code = np.unique(keys, return_inverse=True)
    _, first, code = np.unique(code * (int(y.max()) + 1) + y, return_index=True, return_inverse=True)
    if weight is None and len(first) == len(y):
        return first, None
    return first, np.bincount(code, weights=weight)


def mark_of(*arrays: np.ndarray) -> int:
    """A number of 63 bits that is fixed by the arrays, else as if random; the width of whole numbers does not count.

    Of many numbers the digest has a checksum and some of the numbers themselves: all of them would take longer.
    """
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        kind = np.dtype(np.intp) if array.dtype.kind == "i" else array.dtype
        sum_of_all = 0
        for at in range(0, len(array), _HASHED):
            sum_of_all = crc32(np.ascontiguousarray(array[at : at + _HASHED], dtype=kind).data, sum_of_all)
        some = array[:: max(1, len(array) // _HASHED)]
        digest.update(b"%d %d " % (len(array), sum_of_all))
        digest.update(np.ascontiguousarray(some, dtype=kind).data)
    return int.from_bytes(digest.digest(), "little") >> 1


def hash_uniform(scores: np.ndarray, seed: int, positions: Any) -> np.ndarray:
    """Numbers on (0, 1) for the rows of ``scores``, fixed by the row, its position and the seed, else as if random.

    Rows that are equal get numbers of their own, without which those of discrete columns would share their luck; and
    pieces of a call give what the whole call gives. (Mixing as in splitmix64.)
    """
    bits = np.ascontiguousarray(scores, dtype=np.float64).view(np.uint64)
    state = np.full(len(scores), seed, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in (np.asarray(positions, dtype=np.uint64), *bits.T):
            state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
    return ((state >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52
