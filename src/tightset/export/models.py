"""Trained models as ONNX nodes: from rows ``X (n, p)`` to conformity scores ``(n, C)``, formula by formula.

What levels have in common, columns and the scores of classifiers, is in the graph once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightset.bases import Averaged
from tightset.boosting import Trees
from tightset.checking import warn
from tightset.classifier import Logistic, Scored
from tightset.columns import Columns
from tightset.export.bases import add_class_scores, computes_in_float32, refusal
from tightset.export.graph import Graph, in_double
from tightset.measures import MEASURES
from tightset.models import Ensemble, LinearModel, LogProbabilities, Member, Stacked, Tempered
from tightset.scores import APS, LAC, RAPS, SAPS, Margin, TopK

__all__ = ["add_scores"]

_STEEPNESS = 4.0  # of the sigmoids that members vote with, as in models.combine
_BREAKS_TIES = 2.0**-30  # as in scores.APS


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
        if isinstance(model.score, (APS, RAPS)) and computes_in_float32(model.classifier, p):
            why = "the classifier was trained on float32 rows, whose rounding decides such sums; fit on float64 rows"
            raise refusal(f"score={model.score!r}", why)
        return _scored(graph, P, model.score, len(classes))
    raise refusal(type(model).__name__, "it is no model of this library")


# ---- measures on columns ----------------------------------------------------------------------------------------


def _columns(graph: Graph, X: str, columns: Columns) -> str:
    """``Z (n, m - 1)``: without the constant, which `_product` adds as it is."""
    known = graph.recall(columns, X)
    if known is not None:
        return known
    Z = X if columns.at is None else graph.columns(X, columns.at)
    if columns.knots is not None:
        ramps = graph.add("Sub", graph.columns(Z, columns.knots.column), in_double(columns.knots.start))
        ramps = graph.add("Min", graph.add("Max", ramps, 0.0), in_double(columns.knots.width))
        Z = graph.add("Concat", Z, ramps, axis=1)
    centre, scale = map(in_double, columns.scaling)
    if centre.any():
        Z = graph.add("Sub", Z, centre)
    if (scale != 1).any():
        Z = graph.add("Div", Z, scale)
    return graph.remember(columns, X, Z)


def _product(graph: Graph, Z: str, theta: np.ndarray) -> str:
    return graph.add("Add", graph.add("MatMul", Z, in_double(theta[:-1])), in_double(theta[-1]))


def _member(graph: Graph, X: str, member: Member) -> str:
    U = _product(graph, _columns(graph, X, member.columns), member.theta)
    if member.measure == "linear":
        return U
    if member.measure == "softmax":
        top, rest = _log_sum(graph, U)
        return graph.add("Sub", graph.add("Sub", U, top), rest)
    C = MEASURES[member.measure].labels(member.theta.shape[1])
    scores, gate = graph.columns(U, np.arange(C)), graph.columns(U, np.arange(C, 2 * C))
    return graph.add("Sub", scores, graph.add("Add", *_log_sum(graph, gate)))


def _log_sum(graph: Graph, Z: str) -> tuple[str, str]:
    """``log sum_c exp Z_c`` in two terms: the largest, and the rest."""
    top = graph.reduce("ReduceMax", Z)
    return top, graph.add("Log", graph.reduce("ReduceSum", graph.add("Exp", graph.add("Sub", Z, top))))


def _ensemble(graph: Graph, X: str, ensemble: Ensemble) -> str:
    """As `models.combine`: ``log sum_m sigma(4 margin_m) - log sum_m sigma(-4 margin_m)``."""
    z = []
    for member in ensemble.members:
        margin = graph.add("Sub", _member(graph, X, member), float(member.threshold))
        z.append(graph.add("Mul", margin, _STEEPNESS))
    if len(z) == 1:
        return z[0]
    kept = [graph.add("Neg", graph.add("Softplus", graph.add("Neg", one))) for one in z]
    left_out = [graph.add("Neg", graph.add("Softplus", one)) for one in z]
    return graph.add("Sub", _log_sum_of(graph, kept), _log_sum_of(graph, left_out))


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
        top, rest = _log_sum(graph, powered)
        scores = graph.add("Sub", graph.add("Sub", powered, top), rest)
    elif isinstance(block, Trees):
        raise refusal(f"boost={block.library!r}", f"its trees are a booster of {block.library}'s; fit with boost=None")
    else:
        raise refusal(type(block).__name__, "it is no part of this library's models")
    return graph.remember(block, X, scores)


def _averaged(graph: Graph, X: str, block: Averaged, p: int) -> str:
    if computes_in_float32(block.models[-1], p):
        warn(
            f"{type(block.models[-1]).__name__} was trained on float32 rows, on which it computes in float32, but the "
            "graph in float64: p-values may differ a little from those of predict_p. Fit on float64 rows to avoid it"
        )
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
    return graph.remember(fill, X, graph.add("Where", graph.add("IsNaN", X), in_double(fill), X))


# ---- scores on probabilities ------------------------------------------------------------------------------------


def _probabilities(graph: Graph, X: str, classifier: Any, classes: np.ndarray, p: int) -> str:
    if isinstance(classifier, Logistic):
        return graph.add("Exp", _member(graph, X, classifier.member))
    return add_class_scores(graph, X, classifier, classes, p)


def _scored(graph: Graph, P: str, score: Any, C: int) -> str:
    if getattr(score, "randomised", False):
        raise refusal(f"score={score!r}", "it is randomised; fit with randomised=False")
    if isinstance(score, LAC):
        return P
    if isinstance(score, Margin):
        ordered = _ordered(graph, P, 2)
        first, second = graph.columns(ordered, [0]), graph.columns(ordered, [1])
        return graph.add("Sub", P, graph.add("Where", graph.add("Less", P, first), first, second))
    if not isinstance(score, (TopK, APS, RAPS, SAPS)):
        raise refusal(f"score={score!r}", "only the scores of tightset.scores are exported, not a function of your own")
    ordered = _ordered(graph, P, C)
    ahead = _ahead(graph, ordered, P, C, "Greater")
    o = graph.add("Add", graph.cast(ahead, "DOUBLE"), 1.0)
    if isinstance(score, TopK):
        return graph.add("Neg", o)
    if isinstance(score, SAPS):
        top, weight = graph.columns(ordered, [0]), float(score.weight or 0)
        lower = graph.add("Add", top, graph.add("Mul", graph.add("Sub", o, 1.0), weight))
        return graph.add("Neg", lower)
    last = graph.add("Sub", _ahead(graph, ordered, P, C, "GreaterOrEqual"), 1)
    total = graph.add("GatherElements", graph.add("CumSum", ordered, 1), last, axis=1)
    adaptive = graph.add("Add", graph.add("Neg", total), graph.add("Mul", P, _BREAKS_TIES))
    if isinstance(score, APS):
        return adaptive
    over = graph.add("Max", graph.add("Sub", o, float(score.rank or 0)), 0.0)
    return graph.add("Sub", adaptive, graph.add("Mul", over, float(score.penalty or 0)))


def _ordered(graph: Graph, P: str, k: int) -> str:
    """The ``k`` largest of each row, the largest first."""
    return graph.add("TopK", P, [k], axis=1)


def _ahead(graph: Graph, ordered: str, P: str, C: int, relation: str) -> str:
    """How many of its row are greater than each (or as great), by binary search in the row: int ``(n, C)``."""
    found = graph.add("Mul", graph.cast(graph.add("IsNaN", P), "INT64"), 0)
    for step in [2**at for at in reversed(range(C.bit_length()))]:
        at = graph.add("Add", found, step - 1)
        probe = graph.add("GatherElements", ordered, graph.add("Min", at, C - 1), axis=1)
        further = graph.add("And", graph.add(relation, probe, P), graph.add("Less", at, C))
        found = graph.add("Add", found, graph.add("Where", further, step, 0))
    return found
