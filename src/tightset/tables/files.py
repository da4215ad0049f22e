"""Tables in files, read in chunks.

CSV and TSV, also compressed (gzip, bzip2, xz, one file in a zip), and Parquet; the first bytes of a file determine its
format. A chunk has about a million cells, whatever the size of the file.
"""

from __future__ import annotations

import csv
import io
import lzma
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tightset.exceptions import TableError, needed_for
from tightset.tables.dialect import (
    Dialect,
    check_names,
    likely_delimiter,
    plain_numbers,
    rows_at_once,
    said,
    splits_utf8,
    swallowed,
)
from tightset.tables.parquet import BEGINNING, batches, orders_of
from tightset.tables.streams import MAGIC, Bounded, Counted, check_is_file, unpacked
from tightset.tables.texts import as_text, gaps, with_gaps

__all__ = ["TableFile"]

_CELLS = 2**20  # of a chunk
_LOOKED_AT = 2**15  # bytes at the beginning


class TableFile:
    r"""A table in a file, or on standard input (``-``), to be read in chunks.

    Parameters
    ----------
    path : str or os.PathLike
        The file, or ``-``.
    delimiter : str, optional
        What separates the cells of a row; by default what the first lines show.
    encoding : str, optional
        The encoding of text files, by default UTF-8.
    decimal : {".", ","}, optional
        The decimal mark, by default a point.
    thousands : str, optional
        What separates thousands in numbers, by default nothing.
    missing : collection of str, default ()
        Texts that stand for a missing value, beside the usual ones (nothing, NA, N/A, NaN, null, None ...).
    likely : str, optional
        The delimiter where the first lines leave it open; by default a tab for .tsv and .tab, else a comma.
    as_before : bool, default False
        Whether the encoding is that of an earlier table. A file in UTF-8 is then not read in a
        single-byte one, such as latin-1.

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
        self,
        path: Any,
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        missing: Collection[str] = (),
        likely: str | None = None,
        as_before: bool = False,
    ) -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        self.path = None if str(path) == "-" else Path(path)
        self.dialect = Dialect(delimiter, encoding, decimal, thousands).checked()
        by_name = "\t" if re.search(r"\.(tsv|tab)(\.\w+)?$", self.name, re.IGNORECASE) else ","
        self.delimiter, self._likely = self.dialect.delimiter, likely or by_name
        self._doubted = as_before and splits_utf8(self.encoding)
        as_numbers = (self.dialect.plain(text) for text in missing)  # which they are in other files and in frames
        self.missing = tuple(dict.fromkeys([*missing, *(text for text in as_numbers if text)]))
        self._spool: Any = None
        if self.path is not None and not self.path.exists():
            raise TableError(f"there is no file {self.path}")
        if self.path is not None and self.path.is_dir():
            raise TableError(f"{self.path} is a folder; give a file")
        if self.path is not None:
            check_is_file(self.path)
        self._flows = self.path is None or not self.path.is_file()  # pipes can be read once, too

    @property
    def orders(self) -> Mapping[str, list[str]]:
        """The values of columns that are ordered categories, in their order; only Parquet has such columns."""
        return orders_of(self.where) if self.is_parquet and self.where else {}

    @property
    def encoding(self) -> str:
        """That of its text."""
        return self.dialect.encoding or "utf-8"

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

    @property
    def is_parquet(self) -> bool:
        """Whether a file, not a stream, is Parquet."""
        if self.where is None:
            return False
        with self.where.open("rb") as file:
            return bool(file.read(4) == BEGINNING)

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
        packed = start.startswith((BEGINNING, b"PK", *MAGIC))
        return 8 * rows * columns if packed else 0

    def chunks(
        self,
        *,
        text: Collection[str] = (),
        label: str | None = None,
        only: Collection[str] | None = None,
        numbers: Collection[str] | None = None,
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
        numbers : collection of str, optional
            Columns whose numbers must be as this table writes them; by default all.
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
            counted = Counted(stream)
            reader = io.BufferedReader(counted, 2**16)
            start = reader.peek(8)[:8]
            if not start:
                raise TableError(f"{self.name} is empty")
            if b"__metadata__" in reader.peek(64)[:64]:
                raise TableError(f"{self.name} is a tightset model and not a table")
            if start[:4] == BEGINNING:
                frames = self._parquet(path, only, {*text, label}, label)
            else:
                frames = self._delimited(reader, path, only, {*text, label}, numbers, label)
            for frame in frames:
                yield frame
                progress(counted.read_bytes)

    def _delimited(
        self,
        reader: Any,
        path: Path | None,
        only: Collection[str] | None,
        texts: Collection[str | None],
        numbers: Collection[str] | None,
        label: str | None,
    ) -> Iterator[Any]:
        with needed_for("a table", "cli"):
            import pandas as pd

        try:
            plain = unpacked(reader, path, self.name)
            first = self._first_lines(plain)
            bytes_left = Bounded(plain, self.name, doubted=self.encoding if self._doubted else None)
            encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
            lines = io.TextIOWrapper(io.BufferedReader(bytes_left), encoding=encoding, newline="")
            delimiter = self.delimiter = self.dialect.delimiter or likely_delimiter(first, self._likely)
            header = next(csv.reader(lines, delimiter=delimiter))
            self._check_header(header, delimiter)
            bytes_left.begin_chunk()
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows with more cells than columns
                for frame in pd.read_csv(
                    lines,
                    sep=delimiter,
                    names=header,
                    header=None,
                    index_col=False,
                    usecols=None if only is None else lambda name: name in only,
                    dtype=dict.fromkeys(texts, "str"),
                    na_values={name: list(gaps(self.missing, label=name == label)[0]) for name in header},
                    keep_default_na=False,
                    chunksize=rows_at_once(first, len(header), _CELLS),
                    skip_blank_lines=len(header) > 1,  # of one column they are missing values
                    low_memory=False,
                    decimal=self.dialect.decimal or ".",
                ):
                    for name in frame.columns:
                        if name in texts:
                            frame[name] = as_text(frame[name])
                        elif frame[name].dtype.kind == "O":
                            is_used = numbers is None or name in numbers
                            found = plain_numbers(frame[name], self.dialect) if is_used else frame[name]
                            frame[name] = with_gaps(found, self.missing)
                    yield frame
                    bytes_left.begin_chunk()
        except StopIteration:
            raise TableError(f"{self.name} has no header") from None
        except UnicodeError:
            raise TableError(
                f"{self.name} is not text in {self.encoding}; if it is a table, try --encoding latin-1 or utf-16"
            ) from None
        except (csv.Error, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise TableError(f"{self.name} cannot be read as a table: {said(error)}") from None
        except (EOFError, OSError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
            raise TableError(f"{self.name} cannot be decompressed, it may be truncated: {error}") from None
        except pd.errors.EmptyDataError:
            raise TableError(f"{self.name} has a header but no rows") from None

    def _first_lines(self, plain: Any) -> list[str]:
        """Some lines at the beginning, whole ones if there are any."""
        start = plain.peek(_LOOKED_AT)[:_LOOKED_AT]
        text = start.decode("utf-8-sig" if self.encoding == "utf-8" else self.encoding, errors="ignore")
        found: list[str] = text.splitlines()
        return found[:-1] if len(found) > 1 and len(start) >= 2**12 else found

    def _check_header(self, header: list[str], delimiter: str) -> None:
        by = swallowed(header, delimiter)
        if by:
            raise TableError(f"{self.name} has only one column, {header[0][:60]!r}; it seems to be separated by {by}")
        if not any(header):
            raise TableError(f"{self.name} begins with an empty line; the first line must name the columns")
        check_names(header, self.name)

    def _parquet(
        self, path: Path | None, only: Collection[str] | None, text: Collection[Any], label: str | None
    ) -> Iterator[Any]:
        if path is None:
            raise TableError(f"{self.name} is Parquet, which cannot be read from standard input; give a file")
        for frame in batches(path, self.name, only):
            for name in frame.columns:
                if name in text or frame[name].dtype.kind not in "fiu":
                    frame[name] = as_text(frame[name])
                frame[name] = with_gaps(frame[name], self.missing, label=name == label)
            yield frame
