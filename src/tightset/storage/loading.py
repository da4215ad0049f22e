"""Model files opened again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tightset.conformal.icp import Calibration
from tightset.conformal.scores import APS, LAC, RAPS, SAPS, Margin, TopK
from tightset.estimators.conformal import ConformalClassifier, Logistic, Scored
from tightset.estimators.predicting import Fold
from tightset.estimators.scpo import SCPOClassifier
from tightset.exceptions import ModelFileError
from tightset.models.classifiers import Averaged, Given
from tightset.models.columns import Columns, Knots, Scaling
from tightset.models.ensembles import Ensemble, LinearModel, LogProbabilities, Member, Stacked, Tempered
from tightset.models.trees import Trees
from tightset.search.grid import Chosen
from tightset.search.paths import Search
from tightset.search.shortlist import Found, Verdict
from tightset.storage.file import check_said, open_model
from tightset.storage.kinds import check_model, make
from tightset.storage.packing import unpack
from tightset.tables.encoding import Category, Encoding, Number
from tightset.tables.predictor import TablePredictor

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
