"""Many candidates judged at once where they were trained, as `judging` and `shortlist` judge one on the host.

The arithmetic is theirs: scores in float32, everything that is summed over rows in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from tightset.compute.arrays import Array, room_for_scores, to_numpy
from tightset.compute.identity import Same
from tightset.measures import MEASURES
from tightset.search.judging import POINTS, SPAN, Judge
from tightset.search.paths import Candidate, View

__all__ = ["Figures", "can_judge", "figures", "held_out_on_device"]

_HAIR = 1e-9  # as in `quantiles`


class Figures(NamedTuple):
    """Of one candidate, as in `Judged`."""

    criterion: float
    error: float
    threshold: float
    likelihood: float


def can_judge(judge: Judge, candidates: Sequence[Candidate]) -> bool:
    """Whether candidates lie on a device and are judged by one threshold, on scores as they are."""
    plain = type(judge) is Judge and judge.order is None and _size_is_known(judge)
    return plain and all(one.view.device is not None and one.rule is None for one in candidates)


def _size_is_known(judge: Judge) -> bool:
    """Functions of one's own may know NumPy only."""
    return judge.f.name in {"size", "log"}


class _Placed(NamedTuple):
    """What a judge knows of the rows, on the device."""

    y: Array  # (k,)
    weight: Array  # (k,)
    fold: Array  # (k,)
    samples: Array  # (1 + resamples, k), the weights as they are first
    around: Array  # (J,)

    @classmethod
    def of(cls, judge: Judge, fold: np.ndarray, device: str) -> Self:
        import torch

        samples = np.vstack([judge.weight[None], judge.resampled_weights])
        around = np.clip(judge.eps + np.linspace(-SPAN, SPAN, POINTS) * judge.deviation, 0, 1)
        parts = judge.y.astype(np.int64), judge.weight, fold.astype(np.int64), samples, around
        return cls(*(torch.as_tensor(part, device=device) for part in parts))


_placed: WeakKeyDictionary[Judge, tuple[np.ndarray, str, _Placed]] = WeakKeyDictionary()


def _on(judge: Judge, fold: np.ndarray, device: str) -> _Placed:
    found = _placed.get(judge)
    if found is None or found[0] is not fold or found[1] != device:
        found = _placed[judge] = fold, device, _Placed.of(judge, fold, device)
    return found[2]


def figures(candidates: Sequence[Candidate], fold: np.ndarray, judge: Judge) -> list[Figures]:
    """What `examine` finds out about each of them."""
    found: list[Any] = [None] * len(candidates)
    for at in _chunks(candidates):
        some = [candidates[one] for one in at]
        placed = _on(judge, fold, str(some[0].view.device))
        margins, own, threshold = _held_out(some, placed, judge.eps)
        of_curve = _of_curve(margins, placed, judge)
        likelihood = own.double() @ placed.weight
        numbers = to_numpy(_stacked([*of_curve, *threshold, likelihood])).T.tolist()
        for one, (criterion, error, q, excess, its) in zip(at, numbers, strict=True):
            found[one] = Figures(criterion, error, q + excess, its)
    return found


def held_out_on_device(candidate: Candidate, fold: np.ndarray, judge: Judge) -> tuple[np.ndarray, np.ndarray, float]:
    """Margins ``(k, C)``, scores of the own labels ``(k,)`` and the threshold, as `held_out` has them."""
    margins, own, (q, excess) = _held_out([candidate], _on(judge, fold, str(candidate.view.device)), judge.eps)
    return to_numpy(margins[0].contiguous()), to_numpy(own[0]), float(q[0]) + float(excess[0])


def _chunks(candidates: Sequence[Candidate]) -> Iterator[list[int]]:
    """Candidates of one measure on one view, no more at once than memory holds."""
    alike: dict[tuple[Same, str], list[int]] = {}
    for at, one in enumerate(candidates):
        alike.setdefault((Same(one.view), one.measure), []).append(at)
    for places in alike.values():
        view, (F, _, D) = candidates[places[0]].view, candidates[places[0]].theta.shape
        of_one = len(view.y) * (F * D + 2 * POINTS)
        size = max(1, room_for_scores(view.device, of_one) // of_one)
        for start in range(0, len(places), size):
            yield places[start : start + size]


def _stacked(parts: list[Array]) -> Array:
    import torch

    return torch.stack([part.double() for part in parts])


def _scores(candidates: Sequence[Candidate]) -> Array:
    """``A (n, F, k, C)`` of all fits; the last one has seen all rows."""
    view: View = candidates[0].view
    theta = view.place(np.concatenate([one.theta for one in candidates]))
    A, _ = MEASURES[candidates[0].measure].forward(view.X, theta)
    return A.reshape(len(candidates), -1, *A.shape[1:])


def _held_out(candidates: Sequence[Candidate], placed: _Placed, eps: float) -> tuple[Array, Array, tuple[Array, Array]]:
    """Margins ``(n, k, C)``, own scores ``(n, k)``, and the two parts ``(n,)`` of the threshold."""
    import torch

    A = _scores(candidates)
    n, F, k, C = A.shape
    own = A.gather(3, placed.y.expand(n, F, k)[..., None])[..., 0]
    held = torch.arange(F, device=A.device)[:, None] == placed.fold
    at = torch.tensor([eps], dtype=torch.float64, device=A.device)
    q = _quantiles(own.masked_fill(held, float("inf")), placed.weight * ~held, at)[..., 0]
    of_fold = placed.fold.expand(n, 1, k)
    margins = A.gather(1, of_fold[..., None].expand(n, 1, k, C))[:, 0] - q[:, placed.fold][..., None]
    own_margins = margins.gather(2, placed.y.expand(n, k)[..., None])[..., 0]
    excess = _quantiles(own_margins, placed.weight, at)[..., 0]
    return margins - excess[:, None, None], own.gather(1, of_fold)[:, 0], (q[:, -1], excess)


def _quantiles(x: Array, weight: Array, at: Array) -> Array:
    """As `quantiles`, along the last axis: ``(..., J)``; rows of no weight must be infinite."""
    import torch

    ordered, order = x.sort(dim=-1)
    cumulated = weight.expand(x.shape).gather(-1, order).cumsum(dim=-1)
    targets = ((at - _HAIR) * cumulated[..., -1:]).contiguous()
    found = torch.searchsorted(cumulated, targets)
    return ordered.gather(-1, found.clamp(max=x.shape[-1] - 1))


def _of_curve(margins: Array, placed: _Placed, judge: Judge) -> tuple[Array, Array]:
    """Criterion and error ``(n,)``, as of `Judge.curve`."""
    import torch

    own = margins.gather(2, placed.y.expand(margins.shape[:2])[..., None])[..., 0]
    thresholds = _quantiles(own, placed.weight, placed.around)  # (n, J); equal ones add nothing
    sizes = [(margins >= q[:, None, None]).sum(dim=2) for q in thresholds.T]
    inefficiency = judge.f(torch.stack(sizes, dim=2).double())
    below = (own[..., None] <= thresholds[:, None]).double()
    cumulated = torch.special.ndtr((placed.samples @ below - judge.eps) / judge.deviation)  # (n, samples, J)
    cumulated[..., -1] = 1
    falls_on = cumulated.diff(dim=-1, prepend=torch.zeros_like(cumulated[..., :1]))
    average = ((placed.samples @ inefficiency) * falls_on).sum(dim=-1)
    finite = torch.isfinite(margins).all(dim=2).all(dim=1)
    infinite = torch.full_like(average[:, 0], float("inf"))
    error = average[:, 1:].std(dim=1, correction=0)
    return torch.where(finite, average[:, 0], infinite), torch.where(finite, error, infinite)
