"""What `fit` writes into a model about where it comes from, and other commands read: the names of these entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BASELINE", "COST", "DATA", "DATA_HASH", "ESTIMATOR", "FITTED_BY", "HELD_OUT_HASH", "ORDER", "uses_of_rows"]

FITTED_BY = "fitted by"
DATA = "data"
DATA_HASH = "sha256 of data"
HELD_OUT_HASH = "sha256 of rows left out"
ESTIMATOR = "estimator"
BASELINE = "baseline"
COST = "cost of labels"
ORDER = "order of labels"


def uses_of_rows(about: Mapping[str, Any], rows: str = "") -> str:
    """What became of the rows of a table; the numbers add up to all of them.

    >>> uses_of_rows({"rows": 600, "trained": 292, "calibrated": 98, "tested": 130, "unused": 80}, " rows")
    '292 rows train, 98 calibrate, 130 test, 80 are not used'
    """
    parts = {f"{rows} train": about["trained"], " calibrate": about["calibrated"]}
    rest = about["rows"] - sum(parts.values())
    uses = {" test": about.get("tested", 0), " are not used": about.get("unused", 0)}
    parts |= uses if "tested" in about else {" test or are not used": rest}  # older models do not say
    return ", ".join(f"{n:,}{what}" for what, n in parts.items() if n)
