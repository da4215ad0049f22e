"""Weights of rows, and numbers of candidates."""

from __future__ import annotations

from tightset.compute.arrays import Array, namespace

__all__ = ["normalised", "together"]


def normalised(weight: Array | None, like: Array) -> Array:
    """Weights ``(B, k)`` of sum 1."""
    xp = namespace(like)
    if weight is None:
        return xp.full_like(like, 1 / like.shape[1])
    weight = xp.broadcast_to(weight, like.shape)
    return weight / xp.sum(weight, axis=1, keepdims=True)


def together(parts: list[Array]) -> Array:
    """Numbers of several candidates, one after the other."""
    return namespace(*parts).concat(parts)
