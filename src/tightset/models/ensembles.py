"""Trained measures on raw rows: one, or several combined into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from tightset.compute.arrays import Array
from tightset.compute.identity import Same
from tightset.compute.label_intervals import as_intervals
from tightset.compute.threads import Threads
from tightset.measures import MEASURES
from tightset.measures.products import centred
from tightset.models.columns import Columns, as_numbers
from tightset.models.contract import Block, Shared
from tightset.models.rules import Rule
from tightset.storage.registry import storable

__all__ = [
    "STEEPNESS",
    "Ensemble",
    "LinearModel",
    "LogProbabilities",
    "Member",
    "Stacked",
    "Tempered",
    "beside",
    "combine",
    "filled",
    "mixture",
    "tempered",
]

_CHUNK_ROWS = 512
_PRODUCTS_FOR_THREADS = 2**26
STEEPNESS = 4.0  # of the sigmoids that members vote with


@storable
class LinearModel(NamedTuple):
    """A trained linear measure: ``A(x, y) = theta_[y] . (z, 1)`` with ``theta (m, C)``."""

    columns: Columns
    theta: np.ndarray

    def scores(self, X: Array, shared: Shared | None = None) -> np.ndarray:  # noqa: ARG002
        def score(part: Array) -> np.ndarray:
            Z, centre = self.columns.apply(part)
            return np.asarray(Z @ centred(self.theta[None], centre)[0])

        return _in_chunks(X, self.theta.shape[1], [self.theta], score)


@storable
class Member(NamedTuple):
    """A measure by name, its parameters ``(m, D)``, and its own threshold, or one for each label."""

    columns: Columns
    measure: str
    theta: np.ndarray
    threshold: float | np.ndarray  # that of each label (C,)
    rule: Rule | None = None  # by which the scores, log-probabilities, are scored

    def scores(self, Z: Array, centre: np.ndarray | None) -> np.ndarray:
        return np.asarray(MEASURES[self.measure].forward(Z, centred(self.theta[None], centre))[0][0])

    def margins(self, A: np.ndarray) -> np.ndarray:
        """What the scores ``(n, C)`` of the measure are above the threshold, by the rule if there is one."""
        return np.asarray((A if self.rule is None else self.rule(A)) - self.threshold)


@storable
class Ensemble(NamedTuple):
    """Measures that vote: ``mean_m sigma(4 (A_m - q_m))`` is the share of members, smoothed, that keep a label.

    Scores are given on the log-odds scale of that share, where they do not saturate, so that labels far from every
    threshold still differ and p-values at other levels stay useful. One member alone ranks as it does by itself.
    """

    members: list[Member]
    shift: np.ndarray | None = None  # (C,)
    order: np.ndarray | None = None  # (C,), of the labels, if sets are intervals

    @classmethod
    def of(cls, members: list[Member], *, by_label: bool = False, order: np.ndarray | None = None) -> Self:
        """The members combined. If coverage is by label, what is common to all rows of a label has no influence on
        sets, and thresholds of labels are added again, so that the label of largest score is a likely one.
        """
        of_labels = [member.threshold for member in members if isinstance(member.threshold, np.ndarray)]
        return cls(members, STEEPNESS * np.mean(of_labels, axis=0) if by_label and of_labels else None, order)

    def scores(self, X: Array, shared: Shared | None = None) -> np.ndarray:  # noqa: ARG002
        first = self.members[0]
        C = MEASURES[first.measure].labels(first.theta.shape[1])
        groups: dict[tuple[Same, str], list[int]] = {}  # one matrix product each
        for at, member in enumerate(self.members):
            groups.setdefault((Same(member.columns), member.measure), []).append(at)
        thetas = [np.stack([self.members[at].theta for at in places]) for places in groups.values()]

        def score(part: Array) -> np.ndarray:
            applied: dict[Same, Any] = {}
            margins: dict[int, np.ndarray] = {}
            for ((columns, measure), places), theta in zip(groups.items(), thetas, strict=True):
                if columns not in applied:
                    applied[columns] = columns.of.apply(part)
                Z, centre = applied[columns]
                A, _ = MEASURES[measure].forward(Z, centred(theta, centre))
                margins |= {at: self.members[at].margins(own) for at, own in zip(places, A, strict=True)}
            voted = combine([margins[at] for at in range(len(self.members))])
            voted = voted if self.shift is None else voted + self.shift
            return as_intervals(voted, self.order)

        return _in_chunks(X, C, thetas, score)


@storable
class LogProbabilities(NamedTuple):
    """A softmax measure as a `Block`; ``fill (p,)`` stands for values that are missing."""

    member: Member
    fill: np.ndarray

    def scores(self, X: Any) -> np.ndarray:
        member, C = self.member, self.member.theta.shape[1]
        rows = filled(X, self.fill)
        return _in_chunks(rows, C, [member.theta], lambda part: member.scores(*member.columns.apply(part)))


@storable
class Tempered(NamedTuple):
    """Probabilities raised to a power, ``p^power / sum p^power``: below 1 for a classifier that is too sure."""

    block: Block
    power: float

    def scores(self, X: Any) -> np.ndarray:
        return tempered(self.block.scores(X), self.power)


@storable
class Stacked(NamedTuple):
    """Measures on the scores of other classifiers, and on the columns themselves.

    The rows of the ensemble are ``[columns of X | scores of the mixture | scores of each block]``; what no member asks
    for is left out.
    """

    blocks: list[Block]
    weights: np.ndarray | None  # of the blocks in the mixture
    fill: np.ndarray | None  # (p,), in place of values of X that are missing
    shown: list[int]  # blocks that members ask for themselves, not only as parts of the mixture
    ensemble: Ensemble

    def scores(self, X: Any, shared: Shared | None = None) -> np.ndarray:
        """Scores of rows; those of the blocks are computed once for all levels."""
        scores = [block.scores(X) if shared is None else shared.once(block, X) for block in self.blocks]
        parts = [] if self.weights is None else [mixture(scores, self.weights)]
        parts += [scores[at] for at in self.shown]
        if self.fill is not None:
            parts.insert(0, filled(X, self.fill))
        return self.ensemble.scores(beside(parts))


def tempered(scores: np.ndarray, power: float) -> np.ndarray:
    """``log_softmax(power * A)``."""
    result = power * scores
    result -= result.max(axis=1, keepdims=True)
    result -= np.log(np.exp(result).sum(axis=1, keepdims=True))
    return result


def mixture(scores: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """``log sum_b w_b exp A_b``: the log-probabilities of a mixture; the scores themselves if only one has weight."""
    used = [(w, A) for w, A in zip(weights, scores, strict=True) if w > 0]
    if len(used) == 1:
        return used[0][1]
    return np.asarray(np.log(sum(w * np.exp(A) for w, A in used)))


def beside(parts: list[Any]) -> Any:
    """Columns side by side; sparse if some of them are."""
    if any(sparse.issparse(part) for part in parts):
        return sparse.csr_array(sparse.hstack([sparse.csr_array(part) for part in parts]))
    return np.hstack(parts)


def filled(X: Any, fill: np.ndarray) -> Any:
    """Rows as numbers, what is missing replaced: a score must not hang on what the search happened to choose."""
    columns = as_numbers(X)
    if columns is None and not sparse.issparse(X):
        try:
            numbers = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("X must be numbers, as it was in training; it contains text") from None
        columns = as_numbers(np.where(np.isnan(numbers), fill, numbers))
    if columns is None:
        raise ValueError("X must be finite numbers, as it was in training; it contains infinity, or NaN in sparse rows")
    return columns


def combine(margins: list[np.ndarray]) -> np.ndarray:
    """Log-odds of the mean of ``sigma(4 margin)``; a row of margins scores alike however many rows there are."""
    if len(margins) == 1:
        return STEEPNESS * margins[0]
    z = STEEPNESS * np.stack(margins)
    tail = np.log1p(np.exp(-np.abs(z)))
    kept, left_out = -(np.maximum(-z, 0) + tail), -(np.maximum(z, 0) + tail)  # log sigma(z), log sigma(-z)
    result: np.ndarray = _log_sum(kept) - _log_sum(left_out)
    return result


def _log_sum(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=0)
    result: np.ndarray = top + np.log(np.exp(x - top).sum(axis=0))
    return result


def _in_chunks(X: Array, C: int, thetas: list[np.ndarray], score: Callable[[Array], np.ndarray]) -> np.ndarray:
    """Scores ``(n, C)``, in chunks of one shape: a row scores the same to the last bit, alone or among others.

    Where there is much to multiply with ``thetas``, chunks are dealt to threads, each with a single-threaded BLAS: for
    products as small as these its own threads do not pay.
    """
    n = X.shape[0]
    result = np.empty((n, C), dtype=thetas[0].dtype)

    def fill(start: int) -> None:
        part = X[start : start + _CHUNK_ROWS]
        rows = part.shape[0]
        if rows < _CHUNK_ROWS and not sparse.issparse(part):
            part = np.concatenate([part, np.zeros((_CHUNK_ROWS - rows, part.shape[1]), dtype=part.dtype)])
        with np.errstate(over="ignore", invalid="ignore"):
            result[start : start + rows] = score(part)[:rows]

    starts = range(0, n, _CHUNK_ROWS)
    if n * sum(theta.size for theta in thetas) < _PRODUCTS_FOR_THREADS:
        for start in starts:
            fill(start)
    else:
        with Threads() as threads:
            list(threads.map(fill, starts))
    if not np.isfinite(result).all():
        raise ValueError("X has values too large to be scored; the scores are infinite or NaN")
    return result
