"""Classifiers that rare labels break, or that are broken anyhow: it is noticed, said, and mended."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from makers import baseline, both, quick_on_top
from tightset import ConformalClassifier, TightsetWarning
from tightset.models.classifiers import fit_base


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads of small trees would wait for each other, where two tests run side by side."""
    with threadpool_limits(1):
        yield


def grid_with_a_rare_label(seed=0, n=4000):
    """Categories that decide the label, and a label of two rows, which ruins scikit-learn's gradient boosting."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, [3, 5, 4, 4, 3, 2, 3, 3], size=(n, 8))
    points = levels @ np.array([3, 2, 2, 1, 2, 1, 1, 4])
    y = np.where(levels[:, 7] == 0, 0, np.digitize(points, [16, 21]) + 1)
    X = np.hstack([np.eye(5)[column] for column in levels.T])
    return X, y


def with_rare(y, at=(0, 1)):
    y = y.copy()
    y[list(at)] = 9
    return y


def boosted():
    return HistGradientBoostingClassifier(max_iter=40, learning_rate=0.2, max_leaf_nodes=15, random_state=0)


def test_a_classifier_that_a_rare_label_breaks_is_trained_without_it():
    X, y = grid_with_a_rare_label()
    broken = boosted().fit(X, with_rare(y))
    trained = fit_base(boosted(), X, with_rare(y))
    assert broken.score(X[2:], y[2:]) < 0.95  # the trouble is still there
    assert trained.without == (9,)
    assert trained.model.score(X[2:], y[2:]) > 0.98
    assert fit_base(boosted(), X[2:], y[2:]).without == ()
    assert fit_base(RandomForestClassifier(5), X, with_rare(y)).without == ()


def test_both_predictors_say_so_and_have_small_sets():
    X, y = grid_with_a_rare_label()
    X_new, y_new = grid_with_a_rare_label(1, 1000)
    for clf in (
        ConformalClassifier(boosted(), confidence=0.9, random_state=0),
        quick_on_top(boosted(), confidence=0.9),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            clf.fit(X, with_rare(y), X_cal=X_new[:500], y_cal=y_new[:500])
        name = "HistGradientBoostingClassifier is broken by labels with very few rows (9)"
        assert any(name in str(one.message) for one in told)
        row = clf.evaluate(X_new[500:], y_new[500:])
        assert row["mean_size"] < 1.05
        assert row["coverage"] > 0.9 - 4 * np.sqrt(2 * 0.09 / 500)


class FailsOnRareLabels(ClassifierMixin, BaseEstimator):
    """As gradient boosting does that wants to stop early."""

    def fit(self, X, y):
        if np.unique(y, return_counts=True)[1].min() < 2:
            raise ValueError("The least populated classes in y have only 1 member")
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


def test_a_classifier_that_cannot_be_trained_with_a_rare_label_is_trained_without():
    X, y = grid_with_a_rare_label(n=600)
    y[0] = 9
    trained = fit_base(FailsOnRareLabels(), X, y)
    assert trained.without == (9,)
    assert "only 1 member" in trained.why
    with pytest.raises(ValueError, match="only 1 member"):
        fit_base(FailsOnRareLabels(), X[:20], np.arange(20))


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_scores_that_are_worse_than_a_guess_are_told_of(scale, blobs):
    X, y = blobs
    P = np.exp(scale * LogisticRegression().fit(X, y).decision_function(X))
    P[:, 0] += 1e-9
    P /= P.sum(axis=1, keepdims=True)
    rare = np.where(np.arange(len(y)) % 3 > 0, 2, y)  # most rows have one label
    with pytest.warns(TightsetWarning, match="did not learn, or has diverged"):
        baseline(estimator="precomputed").fit(P, rare)


def test_balanced_weights_are_no_sign_of_trouble():
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=2000) < 0.05).astype(int)
    X = rng.standard_normal((2000, 2)) + 1.2 * y[:, None]
    clf = baseline(estimator=LogisticRegression(class_weight="balanced")).fit(X, y)
    assert clf.evaluate(X, y)["mean_size"] < 2


@both
def test_a_label_of_rows_without_weight_is_left_out_and_told_of(make, blobs):
    X, y = blobs
    with pytest.warns(TightsetWarning, match="every row of label 0 has weight 0"):
        clf = make().fit(X, y, sample_weight=(y > 0) * 1.0)
    np.testing.assert_array_equal(clf.classes_, np.unique(y[y > 0]))
    with pytest.warns(TightsetWarning, match="labels that were not in training"):
        clf.evaluate(X, y)
