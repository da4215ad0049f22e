"""Every score keeps the contract: of probabilities it makes scores, it leaves nothing open in the end, and is exported."""

import numpy as np
import pytest

from graphs import run
from tightset import ConformalClassifier
from tightset.compute.contracts import check_offers
from tightset.conformal.contract import Score
from tightset.conformal.scores import RAPS, SAPS, SCORES, OwnScore, as_score, settled

every = pytest.mark.parametrize("name", SCORES)
P = np.random.default_rng(0).dirichlet(np.ones(5), 60)
Y = np.random.default_rng(1).integers(0, 5, 60)


def closed(name):
    return {"raps": RAPS(0.1, 2), "saps": SAPS(0.2)}.get(name) or as_score(name)


@every
def test_it_offers_what_is_asked_for(name):
    check_offers(as_score(name), Score)
    check_offers(closed(name), Score)


@every
def test_scores_have_the_shape_of_probabilities_and_rank_as_they_do(name):
    before = P.copy()
    scores = closed(name)(P)
    np.testing.assert_array_equal(P, before)
    assert scores.shape == P.shape
    np.testing.assert_array_equal(np.argsort(scores, axis=1, kind="stable"), np.argsort(P, axis=1, kind="stable"))


@every
def test_nothing_is_open_once_it_is_settled(name):
    score = as_score(name)
    assert score.is_open == (name in ("raps", "saps"))
    found = settled(score, P, Y, 0.8, None)
    assert not found.is_open
    assert found(P).shape == P.shape


@every
def test_it_is_exported_as_it_is_computed(name):
    score = closed(name)
    (scores,) = run(lambda graph, tensor: score.export(graph, tensor, P.shape[1])[:1], P)
    np.testing.assert_allclose(scores, score(P), rtol=1e-12)


def test_a_function_is_a_score_that_is_not_exported():
    own = as_score(np.sqrt)
    assert own == OwnScore(np.sqrt)
    np.testing.assert_array_equal(own(P), np.sqrt(P))
    assert not hasattr(own, "export")


def test_what_is_half_a_score_is_refused_by_name():
    class Half:
        is_open = False

        def __call__(self, P):
            return P

    with pytest.raises(TypeError, match="Half is no Score: it lacks adds_up, choices, export"):
        ConformalClassifier(conformity_score=Half()).fit(P, Y)
