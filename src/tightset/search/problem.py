"""The arguments of every search: training rows, the aim of training, and the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from tightset.compute.hashing import distinct_rows
from tightset.compute.progress import Progress
from tightset.compute.rows import MemoryRows, RowSource
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import OBSERVED_EXCESS, SIZE, Inefficiency, as_inefficiency
from tightset.conformal.ranks import significance
from tightset.models.contract import Model
from tightset.models.rules import ByExpectedCost, Rule, hull_rule
from tightset.objectives.terms import Terms

__all__ = ["Aim", "Outcome", "Record", "Runtime", "TrainingRows", "bounded", "normalised"]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows ``X (k, p)``, labels ``y (k,)`` in ``0 ... C - 1``, classes ``(C,)``; weights, groups ``(k,)`` or None."""

    X: RowSource
    y: np.ndarray
    classes: np.ndarray
    weight: np.ndarray | None = None
    groups: np.ndarray | None = None  # (k,) in 0 ... G - 1, if each has a threshold of its own

    def __len__(self) -> int:
        return len(self.y)

    @property
    def codes(self) -> np.ndarray:
        """Labels and groups in one number, ``y + C group``."""
        return self.y if self.groups is None else self.y + len(self.classes) * self.groups

    def take(self, index: np.ndarray) -> Self:
        weight, groups = (None if one is None else one[index] for one in (self.weight, self.groups))
        return replace(self, X=self.X.take(index), y=self.y[index], weight=weight, groups=groups)

    def sorted(self) -> Self:
        """In memory, by label."""
        return replace(self, X=MemoryRows(self.X.gather())).take(np.argsort(self.y, kind="stable"))

    def distinct(self) -> Self:
        """In memory, each row once, with the weight of all its copies: these train the same model to the last bit."""
        X = self.X.gather()
        scale = 1.0 if self.weight is None else np.exp2(-np.frexp(self.weight.max())[1])  # sums finite, no digit lost
        kept, weight = distinct_rows(X, self.codes, None if self.weight is None else self.weight * scale)
        return replace(replace(self, X=MemoryRows(X), weight=None).take(kept), weight=bounded(weight))

    def by_fold(self, fold: np.ndarray) -> tuple[Self, np.ndarray]:
        """In the order of folds, otherwise as they are, with the fold of each: a fit leaves out rows in one piece."""
        order = np.argsort(fold, kind="stable")
        return self.take(order), fold[order]


class Aim(NamedTuple):
    """What is trained for: levels, inefficiency, one measure for all levels or not, coverage by label or not, costs."""

    levels: Sequence[Any]
    f: Inefficiency = SIZE
    nested: bool = False
    by_label: bool = False
    cost: np.ndarray | None = None  # (C, C), of having a label in the set where another is true
    order: np.ndarray | None = None  # (C,), of the labels, if sets are to be intervals
    asked: Any = "size"  # f as it was given, for files
    false_only: bool = False  # what labels cost that are not the true one
    errors: Mapping[float, Fraction] = MappingProxyType({})  # by level, where it is not that of the level

    @classmethod
    def of(cls, levels: Sequence[Any], inefficiency: Any, **how: Any) -> Self:
        """For an inefficiency as users give it. OE is the size less the coverage, and so trained for as the size."""
        f = as_inefficiency(inefficiency)
        if f == OBSERVED_EXCESS:
            return cls(levels, SIZE, asked="size", false_only=how.get("cost") is not None, **how)
        return cls(levels, f, asked=inefficiency, false_only=f.observed, **how)

    def significance(self, confidence: Any) -> Fraction:
        """The share of rows that sets of a level should miss."""
        return self.errors.get(float(confidence), significance(confidence))

    def terms(self, rows: TrainingRows, eps: float) -> Terms | None:
        """Categories and costs of training rows; None if there is but one threshold and all labels cost the same."""
        how: Any = {"by_label": self.by_label, "group": rows.groups, "cost": self.cost, "weight": rows.weight}
        how |= {"false_only": self.false_only}
        return Terms.of(rows.y, len(rows.classes), eps, **how)

    @property
    def combining(self) -> dict[str, Any]:
        """What a combination of measures needs to know."""
        return {"by_label": self.by_label, "order": self.order}

    def rule(self, rows: TrainingRows) -> Rule | None:
        """The best rule for known probabilities, where it ranks labels otherwise than probability over mean cost."""
        if self.order is not None:
            return None
        if self.cost is None:
            return None if self.f == SIZE else hull_rule(self.asked, len(rows.classes))
        terms = self.terms(rows, 0.5)
        if self.f != SIZE or terms is None or terms.cost is None or (terms.cost == terms.cost[:1]).all():
            return None
        return ByExpectedCost(terms.cost, terms.offset)

    def offset(self, rows: TrainingRows) -> Any:
        """What scores that are log-probabilities are compared with where nothing is known of thresholds: 0 or costs."""
        terms = Terms.of(rows.y, len(rows.classes), 0.5, cost=self.cost, weight=rows.weight)
        return 0.0 if terms is None else terms.offset


class Runtime(NamedTuple):
    """What a search runs on, its random numbers, and who watches it."""

    progress: Progress
    seed: Sequence[int] = (0,)
    device: str | None = None
    n_jobs: int | None = None

    def threads(self) -> Threads:
        return Threads(self.n_jobs if self.device is None else 1)


class Record(Protocol):
    """How a level's model came about: a table of candidates, one entry each in every column."""

    @property
    def table(self) -> dict[str, np.ndarray]: ...


class Outcome(NamedTuple):
    """The model of each level (one may serve all), and how it came about."""

    models: Sequence[Model]
    record: Sequence[Record] | None = None


def bounded(weight: np.ndarray | None) -> np.ndarray | None:
    """Weights up to 1: only ratios matter, sums must stay finite, and float32 holds no ratio of 1e50."""
    return None if weight is None else np.maximum(weight / weight.max(), 1e-12)


def normalised(weight: np.ndarray | None) -> np.ndarray | None:
    """Weights of mean 1, the smallest not much below the largest."""
    result = bounded(weight)
    return None if result is None else np.asarray(result / result.mean())
