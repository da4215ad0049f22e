"""The bytes of a table: from files and streams, unpacked, and never so many at once that memory would not hold them."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import stat
import zipfile
from pathlib import Path
from typing import Any

from tightset.exceptions import TableError

__all__ = ["MAGIC", "MOST_TEXT", "Bounded", "Counted", "check_is_file", "unpacked"]

MAGIC: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_LONGEST = 2**24  # bytes of the header
MOST_TEXT = 2**27  # and of a chunk of rows


def unpacked(reader: Any, path: Path | None, name: str) -> Any:
    """The bytes of the text, unpacked."""
    start = reader.peek(8)[:8]
    opened = next((opened for magic, opened in MAGIC.items() if start.startswith(magic)), None)
    plain = opened(reader) if opened else _unzipped(path, name) if start.startswith(b"PK") else reader
    inside = plain.peek(8)[:8]
    if plain is not reader and inside.startswith((b"PAR1", b"PK", *MAGIC)):
        raise TableError(f"{name} is compressed twice; decompress it once first")
    if inside.startswith(b"\x28\xb5\x2f\xfd"):
        raise TableError(f"{name} is compressed with zstd; unpack it first: zstd -d -c FILE | tightset ... -")
    if inside.startswith(b"ARROW1"):
        raise TableError(
            f"{name} is a Feather file, which is not supported; save it as Parquet: "
            "pandas.read_feather(FILE).to_parquet(...)"
        )
    return plain


def _unzipped(path: Path | None, name: str) -> Any:
    if path is None:
        raise TableError(f"{name} is a zip archive; unpack it first: unzip -p FILE | tightset ... -")
    try:
        archive = zipfile.ZipFile(path)
        names = [one for one in archive.namelist() if not one.endswith("/")]
        if "[Content_Types].xml" in names:
            raise TableError(f"{name} is an Excel workbook; save the sheet as CSV and use that")
        if len(names) != 1:
            raise TableError(f"{name} is a zip archive of {len(names)} files; it must hold one table")
        return archive.open(names[0])
    except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:  # of passwords, and other methods
        raise TableError(f"{name} is a zip archive that cannot be unpacked: {error}") from None


class Counted(io.RawIOBase):
    """A stream that knows how many bytes were read of it."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.read_bytes = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read1(len(buffer)) if hasattr(self.stream, "read1") else self.stream.read(len(buffer))
        buffer[: len(data)] = data
        self.read_bytes += len(data)
        return len(data)


class Bounded(io.RawIOBase):
    """The bytes of a table, as long as no few rows are very long: nobody has memory for a line without an end.

    Nor may they be UTF-8 where the encoding is ``doubted``, because nobody gave it for this table.
    """

    def __init__(self, stream: Any, name: str, doubted: str | None = None) -> None:
        self._stream, self._name, self._since = stream, name, 0
        self._most = _LONGEST
        self._doubted = doubted
        self._utf8 = codecs.getincrementaldecoder("utf-8")() if doubted else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer)) if hasattr(self._stream, "read1") else self._stream.read(len(buffer))
        self._since += len(data)
        if self._since > self._most:
            raise TableError(
                f"{self._name} has a line, or a few, of over {self._most / 2**20:,.0f} MB: is it a table? If a quote "
                "is not closed, all that follows it is one cell"
            )
        self._refuse_utf8(data)
        buffer[: len(data)] = data
        return len(data)

    def _refuse_utf8(self, data: bytes) -> None:
        """What is read first with letters beyond ASCII decides: in another encoding it is not valid UTF-8."""
        if self._utf8 is None:
            return
        try:
            beyond = not self._utf8.decode(data).isascii()
        except UnicodeDecodeError:
            self._utf8 = None
            return
        if beyond:
            raise TableError(
                f"{self._name} looks like UTF-8, but the table of the model was in {self._doubted}: give --encoding "
                f"utf-8, or --encoding {self._doubted} if it is written so"
            )

    def begin_chunk(self) -> None:
        """What is read next is a chunk of rows."""
        self._since, self._most = 0, MOST_TEXT


def check_is_file(path: Path) -> None:
    """Raise at a device, a socket or a named pipe; streams of this process, as ``<(zcat x.gz)`` has, are read."""
    if str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
        return
    mode = path.stat().st_mode
    if stat.S_ISFIFO(mode):  # where nobody writes it waits for ever
        raise TableError(f"{path} is a named pipe and not a file; give - and let standard input be the pipe: < {path}")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise TableError(f"{path} is a device and not a file")
