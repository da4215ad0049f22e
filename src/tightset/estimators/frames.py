"""Sets and p-values in the requested form: lists of labels, data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tightset.exceptions import needed_for

__all__ = ["along", "as_frame", "lists_of_labels"]


def along(sets: np.ndarray, classes: np.ndarray, order: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Sets ``(levels, n, C)`` and labels ``(C,)`` in the order of the labels, if they have one."""
    return (sets, classes) if order is None else (sets[..., order], classes[order])


def lists_of_labels(sets: np.ndarray, classes: np.ndarray) -> list[list[np.ndarray]]:
    """The labels of each set: a list of rows for each level of ``sets (levels, n, C)``."""
    return [[classes[kept] for kept in one] for one in sets]


def as_frame(
    found: np.ndarray, X: Any, classes: np.ndarray, levels: Sequence[Any], *, single: bool, as_labels: bool = False
) -> Any:
    """``found (levels, n, C)`` as a data frame with the rows of ``X``: polars if ``X`` is polars, else pandas.

    A column for each label. With several levels ``frame[level]`` is the frame of a level: pandas has columns of two
    storeys, (confidence, label), and of polars, which has no such thing, there is a dict of frames. With ``as_labels``
    there is a column ``set`` of lists of labels, or a column of them for each level.

    >>> as_frame(np.array([[[True, False]]]), [[0.5]], np.array(["no", "yes"]), [0.9], single=True)
    label    no    yes
    0      True  False
    """
    if type(X).__module__.partition(".")[0] == "polars":
        return _polars(found, classes, levels, single=single, as_labels=as_labels)
    with needed_for("as_frame=True", "cli"):
        import pandas as pd

    index = X.index if isinstance(X, (pd.DataFrame, pd.Series)) else pd.RangeIndex(found.shape[1])
    if as_labels:
        names: Sequence[Any] = ["set"] if single else levels
        lists = lists_of_labels(found, classes)
        columns = {
            name: pd.Series([labels.tolist() for labels in one], index=index, dtype=object)
            for name, one in zip(names, lists, strict=True)
        }
        frame = pd.DataFrame(columns, index=index)
        frame.columns.name = None if single else "confidence"
        return frame
    labels = pd.Index(classes, name="label")
    if single:
        return pd.DataFrame(found[0], index=index, columns=labels)
    storeys = pd.MultiIndex.from_product([list(levels), labels], names=["confidence", "label"])
    return pd.DataFrame(np.hstack(list(found)), index=index, columns=storeys)


def _polars(found: np.ndarray, classes: np.ndarray, levels: Sequence[Any], *, single: bool, as_labels: bool) -> Any:
    """The same for polars, whose columns have strings for names."""
    import polars as pl

    if as_labels:
        of_lists = pl.List(pl.Series(classes.tolist()).dtype)
        names = ["set"] if single else [str(level) for level in levels]
        lists = lists_of_labels(found, classes)
        return pl.DataFrame(
            {
                name: pl.Series([labels.tolist() for labels in one], dtype=of_lists)
                for name, one in zip(names, lists, strict=True)
            }
        )
    frames = [pl.DataFrame(np.ascontiguousarray(one), schema=[str(label) for label in classes]) for one in found]
    return frames[0] if single else dict(zip(levels, frames, strict=True))
