"""Speed as ratios, measured side by side in one run: `make bench`.

The ratios go to benchmarks/latest.json, a flat object in which each has its spread under its name plus ``_spread``;
seconds, sizes, memory, versions and what was left out go to benchmarks/latest-details.json. `page.py` writes
docs/performance.md from both. `clock.py` says how noise is handled.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import clock
import engine
import fits
import page
import precision
import prediction
import slopes

PARTS: dict[str, Any] = {
    "engine": engine,
    "slopes": slopes,
    "precision": precision,
    "fits": fits,
    "prediction": prediction,  # last: TorchCP loads another BLAS
}
PACKAGES = ("tightset", "numpy", "scipy", "scikit-learn", "mapie", "crepes", "torch", "torchcp")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}, printed and not stored; default: all")
    chosen = options.parse_args().parts
    if unknown := set(chosen) - set(PARTS):
        options.error(f"no such part: {', '.join(sorted(unknown))}")
    ledger, start, machine = clock.Ledger(), time.perf_counter(), clock.machine(*PACKAGES)
    clock.head()
    for name, part in PARTS.items():
        if not chosen or name in chosen:
            part.measure(ledger)
    took = time.perf_counter() - start
    print(f"{took:.0f} s in all")
    if not chosen:
        clock.write("latest.json", ledger.ratios)
        details = {"machine": machine | {"seconds": took}, "left_out": ledger.left_out, "measured": ledger.details}
        clock.write("latest-details.json", details)
        page.main()


if __name__ == "__main__":
    main()
