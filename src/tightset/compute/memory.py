"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["give_memory_back"]


def give_memory_back() -> None:
    """What was freed goes back to the system, where the allocator is glibc's; else nothing happens.

    Left alone, it keeps vectors of megabytes for later, and rarely has one of the right size: a client that holds a
    byte for each of many rows would grow by several.
    """
    with suppress(AttributeError, OSError, TypeError):  # another allocator; no library of that name
        ctypes.CDLL(None).malloc_trim(0)
