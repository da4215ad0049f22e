"""L-BFGS over a batch: each candidate as SciPy would, whatever its neighbours do."""

import numpy as np
import pytest
from scipy.optimize import minimize

from problems import Bowls, start
from tightset.solvers.lbfgs import _direction, lbfgs


class Rosenbrock:
    """``sum 100 s (x_{i+1} - x_i^2)^2 + (1 - x_i)^2``, of another steepness for each candidate."""

    def __init__(self, steepness):
        self.s = np.asarray(steepness, dtype=float)

    def __call__(self, theta):
        a, b, s = theta[:, :-1], theta[:, 1:], self.s[:, None]
        gradient = np.zeros_like(theta)
        gradient[:, :-1] = -400 * s * a * (b - a**2) - 2 * (1 - a)
        gradient[:, 1:] += 200 * s * (b - a**2)
        return (100 * s * (b - a**2) ** 2 + (1 - a) ** 2).sum(axis=1), gradient

    def take(self, candidates):
        return Rosenbrock(self.s[candidates])


def test_it_finds_curved_valleys_about_as_fast_as_scipy():
    steepness = [0.01, 0.3, 1.0]
    begin = np.tile([-1.2, 1.0, -0.5, 0.8], (3, 1))
    found = lbfgs(Rosenbrock(steepness), begin, max_iter=400, tol=1e-12)
    np.testing.assert_allclose(found.theta, 1, atol=1e-4)
    for s, took in zip(steepness, found.n_iter, strict=True):

        def alone(x, s=s):
            loss, gradient = Rosenbrock([s])(x[None])
            return loss[0], gradient[0]

        scipys = minimize(alone, begin[0], jac=True, method="L-BFGS-B", options={"maxcor": 10, "ftol": 1e-12})
        assert took <= 2 * scipys.nfev + 10


def test_a_candidate_does_not_feel_its_neighbours():
    begin = np.random.default_rng(0).normal(size=(4, 6))
    together = lbfgs(Rosenbrock([0.01, 1.0, 5.0, 0.1]), begin, max_iter=60)
    for b, s in enumerate([0.01, 1.0, 5.0, 0.1]):
        alone = lbfgs(Rosenbrock([s]), begin[[b]], max_iter=60)
        np.testing.assert_allclose(together.theta[[b]], alone.theta, rtol=1e-6)
        assert (together.status[b], together.n_iter[b]) == (alone.status[0], alone.n_iter[0])


def test_candidates_stop_one_by_one_and_the_loss_is_that_of_the_result():
    running = []
    problem = Rosenbrock([1e-6, 1.0])
    found = lbfgs(problem, np.full((2, 4), 0.5), max_iter=300, tol=1e-9, callback=lambda _, n: running.append(n))
    assert running[0] == 2
    assert running[-1] == 1
    assert list(found.status) == ["converged", "converged"]
    np.testing.assert_allclose(found.loss, problem(found.theta)[0], rtol=1e-12)


def test_a_start_that_is_not_finite_fails_alone():
    found = lbfgs(Bowls([1.0, np.nan, 2.0]), start(3), max_iter=30)
    assert list(found.status) == ["converged", "nonfinite", "converged"]
    assert np.isinf(found.loss[1])
    np.testing.assert_allclose(found.theta[[0, 2]], 1, atol=1e-6)
    np.testing.assert_array_equal(found.theta[1], start(1)[0])


def test_trial_points_beyond_the_domain_are_stepped_back_from():
    class Barrier:
        def __call__(self, theta):
            return (theta - 5 * np.log(1 - theta)).sum(axis=1) + 5 * theta[:, 0] ** 2, 1 + 5 / (1 - theta) + 10 * theta

        def take(self, candidates):
            return self

    found = lbfgs(Barrier(), np.array([[0.99]]), max_iter=60, tol=1e-12)
    assert found.status[0] == "converged"
    assert Barrier()(found.theta)[1].item() == pytest.approx(0, abs=1e-3)


def test_many_rejected_trials_in_a_row_are_not_convergence():
    """A gradient of 1e6 in a valley a millionth wide: the first steps are all too long."""

    class Narrow:
        def __call__(self, theta):
            scale = np.array([1e6, 1.0])
            return (scale * (theta - 1) ** 2).sum(axis=1) + (theta[:, 0] - 1) ** 4 * 1e9, (
                2 * scale * (theta - 1) + np.column_stack([4e9 * (theta[:, 0] - 1) ** 3, 0 * theta[:, 1]])
            )

        def take(self, candidates):
            return self

    found = lbfgs(Narrow(), np.array([[1.0 + 3e-1, -1.0]]), max_iter=200, tol=1e-9)
    assert found.status[0] == "converged"
    np.testing.assert_allclose(found.theta, 1, atol=1e-3)


def test_the_limit_counts_and_the_start_is_not_changed():
    begin = np.full((1, 4), -1.2)
    found = lbfgs(Rosenbrock([1.0]), begin, max_iter=5)
    assert (found.status[0], found.n_iter[0]) == ("max_iter", 5)
    np.testing.assert_array_equal(begin, -1.2)


def test_already_at_the_minimum():
    found = lbfgs(Bowls([1.0]), np.ones((1, 2, 2)), max_iter=5)
    assert found.status[0] == "converged"
    assert found.loss[0] == 0


@pytest.mark.parametrize("pairs", [0, 1, 3, 4, 7])
def test_the_direction_is_that_of_the_recursion(pairs):
    """The compact form, with slots written round and round, against the two-loop recursion."""
    rng = np.random.default_rng(pairs)
    memory, P = 4, 6
    H = np.diag(rng.uniform(0.5, 3, P))
    S, Y = np.zeros((1, memory, P)), np.zeros((1, memory, P))
    history = []
    for at in range(pairs):
        s = rng.normal(size=P)
        S[0, at % memory], Y[0, at % memory] = s, H @ s
        history.append((s, H @ s))
    g = rng.normal(size=(1, P))
    q, recent, alphas = g[0].copy(), history[-memory:], []
    for s, y in reversed(recent):
        alphas.append(s @ q / (s @ y))
        q -= alphas[-1] * y
    if recent:
        s, y = recent[-1]
        q *= s @ y / (y @ y)
    for (s, y), alpha in zip(recent, reversed(alphas), strict=True):
        q += s * (alpha - y @ q / (s @ y))
    np.testing.assert_allclose(_direction(S, Y, np.array([pairs]), g)[0], -q, rtol=1e-9)
