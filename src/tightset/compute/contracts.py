"""Checks that an object satisfies its contract, a Protocol; an error on first use names what is missing."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["check_offers", "members_of"]


@cache
def members_of(contract: type) -> tuple[str, ...]:
    """What a Protocol asks for."""
    own = {*vars(contract), *vars(contract).get("__annotations__", {})}
    return tuple(sorted(name for name in own if not name.startswith("_") or name == "__call__"))


def check_offers(value: Any, contract: type) -> None:
    """Raise TypeError, with what is missing, unless an object offers what a contract asks for.

    >>> from typing import Protocol
    >>> class Bird(Protocol):
    ...     def sing(self) -> str: ...
    >>> check_offers("a stone", Bird)
    Traceback (most recent call last):
    TypeError: str is no Bird: it lacks sing (see tightset.compute.contracts.Bird)
    """
    missing = [name for name in members_of(contract) if not hasattr(value, name)]
    if missing:
        kind = type(value).__name__
        where = f"{contract.__module__}.{contract.__qualname__}"
        raise TypeError(f"{kind} is no {contract.__name__}: it lacks {', '.join(missing)} (see {where})")
