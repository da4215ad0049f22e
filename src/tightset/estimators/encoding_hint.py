"""Frames with columns of text or categories: an error that names the columns and says how to encode them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["columns_not_numbers", "explained"]

# What classifiers and scalers say of values that they cannot read.
_UNREADABLE = re.compile(r"could not convert|must be a string or a|dtype|cannot be cast|not numeric|numeric data", re.I)
_SHOWN = 5


def columns_not_numbers(X: Any) -> dict[str, str]:
    """The columns of a pandas or polars frame that cannot be read as numbers, and their types; of an array none.

    >>> import pandas as pd
    >>> columns_not_numbers(pd.DataFrame({"size": [1.5], "colour": pd.Categorical(["red"])}))
    {'colour': 'category'}
    """
    if not (hasattr(X, "columns") and hasattr(X, "shape") and hasattr(X, "dtypes")):
        return {}
    columns = [X.iloc[:, at] if hasattr(X, "iloc") else X[:, at] for at in range(X.shape[1])]
    return {str(name): str(one.dtype) for name, one in zip(X.columns, columns, strict=True) if not _numbers(one)}


def _numbers(column: Any) -> bool:
    if getattr(column.dtype, "kind", "O") in "biuf":  # also where some are missing
        return True
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return np.asarray(column).dtype.kind not in "mM"


@contextmanager
def explained(X: Any, owner: str) -> Iterator[None]:
    """Around the training of ``owner``: if it fails because a column is not of numbers, say which, and what to do."""
    try:
        yield
    except (TypeError, ValueError) as error:
        found = columns_not_numbers(X) if _UNREADABLE.search(str(error)) else {}
        if not found:
            raise
        names = list(found)[:_SHOWN]
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ValueError(
            f"X has columns that are not numbers: {', '.join(f'{name!r} ({found[name]})' for name in names)}{more}. "
            "Either let tightset encode them, with the labels as a column of the frame: "
            f"tightset.fit_table(frame, target, {owner}(...)). Or encode them in a pipeline: "
            f"{owner}(estimator=make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown='ignore'), "
            f"{names}), remainder='passthrough'), LogisticRegression()))"
        ) from error
