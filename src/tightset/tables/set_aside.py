"""Rows set aside for testing, written to the same kind of file as their table, so that both are read alike."""

from __future__ import annotations

import codecs
import csv
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tightset.tables.files import TableFile
from tightset.tables.parquet import write_chosen

__all__ = ["write_rows"]


def write_rows(
    file: Any,
    table: TableFile,
    chosen: np.ndarray,
    *,
    columns: Sequence[str],
    label: str,
    progress: Callable[[int], None] = lambda _: None,
) -> str:
    """Write the rows of a table that are ``chosen (n,)``, and return the SHA-256 of what was written.

    A file of text becomes one with the same separator and encoding, cell by cell as it was; a Parquet file one with
    the same schema.
    """
    hashed = _Hashed(file)
    if table.is_parquet:
        write_chosen(hashed, table.where, chosen)
        return hashed.digest.hexdigest()
    encoded = codecs.getincrementalencoder(table.encoding)()
    for at, frame in enumerate(table.chunks(text=columns, label=label, progress=progress)):
        hashed.write(encoded.encode(_as_csv(frame[chosen[frame.index]], table.delimiter or ",", header=at == 0)))
    return hashed.digest.hexdigest()


def _as_csv(frame: Any, delimiter: str, *, header: bool) -> str:
    """Lines that are read as what they were."""
    returns = any(frame[name].map(lambda value: "\r" in str(value)).any() for name in frame.columns)
    quoting = csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL  # which would leave such cells without quotes
    return str(frame.to_csv(index=False, header=header, sep=delimiter, quoting=quoting))


class _Hashed:
    """A file that is written to from beginning to end, with the hash of what was written."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:  # by its owner
        self.flush()
