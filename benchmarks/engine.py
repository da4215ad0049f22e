"""One training step against its floor and against a loop, and a whole grid against a loop."""

from __future__ import annotations

from functools import partial

import numpy as np

from clock import Ledger, Side, median_ms, quotients, take_turns
from samples import SHAPES, rows_of
from tightset.compute.arrays import Scratch
from tightset.compute.blocks import Rows
from tightset.compute.threads import Threads
from tightset.measures import MEASURES, Linear
from tightset.objectives.penalised import Penalised
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Surrogate, Training
from tightset.search.settings import Grid
from tightset.solvers.descent import GradientDescent, minimise

SETTINGS = Grid().candidates()
B = len(SETTINGS)
EPS = 0.05
STEPS = 20  # of a whole grid
CALLS = 25  # steps that are timed together


def settings() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Penalties, sharpnesses and learning rates of the paper's 80 settings, in float32."""
    lam, gamma, eta = np.array(SETTINGS, dtype=np.float32).T
    return lam, gamma, eta


def some_theta(m: int, D: int) -> np.ndarray:
    return (0.1 * np.random.default_rng(1).standard_normal((B, m, D))).astype(np.float32)


def surrogate_of(X: np.ndarray, y: np.ndarray, C: int, n_jobs: int | None = None) -> Surrogate:
    """The paper's loss of all 80 settings, as the grid search has it."""
    lam, gamma, _ = settings()
    rows = Rows(X.astype(np.float32), y, scores_per_row=B * C, n_jobs=n_jobs)
    return Surrogate(rows, Linear(), Penalised(np.full(B, EPS, dtype=np.float32), lam, gamma))


def batched_steps(X: np.ndarray, y: np.ndarray, C: int, calls: int = CALLS, n_jobs: int | None = None) -> Side:
    """``calls`` steps of the penalised objective: losses and gradients of all 80 settings."""
    surrogate, theta = surrogate_of(X, y, C, n_jobs), some_theta(X.shape[1], C)

    def steps() -> None:
        with surrogate.rows:
            for _ in range(calls):
                surrogate(theta)

    return steps


def profiled_steps(X: np.ndarray, y: np.ndarray, name: str, calls: int = CALLS) -> Side:
    """``calls`` steps of the profiled objective for 80 candidates, chunk by chunk as the default search descends."""
    measure, one = MEASURES[name], np.ones(B, dtype=np.float32)
    order = np.argsort(y, kind="stable")
    X, y = np.asfortranarray(X[order].astype(np.float32)), y[order]
    C = int(y.max()) + 1
    D = measure.start(np.zeros((1, 1, C))).shape[2]
    theta = some_theta(X.shape[1], D)
    chunks = 2 * -(-B * len(y) * D // 2**21)
    problems, scratch = [], Scratch()
    for part in np.array_split(theta, chunks):
        n = len(part)
        objective = Profiled(EPS * one[:n], 2 * one[:n])
        weight = np.ones((n, len(y)), dtype=np.float32)
        about = np.full(n, np.nan, dtype=np.float32)
        problem = Training(X, y, measure, objective, weight, 0 * part, 0 * part[:, :, :1], None, scratch, about)
        problems.append((problem, part))

    def descend(pair: tuple[Training, np.ndarray]) -> None:
        problem, theta = pair
        for call in range(calls):  # thresholds move, as in a descent
            problem((1 + 0.03 * call) * theta)

    def steps() -> None:
        with Threads() as threads:
            list(threads.map(descend, problems))

    return steps


def floor_of(k: int, m: int, C: int, D: int | None = None, calls: int = CALLS) -> Side:
    """What a step cannot do without: two float32 matrix products and a tanh of every score, in memory at hand.

    Whole arrays, with BLAS at all its threads; ``D`` columns of parameters make ``C`` scores.
    """
    D = C if D is None else D
    rng = np.random.default_rng(0)
    X = rng.standard_normal((k, m)).astype(np.float32)
    T = (0.1 * rng.standard_normal((B * D, m))).astype(np.float32)
    U, G = np.empty((B * D, k), dtype=np.float32), np.empty((B * D, m), dtype=np.float32)
    A, Xt = U[: B * C], np.ascontiguousarray(X.T)

    def floor() -> None:
        for _ in range(calls):
            np.matmul(T, Xt, out=U)
            np.tanh(A, out=A)
            np.matmul(U, X, out=G)

    return floor


@np.errstate(over="ignore")
def plain_step(X: np.ndarray, y: np.ndarray, T: np.ndarray, lam: float, gamma: float) -> np.ndarray:
    """The gradient of one setting as one would write it down: float64, the form -1/L."""
    k, own = len(y), (np.arange(len(y)), y)
    s = 1 / (1 + np.exp(-gamma * (X @ T - 1)))
    V = s[own].mean() - (1 - EPS)
    L = s.sum(axis=1).mean() + lam * V**2
    slope = gamma * s * (1 - s)
    dA = slope / k
    dA[own] += 2 * lam * V * slope[own] / k
    gradient: np.ndarray = (X.T @ dA) / L**2
    return gradient


def looped_step(X: np.ndarray, y: np.ndarray, C: int) -> Side:
    theta = some_theta(X.shape[1], C).astype(np.float64)
    return lambda: [plain_step(X, y, T, lam, gamma) for T, (lam, gamma, _) in zip(theta, SETTINGS, strict=True)]


def looped_grid(X: np.ndarray, y: np.ndarray, C: int, steps: int) -> None:
    """The paper's method as one would write it: each setting by itself."""
    for lam, gamma, eta in SETTINGS:
        T = np.zeros((X.shape[1], C))
        for _ in range(steps):
            T = T - eta * plain_step(X, y, T, lam, gamma)


def batched_grid(X: np.ndarray, y: np.ndarray, C: int, steps: int) -> None:
    surrogate = surrogate_of(X, y, C)
    theta = np.zeros((B, X.shape[1], C), dtype=np.float32)
    with surrogate.rows:
        minimise(surrogate, theta, GradientDescent(settings()[2]), max_iter=steps)


def measure(ledger: Ledger) -> None:
    _steps(ledger)
    _profiled(ledger)
    _grids(ledger)


def _steps(ledger: Ledger) -> None:
    k, m, C = SHAPES["covtype"]
    X, y = rows_of(k, m, C)
    times = take_turns({"step": batched_steps(X, y, C), "floor": floor_of(k, m, C)}, 25)
    step, floor = (median_ms(times[name], CALLS) for name in ("step", "floor"))
    note = f"80 candidates, {k} x {m}, {C} classes: {step:.1f} ms over {floor:.1f} ms"
    ledger.add("step_over_floor", quotients(times["step"], times["floor"]), note, step_ms=step, floor_ms=floor)
    times = take_turns({"loop": looped_step(X, y, C), "step": batched_steps(X, y, C)}, 11)
    loop, step = median_ms(times["loop"]), median_ms(times["step"], CALLS)
    speedups = [CALLS * value for value in quotients(times["loop"], times["step"])]
    note = f"80 float64 steps one by one: {loop:.0f} ms over {step:.1f} ms"
    ledger.add("step_speedup_vs_loop", speedups, note, loop_ms=loop, step_ms=step)


def _profiled(ledger: Ledger) -> None:
    k, m, C = SHAPES["covtype"]
    X, y = rows_of(k, m, C)
    for name in MEASURES:
        D = 2 * C if name == "two-matrix" else C
        sides = {"step": profiled_steps(X, y, name, calls=CALLS), "floor": floor_of(k, m, C, D, calls=CALLS)}
        times = take_turns(sides, 9)
        step, floor = (median_ms(times[side], CALLS) for side in ("step", "floor"))
        key = f"profiled_step_over_floor_{name.replace('-', '_')}"
        note = f"{step:.1f} ms over {floor:.1f} ms"
        ledger.add(key, quotients(times["step"], times["floor"]), note, step_ms=step, floor_ms=floor)


def _grids(ledger: Ledger) -> None:
    for name, (k, m, C) in SHAPES.items():
        X, y = rows_of(k, m, C)
        sides = {"loop": partial(looped_grid, X, y, C, STEPS), "batch": partial(batched_grid, X, y, C, STEPS)}
        times = take_turns(sides, 5)
        ms = median_ms(times["batch"], STEPS)
        key = "grid_speedup_vs_loop" if name == "avila" else f"grid_speedup_vs_loop_{name}"
        note = f"80 settings, {name}'s shape: {ms:.1f} ms a step, {2 * ms:.0f} s for 2000 steps"
        ledger.add(key, quotients(times["loop"], times["batch"]), note, step_ms=ms)
