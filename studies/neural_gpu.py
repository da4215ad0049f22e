"""The part of ``docs/neural.md`` about a GPU, from what ``benchmarks/neural_speed.py`` stores."""
# ruff: noqa: E501 - lines of the page are as long as they are

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies.sections import table

__all__ = ["SPEED", "on_a_gpu"]

SPEED = Path(__file__).parents[1] / "benchmarks/neural.json"

_MOST = 1.5  # times cross-entropy


def on_a_gpu(stored: dict[str, Any] | None) -> list[str]:
    """The section about a GPU, if anything is stored."""
    if not stored:
        return []
    rows, alone = [], False
    for one in stored["epochs"]:
        beside = "" if one["replayed"] else " (1)"
        alone = alone or not one["replayed"]
        seconds = [f"{one[name]:.3f}" for name in ("s_cross_entropy", "s", "s_kernel_by_kernel")]
        missed = " (**missed**)" if one["ratio"] > _MOST else ""
        rows.append(
            [
                f"{100 * one['confidence']:g} %",
                f"{one['batch_size']:,}",
                *seconds,
                f"{one['ratio']:.2f}{missed}{beside}",
            ]
        )
    note = """
(1) A batch that is no smaller than the memory (2,000 rows at 95 %) has its threshold solved for in its own rows. This was measured before
such batches could be replayed: they looked at numbers to know when to stop, and were launched kernel by kernel. Since then
a fixed number of steps leads from the threshold of the batch before to the new one, and they are replayed as well; that has been tested on a CPU, **but not
measured on a GPU**. The heads below were measured before that, too.
"""
    heads = ("level", "rows in a batch", "cross-entropy, s", "`SCPOLoss`, s", "not replayed, s", "ratio")
    frozen = "; ".join(
        f"{one['s']:.1f} s with {'the default batches' if one['batch_size'] is None else 'batches of ' + format(one['batch_size'], ',')} "
        f"(coverage {one['coverage']:.3f}, {one['mean_size']:.2f} labels per set)"
        for one in stored["frozen"]
    )
    off = max(one["gradient_error"] for one in stored["agreement"])
    return [
        f"""## On a GPU

`benchmarks/neural_speed.py`, on {stored["device"]} with torch {stored["torch"]}, stored in `benchmarks/neural.json`. An epoch of {stored["rows"]:,} rows x 784 columns, 10 classes, two hidden layers of
64, both losses in one run, medians of alternating epochs; at most {_MOST} times cross-entropy was asked for. Gradients that are replayed differ from others by
{off:.0e} of the largest at most.

{table(heads, rows)}{note if alone else ""}
A head on frozen logits, {stored["frozen_classes"]:,} classes x {stored["frozen_rows"]:,} rows, at 90 %, fitted from beginning to end (at most 10 s was asked for): {frozen}."""
    ]
