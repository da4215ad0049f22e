import numpy as np
import pytest

from tightset.compute.progress import Progress
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import LOG
from tightset.models.columns import Scaling
from tightset.search.grid import StandardisedRows, descend, training_inefficiency
from tightset.search.problem import Aim, Runtime
from tightset.search.settings import Grid


def searched(rows, penalty=(10, 100), sharpness=(1, 5), learning_rate=(1, 10), dtype=np.float32, **settings):
    (found,) = descend(
        rows, Aim([0.9]), Grid(penalty, sharpness, learning_rate, **settings), Runtime(Progress()), dtype
    )
    return found


@pytest.fixture
def rows(blobs):
    X, y = blobs
    return StandardisedRows(Scaling.of(X).apply(X)[0], y, 3)


def test_training_inefficiency_is_that_of_an_icp_on_the_training_rows(rows):
    Z, y = rows[:2]
    theta = np.random.default_rng(0).standard_normal((3, 3, 3))
    for confidence in (0.8, 0.95):
        for b, found in enumerate(training_inefficiency(rows, theta, confidence, LOG)):
            sets = Calibration.of(Z @ theta[b], y).sets(Z @ theta[b], confidence)
            assert found == pytest.approx(np.log1p(sets.sum(axis=1)).mean())


@pytest.mark.parametrize("selection", ["inefficiency", "loss"])
def test_the_smallest_of_the_grid_is_taken(rows, selection):
    found = searched(rows, selection=selection, max_iter=100)
    table = found.table
    assert len(table["loss"]) == 8
    assert {(lam, g, r) for lam in (10, 100) for g in (1, 5) for r in (1, 10)} == set(
        zip(table["penalty"], table["sharpness"], table["learning_rate"], strict=True)
    )
    assert table["chosen"].sum() == 1
    assert table[selection][table["chosen"]] == table[selection].min()
    size = training_inefficiency(rows, found.theta[None], 0.9)
    assert size[0] == table["inefficiency"][table["chosen"]][0]


def test_training_makes_sets_smaller_than_an_untrained_measure(rows):
    found = searched(rows, max_iter=300)
    assert found.table["inefficiency"].min() < 1.6 < 2.7  # 2.7 labels are what 90 % needs without looking at x


def test_a_single_setting_equals_plain_gradient_descent_written_out(rows):
    """The paper's algorithm in a dozen lines of float64, for the loss -1/L."""
    Z, y = rows[:2]
    lam, gamma, eta, eps, k = 100.0, 2.0, 10.0, 0.1, len(y)
    T, own = np.zeros((3, 3)), (np.arange(k), y)
    for _ in range(60):
        s = 1 / (1 + np.exp(-gamma * (Z @ T - 1)))
        V = s[own].mean() - (1 - eps)
        L = s.sum(axis=1).mean() + lam * V**2
        slope = gamma * s * (1 - s)
        dA = slope / k
        dA[own] += 2 * lam * V * slope[own] / k
        T = T - eta * (Z.T @ dA) / L**2
    found = searched(rows, lam, gamma, eta, max_iter=60, tol=0, dtype=np.float64)
    np.testing.assert_allclose(found.theta, T, rtol=1e-9)


def test_float32_training_agrees_with_float64_in_set_size(rows):
    sizes = [
        searched(rows, max_iter=300, dtype=dtype).table["inefficiency"].min() for dtype in (np.float32, np.float64)
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.005)


def test_early_stopping_changes_nothing_that_matters(rows):
    stopped, full = (searched(rows, tol=tol, max_iter=400) for tol in (1e-7, 0))
    np.testing.assert_allclose(stopped.table["inefficiency"], full.table["inefficiency"], rtol=0.01)


def test_diverging_candidates_lose_and_if_all_do_an_error_says_so(rows):
    settings = {"penalty": 1e6, "sharpness": 1, "loss_form": "L", "max_iter": 30}
    found = searched(rows, learning_rate=[1, 1e38], **settings)
    assert found.table["status"][1] == "nonfinite"
    assert list(found.table["chosen"]) == [True, False]
    with pytest.raises(FloatingPointError, match=r"every candidate diverged at confidence 0\.9; try smaller"):
        searched(rows, learning_rate=[1e38, 3e38], **settings)


def test_traces_have_one_column_a_candidate(rows):
    assert searched(rows, max_iter=20, keep_trace=True).trace.shape == (20, 8)
