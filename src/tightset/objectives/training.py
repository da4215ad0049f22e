"""Losses as functions of the parameters, composed of a measure, an objective in score space, and rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self, cast

import numpy as np

from tightset.compute.arrays import Array, Run, Scratch, label_runs, namespace, own_label
from tightset.compute.blocks import Block, Rows
from tightset.compute.contracts import check_offers
from tightset.measures.contract import Measure
from tightset.measures.products import centred
from tightset.objectives.contract import Objective
from tightset.objectives.penalised import Penalised, Sums
from tightset.objectives.sums import OfSums
from tightset.objectives.weights import normalised

__all__ = [
    "Surrogate",
    "Training",
]


_MOST_PARTS = 16  # of rows that differ in who trains on them: those of the folds, and no more


class _Part(NamedTuple):
    """Rows that the same candidates train on; ``who`` these are, and their objective."""

    rows: slice
    X: Array
    runs: list[Run]
    who: Any
    objective: Any
    weight: Array | None


@dataclass(frozen=True, eq=False)
class Training:
    """``loss_b(theta_b) = objective + 1/2 sum pull_b (theta_b - anchor_b)^2`` for any measure and objective.

    Conventions
    -----------
    X : (k, m); y : (k,); weight : (B, k), which also makes the folds of cross-validation; anchor : (B, m, D); pull :
    (B, m, 1), how strongly each row of parameters is held at the anchor. It is fastest for rows sorted by fold, and
    by label within: a candidate then does not compute anything for the rows that its fold holds out.
    ``centre (m - 1,)`` holds column means that were not taken off sparse rows: scores are functions of ``theta' x``,
    and ``theta . (x - c)`` is ``theta . x`` with the intercept lowered by ``theta . c``, so no zero is filled in.
    """

    X: Array
    y: np.ndarray
    measure: Measure
    objective: Objective
    weight: Array
    anchor: Array
    pull: Array
    centre: Array | None = None
    scratch: Scratch | None = None
    about: Array | None = None  # (B,), where thresholds were found last, and are looked for next

    def __post_init__(self) -> None:
        check_offers(self.objective, Objective)
        check_offers(self.measure, Measure)

    def take(self, candidates: Array) -> Self:
        return replace(
            self,
            objective=self.objective.take(candidates),
            weight=self.weight[candidates],
            anchor=self.anchor[candidates],
            pull=self.pull[candidates],
            about=None if self.about is None else self.about[candidates],
        )

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        xp, own = namespace(theta), centred(theta, self.centre)
        if self.scratch is not None:
            self.scratch.clear()
        loss, gradient = self._in_parts(own) if isinstance(self.objective, OfSums) else self._whole(own)
        if self.centre is not None:
            gradient[:, :-1] -= self.centre[:, None] * gradient[:, -1:]
        away = theta - self.anchor
        held = self.pull * away
        return loss + xp.sum(held * away, axis=(1, 2)) / 2, gradient + held

    def _whole(self, theta: Array) -> tuple[Array, Array]:
        A, saved = self.measure.forward(self.X, theta, self.scratch)
        loss, dA = self.objective.value_and_gradient(A, self.y, self.weight)
        return loss, self.measure.backward(self.X, saved, dA)

    def _in_parts(self, theta: Array) -> tuple[Array, Array]:
        """Scores of all rows, the threshold, then sums, then derivatives."""
        xp, objective = namespace(theta), cast("OfSums", self.objective)
        scored = [self.measure.forward(part.X, theta[part.who], self.scratch) for part in self.parts]
        q = self._threshold([A for A, _ in scored]) if objective.needs_threshold else None
        raw, totals = [], None
        for part, (A, _) in zip(self.parts, scored, strict=True):
            sums, *derivatives = part.objective.block(A, part.runs, part.weight, None if q is None else q[part.who])
            raw.append(derivatives)
            totals = totals or tuple(xp.zeros_like(theta[:, 0, 0]) for _ in sums)
            for total, more in zip(totals, sums, strict=True):
                total[part.who] += more
        assert totals is not None  # noqa: S101 - there are rows
        loss, a, b = objective.combine(totals)
        gradient = xp.zeros_like(theta)
        for part, (A, saved), (dF, dV) in zip(self.parts, scored, raw, strict=True):
            dA = A if dF is None else dF
            if dF is None:
                dA[...] = 0
            d_own = (b if a is None else b / a)[part.who][:, None] * dV
            for label, start, stop in part.runs:
                dA[:, start:stop, label] += d_own[:, start:stop]
            gradient[part.who] += self.measure.backward(part.X, saved, dA)
        return loss, gradient if a is None else gradient * a[:, None, None]

    def _threshold(self, scores: list[Array]) -> Array:
        if self.parts[0].rows == slice(None):
            alphas = own_label(scores[0], self.parts[0].runs)
        else:
            alphas = namespace(*scores).zeros_like(self.share)  # rows that a candidate does not train on have no weight
            for part, A in zip(self.parts, scores, strict=True):
                alphas[part.who, part.rows] = own_label(A, part.runs)
        q = cast("OfSums", self.objective).threshold(alphas, self.share, self.about)
        if self.about is not None:
            self.about[...] = q
        return q

    @cached_property
    def share(self) -> Array:
        """Weights ``(B, k)`` of sum 1."""
        return normalised(self.weight, self.weight)

    @cached_property
    def parts(self) -> list[_Part]:
        """The rows, cut where those who train on them change; equal weights are left out, and divide nothing."""
        if not isinstance(self.weight, np.ndarray):
            return [_Part(slice(None), self.X, label_runs(self.y), ..., self.objective, self.weight)]
        trains = self.weight > 0
        edges = np.flatnonzero((trains[:, 1:] != trains[:, :-1]).any(axis=0)) + 1
        if len(edges) >= _MOST_PARTS:
            edges, trains = edges[:0], np.ones_like(trains)
        found = []
        for start, stop in pairwise([0, *edges.tolist(), len(self.y)]):
            rows = slice(start, stop)
            who = np.flatnonzero(trains[:, start])
            if len(who) == 0:
                continue
            everyone = len(who) == len(trains)
            own: Any = ... if everyone else who
            objective = self.objective if everyone else self.objective.take(who)
            found.append(_Part(rows, self.X[rows, :], label_runs(self.y[rows]), own, objective, self.weight[own, rows]))
        if all((part.weight == self.weight.max(axis=1)[part.who][:, None]).all() for part in found):
            found = [part._replace(weight=None) for part in found]
        return found


class BlockMeasure(Protocol):
    """What `Surrogate` asks of a measure: scores that are linear in the parameters."""

    def scores(self, X: Array, theta: Array, scratch: Scratch | None = None) -> Array: ...
    def pullback(self, X: Array, dA: Array, scratch: Scratch | None = None) -> Array: ...
    def add_own(self, gradient: Array, X: Array, runs: list[Run], d_own: Array) -> None: ...


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The penalised loss of linear measures in one pass over blocks of rows that stay in cache.

    ``theta (B, m, C)`` to ``(B,)`` and gradient; ``centre`` as in `Training`.
    """

    rows: Rows
    measure: BlockMeasure
    objective: Penalised
    centre: Array | None = None
    candidates: Array | None = None
    scratch: Scratch = field(default_factory=Scratch)

    def __post_init__(self) -> None:
        check_offers(self.objective, Objective)
        check_offers(self.measure, BlockMeasure)

    def take(self, candidates: Array) -> Self:
        return replace(self, objective=self.objective.take(candidates), candidates=candidates)

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        xp = namespace(theta)
        theta = centred(theta, self.centre)

        @np.errstate(all="ignore")  # as in `minimise`; a thread does not inherit it
        def lane(blocks: list[Block]) -> Any:
            total: Any = None
            for block in blocks:
                weight = block.weight
                if weight is not None and weight.ndim == 2 and self.candidates is not None:
                    weight = weight[self.candidates]
                self.scratch.clear()
                A = self.measure.scores(block.X, theta, self.scratch)
                sums, dF, dV = self.objective.block(A, block.runs, weight)
                pulled = self.measure.pullback(block.X, dF, self.scratch)
                if total is None:  # the sum starts as a copy: scratch memory is reused
                    total = (sums, pulled + 0, xp.zeros_like(pulled))
                else:
                    total = _add(total, (sums, pulled, 0))
                self.measure.add_own(total[2], block.X, block.runs, dV)
            return total

        sums, gradient_F, gradient_V = reduce(_add, self.rows.map(lane))
        loss, a, b = self.objective.combine(sums)
        gradient = a[:, None, None] * gradient_F + b[:, None, None] * gradient_V
        if self.centre is not None:
            gradient[:, :-1] -= self.centre[:, None] * gradient[:, -1:]
        return loss, gradient


def _add(total: tuple[Sums, Array, Array], more: tuple[Sums, Array, Array]) -> tuple[Sums, Array, Array]:
    """Sums and pulled-back derivatives of two parts of the rows; the first part's arrays are reused."""
    sums = Sums(*(x + y for x, y in zip(total[0], more[0], strict=True)))
    gradient_F, gradient_V = total[1:]
    gradient_F += more[1]
    gradient_V += more[2]
    return sums, gradient_F, gradient_V
