"""`SCPOClassifier(estimator=...)`: on top of anything that scores classes, and clear errors where that fails."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from makers import quick_on_top as quick
from tightset import ConformalClassifier
from tightset.compute.progress import Progress
from tightset.conformal.splits import fold_of_rows
from tightset.models.crossfit import CrossFitting, cross_fit


def check_sets(clf, X, y, confidence=0.9):
    row = clf.evaluate(X, y)
    assert row["coverage"] > confidence - 0.05
    assert row["mean_size"] < 0.9 * len(clf.classes_)
    return row


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(10),
        HistGradientBoostingClassifier(max_iter=5),
        make_pipeline(StandardScaler(), LogisticRegression()),
        GaussianNB(),
        KNeighborsClassifier(),
        LinearSVC(),
        RidgeClassifier(),
        SVC(),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_kind_of_classifier_covers_and_excludes(labelled_rows, estimator):
    X, y, X_new, y_new = labelled_rows
    clf = quick(estimator).fit(X, y)
    check_sets(clf, X_new, y_new)
    again = quick(clone(estimator)).fit(X, y)
    np.testing.assert_array_equal(clf.predict_p(X_new), again.predict_p(X_new))  # even where the classifier has no seed
    copy = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(copy.predict_set(X_new), clf.predict_set(X_new))


def test_frames_with_text_and_missing_values_pass_untouched(labelled_rows):
    X, y, X_new, y_new = labelled_rows

    def frame(X):
        table = pd.DataFrame(X.copy(), columns=list("abcde"))
        table["kind"] = np.where(X[:, 0] > 0, "left", "right")
        table.loc[table.index % 7 == 0, "e"] = np.nan
        return table

    pipeline = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough"),
        HistGradientBoostingClassifier(max_iter=10),
    )
    labels = np.array(["x", "y", "z"])
    clf = quick(pipeline, confidence=[0.8, 0.9]).fit(frame(X), labels[y])
    rows = clf.evaluate(frame(X_new), labels[y_new])
    assert [row["coverage"] > level - 0.05 for level, row in zip((0.8, 0.9), rows, strict=True)] == [True, True]
    assert not any("and plain" in name for name in clf.selection_["columns"])  # text stands beside nothing
    assert clf.feature_names_in_.tolist() == [*"abcde", "kind"]
    with pytest.raises(ValueError, match="feature names"):
        clf.predict_set(frame(X_new).drop(columns="a"))


def test_texts():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    words = np.array([["red", "blue"], ["sun", "rain"]])
    texts = np.array([" ".join(words[i, (rng.random(4) < 0.3 + 0.4 * label).astype(int)].ravel().tolist()) for i, label in zip(rng.integers(2, size=300), y, strict=True)])  # fmt: skip
    clf = quick(make_pipeline(TfidfVectorizer(), MultinomialNB()), confidence=0.8).fit(texts, y)
    assert clf.evaluate(texts, y)["coverage"] > 0.75


def test_sparse_rows(labelled_rows, few_trees):
    X, y, X_new, y_new = labelled_rows
    X, X_new = (sparse.csr_array(np.where(np.abs(A) > 0.5, A, 0)) for A in (X, X_new))
    for estimator in (LogisticRegression(), "auto"):
        clf = quick(estimator).fit(X, y)
        check_sets(clf, X_new, y_new)
        np.testing.assert_array_equal(clf.predict_p(X_new[:50]), clf.predict_p(X_new)[:50])


def test_a_frozen_classifier_stays_as_it_is(labelled_rows):
    X, y, X_new, y_new = labelled_rows
    model = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    before = model.predict_proba(X_new)
    clf = quick(FrozenEstimator(model), both_columns=True).fit(X[200:], y[200:])
    np.testing.assert_array_equal(model.predict_proba(X_new), before)
    check_sets(clf, X_new, y_new)
    # its probabilities given as an array train the same measures, but for the columns that stand beside them
    bare = quick("precomputed").fit(model.predict_proba(X[200:]), y[200:])
    alone = bare.selection_["columns"] == "given scores"
    assert alone.all()
    same = clf.selection_["columns"] == "RandomForestClassifier"
    np.testing.assert_allclose(bare.selection_["criterion"], clf.selection_["criterion"][same], rtol=1e-6)
    check_sets(bare, model.predict_proba(X_new), y_new)


def test_a_frozen_classifier_may_know_more_classes_than_are_calibrated(labelled_rows):
    X, y, X_new, _ = labelled_rows
    model = GaussianNB().fit(X[:200], y[:200])
    some = y[200:] != 2
    with pytest.warns(UserWarning, match="no calibration row has the label 2"):
        clf = quick(FrozenEstimator(model)).fit(X[200:][some], y[200:][some])
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_set(X_new).shape == (len(X_new), 3)
    few = GaussianNB().fit(X[:200][y[:200] < 2], y[:200][y[:200] < 2])
    with pytest.raises(ValueError, match=r"y has labels that GaussianNB was not trained on: \[2\]"):
        quick(FrozenEstimator(few)).fit(X[200:], y[200:])


def test_any_scores_can_be_given(labelled_rows):
    X, y, X_new, y_new = labelled_rows
    model = LinearSVC().fit(X[:200], y[:200])
    clf = quick("precomputed").fit(1000 * model.decision_function(X[200:]), y[200:])
    check_sets(clf, 1000 * model.decision_function(X_new), y_new)
    assert clf.selection_["columns"][0] == "given scores"


# ---- what is trained --------------------------------------------------------------------------------------------


def test_held_out_scores_come_from_models_that_have_not_seen_the_row(labelled_rows):
    X, y = labelled_rows[:2]
    folds = np.stack([fold_of_rows(y, 3, np.random.default_rng(seed)) for seed in (0, 1)])
    tree = DecisionTreeClassifier(random_state=0)  # in-sample it is always right
    with Progress(show=False) as progress:
        fitted = cross_fit(tree, X, y, None, CrossFitting(np.arange(3), folds, np.random.default_rng(0), progress))
    own = np.arange(len(y)), y
    assert 0.4 < (fitted.held_out_whole[own] > -0.1).mean() < 0.9
    assert (fitted.whole.scores(X)[own] == 0).all()
    assert len(fitted.averaged.models) == 7
    first = tree.fit(X[folds[0] != 0], y[folds[0] != 0])
    held = folds[0] == 0
    np.testing.assert_allclose(np.exp(fitted.held_out_whole[held]), first.predict_proba(X[held]), atol=1e-9)
    both = [tree.fit(X[f != f[5]], y[f != f[5]]).predict_proba(X[[5]]) for f in folds]
    np.testing.assert_allclose(np.exp(fitted.held_out_averaged[[5]]), np.mean(both, axis=0), atol=2e-5)
    weights = fitted.averaged.weights
    assert weights[-1] == 0.5
    np.testing.assert_allclose(weights[:-1], 0.5 / 6)


def test_the_plain_threshold_and_the_own_ranking_are_candidates(labelled_rows):
    X, y = labelled_rows[:2]
    clf = quick(RandomForestClassifier(10, random_state=0)).fit(X, y)
    table = clf.selection_
    assert {"RandomForestClassifier", "averaged RandomForestClassifier", "averaged RandomForestClassifier and plain"} == set(table["columns"])  # fmt: skip
    assert (table["candidate"] == "own ranking, pull inf, RandomForestClassifier columns").sum() == 1
    alone = quick(RandomForestClassifier(10, random_state=0), average=False).fit(X, y)
    model = alone.folds_[0].models[0]
    assert sum(len(block.models) for block in model.blocks if block is not None) == 1


def test_few_rows_leave_the_classifier_as_it_is(labelled_rows):
    X, y, X_new, _ = labelled_rows
    forest = RandomForestClassifier(20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = quick(forest, confidence=0.7).fit(X[:40], y[:40], X_cal=X[40:100], y_cal=y[40:100])
        plain = ConformalClassifier(forest, confidence=0.7).fit(X[:40], y[:40], X_cal=X[40:100], y_cal=y[40:100])
    np.testing.assert_array_equal(ours.predict_set(X_new), plain.predict_set(X_new))
    assert "too few to choose a model; plain RandomForestClassifier is used" in ours.summary()


def test_where_nothing_is_gained_the_start_stays():
    """The classifier knows the true probabilities: nothing is to be gained, on any of several draws."""
    kept = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        P = rng.dirichlet(np.full(4, 0.7), 900)
        y = (P.cumsum(axis=1) > rng.random((900, 1))).argmax(axis=1)
        clf = quick("precomputed").fit(P[:600], y[:600])
        kept += not clf.folds_[0].record[0].verdict.accepted
        plain = ConformalClassifier("precomputed", confidence=0.9).fit(P[450:600], y[450:600])
        assert clf.evaluate(P[600:], y[600:])["mean_size"] < 1.12 * plain.evaluate(P[600:], y[600:])["mean_size"]
    assert kept >= 3


def test_sets_are_smaller_where_the_classifier_is_coarse():
    """A forest of stumps ranks rows by few distinct values; held-out training on top breaks the ties."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 4))
    y = np.argmax(2 * X[:, :4] + rng.gumbel(size=(3000, 4)), axis=1)
    forest = RandomForestClassifier(20, max_depth=2, random_state=0)
    plain = ConformalClassifier(forest, confidence=0.9, random_state=0).fit(X[:1500], y[:1500])
    ours = quick(forest).fit(X[:1500], y[:1500])
    sizes = [clf.evaluate(X[1500:], y[1500:])["mean_size"] for clf in (ours, plain)]
    assert sizes[0] < 0.85 * sizes[1]
    assert "smaller" in ours.summary()


def test_several_levels_categories_weights_and_folds(labelled_rows):
    X, y, X_new, y_new = labelled_rows
    clf = quick(GaussianNB(), confidence=[0.7, 0.9], label_conditional=True, allow_empty=False)
    clf.fit(X, y, sample_weight=np.linspace(0, 1, len(y)), groups=X[:, 4] > 0)
    low, high = clf.predict_set(X_new, groups=X_new[:, 4] > 0)
    assert low.any(axis=1).all()
    assert high.mean() > low.mean()
    one = quick(GaussianNB(), confidence=0.9).fit(X, y)
    both = quick(GaussianNB(), confidence=[0.7, 0.9]).fit(X, y)
    np.testing.assert_array_equal(
        both.predict_set(X_new)[1], one.predict_set(X_new)
    )  # levels do not disturb each other
    check_sets(quick(GaussianNB(), cv=3).fit(X, y), X_new, y_new)


def test_parameters_of_the_classifier_can_be_searched(labelled_rows):
    X, y = labelled_rows[:2]
    search = GridSearchCV(quick(DecisionTreeClassifier(random_state=0)), {"estimator__max_depth": [1, 4]}, cv=2)
    search.fit(X, y)
    assert search.best_estimator_.estimator.max_depth in (1, 4)
    assert (search.cv_results_["mean_test_score"] > 0.6).all()


def test_the_result_does_not_depend_on_the_number_of_jobs(labelled_rows):
    X, y, X_new, _ = labelled_rows
    one, two = (quick(RandomForestClassifier(5), n_jobs=n).fit(X, y).predict_p(X_new) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


# ---- auto -------------------------------------------------------------------------------------------------------


def test_auto_finds_what_suits_the_data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1800, 3))
    checkers = (np.floor(X[:, 0]) + 2 * np.floor(X[:, 1])).astype(int) % 4  # for trees
    checkers = np.where(rng.random(1800) < 0.15, rng.integers(4, size=1800), checkers)
    linear = np.argmax(3 * X @ rng.normal(size=(3, 4)) + rng.gumbel(size=(1800, 4)), axis=1)
    forest = RandomForestClassifier(50, random_state=0)
    for y, other, share in ((checkers, LogisticRegression(), 0.6), (linear, forest, 0.97)):
        auto = quick("auto", confidence=0.8).fit(X[:900], y[:900])
        plain = ConformalClassifier(other, confidence=0.8, random_state=0).fit(X[:900], y[:900])
        size, theirs = (clf.evaluate(X[900:], y[900:])["mean_size"] for clf in (auto, plain))
        assert size < share * theirs
        assert auto.evaluate(X[900:], y[900:])["coverage"] > 0.75


def test_auto_takes_missing_values(labelled_rows, few_trees):
    X, y, X_new, y_new = (part.copy() for part in labelled_rows)
    X[::9, 1] = np.nan
    X_new[::11, 2] = np.nan
    clf = quick("auto").fit(X, y)
    check_sets(clf, X_new, y_new)
    assert not any("logistic" in name for name in clf.selection_["candidate"] if "plain" in name)
