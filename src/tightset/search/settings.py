"""What a search tries: settings that check themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tightset.measures import MEASURES
from tightset.storage.registry import storable

__all__ = ["SEARCHES", "Search"]

_DEFAULT = (("two-matrix", 1.0), ("two-matrix", 2.0), ("two-matrix", 4.0), ("softmax", 4.0), ("linear", 1.0))
_WORTH_SAMPLING = 1.5  # as many rows as the sample; training on all costs something too


@storable
@dataclass(frozen=True)
class Search:
    """What is tried. More of everything makes sets a little smaller, for a longer fit.

    Parameters
    ----------
    paths : (measure, gamma) pairs; by default two-matrix with 1, 2 and 4, softmax with 4, and linear with 1.
    pulls : how strongly each step is held to the logistic coefficients, in order.
    max_iter : evaluations a step.
    folds : of the cross-validation that judges the candidates.
    repeats : how often another classifier is cross-validated, with other folds each time (``estimator``).
    restarts : how often each path is followed again from a randomly displaced start.
    strengths : the values of C of the logistic regressions, in order; a tenth of each on unfolded columns, of which
        there are many more.
    both_columns : follow the paths on plain and on unfolded columns, not only on the better ones.
    rows : with more than half as many training rows again, everything is tried and chosen on a sample of so many, and
        what was chosen is then trained on all (not on top of another classifier, which sees all rows).

    Examples
    --------
    >>> Search(rows=100_000).samples(120_000), Search(rows=100_000).samples(200_000)
    (False, True)
    """

    paths: Sequence[tuple[str, float]] = _DEFAULT
    pulls: Sequence[float] = (1.0, 0.1, 0.01, 1e-3, 1e-4)
    max_iter: int = 80
    folds: int = 5
    repeats: int = 2
    restarts: int = 0
    strengths: Sequence[float] = (0.01, 0.1, 1.0, 10.0, 100.0)
    both_columns: bool = False
    rows: int = 20_000

    def __post_init__(self) -> None:
        for name in ("paths", "pulls", "strengths"):
            if not isinstance(getattr(self, name), (tuple, list)):
                raise ValueError(f"{name} must be a tuple or a list; got {getattr(self, name)!r}")  # noqa: TRY004
        for at in self.paths:
            if not (
                isinstance(at, (tuple, list))
                and len(at) == 2
                and isinstance(at[0], str)
                and at[0] in MEASURES
                and _positive(at[1])
            ):
                raise ValueError(
                    f"paths must be pairs of a measure ({', '.join(map(repr, MEASURES))}) and a positive sharpness, "
                    f"such as ('two-matrix', 2.0); got {at!r}"
                )
        for name in ("pulls", "strengths"):
            values = getattr(self, name)
            if len(values) == 0 or not all(map(_positive, values)):
                raise ValueError(f"{name} must be positive numbers, at least one; got {values!r}")
        for name, least in (("max_iter", 1), ("folds", 2), ("repeats", 1), ("restarts", 0), ("rows", 100)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}")
        if not isinstance(self.both_columns, bool):
            raise ValueError(f"both_columns must be True or False; got {self.both_columns!r}")  # noqa: TRY004

    def samples(self, n: int) -> bool:
        """Whether the search sees a sample of ``n`` training rows, and not all of them."""
        return n > _WORTH_SAMPLING * self.rows


def _positive(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and bool(0 < value < np.inf)


SEARCHES = {
    "fast": Search((("two-matrix", 1.0), ("two-matrix", 4.0)), repeats=1),
    "default": Search(),
    "thorough": Search(
        (*_DEFAULT, ("two-matrix", 8.0), ("softmax", 1.0)),
        max_iter=150,
        folds=10,
        repeats=3,
        restarts=2,
        both_columns=True,
    ),
}
