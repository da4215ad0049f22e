"""What measures are trained on: one small object for each case of ``SCPOClassifier(estimator=...)``.

A case defines which rows it accepts, which classes there are, and how its measures are trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import validate_data

from tightset.compute.row_forms import as_floats, as_they_are
from tightset.models.class_scores import PRECOMPUTED, innermost, name_of
from tightset.models.classifiers import (
    auto_classifiers,
    check_any_rows,
    check_base,
    classes_of_columns,
    copy_input_tags,
    known_classes,
)
from tightset.models.cluster import needs_cluster, without_cluster
from tightset.models.columns import as_numbers
from tightset.models.crossfit_there import can_be_trained_there
from tightset.models.named import NAMES, named_classifier
from tightset.models.routing import Unweighted
from tightset.search.cross_fitted import on_a_sample
from tightset.search.from_columns import path_search
from tightset.search.grid import grid_search
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows
from tightset.search.settings import Grid, Search
from tightset.search.stack import Bases, stacked_search
from tightset.search.verdict import FEW_ROWS

__all__ = ["AUTO", "Case", "case_of"]

AUTO = "auto"
_NUMBERS: dict[str, Any] = {"dtype": [np.float64, np.float32]}


class Case(ABC):
    """What measures are trained on."""

    on_columns = False  # of X, wherever its rows lie; the search of the paper needs that
    prepare: Callable[[Any], Any] = staticmethod(as_floats)  # of rows that lie elsewhere

    @abstractmethod
    def tag(self, tags: Any) -> None:
        """Say to scikit-learn which rows are taken."""

    @abstractmethod
    def check_rows(self, owner: Any, X: Any, *, reset: bool) -> Any:
        """Rows in the form in which they are trained on and scored."""

    @abstractmethod
    def search(self, rows: TrainingRows, aim: Aim, settings: Search, runtime: Runtime) -> Outcome:
        """The model of each level."""

    def classes(self, owner: Any, columns: int, present: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """The classes that are scored, given those of the labels."""
        return present

    def train(self, rows: TrainingRows, aim: Aim, settings: Search | Grid, runtime: Runtime) -> Outcome:
        """The model of each level, by the search of the paper or by that of this case."""
        if isinstance(settings, Grid):
            return grid_search(rows, aim, settings, runtime)
        return self.search(rows, aim, settings, runtime)


class OnColumns(Case):
    """``estimator=None``: the columns of X, starting from logistic regression."""

    on_columns = True

    def tag(self, tags: Any) -> None:
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = False

    def check_rows(self, owner: Any, X: Any, *, reset: bool) -> Any:
        X = validate_data(owner, X, reset=reset, accept_sparse="csr", **_NUMBERS)
        if reset and owner.device is not None and sparse.issparse(X):
            raise ValueError(f"X is sparse, which device={owner.device!r} cannot take: give a dense array or no device")
        return X

    def search(self, rows: TrainingRows, aim: Aim, settings: Search, runtime: Runtime) -> Outcome:
        return path_search(rows, aim, settings, runtime)


@dataclass(frozen=True)
class OnClassifier(Case):
    """A classifier, trained here or, in a `FrozenEstimator`, before: its held-out scores, beside the columns of X."""

    estimator: Any
    prepare = staticmethod(as_they_are)

    def tag(self, tags: Any) -> None:
        copy_input_tags(tags, self.estimator)

    def check_rows(self, owner: Any, X: Any, *, reset: bool) -> Any:
        return check_any_rows(owner, X, reset=reset)

    def classes(self, owner: Any, columns: int, present: np.ndarray) -> np.ndarray:  # noqa: ARG002
        return known_classes(self.estimator, present) if isinstance(self.estimator, FrozenEstimator) else present

    def search(self, rows: TrainingRows, aim: Aim, settings: Search, runtime: Runtime) -> Outcome:
        bases = Bases([self.estimator])
        if not rows.X.lazy:
            return stacked_search(Bases([without_cluster(self.estimator)]), rows, aim, settings, runtime)
        if bases.sampled(settings, len(rows)) and can_be_trained_there(self.estimator):
            return stacked_search(bases, rows, aim, settings, runtime)
        return on_a_sample(self.search, rows, aim, settings, runtime, name_of(without_cluster(self.estimator)))


class OnScores(Case):
    """``"precomputed"``: X holds the scores of a classifier, a column for each class."""

    def tag(self, tags: Any) -> None:
        pass

    def check_rows(self, owner: Any, X: Any, *, reset: bool) -> Any:
        return validate_data(owner, X, reset=reset, ensure_min_features=2, **_NUMBERS)

    def classes(self, owner: Any, columns: int, present: np.ndarray) -> np.ndarray:
        return classes_of_columns(columns, getattr(owner, "feature_names_in_", ()), present)

    def search(self, rows: TrainingRows, aim: Aim, settings: Search, runtime: Runtime) -> Outcome:
        bases = Bases([PRECOMPUTED], columns=False)
        if rows.X.lazy and not bases.sampled(settings, len(rows)):
            return on_a_sample(self.search, rows, aim, settings, runtime, f"boost={settings.boost!r}")
        return stacked_search(bases, rows, aim, settings, runtime)


class OnMixture(Case):
    """``"auto"``: several kinds of trees, the columns themselves, and mixtures of them."""

    prepare = staticmethod(partial(as_floats, missing=True))

    def tag(self, tags: Any) -> None:
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True

    def check_rows(self, owner: Any, X: Any, *, reset: bool) -> Any:
        return validate_data(owner, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan", **_NUMBERS)

    def search(self, rows: TrainingRows, aim: Aim, settings: Search, runtime: Runtime) -> Outcome:
        if rows.X.lazy:
            return on_a_sample(self.search, rows, aim, settings, runtime, "estimator='auto'")
        X = rows.X.gather()
        if len(rows) < FEW_ROWS and as_numbers(X) is not None:
            return path_search(rows, aim, settings, runtime)
        bases = Bases(auto_classifiers(sparse_rows=sparse.issparse(X)), mixed=True)
        return stacked_search(bases, rows, aim, settings, runtime)


def case_of(estimator: Any) -> Case:
    """The case that a value of ``estimator`` stands for.

    >>> type(case_of(None)).__name__, type(case_of("auto")).__name__
    ('OnColumns', 'OnMixture')
    """
    if estimator is None:
        return OnColumns()
    if isinstance(estimator, str):
        if estimator in NAMES:
            return OnClassifier(named_classifier(estimator))
        named: dict[str, type[Case]] = {AUTO: OnMixture, PRECOMPUTED: OnScores}
        if estimator not in named:
            names = ", ".join(map(repr, NAMES))
            raise ValueError(
                f"estimator must be a classifier, 'auto', 'precomputed' or one of {names}; got {estimator!r}"
            )
        return named[estimator]()
    check_base(estimator.estimator if isinstance(estimator, Unweighted) else estimator)
    inner = innermost(estimator)
    if isinstance(estimator, Pipeline) and needs_cluster(inner):
        raise ValueError(
            f"estimator must not be a Pipeline around {name_of(inner)}, which is trained on Dask collections: prepare "
            "the collection, and give the classifier by itself"
        )
    return OnClassifier(estimator)
