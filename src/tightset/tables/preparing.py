"""Preparing a table: read it, split its rows, and encode them by what the training rows show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.progress import current
from tightset.conformal.splits import calibration_split, stratified_split
from tightset.estimators.base import ConformalPredictor, GivenRows
from tightset.estimators.checks import generator, rows_to_hold
from tightset.estimators.scpo import SCPOClassifier
from tightset.exceptions import TableError, warn
from tightset.tables.dialect import Dialect
from tightset.tables.encoding import Encoding
from tightset.tables.giveaways import warn_of_giveaways
from tightset.tables.groups import Grouped
from tightset.tables.learning import ColumnKinds, Statistics
from tightset.tables.readings import warn_of_readings
from tightset.tables.target import KEEP, Labelled, Labels, Rare, meant

__all__ = ["CALIBRATE", "HELD_OUT", "TEST", "TRAIN", "UNUSED", "Prepared", "fit_parts", "prepare", "split_rows"]

TRAIN, CALIBRATE, TEST = 0, 1, 2  # parts of the rows
UNUSED, HELD_OUT = -1, -2  # of which nothing is encoded
_LEAST_MEMORY = 2**27  # bytes for encoded rows that are always granted
_SEARCH = 12  # a search takes about as long as so many fits of the baseline
_OF_FILE = 0.75  # and of a larger file so much of its size


class Prepared(NamedTuple):
    """A table encoded: for each part, rows ``(n, columns)`` and labels; rows may be fewer than there were."""

    encoding: Encoding
    labelled: Labelled
    parts: list[tuple[np.ndarray, np.ndarray]]
    part: np.ndarray  # of each row of the table
    dialect: Dialect = Dialect()  # that the table is written in


def prepare(
    table: Any,
    target: str,
    assign: Callable[[np.ndarray], np.ndarray],
    *,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    rare: Rare = KEEP,
    progress: Callable[[int], None] = lambda _: None,
    seed: int = 0,
) -> Prepared:
    """Read a table, split its rows, and encode them.

    ``assign`` gives, for labels ``(n,)`` in ``0 ... C - 1``, or -1 where a row is not used for its ``rare`` label, the
    part of each row: 0 trains, others are what they are.
    Where encoded rows would take more memory than three quarters of the file, and more than 128 MB, they are kept in
    float32, and if that is not enough some rows are left out, drawn at random from each part.
    """
    if target in drop or target in categorical:
        raise TableError(f"{target!r} is the target; it can be neither dropped nor a column to predict from")
    kinds = ColumnKinds({target, *drop}, categorical)
    labels = Labels(table, target, rare)
    for frame in table.chunks(text=categorical, label=target, progress=progress):
        labels.see(frame)
        _check_named(frame, [*categorical, *drop])
        kinds.see(frame)
    table = table.table if isinstance(table, Grouped) else table  # whose groups are noted now
    labelled = labels.settle()
    classes, codes = labelled.classes, labelled.codes
    columns = kinds.settle()
    columns.left_out.update(dict.fromkeys(drop, "it was to be dropped"))
    part = np.where(codes < 0, UNUSED, assign(codes))

    statistics = Statistics(columns, int((part == TRAIN).sum()), categorical)
    for frame in table.chunks(text=columns.read_as_text, only=columns.read, progress=progress):
        statistics.see(frame[part[frame.index] == TRAIN])
    encoding = statistics.encoding(kinds.names, table.missing)

    granted = max(
        _LEAST_MEMORY, _OF_FILE * (table.n_bytes or 0), _OF_FILE * table.unpacked(len(codes), len(kinds.names))
    )
    needed = len(encoding.names) * int((part >= 0).sum())
    if 8 * needed > granted:
        encoding = encoding._replace(dtype="float32")
        if 4 * needed > granted:
            before = int((part >= 0).sum())
            part = _thinned(part, granted / (4 * needed), seed)
            warn(
                f"{before:,} rows of {len(encoding.names):,} encoded columns are more than {granted / 2**20:,.0f} MB; "
                f"{int((part >= 0).sum()):,} of them are used, drawn at random"
            )
    n_parts = int(part.max()) + 1
    X = [np.empty(((part == one).sum(), len(encoding.names)), dtype=encoding.dtype) for one in range(n_parts)]
    filled = [0] * n_parts
    for frame in table.chunks(text=columns.read_as_text, only=columns.read, progress=progress):
        of_rows = part[frame.index]
        for one in range(n_parts):
            mine = encoding.apply(frame[of_rows == one])
            X[one][filled[one] : filled[one] + len(mine)] = mine
            filled[one] += len(mine)
    rows = [classes[codes[part == one]] for one in range(n_parts)]
    warn_of_readings(encoding, table)
    warn_of_giveaways(encoding, X[TRAIN], codes[part == TRAIN])
    written = table.dialect._replace(delimiter=table.delimiter)
    return Prepared(encoding, labelled, list(zip(X, rows, strict=True)), part, written)


def _thinned(part: np.ndarray, share: float, seed: int) -> np.ndarray:
    """So large a share of each part, drawn at random; the others are not used."""
    rng = np.random.default_rng([seed, 0x7468696E])  # not the stream that data may have been made with
    part = part.copy()
    for one in range(int(part.max()) + 1):
        rows = rng.permutation(np.flatnonzero(part == one))
        part[rows[max(2, int(share * len(rows))) :]] = UNUSED
    return part


def split_rows(
    codes: np.ndarray, predictor: ConformalPredictor, *, test: float = 0.0, groups: np.ndarray | None = None
) -> np.ndarray:
    """The part of each row: trains, calibrates (as many as the predictor asks for), tests; none for codes below 0.

    With coverage by label or by group each of them has its share of the calibration rows.
    """
    rng = generator(predictor.random_state)
    rows = np.flatnonzero(codes >= 0)
    part = np.where(codes >= 0, TRAIN, UNUSED).astype(np.int8)
    if test:
        rest, tested = stratified_split(np.zeros_like(rows), max(1, round(test * len(rows))), rng)
        part[rows[tested]] = TEST
        rows = rows[rest]
    if len(rows) < 4:
        raise TableError(f"{int((codes >= 0).sum())} rows are too few to train, calibrate and test with")
    size = rows_to_hold(predictor, len(rows))
    strata = codes[rows] if predictor.label_conditional else np.zeros(len(rows), dtype=np.intp)
    if groups is not None:
        strata = strata + (int(codes.max()) + 1) * np.unique(groups[rows], return_inverse=True)[1]
    part[rows[calibration_split(strata, codes[rows], size, rng)[1]]] = CALIBRATE
    return part


def fit_parts(predictors: Sequence[ConformalPredictor], prepared: Prepared, groups: np.ndarray | None = None) -> None:
    """Fit on the training rows and calibrate on others; a label may be among the latter only."""
    of: dict[str, Any] = {}
    if groups is not None:
        of = {"groups": groups[prepared.part == TRAIN], "groups_cal": groups[prepared.part == CALIBRATE]}
    (X, y), (X_cal, y_cal) = prepared.parts[:2]
    searches = [isinstance(one, SCPOClassifier) for one in predictors]
    parts = current().split(*(_SEARCH if search else 1 for search in searches))
    for predictor, search, part in zip(predictors, searches, parts, strict=True):
        part.stage("training" if search else "fitting the baseline" if any(searches) else "fitting")
        with part.watching():
            predictor.fit_given(GivenRows(X, y, X_cal=X_cal, y_cal=y_cal, classes=prepared.labelled.classes, **of))


def _check_named(frame: Any, names: Collection[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise TableError(f"there is no column {name!r}{meant(name, frame.columns)}")
