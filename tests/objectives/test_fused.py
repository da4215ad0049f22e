"""Kernels for a GPU, run by Triton's interpreter where Triton is installed; on a GPU, `benchmarks/gpu.py fits` does it."""

import os

import numpy as np
import pytest

from problems import rows_with_labels
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.measures import MEASURES
from tightset.objectives import fused
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training
from tightset.search import on_device
from tightset.solvers import fused_lbfgs
from tightset.solvers.fused_step import step_kernel
from tightset.solvers.lbfgs import lbfgs


@pytest.fixture
def interpreted(monkeypatch):
    """Small blocks, so that there are several, the last one not full. Who asks for the interpreter must have it, as CI."""
    asked = os.environ.get("TRITON_INTERPRET") == "1"
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # before it is imported: its own functions are made then
    if asked:
        import triton
    else:
        triton = pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setattr(fused, "_ROWS", 16)
    monkeypatch.setattr(fused, "_ROWS_OF_ONE", 32)
    monkeypatch.setattr(fused_lbfgs, "_AT_ONCE", 32)
    for cached in (fused._kernels, step_kernel):
        cached.cache_clear()
    if not _can_loop(triton):
        assert not asked, "this Triton's interpreter does not know this NumPy"
        pytest.skip("this Triton's interpreter does not know this NumPy")
    yield
    for cached in (fused._kernels, step_kernel):
        cached.cache_clear()


def _can_loop(triton):
    import torch
    import triton.language as tl

    @triton.jit
    def kernel(x, n):
        for at in range(0, n, 1):
            tl.store(x + at, 1.0)

    try:
        kernel[(1,)](torch.zeros(4), 4)
    except triton.runtime.errors.InterpreterError:
        return False
    return True


def problem(measure, f, place, B=3, k=40):
    rng = np.random.default_rng(0)
    X, y = rows_with_labels(k)
    order = np.argsort(y, kind="stable")
    Z = np.column_stack([X, np.ones(k)])[order]
    anchor = MEASURES[measure].start(rng.standard_normal((B, 5, 3)))
    theta = anchor + 0.3 * rng.standard_normal(anchor.shape)
    weight = rng.uniform(0.5, 2, (B, k)) * (rng.uniform(size=(B, k)) > 0.2)
    objective = Profiled(place(rng.uniform(0.05, 0.3, B)), place(rng.uniform(0.5, 4, B)), f, 2e-6) if f else LogLoss()
    parts = place(weight), place(anchor), place(rng.uniform(0.01, 0.1, (B, 5, 1)))
    return Training(place(Z), y[order], MEASURES[measure], objective, *parts), place(theta)


CASES = [("softmax", None), ("linear", SIZE), ("softmax", LOG), ("two-matrix", SIZE)]


@pytest.mark.parametrize(("measure", "f"), CASES)
def test_kernels_find_the_loss_and_its_gradient(measure, f, interpreted, torch):
    ours, theta = problem(measure, f, lambda x: torch.as_tensor(np.asarray(x, dtype=np.float32)))
    kernels = fused.FusedTraining(ours)
    wide = torch.nn.functional.pad(theta.transpose(1, 2), (0, kernels.shape[2] - 5)).contiguous()
    loss, gradient = kernels(wide)
    away = theta - ours.anchor
    exact, start = problem(measure, f, np.asarray)
    right, slope = exact(start)
    held = (ours.pull * away * away).sum(dim=(1, 2)) / 2
    np.testing.assert_allclose((loss + held).numpy(), right, rtol=1e-4)
    found = gradient[:, :, :5].transpose(1, 2) + ours.pull * away
    np.testing.assert_allclose(found.numpy(), slope, atol=2e-4 * np.abs(slope).max())
    assert (gradient[:, :, 5:] == 0).all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the one that fails
@pytest.mark.parametrize(("measure", "f"), CASES[::3])
def test_descents_end_where_those_of_the_host_do(measure, f, interpreted, torch, monkeypatch):
    monkeypatch.setattr(on_device, "can_fuse", lambda _: True)
    on_device._kernels_work.cache_clear()
    assert on_device._kernels_work(torch.device("cpu"))
    monkeypatch.setattr(fused_lbfgs, "_LOOK_EVERY", 5)
    ours, theta = problem(measure, f, lambda x: torch.as_tensor(np.asarray(x, dtype=np.float32)))
    scale = torch.full((3, 5, 1), 0.5)
    theta[2] = torch.nan  # this one fails, and the others do not feel it
    found = on_device.descended(ours, theta, max_iter=25, scale=scale)
    exact, start = problem(measure, f, np.asarray)
    best = lbfgs(exact, start, max_iter=25, scale=scale.double().numpy())
    np.testing.assert_allclose(found.loss[:2], best.loss[:2], rtol=3e-3)
    np.testing.assert_allclose(exact(found.theta.double().numpy())[0][:2], found.loss[:2], rtol=1e-4)
    assert found.status[2] == "nonfinite"
    assert np.isinf(found.loss[2])


def test_kernels_that_do_not_run_are_told_of_and_done_without(torch, monkeypatch):
    def broken(*_, **__):
        raise OSError("no compiler")

    monkeypatch.setattr(on_device, "can_fuse", lambda _: True)
    monkeypatch.setattr(on_device, "_fused", broken)
    on_device._kernels_work.cache_clear()
    ours, theta = problem("softmax", None, lambda x: torch.as_tensor(np.asarray(x, dtype=np.float32)))
    with pytest.warns(UserWarning, match="no compiler"):
        found = on_device.descended(ours, theta, max_iter=5)
    on_device._kernels_work.cache_clear()
    np.testing.assert_array_equal(found.theta.numpy(), lbfgs(ours, theta, max_iter=5).theta.numpy())
