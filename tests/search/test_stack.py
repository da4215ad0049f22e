"""The search on top of classifiers: what levels share, and what is left out where it cannot help."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from makers import ON_TOP
from makers import quick_on_top as quick

FIVE = (0.8, 0.9, 0.95, 0.975, 0.99)


class Counted(DecisionTreeClassifier):
    """A classifier that counts how often it is trained."""

    fits = 0

    def fit(self, X, y):
        type(self).fits += 1
        return super().fit(X, y)


@pytest.fixture(scope="module")
def coarse():
    """Rows on which a forest of stumps leaves much to gain, and some to test on."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 4))
    y = np.argmax(2 * X + rng.gumbel(size=(4000, 4)), axis=1)
    return X[:2000], y[:2000], X[2000:], y[2000:]


@pytest.mark.parametrize("levels", [(0.9,), (0.8, 0.9), FIVE])
def test_the_classifier_is_trained_once_for_all_levels(coarse, levels):
    X, y = coarse[:2]
    Counted.fits = 0
    quick(Counted(max_depth=3), confidence=levels).fit(X, y)
    assert Counted.fits == ON_TOP.folds * ON_TOP.repeats + 1


def test_sets_of_five_levels_are_as_small_as_those_of_five_fits(coarse):
    X, y, X_new, y_new = coarse
    forest = RandomForestClassifier(20, max_depth=2, random_state=0)
    together = [row["mean_size"] for row in quick(forest, confidence=FIVE).fit(X, y).evaluate(X_new, y_new)]
    alone = [quick(forest, confidence=level).fit(X, y).evaluate(X_new, y_new)["mean_size"] for level in FIVE]
    ratio = np.array(together) / alone
    assert (ratio[[0, -1]] == 1).all()  # the outermost levels are searched as if they were alone
    assert (ratio < 1.03).all()
    assert np.exp(np.log(ratio).mean()) < 1.01


def test_nothing_is_searched_where_sets_cannot_become_smaller():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1200)
    X = np.eye(3)[y] * 6 + rng.normal(size=(1200, 3))
    clf = quick(GaussianNB(), confidence=FIVE).fit(X, y)
    assert {name.split(",")[0] for name in clf.selection_["candidate"]} == {"own ranking"}
    assert not any(one.verdict.accepted for one in clf.folds_[0].record)


@pytest.mark.parametrize("both", [False, True])
def test_paths_follow_the_better_columns_unless_both_are_asked_for(coarse, both):
    X, y = coarse[:2]
    forest = RandomForestClassifier(20, max_depth=2, random_state=0)
    table = quick(forest, both_columns=both).fit(X, y).selection_
    on_path = np.char.find(table["candidate"].astype(str), "gamma") >= 0
    columns = set(table["columns"][on_path])
    assert "averaged RandomForestClassifier and plain" in columns  # they break the ties
    assert len(columns) == 1 + both
