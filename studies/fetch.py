"""Raw data sets from the public archives: downloads that resume, are verified, and appear whole or not at all."""

from __future__ import annotations

import errno
import http.client
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np

from studies.datasets import DataError, check_file
from studies.recipes import ARCHIVE, DataSet, RawFile

__all__ = ["fetch", "present"]

_CHUNK = 2**16
_LARGEST = 2**28  # bytes of one extracted file; the largest of the seven sets has 76 million
_TRIES = 4
_PAUSE = 0.5  # seconds before the second try, twice that before the third


def present(dataset: DataSet, folder: Path) -> bool:
    """Whether a complete, unaltered variant of the raw files is here; without a known checksum the content decides."""
    for files in dataset.variants:
        try:
            for file in files:
                check_file(folder, file)
            if any(file.sha256 is None for file in files):
                dataset.prepare([folder / file.path for file in files], np.random.default_rng(0), 0)
        except (DataError, ValueError, IndexError):
            continue
        return True
    return False


def fetch(
    dataset: DataSet,
    folder: Path,
    *,
    mirror: str | None = None,
    timeout: float = 30.0,
    progress: Callable[[int, int | None], None] | None = None,
) -> bool:
    """Download a data set's archive and put its files in place; False if they were there already.

    ``mirror`` replaces the archive's address. What has been downloaded is kept in ``NAME.part`` and continued, by this
    call if the connection breaks and by the next one if it gives up. ``progress(bytes so far, bytes in all)``.
    """
    if present(dataset, folder):
        return False
    if dataset.url is None:
        place = folder / dataset.variants[-1][0].path
        raise DataError(f"cannot be downloaded as it is needed; place it at {place} ({dataset.by_hand})")
    places = ", ".join(str(folder / file.path) for file in dataset.variants[0])
    url = dataset.url if mirror is None else dataset.url.replace(ARCHIVE, mirror.rstrip("/"), 1)
    part = folder / f"{dataset.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _download(url, part, timeout, progress, places)
        _extract(dataset, part, folder)
        part.unlink()
    except OSError as error:
        raise DataError(f"{error.filename or folder} cannot be written: {error.strerror or error}") from None
    return True


def _download(
    url: str, part: Path, timeout: float, progress: Callable[[int, int | None], None] | None, places: str
) -> None:
    """Fill ``part`` up to the archive's length; errors of the network are borne a few times, those of the disk not."""
    trouble = ""
    for attempt in range(_TRIES):
        time.sleep(_PAUSE * attempt)
        have = part.stat().st_size if part.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
        try:
            reply = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310 - the archive's address, or the user's
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing after what is there already
                return
            trouble = f"answered {error.code} {error.reason}"
            if error.code in {429, *range(500, 600)}:
                continue
            break
        except (OSError, http.client.HTTPException) as error:
            trouble = f"cannot be reached ({getattr(error, 'reason', error)})"
            continue
        with reply:
            if reply.status != 206:  # the server starts from the beginning
                have = 0
            elif not reply.headers.get("Content-Range", f"bytes {have}-").startswith(f"bytes {have}-"):
                part.unlink()  # it sent something else than was asked for
                trouble = "sent another part than was asked for"
                continue
            length = reply.headers.get("Content-Length")
            total = have + int(length) if length else None
            with part.open("ab" if have else "wb") as file:
                for chunk in _chunks(reply):
                    file.write(chunk)
                    have += len(chunk)
                    if progress is not None:
                        progress(have, total)
        if total is not None and have >= total:
            return
        if total is None and reply.isclosed():
            return
        trouble = f"broke off, {have} bytes are kept; run the same command again to go on"
    place = "" if "broke off" in trouble else f"; place the files by hand: {places}"
    raise DataError(f"{url} {trouble}{place}")


def _chunks(reply: http.client.HTTPResponse) -> Iterator[bytes]:
    """What arrives, until the end or until the connection fails."""
    while True:
        try:
            chunk = reply.read1(_CHUNK)
        except (OSError, http.client.HTTPException):
            return
        if not chunk:
            return
        yield chunk


def _extract(dataset: DataSet, part: Path, folder: Path) -> None:
    """Put the members of the archive in place, each verified first and renamed into being."""
    known = {file.path: file for files in dataset.variants for file in files}
    drafts: list[tuple[Path, Path]] = []
    try:
        with zipfile.ZipFile(part) as archive, ExitStack() as opened:
            names = _members(archive, opened)
            for member, path in (dataset.members or {}).items():
                if Path(member).name not in names:
                    raise DataError(f"it has no {member}")
                draft = folder / f"{path}.draft"
                draft.parent.mkdir(parents=True, exist_ok=True)
                drafts.append((draft, folder / path))
                _copy(names[Path(member).name], draft)
                check_file(folder, RawFile(f"{path}.draft", known[path].size, known[path].sha256))
        for draft, final in drafts:
            draft.replace(final)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, DataError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # what a seek by a damaged index raises
            raise
        part.unlink()  # begin anew next time
        raise DataError(f"the archive is not what it should be, and has been removed: {error}") from None
    finally:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def _members(archive: zipfile.ZipFile, opened: ExitStack) -> dict[str, Callable[[], IO[bytes]]]:
    """Files of the archive by name, with those of a tar inside it, as openers."""
    found: dict[str, Callable[[], IO[bytes]]] = {}
    for name in archive.namelist():
        if name.endswith((".tar.gz", ".tgz", ".tar")):
            inner = opened.enter_context(tarfile.open(fileobj=opened.enter_context(archive.open(name))))  # noqa: SIM115
            for member in inner.getmembers():
                if member.isfile():
                    found[Path(member.name).name] = partial(cast("Callable[..., IO[bytes]]", inner.extractfile), member)
        else:
            found[Path(name).name] = partial(archive.open, name)
    return found


def _copy(source: Callable[[], IO[bytes]], draft: Path) -> None:
    with source() as stream, draft.open("wb") as target:
        while chunk := stream.read(_CHUNK):
            target.write(chunk)
            if target.tell() > _LARGEST:
                raise DataError(f"{draft.stem} unpacks to more than {_LARGEST} bytes")
