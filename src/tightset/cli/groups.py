"""Coverage and sizes within each group, as `evaluate` shows them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tightset.cli.show import say, show

if TYPE_CHECKING:
    from tightset.estimators.base import ConformalPredictor

__all__ = ["by_group", "show_groups"]

_MOST_SHOWN = 20


def by_group(predictor: ConformalPredictor, X: Any, y: Any, groups: Any, levels: list[float]) -> list[dict[str, Any]]:
    """Rows, coverage and mean size of each group, those with most rows first; a figure for each level."""
    import numpy as np

    from tightset.exceptions import TightsetWarning
    from tightset.report.numbers import tally

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TightsetWarning)  # `evaluate` has told of labels and groups that are not known
        codes = predictor.label_codes(X, y, "y", unknown="miss")
        found = tally(predictor, X, codes, levels, groups=groups)
    assert found.covered is not None  # noqa: S101 - there are labels
    names, at, rows = np.unique(groups, return_inverse=True, return_counts=True)
    told = [
        {
            "group": str(names[one]),
            "rows": int(rows[one]),
            "coverage": found.covered[:, at == one].mean(axis=1).tolist(),
            "mean_size": found.size[:, at == one].mean(axis=1).tolist(),
        }
        for one in range(len(names))
    ]
    return sorted(told, key=lambda one: -one["rows"])


def show_groups(found: list[dict[str, Any]], column: str, levels: list[float]) -> None:
    cells = [
        (
            one["group"],
            f"{one['rows']:,}",
            *(f"{figure:.3f}" for pair in zip(one["coverage"], one["mean_size"], strict=True) for figure in pair),
        )
        for one in found[:_MOST_SHOWN]
    ]
    columns = ("group", "rows", *(name for level in levels for name in (f"{level:g}\ncoverage", "\nsize")))
    show(f"Sets within each group of {column!r}", columns, cells, left=[0])
    if len(found) > _MOST_SHOWN:
        say(f"and {len(found) - _MOST_SHOWN:,} more groups; --json lists all.")
