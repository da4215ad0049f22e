"""A fitted predictor as an ONNX model, for servers without Python: sets, p-values or scores from raw features.

    X (n, p) -> columns, classifiers -> scores (n, C) of each fold -> counts among calibration scores -> p-values, sets

All that the library computes of a row is in the graph, calibration included. What it checks is not: a row that
`predict_set` would refuse is scored as it comes, and a score that is NaN excludes no label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tightset import __version__
from tightset.compute.row_types import COARSE, rounded_to
from tightset.conformal.ranks import rank, significance
from tightset.conformal.scores import LAC
from tightset.estimators.base import ConformalPredictor
from tightset.export.bases import refusal
from tightset.export.graph import Graph, add_counts, add_first_largest, add_kept, least_equal
from tightset.export.models import add_scores
from tightset.export.tables import add_encoding, inputs_of, said_of
from tightset.models.class_scores import Given
from tightset.models.scored import Scored
from tightset.storage.file import written_whole
from tightset.tables.predictor import TablePredictor

__all__ = ["Output", "add_outputs", "to_onnx"]

_KINDS = {"sets": "BOOL", "p-values": "DOUBLE", "scores": "DOUBLE"}
_SLACK_DIGITS = {np.dtype(np.float64): 44, np.dtype(np.float32): 22}


class Output(NamedTuple):
    """One output of the graph: ``(n, C)``, at a level if it depends on one."""

    name: str
    kind: str
    level: float | None


def to_onnx(
    model: ConformalPredictor, path: Any = None, *, output: str | Sequence[str] = "sets", confidence: Any = None
) -> Any:
    """Return the fitted predictor as an ONNX model from ``X (n, p)`` to what `predict_set` or `predict_p` gives.

    Parameters
    ----------
    model : SCPOClassifier, ConformalClassifier or TablePredictor
        The fitted predictor, or the model of a table as `tightset fit` writes it.
    path : str or os.PathLike, optional
        A file to write as well. It is written completely or not at all.
    output : str or sequence of str, default "sets"
        ``"sets"``, bool; ``"p-values"`` or ``"scores"``, double; or several of them. Each is ``(n, n_classes)``.
    confidence : float or sequence of float, optional
        One level or several; by default those of the constructor. Several levels give an output for each, named
        ``sets_0.9`` and so on: every output has the rows first, as servers that batch requests want it.

    Returns
    -------
    proto : onnx.ModelProto
        The model. Its metadata (JSON) has ``classes``, the labels that columns of outputs stand for; ``outputs``, the
        kind and the level of each; ``assurance``, if there is one; ``n_features`` and ``feature_names`` (null if X had
        none); and ``tightset_version``.
        Of a table, ``inputs`` (the kind of each, and of categories the values and the texts for a missing one) and
        ``target`` instead of features.

    Raises
    ------
    ExportError
        If a part of the model cannot be written as ONNX; the message names it.

    Notes
    -----
    ``X`` is double, or float for a model whose scores are float32, having been trained on float32 rows. Rows that are
    finer than those of training and calibration are rounded as `predict_set` does, and a row of numbers that float32
    holds may have been rounded to it, so that its scores tie as far as that moves them. (Rows that were rounded to
    float16 cannot be told from those: give them as they were.) The model of a table has an input ``(n, 1)`` for each
    column that it uses, by its name: double for numbers, NaN where missing; string for categories, empty where missing.
    Values that were never seen count as rare ones, or as none.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from tightset import ConformalClassifier
    >>> clf = ConformalClassifier(confidence=0.9, random_state=0).fit(*load_wine(return_X_y=True))
    >>> [one.name for one in to_onnx(clf).graph.output]
    ['sets']
    """
    missing = [name for name in ("onnx", "onnxruntime", "skl2onnx") if find_spec(name) is None]
    if missing:
        raise ImportError(f'the export needs {" and ".join(missing)}: pip install "tightset[onnx]"')
    table = model if isinstance(model, TablePredictor) else None
    model = table.predictor if table else model
    if not isinstance(model, ConformalPredictor):
        raise TypeError(
            "model must be a fitted SCPOClassifier or ConformalClassifier, or a TablePredictor; "
            f"got {type(model).__name__}"
        )
    check_is_fitted(model, "fitted_")
    if path is not None and not Path(path).parent.is_dir():
        raise FileNotFoundError(f"path must be in an existing folder; got {str(path)!r}")
    if not hasattr(model, "n_features_in_"):
        raise refusal(type(model).__name__, "its rows are texts, not columns of numbers")
    if table:
        inputs = inputs_of(table.encoding)
        graph = Graph([name for name, *_ in inputs])
        rows = add_encoding(graph, table.encoding)
        said: dict[str, Any] = {"inputs": said_of(table.encoding), "target": table.target}
    else:
        inputs = [("X", "FLOAT" if _single(model) else "DOUBLE", ["n", model.n_features_in_])]
        graph = Graph()
        rows = graph.cast("X", "DOUBLE")
        names = getattr(model, "feature_names_in_", None)
        said = {"n_features": int(model.n_features_in_), "feature_names": None if names is None else names.tolist()}
    outputs = add_outputs(graph, rows, model, output, confidence)
    proto = graph.finish(
        inputs,
        [(one.name, _KINDS[one.kind], ["n", len(model.classes_)]) for one in outputs],
        {
            "tightset_version": __version__,
            "classes": model.classes_.tolist(),
            "outputs": {one.name: {"kind": one.kind, "confidence": one.level} for one in outputs},
            **({} if model.fitted_.assurance is None else {"assurance": float(model.fitted_.assurance)}),
            **said,
        },
    )
    if path is not None:
        with written_whole(path) as file:
            file.write(proto.SerializeToString())
    return proto


def add_outputs(
    graph: Graph, X: str, model: ConformalPredictor, output: str | Sequence[str], confidence: Any = None
) -> list[Output]:
    """Add what is asked for to a graph in which ``X`` is a double tensor ``(n, p)``, from wherever it comes."""
    kinds = [output] if isinstance(output, str) else list(output)
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown or not kinds:
        raise ValueError(f"output must be one or several of {', '.join(map(repr, _KINDS))}; got {output!r}")
    if model.fitted_.by_group:
        raise refusal(type(model).__name__, "it was calibrated by group; fit without groups")
    levels, _ = model.levels_asked(confidence)
    model.warn_if_stricter(levels)
    asked = model.fitted_.ask(levels)
    computed = _as_calibrated(graph, X, model)
    scored = {at: _Scored.of(graph, X, computed, model, at) for at in dict.fromkeys(one.model for one in asked)}
    found = []
    for kind in dict.fromkeys(kinds):
        if kind == "sets":
            tensors = {one.level: scored[one.model].sets(graph, one.level, model.allow_empty) for one in asked}
        elif kind == "p-values":
            tensors = {model.levels_[at]: one.p_values(graph) for at, one in scored.items()}
        elif len(model.folds_) > 1:
            raise refusal("output='scores'", "each fold of cv has its own scores; export p-values or sets instead")
        else:
            tensors = {model.levels_[at]: one.scores[0] for at, one in scored.items()}
        depends = kind == "sets" or model.trains_for_level
        stem = kind.replace("-", "_")
        for level, tensor in tensors.items():
            number = float(1 - significance(level))
            name = stem if len(tensors) == 1 else f"{stem}_{number!r}"
            found.append(Output(graph.rename(tensor, name), kind, number if depends else None))
    return found


class _Scored(NamedTuple):
    """Scores ``(n, C)`` by the models of every fold, and the sorted alphas of each: all, or those of each label."""

    scores: list[str]
    high: list[str]  # the most that each score may have been before its row was rounded
    alphas: list[list[np.ndarray]]
    slack: float  # by which scores may be rounded otherwise here
    assurance: Fraction | None

    @classmethod
    def of(cls, graph: Graph, X: str, computed: str, model: ConformalPredictor, at: int) -> _Scored:
        """For rows ``X`` as given, and as they are ``computed``."""
        scores, high, least, largest = [], [], [], 0.0
        for fold in model.folds_:
            scores.append(add_scores(graph, computed, fold.models[at], model.classes_, int(model.n_features_in_)))
            reach = graph.errors.get(scores[-1])
            most = graph.add("Add", scores[-1], reach) if reach else scores[-1]
            high.append(_add_slack(graph, most, X, fold.calibrations[at].slacks))
            alphas = [np.sort(some) for some in fold.calibrations[at].alphas.values()]
            slacks = [_slack(fold.models[at], some) for some in alphas]
            least.append(list(map(least_equal, alphas, slacks)))
            largest = max(largest, *(float(some.max(initial=0.0)) for some in slacks))
        return cls(scores, high, least, largest, model.fitted_.assurance)

    @property
    def rows(self) -> np.ndarray:
        """Calibration rows of all folds, ``(1,)`` or by label ``(C,)``."""
        return np.asarray(np.sum([[len(some) for some in fold] for fold in self.alphas], axis=0))

    def counts(self, graph: Graph) -> str:
        """Added up over the folds."""
        total = ""
        for scores, alphas in zip(self.high, self.alphas, strict=True):
            found = graph.recall(alphas, scores) or graph.remember(alphas, scores, add_counts(graph, scores, alphas))
            total = graph.add("Add", total, found) if total else found
        return total

    def p_values(self, graph: Graph) -> str:
        above = graph.add("Add", graph.cast(self.counts(graph), "DOUBLE"), 1.0)
        return graph.add("Div", above, self.rows + 1.0)

    def sets(self, graph: Graph, level: Any, allow_empty: bool) -> str:
        ranks = np.array([rank(level, int(rows), self.assurance) for rows in self.rows])
        if len(self.scores) == 1:
            thresholds = [one[r - 1] if r else -np.inf for one, r in zip(self.alphas[0], ranks, strict=True)]
            kept = add_kept(graph, self.high[0], np.array(thresholds))
        else:
            kept = graph.add("GreaterOrEqual", self.counts(graph), ranks)
        if allow_empty:
            return kept
        some = graph.cast(graph.reduce("ReduceMax", graph.cast(kept, "INT64")), "BOOL")
        return graph.add("Or", kept, graph.add("And", graph.add("Not", some), self.first_to_enter(graph)))

    def first_to_enter(self, graph: Graph) -> str:
        """The label with the largest p-value, and of several the most conforming one, as bool ``(n, C)``."""
        if len(self.scores) == 1 and len(self.alphas[0]) == 1:  # p-values rise with scores
            return add_first_largest(graph, self.scores[0], self.slack)
        total = self.scores[0] if len(self.scores) == 1 else graph.add("Sum", *self.scores)
        p = self.p_values(graph)
        best = graph.add("Equal", p, graph.reduce("ReduceMax", p))
        return add_first_largest(graph, graph.add("Where", best, total, -np.inf), self.slack)


def _slack(model: ConformalPredictor, alphas: np.ndarray) -> np.ndarray:
    """How far rounding may move each calibration score.

    Most are sums of numbers about as large as the largest of them. Probabilities are known better the nearer they are
    to 1, and often lie there so close to each other that it matters; one of two classes may be 1 minus the other.
    """
    size = np.where(np.isfinite(alphas), np.abs(alphas), 0.0).astype(np.float64)
    score, classifier = (model.score, model.classifier) if isinstance(model, Scored) else (None, None)
    if isinstance(classifier, Given):  # scores that come with the rows, and sums of them in the order of the library
        return np.zeros(len(alphas))
    if classifier is None or not hasattr(classifier, "predict_proba"):
        return np.full(len(alphas), size.max(initial=1.0) * 2.0 ** -_SLACK_DIGITS[alphas.dtype])
    own_digits = isinstance(score, LAC) and len(classifier.classes_) > 2
    unit = size if own_digits else 1 + size
    last_place = 2 * float(np.finfo(alphas.dtype).eps)
    return np.asarray(last_place * (unit / 2 + 8 * np.minimum(unit, 1) * np.abs(1 - size)))


def _as_calibrated(graph: Graph, X: str, model: ConformalPredictor) -> str:
    """Rows rounded to the types of training and calibration, as `row_types.conform` does."""
    types = rounded_to(model.fitted_.kind.trained, model.fitted_.kind.calibrated, int(model.n_features_in_))
    for name in sorted({one for one in types if one is not None}):
        coarse = graph.cast(graph.cast(X, name.upper().replace("FLOAT32", "FLOAT")), "DOUBLE")
        X = graph.add("Where", np.array([[one == name for one in types]]), coarse, X)
    trained = model.fitted_.kind.trained or model.fitted_.kind.calibrated
    graph.single[X] = np.array([one is not None for one in rounded_to(trained, trained, int(model.n_features_in_))])
    return X


def _add_slack(graph: Graph, scores: str, X: str, slacks: Mapping[str, float]) -> str:
    """As `Calibration.widened`: of rows whose numbers float32 holds, scores reach as far as rounding moves them."""
    always, rounded = slacks.get("alone", 0.0), slacks.get(COARSE[0], 0.0)
    if not always and not rounded:
        return scores
    same = graph.add("Equal", graph.cast(graph.cast(X, "FLOAT"), "DOUBLE"), X)
    held = graph.add("Or", same, graph.add("IsNaN", X))
    every = graph.cast(graph.reduce("ReduceMin", graph.cast(held, "INT64")), "BOOL")
    return graph.add("Add", scores, graph.add("Where", every, always + rounded, always))


def _single(model: ConformalPredictor) -> bool:
    """Whether scores are float32, as those of models that were trained on float32 rows are."""
    kinds = {some.dtype for fold in model.folds_ for one in fold.calibrations for some in one.alphas.values()}
    return kinds == {np.dtype(np.float32)}
