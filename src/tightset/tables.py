"""A conformal predictor for tables: columns of any kind in, sets of labels out.

The rows are split first; what the columns are turned into is learnt from the training rows alone. So a table is read
three times: for its labels and the kinds of its columns, for statistics of training rows, and to be encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from tightset.checking import generator, rows_to_hold, warn
from tightset.choice import calibration_split, stratified_split
from tightset.encoding import ColumnKinds, Encoding, Statistics
from tightset.files import TableError, as_text, check_names
from tightset.storage import describe, save_model

__all__ = ["TEST", "UNUSED", "FrameTable", "Prepared", "TablePredictor", "fit_table", "prepare", "split_rows"]

TRAIN, CALIBRATE, TEST, UNUSED = 0, 1, 2, -1
_MOST_LABELS = 1000
_LEAST_MEMORY = 2**27  # bytes for encoded rows that are always granted
_OF_FILE = 0.75  # and of a larger file so much of its size


class FrameTable:
    """A data frame, read as a file of tables is."""

    name = "the table"

    def __init__(self, frame: Any) -> None:
        names = [str(name) for name in frame.columns]
        check_names(names, self.name)
        self.frame = frame.set_axis(names, axis=1).reset_index(drop=True)
        self.missing: tuple[str, ...] = ()
        self.n_bytes = 2 * int(frame.memory_usage().sum())  # who holds it has room for its numbers too

    def unpacked(self, rows: int, columns: int) -> int:  # noqa: ARG002
        """Bytes of a table whose size says nothing of it; 0 here."""
        return 0

    def chunks(
        self,
        *,
        text: Collection[str] = (),
        label: str | None = None,
        only: Collection[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,  # noqa: ARG002
    ) -> Iterator[Any]:
        frame = self.frame if only is None else self.frame[[name for name in self.frame.columns if name in only]]
        # dates and the like are texts, as they would be in a file
        texts = [name for name in frame if name in text or name == label or frame[name].dtype.kind not in "fiubO"]
        yield frame.assign(**{name: as_text(frame[name]) for name in texts})


class Prepared(NamedTuple):
    """A table encoded: for each part, rows ``(n, columns)`` and labels; rows may be fewer than there were."""

    encoding: Encoding
    classes: np.ndarray
    parts: list[tuple[np.ndarray, np.ndarray]]
    rows: int


def prepare(
    table: Any,
    target: str,
    assign: Callable[[np.ndarray], np.ndarray],
    *,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    progress: Callable[[int], None] = lambda _: None,
    seed: int = 0,
) -> Prepared:
    """Read a table, split its rows, and encode them.

    ``assign`` gives, for labels ``(n,)`` in ``0 ... C - 1``, the part of each row: 0 trains, others are what they are.
    Where encoded rows would take more memory than three quarters of the file, and more than 128 MB, they are kept in
    float32, and if that is not enough some rows are left out, drawn at random from each part.
    """
    if target in drop or target in categorical:
        raise TableError(f"{target!r} is the target; it can be neither dropped nor a column to predict from")
    kinds = ColumnKinds({target, *drop}, categorical)
    labels = _Labels(table, target)
    for frame in table.chunks(text=categorical, label=target, progress=progress):
        labels.see(frame)
        _check_named(frame, [*categorical, *drop])
        kinds.see(frame)
    classes, codes = labels.settle()
    numbers, texts, left_out = kinds.settle()
    left_out |= dict.fromkeys(drop, "it was to be dropped")
    part = assign(codes)

    statistics = Statistics(numbers, texts, int((part == TRAIN).sum()))
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
    return Prepared(encoding, classes, list(zip(X, rows, strict=True)), len(codes))


def _thinned(part: np.ndarray, share: float, seed: int) -> np.ndarray:
    """So large a share of each part, drawn at random; the others are not used."""
    rng = np.random.default_rng([seed, 0x7468696E])  # not the stream that data may have been made with
    part = part.copy()
    for one in range(int(part.max()) + 1):
        rows = rng.permutation(np.flatnonzero(part == one))
        part[rows[max(2, int(share * len(rows))) :]] = UNUSED
    return part


def split_rows(codes: np.ndarray, predictor: Any, *, test: float = 0.0) -> np.ndarray:
    """The part of each row: trains, calibrates (as many as the predictor asks for), tests."""
    levels = predictor._levels(None)[0]
    rng = generator(predictor.random_state)
    rows = np.arange(len(codes))
    part = np.full(len(codes), TRAIN, dtype=np.int8)
    if test:
        rest, tested = stratified_split(np.zeros_like(codes), max(1, round(test * len(codes))), rng)
        part[rows[tested]] = TEST
        rows = rows[rest]
    if len(rows) < 4:
        raise TableError(f"{len(codes)} rows are too few to train, calibrate and test with")
    size = rows_to_hold(predictor.calibration_size, len(rows), max(levels, key=float), predictor._calibrating())
    strata = codes[rows] if predictor.label_conditional else np.zeros(len(rows), dtype=np.intp)
    part[rows[calibration_split(strata, codes[rows], size, rng)[1]]] = CALIBRATE
    return part


class TablePredictor:
    """A fitted predictor together with the encoding of its table, and a baseline on the same rows if there is one.

    It predicts for data frames that have the columns of training, in any order.

    Attributes
    ----------
    encoding : how columns become numbers; ``encoding.left_out`` says which are not used, and why.
    target : the column of labels in training. It is not needed to predict, and ignored if it is there.
    predictor, baseline : fitted `SCPOClassifier` or `ConformalClassifier`; ``baseline`` may be None.
    about : where the model comes from.
    """

    def __init__(
        self, encoding: Encoding, target: str, predictor: Any, baseline: Any = None, about: dict[str, Any] | None = None
    ) -> None:
        self.encoding, self.target = encoding, target
        self.predictor, self.baseline = predictor, baseline
        self.about = about or {}

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
        """The labels in the target column."""
        if self.target not in frame.columns:
            raise TableError(f"there is no column {self.target!r} with the labels, which is needed here")
        texts = as_text(frame[self.target])
        if texts.isna().any():
            raise TableError(
                f"the target column {self.target!r} has no label in row {int(texts.index[texts.isna().argmax()]) + 1}"
            )
        known = {str(label): label for label in self.classes_.tolist()}
        unknown = [text for text in texts.unique() if text not in known]
        if unknown:
            row = int(texts.index[(texts == unknown[0]).argmax()]) + 1
            raise TableError(
                f"the target column {self.target!r} has {unknown[0]!r} in row {row}, a label that the model was not "
                f"trained on; it knows {', '.join(list(known)[:8])}{' ...' if len(known) > 8 else ''}"
            )
        return np.array([known[text] for text in texts], dtype=self.classes_.dtype)

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
    assign: Callable[[np.ndarray], np.ndarray] | None = None,
    about: dict[str, Any] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    then: Callable[[Prepared], None] = lambda _: None,
) -> TablePredictor:
    """Fit a predictor, and perhaps a baseline, on a table: the same rows train and calibrate both.

    Parameters
    ----------
    table : a pandas data frame, or a `tightset.files.TableFile`.
    target : the column of labels.
    predictor, baseline : an `SCPOClassifier` or a `ConformalClassifier`, not fitted yet.
    categorical : columns of numbers that stand for categories.
    drop : columns that are not used.
    assign : for codes of labels ``(n,)``, which rows train (0), calibrate (1), or are left out (-1); by default
        `split_rows`.
    then : called with the encoded rows once both are fitted, for whoever wants to look at these rows.

    >>> import pandas as pd
    >>> from tightset import ConformalClassifier
    >>> frame = pd.DataFrame({"colour": ["red", "blue"] * 50, "kind": ["apple", "plum"] * 50})
    >>> model = fit_table(frame, "kind", ConformalClassifier(confidence=0.9, random_state=0))
    >>> model.predict_set(pd.DataFrame({"colour": ["blue"]}), as_labels=True)
    [array(['plum'], dtype='<U5')]
    """
    table = FrameTable(table) if hasattr(table, "columns") and hasattr(table, "loc") else table
    prepared = prepare(
        table,
        target,
        assign or (lambda codes: split_rows(codes, predictor)),
        categorical=categorical,
        drop=drop,
        progress=progress,
    )
    fit_parts([one for one in (predictor, baseline) if one is not None], prepared)
    then(prepared)
    labels, numbers = np.unique(np.concatenate([y for _, y in prepared.parts]), return_counts=True)
    counts = {
        "labels": dict(zip(map(str, labels.tolist()), numbers.tolist(), strict=True)),
        "rows": prepared.rows,
        "trained": len(prepared.parts[TRAIN][1]),
        "calibrated": len(prepared.parts[1][1]),
    }
    return TablePredictor(prepared.encoding, target, predictor, baseline, {**(about or {}), **counts})


def fit_parts(predictors: Sequence[Any], prepared: Prepared) -> None:
    """Fit on the training rows and calibrate on others; a label may be among the latter only."""
    (X, y), (X_cal, y_cal) = prepared.parts[:2]
    for predictor in predictors:
        predictor._fit(X, y, None, X_cal, y_cal, None, None, classes=prepared.classes)


def _indexed(found: Any, frame: Any) -> Any:
    return found.set_axis(frame.index) if hasattr(found, "set_axis") else found


class _Labels:
    """The target column, chunk by chunk, as codes."""

    def __init__(self, table: Any, target: str) -> None:
        self._table, self._target = table.name, target
        self._codes: list[np.ndarray] = []
        self._at: dict[str, int] = {}

    def see(self, frame: Any) -> None:
        if self._target not in frame.columns:
            raise TableError(
                f"there is no column {self._target!r} in {self._table}{_meant(self._target, frame.columns)}"
            )
        texts = frame[self._target]
        missing = texts.isna().to_numpy()
        if missing.any():
            raise TableError(
                f"the target column {self._target!r} has no value in row {int(frame.index[missing.argmax()]) + 1}"
                f"{f', nor in {int(missing.sum()) - 1:,} more' if missing.sum() > 1 else ''}: leave such rows out, or "
                "give them a label"
            )
        codes, distinct = texts.factorize()
        own = np.array([self._at.setdefault(str(value), len(self._at)) for value in distinct], dtype=np.int32)
        self._codes.append(own[codes])

    def settle(self) -> tuple[np.ndarray, np.ndarray]:
        if not self._at:
            raise TableError(f"{self._table} has a header but no rows")
        codes = np.concatenate(self._codes)
        names = list(self._at)
        if len(names) < 2:
            raise TableError(
                f"the target column {self._target!r} is {names[0]!r} in every row; there is nothing to tell apart"
            )
        if len(names) > _MOST_LABELS or len(names) > len(codes) / 2:
            raise TableError(
                f"the target column {self._target!r} has {len(names):,} different values in {len(codes):,} rows: that "
                "is a number, a name or an identifier, and not a label to classify by; or there are too few rows"
            )
        alike: dict[str, str] = {}
        for name in names:
            other = alike.setdefault(" ".join(name.split()).casefold(), name)
            if other != name:
                warn(f"the labels {other!r} and {name!r} differ in case or spaces only, and count as two")
        whole = all(name.lstrip("-").isdecimal() and str(int(name)) == name for name in names)
        distinct = np.array([int(name) for name in names] if whole else names)
        order = np.argsort(distinct)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return distinct[order], place[codes]


def _check_named(frame: Any, names: Collection[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise TableError(f"there is no column {name!r}{_meant(name, frame.columns)}")


def _meant(name: str, columns: Collection[Any]) -> str:
    names = [str(one) for one in columns]
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(map(repr, names[:8]))}{' ...' if len(names) > 8 else ''}"
