"""Every gradient against finite differences; batched = one by one; any blocks; hard limit; other array libraries."""

import array_api_strict as strict
import numpy as np
import pytest
from scipy import sparse

from problems import CUBIC, WEIGHTS, B, C, K, M, assert_same_gradient, numeric_gradient, problem
from tightset.compute.arrays import label_runs, own_label
from tightset.compute.blocks import Rows
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import LOG, SIZE, power
from tightset.conformal.ranks import threshold
from tightset.measures import Linear
from tightset.objectives.penalised import FORMS, Penalised
from tightset.objectives.training import Surrogate


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("f", [SIZE, LOG, power(2), power(0.5), CUBIC], ids=lambda f: f.name)
def test_gradients_meet_finite_differences(f, form, weights, seed):
    X, y, theta, weight, objective = problem(seed, f, form, weights)
    A = Linear().scores(X, theta)
    loss, dA = objective.value_and_gradient(A, y, weight)
    assert loss.shape == (B,)
    numeric = numeric_gradient(lambda A: objective.value_and_gradient(A, y, weight)[0], A.copy())
    assert_same_gradient(dA, numeric)

    surrogate = Surrogate(Rows(X, y, weight, scores_per_row=B * C, block_rows=4), Linear(), objective)
    value, gradient = surrogate(theta)
    np.testing.assert_allclose(value, loss, rtol=1e-12)
    assert_same_gradient(gradient, numeric_gradient(lambda t: surrogate(t)[0], theta))


def test_loss_is_the_formula_of_the_paper():
    X, y, theta, _, objective = problem(0, LOG, "L")
    A = X @ theta
    sigma = 1 / (1 + np.exp(-objective.gamma[:, None, None] * (A - 1)))
    V = sigma[:, np.arange(K), y].mean(axis=1) - (1 - objective.eps)
    L = np.log1p(sigma.sum(axis=2)).mean(axis=1) + objective.lam * V**2
    for form, expected in zip(FORMS, [L, np.log(L), -1 / L, -1 / L**2], strict=True):
        found = Penalised(objective.eps, objective.lam, objective.gamma, f=LOG, form=form)
        np.testing.assert_allclose(found.value_and_gradient(A, y)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_batched_equals_one_by_one(weights):
    X, y, theta, weight, objective = problem(1, LOG, "log L", weights)
    rows = Rows(X, y, weight, scores_per_row=B * C)
    loss, gradient = Surrogate(rows, Linear(), objective)(theta)
    for b in range(B):
        alone = Surrogate(rows, Linear(), objective).take(np.array([b]))
        one_loss, one_gradient = alone(theta[[b]])
        np.testing.assert_allclose(one_loss, loss[[b]], rtol=1e-12)
        np.testing.assert_allclose(one_gradient, gradient[[b]], rtol=1e-10)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("block_rows", [1, 2, 5, 1000])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_any_block_size_and_thread_count_gives_the_same_numbers(block_rows, n_jobs, weights):
    X, y, theta, weight, objective = problem(2, LOG, "-1/L", weights)
    loss, dA = objective.value_and_gradient(X @ theta, y, weight)
    with Rows(X, y, weight, scores_per_row=B * C, block_rows=block_rows, n_jobs=n_jobs) as rows:
        value, gradient = Surrogate(rows, Linear(), objective)(theta)
    np.testing.assert_allclose(value, loss, rtol=1e-12)
    np.testing.assert_allclose(gradient, X.T @ dA, rtol=1e-9, atol=1e-14)


def test_thread_count_does_not_change_a_bit():
    X, y, theta, _, objective = problem(3)
    X, y = np.tile(X, (50, 1)), np.tile(y, 50)
    found = []
    for n_jobs in (1, 2, 3):
        with Rows(X, y, scores_per_row=B * C, block_rows=17, n_jobs=n_jobs) as rows:
            found.append(Surrogate(rows, Linear(), objective)(theta))
    for value, gradient in found[1:]:
        np.testing.assert_array_equal(value, found[0][0])
        np.testing.assert_array_equal(gradient, found[0][1])


def test_weights_count_as_repetitions():
    X, y, theta, _, objective = problem(4, LOG)
    times = np.arange(K) % 3
    repeated = objective.value_and_gradient(np.repeat(X, times, axis=0) @ theta, np.repeat(y, times))[0]
    np.testing.assert_allclose(objective.value_and_gradient(X @ theta, y, times.astype(float))[0], repeated, rtol=1e-12)


def test_inputs_are_not_changed():
    X, y, theta, weight, objective = problem(5, LOG, "L", "rows")
    A = X @ theta
    copies = [np.copy(x) for x in (X, y, theta, weight, A)]
    Surrogate(Rows(X, y, weight, scores_per_row=B * C), Linear(), objective, centre=np.ones(M - 1))(theta)
    objective.value_and_gradient(A, y, weight)
    for before, after in zip(copies, (X, y, theta, weight, A), strict=True):
        np.testing.assert_array_equal(before, after)


def test_sparse_rows_with_their_centre_equal_dense_centred_rows():
    X, y, theta, _, objective = problem(6)
    centre = np.array([0.3, -2.0])
    dense = Surrogate(Rows(X - np.append(centre, 0), y, scores_per_row=B * C), Linear(), objective)(theta)
    rows = Rows(sparse.csr_array(X), y, scores_per_row=B * C, block_rows=4)
    filled = Surrogate(rows, Linear(), objective, centre=centre)(theta)
    np.testing.assert_allclose(filled[0], dense[0], rtol=1e-12)
    np.testing.assert_allclose(filled[1], dense[1], rtol=1e-9)


@pytest.mark.parametrize("confidence", [0.8, 0.9])
def test_very_sharp_sigmoids_are_the_conformal_predictor(confidence):
    rng = np.random.default_rng(7)
    A = rng.standard_normal((200, C))
    y = rng.integers(0, C, 200)
    q = threshold(A[np.arange(200), y], confidence)
    sets = Calibration.of(A, y).sets(A, confidence)
    below = np.max(A[A < q])  # any q between the last score left out and the first one kept
    sharp = Penalised(np.array([1 - confidence]), np.ones(1), np.array([1e9]), q=(q + below) / 2)
    sums, _, _ = sharp.block(A[None].copy(), label_runs(y), None)
    assert sums.inefficiency[0] == pytest.approx(sets.sum(), abs=1e-9)
    assert sums.covered[0] == pytest.approx(sets[np.arange(200), y].sum(), abs=1e-9)


def test_kernels_run_on_another_array_library():
    X, y, theta, _, objective = problem(8, LOG)
    expected_loss, expected_dA = objective.value_and_gradient(X @ theta, y)
    as_strict = Penalised(*(strict.asarray(v) for v in (objective.eps, objective.lam, objective.gamma)), f=LOG)
    A = Linear().scores(strict.asarray(X), strict.asarray(theta))
    loss, dA = as_strict.value_and_gradient(A, y)
    gradient = Linear().pullback(strict.asarray(X), dA)
    np.testing.assert_allclose(np.asarray(loss), expected_loss, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(gradient), X.T @ expected_dA, rtol=1e-9)


def test_own_label_reads_unsorted_labels():
    A = np.arange(24.0).reshape(1, 6, 4)
    y = np.array([3, 0, 0, 2, 1, 1])
    np.testing.assert_array_equal(own_label(A, label_runs(y))[0], A[0, np.arange(6), y])


def test_unknown_form_is_refused():
    with pytest.raises(ValueError, match="form must be one of"):
        Penalised(np.ones(1), np.ones(1), np.ones(1), form="1/L")
