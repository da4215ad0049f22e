"""Training on all rows on a device whose memory holds them: the same losses as in `all_rows`, in float32.

Rows are scaled once, and lie there as float32; products and sums of an evaluation never leave the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from tightset.compute.arrays import label_runs, own_label, room_for_scores, to_numpy
from tightset.compute.identity import Same
from tightset.compute.rows import MemoryRows
from tightset.compute.threads import Threads
from tightset.measures import MEASURES
from tightset.models.columns import Columns
from tightset.objectives.profiled import Profiled
from tightset.search.all_rows import Piece
from tightset.search.judging import quantiles
from tightset.search.on_device import descended
from tightset.search.paths import View
from tightset.search.problem import TrainingRows

__all__ = ["RowsOnDevice"]

_ROWS_AT_ONCE = 2**12  # that are scaled on the host
_COVERAGE = 1e-6  # to which float32 tells the threshold
_ARRAYS = 3  # as large as the rows: as they are, along axes, and with columns of zeros


class RowsOnDevice:
    """All training rows, sorted by label; each kind of columns is made when it is first asked for."""

    def __init__(self, rows: TrainingRows, device: str, threads: Threads) -> None:
        self.X, self.device, self.threads = rows.X.gather(), device, threads
        self.order = np.argsort(rows.y, kind="stable")
        self.y, self.n_classes = rows.y[self.order], len(rows.classes)
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        self.weight = weight[self.order]
        self._views: dict[Same, View] = {}

    @classmethod
    def of(cls, rows: TrainingRows, device: str | None, columns: Sequence[Columns], threads: Threads) -> Self | None:
        """None where there is no device, or it cannot have the rows."""
        if device is None or not isinstance(rows.X, MemoryRows) or not isinstance(rows.X.gather(), np.ndarray):
            return None
        widths = {Same(one): len(one.scaling.scale) + 1 for one in columns}
        room = room_for_scores(device, 0)
        if len(rows) * (_ARRAYS * sum(widths.values()) + 2 * len(rows.classes)) > room:
            return None
        return cls(rows, device, threads)

    def view(self, columns: Columns) -> View:
        key = Same(columns)
        if key not in self._views:
            self._views[key] = self._made(columns)
        return self._views[key]

    def _made(self, columns: Columns) -> View:
        import torch

        n, m = len(self.y), len(columns.scaling.scale) + 1
        Z = torch.empty((n, m), dtype=torch.float32, device=self.device)

        def scaled(start: int) -> np.ndarray:
            self.threads.check()
            found, _ = columns.apply(self.X[self.order[start : start + _ROWS_AT_ONCE]])
            return np.asarray(found, dtype=np.float32)

        starts = range(0, n, _ROWS_AT_ONCE)
        for start, part in zip(starts, self.threads.map(scaled, starts), strict=True):
            Z[start : start + len(part)] = torch.from_numpy(part)
        return View(columns, Z, self.y, self.n_classes, self.weight[None], None, self.device)

    def descended(
        self, pieces: Sequence[Piece], max_iter: int, tol: float, callback: Callable[[], None] | None
    ) -> list[Piece]:
        """The pieces where they end."""
        found: list[Any] = list(pieces)
        for places in self._chunks(pieces):
            own = [pieces[at] for at in places]
            view = self.view(own[0].columns)
            theta, anchor = (
                view.into(np.stack(some)) for some in zip(*((p.theta, p.anchor) for p in own), strict=True)
            )
            pull = np.stack([piece.pull for piece in own])
            problem = view.training(own[0].measure, _objective(own, view), np.zeros(len(own), dtype=int), anchor, pull)
            solution = descended(
                problem,
                view.place(theta),
                max_iter=max_iter,
                tol=tol,
                scale=view.steps(pull),
                callback=None if callback is None else lambda *_: callback(),
            )
            for at, theta_of_one in zip(places, view.back(solution.theta), strict=True):
                found[at] = pieces[at]._replace(theta=np.asarray(theta_of_one, dtype=np.float64))
        return found

    def _chunks(self, pieces: Sequence[Piece]) -> list[list[int]]:
        """Places of pieces that share products, no more together than memory holds."""
        alike: dict[tuple[Same, str], list[int]] = {}
        for at, piece in enumerate(pieces):
            alike.setdefault((Same(piece.columns), piece.measure), []).append(at)
        found = []
        for (columns, _), places in alike.items():
            self.view(columns.of)
            m, D = pieces[places[0]].theta.shape
            size = max(1, room_for_scores(self.device, 0) // (D * (len(self.y) + 10 * m)))
            found += [places[start : start + size] for start in range(0, len(places), size)]
        return found

    def thresholds(self, pieces: Sequence[Piece]) -> list[float]:
        """The ``eps``-quantile of the own-label scores of each."""
        return [self._threshold(piece) for piece in pieces]

    def _threshold(self, piece: Piece) -> float:
        view = self.view(piece.columns)
        A, _ = MEASURES[piece.measure].forward(view.X, view.place(piece.theta[None]))
        own = to_numpy(own_label(A, label_runs(self.y)))[0]
        return float(quantiles(own, self.weight, np.array([piece.eps]))[0])


def _objective(pieces: Sequence[Piece], view: View) -> Any:
    """Of all the pieces together, in the precision of the device."""
    first: Any = pieces[0].objective.beside([piece.objective for piece in pieces[1:]])
    if not isinstance(first, Profiled):
        return first
    return replace(first, eps=view.place(first.eps), gamma=view.place(first.gamma), tol=_COVERAGE)
