"""The result of `fit`: models and calibrations, and the scores, p-values and sets computed from them.

Estimators hold one `Fitted` value; plots, the report, tables, the export and model files use it. It never changes:
recalibration replaces it by another.

Conventions
-----------
positions : whole numbers ``(n,)``, an array or a range, that distinguish equal rows; the random numbers of smoothing
and of randomised scores depend on them. New rows are counted from 0, calibration rows from `CALIBRATED`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.arrays import settle
from tightset.compute.row_kinds import RowKind
from tightset.compute.row_rounding import held_by_float32
from tightset.compute.row_types import COARSE
from tightset.conformal.calibration import Calibration
from tightset.conformal.ranks import calibration_rows_needed, rank, significance
from tightset.estimators.checks import nearest_level
from tightset.estimators.pieces import OwnScores, ScoredRows, joined, pieces, together, whole
from tightset.exceptions import warn
from tightset.models.contract import Model, Shared
from tightset.storage.registry import storable

__all__ = ["CALIBRATED", "Asked", "Fitted", "Fold", "of_partition"]

CALIBRATED = 2**62  # the position of the first calibration row


@storable
class Fold(NamedTuple):
    """Models trained on some rows and calibrated on others: one of each for every trained level."""

    models: list[Any]
    calibrations: list[Calibration]
    record: Any = None
    trained: int | None = None  # rows, if they were trained on here


class Asked(NamedTuple):
    """A level, which of the trained measures serves it, and the seed of its smoothing, if it is smoothed.

    ``coarse`` is the type of the rows, if it is coarser than that of the calibration rows.
    """

    level: Any
    model: int
    seed: int | None = None
    coarse: str | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """Models and calibrations, in one fold or, if every row calibrated (``cv``), in several.

    Parameters
    ----------
    classes : labels ``(C,)``, in order.
    levels : those that were trained for.
    kind : how rows came, and so how new ones are computed.
    one_for_all : one measure serves every level.
    mark, seed : what random numbers of randomised scores hang on: the rows of `fit`, and ``random_state``.
    """

    classes: np.ndarray
    levels: tuple[Any, ...]
    kind: RowKind
    folds: Sequence[Fold] = ()
    one_for_all: bool = False
    mark: int = 0
    seed: int = 0

    # ---- what it is ---------------------------------------------------------------------------------------------

    @property
    def by_label(self) -> bool:
        return self.folds[0].calibrations[0].by_label

    @property
    def by_group(self) -> bool:
        return self.folds[0].calibrations[0].by_group

    @property
    def assurance(self) -> Fraction | None:
        return self.folds[0].calibrations[0].assurance

    def calibration_rows(self) -> Counter[tuple[Any, int]]:
        """How many rows calibrated in each category: (group, label), None and -1 where there is but one."""
        rows = Counter[tuple[Any, int]]()
        for fold in self.folds:
            rows.update({category: len(alphas) for category, alphas in fold.calibrations[0].alphas.items()})
        return rows

    def rows_of_labels(self) -> np.ndarray:
        """How many rows each label is calibrated on ``(C,)``: all of them, or where coverage is by label its own."""
        rows = np.zeros(len(self.classes), dtype=int)
        for (_, label), own in self.calibration_rows().items():
            rows[slice(None) if label < 0 else label] += own
        return rows

    def too_few_rows(self, level: Any) -> bool:
        """Whether every set of a level holds all labels, because no category has the calibration rows it takes."""
        return max(self.calibration_rows().values()) < calibration_rows_needed(level, self.assurance)

    def cuts(self, level: Any, group: Any = None) -> np.ndarray:
        """The p-values ``(C,)`` above which labels are in a set: ``eps`` for all, or with assurance ``r / (n + 1)``."""
        if self.assurance is None:
            return np.full(len(self.classes), float(significance(level)))
        rows = self.calibration_rows()
        numbers = [rows[group, label if self.by_label else -1] for label in range(len(self.classes))]
        return np.array([rank(level, n, self.assurance) / (n + 1) for n in numbers])

    def refuse_smoothed(self, smoothed: bool) -> None:
        """Sets that break ties at random have no rank of their own, and so no assurance."""
        if smoothed and self.assurance is not None:
            raise ValueError(
                "smoothed=True cannot be combined with assurance: smoothed sets cover exactly the level on average, "
                f"and assurance={float(self.assurance):g} asks for more; use smoothed=False, or assurance=None in fit"
            )

    def slim(self, for_sets: Sequence[Any] | None = None) -> Self:
        """For workers: without what only people read, and at levels ``for_sets`` without calibration scores, too."""
        folds = [fold._replace(record=None) for fold in self.folds]
        if for_sets is not None and len(folds) == 1:
            folds = [folds[0]._replace(calibrations=[one.for_sets(for_sets) for one in folds[0].calibrations])]
        return replace(self, folds=folds)

    # ---- asking -------------------------------------------------------------------------------------------------

    def ask(self, levels: Sequence[Any], of: Any = None, seed: int | None = None) -> list[Asked]:
        """The levels with their measures and, if sets are smoothed, a seed. Warns where no measure was trained.

        ``of`` are the rows as they were given, of which only the type is looked at.
        """
        coarse = None if of is None else self.kind.coarse(of)
        return [Asked(level, self.model_for(level), seed, coarse) for level in levels]

    def model_for(self, level: Any) -> int:
        """Which of the trained measures serves a level: its own, or the one trained nearest to it."""
        if self.one_for_all:
            return 0
        at = nearest_level(level, self.levels)
        if significance(level) != significance(self.levels[at]):
            warn(
                f"no measure was trained for confidence {level}; the one for {self.levels[at]} is used. The sets are "
                f"valid but may be larger than necessary: fit with confidence {level} for smaller ones"
            )
        return at

    # ---- answering ----------------------------------------------------------------------------------------------

    def sets(
        self,
        asked: Sequence[Asked],
        X: Any,
        groups: np.ndarray | None = None,
        positions: Any = None,
        *,
        allow_empty: bool = True,
    ) -> np.ndarray:
        """Sets ``(levels, n, C)``."""
        parts = self.scored(asked, X, groups, positions)
        made = (
            (rows, [piece.sets(one.level, allow_empty=allow_empty) for one, piece in zip(asked, found, strict=True)])
            for rows, found in parts
        )
        return whole(X.shape[0], made)

    def p_values(
        self, asked: Sequence[Asked], X: Any, groups: np.ndarray | None = None, positions: Any = None
    ) -> np.ndarray:
        """p-values ``(levels, n, C)``."""
        parts = self.scored(asked, X, groups, positions)
        return whole(X.shape[0], ((rows, [piece.p for piece in found]) for rows, found in parts))

    def labels(
        self, asked: Sequence[Asked], X: Any, groups: np.ndarray | None = None, positions: Any = None
    ) -> np.ndarray:
        """The most conforming labels ``(1, n)``, by the measure of the one level that is asked for."""
        parts = [piece.most_conforming() for _, [piece] in self.scored(asked, X, groups, positions)]
        return np.asarray(self.classes[np.concatenate(parts)][None])

    def sets_and_p(
        self,
        asked: Sequence[Asked],
        X: Any,
        groups: np.ndarray | None = None,
        positions: Any = None,
        *,
        allow_empty: bool = True,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Sets and p-values ``(n, C)`` for each level."""
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in asked]
        for _, of_piece in self.scored(asked, X, groups, positions):
            for parts, one, piece in zip(found, asked, of_piece, strict=True):
                parts.append((piece.sets(one.level, allow_empty=allow_empty), piece.p))
        return [joined(parts) for parts in found]

    def scored(
        self, asked: Sequence[Asked], X: Any, groups: np.ndarray | None = None, positions: Any = None
    ) -> Iterator[tuple[slice, list[ScoredRows]]]:
        """The rows a piece at a time, scored for each level; levels with a measure in common share what is the same."""
        slack = any(fold.calibrations[one.model].slacks.get(COARSE[0]) for fold in self.folds for one in asked)
        by_value = slack and all(one.coarse is None for one in asked)
        positions = range(X.shape[0]) if positions is None else positions
        for rows, some in pieces(X, len(self.classes)):
            held = held_by_float32(some) if by_value else np.zeros(0, dtype=bool)
            some = self.kind.prepared(some)  # noqa: PLW2901
            some_groups = None if groups is None else groups[rows]
            shared = [self.shared(positions[rows]) for _ in self.folds]
            scores = {
                at: [
                    settle(_scores_from(fold.models[at], some, own, rows.start))
                    for fold, own in zip(self.folds, shared, strict=True)
                ]
                for at in dict.fromkeys(one.model for one in asked)
            }
            found = {}
            for _, at, seed, coarse in asked:
                calibrations = [fold.calibrations[at] for fold in self.folds]
                which = held if held.any() else coarse
                found[at, seed] = ScoredRows(calibrations, scores[at], some_groups, seed, positions[rows], which)
            yield rows, [found[one.model, one.seed] for one in asked]

    def own_scores(self, models: Sequence[Model], X: Any, y: np.ndarray, positions: Any = None) -> list[OwnScores]:
        """Scores of the own labels of calibration rows, by each model.

        A row whose label the models do not know (a code below 0) conforms less than any.
        """
        positions = range(CALIBRATED, CALIBRATED + len(y)) if positions is None else positions
        own: list[list[OwnScores]] = [[] for _ in models]
        for rows, some in pieces(X, len(self.classes)):
            some = self.kind.prepared(some)  # noqa: PLW2901
            shared = self.shared(positions[rows])
            for model, parts in zip(models, own, strict=True):
                parts.append(OwnScores.of(settle(_scores_from(model, some, shared, rows.start)), y[rows]))
        return [together(parts) for parts in own]

    def shared(self, positions: Any) -> Shared:
        """What models that score the same rows share."""
        return Shared(self.classes, positions, self.seed ^ self.mark)


def _scores_from(model: Model, X: Any, shared: Shared, start: int) -> np.ndarray:
    """Scores ``(rows, C)`` of a piece of the rows, that from row ``start`` on."""
    try:
        return model.scores(X, shared)
    except ValueError as error:
        if start:
            error.add_note(f"(Rows are scored in pieces; here row 0 is row {start} of X.)")
        raise


def of_partition(
    function: Callable[..., np.ndarray], empty: np.ndarray, X: Any, groups: np.ndarray | None, first: int
) -> np.ndarray:
    """``function(X, groups, positions)`` of a partition, without the axis of levels if ``empty`` has none."""
    if X.shape[0] == 0:
        return empty
    found = np.asarray(function(X, groups, range(first, first + X.shape[0])), dtype=empty.dtype)
    return found if found.ndim == empty.ndim else found[0]
