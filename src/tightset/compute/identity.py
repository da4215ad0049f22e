"""Objects as keys, by identity."""

from __future__ import annotations

from typing import Any

__all__ = ["Same"]


class Same:
    """An object as the key of a dict: equal to itself only, whether it can be compared or not, and kept alive.

    >>> one, other = [1], [1]
    >>> Same(one) == Same(one), Same(one) == Same(other)
    (True, False)
    """

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.of is other.of
