"""Tables in Parquet files: read in batches, and rows of one written to another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tightset.exceptions import TableError
from tightset.tables.dialect import check_names, said
from tightset.tables.texts import as_text

__all__ = ["BEGINNING", "batches", "first_rows", "orders_of", "write_chosen"]

BEGINNING = b"PAR1"  # of every such file
_CELLS = 2**20  # of a batch


def batches(path: Path, name: str, only: Collection[str] | None = None) -> Iterator[Any]:
    """Data frames of about a million cells; one without rows if there are none."""
    pa, pq = _packages()
    try:
        table = pq.ParquetFile(path)
        names = table.schema_arrow.names
        check_names(names, name)
        wanted = None if only is None else [name for name in names if name in only]
        first = 0
        for batch in table.iter_batches(_rows_of_a_batch(names), columns=wanted):
            frame = batch.to_pandas()
            frame.index = range(first, first + len(frame))
            first += len(frame)
            yield frame
        if not first:
            yield table.schema_arrow.empty_table().to_pandas()
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{name} cannot be read as Parquet: {said(error)}") from None


def first_rows(path: Path) -> Any:
    """The first batch."""
    return next(batches(path, str(path)))


def orders_of(path: Path) -> dict[str, list[str]]:
    """The values of columns that are ordered categories, in their order."""
    pa, pq = _packages()
    try:
        with pq.ParquetFile(path) as table:
            own = [one.name for one in table.schema_arrow if pa.types.is_dictionary(one.type) and one.type.ordered]
            batch = next(table.iter_batches(_rows_of_a_batch(own), columns=own), None) if own else None
    except (pa.ArrowInvalid, OSError):
        return {}  # which is told where the table is read
    return {} if batch is None else {name: as_text(batch.column(name).dictionary.to_pandas()).tolist() for name in own}


def write_chosen(file: Any, path: Path, chosen: np.ndarray) -> None:
    """Write the rows of a Parquet file that are ``chosen (n,)``, in its schema."""
    pa, pq = _packages()
    source = pq.ParquetFile(path)
    first = 0
    with pq.ParquetWriter(pa.PythonFile(file, mode="w"), source.schema_arrow) as writer:
        for batch in source.iter_batches(_rows_of_a_batch(source.schema_arrow.names)):
            writer.write_batch(batch.filter(pa.array(chosen[first : first + len(batch)])))
            first += len(batch)


def _rows_of_a_batch(names: Collection[str]) -> int:
    return max(100, _CELLS // max(len(names), 1))


def _packages() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TableError('Parquet files need another package: pip install "tightset[io]"') from None
    return pa, pq
