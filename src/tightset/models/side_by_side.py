"""Fits of one classifier side by side, each in a thread of its own, where they would leave cores idle.

Trees on a few thousand rows do not keep more than one core busy, and forests do not try unless told to. So the models
of the folds are trained at the same time. That is done for trees of scikit-learn and LightGBM, whose fits are compiled
code that other threads may run beside; code of others may rely on being alone.
"""

from __future__ import annotations

from typing import Any

from joblib.parallel import BACKENDS, DEFAULT_BACKEND, get_active_backend
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from tightset.compute.threads import cores, threads_for
from tightset.models.routing import Unweighted

__all__ = ["as_before", "as_on_all", "jobs_of"]

_FORESTS = "sklearn.ensemble._forest"
_BOOSTED = "sklearn.ensemble._hist_gradient_boosting"
_LIGHTGBM = "lightgbm."
_ROWS_TO_END_EARLY = 10_000  # more of them make its "auto" end early
_ENTRIES = 2**24  # of the copies of rows that are in memory at the same time


def jobs_of(estimator: Any, rows: int, columns: int, n_jobs: int | None) -> dict[str, Any]:
    """How `Parallel` is to train copies of a classifier on about so many rows each: as asked, or side by side.

    >>> from sklearn.ensemble import RandomForestClassifier
    >>> jobs_of(RandomForestClassifier(), 1000, 10, 3)
    {'n_jobs': 3}
    """
    active, asked = get_active_backend()
    elsewhere = asked is not None or bool(active.nesting_level) or type(active) is not BACKENDS[DEFAULT_BACKEND]
    if n_jobs is not None or elsewhere or not _is_compiled(estimator):
        return {"n_jobs": n_jobs}
    of_one = 1 if _is(estimator, _FORESTS) else threads_for(rows)
    at_once = min(cores() // of_one, _ENTRIES // max(rows * columns, 1))
    return {"n_jobs": max(1, at_once), "backend": "threading"}


def as_on_all(estimator: Any, rows: int, every: int) -> Any:
    """A classifier that trains on so many of the rows as it would on every one of them.

    LightGBM, which would take all cores for any number of rows, is told how many threads these are worth, and boosting
    of scikit-learn that ends early by itself where there are many rows does so on these, too.
    """
    told = _told(estimator, rows, every)
    if not told:
        return estimator
    if isinstance(estimator, Unweighted):
        return estimator._replace(estimator=as_on_all(estimator.estimator, rows, every))
    copy = clone(estimator)
    _last(copy).set_params(**told)
    return copy


def as_before(model: Any, estimator: Any, rows: int, every: int) -> None:
    """Let what `as_on_all` told an estimator not outlast its training."""
    if told := _told(estimator, rows, every):  # others may refuse to be set once they are trained
        _last(model).set_params(**{name: getattr(_last(estimator), name) for name in told})


def _told(estimator: Any, rows: int, every: int) -> dict[str, Any]:
    """The parameters that `as_on_all` sets; of folds some may be too small to end early, and others not."""
    if _takes_all_cores(estimator):
        return {"n_jobs": threads_for(rows)}
    ends_early = _is(estimator, _BOOSTED) and _last(estimator).early_stopping == "auto"
    return {"early_stopping": True} if ends_early and every > _ROWS_TO_END_EARLY else {}


def _is_compiled(estimator: Any) -> bool:
    """Whether fits run in compiled code alone, in one thread or as many as `openmp_for` leaves them."""
    within = estimator.estimator if isinstance(estimator, Unweighted) else estimator
    while isinstance(within, Pipeline):
        if not all(step in (None, "passthrough") or _is_sklearns(step) for _, step in within.steps[:-1]):
            return False
        within = within.steps[-1][1]
    if _is(estimator, _FORESTS):
        return within.n_jobs in (None, 1)
    return _is(estimator, _BOOSTED) or _takes_all_cores(estimator)


def _is_sklearns(step: Any) -> bool:
    """Whether a step of a pipeline and all parts of it are scikit-learn's own, and it calls no function of others."""
    parts = [step, *step.get_params(deep=True).values()]
    return all(
        type(one).__module__.startswith("sklearn.")
        if hasattr(one, "fit")
        else isinstance(one, type) or not callable(one)
        for one in parts
    )


def _takes_all_cores(estimator: Any) -> bool:
    return _is(estimator, _LIGHTGBM) and _last(estimator).n_jobs is None


def _last(estimator: Any) -> Any:
    """The classifier at the end of pipelines; not inside searches, which train others, nor if it is frozen."""
    while isinstance(estimator, (Pipeline, Unweighted)):
        estimator = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator.estimator
    return estimator


def _is(estimator: Any, module: str) -> bool:
    return type(_last(estimator)).__module__.startswith(module)
