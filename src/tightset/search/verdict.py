"""What cross-validation said of a level: how much was gained, how certain that is, and in words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightset.conformal.intervals import percent
from tightset.models.ensembles import Ensemble, Stacked
from tightset.storage.registry import storable

__all__ = ["FEW_ROWS", "Found", "Verdict"]

FEW_ROWS = 50  # with fewer training rows cross-validation has nothing to say
# The bootstrap tells chance in rows that are held out, not in those that train. With K folds the variance of both is
# 1 + K / (K - 1) times as large (Nadeau and Bengio), whatever K is nearly.
_OTHER_ROWS = 1.5


@storable
class Verdict(NamedTuple):
    """What cross-validation said: mean inefficiencies on training rows, and the standard error of their difference.

    ``accepted`` is whether the combination is used; if not, ``fallback`` is, by name.
    """

    baseline: float
    ensemble: float
    error: float
    accepted: bool
    unit: str = "labels per set"
    name: str = "tuned logistic regression"  # of the baseline
    fallback: str = "tuned logistic regression"
    shared: float | None = None  # the level whose measure serves all, if sets are nested
    price: float = 0.0  # how much larger its sets are than those of this level's own measure, as a share
    aimed: float | None = None  # the coverage that was trained for and compared at, if not the level

    def gain(self) -> tuple[float, float, float]:
        """How much smaller the sets are than the baseline's, as a share, and the ends of its 95 % interval."""
        if not self.baseline:
            return 0.0, 0.0, 0.0
        size = abs(self.baseline)  # an inefficiency of one's own may be below 0
        gain, reach = (self.baseline - self.ensemble) / size, 1.96 * _OTHER_ROWS * self.error / size
        return gain, gain - reach, gain + reach


@storable
class Found(NamedTuple):
    """The model of one level, the table of candidates it was made from, and how it compares with the baseline."""

    model: Ensemble | Stacked
    table: dict[str, np.ndarray]
    verdict: Verdict
    sample: tuple[int, int] | None = None  # rows that were searched, of those that were trained on, if not all
    refined: bool = True  # what was chosen on a sample was trained on all rows

    def sentence(self) -> str:
        """What the verdict says, in a few sentences."""
        told = [self._comparison()]
        if self.verdict.shared is not None:
            price = f"{100 * self.verdict.price:.1f}% larger" if self.verdict.price >= 0.0005 else "no larger"
            level = f"{100 * self.verdict.shared:g}%"
            told.append(f"The measure of {level} serves all levels, which makes sets nested and {price}.")
        if self.verdict.aimed is not None:
            aimed = f"{100 * self.verdict.aimed:.4g}%"
            told.append(f"With assurance sets cover {aimed} on average; they were trained and compared at that.")
        if self.sample is not None:
            some, of_all = self.sample
            rows = f"on a sample of {some:,} of {of_all:,} training rows"
            told.append(f"It was chosen {rows}, and trained on all." if self.refined else f"It was trained {rows}.")
        return " ".join(told)

    def _comparison(self) -> str:
        baseline, ours, _, accepted, unit, name, fallback, *_ = self.verdict
        if not np.isfinite(baseline):
            return f"fewer than {FEW_ROWS} training rows are too few to choose a model; {fallback} is used."
        gain, low, high = self.verdict.gain()
        ends = [percent(one) if low > 0 else _less(one) for one in (low, high)]
        interval = f"95% interval {' to '.join(ends)}"
        if not accepted:
            return (
                f"no clear gain, so {fallback} is used unchanged ({name}: {baseline:.3g} {unit} "
                f"on held-out training rows; the best combination was {_smaller(gain)}, {interval})."
            )
        members, tried = int(self.table["chosen"].sum()), len(self.table["chosen"])
        how = f"{_smaller(gain)} ({interval})" if low > 0 else f"not clearly different ({interval})"
        return (
            f"{ours:.3g} {unit} on held-out training rows, against {baseline:.3g} for {name}: {how}. "
            f"{members} of {tried} candidates {'were combined' if members > 1 else 'was chosen'} on the same rows, "
            f"so this figure is slightly optimistic."
        )


def _less(gain: float) -> str:
    return f"{percent(abs(gain))} {'larger' if gain < 0 else 'smaller'}"


def _smaller(gain: float) -> str:
    return f"{100 * gain:.1f}% smaller" if gain >= 0.0005 else "no smaller"
