"""Training rows with the held-out scores of classifiers beside their columns.

A stacked row is ``[columns of X | scores of the mixture | scores of each part]``. Measures on top of classifiers are
candidates on some of those columns; what they start from is the ranking of the mixture, or of a part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.identity import Same
from tightset.models.columns import Columns
from tightset.models.contract import Block
from tightset.models.ensembles import Ensemble, Member, Stacked, beside, mixture
from tightset.models.trees import Grown
from tightset.search.paths import Candidate, View
from tightset.search.problem import TrainingRows

__all__ = ["Part", "StackedRows"]

_WIDEST = 1000  # columns beside the scores; more cost more than they gain


class Part(NamedTuple):
    """A classifier's scores among the columns of the stacked rows: held out ``(k, C)``, and of new rows."""

    name: str
    held_out: np.ndarray
    block: Block
    weight: float = 0.0  # in the mixture


class _Fits(NamedTuple):
    """What all views of the rows share: labels, classes, weights of every fit, and where they are trained."""

    y: np.ndarray
    n_classes: int
    weight: np.ndarray
    device: str | None


@dataclass(frozen=True, eq=False)
class StackedRows:
    """The rows, the parts beside them, and candidates on both.

    ``columns`` is how measures see the columns of X; None if they do not.
    """

    parts: list[Part]
    X: Any
    fill: np.ndarray | None
    columns: Columns | None
    fits: _Fits
    scores: np.ndarray  # of the mixture
    rows: Any

    @classmethod
    def of(
        cls,
        parts: list[Part],
        rows: TrainingRows,
        X: Any = None,
        fill: np.ndarray | None = None,
        fits: np.ndarray | None = None,
        *,
        standardise: bool = True,
        device: str | None = None,
    ) -> Self:
        """``X (k, p)`` are the columns of the rows as numbers, if they are; ``fits`` the weights of every fit."""
        weight = np.ones((2, len(rows))) if fits is None else fits
        columns = None
        if X is not None and X.shape[1] <= _WIDEST:
            columns = Columns.plain(X, weight[-1], standardise=standardise)
        held_out = [part.held_out for part in parts]
        mixed = mixture(held_out, np.array([part.weight for part in parts]))
        stacked = beside([*([] if X is None else [X]), mixed, *held_out])
        return cls(parts, X, fill, columns, _Fits(rows.y, len(rows.classes), weight, device), mixed, stacked)

    @property
    def n_columns(self) -> int:
        return 0 if self.X is None else int(self.X.shape[1])

    @property
    def name(self) -> str:
        """Of the mixture."""
        used = [part.name for part in self.parts if part.weight > 0]
        return used[0] if len(used) == 1 else "mixture"

    def anchor(self, part: int | None = None, *, beside: bool = False) -> Candidate:
        """The ranking of a part, or of the mixture: the identity on its scores, nothing on columns."""
        C = self.fits.n_classes
        name = self.name if part is None else self.parts[part].name
        columns = Columns.of_scores(np.zeros((1, C)), self._places(part), name)
        if beside and self.columns is not None:
            columns = self.columns.after(columns)
        view = View.of(columns, self.rows, *self.fits)
        theta = np.zeros((len(view.weight), view.X.shape[1], C))
        theta[:, :C] = np.eye(C)
        return Candidate("own ranking", view, "linear", theta, 1.0, np.inf, 0)

    def with_trees(self, grown: list[Grown]) -> Self:
        """The same with more parts, of no weight in the mixture."""
        return replace(
            self, parts=[*self.parts, *(Part(f"{one.trees.rounds} rounds", one.held_out, one.trees) for one in grown)]
        )

    def boosted(self, part: int, rounds: int) -> Candidate:
        """The mixture and trees on top of it; held to it the less the more rounds there are."""
        C = self.fits.n_classes
        at = np.append(self._places(None), self._places(part))
        columns = Columns.of_scores(np.zeros((1, 2 * C)), at, f"boosted {self.name}")
        rows = np.hstack([self.scores, self.parts[part].held_out])
        view = replace(View.of(columns._replace(at=None), rows, *self.fits), columns=columns)
        theta = np.zeros((len(view.weight), 2 * C + 1, C))
        theta[:, : 2 * C] = np.vstack([np.eye(C), np.eye(C)])
        return Candidate("boosted", view, "softmax", theta, 1.0, 1 / rounds, rounds)

    def model(self, own: list[Member], *, by_label: bool = False, order: np.ndarray | None = None) -> Stacked:
        """The members on rows that hold what they ask for and nothing else."""
        p, C = self.n_columns, self.fits.n_classes
        where = {Same(m.columns): np.arange(p) if m.columns.at is None else m.columns.at for m in own}
        used = np.zeros(p + (len(self.parts) + 1) * C, dtype=bool)
        for at in where.values():
            used[at] = True
        used[:p] = used[:p].any()
        asked: list[bool] = np.any(used[p:].reshape(-1, C), axis=1).tolist()
        mixed, shown = asked[0], asked[1:]
        kept = [at for at, part in enumerate(self.parts) if shown[at] or (mixed and part.weight > 0)]
        moved = np.cumsum(used) - 1  # columns that are left out close ranks
        columns = {key: key.of._replace(at=moved[at]) for key, at in where.items()}
        return Stacked(
            [self.parts[at].block for at in kept],
            np.array([self.parts[at].weight for at in kept]) if mixed else None,
            self.fill if used[:p].any() else None,
            [kept.index(at) for at in np.flatnonzero(shown).tolist()],
            Ensemble.of([m._replace(columns=columns[Same(m.columns)]) for m in own], by_label=by_label, order=order),
        )

    def _places(self, part: int | None) -> np.ndarray:
        """The columns of the mixture's scores, or of those of a part."""
        C = self.fits.n_classes
        return np.asarray(self.n_columns + (0 if part is None else part + 1) * C + np.arange(C))
