"""The engine on a CUDA device, against what the device could do at best: `make bench-gpu`.

    PYTHONPATH=src:. python benchmarks/gpu.py [part ...] [--out FILE]

Parts are those below; without any all are measured, and with some what others found before stays in the file.

Times are by device events, after a warm-up, medians over repetitions. Results go to benchmarks/gpu.json. Without a
device nothing is measured and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gpu_fits import fits
from tightset.compute.blocks import Rows
from tightset.compute.progress import Progress
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.measures import Linear
from tightset.objectives.cuda import fused
from tightset.objectives.penalised import Penalised
from tightset.objectives.training import Surrogate
from tightset.search.grid import StandardisedRows, descend
from tightset.search.problem import Aim, Runtime
from tightset.search.settings import Grid
from tightset.solvers.descent import GradientDescent, minimise

LEVELS = (0.8, 0.85, 0.9, 0.95, 0.99)
SETS = ("avila", "covtype", "dna", "fotp", "wine", "polish", "mice")
SHAPE = (12000, 55, 7)  # covtype


def event_ms(torch: Any, function: Callable[[], object], repeats: int = 20) -> float:
    """Median milliseconds on the device."""
    for _ in range(3):
        function()
    found = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def seconds(torch: Any, function: Callable[[], Any]) -> tuple[float, Any]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = function()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def settings(levels: int) -> np.ndarray:
    return np.array([(1 - LEVELS[at], *one) for at in range(levels) for one in Grid().candidates()], dtype=np.float32)


def rows_of(k: int, m: int, C: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((k, m - 1)), np.ones(k)])
    return X, np.argmax(X @ rng.standard_normal((m, C)) + rng.gumbel(size=(k, C)), axis=1)


def step(torch: Any) -> dict[str, Any]:
    """One step of 400 candidates at covtype's size: right, and how fast."""
    k, m, C = SHAPE
    X, y = rows_of(*SHAPE)
    columns = settings(len(LEVELS)).T
    B = columns.shape[1]
    theta = (0.1 * np.random.default_rng(1).standard_normal((B, m, C))).astype(np.float32)

    def on_device(x: np.ndarray) -> Any:
        return torch.as_tensor(x.astype(np.float32), device="cuda")

    with Rows(X, y, scores_per_row=B * C) as rows:
        exact = Surrogate(rows, Linear(), Penalised(*(c.astype(float) for c in columns[:3])))(theta.astype(float))
    eps, lam, gamma, rate = (on_device(c) for c in columns)
    Z, T = on_device(X), on_device(theta)
    problem = fused(Z, y, None, Penalised(eps, lam, gamma))
    loss, gradient = problem(T)
    error = [
        float(np.linalg.norm(found.cpu().numpy() - right) / np.linalg.norm(right))
        for found, right in ((loss, exact[0]), (gradient, exact[1]))
    ]
    in_pieces = Surrogate(Rows(Z, y, scores_per_row=B * C), Linear(), Penalised(eps, lam, gamma))
    ms = event_ms(torch, lambda: problem(T))
    found = minimise(problem, T, GradientDescent(rate), max_iter=50, check_every=25)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    found = minimise(problem, T, GradientDescent(rate), max_iter=500, check_every=25)
    torch.cuda.synchronize()
    whole = (time.perf_counter() - begun) / 500 * 1000
    scores = torch.empty((B * C, k), device="cuda")
    stacked, copy = torch.randn((B * C, m), device="cuda"), torch.empty_like(scores)
    forward = event_ms(torch, lambda: torch.matmul(stacked, Z.T, out=scores))
    back = event_ms(torch, lambda: scores @ Z)
    copied = event_ms(torch, lambda: copy.copy_(scores))
    flops = 2 * 2 * k * m * B * C
    moved = (
        4 * k * B * (6 * C + 4)
    )  # scores: written, squashed, turned into slopes and read again; s and t of the own label
    return {
        "ms_per_step_400_covtype": ms,
        "ms_per_step_400_covtype_in_descent": whole,
        "ms_per_step_400_covtype_unfused": event_ms(torch, lambda: in_pieces(T)),
        "ms_of_products": forward + back,
        "ms_of_copy": copied,
        "loss_error": error[0],
        "gradient_error": error[1],
        "flops": flops,
        "bytes_moved": moved,
        "achieved_tflops": flops / ms / 1e9,
        "achieved_tb_s": moved / ms / 1e9,
        "copy_tb_s": 8 * k * B * C / copied / 1e9,
        "products_tflops": flops / (forward + back) / 1e9,
        "stopped": int((found.status != "max_iter").sum()),
    }


def main_experiment(torch: Any) -> dict[str, Any]:
    """7 sets x 5 levels x 2 inefficiencies x 80 settings x 2000 steps; the choice among candidates is on the host."""
    from studies.datasets import load
    from tightset.models.columns import Columns

    found: dict[str, Any] = {}
    total = 0.0
    for name in SETS:
        split = load(name)
        X, y = split.X_train, split.y_train
        codes = np.searchsorted(np.unique(y), y)
        Z, _ = Columns.plain(X).apply(X)
        columns, C = settings(len(LEVELS)).T, int(codes.max()) + 1
        on_device = [torch.as_tensor(c.copy(), device="cuda") for c in columns]
        rows = torch.as_tensor(Z.astype(np.float32), device="cuda")
        theta = torch.zeros((columns.shape[1], Z.shape[1], C), device="cuda")
        spent = 0.0
        for f in (SIZE, LOG):
            problem = fused(rows, codes, None, Penalised(*on_device[:3], f=f))
            minimise(problem, theta, GradientDescent(on_device[3]), max_iter=30, check_every=25)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            minimise(problem, theta, GradientDescent(on_device[3]), max_iter=2000, check_every=25)
            end.record()
            torch.cuda.synchronize()
            spent += begin.elapsed_time(end) / 1000
        total += spent
        found[f"main_experiment_s_{name}"] = spent
        found[f"shape_{name}"] = [*Z.shape, C]
        print(f"  {name}: {Z.shape[0]} x {Z.shape[1]}, {C} classes: {spent:.2f} s", flush=True)
    return {"main_experiment_s": total} | found


def estimators(torch: Any) -> dict[str, Any]:
    """The paper's search by its public face, on the device and on the host beside it."""
    from studies.datasets import load
    from tightset import SCPOClassifier

    found: dict[str, Any] = {}
    for name in ("avila", "covtype"):
        split = load(name)
        rows = split.X_train, split.y_train
        for device, where in ((None, "host"), ("cuda", "gpu")):
            clf = SCPOClassifier.paper(0.95, random_state=0, verbose=False, device=device)
            clf.fit(rows[0][:300], rows[1][:300], X_cal=rows[0][:300], y_cal=rows[1][:300])  # warm
            spent, _ = seconds(torch, lambda clf=clf, rows=rows: clf.fit(*rows))
            size = clf.evaluate(split.X_test, split.y_test)["mean_size"]
            found |= {f"paper_fit_s_{name}_{where}": spent, f"paper_size_{name}_{where}": size}
            print(f"  {name}, the paper's grid, {where}: {spent:.2f} s, {size:.3f} labels", flush=True)
    return found


def agreement(torch: Any) -> dict[str, Any]:
    """The fused loss and gradient against float64 on the host: weights, both inefficiencies, shapes of every kind."""
    worst = 0.0
    for k, m, C in ((359, 73, 8), (2297, 12, 2), (667, 181, 3), (1, 2, 2), (5000, 9, 40)):
        X, y = rows_of(k, m, C)
        rng = np.random.default_rng(k)
        weight, theta = rng.uniform(0.1, 2, k), rng.standard_normal((7, m, C)) / m
        eps, lam, gamma = (rng.uniform(low, high, 7) for low, high in ((0.01, 0.3), (1, 100), (0.5, 5)))
        for f in (SIZE, LOG):
            with Rows(X, y, weight, scores_per_row=7 * C) as rows:
                exact = Surrogate(rows, Linear(), Penalised(eps, lam, gamma, f=f))(theta)
            there = [torch.as_tensor(x.astype(np.float32), device="cuda") for x in (X, weight, eps, lam, gamma, theta)]
            problem = fused(there[0], y, there[1], Penalised(*there[2:5], f=f))
            for _ in range(3):  # the first call, the one that records, and one that replays
                found = problem(there[5])
                for one, right in zip(found, exact, strict=True):
                    worst = max(worst, float(np.linalg.norm(one.cpu().numpy() - right) / np.linalg.norm(right)))
    return {"agreement_error": worst}


def crowded(torch: Any) -> dict[str, Any]:
    """A grid that does not fit into what memory is left is cut, and gives what it gives uncut."""
    X, y = rows_of(100_000, 21, 5)
    grid = Grid((10, 20, 50, 100, 200), (0.5, 1, 1.5, 2), (0.125, 0.25, 0.5, 1), max_iter=30, tol=0.0)
    task = StandardisedRows(X, y, 5), Aim(LEVELS), grid, Runtime(Progress(), device="cuda")
    free = descend(*task)
    torch.cuda.empty_cache()
    left = 2**30
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device="cuda")
    tight = descend(*task)
    del ballast
    apart = max(float(np.abs(a.theta - b.theta).max()) for a, b in zip(free, tight, strict=True))
    return {"crowded_gib_left": left / 2**30, "crowded_theta_difference": apart}


PARTS = {part.__name__: part for part in (step, agreement, crowded, main_experiment, estimators, fits)}


def main() -> None:
    try:
        import torch
    except ImportError:
        sys.exit('PyTorch is not installed: pip install "tightset[torch]"')
    if not torch.cuda.is_available():
        sys.exit("no CUDA device here; nothing was measured")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "host_cores": os.cpu_count()}
    found |= {name: version(name) for name in ("torch", "triton", "numpy")}
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent / "gpu.json")
    asked = arguments.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        arguments.error(f"no such part: {', '.join(sorted(unknown))}")
    out = asked.out
    if asked.parts and out.exists():
        found = json.loads(out.read_text()) | found
    for part in [PARTS[name] for name in asked.parts or PARTS]:
        print(part.__name__, flush=True)
        found |= part(torch)
        out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
