"""Sets that grow with the level: nested measures, filled sets, smoothed sets."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from threadpoolctl import threadpool_limits

from makers import scpo
from tightset import ConformalClassifier, SCPOClassifier, Search


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads of small trees would wait for each other, where two tests run side by side."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def rings():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 2))
    return X, np.digitize(np.hypot(*X.T) + 0.4 * rng.standard_normal(1200), [0.7, 1.1, 1.5, 2.0])


@pytest.mark.parametrize("how", [{}, {"estimator": RandomForestClassifier(10)}, {"cv": 3}, {"label_conditional": True}])
def test_nested_sets_grow_with_the_level(how, rings):
    X, y = rings
    levels = [0.6, 0.75, 0.9]
    search = {"search": Search.fast(max_iter=10), "random_state": 0, "verbose": False}
    clf = SCPOClassifier(levels, nested=True, **search, **how).fit(X[:800], y[:800])
    sets = clf.predict_set(X[800:], confidence=[*levels, 0.95])
    assert (sets[:-1] <= sets[1:]).all()
    p = clf.predict_p(X[800:])
    np.testing.assert_array_equal(p[0], p[2])
    assert "which makes sets nested" in clf.summary()
    for row in clf.evaluate(X[800:], y[800:]):
        assert row["coverage"] > row["confidence"] - 0.08


def test_sets_of_measures_of_their_own_need_not_be_nested(rings):
    X, y = rings
    clf = scpo(confidence=[0.8, 0.81, 0.82], max_iter=15).fit(X[:800], y[:800])
    sets = clf.predict_set(X[800:])
    assert not (sets[:-1] <= sets[1:]).all()  # which is why there is a choice


def test_nested_is_not_for_the_grid_and_is_true_or_false(blobs):
    with pytest.raises(ValueError, match="nested=True is not for search='grid'"):
        SCPOClassifier.paper([0.8, 0.9], nested=True).fit(*blobs)
    with pytest.raises(ValueError, match="nested must be True or False"):
        SCPOClassifier(nested="yes").fit(*blobs)


def test_nested_sets_of_many_rows_are_trained_on_all_of_them(rings):
    from tightset import Search

    X, y = rings
    search = Search((("two-matrix", 1.0),), pulls=(1.0, 0.1), max_iter=10, folds=3, strengths=(1.0,), rows=300)
    clf = SCPOClassifier([0.6, 0.9], nested=True, search=search, random_state=0).fit(X, y)
    sets = clf.predict_set(X)
    assert (sets[0] <= sets[1]).all()
    assert clf.folds_[0].models[0] is clf.folds_[0].models[1]
    assert "trained on all" in clf.summary()


def grows(sets):
    """Whether no set has a label that a set at a higher level lacks; levels rise."""
    return not any((low & ~high).any() for at, low in enumerate(sets) for high in sets[at + 1 :])


@pytest.mark.parametrize("how", [{"label_conditional": True}, {"label_conditional": True, "cv": 3}, {"groups": True}])
@pytest.mark.parametrize("smoothed", [False, True])
def test_sets_that_are_filled_grow_with_the_level(how, smoothed):
    """An empty set gets the label that enters first, and not one that the next level takes out again."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 1200, p=[0.7, 0.2, 0.1])
    X = (rng.normal(size=(1200, 2)) + np.array([[0, 0], [1.2, 0], [0, 1.2]])[y]).round(1)
    groups = X[:, 0] > 0.5 if "groups" in how else None
    own = {name: value for name, value in how.items() if name != "groups"} | ({"cv": 3} if "groups" in how else {})
    levels = [0.3, 0.5, 0.7, 0.9]
    of = [None, None] if groups is None else [groups[:600], groups[600:]]
    filled = ConformalClassifier(confidence=levels, allow_empty=False, random_state=0, **own)
    filled.fit(X[:600], y[:600], groups=of[0])
    sets = filled.predict_set(X[600:], groups=of[1], smoothed=smoothed)
    assert sets.any(axis=2).all()
    assert grows(sets)
    holed = filled.set_params(allow_empty=True).predict_set(X[600:], groups=of[1], smoothed=smoothed)
    assert not holed.any(axis=2).all()  # there was something to fill
    assert (sets == holed)[holed.any(axis=2)].all()


@pytest.mark.parametrize("seed", [None, 0, np.random.RandomState(0)])
def test_smoothed_sets_grow_with_the_level_too(seed):
    """Ties are broken alike at all levels of a call."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (1200, 2)) * 1.0
    y = np.where(rng.random(1200) < 0.6, X[:, 0].astype(int), rng.integers(0, 3, 1200))
    clf = ConformalClassifier(confidence=[0.6, 0.65, 0.7, 0.75, 0.8], random_state=seed).fit(X[:400], y[:400])
    for _ in range(5):
        assert grows(clf.predict_set(X[400:], smoothed=True))
