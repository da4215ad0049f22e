"""Losses of several measures over all rows, summed over blocks of them wherever they lie.

An evaluation takes one pass for logistic regression and two for the profiled objective: own-label scores are counted in
narrow bins, from which the threshold follows; then everything is summed up at that threshold. With a threshold for each
category there is a third: what coverage costs in each must be known before derivatives are pulled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.arrays import Run, add_up, own_label
from tightset.compute.identity import Same
from tightset.compute.label_intervals import hull_of_scores
from tightset.compute.rows import Summed
from tightset.measures import MEASURES
from tightset.measures.products import centred
from tightset.models.columns import Columns
from tightset.models.rules import Rule
from tightset.objectives.contract import SummedObjective
from tightset.objectives.on_terms import OnTerms, TermsOfRows
from tightset.objectives.profiled import Profiled
from tightset.objectives.terms import Terms
from tightset.search.axes import Axes
from tightset.search.chunks import Chunk, laid_out

__all__ = ["OnAllRows", "Piece", "total_weight"]

_BINS = 2**14
_FEWEST_BINS = 2**10  # of one category, where there are many
_REACH = 30.0  # bins reach so far to either side of a threshold, in units of 1 / sharpness; sigmoids are flat beyond
_WINDOWS = 50  # how often bins may be moved to where the threshold is
_KEPT_ENTRIES = 2**26  # of rows that are laid out once and for all; beyond, they are at every evaluation

Sums = tuple[np.ndarray, ...]


class Piece(NamedTuple):
    """A measure that is trained from ``theta (m, D)``, held to ``anchor (m, D)`` by ``pull (m, 1)``.

    Its thresholds, at the level ``eps``, are looked for about ``about``: one, or one for each category of its terms.
    """

    columns: Columns
    measure: str
    objective: SummedObjective
    eps: float
    sharpness: float
    theta: np.ndarray
    anchor: np.ndarray
    pull: np.ndarray
    about: np.ndarray  # (T,), a number for each category
    terms: Terms | None = None
    order: np.ndarray | None = None  # of labels, if sets are intervals
    rule: Rule | None = None  # by which scores are scored; what has one is not trained
    axes: Axes | None = None  # along which it is trained

    def packed(self, theta: np.ndarray) -> np.ndarray:
        """Parameters ``(m, D)`` as descent has them, along axes and in units of their steps."""
        return theta if self.axes is None else self.axes.into(theta) / self.axes.steps(self.pull)

    def unpacked(self, packed: np.ndarray) -> np.ndarray:
        return packed if self.axes is None else self.axes.back(packed * self.axes.steps(self.pull))

    def pulled(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient by parameters ``(m, D)`` as that by packed ones."""
        return gradient if self.axes is None else self.axes.into(gradient) * self.axes.steps(self.pull)

    def step(self, bins: int) -> float:
        """The width of a bin."""
        return 2 * _REACH / self.sharpness / bins


@dataclass(frozen=True, eq=False)
class OnAllRows:
    """Losses ``(B,)`` and gradients ``(B, P)`` of several measures over all rows, as `lbfgs` wants them.

    Parameters are packed, and zeros fill rows of measures that have fewer.
    ``about`` is where thresholds were found last, and are looked for next.
    """

    rows: Summed
    pieces: list[Piece]
    about: np.ndarray
    at: np.ndarray  # of these pieces in ``about``
    places: Mapping[Same, int]  # of columns among those that rows are laid out in
    callback: Callable[[], None] | None

    @classmethod
    def of(cls, rows: Summed, pieces: list[Piece], callback: Callable[[], None] | None) -> Self:
        about = np.zeros((len(pieces), max(len(piece.about) for piece in pieces)))
        for row, piece in zip(about, pieces, strict=True):
            row[: len(piece.about)] = piece.about
        columns = list({Same(piece.columns): piece.columns for piece in pieces}.values())
        labels = MEASURES[pieces[0].measure].labels(pieces[0].theta.shape[1])
        width = sum(len(one.scaling.scale) for one in columns)
        laid = rows.prepared(partial(laid_out, columns=columns, n_classes=labels), _KEPT_ENTRIES // width)
        places = {Same(one): at for at, one in enumerate(columns)}
        return cls(laid, pieces, about, np.arange(len(pieces)), places, callback)

    @property
    def bins(self) -> int:
        return max(_BINS // int(self.about.shape[1]), min(_BINS, _FEWEST_BINS))

    def take(self, candidates: np.ndarray) -> Self:
        return replace(self, pieces=[self.pieces[b] for b in candidates], at=self.at[candidates])

    def start(self) -> np.ndarray:
        """The packed parameters ``(B, P)`` that the pieces start from."""
        packed = np.zeros((len(self.pieces), max(piece.theta.size for piece in self.pieces)))
        for row, piece in zip(packed, self.pieces, strict=True):
            row[: piece.theta.size] = piece.packed(piece.theta).ravel()
        return packed

    def unpacked(self, packed: np.ndarray) -> list[np.ndarray]:
        return [
            piece.unpacked(row[: piece.theta.size].reshape(piece.theta.shape))
            for row, piece in zip(packed, self.pieces, strict=True)
        ]

    def __call__(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parameters = self.unpacked(theta)
        if self.pieces[0].objective.needs_threshold:
            self.thresholds(parameters)
        groups, about = _groups(self.pieces, parameters, self.places), self.about[self.at]
        costs = self._costs_of_coverage(groups, about)
        found = iter(self.rows.total(_losses, groups, about, [rho for _, rho in costs]))
        loss, gradient = np.empty(len(theta)), np.zeros_like(theta)
        for group, (its_loss, _) in zip(groups, costs, strict=True):
            sums, by_all, by_own = next(found), next(found), next(found)
            if group.terms is not None:
                loss[group.at], pulled = its_loss, by_all / sums[0]
            else:
                loss[group.at], of_all, of_own = group.objective.combine(tuple(sums))
                pulled = of_own[:, None, None] * by_own
                if of_all is not None:
                    pulled += of_all[:, None, None] * by_all
            for b, its_gradient in zip(group.at, pulled, strict=True):
                piece = self.pieces[b]
                away = parameters[b] - piece.anchor
                loss[b] += np.sum(piece.pull * away**2) / 2
                gradient[b, : away.size] = piece.pulled(its_gradient + piece.pull * away).ravel()
        if self.callback is not None:
            self.callback()
        return loss, gradient

    def _costs_of_coverage(self, groups: list[_Group], about: np.ndarray) -> list[tuple[Any, Any]]:
        """Loss ``(B,)`` and ``rho (B, T)`` of each group that has terms."""
        if all(group.terms is None for group in groups):
            return [(None, None)] * len(groups)
        found, costs = iter(self.rows.total(_coverage_sums, groups, about)), []
        for group in groups:
            total, *sums = (next(found) for _ in range(6))
            if group.terms is None:
                costs.append((None, None))
                continue
            nobody = np.zeros(0, dtype=np.intp)  # the sums are of all rows
            costs.append(group.on_terms(nobody, nobody).combine(tuple(one / total for one in sums)))
        return costs

    def thresholds(self, parameters: list[np.ndarray], *, hard: bool = False) -> np.ndarray:
        """``q (B, T)`` of smooth coverage, or ``eps``-quantiles of the own-label scores; ``about`` follows them."""
        bins = self.bins
        for _ in range(_WINDOWS):
            about = self.about[self.at]
            counted = self.rows.total(_counts, _groups(self.pieces, parameters, self.places), about, bins)
            for b, (piece, counts) in enumerate(zip(self.pieces, counted, strict=True)):
                for c in np.flatnonzero(counts.sum(axis=1)):
                    step, own = piece.step(bins), counts[c]
                    middles = about[b, c] + (np.arange(bins) - bins / 2 + 0.5) * step
                    if hard:
                        found = np.interp(piece.eps, np.cumsum(own) / own.sum(), middles + step / 2)
                    else:
                        found = piece.objective.threshold(middles[None], own[None] / own.sum())[0]
                    self.about[self.at[b], c] = found
            sharpness = np.array([piece.sharpness for piece in self.pieces])
            moved = np.abs(self.about[self.at] - about) * sharpness[:, None]
            if (moved <= _REACH / 3).all():  # what lies beyond the bins is then far from the threshold
                break
        else:
            raise FloatingPointError("scores of the training rows are too far apart to find a threshold among them")
        found_at: np.ndarray = self.about[self.at]
        return found_at


def total_weight(X: Any, y: np.ndarray, weight: np.ndarray | None) -> Sums:  # noqa: ARG001
    """That of some rows, to be added up."""
    return (np.array(len(y) if weight is None else weight.sum(), dtype=np.float64),)


class _Group(NamedTuple):
    """Pieces of one measure on the same columns and terms, which share matrix products; ``at`` are their places."""

    at: np.ndarray
    columns: int  # their place among those that rows are laid out in
    measure: str
    objective: SummedObjective
    theta: np.ndarray  # (B, m, D)
    sharpness: np.ndarray  # (B,)
    terms: Terms | None
    order: np.ndarray | None
    rule: Rule | None

    def forward(self, part: _Part) -> tuple[Any, Any, Any]:
        """Scores that sets are made of, what is saved of them, and how derivatives go back through their hulls."""
        A, saved = MEASURES[self.measure].forward(part.Z, centred(self.theta, part.centre))
        if self.rule is not None:
            A = np.stack([self.rule(one) for one in A])
        if self.order is None:
            return A, saved, lambda dA: dA
        H, hulls = hull_of_scores(A, self.order)
        return H, saved, hulls.pulled

    def on_terms(self, y: np.ndarray, group: np.ndarray) -> OnTerms:
        """The objective of rows with these labels and groups."""
        assert isinstance(self.objective, Profiled) and self.terms is not None  # noqa: S101, PT018
        own = replace(self.terms, group=None if self.terms.group is None else group)
        rows = TermsOfRows.of(own, y, self.objective.f, block=True)
        return OnTerms(self.objective.eps, self.objective.gamma, self.objective.f, rows)


def _groups(pieces: list[Piece], parameters: list[np.ndarray], places: Mapping[Same, int]) -> list[_Group]:
    alike: dict[tuple[Same, str, Same, Same], list[int]] = {}
    for b, piece in enumerate(pieces):
        alike.setdefault((Same(piece.columns), piece.measure, Same(piece.terms), Same(piece.rule)), []).append(b)
    groups = []
    for at in alike.values():
        first, own = pieces[at[0]], [pieces[b] for b in at]
        objective = first.objective.beside([piece.objective for piece in own[1:]])
        theta, sharpness = np.stack([parameters[b] for b in at]), np.array([piece.sharpness for piece in own])
        shared = (first.measure, objective, theta, sharpness, first.terms, first.order, first.rule)
        groups.append(_Group(np.array(at), places[Same(first.columns)], *shared))
    return groups


def _counts(chunks: Iterable[Chunk], groups: list[_Group], about: np.ndarray, bins: int) -> Sums:
    """Own-label scores of each piece, counted in bins by category ``(T, bins)``; those beyond are in the last ones."""
    B, T = about.shape
    counts = np.zeros((B, T, bins))
    for part in _parts(chunks, groups):
        group = part.group
        own = own_label(group.forward(part)[0], part.runs)
        category = np.zeros(own.shape[1], dtype=np.intp)
        if group.terms is not None:
            category = group.terms.index[0 if group.terms.group is None else part.groups, part.y]
            own = own - group.terms.offset[part.y]
        step = 2 * _REACH / group.sharpness / bins
        at = (own - about[group.at][:, category]) / step[:, None] + bins / 2
        at = at.clip(0, bins - 1).astype(np.intp) + bins * category
        for b, own_bins in zip(group.at, at, strict=True):
            counts[b] += np.bincount(own_bins, part.weight[0], minlength=T * bins).reshape(T, bins)
    return tuple(counts)


def _coverage_sums(chunks: Iterable[Chunk], groups: list[_Group], q: np.ndarray) -> Sums:
    """Of each group with terms its total weight and the sums of its objective; six zeros of any other."""
    totals: list[Any] = [tuple(np.zeros(()) for _ in range(6)) for _ in groups]
    for part in _parts(chunks, groups):
        group = part.group
        if group.terms is not None:
            A, _, _ = group.forward(part)
            sums, _, _ = group.on_terms(part.y, part.groups).block(A, part.runs, part.weight, _own(q, group))
            totals[part.at] = add_up([totals[part.at], (np.array(part.weight.sum()), *sums)])
    return tuple(one for total in totals for one in total)


def _losses(chunks: Iterable[Chunk], groups: list[_Group], q: np.ndarray, costs: list[Any]) -> Sums:
    """Of each group the sums of its objective ``(., B)``, and its two raw derivatives pulled back, ``(B, m, D)``.

    With terms, whose ``rho (B, T)`` are the ``costs`` of coverage, the sum is that of the weights, and there is one
    derivative.
    """
    totals: list[Any] = [None] * len(groups)
    for part in _parts(chunks, groups):
        group, Z, measure = part.group, part.Z, MEASURES[part.group.measure]
        A, saved, back = group.forward(part)
        if group.terms is not None:
            objective = group.on_terms(part.y, part.groups)
            _, dF, dV = objective.block(A, part.runs, part.weight, _own(q, group))
            dA = objective.derivative(dF, dV, part.runs, costs[part.at])
            sums, pulled = [np.array(part.weight.sum())], [measure.backward(Z, saved, back(dA)), np.zeros(())]
        else:
            sums, dF, dV = group.objective.block(A.copy(), part.runs, part.weight, q[group.at, 0])
            scattered = np.zeros_like(A)
            for label, start, stop in part.runs:
                scattered[:, start:stop, label] = dV[:, start:stop]
            pulled = [np.zeros(()) if dF is None else measure.backward(Z, _copied(saved), back(dF))]
            pulled.append(measure.backward(Z, saved, back(scattered)))
        for gradient in pulled:
            if part.centre is not None and gradient.ndim:
                gradient[:, :-1] -= part.centre[:, None] * gradient[:, -1:]
        own = (np.stack(sums), *pulled)
        totals[part.at] = own if totals[part.at] is None else add_up([totals[part.at], own])
    return tuple(part for total in totals for part in total)


def _copied(saved: Any) -> Any:
    return saved if saved is None else tuple(one.copy() for one in saved)


def _own(q: np.ndarray, group: _Group) -> np.ndarray:
    """The thresholds of a group with terms ``(B, T)``."""
    assert group.terms is not None  # noqa: S101 - who asks has seen to that
    return np.asarray(q[group.at, : group.terms.n_thresholds])


class _Part(NamedTuple):
    """A chunk of rows as a group of pieces sees it."""

    at: int  # the place of the group
    group: _Group
    Z: Any
    centre: np.ndarray | None
    runs: list[Run]
    weight: np.ndarray
    y: np.ndarray
    groups: np.ndarray


def _parts(chunks: Iterable[Chunk], groups: list[_Group]) -> Iterator[_Part]:
    for columns, runs, weight, y, group_of in chunks:
        for at, group in enumerate(groups):
            yield _Part(at, group, *columns[group.columns], runs, weight, y, group_of)
