"""Trained models as ONNX nodes: from rows ``X (n, p)`` to conformity scores ``(n, C)``, formula by formula.

What levels have in common, columns and the scores of classifiers, is in the graph once.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from tightset.compute.graphs import log_sum
from tightset.conformal.contract import Score
from tightset.export.bases import add_class_scores, refusal
from tightset.export.graph import Graph, in_double
from tightset.export.linear import add_product, add_steps, computes_in_float32, warn_of_float32
from tightset.measures import MEASURES
from tightset.models.class_scores import Averaged
from tightset.models.columns import Columns
from tightset.models.ensembles import STEEPNESS, Ensemble, LinearModel, LogProbabilities, Member, Stacked, Tempered
from tightset.models.networks import Network
from tightset.models.scored import Logistic, Scored
from tightset.models.trees import Trees

__all__ = ["add_scores"]


def add_scores(graph: Graph, X: str, model: Any, classes: np.ndarray, p: int) -> str:
    """Conformity scores ``(n, C)`` of a trained model of `SCPOClassifier` or `ConformalClassifier`."""
    if isinstance(model, LinearModel):
        return _product(graph, _columns(graph, X, model.columns), model.theta)
    if isinstance(model, Ensemble):
        return _ensemble(graph, X, model)
    if isinstance(model, Stacked):
        return _stacked(graph, X, model, p)
    if isinstance(model, Scored):
        P = _probabilities(graph, X, model.classifier, classes, p)
        if model.score.adds_up and computes_in_float32(model.classifier, p):
            why = "the classifier was trained on float32 rows, whose rounding decides such sums; fit on float64 rows"
            raise refusal(f"conformity_score={model.score!r}", why)
        scores, shares = _scored(graph, P, model.score, len(classes))
        return _hulls(graph, scores, _error(graph, P, model, shares), model.order)
    if isinstance(model, Network):
        raise refusal("SCPONeuralClassifier", "networks have no ONNX export here; model files predict without PyTorch")
    raise refusal(type(model).__name__, "it is not a model of this library")


# ---- measures on columns ----------------------------------------------------------------------------------------


def _columns(graph: Graph, X: str, columns: Columns) -> str:
    """``Z (n, m - 1)``: without the constant, which `_product` adds as it is."""
    known = graph.recall(columns, X)
    if known is not None:
        return known
    Z = X if columns.at is None else graph.columns(X, columns.at)
    if columns.knots is not None:
        ramps = add_steps(graph, graph.columns(Z, columns.knots.column), [("Sub", columns.knots.start)])
        ramps = add_steps(graph, ramps, [("Max", 0.0), ("Min", columns.knots.width)])
        both = graph.add("Concat", Z, ramps, axis=1)
        if graph.is_single(Z):
            graph.single[both] = np.ones(len(columns.scaling.scale), dtype=bool)
        Z = both
    centre, scale = columns.scaling
    steps = [("Sub", centre)] if centre.any() else []
    Z = add_steps(graph, Z, [*steps, ("Div", scale)] if (scale != 1).any() else steps)
    return graph.remember(columns, X, Z)


def _product(graph: Graph, Z: str, theta: np.ndarray) -> str:
    return add_product(graph, Z, theta[:-1], theta[-1], theta.dtype == np.float32)


def _member(graph: Graph, X: str, member: Member) -> str:
    """Scores, with what rounding may do to them: to ``U_y``, and at most to that which is subtracted."""
    U = _product(graph, _columns(graph, X, member.columns), member.theta)
    measure = MEASURES[member.measure]
    scores, error = measure.export(graph, U, graph.errors[U], measure.labels(member.theta.shape[1]))
    if member.rule is not None:
        scores, error = member.rule.export(graph, scores, error, measure.labels(member.theta.shape[1]))
    return graph.with_error(scores, error)


def _number_or_array(threshold: float | np.ndarray) -> float | np.ndarray:
    return threshold.astype(np.float64) if isinstance(threshold, np.ndarray) else float(threshold)


def _shifted(graph: Graph, scores: str, error: str, ensemble: Ensemble) -> str:
    """Scores with what is added to labels, and as hulls if labels have an order; with their error."""
    if ensemble.shift is not None:
        scores = graph.add("Add", scores, ensemble.shift.astype(np.float64))
    return _hulls(graph, scores, error, ensemble.order)


def _hulls(graph: Graph, scores: str, error: str | None, order: np.ndarray | None) -> str:
    """As `hull_of_scores`, with their error, if labels have an order."""
    if order is None:
        return graph.with_error(scores, error)
    own = [graph.columns(scores, [int(label)]) for label in order]
    sides = [list(accumulate(some, partial(graph.add, "Max"))) for some in (own, own[::-1])]
    hulls = [graph.add("Min", left, right) for left, right in zip(sides[0], sides[1][::-1], strict=True)]
    found = graph.columns(graph.add("Concat", *hulls, axis=1), np.argsort(order))
    if error is None:
        return found
    widest = graph.add("Add", graph.add("Mul", error, 0.0), graph.reduce("ReduceMax", error))
    return graph.with_error(found, widest)


def _ensemble(graph: Graph, X: str, ensemble: Ensemble) -> str:
    """As `ensembles.combine`: ``log sum_m sigma(4 margin_m) - log sum_m sigma(-4 margin_m)``."""
    z, errors = [], []
    for member in ensemble.members:
        scores = _member(graph, X, member)
        margin = graph.add("Sub", scores, _number_or_array(member.threshold))
        z.append(graph.add("Mul", margin, STEEPNESS))
        errors.append(graph.add("Mul", graph.errors[scores], STEEPNESS))
    if len(z) == 1:
        return _shifted(graph, z[0], errors[0], ensemble)
    # onnxruntime's own Softplus overflows: log(1 + exp z) = max(z, 0) + log(1 + exp -|z|)
    tails = [
        graph.add("Log", graph.add("Add", graph.add("Exp", graph.add("Neg", graph.add("Abs", one))), 1.0)) for one in z
    ]
    kept, left_out = (
        [
            graph.add("Neg", graph.add("Add", graph.add("Relu", one), tail))
            for one, tail in zip(some, tails, strict=True)
        ]
        for some in ([graph.add("Neg", one) for one in z], z)
    )
    found = graph.add("Sub", _log_sum_of(graph, kept), _log_sum_of(graph, left_out))
    # Its derivatives by the z add up to M sum s (1 - s) / (sum s sum (1 - s)), s = sigma(z): at most 1.
    return _shifted(graph, found, graph.add("Max", *errors), ensemble)


def _log_sum_of(graph: Graph, parts: list[str]) -> str:
    top = graph.add("Max", *parts)
    total = graph.add("Sum", *(graph.add("Exp", graph.add("Sub", one, top)) for one in parts))
    return graph.add("Add", top, graph.add("Log", total))


# ---- measures on classifiers ------------------------------------------------------------------------------------


def _stacked(graph: Graph, X: str, model: Stacked, p: int) -> str:
    scores = [_block(graph, X, block, p) for block in model.blocks]
    parts = [] if model.weights is None else [_mixture(graph, scores, model.weights)]
    parts += [scores[at] for at in model.shown]
    if model.fill is not None:
        parts.insert(0, _filled(graph, X, model.fill))
    return _ensemble(graph, graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0], model.ensemble)


def _block(graph: Graph, X: str, block: Any, p: int) -> str:
    known = graph.recall(block, X)
    if known is not None:
        return known
    if isinstance(block, Averaged):
        scores = _averaged(graph, X, block, p)
    elif isinstance(block, LogProbabilities):
        scores = _member(graph, _filled(graph, X, block.fill), block.member)
    elif isinstance(block, Tempered):
        powered = graph.add("Mul", _block(graph, X, block.block, p), float(block.power))
        top, rest = log_sum(graph, powered)
        scores = graph.add("Sub", graph.add("Sub", powered, top), rest)
    elif isinstance(block, Trees):
        raise refusal(f"boost={block.library!r}", f"its trees are a booster of {block.library}'s; fit with boost=None")
    else:
        raise refusal(type(block).__name__, "it is not part of a model of this library")
    return graph.remember(block, X, scores)


def _averaged(graph: Graph, X: str, block: Averaged, p: int) -> str:
    if computes_in_float32(block.models[-1], p):
        warn_of_float32(graph, block.models[-1])
    total = ""
    for model, weight in zip(block.models, block.weights, strict=True):
        scores = add_class_scores(graph, X, model, block.classes, p)
        if not np.array_equal(model.classes_, block.classes):
            scores = graph.add("Where", graph.add("Equal", scores, -np.inf), block.lowest, scores)
        part = graph.add("Mul", scores, float(weight))
        total = graph.add("Add", total, part) if total else part
    if block.scale is None:
        return graph.add("Log", _clipped(graph, total, block.least, 1.0))
    return _clipped(graph, graph.add("Div", total, float(block.scale)), -1e6, 1e6)


def _clipped(graph: Graph, x: str, low: float, high: float) -> str:
    return graph.add("Min", graph.add("Max", x, low), high)


def _mixture(graph: Graph, scores: list[str], weights: np.ndarray) -> str:
    used = [(float(w), A) for w, A in zip(weights, scores, strict=True) if w > 0]
    if len(used) == 1:
        return used[0][1]
    return graph.add("Log", graph.add("Sum", *(graph.add("Mul", graph.add("Exp", A), w) for w, A in used)))


def _filled(graph: Graph, X: str, fill: np.ndarray) -> str:
    known = graph.recall(fill, X)
    if known is not None:
        return known
    found = graph.rounded_as(X, graph.add("Where", graph.add("IsNaN", X), in_double(fill), X))
    return graph.remember(fill, X, found)


# ---- scores on probabilities ------------------------------------------------------------------------------------


def _probabilities(graph: Graph, X: str, classifier: Any, classes: np.ndarray, p: int) -> str:
    if isinstance(classifier, Logistic):
        return graph.add("Exp", _member(graph, X, classifier.member))
    return add_class_scores(graph, X, classifier, classes, p)


def _scored(graph: Graph, P: str, score: Score, C: int) -> tuple[str, list[str]]:
    """Scores, and the probabilities, or sums of them, that each is made of."""
    if score.randomised:
        raise refusal(f"conformity_score={score!r}", "it is randomised; fit with randomised=False")
    if not hasattr(score, "export"):
        raise refusal(
            f"conformity_score={score!r}", "only the scores of tightset.scores are exported, not your own functions"
        )
    try:
        return score.export(graph, P, C)
    except NotImplementedError as error:
        raise refusal(f"conformity_score={score!r}", str(error)) from None


def _error(graph: Graph, P: str, model: Scored, shares: list[str]) -> str | None:
    """How far rounding of what the classifier adds up moves scores that are made of ``shares`` of the probability.

    If every ``z_c`` moves by ``d`` at most, the odds of some labels against the others move by a factor of ``exp 2d``
    at most, and their share ``q`` of the probability by ``q (1 - q) (exp 2d - 1)``.
    """
    if P not in graph.errors or not shares:
        return None
    if not hasattr(model.classifier, "predict_proba"):
        return graph.errors[P]
    twice = graph.add("Mul", graph.errors[P], 2.0)
    factor = graph.add("Mul", twice, graph.add("Exp", twice))  # at least exp 2d - 1
    return graph.add("Mul", factor, graph.add("Sum", *(_spread(graph, one) for one in shares)))


def _spread(graph: Graph, q: str) -> str:
    """``q (1 - q)``."""
    return graph.add("Abs", graph.add("Mul", q, graph.add("Sub", 1.0, q)))
