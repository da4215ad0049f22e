"""The part of docs/performance.md about GPUs, from what `gpu.py` stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.sections import table
from words import number, quantity

FITS_ON_A_GPU = {
    "avila": ("avila", 2.0),
    "covtype": ("covtype", 2.5),
    "wide": ("55,000 x 784, 10 classes", 12.0),
    "wide_5_levels": ("the same, five levels", 25.0),
}


def gpu_section(gpu: dict[str, Any]) -> str:
    """The whole section; empty where nothing is stored."""
    if not gpu:
        return ""
    ms, products, copy = (gpu[f"ms_{key}"] for key in ("per_step_400_covtype", "of_products", "of_copy"))
    names = [key.removeprefix("shape_") for key in gpu if key.startswith("shape_")]
    sets = [
        (name, " x ".join(map(str, gpu[f"shape_{name}"])), f"{gpu[f'main_experiment_s_{name}']:.2f}") for name in names
    ]
    fits = [
        (name, "the paper's grid, 1000 steps", "", f"{gpu[f'paper_fit_s_{name}_gpu']:.1f}", f"{gpu[f'paper_fit_s_{name}_host']:.1f}",
         f"{gpu[f'paper_size_{name}_gpu']:.3f}", f"{gpu[f'paper_size_{name}_host']:.3f}")
        for name in ("avila", "covtype")
    ]  # fmt: skip
    for name, (what, most) in FITS_ON_A_GPU.items():
        seconds = [gpu[f"fit_s_{name}_{where}"] for where in ("gpu", "host")]
        sizes = [", ".join(f"{size:.3f}" for size in gpu[f"fit_sizes_{name}_{where}"]) for where in ("gpu", "host")]
        times = [f"{number(s)}{' (**missed**)' if at == 0 and s > most else ''}" for at, s in enumerate(seconds)]
        fits.append((what, "the default search", f"{most:g}", *times, *sizes))
    apart = [100 * float(np.mean(gpu[f"fit_sizes_{name}_apart_by_seed"])) for name in ("avila", "covtype")]
    met = "" if ms <= 0.5 and gpu["main_experiment_s"] < 30 else " **A bound is missed.**"
    return f"""## On a GPU

`make bench-gpu`, on {gpu["device"]} with torch {gpu["torch"]} and triton {gpu["triton"]}. Float32; times by device events.

A step of 400 candidates (five levels of the paper's grid) at covtype's size takes **{ms:.3f} ms** (at most 0.5 was asked for), and
{gpu["ms_per_step_400_covtype_in_descent"]:.3f} ms in a descent of 500 steps, everything included. The same step through the general code, without fused kernels
and without a graph, takes {gpu["ms_per_step_400_covtype_unfused"]:.2f} ms. Losses differ from float64 by {gpu["loss_error"]:.1g} and gradients by {gpu["gradient_error"]:.1g} (relative norms).
The paper's main experiment, {len(names)} sets x 5 levels x 2 inefficiencies x 80 settings x 2000 steps, takes **{gpu["main_experiment_s"]:.1f} s** of the device
(at most 30).{met}

What the step must do: {quantity(gpu["flops"])} floating point operations in two matrix products, and {quantity(gpu["bytes_moved"])} bytes to and from memory (the
scores are written, squashed, turned into slopes and read). The device copies at {gpu["copy_tb_s"]:.1f} TB/s ({copy:.3f} ms for the scores
once there and back), so the bytes alone take {gpu["bytes_moved"] / gpu["copy_tb_s"] / 1e9:.3f} ms; its library makes the two products alone, in float32, in {products:.3f} ms
({gpu["products_tflops"]:.0f} TFLOP/s). Two products and two passes after one another would take {products + 2 * copy:.3f} ms at these rates. The step does
everything else in that time as well, because its first product is made of three of TF32 numbers, which the matrix units do
faster than one of float32.

With {gpu["crowded_gib_left"]:.0f} GiB of memory left on the device, a grid that needs more is trained in parts, with parameters that differ by {gpu["crowded_theta_difference"]:.0e}.

{table(["set", "rows x columns x classes", "s"], sets)}
Whole fits at 95 %, choosing and calibrating on the host included, beside the {gpu.get("host_cores", "16")} cores of the same machine:

{table(["rows", "search", "at most", "s, GPU", "s, host", "labels per set, GPU", "host"], fits)}
In the default search logistic regressions, paths, judging and training on all rows are done on the device: a step of L-BFGS is a few kernels, replayed
as a graph, with nothing for the host to do ({1000 * gpu["ms_tick_avila_paths"]:.0f} microseconds for 18 fits of two-matrix measures at avila's size). Members are combined, calibrated and used for
prediction on the host, so that a model answers the same wherever it was trained. The first fit of a process compiles kernels: {gpu["fit_s_avila_gpu_cold"]:.1f} s for
avila with kernels in Triton's cache, some seconds more without. Rounding moves single fits: over {len(gpu["fit_sizes_avila_apart_by_seed"])} more seeds, sets trained on the GPU are on average {apart[0]:+.2f} % (avila) and
{apart[1]:+.2f} % (covtype) larger than the host's.
"""
