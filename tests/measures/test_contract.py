"""Every measure keeps the contract: scores and pull-backs, a start, a size, a formula for export."""

import numpy as np
import pytest

from graphs import run
from problems import assert_same_gradient, numeric_gradient
from tightset.compute.contracts import check_offers
from tightset.measures import MEASURES, Measure

B, K, M, C = 2, 7, 3, 4
every = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)


def problem(measure):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((K, M - 1)), np.ones(K)])
    theta = measure.start(rng.standard_normal((B, M, C)))
    return X, theta + 0.3 * rng.standard_normal(theta.shape), rng.standard_normal((B, K, C))


@every
def test_it_offers_what_is_asked_for(measure):
    check_offers(measure, Measure)
    assert MEASURES[measure.name] is measure


@every
def test_it_starts_as_logistic_regression_ranks(measure):
    X, *_ = problem(measure)
    T = np.random.default_rng(1).standard_normal((B, M, C))
    theta = measure.start(T)
    assert measure.labels(theta.shape[2]) == C
    A, _ = measure.forward(X, theta)
    np.testing.assert_array_equal(np.argsort(A, axis=2), np.argsort(np.einsum("km,bmc->bkc", X, T), axis=2))


@every
def test_the_pull_back_meets_finite_differences_and_inputs_stay(measure):
    X, theta, dA = problem(measure)
    before = X.copy(), theta.copy()
    A, saved = measure.forward(X, theta)
    assert A.shape == (B, K, C)
    gradient = measure.backward(X, saved, dA.copy())
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(theta, before[1])
    assert_same_gradient(
        gradient, numeric_gradient(lambda at: (dA * measure.forward(X, at)[0]).sum(axis=(1, 2)), theta)
    )


@every
def test_it_is_exported_as_it_is_computed(measure):
    X, theta, _ = problem(measure)
    U = X @ theta[0]
    scores, error = run(lambda graph, tensor: measure.export(graph, tensor, graph.add("Abs", tensor), C), U)
    np.testing.assert_allclose(scores, measure.forward(X, theta[:1])[0][0], rtol=1e-12)
    assert error.shape == scores.shape
