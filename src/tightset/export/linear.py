"""Scalers and linear scores as ONNX nodes, rounded as scikit-learn and the measures of this library round them.

A model that was trained on float32 rows computes in float32. Steps that treat each number by itself do the same here,
to the last bit: a result in float64 that is rounded to float32 is the result in float32. Sums are added in another
order, so they come with a bound on what rounding can do to them (`Graph.errors`), which scores are widened by.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from tightset.exceptions import warn
from tightset.export.graph import Graph, in_double
from tightset.models.class_scores import Given

__all__ = [
    "add_product",
    "add_scaled",
    "add_steps",
    "computes_in_float32",
    "is_plain_logistic",
    "logistic",
    "scaling_of",
    "warn_of_float32",
]

Step = tuple[str, Any]  # an operation, and its second operand: a number, or one for each column


def add_steps(graph: Graph, X: str, steps: list[Step]) -> str:
    """Operations on columns ``(n, p)``, each rounded to float32 where the fitted model has them in that."""
    for op, operand in steps:
        X = graph.rounded_as(X, graph.add(op, X, np.atleast_2d(in_double(operand))))
    return X


def scaling_of(step: Any, single: bool) -> list[Step] | None:
    """What a scaler of scikit-learn does to each number, in its order; None if it is no such scaler.

    >>> scaling_of(MaxAbsScaler().fit([[2.0, -4.0]]), single=False)
    [('Div', array([2., 4.]))]
    """
    if isinstance(step, StandardScaler):
        dtype = np.float32 if single and _rounds_constants() else np.float64
        centre = [("Sub", np.asarray(step.mean_, dtype=dtype))] if step.with_mean else []
        return centre + ([("Div", np.asarray(step.scale_, dtype=dtype))] if step.with_std else [])
    if isinstance(step, MinMaxScaler):
        low, high = step.feature_range
        limits = [("Max", low), ("Min", high)] if step.clip else []
        return [("Mul", step.scale_), ("Add", step.min_), *limits]
    if isinstance(step, MaxAbsScaler):
        limits = [("Max", -1.0), ("Min", 1.0)] if getattr(step, "clip", False) else []
        return [("Div", step.scale_), *limits]
    if isinstance(step, RobustScaler):
        centre = [("Sub", step.center_)] if step.with_centering else []
        return centre + ([("Div", step.scale_)] if step.with_scaling else [])
    return None


def _rounds_constants() -> bool:
    """Whether `StandardScaler` has its constants in the type of the rows, as in newer versions of scikit-learn."""
    plain = StandardScaler(with_std=False).fit([[1 / 3]])
    row = np.full((1, 1), 1 / 3, dtype=np.float32)
    return bool(plain.transform(row)[0, 0] == 0)


def add_scaled(graph: Graph, X: str, step: Any) -> str | None:
    steps = scaling_of(step, graph.is_single(X))
    return None if steps is None else add_steps(graph, X, steps)


def add_product(graph: Graph, Z: str, theta: np.ndarray, constant: Any, single: bool) -> str:
    """``U = Z theta + constant`` for ``theta (m, C)``, and how far rounding may move it, ``(n, C)``.

    The bound is ``k u (|Z| |theta| + |constant|)``: of the sizes of terms, for a sum may be small where its terms are
    large. ``u`` is the unit of float32 if the fitted model adds in that, or twice that of float64, since both sides
    round. ``k`` is the number of roundings, at most ``2 + 2 sqrt`` of it: of many, each as likely up as down, that is
    six standard deviations even if all terms have one sign (Higham and Mary, 2019).

    (Gemm, not MatMul: onnxruntime draws a scaling by a single number into a MatMul, and rounds it to float32.)
    """
    theta, constant = in_double(theta), in_double(constant)
    roundings = len(theta) + 5
    unit = min(roundings, 2 + 2 * roundings**0.5) * (2.0**-24 if single else 2.0**-52)
    sizes = graph.add("Gemm", graph.add("Abs", Z), unit * np.abs(theta), unit * np.abs(constant))
    return graph.with_error(graph.add("Gemm", Z, theta, constant), sizes)


def is_plain_logistic(model: Any) -> bool:
    """Whether probabilities are ``sigma(z)`` of two classes or the softmax of several."""
    kind = getattr(model, "multi_class", "deprecated")  # gone in scikit-learn 1.8
    several = len(model.classes_) > 2
    if not isinstance(model, LogisticRegression) or (several and model.solver == "liblinear"):
        return False
    return kind in ("auto", "deprecated") or kind == ("multinomial" if several else "ovr")


def logistic(graph: Graph, X: str, model: Any) -> str:
    """The probabilities of a `LogisticRegression`; their error is that of ``z``."""
    single = graph.is_single(X) and model.coef_.dtype == np.float32
    z = add_product(graph, X, model.coef_.T, model.intercept_, single)
    if len(model.classes_) > 2:
        found = graph.add("Softmax", z, axis=1)
    else:
        second = graph.add("Sigmoid", z)
        found = graph.add("Concat", graph.add("Sub", 1.0, second), second, axis=1)
    return graph.with_error(found, graph.reduce("ReduceMax", graph.errors[z]))


def computes_in_float32(model: Any, p: int) -> bool:
    """Whether float32 rows have float32 scores, or columns: the model was probably trained on such rows."""
    if isinstance(model, Given):
        return False
    score = next(
        getattr(model, name) for name in ("predict_proba", "decision_function", "transform") if hasattr(model, name)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns without names
        try:
            return bool(np.asarray(score(np.zeros((1, p), dtype=np.float32))).dtype == np.float32)
        except (TypeError, ValueError):
            return False


def warn_of_float32(graph: Graph, model: Any) -> None:
    """Once for each kind of model."""
    name = type(model).__name__
    if ("told", name) not in graph.known:
        graph.known["told", name] = name
        warn(
            f"{name} was trained on float32 rows, on which it computes in float32, but the graph in float64: sets and "
            "p-values may differ a little from those of predict_set and predict_p. Fit on float64 rows to avoid it"
        )
