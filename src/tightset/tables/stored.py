"""Models of tables when they come from a file; and `load`, which opens any model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tightset.estimators.base import ConformalPredictor
from tightset.estimators.description import check_said
from tightset.estimators.stored import check_predictor
from tightset.exceptions import ModelFileError
from tightset.neural import classifier, records  # noqa: F401 - what they define may be in a file
from tightset.storage.fields import fits, must, shown
from tightset.storage.file import open_model
from tightset.storage.packing import unpack
from tightset.tables.columns import Category, Date, Number
from tightset.tables.dates import PARTS
from tightset.tables.dialect import Dialect
from tightset.tables.encoding import Encoding
from tightset.tables.predictor import TablePredictor

__all__ = ["load"]


def load(path: Any, *, trusted: Iterable[str] = ()) -> Any:
    """Open a model that was written by its ``save``.

    No code of the file runs, whoever wrote it.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    trusted : iterable of str, default ()
        Full names of types of other packages that may be built, beside those that are known to be harmless.

    Returns
    -------
    model : SCPOClassifier, ConformalClassifier or TablePredictor
        The fitted model.

    Raises
    ------
    ModelFileError
        If the file is not a model that this version can open safely. The message names types that are not trusted.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> from tightset import ConformalClassifier
    >>> clf = ConformalClassifier(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(f"{folder}/wine.tightset")
    ...     again = load(f"{folder}/wine.tightset")
    >>> bool((again.predict_set(X) == clf.predict_set(X)).all())
    True
    """
    opened = open_model(path)
    try:
        model = unpack(opened.packed, trusted=trusted)
        _check_model(model)
        check_said(opened.about, model)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except Exception as error:  # whatever a file may hold, its reader learns that it is the file
        raise ModelFileError(f"{path} is not a model that this version of tightset can read: {error}") from error
    return model


def _check_model(opened: Any) -> None:
    """Raise ModelFileError unless the parts of a model that was opened fit together."""
    if isinstance(opened, TablePredictor):
        _check_table(opened)
    elif isinstance(opened, ConformalPredictor):
        check_predictor(opened)
    else:
        raise ModelFileError(f"it holds {shown(opened)} and not a model")


def _check_table(model: TablePredictor) -> None:
    for field in ("encoding", "target", "predictor", "baseline", "about"):
        must(field in vars(model), f"TablePredictor.{field} is missing")
    encoding = model.encoding
    must(isinstance(encoding, Encoding), "TablePredictor.encoding must be an Encoding")
    must(isinstance(model.target, str) and isinstance(model.about, dict), "TablePredictor.target must be a name")
    merged, dropped = vars(model).get("merged", {}), vars(model).get("dropped", [])
    must(fits(merged, dict[str, str]) and fits(dropped, list[str]), "TablePredictor.merged must be names")
    must(isinstance(model.dialect, Dialect), "TablePredictor.dialect must be a Dialect")
    model.dialect.checked()
    must(encoding.dtype in ("float32", "float64"), "Encoding.dtype must be float32 or float64")
    names = [column.name for column in encoding.columns]
    must(names and len(set(names)) == len(names), "Encoding.columns must have a name each")
    for column in encoding.columns:
        if isinstance(column, Number):
            must(np.isfinite(column.fill), f"Number.fill of {column.name!r} must be a number")
        elif isinstance(column, Category):
            right = column.values and len(set(column.values)) == len(column.values)
            must(right and column.commonest in column.values, f"Category.values of {column.name!r} must differ")
        elif isinstance(column, Date):
            right = set(column.parts) <= set(PARTS) and len(set(column.parts)) == len(column.parts)
            must(right and (column.parts or column.told), f"Date.parts of {column.name!r} must be parts of a date")
            must(abs(column.earliest) < 2**38 and abs(column.fill) < 2**38, f"Date.fill of {column.name!r} is no date")
    for predictor in (model.predictor, *([] if model.baseline is None else [model.baseline])):
        must(isinstance(predictor, ConformalPredictor), "TablePredictor.predictor must be a predictor")
        check_predictor(predictor)
        width = len(encoding.names)
        must(predictor.n_features_in_ == width, f"TablePredictor.predictor must take the {width} encoded columns")
        by_group = predictor.fitted_.by_group
        must(by_group == (model.group is not None), "Encoding.group must be there where coverage is by group")
        must(np.array_equal(predictor.classes_, model.predictor.classes_), "the baseline must have the same classes")
