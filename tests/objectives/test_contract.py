"""Every objective keeps the contract, so that every part of the training can use it: whole, in blocks, in batches."""

import numpy as np
import pytest

from problems import CUBIC, assert_same_gradient, numeric_gradient
from tightset import objectives
from tightset.compute.arrays import add_up, label_runs, own_label
from tightset.compute.contracts import check_offers
from tightset.conformal.inefficiency import LOG
from tightset.measures import MEASURES
from tightset.objectives.contract import Objective, SummedObjective
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.penalised import Penalised
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training

B, K, C = 3, 40, 4
EPS, GAMMA = np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 4.0])
OBJECTIVES = {
    "penalised": Penalised(EPS, np.array([10.0, 100.0, 5.0]), GAMMA, f=LOG),
    "profiled": Profiled(EPS, GAMMA, CUBIC, tol=1e-12),
    "log-loss": LogLoss(),
}
every = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


@pytest.fixture
def scored():
    rng = np.random.default_rng(0)
    return rng.standard_normal((B, K, C)), np.sort(rng.integers(0, C, K)), rng.uniform(0.5, 2, (B, K))


def test_every_objective_that_a_search_may_descend_is_here():
    assert OBJECTIVES.keys() >= objectives.OBJECTIVES.keys()


@every
def test_it_offers_what_is_asked_for(objective):
    check_offers(objective, Objective)
    check_offers(objective, SummedObjective)


@every
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_meets_finite_differences_and_inputs_stay(objective, weighted, scored):
    A, y, w = scored
    weight, before = w if weighted else None, A.copy()
    loss, dA = objective.value_and_gradient(A, y, weight)
    np.testing.assert_array_equal(A, before)
    assert (loss.shape, dA.shape) == ((B,), A.shape)
    assert_same_gradient(dA, numeric_gradient(lambda at: objective.value_and_gradient(at, y, weight)[0], A))


@every
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_add_up_to_the_whole(objective, weighted, scored):
    A, y, w = scored
    weight = w if weighted else np.ones_like(w)
    loss, dA = objective.value_and_gradient(A, y, weight)
    own = own_label(A, label_runs(y))
    q = objective.threshold(own, weight / weight.sum(axis=1, keepdims=True))
    found, derivatives = [], []
    for rows in (slice(0, 13), slice(13, 17), slice(17, K)):
        given = weight[:, rows] if weighted else None
        sums, dF, dV = objective.block(A[:, rows].copy(), label_runs(y[rows]), given, q)
        found.append(tuple(sums))
        derivatives.append((rows, dF, dV))
    of_blocks, a, b = objective.combine(add_up(found))
    np.testing.assert_allclose(of_blocks, loss, rtol=1e-9)
    for rows, dF, dV in derivatives:
        pulled = np.zeros_like(A[:, rows]) if dF is None else a[:, None, None] * dF
        pulled[:, np.arange(dV.shape[1]), y[rows]] += b[:, None] * dV
        np.testing.assert_allclose(pulled, dA[:, rows], rtol=1e-7, atol=1e-12)


@every
def test_candidates_do_not_notice_each_other(objective, scored):
    A, y, weight = scored
    loss, dA = objective.value_and_gradient(A, y, weight)
    parts = [objective.take(np.array([at])) for at in range(B)]
    for at, part in enumerate(parts):
        alone, gradient = part.value_and_gradient(A[[at]], y, weight[[at]])
        np.testing.assert_allclose(alone, loss[[at]], rtol=1e-9)
        np.testing.assert_allclose(gradient, dA[[at]], rtol=1e-7, atol=1e-12)
    again, _ = parts[0].beside(parts[1:]).value_and_gradient(A, y, weight)
    np.testing.assert_array_equal(again, loss)


def test_what_is_no_objective_or_no_measure_is_refused_by_name():
    rows = np.ones((2, 2)), np.array([0, 1])
    rest = np.ones((1, 2)), np.zeros((1, 2, 2)), np.zeros((1, 2, 1))
    with pytest.raises(
        TypeError,
        match=r"object is no Objective: it lacks take, value_and_gradient .*\(see tightset\.objectives\.contract",
    ):
        Training(*rows, MEASURES["linear"], object(), *rest)
    with pytest.raises(TypeError, match="LogLoss is no Measure: it lacks backward, export, forward"):
        Training(*rows, LogLoss(), LogLoss(), *rest)
