"""What sets promise and what they cost: a threshold for each category of rows and labels, and a cost for each label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Self

import numpy as np

__all__ = ["FREE", "Terms"]

_ROWS_BELOW = 2  # of a category that has a threshold of its own, at least so many should fall below it
FREE = 1e-6  # of the largest cost; a label that costs less is taken to cost so much where logarithms are needed


@dataclass(frozen=True, eq=False)
class Terms:
    """Thresholds by category, and costs.

    A label ``y`` is in the set of a row of group ``g`` if ``A(x, y) >= q[index[g, y]] + offset[y]``. What a set costs
    is ``sum of cost[y_i, y]`` over its labels, ``y_i`` being the true one.

    Conventions
    -----------
    index : (G, C), the threshold of each category; small categories share one.
    group : (k,), that of each row in ``0 ... G - 1``, or None if there is only one.
    offset : (C,), the logarithm of the cost (of its mean over true labels), so that a score ``log p`` is compared with
    ``q + log cost``: the best rule for known probabilities.
    cost : (C, C), or None for the number of labels; ``unit`` is its mean.
    """

    index: np.ndarray
    group: np.ndarray | None
    offset: np.ndarray
    cost: np.ndarray | None
    unit: float = 1.0

    @classmethod
    def of(
        cls,
        y: np.ndarray,
        C: int,
        eps: float,
        *,
        by_label: bool = False,
        group: np.ndarray | None = None,
        cost: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        false_only: bool = False,
    ) -> Self | None:
        """Of training rows with labels ``y (k,)``; None if there is one category and nothing has a price.

        A category with too few rows for a threshold at ``eps`` shares one with the others of its kind. With
        ``false_only`` the true label costs nothing, any other one 1 if there is no ``cost``.

        >>> terms = Terms.of(np.repeat([0, 1, 2, 3], [50, 40, 3, 2]), 4, 0.1, by_label=True)
        >>> terms.index
        array([[0, 1, 2, 2]])
        """
        if false_only and cost is None:
            cost = np.ones((C, C))
        if not by_label and group is None and cost is None:
            return None
        G = 1 if group is None else int(group.max()) + 1
        category = np.arange(G * C).reshape(G, C) if by_label else np.repeat(np.arange(G), C).reshape(G, C)
        own = category[0 if group is None else group, y]
        rows = np.bincount(own, minlength=int(category.max()) + 1)
        many = rows >= ceil(_ROWS_BELOW / eps)
        place = np.where(many, np.cumsum(many) - 1, many.sum())
        if cost is None:
            return cls(place[category], group, np.zeros(C), None)
        share = np.bincount(y, weight, minlength=C) / (len(y) if weight is None else weight.sum())
        mean = share @ cost
        offset = np.log(np.maximum(mean, FREE * mean.max()))
        if false_only:  # offsets stay: with equal costs labels start as they are ranked
            cost = cost * (1 - np.eye(C))
        return cls(place[category], group, offset, cost, float(mean.mean()))

    def take(self, rows: np.ndarray) -> Self:
        """Those of some of the rows."""
        return self if self.group is None else replace(self, group=self.group[rows])

    def without_groups(self, y: np.ndarray, eps: float) -> Self:
        """The same for who does not know the groups: by label, if it is so here, of rows with labels ``y``."""
        if self.group is None:
            return self
        by_label = Terms.of(y, self.index.shape[1], eps, by_label=True) if self.by_label else None
        index = np.zeros_like(self.index[:1]) if by_label is None else by_label.index
        return replace(self, index=index, group=None)

    @property
    def n_thresholds(self) -> int:
        return int(self.index.max()) + 1

    @property
    def by_label(self) -> bool:
        """Whether labels of a row may have thresholds of their own."""
        return bool((self.index != self.index[:, :1]).any())

    def own(self, y: np.ndarray) -> np.ndarray:
        """The category of each row with its own label ``(k,)``."""
        return np.asarray(self.index[0 if self.group is None else self.group, y])

    def thresholds(self, q: np.ndarray) -> np.ndarray:
        """``q[index]`` of each row and label, ``(k or 1, C)``, for ``q (T,)``."""
        return np.asarray(q[self.index if self.group is None else self.index[self.group]])

    def prices(self, y: np.ndarray) -> np.ndarray | None:
        """What each label would cost in the set of each row ``(k or 1, C)``; None if all labels cost 1."""
        if self.cost is None:
            return None
        return self.cost[:1] if (self.cost == self.cost[:1]).all() else self.cost[y]
