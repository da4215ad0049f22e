"""Model files opened again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tightset.bases import Averaged, Given
from tightset.boosting import Trees
from tightset.classifier import ConformalClassifier, Logistic, Scored
from tightset.columns import Columns, Knots, Scaling
from tightset.encoding import Category, Encoding, Number
from tightset.grid import Chosen
from tightset.icp import Calibration
from tightset.kinds import check_model, make
from tightset.models import Ensemble, LinearModel, LogProbabilities, Member, Stacked, Tempered
from tightset.packing import ModelFileError, unpack
from tightset.paths import Search
from tightset.pool import Found, Verdict
from tightset.predicting import Fold
from tightset.scores import APS, LAC, RAPS, SAPS, Margin, TopK
from tightset.scpo import SCPOClassifier
from tightset.storage import check_said, open_model
from tightset.tables import TablePredictor

__all__ = ["load"]

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(APS, LAC, RAPS, SAPS, Margin, TopK),
        *(Averaged, Calibration, Chosen, Columns, Ensemble, Fold, Found, Given, Knots, LinearModel, LogProbabilities),
        *(Logistic, Member, Scaling, Scored, Search, Stacked, Tempered, Trees, Verdict),
        *(Category, Encoding, Number, TablePredictor),
        *(ConformalClassifier, SCPOClassifier),
    )
}


def load(path: Any, *, trusted: Iterable[str] = ()) -> Any:
    """Open a model that was written by its ``save``. No code of the file runs, whoever wrote it.

    Parameters
    ----------
    path : the file.
    trusted : full names of types of other packages that may be built, beside those that are known as harmless.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = ConformalClassifier(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(f"{folder}/wine.tightset")
    ...     again = load(f"{folder}/wine.tightset")
    >>> bool((again.predict_set(X) == clf.predict_set(X)).all())
    True
    """
    opened = open_model(path)
    try:
        model = unpack(opened.packed, _KINDS, make=make, trusted=trusted)
        check_model(model)
        check_said(opened.about, model)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except Exception as error:  # whatever a file may hold, its reader learns that it is the file
        raise ModelFileError(f"{path} is not a model that this version of tightset can read: {error}") from error
    return model
