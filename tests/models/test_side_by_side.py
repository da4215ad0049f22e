"""Fits side by side in threads: which classifiers, how many at once, and that nothing hangs on it."""

import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from makers import quick_on_top as quick
from tightset.compute.progress import Progress
from tightset.models import side_by_side
from tightset.models.crossfit import CrossFitting, cross_fit
from tightset.models.side_by_side import as_before, as_on_all, jobs_of


class Forest(RandomForestClassifier):
    """Somebody's own, which may rely on being alone."""


class Own(StandardScaler):
    pass


class Unchanging(DecisionTreeClassifier):
    """Somebody's, which cannot be set once it is trained, not even to nothing."""

    def set_params(self, **params):
        if hasattr(self, "tree_"):
            raise RuntimeError("You can't change params of fitted model.")
        return super().set_params(**params)


@pytest.fixture
def six_cores(monkeypatch):
    monkeypatch.setattr(side_by_side, "cores", lambda: 6)
    monkeypatch.setattr(side_by_side, "threads_for", lambda rows: 1 if rows < 10_000 else 3)


@pytest.mark.usefixtures("six_cores")
@pytest.mark.parametrize(
    ("estimator", "rows", "at_once"),
    [
        (RandomForestClassifier(), 1000, 6),
        (RandomForestClassifier(), 20_000, 6),
        (RandomForestClassifier(n_jobs=2), 1000, None),
        (HistGradientBoostingClassifier(), 1000, 6),
        (HistGradientBoostingClassifier(), 20_000, 2),
        (make_pipeline(StandardScaler(), RandomForestClassifier()), 1000, 6),
        (make_pipeline(Own(), RandomForestClassifier()), 1000, None),
        (make_pipeline(make_pipeline(Own()), RandomForestClassifier()), 1000, None),
        (make_pipeline(make_union(Own(), StandardScaler()), RandomForestClassifier()), 1000, None),
        (make_pipeline(FunctionTransformer(np.abs), RandomForestClassifier()), 1000, None),
        (make_pipeline("passthrough", make_pipeline(StandardScaler(), RandomForestClassifier())), 1000, 6),
        (GridSearchCV(RandomForestClassifier(), {}), 1000, None),
        (RandomForestClassifier(), 1_000_000, 1),
        (DecisionTreeClassifier(), 1000, None),
        (Forest(), 1000, None),
    ],
)
def test_as_many_at_once_as_there_are_cores_for(estimator, rows, at_once):
    assert jobs_of(estimator, rows, 10, None)["n_jobs"] == at_once
    assert jobs_of(estimator, rows, 10, 2) == {"n_jobs": 2}
    for asked in ({"backend": "threading", "n_jobs": 3}, {"backend": "multiprocessing"}, {"n_jobs": 3}):
        with parallel_config(**asked):
            assert jobs_of(estimator, rows, 10, None) == {"n_jobs": None}


@pytest.mark.usefixtures("six_cores")
def test_lightgbm_is_told_its_threads_for_as_long_as_it_trains():
    import lightgbm

    base = make_pipeline(StandardScaler(), lightgbm.LGBMClassifier())
    told = as_on_all(base, 1000, 1250)
    assert (told[-1].n_jobs, base[-1].n_jobs) == (1, None)
    as_before(told, base, 1000, 1250)
    assert told[-1].n_jobs is None
    asked = lightgbm.LGBMClassifier(n_jobs=2)
    assert as_on_all(asked, 1000, 1250) is asked
    as_before(asked, asked, 1000, 1250)
    assert asked.n_jobs == 2
    assert jobs_of(lightgbm.LGBMClassifier(), 20_000, 10, None)["n_jobs"] == 2
    frozen = make_pipeline(StandardScaler(), FrozenEstimator(lightgbm.LGBMClassifier()))
    assert as_on_all(frozen, 1000, 1250) is frozen


def test_boosting_ends_early_on_folds_where_it_does_on_all_rows():
    base = make_pipeline(StandardScaler(), HistGradientBoostingClassifier())
    assert as_on_all(base, 8000, 10_000) is base
    told = as_on_all(base, 9600, 12_000)
    assert (told[-1].early_stopping, base[-1].early_stopping) == (True, "auto")
    as_before(told, base, 9600, 12_000)
    assert told[-1].early_stopping == "auto"
    asked = HistGradientBoostingClassifier(early_stopping=False)
    assert as_on_all(asked, 9600, 12_000) is asked


def test_others_are_left_alone_once_they_are_trained(labelled_rows):
    X, y, X_new, _ = labelled_rows
    quick(Unchanging(max_depth=3)).fit(X, y).predict_set(X_new)


@pytest.mark.parametrize("estimator", [RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=5)])
def test_scores_do_not_hang_on_the_number_of_cores(labelled_rows, monkeypatch, estimator):
    X, y, X_new, _ = labelled_rows
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(side_by_side, "cores", lambda cores=cores: cores)
        found.append(quick(estimator).fit(X, y).predict_p(X_new))
    np.testing.assert_array_equal(*found)


def test_filters_of_warnings_are_as_before(labelled_rows, monkeypatch):
    """Threads that catch warnings at the same time may restore each other's filters."""
    monkeypatch.setattr(side_by_side, "cores", lambda: 4)
    X, y, _, _ = labelled_rows

    class Filtering(StandardScaler):
        def fit(self, X, y=None, **how):
            warnings.filterwarnings("error", "left behind")
            return super().fit(X, y, **how)

    before = list(warnings.filters)
    names, codes = np.unique(y, return_inverse=True)
    how = CrossFitting(names, np.arange(len(y))[None] % 5, np.random.default_rng(0), Progress())
    cross_fit(make_pipeline(Filtering(), RandomForestClassifier(2)), X, codes, None, how)
    assert list(warnings.filters) == before
