"""Fitting a predictor on a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tightset.estimators.base import ConformalPredictor
from tightset.estimators.ordering import order_of
from tightset.tables.frames import FrameTable
from tightset.tables.groups import LEFT_OUT, Grouped
from tightset.tables.orders import check_own_order, order_labels
from tightset.tables.predictor import TablePredictor
from tightset.tables.preparing import (
    CALIBRATE,
    HELD_OUT,
    TEST,
    TRAIN,
    UNUSED,
    Prepared,
    fit_parts,
    prepare,
    split_rows,
)
from tightset.tables.target import Rare

__all__ = ["fit_prepared", "fit_table"]


def fit_table(
    table: Any,
    target: str,
    predictor: ConformalPredictor,
    baseline: ConformalPredictor | None = None,
    *,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    rare_labels: str = "keep",
    rare_rows: int | None = None,
    group: str | None = None,
    ordered: str | Sequence[Any] | None = None,
) -> TablePredictor:
    """Fit a predictor, and perhaps a baseline, on a table: the same rows train and calibrate both.

    Parameters
    ----------
    table : pandas.DataFrame or TableFile
        The table, with the labels in one of its columns; `tightset.tables.TableFile` reads files.
    target : str
        The column of labels.
    predictor : SCPOClassifier or ConformalClassifier
        The predictor, not fitted yet.
    baseline : SCPOClassifier or ConformalClassifier, optional
        Another predictor to compare with, not fitted yet.
    categorical : collection of str, default ()
        Columns that are categories whatever they look like: numbers that are codes, texts of many values.
    drop : collection of str, default ()
        Columns that are not used.
    rare_labels : {"keep", "other", "drop"}, default "keep"
        What becomes of labels with fewer than ``rare_rows`` rows: ``"keep"``, with a warning; ``"other"``, one label
        stands for all of them; ``"drop"``, their rows are left out, and coverage is for rows of the other labels.
    rare_rows : int, optional
        By default 10, or with ``label_conditional`` four times what the strictest level needs for a label (76 at 95 %).
    group : str, optional
        A column with the group of each row, which is not predicted from. Coverage then holds within each group; rows
        without a value are a group of their own. New rows need the column; sets of an unknown group hold all labels.

    ordered : "auto" or sequence of labels, optional
        The labels from the lowest to the highest: sets are then intervals of them. ``"auto"`` is the order of an
        ordered category, or else of whole numbers. It becomes the parameter ``ordered`` of predictor and baseline.

    Returns
    -------
    model : TablePredictor
        The fitted model, with the encoding of the columns.

    Raises
    ------
    TableError
        If the table cannot be used; the message says what to do about it.

    Examples
    --------
    >>> import pandas as pd
    >>> from tightset import ConformalClassifier
    >>> frame = pd.DataFrame({"colour": ["red", "blue"] * 50, "kind": ["apple", "plum"] * 50})
    >>> model = fit_table(frame, "kind", ConformalClassifier(confidence=0.9, random_state=0))
    >>> model.predict_set(pd.DataFrame({"colour": ["blue"]}), as_labels=True)
    [array(['plum'], dtype='<U5')]
    """
    if predictor.cv is not None:
        raise ValueError("a table is split once into training and calibration rows; use cv=None")
    table = FrameTable(table) if hasattr(table, "columns") else table
    table = Grouped(table, group, target, categorical)
    prepared = prepare(
        table,
        target,
        lambda codes: split_rows(codes, predictor, groups=table.groups),
        categorical=categorical,
        drop=[*drop, *table.columns],
        rare=Rare.of(predictor, rare_labels, rare_rows),
    )
    if ordered is not None:
        order_labels(ordered, prepared.labelled, predictor, baseline)
    check_own_order(predictor, prepared.labelled)
    return fit_prepared(prepared, target, predictor, baseline, grouped=table)


def fit_prepared(
    prepared: Prepared,
    target: str,
    predictor: ConformalPredictor,
    baseline: ConformalPredictor | None = None,
    about: dict[str, Any] | None = None,
    grouped: Grouped | None = None,
) -> TablePredictor:
    """As `fit_table`, on rows that were encoded before; ``about`` is what the model says of where it comes from."""
    groups = None if grouped is None else grouped.groups
    fit_parts([one for one in (predictor, baseline) if one is not None], prepared, groups)
    encoding = prepared.encoding._replace(group=None if grouped is None else grouped.column)
    encoding.left_out.update(dict.fromkeys([] if grouped is None else grouped.columns, LEFT_OUT))
    labels, numbers = np.unique(np.concatenate([y for _, y in prepared.parts]), return_counts=True)
    of_label = dict(zip(map(str, labels.tolist()), numbers.tolist(), strict=True))
    order = order_of(predictor)
    names = prepared.labelled.order if order is None else [str(one) for one in predictor.classes_[order].tolist()]
    in_order = [label for label in names if label in of_label] or list(of_label)
    counts: dict[str, Any] = {
        "labels": {label: of_label[label] for label in dict.fromkeys([*in_order, *of_label])},
        "rows": len(prepared.part),
        "trained": len(prepared.parts[TRAIN][1]),
        "calibrated": len(prepared.parts[CALIBRATE][1]),
        "tested": int(np.isin(prepared.part, (TEST, HELD_OUT)).sum()),
        "unused": int((prepared.part == UNUSED).sum()),  # without a label, of a rare one, or more than memory holds
    }
    labelled = prepared.labelled
    counts |= {"rare labels": labelled.told} if labelled.told else {}
    if predictor.label_conditional:
        own = None if groups is None else groups[prepared.part == CALIBRATE]
        counts["mean size by label"] = _sizes(predictor, prepared.parts[CALIBRATE][0], own)
    about = {**(about or {}), **counts}
    rest: dict[str, Any] = {"merged": labelled.merged, "dropped": labelled.dropped, "dialect": prepared.dialect}
    return TablePredictor(encoding, target, predictor, baseline, about, **rest)


def _sizes(predictor: ConformalPredictor, X: np.ndarray, groups: np.ndarray | None) -> dict[str, float]:
    """The mean set size at each level on calibration rows.

    Of a row only its own label is compared with a threshold that the row had a part in, one in as many as the label has
    rows, so that the figure is good to a few thousandths: new rows have such sets.
    """
    levels = [float(level) for level in predictor.levels_]
    sizes = predictor.predict_set(X, confidence=levels, groups=groups).sum(axis=2).mean(axis=1)
    return {f"{level:g}": round(float(size), 4) for level, size in zip(levels, sizes, strict=True)}
