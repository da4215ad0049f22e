"""Ways to run one penalised step, side by side: `make bench-ways`, stored in benchmarks/ways.json.

Every way computes the losses and gradients of all 80 settings and is checked against the one that is used: NumPy in
blocks of rows that stay in cache, dealt to threads. PyTorch, numexpr and numba are no dependencies; what cannot be
imported is left out, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import clock
import page
from clock import Ledger, Side, median_ms, quotients, take_turns
from engine import EPS, B, batched_steps, settings, some_theta, surrogate_of
from samples import SHAPES, rows_of

CALLS = 5
Step = Callable[[], tuple[Any, Any]]


class Case:
    """Rows sorted by label in float32, and the settings, shaped to stand beside scores ``(B, C, k)``."""

    def __init__(self, k: int, m: int, C: int) -> None:
        X, y = rows_of(k, m, C)
        order = np.argsort(y, kind="stable")
        self.X, self.y, self.C = np.ascontiguousarray(X[order], dtype=np.float32), y[order], C
        self.Xt = np.ascontiguousarray(self.X.T)
        self.lam, self.gamma, _ = settings()
        self.half = (self.gamma / 2)[:, None, None]
        self.theta = some_theta(m, C)
        self.stacked = np.ascontiguousarray(self.theta.transpose(0, 2, 1).reshape(B * C, m))
        self.edges = np.searchsorted(self.y, np.arange(C + 1))

    def finish(self, total: Any, covered: Any, product: Any) -> tuple[Any, Any]:
        """Loss ``(B,)`` and gradient ``(B * C, m)`` from sums of tanh and the product of the slopes with ``X``."""
        k = len(self.y)
        V = (k + covered) / (2 * k) - (1 - EPS)
        L = (self.C * k + total) / (2 * k) + self.lam * V * V
        a = self.gamma / (4 * k * L * L)
        return -1 / L, np.repeat(a, self.C)[:, None] * product


def whole_arrays(case: Case) -> Step:
    """Plain NumPy: each operation over all scores, a new array each; BLAS with all its threads."""
    C, k, rows = case.C, len(case.y), np.arange(len(case.y))

    def step() -> tuple[Any, Any]:
        A = (case.stacked @ case.Xt).reshape(B, C, k)
        t = np.tanh((A - 1) * case.half)
        own = t[:, case.y, rows]
        total, covered = t.sum(axis=(1, 2)), own.sum(axis=1)
        V = (k + covered) / (2 * k) - (1 - EPS)
        dA = 1 - t * t
        dA[:, case.y, rows] *= (1 + 2 * case.lam * V)[:, None]
        return case.finish(total, covered, dA.reshape(B * C, k) @ case.X)

    return step


def torch_eager(case: Case) -> Step:
    return _torch_step(case, lambda function: function)


def torch_compiled(case: Case) -> Step:
    import torch

    code = "import torch; torch.compile(lambda x: x.tanh() + 1)(torch.ones(9))"
    try:
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise RuntimeError("torch.compile does not work here, or not within two minutes") from error
    return _torch_step(case, torch.compile)


def _torch_step(case: Case, prepare: Callable[[Any], Any]) -> Step:
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    C, k = case.C, len(case.y)
    X, Xt, T, half, lam = map(torch.from_numpy, (case.X, case.Xt, case.stacked, case.half, case.lam))
    own_label = torch.nn.functional.one_hot(torch.from_numpy(case.y), C).T.to(torch.bool)
    runs = [(c, int(a), int(b)) for c, (a, b) in enumerate(zip(case.edges[:-1], case.edges[1:], strict=True))]

    def slopes(A: Any) -> tuple[Any, Any, Any]:
        t = torch.tanh((A - 1) * half)
        covered = sum(t[:, c, a:b].sum(dim=1) for c, a, b in runs)
        V = (k + covered) / (2 * k) - (1 - EPS)
        factor = torch.where(own_label, (1 + 2 * lam * V)[:, None, None], 1.0)
        return t.sum(dim=(1, 2)), covered, (1 - t * t) * factor

    ready = prepare(slopes)

    def step() -> tuple[Any, Any]:
        with torch.inference_mode():
            total, covered, dA = ready((T @ Xt).reshape(B, C, k))
            product = dA.reshape(B * C, k) @ X
        return case.finish(total.numpy(), covered.numpy(), product.numpy())

    return step


def numexpr(case: Case) -> Step:
    """Operations fused by numexpr, over all scores in memory that is reused."""
    import numexpr as ne

    C, k = case.C, len(case.y)
    one, half, runs = np.float32(1), case.half, list(enumerate(zip(case.edges[:-1], case.edges[1:], strict=True)))
    A, G = np.empty((B * C, k), dtype=np.float32), np.empty((B * C, case.X.shape[1]), dtype=np.float32)
    t = A.reshape(B, C, k)
    ne.set_num_threads(os.cpu_count() or 1)

    def step() -> tuple[Any, Any]:
        np.matmul(case.stacked, case.Xt, out=A)
        ne.evaluate("tanh((t - one) * half)", {"t": t, "one": one, "half": half}, out=t)
        total, covered = t.sum(axis=(1, 2)), sum(t[:, c, a:b].sum(axis=1) for c, (a, b) in runs)
        V = (k + covered) / (2 * k) - (1 - EPS)
        ne.evaluate("one - t * t", {"t": t, "one": one}, out=t)
        for c, (a, b) in runs:
            t[:, c, a:b] *= (1 + 2 * case.lam * V)[:, None]
        return case.finish(total, covered, np.matmul(A, case.X, out=G))

    return step


def numba(case: Case) -> Step:
    """All between the two matrix products in one compiled loop, candidates over threads."""
    import numba as nb

    C, k = case.C, len(case.y)
    A, G = np.empty((B * C, k), dtype=np.float32), np.empty((B * C, case.X.shape[1]), dtype=np.float32)
    total, covered = np.empty(B, dtype=np.float32), np.empty(B, dtype=np.float32)
    one = np.float32(1)

    @nb.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def fused(A: Any, half: Any, lam: Any, edges: Any, total: Any, covered: Any) -> None:
        for b in nb.prange(A.shape[0]):
            inside = np.float32(0)
            for c in range(A.shape[1]):
                for i in range(edges[c], edges[c + 1]):
                    inside += np.tanh((A[b, c, i] - one) * half[b])
            V = (k + inside) / (2 * k) - np.float32(1 - EPS)
            factor = one + 2 * lam[b] * V
            everything = np.float32(0)
            for c in range(A.shape[1]):
                for i in range(A.shape[2]):
                    t = np.tanh((A[b, c, i] - one) * half[b])
                    everything += t
                    A[b, c, i] = one - t * t
                for i in range(edges[c], edges[c + 1]):
                    A[b, c, i] *= factor
            total[b], covered[b] = everything, inside

    half = np.ascontiguousarray(case.half[:, 0, 0])

    def step() -> tuple[Any, Any]:
        np.matmul(case.stacked, case.Xt, out=A)
        fused(A.reshape(B, C, k), half, case.lam, case.edges, total, covered)
        return case.finish(total, covered, np.matmul(A, case.X, out=G))

    return step


WAYS: dict[str, Callable[[Case], Step]] = {
    "whole": whole_arrays,
    "numexpr": numexpr,
    "numba": numba,
    "torch": torch_eager,
    "torch_compile": torch_compiled,
}


def measure(ledger: Ledger) -> None:
    for name, (k, m, C) in SHAPES.items():
        case = Case(k, m, C)
        blocks = batched_steps(case.X, case.y, C, CALLS)
        ready: dict[str, Side] = {"one_thread": batched_steps(case.X, case.y, C, CALLS, n_jobs=1)}
        for way, make in WAYS.items():
            try:
                step = make(case)
                check(case, step)
            except Exception as error:  # noqa: BLE001 - not installed, no compiler, no such processor
                ledger.leave_out(f"way_{way}_over_blocks_{name}", error)
            else:
                ready[way] = partial(repeated, step)
        for way, side in ready.items():
            times = take_turns({way: side, "blocks": blocks}, 15)
            ms, ours = median_ms(times[way], CALLS), median_ms(times["blocks"], CALLS)
            ratios = quotients(times[way], times["blocks"])
            note = f"{ms:.1f} ms a step over {ours:.1f} ms"
            ledger.add(f"way_{way}_over_blocks_{name}", ratios, note, step_ms=ms, blocks_ms=ours)


def repeated(step: Step) -> None:
    for _ in range(CALLS):
        step()


def check(case: Case, step: Step) -> None:
    """The same losses and gradients as in blocks."""
    surrogate = surrogate_of(case.X, case.y, case.C)
    with surrogate.rows:
        loss, gradient = surrogate(case.theta)
    expected = gradient.transpose(0, 2, 1).reshape(B * case.C, -1)
    found_loss, found = step()
    np.testing.assert_allclose(found_loss, loss, rtol=1e-3)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found / scale, expected / scale, atol=5e-3)


def main() -> None:
    ledger, machine = Ledger(), clock.machine("tightset", "numpy", "torch", "numexpr", "numba")
    clock.head()
    measure(ledger)
    content = {"machine": machine, "left_out": ledger.left_out, "ratios": ledger.ratios, "measured": ledger.details}
    clock.write("ways.json", content)
    page.main()


if __name__ == "__main__":
    main()
