"""The model file: safetensors, whose header holds a JSON text; opening one never runs code.

The JSON has what people and other programs may want to know (versions, classes, columns, levels, calibration ranks,
where the model comes from), the packed object (see `packing`), and the SHA-256 of the whole file, which is computed
with 64 zeros in its own place.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tightset.exceptions import ModelFileError
from tightset.storage.fields import fits
from tightset.storage.packing import Packed, pack

__all__ = ["FORMAT", "Opened", "open_model", "save_model", "written_whole"]

FORMAT = 2
_ENTRY = "tightset"
_ZEROS = "0" * 64


# What people and other programs read in the header.
_HEADER: dict[str, Any] = {
    **dict.fromkeys(("tightset", "kind", "written"), str),
    "versions": dict[str, str],
    "classes": list[str],
    "columns": int | list[str],
    "dtypes": str | list[str] | None,
    "levels": list[float],
    "calibration": list[dict[str, float | str]],
    "about": dict[str, Any],
    "nodes": list[Any],
}
_HEADER_OF_TABLES: dict[str, Any] = {"target": str, "left_out": dict[str, str]}
_OF_RANK = {"confidence", "rows", "rank"}


class Opened(NamedTuple):
    """A model file that was read and is whole: what it says of itself, and the packed model."""

    about: dict[str, Any]
    packed: Packed


@contextmanager
def written_whole(path: Any) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place when all is written; until then, and on errors, nothing is changed.

    A link stays one: what it leads to is written. Pipes and devices are written to as they are.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as file:
            yield file
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
        Path(name).replace(path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            error.filename = error.filename or str(path)  # which writing does not say
        raise


def save_model(model: Any, path: Any, *, says: Mapping[str, Any], trusted: Sequence[str] = ()) -> None:
    """Write a model and what it ``says`` of itself, which must be JSON."""
    from safetensors.numpy import save

    from tightset import __version__

    packed = pack(model, trusted=trusted)
    about = {
        "sha256": _ZEROS,  # first, where no other text can be taken for it
        "format": FORMAT,
        "tightset": __version__,
        "kind": type(model).__name__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        **says,
        "root": packed.root,
        "nodes": packed.nodes,
    }
    # Sizes and not names order the arrays in the file, and an array without entries must not be the only one.
    arrays = packed.arrays or {"none": np.zeros(1, dtype=np.uint8)}
    data = save(arrays, metadata={_ENTRY: json.dumps(about, allow_nan=False)})
    digest = hashlib.sha256(data).hexdigest()
    with written_whole(path) as file:
        start, _ = _split(data)
        file.write(data[:start].replace(_mark(_ZEROS), _mark(digest), 1))
        file.write(memoryview(data)[start:])


def open_model(path: Any) -> Opened:
    """Read a model file and see that it is whole, and of a format that is known."""
    from safetensors.numpy import load

    path = Path(path)
    if path.exists() and not path.is_file():
        raise ModelFileError(f"{path} is {'a folder' if path.is_dir() else 'a pipe or a device'}, not a tightset model")
    data = path.read_bytes()
    try:
        start, header = _split(data)
        about = json.loads(header["__metadata__"][_ENTRY])
        version, digest = about["format"], about["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelFileError(f"{path} {_what_it_is(data)}") from None
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{path} has no format number that is known; it is not a tightset model")
    if version > FORMAT:
        raise ModelFileError(
            f"{path} was written by tightset {str(about.get('tightset'))[:20]} in format {version}; this one reads "
            f"formats up to {FORMAT}: pip install --upgrade tightset"
        )
    with_zeros = data[:start].replace(_mark(str(digest)), _mark(_ZEROS), 1)
    whole = hashlib.sha256(with_zeros)
    whole.update(memoryview(data)[start:])
    if whole.hexdigest() != digest:
        raise ModelFileError(f"{path} is cut short, or its bytes were altered: its checksum does not agree")
    _check_header(about, path)
    try:
        return Opened(about, Packed(about["root"], about["nodes"], load(data)))
    except Exception as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error


def _check_header(about: dict[str, Any], path: Path) -> None:
    for name, form in {**_HEADER, **_HEADER_OF_TABLES}.items():
        if not (fits(about[name], form) if name in about else name in _HEADER_OF_TABLES):
            raise ModelFileError(f"{path} is damaged: {name!r} in its header is {str(about.get(name))[:40]!r}")
    columns, dtypes = about["columns"], about["dtypes"]
    if isinstance(dtypes, list) and isinstance(columns, list) and len(dtypes) != len(columns):
        raise ModelFileError(f"{path} is damaged: its header has {len(columns)} columns of {len(dtypes)} types")
    for one in about["calibration"]:
        if not all(fits(one.get(name), float) for name in _OF_RANK):
            raise ModelFileError(f"{path} is damaged: 'calibration' in its header is {str(one)[:40]!r}")


def _split(data: bytes) -> tuple[int, Any]:
    """Where the arrays start, and the header before them."""
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= len(data) - 8:
        raise ValueError("no header")
    return 8 + size, json.loads(data[8 : 8 + size])


def _mark(digest: str) -> bytes:
    # as it stands in a JSON text within a JSON text
    return json.dumps(f'"sha256": "{digest}"')[1:-1].encode()


def _what_it_is(data: bytes) -> str:
    if not data:
        return "is empty; it is not a tightset model"
    if data[:2] == b"PK":
        return "is a zip archive and not a tightset model; it was not unpacked"
    if data[:1] == b"\x80" and data[-1:] == b".":
        return "is a pickle and not a tightset model; tightset opens no pickles, because they can run code"
    if b"__metadata__" in data[:200] and _ENTRY.encode() in data[:400]:
        return "is cut short or damaged: its header is not whole"
    return "is not a tightset model, or its beginning is damaged"


def _versions() -> dict[str, str]:
    import scipy
    import sklearn

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
