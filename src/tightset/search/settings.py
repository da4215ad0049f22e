"""The settings of a search: `Search` for the default search, `Grid` for that of the paper. Both check themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Self

import numpy as np

from tightset.measures import MEASURES
from tightset.models.trees import LIBRARIES
from tightset.objectives import OBJECTIVES
from tightset.objectives.penalised import FORMS
from tightset.solvers.descent import OPTIMISERS
from tightset.storage.registry import storable

__all__ = ["SEARCHES", "Grid", "Search", "as_search"]

_DEFAULT = (("two-matrix", 1.0), ("two-matrix", 2.0), ("two-matrix", 4.0), ("softmax", 4.0), ("linear", 1.0))
_FAST = (("two-matrix", 1.0), ("two-matrix", 4.0))
_SHARPNESSES = (1.0, 2.0, 4.0)  # of a measure that the search has no path of
_WORTH_SAMPLING = 1.5  # as many rows as the sample; training on all costs something too
_SELECTIONS = ("inefficiency", "loss")


@storable
@dataclass(frozen=True)
class Search:
    """What the default search tries.

    More of everything makes sets a little smaller, for a longer fit.

    Parameters
    ----------
    paths : sequence of (str, float)
        Pairs (measure, gamma): the measures that are trained, each from logistic regression (or from the ranking of a
        classifier) at one sharpness. By default two-matrix with 1, 2 and 4, softmax with 4, linear with 1. Tuned
        logistic regression is always there too, as the baseline, which stays if nothing is gained.
    pulls : sequence of float
        How strongly each step of a path is held to where it started, in order. On top of a classifier the first and the
        last are left out.
    max_iter : int, default 40
        Evaluations of the loss for each step.
    folds : int, default 5
        Folds of the cross-validation that judges the candidates.
    repeats : int, default 2
        How often another classifier is cross-validated, with other folds each time.
    restarts : int, default 0
        How often each path is followed again from a randomly displaced start.
    strengths : sequence of float
        The values of C of the logistic regressions, in order; a tenth of each on unfolded columns, of which there are
        many more. On top of a classifier the last is left out.
    both_columns : bool, default False
        Follow the paths on plain and on unfolded columns (on top of a classifier: on its scores alone, and with the
        columns beside them), not only on the better ones.
    rows : int, default 20_000
        With more than half as many training rows again, everything is tried and chosen on a sample of so many, and
        what was chosen is then trained on all of them. A classifier that measures are trained on top of sees all rows.
        (With ``estimator="auto"`` or ``boost`` rows in memory are not sampled, and Dask collections are for all of it.)
    unfold : bool, default True
        Also try each column unfolded into a piecewise linear function, and keep that if it makes sets smaller. Not for
        sparse rows, nor for more columns than memory should hold.
    standardise : bool, default True
        Train on columns of mean 0 and standard deviation 1. Without it, columns of very different scale make training
        slow and sets larger.
    average : bool, default True
        Use the average of a classifier's models of all rows and of the folds, unless cross-validation speaks against
        it. It makes sets smaller, but keeps ``1 + folds * repeats`` models (11 by default); with False there is one.
    plug_in : bool, default True
        Also try the best rule for known probabilities, where that is not their own ranking: `tightset.scores.Hull` if
        the inefficiency is not the size, expected costs if costs depend on the true label.
    objective : {"profiled"}, default "profiled"
        The loss that the paths descend: set size at exact coverage. (Trees that are grown descend it in any case.)
    boost : "lightgbm", "xgboost" or None, default None
        Also try trees on top of a classifier's scores that are grown for small sets (extras of the same names); X must
        be dense numbers, missing ones allowed. They are used if they make sets smaller.

    Examples
    --------
    >>> Search(rows=100_000).samples(120_000), Search(rows=100_000).samples(200_000)
    (False, True)
    >>> Search.fast(max_iter=20).only("linear").paths
    (('linear', 1.0), ('linear', 2.0), ('linear', 4.0))
    """

    paths: Sequence[tuple[str, float]] = _DEFAULT
    pulls: Sequence[float] = (1.0, 0.1, 0.01, 1e-3, 1e-4)
    max_iter: int = 40
    folds: int = 5
    repeats: int = 2
    restarts: int = 0
    strengths: Sequence[float] = (0.01, 0.1, 1.0, 10.0, 100.0)
    both_columns: bool = False
    rows: int = 20_000
    unfold: bool = True
    standardise: bool = True
    average: bool = True
    plug_in: bool = True
    objective: str = "profiled"
    boost: str | None = None

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
            _check_whole(self, name, least)
        for name in ("both_columns", "unfold", "standardise", "average", "plug_in"):
            _check_truth(self, name)
        if not (isinstance(self.objective, str) and self.objective in OBJECTIVES):
            raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}; got {self.objective!r}")
        if self.boost is not None and not (isinstance(self.boost, str) and self.boost in LIBRARIES):
            raise ValueError(f"boost must be None or one of {', '.join(map(repr, LIBRARIES))}; got {self.boost!r}")

    @classmethod
    def fast(cls, **changes: Any) -> Self:
        """Return ``search="fast"``, with changes: two paths of the five, in shorter steps.

        It takes two thirds of the time or less, and sets are nearly as small.

        Parameters
        ----------
        **changes : dict
            Settings that differ.

        Returns
        -------
        search : Search
        """
        return cls(**{"paths": _FAST, "repeats": 1, "max_iter": 30, **changes})

    @classmethod
    def thorough(cls, **changes: Any) -> Self:
        """Return ``search="thorough"``, with changes: a few times slower than the default.

        Parameters
        ----------
        **changes : dict
            Settings that differ.

        Returns
        -------
        search : Search
        """
        more: dict[str, Any] = {"paths": (*_DEFAULT, ("two-matrix", 8.0), ("softmax", 1.0)), "max_iter": 80}
        more |= {"folds": 10, "repeats": 3, "restarts": 2, "both_columns": True}
        return cls(**{**more, **changes})

    def only(self, measure: str) -> Self:
        """Return the same search with paths of one measure only.

        Parameters
        ----------
        measure : "two-matrix", "softmax" or "linear"
            The measure.

        Returns
        -------
        search : Search
        """
        if not (isinstance(measure, str) and measure in MEASURES):
            raise ValueError(f"measure must be one of {', '.join(map(repr, MEASURES))}; got {measure!r}")
        own = tuple(path for path in self.paths if path[0] == measure)
        return replace(self, paths=own or tuple((measure, gamma) for gamma in _SHARPNESSES))

    def samples(self, n: int) -> bool:
        """Return whether the search sees a sample of the training rows, and not all of them.

        Parameters
        ----------
        n : int
            How many training rows there are.

        Returns
        -------
        sampled : bool
        """
        return n > _WORTH_SAMPLING * self.rows

    def check_installed(self) -> None:
        """Raise if trees are asked for whose library is not there."""
        if self.boost is not None and find_spec(self.boost) is None:
            raise ImportError(f"boost={self.boost!r} needs another package: pip install 'tightset[{self.boost}]'")


@storable
@dataclass(frozen=True)
class Grid:
    """The search of the paper: a grid of linear measures trained from zeros, chosen on the training rows.

    Parameters
    ----------
    penalty : float or sequence of float, default (10, 100, 500, 1000, 5000)
        lambda of the paper; the grid is the product of the first three parameters. The text prints a penalty of 10000
        in place of 1000, but its tables choose 1000 and never 10000, and five values make the 400 runs for each data
        set that it counts.
    sharpness : float or sequence of float, default (1, 2, 5, 10)
        gamma of the paper.
    learning_rate : float or sequence of float, default (1, 10, 100, 1000)
        eta of the paper.
    loss_form : {"-1/L", "L", "log L", "-1/L^2"}, default "-1/L"
        Which increasing function of the loss descends.
    optimiser : {"gradient-descent", "adam"}, default "gradient-descent"
        Gradient descent has a constant rate.
    selection : {"inefficiency", "loss"}, default "inefficiency"
        Take the candidate with the smallest inefficiency on the training rows, or with the smallest loss.
    max_iter : int, default 1000
        The most steps.
    tol : float, default 1e-7
        A candidate whose largest step is below ``tol`` (relative) stops early.
    keep_trace : bool, default False
        Keep the loss of every candidate at every step: ``traces_[fold][level]`` is an array ``(steps, candidates)``.
    standardise : bool, default True
        Train on columns of mean 0 and standard deviation 1.

    Examples
    --------
    >>> len(Grid().candidates())
    80
    """

    penalty: float | Sequence[float] = (10, 100, 500, 1000, 5000)
    sharpness: float | Sequence[float] = (1, 2, 5, 10)
    learning_rate: float | Sequence[float] = (1, 10, 100, 1000)
    loss_form: str = "-1/L"
    optimiser: str = "gradient-descent"
    selection: str = "inefficiency"
    max_iter: int = 1000
    tol: float = 1e-7
    keep_trace: bool = False
    standardise: bool = True

    def __post_init__(self) -> None:
        for name, letter in (("penalty", "lambda"), ("sharpness", "gamma"), ("learning_rate", "eta")):
            try:
                values = np.atleast_1d(np.asarray(getattr(self, name), dtype=float))
            except (TypeError, ValueError):
                values = np.empty(0)
            if values.ndim > 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
                raise ValueError(
                    f"{name} ({letter}) must be a positive number or a sequence of them; got {getattr(self, name)!r}"
                )
            if isinstance(getattr(self, name), np.ndarray):  # which would not compare, nor be stored
                object.__setattr__(self, name, tuple(values.tolist()))
        for name, allowed in (("loss_form", FORMS), ("optimiser", tuple(OPTIMISERS)), ("selection", _SELECTIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}")
        _check_whole(self, "max_iter", 1)
        if not (isinstance(self.tol, (int, float, np.number)) and self.tol >= 0):
            raise ValueError(f"tol must be zero or a positive number; got {self.tol!r}")
        for name in ("keep_trace", "standardise"):
            _check_truth(self, name)

    def candidates(self) -> np.ndarray:
        """Return the grid.

        Returns
        -------
        candidates : ndarray of shape (n_candidates, 3)
            Penalty, sharpness and learning rate of each.
        """
        axes = [np.atleast_1d(np.asarray(one, float)) for one in (self.penalty, self.sharpness, self.learning_rate)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the settings.

        Returns
        -------
        names : tuple of str
        """
        return tuple(field.name for field in fields(cls))


def as_search(search: Any) -> Search | Grid:
    """The settings that a name stands for, or those that were given.

    >>> as_search("fast") == Search.fast()
    True
    """
    if isinstance(search, (Search, Grid)):
        return search
    if isinstance(search, str) and search in SEARCHES:
        return SEARCHES[search]
    raise ValueError(f"search must be one of {', '.join(map(repr, SEARCHES))}, a Search or a Grid; got {search!r}")


def _positive(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and bool(0 < value < np.inf)


def _check_whole(settings: Any, name: str, least: int) -> None:
    value = getattr(settings, name)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}")


def _check_truth(settings: Any, name: str) -> None:
    if not isinstance(getattr(settings, name), (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {getattr(settings, name)!r}")  # noqa: TRY004


SEARCHES: dict[str, Search | Grid] = {
    "fast": Search.fast(),
    "default": Search(),
    "thorough": Search.thorough(),
    "grid": Grid(),
}
