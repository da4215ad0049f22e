"""A conformal predictor for tables: columns of any kind in, sets of labels out.

The rows are split first; what the columns are turned into is learnt from the training rows alone. So a table is read
three times: for its labels and the kinds of its columns, for statistics of training rows, and to be encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tightset.conformal.splits import calibration_split, stratified_split
from tightset.estimators.base import GivenRows
from tightset.estimators.checks import generator, rows_to_hold
from tightset.estimators.description import describe
from tightset.exceptions import TableError, warn
from tightset.storage.file import save_model
from tightset.storage.registry import storable
from tightset.tables.encoding import Encoding
from tightset.tables.files import FrameTable
from tightset.tables.learning import ColumnKinds, Statistics
from tightset.tables.target import KEEP, Labelled, Labels, Rare, meant
from tightset.tables.texts import as_text, spelled_as

__all__ = ["TEST", "UNUSED", "FrameTable", "Prepared", "TablePredictor", "fit_table", "prepare", "split_rows"]

TRAIN, CALIBRATE, TEST, UNUSED = 0, 1, 2, -1
_LEAST_MEMORY = 2**27  # bytes for encoded rows that are always granted
_OF_FILE = 0.75  # and of a larger file so much of its size


class Prepared(NamedTuple):
    """A table encoded: for each part, rows ``(n, columns)`` and labels; rows may be fewer than there were."""

    encoding: Encoding
    labelled: Labelled
    parts: list[tuple[np.ndarray, np.ndarray]]
    rows: int


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
    labels = Labels(table, target)
    for frame in table.chunks(text=categorical, label=target, progress=progress):
        labels.see(frame)
        _check_named(frame, [*categorical, *drop])
        kinds.see(frame)
    labelled = labels.settle(rare)
    classes, codes = labelled.classes, labelled.codes
    numbers, texts, left_out = kinds.settle()
    left_out |= dict.fromkeys(drop, "it was to be dropped")
    part = np.where(codes < 0, UNUSED, assign(codes))

    statistics = Statistics(numbers, texts, int((part == TRAIN).sum()), categorical)
    for frame in table.chunks(text=texts, only=[*numbers, *texts], progress=progress):
        statistics.see(frame[part[frame.index] == TRAIN])
    encoding = statistics.encoding(kinds.names, left_out, table.missing)

    granted = max(
        _LEAST_MEMORY, _OF_FILE * (table.n_bytes or 0), _OF_FILE * table.unpacked(len(codes), len(kinds.names))
    )
    needed = len(encoding.names) * int((part != UNUSED).sum())
    if 8 * needed > granted:
        encoding = encoding._replace(dtype="float32")
        if 4 * needed > granted:
            before = int((part != UNUSED).sum())
            part = _thinned(part, granted / (4 * needed), seed)
            warn(
                f"{before:,} rows of {len(encoding.names):,} encoded columns are more than {granted / 2**20:,.0f} MB; "
                f"{int((part != UNUSED).sum()):,} of them are used, drawn at random"
            )
    n_parts = int(part.max()) + 1
    X = [np.empty(((part == one).sum(), len(encoding.names)), dtype=encoding.dtype) for one in range(n_parts)]
    filled = [0] * n_parts
    for frame in table.chunks(text=texts, only=[*numbers, *texts], progress=progress):
        of_rows = part[frame.index]
        for one in range(n_parts):
            mine = encoding.apply(frame[of_rows == one])
            X[one][filled[one] : filled[one] + len(mine)] = mine
            filled[one] += len(mine)
    rows = [classes[codes[part == one]] for one in range(n_parts)]
    return Prepared(encoding, labelled, list(zip(X, rows, strict=True)), len(codes))


def _thinned(part: np.ndarray, share: float, seed: int) -> np.ndarray:
    """So large a share of each part, drawn at random; the others are not used."""
    rng = np.random.default_rng([seed, 0x7468696E])  # not the stream that data may have been made with
    part = part.copy()
    for one in range(int(part.max()) + 1):
        rows = rng.permutation(np.flatnonzero(part == one))
        part[rows[max(2, int(share * len(rows))) :]] = UNUSED
    return part


def split_rows(codes: np.ndarray, predictor: Any, *, test: float = 0.0) -> np.ndarray:
    """The part of each row: trains, calibrates (as many as the predictor asks for), tests; none for codes below 0."""
    levels = predictor.levels_asked(None)[0]
    rng = generator(predictor.random_state)
    rows = np.flatnonzero(codes >= 0)
    part = np.where(codes >= 0, TRAIN, UNUSED).astype(np.int8)
    if test:
        rest, tested = stratified_split(np.zeros_like(rows), max(1, round(test * len(rows))), rng)
        part[rows[tested]] = TEST
        rows = rows[rest]
    if len(rows) < 4:
        raise TableError(f"{int((codes >= 0).sum())} rows are too few to train, calibrate and test with")
    size = rows_to_hold(predictor.calibration_size, len(rows), max(levels, key=float), predictor.calibrating_share())
    strata = codes[rows] if predictor.label_conditional else np.zeros(len(rows), dtype=np.intp)
    part[rows[calibration_split(strata, codes[rows], size, rng)[1]]] = CALIBRATE
    return part


@storable
class TablePredictor:
    """A fitted predictor together with the encoding of its table, and a baseline on the same rows if there is one.

    It predicts for data frames that have the columns of training, in any order.

    Attributes
    ----------
    encoding : how columns become numbers; ``encoding.left_out`` says which are not used, and why.
    target : the column of labels in training. It is not needed to predict, and ignored if it is there.
    predictor, baseline : fitted `SCPOClassifier` or `ConformalClassifier`; ``baseline`` may be None.
    about : where the model comes from.
    merged : rare labels of the table, with the label that stands for them.
    dropped : rare labels whose rows were left out.
    """

    later_fields = ("merged", "dropped")
    merged: Mapping[str, str] = MappingProxyType({})
    dropped: Sequence[str] = ()

    def __init__(
        self,
        encoding: Encoding,
        target: str,
        predictor: Any,
        baseline: Any = None,
        about: dict[str, Any] | None = None,
        *,
        merged: dict[str, str] | None = None,
        dropped: Sequence[str] = (),
    ) -> None:
        self.encoding, self.target = encoding, target
        self.predictor, self.baseline = predictor, baseline
        self.about = about or {}
        self.merged, self.dropped = merged or {}, list(dropped)

    def __repr__(self) -> str:
        return f"TablePredictor(target={self.target!r}, columns={len(self.encoding.columns)}, {self.predictor!r})"

    def _repr_html_(self) -> str:
        return str(self.predictor._repr_mimebundle_().get("text/html", repr(self)))

    @property
    def classes_(self) -> np.ndarray:
        result: np.ndarray = self.predictor.classes_
        return result

    @property
    def levels_(self) -> tuple[Any, ...]:
        result: tuple[Any, ...] = self.predictor.levels_
        return result

    def encode(self, frame: Any, *, strict: bool = False) -> np.ndarray:
        """Rows as the predictor takes them; ``strict`` refuses other columns, another order, and unseen categories."""
        if self.encoding.missing:
            frame = frame.mask(frame.isin(self.encoding.missing))
        names = [str(name) for name in frame.columns]
        self.encoding.check(names, allowed=[self.target], lenient=not strict)
        (rows,) = FrameTable(frame).chunks(text=self.encoding.text)
        rows.index = frame.index if frame.index.dtype.kind in "iu" else rows.index
        if strict:
            self.encoding.check_values(rows)
        else:
            self.encoding.warn_of_unseen(rows)
        return self.encoding.apply(rows)

    def predict_set(self, frame: Any, **how: Any) -> Any:
        """Prediction sets of the rows of a data frame; ``how`` as in `SCPOClassifier.predict_set`."""
        return _indexed(self.predictor.predict_set(self.encode(frame), **how), frame)

    def predict_p(self, frame: Any, **how: Any) -> Any:
        """Conformal p-values of the rows of a data frame."""
        return _indexed(self.predictor.predict_p(self.encode(frame), **how), frame)

    def predict(self, frame: Any) -> Any:
        """The most conforming label of each row of a data frame."""
        return self.predictor.predict(self.encode(frame))

    def evaluate(self, frame: Any, y: Any = None, **how: Any) -> Any:
        """Coverage, size and more on labelled rows; the labels are in the target column unless given."""
        labels = self.labels(frame) if y is None else y
        return self.predictor.evaluate(self.encode(frame), labels, **how)

    def labels(self, frame: Any) -> np.ndarray:
        """The labels in the target column, rare ones as they were in training; one that was never seen as it is."""
        if self.target not in frame.columns:
            raise TableError(f"there is no column {self.target!r} with the labels, which is needed here")
        texts = as_text(frame[self.target])
        if texts.isna().any():
            raise TableError(
                f"the target column {self.target!r} has no label in row {int(texts.index[texts.isna().argmax()]) + 1}"
            )
        codes, distinct = texts.factorize()
        classes = {str(label): label for label in self.classes_.tolist()}
        spelled = spelled_as([*classes, *self.merged, *self.dropped], distinct)
        known = [self.merged.get(text or "", text) for text in spelled]
        found = [classes.get(label or "", text) for label, text in zip(known, distinct, strict=True)]
        left_out = [text for text in spelled if text in self.dropped]
        if left_out:
            warn(
                f"rows have the label {', '.join(map(repr, left_out[:5]))}{' ...' if len(left_out) > 5 else ''}, which "
                "was dropped as rare in training: coverage is promised for rows of the other labels only"
            )
        if self.classes_.dtype.kind == "i":
            found = [self._as_number(label, texts) for label in found]
        labels: np.ndarray = np.array(found, dtype=None if found else self.classes_.dtype)[codes]
        return labels

    def _as_number(self, label: Any, texts: Any) -> int:
        """A label beside numbers, which must be one."""
        try:
            return int(label)
        except ValueError:
            row = int(texts.index[(texts == label).argmax()]) + 1
            raise TableError(
                f"the target column {self.target!r} has {label!r} in row {row}, but the labels of training are whole "
                f"numbers: {', '.join(map(str, self.classes_[:8]))}{' ...' if len(self.classes_) > 8 else ''}"
            ) from None

    def save(self, path: Any, *, trusted: Sequence[str] = ()) -> None:
        """Write it to a file that `tightset.load` opens."""
        columns = {
            "columns": [column.name for column in self.encoding.columns],
            "dtypes": [type(column).__name__.lower() for column in self.encoding.columns],
            "left_out": self.encoding.left_out,
            "target": self.target,
            "about": self.about,
        }
        save_model(self, path, says={**describe(self.predictor), **columns}, trusted=trusted)


def fit_table(
    table: Any,
    target: str,
    predictor: Any,
    baseline: Any = None,
    *,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    rare_labels: str = "keep",
    rare_rows: int | None = None,
    assign: Callable[[np.ndarray], np.ndarray] | None = None,
    about: dict[str, Any] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    then: Callable[[Prepared], None] = lambda _: None,
) -> TablePredictor:
    """Fit a predictor, and perhaps a baseline, on a table: the same rows train and calibrate both.

    Parameters
    ----------
    table : a pandas data frame, or a `tightset.tables.TableFile`.
    target : the column of labels.
    predictor, baseline : an `SCPOClassifier` or a `ConformalClassifier`, not fitted yet.
    categorical : columns that are categories whatever they look like: numbers that are codes, texts of many values.
    drop : columns that are not used.
    rare_labels : what becomes of labels of fewer than ``rare_rows`` rows: ``"keep"``, with a warning; ``"other"``, one
        label stands for all of them; ``"drop"``, their rows are left out, and coverage is for rows of the other labels.
    rare_rows : by default 10, or with ``label_conditional`` four times as many as the strictest level needs to
        calibrate a label (76 at 95 %).
    assign : for codes of labels ``(n,)``, which rows train (0), calibrate (1), or are left out (-1); by default
        `split_rows`. The code of a row that is left out for its label is -1.
    then : called with the encoded rows once both are fitted, for whoever wants to look at these rows.

    >>> import pandas as pd
    >>> from tightset import ConformalClassifier
    >>> frame = pd.DataFrame({"colour": ["red", "blue"] * 50, "kind": ["apple", "plum"] * 50})
    >>> model = fit_table(frame, "kind", ConformalClassifier(confidence=0.9, random_state=0))
    >>> model.predict_set(pd.DataFrame({"colour": ["blue"]}), as_labels=True)
    [array(['plum'], dtype='<U5')]
    """
    if predictor.cv is not None:
        raise ValueError("a table is split once into rows that train and rows that calibrate; leave cv=None")
    table = FrameTable(table) if hasattr(table, "columns") and hasattr(table, "loc") else table
    prepared = prepare(
        table,
        target,
        assign or (lambda codes: split_rows(codes, predictor)),
        categorical=categorical,
        drop=drop,
        rare=Rare.of(predictor, rare_labels, rare_rows),
        progress=progress,
    )
    fit_parts([one for one in (predictor, baseline) if one is not None], prepared)
    then(prepared)
    labels, numbers = np.unique(np.concatenate([y for _, y in prepared.parts]), return_counts=True)
    counts: dict[str, Any] = {
        "labels": dict(zip(map(str, labels.tolist()), numbers.tolist(), strict=True)),
        "rows": prepared.rows,
        "trained": len(prepared.parts[TRAIN][1]),
        "calibrated": len(prepared.parts[1][1]),
    }
    labelled = prepared.labelled
    counts |= {"rare labels": labelled.told} if labelled.told else {}
    if predictor.label_conditional:
        counts["mean size by label"] = _sizes(predictor, prepared.parts[CALIBRATE][0])
    about = {**(about or {}), **counts}
    return TablePredictor(
        prepared.encoding, target, predictor, baseline, about, merged=labelled.merged, dropped=labelled.dropped
    )


def _sizes(predictor: Any, X: np.ndarray) -> dict[str, float]:
    """The mean set size at each level on calibration rows.

    Of a row only its own label is compared with a threshold that the row had a part in, one in as many as the label has
    rows, so that the figure is good to a few thousandths: new rows have such sets.
    """
    levels = [float(level) for level in predictor.levels_]
    sizes = predictor.predict_set(X, confidence=levels).sum(axis=2).mean(axis=1)
    return {f"{level:g}": round(float(size), 4) for level, size in zip(levels, sizes, strict=True)}


def fit_parts(predictors: Sequence[Any], prepared: Prepared) -> None:
    """Fit on the training rows and calibrate on others; a label may be among the latter only."""
    (X, y), (X_cal, y_cal) = prepared.parts[:2]
    for predictor in predictors:
        predictor.fit_given(GivenRows(X, y, X_cal=X_cal, y_cal=y_cal, classes=prepared.labelled.classes))


def _indexed(found: Any, frame: Any) -> Any:
    return found.set_axis(frame.index) if hasattr(found, "set_axis") else found


def _check_named(frame: Any, names: Collection[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise TableError(f"there is no column {name!r}{meant(name, frame.columns)}")
