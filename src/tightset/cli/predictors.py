"""The predictors that a command trains: SCPO on a named estimator, and the plain threshold on the same estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tightset.cli.about import COST, ORDER

if TYPE_CHECKING:
    from tightset.tables.costs import Costs

__all__ = ["baseline_name", "in_order", "predictors", "price"]


def predictors(
    estimator: str, levels: list[float], search: str, how: dict[str, Any], *, nested: bool = False
) -> tuple[Any, Any]:
    """SCPO on an estimator, and the plain threshold on the same."""
    from tightset import ConformalClassifier, SCPOClassifier
    from tightset.models.named import NAMES, named_classifier
    from tightset.scores import Hull

    if search not in ("fast", "default", "thorough"):
        raise typer.BadParameter(f"{search!r} is none of fast, default, thorough", param_hint="--search")
    if how["inefficiency"] not in ("size", "multiple", "excess", "log"):
        raise typer.BadParameter(
            f"{how['inefficiency']!r} is none of size, multiple, excess, log", param_hint="--minimise"
        )
    if estimator not in ("linear", "auto", *NAMES):
        raise typer.BadParameter(f"{estimator!r} is none of linear, auto, {', '.join(NAMES)}", param_hint="--estimator")
    try:
        on: Any = {"linear": None, "auto": "auto"}[estimator] if estimator not in NAMES else named_classifier(estimator)
    except ImportError as error:
        raise typer.BadParameter(str(error), param_hint="--estimator") from None
    plain = named_classifier("hgb") if estimator == "auto" else on
    levels_or_one: Any = levels if len(levels) > 1 else levels[0]  # one level gives flat results in Python
    score = "lac" if how["inefficiency"] == "size" else Hull(how["inefficiency"])  # the best rule without training
    scpo = SCPOClassifier(levels_or_one, estimator=on, search=search, nested=nested, **how)
    return scpo, ConformalClassifier(plain, confidence=levels_or_one, conformity_score=score, **how)


def price(costs: Costs | None, labelled: Any, scpo: Any, plain: Any) -> dict[str, Any]:
    """Give both predictors the costs of a file, the baseline as the best rule for them; what a model says of costs."""
    from tightset.scores import PerCost

    if costs is None:
        return {}
    scpo.cost = costs.of(labelled)
    plain.conformity_score = PerCost(scpo.cost)
    names = map(str, labelled.classes.tolist())
    return {COST: costs.name if costs.is_square else dict(zip(names, scpo.cost, strict=True))}


def in_order(ordered: Any, labelled: Any, scpo: Any, plain: Any) -> dict[str, Any]:
    """Give both predictors the order of the labels, if one was asked for; what a model says of it."""
    from tightset.tables.orders import listed, order_labels

    if ordered is None:
        return {}
    return {ORDER: listed(order_labels(ordered, labelled, scpo, plain))}


def baseline_name(estimator: str, costs: Any = None, ordered: Any = None) -> str:
    name = {"linear": "logistic regression with C = 1", "auto": "hgb"}.get(estimator, estimator)
    return f"{name}, gaps filled" if ordered else name if costs is None else f"{name}, per cost"
