"""Universal binary JSON as XGBoost writes it: keys without a mark, arrays with their length, big-endian numbers.

Whatever the bytes are, what is read is no larger than they are, and is nested no deeper than XGBoost does.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

__all__ = ["read_ubjson"]

_DEEPEST = 32  # objects within objects, where XGBoost has ten


def read_ubjson(data: bytes) -> Any:
    r"""The value at the beginning; ValueError if it is none.

    >>> read_ubjson(b"{L" + bytes(7) + b"\x01ai\x05}")
    {'a': 5}
    """
    return _Reader(data).value()


def _must(holds: Any, what: str) -> None:
    if not holds:
        raise ValueError(f"a booster does not pass the check: {what}")


class _Reader:
    """Where the next value begins."""

    _NUMBERS: ClassVar = {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def value(self, depth: int = 0) -> Any:
        _must(depth < _DEEPEST, "it is nested too deeply")
        mark = self._take(1).decode("latin-1")
        if mark == "{":
            return self._object(depth)
        if mark == "[":
            return self._array(depth)
        if mark == "S":
            return self._take(self._length()).decode()
        if mark in self._NUMBERS:
            return self._unpacked(mark, 1)[0]
        _must(mark in "TFZ", "it has a mark that is unknown")
        return {"T": True, "F": False, "Z": None}[mark]

    def _object(self, depth: int) -> dict[str, Any]:
        found = {}
        while self._data[self._at : self._at + 1] != b"}":
            key = self._take(self._length()).decode()
            _must(key not in found, "an entry is there twice")
            found[key] = self.value(depth + 1)
        self._at += 1
        return found

    def _array(self, depth: int) -> list[Any]:
        mark = self._data[self._at : self._at + 1]
        if mark == b"$":
            kind = self._take(2)[1:].decode("latin-1")
            _must(self._take(1) == b"#" and kind in self._NUMBERS, "an array has a kind that is unknown")
            return self._unpacked(kind, self._length())
        _must(self._take(1) == b"#", "an array has no length")
        length = self._length()
        _must(length <= len(self._data), "an array is longer than the file")
        return [self.value(depth + 1) for _ in range(length)]

    def _length(self) -> int:
        _must(self._take(1) == b"L", "a length is no number")
        length = int.from_bytes(self._take(8), "big", signed=True)
        _must(0 <= length <= len(self._data), "a length is larger than the file")
        return length

    def _unpacked(self, mark: str, count: int) -> list[Any]:
        form = f">{count}{self._NUMBERS[mark]}"
        return list(struct.unpack(form, self._take(struct.calcsize(form))))

    def _take(self, count: int) -> bytes:
        _must(self._at + count <= len(self._data), "it is cut short")
        self._at += count
        return self._data[self._at - count : self._at]
