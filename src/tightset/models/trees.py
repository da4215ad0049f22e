"""Trees that make sets smaller: boosting rounds on the profiled objective, on top of held-out scores.

A boosted classifier continued on its own training rows learns nothing about set size: there it knows every label, and
no row is near the threshold. So the trees start from the scores of models that have not seen the row, as every measure
does, and add to them:

    A = log_softmax(Z + F(x)),      F a sum of small trees.

The gradient by ``F`` is that of `Profiled` through the softmax, with a little of the log-loss to keep ``F`` in check.
Its Hessian is indefinite; trees need a positive diagonal, and get a bound. At a fixed threshold, with
``d_y = gamma^2 w f'(s) sigma (1 - sigma)`` (and ``rho`` times as much for the own label), which bounds the second
derivative by ``A_y`` (for the size; other costs bend too, for which it is an estimate), and ``G = sum_y dL/dA_y``:

    |d^2 L / dF_c^2| <= sum_y d_y ([y = c] - p_c)^2 + |G| p_c (1 - p_c) <= d_c + p_c^2 sum_y d_y + |G| p_c (1 - p_c).

If a library cannot grow trees on these rows, a warning says why, and none are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.progress import Progress
from tightset.conformal.inefficiency import Inefficiency
from tightset.exceptions import warn
from tightset.models.ensembles import tempered
from tightset.objectives.on_terms import OnTerms, TermsOfRows
from tightset.objectives.profiled import Profiled
from tightset.objectives.terms import Terms
from tightset.storage.registry import storable

__all__ = ["LIBRARIES", "Grown", "Growth", "Trees", "grow", "numbers_or_missing", "size_gradient"]

LIBRARIES = ("lightgbm", "xgboost")
_STAGES = (5, 10, 20, 40)  # rounds after which the trees are candidates
_SHARPNESS = 2.0
_LOG_LOSS = 0.1
_RATE = 0.05
_LEAVES = 7
_LARGEST = float(np.finfo(np.float32).max)


class _NoTreesError(Exception):
    """Why a library can grow no trees on some rows."""


@storable
class Trees(NamedTuple):
    """The first rounds of a booster, as scores ``F (n, C)``."""

    library: str
    booster: Any
    rounds: int
    n_classes: int

    def scores(self, X: Any) -> np.ndarray:
        X = numbers_or_missing(X)
        if self.library == "lightgbm":
            raw = self.booster.predict(X, raw_score=True, num_iteration=self.rounds)
        else:
            import xgboost

            rows = xgboost.DMatrix(_within_single(X))
            raw = self.booster.predict(rows, output_margin=True, iteration_range=(0, self.rounds))
        return np.asarray(raw, dtype=np.float64).reshape(-1, self.n_classes)


class Grown(NamedTuple):
    """Trees after some rounds, trained on all rows, and the scores of those that have not seen a row, ``(k, C)``."""

    trees: Trees
    held_out: np.ndarray


class Growth(NamedTuple):
    """How trees are grown: by which library, for which level and inefficiency, and on what.

    ``check`` is called at every round, to be interrupted.
    """

    library: str
    eps: float
    f: Inefficiency
    seed: int = 0
    n_jobs: int | None = None
    check: Callable[[], None] = lambda: None
    terms: Terms | None = None


def grow(
    how: Growth,
    X: Any,
    y: np.ndarray,
    Z: np.ndarray,
    fold: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    progress: Progress,
) -> list[Grown]:
    """Trees on top of held-out scores ``Z (k, C)``, after each stage, or none at all; rows sorted by label."""
    library, eps, f, seed, n_jobs, check, terms = how
    X = numbers_or_missing(X)
    train = {"lightgbm": _lightgbm, "xgboost": _xgboost}[library]
    objective = Profiled(np.array([eps]), np.array([_SHARPNESS]), f)
    held_out = np.empty((len(_STAGES), *Z.shape))
    progress.expect(fold.max() + 2)
    for held in [*range(fold.max() + 1), -1]:  # and all rows at last
        rows = fold != held
        own = None if weight is None else weight[rows]
        of_rows: Profiled | OnTerms = objective
        if terms is not None:
            of_rows = OnTerms(objective.eps, objective.gamma, f, TermsOfRows.of(terms.take(rows), y[rows], f))

        def gradient(F: np.ndarray, y: np.ndarray = y[rows], own: Any = own, of_rows: Any = of_rows) -> Any:
            check()
            return size_gradient(F, y, of_rows, own)

        try:
            booster = train(X[rows], y[rows], Z[rows], gradient, seed, n_jobs)
        except _NoTreesError as why:
            warn(f"boost={library!r} adds no trees and is left out: {why}. Sets are valid without it")
            for _ in range(fold.max() - held + 2 if held >= 0 else 1):
                progress.advance()
            return []
        stages = [Trees(library, booster, rounds, Z.shape[1]) for rounds in _STAGES]
        if held >= 0:
            for stage, trees in zip(held_out, stages, strict=True):
                stage[~rows] = trees.scores(X[~rows])
        progress.advance()
    return [Grown(*both) for both in zip(stages, held_out, strict=True)]


def size_gradient(
    F: np.ndarray, y: np.ndarray, objective: Profiled | OnTerms, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian bound of ``k (L + 0.1 log-loss)`` by scores ``F (k, C)``, rows sorted by label."""
    k = len(y)
    rows = np.arange(k)
    w = np.full(k, 1 / k) if weight is None else weight / weight.sum()
    A = tempered(F, 1.0)
    p = np.exp(A)
    _, dA = objective.value_and_gradient(A[None], y, None if weight is None else weight[None])
    q = objective.threshold(A[rows, y][None], w[None])[0]
    gamma = float(objective.gamma[0])
    margins = objective.margins(A[None], q[None])[0] if isinstance(objective, OnTerms) else A - q
    sigma = 1 / (1 + np.exp(-np.clip(gamma * margins, -500, 500)))
    slope = gamma * sigma * (1 - sigma)
    own = w * slope[rows, y]
    if isinstance(objective, OnTerms):
        s = objective.inefficiency(2 * sigma[None] - 1)
        d = objective.priced(w[None], s)[0] * slope
        rho = objective.by_category(d[None])[0] / np.maximum(own @ objective.rows.own_hot, 1e-30)
        d[rows, y] += rho[objective.rows.own] * own
    else:
        d = (w * objective.f.derivative(sigma.sum(axis=1)))[:, None] * slope
        d[rows, y] += d.sum() / max(own.sum(), 1e-30) * own
    d *= gamma
    G = dA[0].sum(axis=1, keepdims=True)
    gradient = dA[0] - p * G
    bound = d + p**2 * d.sum(axis=1, keepdims=True) + np.abs(G) * p * (1 - p)
    wrong = p.copy()
    wrong[rows, y] -= 1
    gradient += _LOG_LOSS * w[:, None] * wrong
    bound += _LOG_LOSS * w[:, None] * p * (1 - p)
    return k * gradient, np.maximum(k * bound, 1e-6)


def numbers_or_missing(X: Any) -> np.ndarray:
    """Rows as a dense array of floats; missing values may be among them."""
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("boost needs dense rows of numbers: encode other columns first, or leave boost out") from None


def _lightgbm(X: np.ndarray, y: np.ndarray, Z: np.ndarray, gradient: Any, seed: int, n_jobs: int | None) -> Any:
    import lightgbm

    settings: dict[str, Any] = {
        "num_class": Z.shape[1],
        "num_leaves": _LEAVES,
        "learning_rate": _RATE,
        "lambda_l2": 1.0,
        "min_sum_hessian_in_leaf": 1.0,
        "num_threads": n_jobs if n_jobs is not None and n_jobs > 0 else 0,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbose": -1,
    }
    try:
        data = lightgbm.Dataset(
            X, y, init_score=Z.ravel(order="F"), params={**settings, "objective": "none"}
        ).construct()
        if not any(data.feature_num_bin(at) for at in range(X.shape[1])):  # it would say so on standard error itself
            raise _NoTreesError(f"LightGBM finds no column that splits {len(X):,} rows into parts of at least 20 rows")
        settings["objective"] = lambda F, _: gradient(F.reshape(Z.shape))
        return lightgbm.train(settings, data, _STAGES[-1])
    except lightgbm.basic.LightGBMError as error:
        raise _NoTreesError(f"LightGBM says {_first_line(error)!r}") from error


def _xgboost(X: np.ndarray, y: np.ndarray, Z: np.ndarray, gradient: Any, seed: int, n_jobs: int | None) -> Any:
    import xgboost

    settings = {
        "num_class": Z.shape[1],
        "max_leaves": _LEAVES,
        "max_depth": 0,
        "grow_policy": "lossguide",
        "tree_method": "hist",
        "learning_rate": _RATE,
        "reg_lambda": 1.0,
        "min_child_weight": 1.0,
        "base_score": 0.0,
        "nthread": n_jobs if n_jobs is not None and n_jobs > 0 else 0,
        "seed": seed,
        "disable_default_eval_metric": True,
        "verbosity": 0,
    }

    def objective(F: np.ndarray, _: Any) -> Any:
        return gradient(F.reshape(Z.shape).astype(np.float64))

    try:
        data = xgboost.DMatrix(_within_single(X), y, base_margin=Z)
        return xgboost.train(settings, data, _STAGES[-1], obj=objective)
    except xgboost.core.XGBoostError as error:
        raise _NoTreesError(f"XGBoost says {_first_line(error)!r}") from error


def _within_single(X: np.ndarray) -> np.ndarray:
    """The same but for numbers beyond single precision, which XGBoost refuses; trees ask for their order only."""
    return np.asarray(np.clip(X, -_LARGEST, _LARGEST))


def _first_line(error: Exception) -> str:
    """What a library says, without the time and the place in its source."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[\d:]+\] \S+ | at /\S+, line \d+ ?\.?", "", line)[:200]
