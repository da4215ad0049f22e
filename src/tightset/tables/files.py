"""Tables in files, read in chunks.

CSV and TSV, also compressed (gzip, bzip2, xz, one file in a zip), and Parquet; the first bytes of a file determine its
format. A chunk has about a million cells, whatever the size of the file.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tightset.exceptions import TableError, needed_for
from tightset.tables.texts import as_text

__all__ = ["TableFile", "check_names"]

_CELLS = 2**20  # of a chunk
_MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "Null", "null", "None", "none")
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_MAGIC: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


class TableFile:
    r"""A table in a file, or on standard input (``-``), to be read in chunks.

    Parameters
    ----------
    path : str or os.PathLike
        The file, or ``-``.
    delimiter : str, optional
        What separates the cells of a row; by default a tab for names that end in .tsv or .tab, else a comma.
    encoding : str, default "utf-8"
        The encoding of text files.
    missing : collection of str, default ()
        Texts that stand for a missing value, beside the usual ones (nothing, NA, N/A, NaN, null, None ...).

    Raises
    ------
    TableError
        If there is no such file, or the delimiter or the encoding cannot be used.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/a.csv").write_text("x,y\n1,a\n2,b\n")
    ...     [chunk.shape for chunk in TableFile(f"{folder}/a.csv").chunks()]
    [(2, 2)]
    """

    def __init__(
        self, path: Any, *, delimiter: str | None = None, encoding: str = "utf-8", missing: Collection[str] = ()
    ) -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        self.path = None if str(path) == "-" else Path(path)
        if delimiter is not None and not _may_delimit(delimiter):
            raise TableError(
                "the delimiter must be a single character of ASCII, such as ';', and neither a quote nor the end of a "
                f"line; got {delimiter!r}"
            )
        if not _is_of_text(encoding):
            raise TableError(f"the encoding must be one of text, such as utf-8, latin-1 or utf-16; got {encoding!r}")
        by_name = "\t" if re.search(r"\.(tsv|tab)(\.\w+)?$", self.name, re.IGNORECASE) else ","
        self.delimiter, self.encoding = delimiter or by_name, encoding
        self.missing = tuple(missing)
        self._given = delimiter is not None
        self._spool: Any = None
        if self.path is not None and not self.path.exists():
            raise TableError(f"there is no file {self.path}")
        if self.path is not None and self.path.is_dir():
            raise TableError(f"{self.path} is a folder; give a file")
        self._flows = self.path is None or not self.path.is_file()  # pipes can be read once, too

    def make_rereadable(self) -> None:
        """What is to be read more than once must lie in a file: a stream is copied to a temporary one."""
        if self._flows and self._spool is None:
            spool = tempfile.NamedTemporaryFile(suffix=".table")  # noqa: SIM115 - lives as long as this object
            with self._opened() as stream:
                shutil.copyfileobj(stream, spool)
            spool.flush()
            self._spool = spool

    @property
    def where(self) -> Any:
        """The file that is read, or None of a stream."""
        return Path(self._spool.name) if self._spool else None if self._flows else self.path

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The bytes of the file or the stream; standard input is left open."""
        path = self.where or self.path
        if path:
            with path.open("rb") as stream:
                yield stream
        elif sys.stdin is None:
            raise TableError("standard input is closed")
        else:
            yield sys.stdin.buffer

    @property
    def n_bytes(self) -> int | None:
        """The size of the file, or None of a stream."""
        return self.where.stat().st_size if self.where else None

    def unpacked(self, rows: int, columns: int) -> int:
        """Estimate the bytes that a compressed or Parquet file would have as plain text, which its size hides.

        Parameters
        ----------
        rows, columns : int
            Of the table.

        Returns
        -------
        n_bytes : int
            0 for a plain text file.
        """
        with self.where.open("rb") as file:
            start = file.read(8)
        packed = start.startswith((b"PAR1", b"PK", *_MAGIC))
        return 8 * rows * columns if packed else 0

    def chunks(
        self,
        *,
        text: Collection[str] = (),
        label: str | None = None,
        only: Collection[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Any]:
        """Read the table in chunks.

        Parameters
        ----------
        text : collection of str, default ()
            Columns that are texts and None. Others are numbers where all of the chunk are, else texts too.
        label : str, optional
            A column of texts in which only an empty cell is missing: NA and None are names of labels as well.
        only : collection of str, optional
            Columns to read; by default all.
        progress : callable, optional
            It is told how many bytes were read.

        Yields
        ------
        frame : pandas.DataFrame
            Indexed by the number of the row from 0.
        """
        progress(0)
        only = None if only is None else frozenset(only)
        path = self.where
        with self._opened() as stream:
            counted = _Counted(stream)
            reader = io.BufferedReader(counted, 2**16)
            start = reader.peek(8)[:8]
            if not start:
                raise TableError(f"{self.name} is empty")
            if b"__metadata__" in reader.peek(64)[:64]:
                raise TableError(f"{self.name} is a tightset model and not a table")
            if start[:4] == b"PAR1":
                frames = self._parquet(path, only, {*text, label})
            else:
                frames = self._delimited(reader, path, only, text, label)
            for frame in frames:
                yield frame
                progress(counted.read_bytes)

    def _plain(self, reader: Any, path: Path | None) -> Any:
        """The bytes of the text, unpacked."""
        start = reader.peek(8)[:8]
        opened = next((opened for magic, opened in _MAGIC.items() if start.startswith(magic)), None)
        plain = opened(reader) if opened else self._unzipped(path) if start.startswith(b"PK") else reader
        inside = plain.peek(8)[:8]
        if plain is not reader and inside.startswith((b"PAR1", b"PK", *_MAGIC)):
            raise TableError(f"{self.name} is compressed twice; decompress it once first")
        if inside.startswith(b"\x28\xb5\x2f\xfd"):
            raise TableError(f"{self.name} is compressed with zstd; unpack it first: zstd -d -c FILE | tightset ... -")
        if inside.startswith(b"ARROW1"):
            raise TableError(
                f"{self.name} is a Feather file, which is not supported; save it as Parquet: "
                "pandas.read_feather(FILE).to_parquet(...)"
            )
        return plain

    def _unzipped(self, path: Path | None) -> Any:
        if path is None:
            raise TableError(f"{self.name} is a zip archive; unpack it first: unzip -p FILE | tightset ... -")
        try:
            archive = zipfile.ZipFile(path)
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if "[Content_Types].xml" in names:
                raise TableError(f"{self.name} is an Excel workbook; save the sheet as CSV and use that")
            if len(names) != 1:
                raise TableError(f"{self.name} is a zip archive of {len(names)} files; it must hold one table")
            return archive.open(names[0])
        except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:  # of passwords, and other methods
            raise TableError(f"{self.name} is a zip archive that cannot be unpacked: {error}") from None

    def _delimited(
        self,
        reader: Any,
        path: Path | None,
        only: Collection[str] | None,
        text: Collection[str],
        label: str | None,
    ) -> Iterator[Any]:
        with needed_for("a table", "cli"):
            import pandas as pd

        texts = {*text, label}
        try:
            encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
            lines = io.TextIOWrapper(self._plain(reader, path), encoding=encoding, newline="")
            header = next(csv.reader(lines, delimiter=self.delimiter))
            self._check_header(header)
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows with more cells than columns
                for frame in pd.read_csv(
                    lines,
                    sep=self.delimiter,
                    names=header,
                    header=None,
                    index_col=False,
                    usecols=None if only is None else lambda name: name in only,
                    dtype=dict.fromkeys(texts, "str"),
                    na_values={
                        name: ["", *self.missing] if name == label else [*_MISSING, *self.missing] for name in header
                    },
                    keep_default_na=False,
                    chunksize=max(100, _CELLS // len(header)),
                    skip_blank_lines=len(header) > 1,  # of one column they are missing values
                    low_memory=False,
                ):
                    for name in [name for name in frame.columns if name in texts]:
                        frame[name] = as_text(frame[name])
                    yield frame
        except StopIteration:
            raise TableError(f"{self.name} has no header") from None
        except UnicodeError:
            raise TableError(
                f"{self.name} is not text in {self.encoding}; if it is a table, try --encoding latin-1 or utf-16"
            ) from None
        except (csv.Error, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise TableError(f"{self.name} cannot be read as a table: {_said(error)}") from None
        except (EOFError, OSError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
            raise TableError(f"{self.name} cannot be decompressed, it may be truncated: {error}") from None
        except pd.errors.EmptyDataError:
            raise TableError(f"{self.name} has a header but no rows") from None

    def _check_header(self, header: list[str]) -> None:
        if len(header) == 1 and not self._given:
            for other, name in _DELIMITERS.items():
                if other != self.delimiter and other in header[0]:
                    shown = "\\t" if other == "\t" else other
                    raise TableError(
                        f"{self.name} has only one column, {header[0][:60]!r}; it seems to be separated by {name}: "
                        f"give --delimiter '{shown}'"
                    )
        if not any(header):
            raise TableError(f"{self.name} begins with an empty line; the first line must name the columns")
        check_names(header, self.name)

    def _parquet(self, path: Path | None, only: Collection[str] | None, text: Collection[Any]) -> Iterator[Any]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise TableError('Parquet files need another package: pip install "tightset[io]"') from None
        if path is None:
            raise TableError(f"{self.name} is Parquet, which cannot be read from standard input; give a file")
        try:
            table = pq.ParquetFile(path)
            names = table.schema_arrow.names
            check_names(names, self.name)
            rows = max(100, _CELLS // max(len(names), 1))
            first = 0
            for batch in table.iter_batches(rows, columns=None if only is None else [n for n in names if n in only]):
                frame = batch.to_pandas()
                frame.index = range(first, first + len(frame))
                first += len(frame)
                for name in frame.columns:
                    if name in text or frame[name].dtype.kind not in "fiu":
                        frame[name] = as_text(frame[name])
                yield frame
            if not first:
                yield table.schema_arrow.empty_table().to_pandas()
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(f"{self.name} cannot be read as Parquet: {_said(error)}") from None


class _Counted(io.RawIOBase):
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


def _may_delimit(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in '"\r\n\0'


def _is_of_text(encoding: str) -> bool:
    """Whether files of text have it: hex and zip turn bytes into bytes, and names of hosts are no files."""
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        return False
    return bool(getattr(found, "_is_text_encoding", True)) and found.name not in ("idna", "punycode", "undefined")


def check_names(names: Collection[str], of: str) -> None:
    """Raise if two columns have one name."""
    seen = set()
    for name in names:
        if name in seen:
            raise TableError(f"{of} has two columns named {name!r}; names must differ")
        seen.add(name)


def _said(error: Exception) -> str:
    """What a parser says, without its own name, with lines counted from the top of the file."""
    told = str(error).splitlines()[0].removeprefix("Error tokenizing data. C error: ")
    told = re.sub(r"in line (\d+)", lambda found: f"in line {int(found[1]) + 1}", told)
    return "a row has more cells than there are columns" if "header or names" in told else told
