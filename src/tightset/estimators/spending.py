"""What the sets of a predictor cost: by labels, by size or width, or by both; for evaluation and comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tightset.conformal import metrics
from tightset.conformal.costs import cost_matrix, costs_of_sets
from tightset.conformal.inefficiency import as_inefficiency
from tightset.conformal.interval_metrics import evaluate_intervals, widths
from tightset.conformal.ranks import significance
from tightset.estimators.ordering import order_of

__all__ = ["costs_of", "criterion", "knows_costs", "measured", "sizes"]


def costs_of(model: Any, sets: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """The cost ``(n,)`` of each of the sets ``(n, C)`` of a predictor, None if labels have no cost.

    It is that of their false labels if the inefficiency counts only those. Where costs depend on the true label, a row
    whose label is unknown, below 0 in ``y (n,)``, has NaN.
    """
    cost = cost_matrix(model.cost, model.classes_)
    if cost is None:
        return None
    if as_inefficiency(model.inefficiency).observed:
        cost = cost * (1 - np.eye(len(cost)))
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


def measured(model: Any, sets: np.ndarray, p: np.ndarray, y: np.ndarray, level: Any) -> dict[str, Any]:
    """What `evaluate` says of a level: metrics of the sets; with costs ``mean_cost`` too, with an order widths."""
    f, sure = as_inefficiency(model.inefficiency), model.fitted_.assurance
    how: dict[str, Any] = {"confidence": float(1 - significance(level)), "labels": model.classes_.tolist()}
    row = ({} if sure is None else {"assurance": float(sure)}) | metrics.evaluate(sets, y, p=p, f=f, **how)
    costs, order = costs_of(model, sets, y), order_of(model)
    more = {}
    if costs is not None:
        known = costs[~np.isnan(costs)]
        more = {"mean_cost": float(known.mean()) if len(known) else float("nan")}
        row["inefficiency"] = float(np.mean(f(known))) if len(known) else float("nan")
    if order is not None:
        more |= evaluate_intervals(sets, y, order=order)
    at = list(row).index("mean_size") + 1
    items = list(row.items())
    return dict(items[:at]) | more | dict(items[at:])


def sizes(sets: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """The sizes ``(n,)`` of sets ``(n, C)``, or their widths if labels have an order."""
    return np.asarray(sets.sum(axis=1)) if order is None else widths(sets, order)
