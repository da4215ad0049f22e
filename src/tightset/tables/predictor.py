"""A conformal predictor for tables: columns of any kind in, sets of labels out.

The rows are split first; what the columns are turned into is learnt from the training rows alone. So a table is read
three times: for its labels and the kinds of its columns, for statistics of training rows, and to be encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tightset.estimators.base import ConformalPredictor
from tightset.estimators.description import describe
from tightset.exceptions import TableError, warn
from tightset.storage.file import save_model
from tightset.storage.registry import storable
from tightset.tables.dialect import Dialect
from tightset.tables.encoding import Encoding
from tightset.tables.frames import FrameTable
from tightset.tables.groups import groups_of
from tightset.tables.target import meant
from tightset.tables.texts import as_text, spelled_as, with_gaps

__all__ = ["TablePredictor"]


@storable
class TablePredictor:
    """A fitted predictor together with the encoding of its table; `fit_table` makes it.

    It predicts for data frames that have the columns of training, in any order. Parameters are kept as attributes.

    Parameters
    ----------
    encoding : Encoding
        How columns become numbers; ``encoding.left_out`` says which are not used, and why.
    target : str
        The column of labels in training. It is not needed to predict, and ignored if it is there.
    predictor : SCPOClassifier or ConformalClassifier
        The fitted predictor.
    baseline : SCPOClassifier or ConformalClassifier, optional
        Another fitted predictor on the same rows, to compare with.
    about : dict, optional
        Where the model comes from.
    merged : dict of str to str, optional
        Rare labels of the table, with the label that stands for them.
    dropped : sequence of str, default ()
        Rare labels whose rows were left out.
    dialect : Dialect, optional
        How the table was written, if it was a file of text.
    """

    later_fields = ("merged", "dropped", "dialect")
    merged: Mapping[str, str] = MappingProxyType({})
    dropped: Sequence[str] = ()
    dialect = Dialect()

    def __init__(
        self,
        encoding: Encoding,
        target: str,
        predictor: ConformalPredictor,
        baseline: ConformalPredictor | None = None,
        about: dict[str, Any] | None = None,
        *,
        merged: dict[str, str] | None = None,
        dropped: Sequence[str] = (),
        dialect: Dialect | None = None,
    ) -> None:
        self.encoding, self.target = encoding, target
        self.predictor, self.baseline = predictor, baseline
        self.about = about or {}
        self.merged, self.dropped = merged or {}, list(dropped)
        self.dialect = dialect or Dialect()

    def __repr__(self) -> str:
        return f"TablePredictor(target={self.target!r}, columns={len(self.encoding.columns)}, {self.predictor!r})"

    def _repr_html_(self) -> str:
        return str(self.predictor._repr_mimebundle_().get("text/html", repr(self)))

    @property
    def classes_(self) -> np.ndarray:
        return self.predictor.classes_

    @property
    def levels_(self) -> tuple[Any, ...]:
        return self.predictor.levels_

    @property
    def group(self) -> str | None:
        """The column with the group of each row, which new rows need; None if coverage is not by group."""
        return self.encoding.group

    @property
    def text(self) -> list[str]:
        """Columns of a file to be read as texts."""
        return [*self.encoding.text, *([] if self.group is None else [self.group])]

    def encode(self, frame: Any, *, strict: bool = False) -> np.ndarray:
        """Return the rows of a data frame as the predictor takes them.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            The rows.
        strict : bool, default False
            Refuse other columns, another order of columns, and categories that were not seen in training.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The encoded rows.
        """
        table = FrameTable(frame, self.encoding.missing)
        self.encoding.check(list(table.frame.columns), allowed=[self.target], lenient=not strict)
        (rows,) = table.chunks(text=self.encoding.text, only=[column.name for column in self.encoding.columns])
        rows.index = frame.index if frame.index.dtype.kind in "iu" else rows.index
        if strict:
            self.encoding.check_values(rows)
        else:
            self.encoding.warn_of_unseen(rows)
        return self.encoding.apply(rows)

    def predict_set(self, frame: Any, **how: Any) -> Any:
        """Return the prediction set of each row of a data frame.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            The rows.
        **how : dict
            Parameters of `SCPOClassifier.predict_set`.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
        """
        return _indexed(self.predictor.predict_set(self.encode(frame), **self._in_groups(frame, how)), frame)

    def predict_p(self, frame: Any, **how: Any) -> Any:
        """Return the conformal p-value of each label, for the rows of a data frame.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            The rows.
        **how : dict
            Parameters of `SCPOClassifier.predict_p`.

        Returns
        -------
        p_values : ndarray of shape (n_samples, n_classes)
        """
        return _indexed(self.predictor.predict_p(self.encode(frame), **self._in_groups(frame, how)), frame)

    def predict(self, frame: Any) -> Any:
        """Return the most conforming label of each row of a data frame.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            The rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return self.predictor.predict(self.encode(frame))

    def predict_or_abstain(self, frame: Any, **how: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return one label for each row of a data frame that is certain enough, and which rows those are.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            The rows.
        **how : dict
            Parameters of `SCPOClassifier.predict_or_abstain`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        answered : ndarray of bool of shape (n_samples,)
        """
        return self.predictor.predict_or_abstain(self.encode(frame), **how)

    def evaluate(self, frame: Any, y: Any = None, **how: Any) -> Any:
        """Measure coverage, set size and more on labelled rows.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            The rows.
        y : array-like of shape (n_samples,), optional
            The labels; by default those of the target column.
        **how : dict
            Parameters of `SCPOClassifier.evaluate`.

        Returns
        -------
        row : dict or list of dict
        """
        labels = self.labels(frame) if y is None else y
        return self.predictor.evaluate(self.encode(frame), labels, **self._in_groups(frame, how))

    def groups(self, frame: Any) -> np.ndarray | None:
        """Return the group of each row, as texts; None if coverage is not by group.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            Rows with the group column. Where it has no value, the group is ``(missing)``.

        Returns
        -------
        groups : ndarray of str of shape (n_samples,), or None
        """
        if self.group is None:
            return None
        known = {str(group) for group, _ in self.predictor.fitted_.calibration_rows()}
        return groups_of(frame, self.group, self.encoding.missing, sorted(known))

    def _in_groups(self, frame: Any, how: dict[str, Any]) -> dict[str, Any]:
        return how if self.group is None else {"groups": self.groups(frame), **how}

    def labels(self, frame: Any) -> np.ndarray:
        """Return the labels in the target column, rare ones as they were in training.

        Parameters
        ----------
        frame : pandas.DataFrame of n_samples rows
            Rows with the target column.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The labels. One that was never seen stays as it is.
        """
        if self.target not in frame.columns:
            raise TableError(f"there is no column {self.target!r} with the labels{meant(self.target, frame.columns)}")
        texts = with_gaps(as_text(frame[self.target]), self.encoding.missing, label=True)
        if texts.isna().any():
            raise TableError(
                f"the target column {self.target!r} has no label in row {int(texts.index[texts.isna().argmax()]) + 1}"
                "; --drop-unlabelled leaves such rows out"
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
                "was dropped as rare in training: coverage is guaranteed for rows of the other labels only"
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
        """Write the model to a file that `tightset.load` opens without running code.

        Parameters
        ----------
        path : str or os.PathLike
            The file, usually ``name.tightset``. It is written completely or not at all.
        trusted : sequence of str, default ()
            Full names of further types that may be stored; `load` must be given the same names.
        """
        columns = {
            "columns": [column.name for column in self.encoding.columns],
            "dtypes": [type(column).__name__.lower() for column in self.encoding.columns],
            "left_out": self.encoding.left_out,
            "target": self.target,
            "about": self.about,
        }
        save_model(self, path, says={**describe(self.predictor), **columns}, trusted=trusted)


def _indexed(found: Any, frame: Any) -> Any:
    return found.set_axis(frame.index) if hasattr(found, "set_axis") else found
