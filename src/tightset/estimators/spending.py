"""What the sets of a predictor cost: by labels, by size or width, or by both; for evaluation and comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.conformal.costs import cost_matrix, costs_of_sets
from tightset.conformal.inefficiency import Inefficiency, as_inefficiency
from tightset.conformal.interval_metrics import widths
from tightset.conformal.ranks import significance
from tightset.conformal.tallies import Tally, row_of, tally, tally_of_intervals
from tightset.estimators.ordering import order_of

__all__ = ["Measured", "costs_of", "criterion", "knows_costs", "sizes"]


def costs_of(model: Any, sets: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """The cost ``(n,)`` of each of the sets ``(n, C)`` of a predictor, None if labels have no cost.

    It is that of their false labels if the inefficiency counts only those. Where costs depend on the true label, a row
    whose label is unknown, below 0 in ``y (n,)``, has NaN.
    """
    return _costs(_cost_of(model), sets, y)


def _cost_of(model: Any) -> np.ndarray | None:
    """What labels cost a predictor ``(C, C)``, by true label and label in the set."""
    cost = cost_matrix(model.cost, model.classes_)
    observed = as_inefficiency(model.inefficiency).observed
    return cost * (1 - np.eye(len(cost))) if cost is not None and observed else cost


def _costs(cost: np.ndarray | None, sets: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    if cost is None:
        return None
    if (cost == cost[:1]).all():
        return costs_of_sets(sets, cost)
    return np.where(y >= 0, costs_of_sets(sets, cost, np.maximum(y, 0)), np.nan)


def knows_costs(model: Any, y: np.ndarray | None) -> bool:
    """Whether the costs of sets can be told: labels have a cost, and it needs no true label, or there are some."""
    cost = cost_matrix(model.cost, model.classes_)
    return cost is not None and (y is not None or bool((cost == cost[:1]).all()))


def criterion(model: Any) -> tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """What a predictor makes small, as a key of `evaluate` and as a function of sets ``(n, C)`` and labels ``(n,)``."""
    f, order = as_inefficiency(model.inefficiency), order_of(model)

    def spent(sets: np.ndarray, y: np.ndarray) -> np.ndarray:
        costs = costs_of(model, sets, y)
        if costs is None:
            counted = sets & (np.arange(sets.shape[1]) != y[:, None]) if f.observed else sets
            costs = sizes(counted, order)
        return costs if is_size else np.asarray(f(costs.astype(float)))

    is_size = f is as_inefficiency("size")
    named = "mean_cost" if model.cost is not None else "mean_size" if order is None else "mean_width"
    return named if is_size else "inefficiency", spent


class Measured(NamedTuple):
    """What `evaluate` measures of sets: metrics; with costs ``mean_cost`` too, with an order widths."""

    f: Inefficiency
    labels: list[Any]
    cost: np.ndarray | None
    order: np.ndarray | None

    @classmethod
    def of(cls, model: Any) -> Self:
        return cls(as_inefficiency(model.inefficiency), model.classes_.tolist(), _cost_of(model), order_of(model))

    def tally(self, sets: np.ndarray, p: np.ndarray, y: np.ndarray) -> Tally:
        """Sums over rows, wherever these lie."""
        sums, more = tally(sets, y, np.asarray(p, dtype=float), self.f, self.labels), Tally()
        costs = _costs(self.cost, sets, y)
        if costs is not None:
            known = costs[~np.isnan(costs)]
            more["mean_cost"] = known.sum(), len(known)
            sums["inefficiency"] = np.sum(self.f(known)), len(known)
        if self.order is not None:
            more |= tally_of_intervals(sets, y, self.order)
        at = list(sums).index("mean_size") + 1
        return dict(list(sums.items())[:at]) | more | dict(list(sums.items())[at:])

    @staticmethod
    def row(sums: Tally, level: Any, assurance: Any) -> dict[str, Any]:
        """What is said of a level."""
        row = row_of(sums, float(1 - significance(level)))
        return row if assurance is None else {"assurance": float(assurance), **row}


def sizes(sets: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """The sizes ``(n,)`` of sets ``(n, C)``, or their widths if labels have an order."""
    return np.asarray(sets.sum(axis=1)) if order is None else widths(sets, order)
