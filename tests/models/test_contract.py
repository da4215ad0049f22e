"""Every kind of model keeps the contract: scores of raw rows, the same alone as among others."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from makers import baseline, quick_grid, quick_on_top, quick_scpo
from tightset.compute.contracts import check_offers
from tightset.models.contract import Block, Model
from tightset.models.ensembles import Ensemble, LinearModel, Stacked
from tightset.models.scored import Scored

KINDS = {
    Ensemble: lambda: quick_scpo(confidence=0.8),
    LinearModel: lambda: quick_grid(confidence=0.8),
    Stacked: lambda: quick_on_top(GaussianNB(), confidence=0.8),
    Scored: lambda: baseline(confidence=0.8),
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_raw_rows(kind, blobs):
    X, y = blobs
    clf = KINDS[kind]().fit(X, y)
    (model,) = clf.folds_[0].models
    assert isinstance(model, kind)
    check_offers(model, Model)
    for block in getattr(model, "blocks", ()):
        check_offers(block, Block)
        assert block.scores(X).shape == (len(X), 3)
    before = X.copy()
    scores = model.scores(X, clf.fitted_.shared(range(len(X))))
    np.testing.assert_array_equal(X, before)
    assert scores.shape == (len(X), 3)
    assert not np.isnan(scores).any()
    alone = model.scores(X[5:6], clf.fitted_.shared(range(5, 6)))
    np.testing.assert_allclose(alone[0], scores[5], rtol=1e-12)
