"""Scores whose sets are intervals of ordered labels, and how their derivatives are pulled back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightset.compute.arrays import Array, namespace

__all__ = ["Hulls", "as_intervals", "hull_of_scores"]


class Hulls(NamedTuple):
    """What `pulled` needs to know: for each label in order, whether it is a new maximum from either side."""

    order: np.ndarray
    from_left: list[Array]
    from_right: list[Array]
    of_left: list[Array]  # whether the smaller of the two maxima is that from the left

    def pulled(self, dH: Array) -> Array:
        """``dL/dA`` for ``dL/dH``, both ``(..., C)``: each derivative goes to the score that the hull took over."""
        xp = namespace(dH)
        dA = xp.zeros_like(dH)
        C = len(self.order)
        for places, is_new, mine in (
            (range(C - 1, -1, -1), self.from_left, True),
            (range(C), self.from_right, False),
        ):
            carried = xp.zeros_like(dH[..., 0])
            for place in places:
                label = int(self.order[place])
                own = self.of_left[place] if mine else ~self.of_left[place]
                carried = carried + xp.where(own, dH[..., label], xp.zeros_like(carried))
                dA[..., label] += xp.where(is_new[place], carried, xp.zeros_like(carried))
                carried = xp.where(is_new[place], xp.zeros_like(carried), carried)
        return dA


def hull_of_scores(A: Array, order: np.ndarray) -> tuple[Array, Hulls]:
    """``H(y) = min(max over y' <= y of A(y'), max over y' >= y of A(y'))`` for scores ``(..., C)``.

    The set ``{H >= t}`` is the smallest interval of labels in ``order`` that holds ``{A >= t}``, for every t.

    >>> hull_of_scores(np.array([[3.0, 0.0, 2.0, 1.0]]), np.arange(4))[0]
    array([[3., 2., 2., 1.]])
    """
    xp = namespace(A)
    C = len(order)
    found, is_new = [], []
    for places in (range(C), range(C - 1, -1, -1)):
        top = None
        tops, new = [A[..., 0]] * C, [A[..., 0]] * C
        for place in places:
            own = A[..., int(order[place])]
            new[place] = xp.ones_like(own, dtype=xp.bool) if top is None else own > top
            top = own if top is None else xp.where(new[place], own, top)
            tops[place] = top
        found.append(tops)
        is_new.append(new)
    H = xp.empty_like(A)
    of_left = []
    for place in range(C):
        left, right = found[0][place], found[1][place]
        of_left.append(left <= right)
        H[..., int(order[place])] = xp.where(of_left[place], left, right)
    return H, Hulls(order, is_new[0], is_new[1], of_left)


def as_intervals(A: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Scores as they are, or as hulls if labels have an order."""
    return A if order is None else np.asarray(hull_of_scores(A, order)[0])
