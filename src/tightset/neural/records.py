"""How the network of a level came about: the size of sets on rows held aside, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tightset.storage.registry import storable

__all__ = ["Trained"]


@storable
class Trained(NamedTuple):
    """A row of the table for each epoch of each member.

    ``n_iter`` is the epoch of its stage (0: cross-entropy, 1: small sets), ``criterion`` the size of sets with steep
    sigmoids for indicators, the geometric mean over levels; ``chosen`` is the state that was kept.
    """

    table: dict[str, np.ndarray]

    @classmethod
    def of(cls, level: Any, histories: Sequence[Sequence[tuple[int, int, float]]]) -> Self:
        rows = [(at, *epoch) for at, history in enumerate(histories) for epoch in history]
        member, stage, n_iter, criterion = np.array(rows, dtype=float).reshape(-1, 4).T
        chosen = np.zeros(len(rows), dtype=bool)
        for at in np.unique(member):
            own = np.flatnonzero(member == at)
            chosen[own[np.argmin(criterion[own])]] = True
        whole = {"member": member, "stage": stage, "n_iter": n_iter}
        return cls(
            {"confidence": np.full(len(rows), float(level))}
            | {name: one.astype(int) for name, one in whole.items()}
            | {"criterion": criterion, "chosen": chosen}
        )

    def sentence(self) -> str:
        """What training did, in a sentence."""
        stage, criterion, chosen = (self.table[name] for name in ("stage", "criterion", "chosen"))
        if not len(stage):
            return "the network is as it was: there were no epochs."
        if not (stage == 1).any():
            return (
                "the network was trained with cross-entropy only: there are too few rows to judge by, no epochs, or "
                "the first one gave numbers that are not finite."
            )
        if not (stage == 0).any():
            return "the network was trained for small sets only, so there are none of cross-entropy to compare with."
        gains = []
        for at in np.unique(self.table["member"]):
            own = self.table["member"] == at
            gains.append(1 - criterion[own & chosen][0] / criterion[own & (stage == 0)].min())
        of = f" (mean of {len(gains)} networks)" if len(gains) > 1 else ""
        return (
            f"training for small sets made them {100 * np.mean(gains):.1f}% smaller than cross-entropy did{of}, on "
            "training rows held aside, by which the epochs were chosen, too: this figure is slightly optimistic."
        )
