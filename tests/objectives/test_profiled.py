"""The profiled objective and the measures that contain the baseline: gradients, batches, weights, limits."""

import array_api_strict as strict
import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_softmax

from problems import CUBIC, WEIGHTS, B, C, K, M, assert_same_gradient, numeric_gradient, problem
from tightset.conformal.inefficiency import LOG, SIZE, power
from tightset.conformal.ranks import threshold
from tightset.measures import MEASURES
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training

measures = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)


def profiled(seed, f=SIZE, weights="none", **changes):
    X, y, theta, weight, penalised = problem(seed, weights=weights)
    order = np.argsort(y, kind="stable")
    return X[order], y[order], theta, weight, Profiled(penalised.eps, penalised.gamma, f, **({"tol": 1e-14} | changes))


def training(measure, X, y, theta, weight, objective, **changes):
    """From a start beside the anchor, so that the pull has a gradient too."""
    rng = np.random.default_rng(0)
    anchor = np.asarray(measure.start(theta))
    weight = np.broadcast_to(np.ones(K) if weight is None else weight, (B, K))
    pull = rng.uniform(0, 0.5, (B, M, 1))
    return Training(X, y, measure, objective, weight, anchor, pull, **changes), anchor + rng.normal(size=anchor.shape)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("f", [SIZE, LOG, power(2), power(0.5), CUBIC], ids=lambda f: f.name)
@measures
def test_gradients_meet_finite_differences(measure, f, weights, seed):
    X, y, theta, weight, objective = profiled(seed, f, weights)
    A = X @ theta
    loss, dA = objective.value_and_gradient(A, y, weight)
    assert loss.shape == (B,)
    assert_same_gradient(dA, numeric_gradient(lambda A: objective.value_and_gradient(A, y, weight)[0], A))
    whole, at = training(measure, X, y, theta, weight, objective)
    assert_same_gradient(whole(at)[1], numeric_gradient(lambda t: whole(t)[0], at))


@pytest.mark.parametrize("weights", WEIGHTS)
@measures
def test_the_penalised_and_the_log_loss_work_with_every_measure(measure, weights):
    X, y, theta, weight, penalised = problem(1, LOG, weights=weights)
    for objective in (penalised, LogLoss()):
        whole, at = training(measure, X, y, theta, weight, objective)
        assert_same_gradient(whole(at)[1], numeric_gradient(lambda t, w=whole: w(t)[0], at))


def test_loss_is_the_formula_and_coverage_is_exact():
    X, y, theta, weight, objective = profiled(0, LOG, "rows")
    A, w = X @ theta, weight / weight.sum()
    q = objective.threshold(A[:, np.arange(K), y], np.broadcast_to(w, (B, K)))
    sigma = 1 / (1 + np.exp(-objective.gamma[:, None, None] * (A - q[:, None, None])))
    np.testing.assert_allclose(sigma[:, np.arange(K), y] @ w, 1 - objective.eps, atol=1e-12)
    loss = objective.value_and_gradient(A, y, weight)[0]
    np.testing.assert_allclose(loss, np.log1p(sigma.sum(axis=2)) @ w, rtol=1e-12)


def test_a_loosely_solved_threshold_is_made_good_in_the_loss():
    X, y, theta, _, exact = profiled(3)
    loose = Profiled(exact.eps, exact.gamma, tol=1e-4)
    found, expected = (one.value_and_gradient(X @ theta, y) for one in (loose, exact))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-7)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-3)


def test_thresholds_are_found_far_from_the_scores_and_in_gaps():
    alphas = np.array([[-1e4] * 3 + [1e4] * 7, [0.0] * 10, [-50.0] + [50.0] * 9]).astype(float)
    objective = Profiled(np.array([0.25, 0.1, 0.3]), np.array([1.0, 8.0, 4.0]))
    weight = np.full((3, 10), 0.1)
    q = objective.threshold(alphas, weight)
    covered = (weight / (1 + np.exp(np.clip(-objective.gamma[:, None] * (alphas - q[:, None]), -700, 700)))).sum(axis=1)
    np.testing.assert_allclose(covered[[1, 2]], [0.9, 0.7], atol=1e-4)
    assert covered[0] == pytest.approx(0.75, abs=1e-4)


def test_it_is_the_limit_of_the_penalised_loss_with_the_threshold_free():
    X, y, theta, _, objective = profiled(2)
    A = X @ theta
    q = objective.threshold(A[:, np.arange(K), y], np.full((B, K), 1 / K))
    expected = objective.value_and_gradient(A, y)[0]
    from tightset.objectives.penalised import Penalised

    heavy = Penalised(objective.eps, np.full(B, 1e9), objective.gamma, q=0.0, form="L")
    np.testing.assert_allclose(heavy.value_and_gradient(A - q[:, None, None], y)[0], expected, rtol=1e-6)


def test_very_sharp_sigmoids_are_the_conformal_predictor():
    rng = np.random.default_rng(7)
    A = rng.standard_normal((1, 199, C))
    y = np.sort(rng.integers(0, C, 199))
    loss = Profiled(np.array([0.1]), np.array([1e5])).value_and_gradient(A, y)[0]
    own = A[0, np.arange(199), y]
    hard = (A[0] >= threshold(own, 0.9)).sum(axis=1).mean()
    assert loss[0] == pytest.approx(hard, abs=0.03)  # the sigmoid at the threshold itself is a half


@measures
def test_batched_equals_one_by_one(measure):
    X, y, theta, weight, objective = profiled(4, LOG, "candidates")
    whole, at = training(measure, X, y, theta, weight, objective)
    loss, gradient = whole(at)
    for b in range(B):
        alone = whole.take(np.array([b]))(at[[b]])
        np.testing.assert_allclose(alone[0], loss[[b]], rtol=1e-12)
        np.testing.assert_allclose(alone[1], gradient[[b]], rtol=1e-9, atol=1e-14)


@measures
def test_weights_count_as_repetitions_and_zero_leaves_out(measure):
    X, y, theta, _, objective = profiled(5, LOG)
    times = np.arange(K) % 3
    whole, at = training(measure, X, y, theta, times.astype(float), objective)
    repeated = Training(
        np.repeat(X, times, axis=0), np.repeat(y, times), measure, objective,
        np.ones((B, times.sum())), whole.anchor, whole.pull,
    )  # fmt: skip
    for one, other in zip(whole(at), repeated(at), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


@measures
def test_sparse_rows_with_their_centre_equal_dense_centred_rows(measure):
    X, y, theta, weight, objective = profiled(6)
    centre = np.array([0.3, -2.0])
    dense, at = training(measure, X - np.append(centre, 0), y, theta, weight, objective)
    filled, _ = training(measure, sparse.csr_array(X), y, theta, weight, objective, centre=centre)
    for one, other in zip(filled(at), dense(at), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


@measures
def test_inputs_are_not_changed(measure):
    X, y, theta, weight, objective = profiled(7, LOG, "candidates")
    whole, at = training(measure, X, y, theta, weight, objective)
    before = [np.copy(x) for x in (X, y, at, weight, whole.anchor, whole.pull)]
    whole(at)
    for copy, now in zip(before, (X, y, at, weight, whole.anchor, whole.pull), strict=True):
        np.testing.assert_array_equal(copy, now)


def test_measures_start_as_logistic_regression():
    rng = np.random.default_rng(8)
    X, T = rng.standard_normal((5, M)), 30 * rng.standard_normal((2, M, C))
    logits = X @ T
    for name, expected in (("softmax", log_softmax(logits, axis=-1)), ("two-matrix", log_softmax(logits, axis=-1)),
                           ("linear", logits)):  # fmt: skip
        measure = MEASURES[name]
        theta = measure.start(T)
        assert measure.labels(theta.shape[-1]) == C
        np.testing.assert_allclose(measure.forward(X, theta)[0], expected, rtol=1e-12, atol=1e-12)


def test_the_two_matrix_measure_contains_the_linear_one():
    rng = np.random.default_rng(9)
    X = np.column_stack([rng.standard_normal((6, M - 1)), np.ones(6)])
    T, F = rng.standard_normal((1, M, C)), np.zeros((1, M, C))
    A = MEASURES["two-matrix"].forward(X, np.concatenate([T, F], axis=-1))[0]
    np.testing.assert_allclose(A, X @ T - np.log(C), rtol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_kernels_run_on_another_array_library(name):
    X, y, theta, weight, objective = profiled(8, LOG, "candidates", tol=1e-10)
    here, at = training(MEASURES[name], X, y, theta, weight, objective)
    there = Training(
        strict.asarray(X), y, MEASURES[name],
        Profiled(strict.asarray(objective.eps), strict.asarray(objective.gamma), LOG, tol=1e-10),
        *(strict.asarray(np.array(v)) for v in (here.weight, here.anchor, here.pull)),
    )  # fmt: skip
    for one, other in zip(there(strict.asarray(at)), here(at), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-9, atol=1e-13)
