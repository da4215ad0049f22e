"""Raw data sets from the public archives: downloads that resume, are verified, and appear whole or not at all."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from tightset.paper.datasets import ARCHIVE, DataError, DataSet, RawFile, check_file

__all__ = ["fetch", "present"]

_CHUNK = 2**16
_LARGEST = 2**28  # bytes of one extracted file; the largest of the seven sets has 76 million
_TRIES = 4


def present(dataset: DataSet, folder: Path) -> bool:
    """Whether one complete, unaltered variant of the raw files is in the folder."""
    for files in dataset.variants:
        try:
            for file in files:
                check_file(folder, file)
        except DataError:
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
    for attempt in range(_TRIES):
        have = part.stat().st_size if part.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:  # noqa: S310 - addresses are fixed
                if reply.status != 206:  # the server starts from the beginning
                    have = 0
                length = reply.headers.get("Content-Length")
                total = have + int(length) if length else None
                with part.open("ab" if have else "wb") as file:
                    while chunk := reply.read1(_CHUNK):
                        file.write(chunk)
                        have += len(chunk)
                        if progress is not None:
                            progress(have, total)
            if total is None or have >= total:
                return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing after what is there already
                return
            raise DataError(f"{url} answered {error.code} {error.reason}; place the files by hand: {places}") from None
        except (http.client.HTTPException, TimeoutError, ConnectionError):
            pass  # cut off or stalled: go on from here
        except urllib.error.URLError as error:
            if attempt == _TRIES - 1 or not part.exists():
                raise DataError(
                    f"{url} cannot be reached ({error.reason}); place the files by hand: {places}"
                ) from None
    raise DataError(f"{url} broke off {_TRIES} times, {have} bytes are kept; run the same command again to go on")


def _extract(dataset: DataSet, part: Path, folder: Path) -> None:
    """Put the members of the archive in place, each verified first and renamed into being."""
    known = {file.path: file for files in dataset.variants for file in files}
    drafts: list[tuple[Path, Path]] = []
    try:
        with zipfile.ZipFile(part) as archive:
            names = {Path(name).name: name for name in archive.namelist()}
            for member, path in (dataset.members or {}).items():
                inside = names.get(Path(member).name)
                if inside is None:
                    raise zipfile.BadZipFile(f"the archive has no {member}")
                draft = folder / f"{path}.draft"
                draft.parent.mkdir(parents=True, exist_ok=True)
                drafts.append((draft, folder / path))
                _copy(archive, inside, draft)
                check_file(folder, RawFile(f"{path}.draft", known[path].size, known[path].sha256))
        for draft, final in drafts:
            draft.replace(final)
    except (zipfile.BadZipFile, DataError) as error:
        part.unlink()  # what was downloaded is not what it should be: begin anew next time
        raise DataError(f"{dataset.name}: the download was damaged and has been removed: {error}") from None
    finally:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def _copy(archive: zipfile.ZipFile, member: str, draft: Path) -> None:
    with archive.open(member) as source, draft.open("wb") as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            if target.tell() > _LARGEST:
                raise DataError(f"{member} unpacks to more than {_LARGEST} bytes")
