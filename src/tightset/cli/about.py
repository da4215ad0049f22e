"""What `fit` writes into a model about where it comes from, and other commands read: the names of these entries."""

from __future__ import annotations

__all__ = ["BASELINE", "COST", "DATA", "DATA_HASH", "ESTIMATOR", "FITTED_BY", "HELD_OUT_HASH", "ORDER"]

FITTED_BY = "fitted by"
DATA = "data"
DATA_HASH = "sha256 of data"
HELD_OUT_HASH = "sha256 of rows left out"
ESTIMATOR = "estimator"
BASELINE = "baseline"
COST = "cost of labels"
ORDER = "order of labels"
