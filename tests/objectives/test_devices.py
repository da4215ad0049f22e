"""The same code on PyTorch tensors: here on the CPU, on a GPU by naming it."""

import numpy as np
import pytest

from tightset import Grid, SCPOClassifier, Search
from tightset.compute.blocks import Rows
from tightset.compute.progress import Progress
from tightset.conformal.inefficiency import LOG
from tightset.measures import Linear
from tightset.objectives.penalised import Penalised
from tightset.objectives.training import Surrogate
from tightset.search.grid import StandardisedRows, descend
from tightset.search.problem import Aim, Runtime
from tightset.solvers.descent import Adam, GradientDescent, minimise

B, K, M, C = 4, 60, 3, 3


def problem(place, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((K, M - 1)), np.ones(K)])
    y = rng.integers(0, C, K)
    eps, lam, gamma = (rng.uniform(low, high, B) for low, high in ((0.05, 0.3), (1, 50), (0.5, 3)))
    rows = Rows(place(X), y, place(rng.uniform(0, 2, K)), scores_per_row=B * C, block_rows=17)
    return Surrogate(rows, Linear(), Penalised(place(eps), place(lam), place(gamma), f=LOG)), place(
        rng.standard_normal((B, M, C))
    )


def test_loss_and_gradient_equal_those_of_numpy(torch):
    there, here = (problem(place) for place in (torch.as_tensor, np.asarray))
    for one, other in zip(there[0](there[1]), here[0](here[1]), strict=True):
        assert isinstance(one, torch.Tensor)
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-12)


@pytest.mark.parametrize("make", [GradientDescent, Adam])
@pytest.mark.parametrize("check_every", [1, 7])
def test_descents_equal_those_of_numpy(torch, make, check_every):
    found = []
    for place in (torch.as_tensor, np.asarray):
        surrogate, theta = problem(place)
        rate = place(np.array([0.1, 0.2, 0.3, np.nan]))  # the last candidate fails at once
        with surrogate.rows:
            found.append(minimise(surrogate, theta, make(rate), max_iter=30, check_every=check_every))
    np.testing.assert_allclose(found[0].theta.numpy(), found[1].theta, rtol=1e-9)
    assert list(found[0].status) == list(found[1].status) == ["max_iter"] * 3 + ["nonfinite"]
    np.testing.assert_allclose(found[0].loss, found[1].loss, rtol=1e-9)


@pytest.mark.parametrize(
    "search",
    [
        Grid((10, 100), 1, 10, max_iter=100),
        Search(max_iter=20),
    ],
)
def test_the_estimator_trains_on_a_device(search, torch, blobs):
    X, y = blobs
    there, here = (
        SCPOClassifier((0.8, 0.9), random_state=0, device=device, search=search).fit(X, y, np.arange(600) % 3)
        for device in ("cpu", None)
    )
    for one, other in zip(there.evaluate(X, y), here.evaluate(X, y), strict=True):
        assert one["mean_size"] == pytest.approx(other["mean_size"], rel=0.01)
        assert one["coverage"] == pytest.approx(other["coverage"], abs=0.01)


def test_candidates_that_do_not_fit_together_are_trained_one_after_another(torch, blobs, monkeypatch):
    X, y = blobs
    Z = np.column_stack([X, np.ones(len(X))])
    grid = Grid((10, 100), (1, 2), (0.5, 1), max_iter=40, keep_trace=True, tol=1e-3)
    task = StandardisedRows(Z, y, 3), Aim((0.8, 0.9)), grid, Runtime(Progress(), device="cpu")
    together = descend(*task)
    monkeypatch.setattr("tightset.compute.arrays._SCORES_ON_DEVICE", 3 * 600 * 5)  # five of the sixteen
    apart = descend(*task)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one.theta, other.theta, atol=1e-4)
        np.testing.assert_array_equal(one.table["n_iter"], other.table["n_iter"])
        steps = min(len(one.trace), len(other.trace))
        np.testing.assert_allclose(one.trace[:steps], other.trace[:steps], rtol=1e-4)
