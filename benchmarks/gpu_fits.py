"""Default fits on a CUDA device: how long, where the time goes, and whether sets are as small as the host's.

    PYTHONPATH=src:. python benchmarks/gpu.py fits

A part of `gpu.py`, which see. Every fit is made twice on the device: the first compiles and warms up. Stages are
timed by wrapping functions of the search, with the device waited for at every edge, in a fit of its own.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from samples import data, rows_of
from tightset import SCPOClassifier
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.measures import MEASURES
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training

LEVELS = (0.8, 0.85, 0.9, 0.95, 0.99)
WIDE = (55_000, 785, 10)
AIMS_S = {"avila": 2.0, "covtype": 2.5, "wide": 12.0, "wide_5_levels": 25.0}
HOST_BUDGET_S = 60.0  # fits on the host begin only while less than this has been spent on them
SEEDS = (1, 2, 3)
STAGES = (
    "tightset.search.from_columns:column_views",
    "tightset.search.from_columns:logistic_candidates",
    "tightset.search.from_columns:refine",
    "tightset.search.levels:trained",
    "tightset.search.levels:examined",
    "tightset.search.levels:combined_scores",
    "tightset.search.paths:descended",
    "tightset.search.refinement_on_device:descended",
    "tightset.search.refinement_on_device:RowsOnDevice._made",
    "tightset.search.refinement_on_device:RowsOnDevice._threshold",
    "tightset.search.judging:Judge.__init__",
    "tightset.search.judging:Judge.curve",
    "tightset.search.judging:Judge.resampled",
    "tightset.search.axes:Axes.of",
    "tightset.search.problem:TrainingRows.take",
    "tightset.models.ensembles:Ensemble.scores",
    "tightset.estimators.cases:OnColumns.search",
)


def fits(torch: Any) -> dict[str, Any]:
    """All of it, the cheapest and most telling first."""
    found: dict[str, Any] = {}
    for part in (agreement_of_kernels, ticks):
        try:
            found |= part(torch)
        except Exception:  # noqa: BLE001 - fits go on without kernels, and say so
            traceback.print_exc()
    cases = _cases()
    for name, (rows, levels) in cases.items():
        found |= _on_device(torch, name, rows, levels)
    spent = 0.0
    for name, (rows, levels) in cases.items():
        if spent > HOST_BUDGET_S:
            print(f"  {name}: no fit on the host, for want of time", flush=True)
            continue
        begun = time.perf_counter()
        seconds, sizes = _fit(rows, levels, None)
        spent += time.perf_counter() - begun
        there = found[f"fit_sizes_{name}_gpu"]
        apart = [ours / theirs - 1 for ours, theirs in zip(there, sizes, strict=True)]
        found |= {f"fit_s_{name}_host": seconds, f"fit_sizes_{name}_host": sizes, f"fit_sizes_{name}_apart": apart}
        told = ", ".join(f"{100 * one:+.2f} %" for one in apart)
        print(f"  {name}, host: {seconds:.2f} s, sizes {_told(sizes)}; on the device {told}", flush=True)
    return found | _over_seeds(cases)


def _over_seeds(cases: dict[str, Any]) -> dict[str, Any]:
    """How much larger sets of the device are over several seeds: of one fit the last digit may choose other members."""
    found = {}
    for name in ("avila", "covtype"):
        rows, levels = cases[name]
        sizes = [[_fit(rows, levels, device, seed)[1][0] for device in ("cuda", None)] for seed in SEEDS]
        apart = [ours / theirs - 1 for ours, theirs in sizes]
        found[f"fit_sizes_{name}_apart_by_seed"] = apart
        told = ", ".join(f"{100 * one:+.2f} %" for one in apart)
        print(f"  {name}, seeds 1 to {len(SEEDS)}: {told}; mean {100 * np.mean(apart):+.2f} %", flush=True)
    return found


def _cases() -> dict[str, Any]:
    """Rows to train, calibrate and test on, and levels, by name."""
    cases: dict[str, Any] = {}
    for name in ("avila", "covtype"):
        d = data(name)
        print(f"  {name}: {d.source}, {d.X.shape[0]} x {d.X.shape[1] - 1}, {d.n_classes} classes", flush=True)
        parts = [X[:, :-1] for X in (d.X, d.X_cal, d.X_test)]
        cases[name] = (*zip(parts, (d.y, d.y_cal, d.y_test), strict=True),), 0.95
    k, m, C = WIDE
    X, y = clusters(k + 10_000, m - 1, C)
    cut = k + 5_000
    wide = tuple((X[a:b], y[a:b]) for a, b in ((0, k), (k, cut), (cut, len(y))))
    return cases | {"wide": (wide, 0.95), "wide_5_levels": (wide, LEVELS)}


def clusters(k: int, p: int, C: int, signal: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Rows about three centres a class, of which a few columns tell: linear scores do not say everything."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((k, p))
    centre = rng.integers(3 * C, size=k)
    X[:, :signal] += 0.5 * rng.standard_normal((3 * C, signal))[centre]
    return X, centre % C


def _fit(rows: Any, levels: Any, device: str | None, seed: int = 0) -> tuple[float, list[float]]:
    """Seconds of the fit, and mean sizes on test rows by level."""
    (X, y), (X_cal, y_cal), (X_test, y_test) = rows
    clf = SCPOClassifier(levels, random_state=seed, verbose=False, device=device)
    begun = time.perf_counter()
    clf.fit(X, y, X_cal=X_cal, y_cal=y_cal)
    seconds = time.perf_counter() - begun
    told = clf.evaluate(X_test, y_test)
    return seconds, [one["mean_size"] for one in (told if isinstance(told, list) else [told])]


def _on_device(torch: Any, name: str, rows: Any, levels: Any) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    cold, _ = _fit(rows, levels, "cuda")
    seconds, sizes = _fit(rows, levels, "cuda")
    peak = torch.cuda.max_memory_allocated() / 2**30
    met = "" if seconds <= AIMS_S[name] else f" (missed: {AIMS_S[name]:g} s)"
    print(f"  {name}: {seconds:.2f} s{met}, at first {cold:.2f} s; sizes {_told(sizes)}; {peak:.1f} GiB", flush=True)
    with _stages(torch) as spent:
        _fit(rows, levels, "cuda")
    by_stage = {stage: [n, s] for stage, (n, s) in sorted(spent.items(), key=lambda one: -one[1][1]) if s > 0.005}
    for stage, (n, s) in by_stage.items():
        print(f"    {s:7.3f} s in {n:5d} x {stage}", flush=True)
    if name == "avila":
        _profiled(rows, levels)
    return {
        f"fit_s_{name}_gpu": seconds,
        f"fit_s_{name}_gpu_cold": cold,
        f"fit_sizes_{name}_gpu": sizes,
        f"fit_peak_gib_{name}": peak,
        f"fit_stages_{name}": by_stage,
    }


def _told(sizes: list[float]) -> str:
    return " ".join(f"{one:.4f}" for one in sizes)


@contextmanager
def _stages(torch: Any) -> Iterator[dict[str, list[Any]]]:
    """How often each stage was entered, and the seconds in it but not in stages inside it."""
    spent: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0])
    inside: list[float] = []
    undo: list[Callable[[], None]] = []

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **how: Any) -> Any:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            inside.append(0.0)
            try:
                return function(*arguments, **how)
            finally:
                torch.cuda.synchronize()
                whole = time.perf_counter() - begun
                spent[name][0] += 1
                spent[name][1] += whole - inside.pop()
                if inside:
                    inside[-1] += whole

        return run

    for stage in STAGES:
        module, _, path = stage.partition(":")
        *owners, name = path.split(".")
        owner = importlib.import_module(module)
        for one in owners:
            owner = getattr(owner, one, None)
        if owner is None or name not in vars(owner):
            continue  # the search has changed
        before = vars(owner)[name]
        how: Any = type(before) if isinstance(before, (staticmethod, classmethod)) else (lambda function: function)
        setattr(owner, name, how(timed(f"{module.rpartition('.')[2]}.{path}", getattr(before, "__func__", before))))
        undo.append(lambda owner=owner, name=name, before=before: setattr(owner, name, before))
    try:
        yield spent
    finally:
        for one in undo:
            one()


def _profiled(rows: Any, levels: Any) -> None:
    """What the device is busy with, by kernel."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            _fit(rows, levels, "cuda")
        print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=50))
    except Exception as error:  # noqa: BLE001 - a profiler that does not work here must not cost the run
        print(f"  no profile: {error!r}", flush=True)


def problem(k: int, m: int, C: int, B: int, measure: str, f: Any, place: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A training problem as the search has them, and where it starts."""
    rng = np.random.default_rng(k)
    X, y = rows_of(k, m, C)
    order = np.argsort(y, kind="stable")
    T = rng.standard_normal((B, m, C)) / np.sqrt(m)
    anchor = MEASURES[measure].start(T)
    theta = anchor + rng.standard_normal(anchor.shape) / (10 * np.sqrt(m))
    eps, gamma, weight = rng.uniform(0.02, 0.3, B), rng.uniform(0.5, 4, B), rng.uniform(0.5, 2, (B, k))
    weight *= rng.uniform(size=(B, k)) > 0.2
    objective = LogLoss() if f is None else Profiled(place(eps), place(gamma), f)
    held = np.full((B, m, 1), 1e-3)
    parts = (place(one) for one in (weight, anchor, held))
    return Training(place(X[order]), y[order], MEASURES[measure], objective, *parts), place(theta)


def agreement_of_kernels(torch: Any) -> dict[str, Any]:
    """The fused losses against float64 on the host, and descents along them against those of the general code."""
    from tightset.objectives.fused import can_fuse
    from tightset.search.on_device import descended
    from tightset.solvers.lbfgs import lbfgs

    def there(x: Any) -> Any:
        return torch.as_tensor(np.asarray(x, dtype=np.float32), device="cuda")

    worst = {"fused_loss_error": 0.0, "fused_gradient_error": 0.0, "fused_descent_excess": 0.0}
    for k, m, C in ((359, 73, 8), (2297, 12, 2), (667, 181, 3), (2000, 9, 40)):
        for measure, f in (("softmax", None), *((one, f) for one in MEASURES for f in (SIZE, LOG))):
            (ours, theta), (exact, start) = (problem(k, m, C, 7, measure, f, place) for place in (there, np.asarray))
            if not can_fuse(ours):
                print("  NO KERNELS for", measure, f, flush=True)
                continue
            loss, gradient = (one.cpu().numpy() for one in _once(ours, theta))
            right, slope = exact(start)
            worst["fused_loss_error"] = max(worst["fused_loss_error"], float(np.abs(loss / right - 1).max()))
            error = float(np.linalg.norm(gradient - slope) / np.linalg.norm(slope))
            worst["fused_gradient_error"] = max(worst["fused_gradient_error"], error)
            its = descended(ours, theta, max_iter=40)
            best = lbfgs(ours, theta, max_iter=40)
            found, other = (exact(one.theta.double().cpu().numpy())[0] for one in (its, best))
            excess = float(np.median(found / other - 1))  # where losses end near 0 rounding sends single ones far
            worst["fused_descent_excess"] = max(worst["fused_descent_excess"], excess)
            if error > 1e-4 or excess > 0.02:
                print(f"  {k} x {m}, {C} classes, {measure}: gradient {error:.1e}, descent {excess:+.2%}", flush=True)
    print("  " + ", ".join(f"{name} {value:.1e}" for name, value in worst.items()), flush=True)
    return worst


def _once(ours: Any, theta: Any) -> tuple[Any, Any]:
    """Loss and gradient of the kernels with the pull, in the layout of `Training`."""
    import torch

    from tightset.objectives.fused import FusedTraining

    fused, m = FusedTraining(ours), theta.shape[1]
    wide = torch.nn.functional.pad(theta.transpose(1, 2), (0, fused.shape[2] - m)).contiguous()
    loss, gradient = fused(wide)
    away = theta - ours.anchor
    pulled = ours.pull * away
    return loss + (pulled * away).sum(dim=(1, 2)) / 2, gradient[:, :, :m].transpose(1, 2) + pulled


def ticks(torch: Any) -> dict[str, Any]:
    """Milliseconds of a step of a descent at the sizes of the fits, and whether it was recorded as a graph."""
    from tightset.objectives.fused import FusedTraining
    from tightset.solvers.fused_lbfgs import _aside, _Descent

    def there(x: Any) -> Any:
        return torch.as_tensor(np.asarray(x, dtype=np.float32), device="cuda")

    found: dict[str, Any] = {}
    for name, (k, m, C, B, measure, f) in {
        "avila_logistic": (6954, 110, 9, 6, "softmax", None),
        "avila_paths": (6954, 110, 9, 18, "two-matrix", SIZE),
        "wide_logistic": (20_000, 785, 10, 6, "softmax", None),
        "wide_paths": (20_000, 785, 10, 18, "two-matrix", SIZE),
        "wide_all_rows": (55_000, 785, 10, 8, "two-matrix", SIZE),
    }.items():
        ours, theta = problem(k, m, C, B, measure, f, there)
        with _aside(theta):
            fused = FusedTraining(ours)
            width = fused.shape[2]
            wide = torch.nn.functional.pad(theta.transpose(1, 2), (0, width - m)).contiguous()
            hold, unit = torch.zeros((B, width), device="cuda"), torch.ones((B, width), device="cuda")
            descent = _Descent(fused, wide, wide.clone(), hold, unit, 0.0)
            descent.step()
            advance = descent.recorded()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(5):
                advance()
            begin.record()
            for _ in range(50):
                advance()
            end.record()
            end.synchronize()
            of_loss = _ms(torch, lambda fused=fused, descent=descent: fused(descent.theta.view(fused.shape)))
        ms, graph = begin.elapsed_time(end) / 50, advance != descent.step
        found |= {f"ms_tick_{name}": ms, f"graph_{name}": graph}
        how = "graph" if graph else "NO GRAPH"
        print(f"  {name}: {ms:.3f} ms a step ({how}), {of_loss:.3f} ms of it the loss, launched one by one", flush=True)
    return found


def _ms(torch: Any, function: Callable[[], object], repeats: int = 10) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        function()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end) / repeats)
