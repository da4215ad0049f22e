import numpy as np
import pytest

from problems import Bowls, start
from tightset.solvers.descent import Adam, GradientDescent, minimise


@pytest.mark.parametrize("optimiser", [GradientDescent(np.full(3, 0.2)), Adam(np.full(3, 0.05))])
def test_every_optimiser_finds_the_minimum(optimiser):
    found = minimise(Bowls([1, 2, 0.5]), start(3), optimiser, max_iter=3000, tol=1e-9)
    np.testing.assert_allclose(found.theta, 1, atol=1e-6)
    assert set(found.status) == {"converged"}
    assert (found.n_iter < 3000).all()


def test_gradient_descent_is_the_plain_recurrence():
    theta = np.zeros((2, 2, 2))
    for _ in range(7):
        theta = theta - np.array([0.1, 0.3])[:, None, None] * 2 * (theta - 1)
    found = minimise(Bowls([1, 1]), start(2), GradientDescent(np.array([0.1, 0.3])), max_iter=7)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-14)
    assert list(found.status) == ["max_iter", "max_iter"]
    assert list(found.n_iter) == [7, 7]


def test_a_failing_candidate_does_not_touch_the_others():
    rates = np.array([0.1, 1e200, 0.1, 0.1])
    alone = minimise(Bowls([1.0]), start(1), GradientDescent(rates[:1]), max_iter=50)
    found = minimise(Bowls([1.0, 1.0, np.nan, 1.0]), start(4), GradientDescent(rates), max_iter=50)
    assert list(found.status) == ["max_iter", "nonfinite", "nonfinite", "max_iter"]
    assert np.isinf(found.loss[[1, 2]]).all()
    assert np.isfinite(found.theta).all()
    np.testing.assert_array_equal(found.theta[[0, 3]], np.repeat(alone.theta, 2, axis=0))


def test_a_candidate_that_stops_leaves_the_batch_and_the_rest_are_unmoved():
    rates = np.array([0.5, 0.01])  # the first is at the minimum after one step
    seen = []
    found = minimise(
        Bowls([1, 1]), start(2), GradientDescent(rates), max_iter=20, tol=1e-8, callback=lambda i, n: seen.append(n)
    )
    assert list(found.status) == ["converged", "max_iter"]
    assert found.n_iter[0] == 2
    assert seen[-1] == 1
    alone = minimise(Bowls([1]), start(1), GradientDescent(rates[1:]), max_iter=20, tol=1e-8)
    np.testing.assert_array_equal(found.theta[1:], alone.theta)


def test_adam_keeps_its_memory_when_candidates_leave():
    found = minimise(Bowls([np.nan, 1, 1]), start(3), Adam(np.array([0.1, 0.1, 0.2])), max_iter=30)
    alone = minimise(Bowls([1, 1]), start(2), Adam(np.array([0.1, 0.2])), max_iter=30)
    np.testing.assert_array_equal(found.theta[1:], alone.theta)


def test_adam_is_the_recurrence_of_its_paper():
    theta, mean, square = np.zeros((1, 2, 2)), 0.0, 0.0
    for t in range(1, 6):
        gradient = 2 * (theta - 1) * np.array([[1.0, 10.0], [0.1, 3.0]])
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        theta = theta - 0.1 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)

    class Problem(Bowls):
        def __call__(self, theta):
            gap = (theta - 1) * np.array([[1.0, 10.0], [0.1, 3.0]])
            return (gap**2).sum(axis=(1, 2)), 2 * gap

    found = minimise(Problem([1]), start(1), Adam(np.array([0.1])), max_iter=5)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-12)


def test_traces_are_kept_on_request():
    found = minimise(
        Bowls([1, 1]), start(2), GradientDescent(np.array([0.5, 0.1])), max_iter=5, tol=1e-8, keep_trace=True
    )
    assert found.trace.shape == (5, 2)
    assert np.isnan(found.trace[2:, 0]).all()
    assert (np.diff(found.trace[:, 1]) < 0).all()
    assert minimise(Bowls([1]), start(1), GradientDescent(np.ones(1)), max_iter=2).trace is None


def test_start_is_not_changed():
    theta = start(1)
    minimise(Bowls([1]), theta, GradientDescent(np.array([0.1])), max_iter=3)
    np.testing.assert_array_equal(theta, start(1))
