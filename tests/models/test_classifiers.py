"""Classifiers that misbehave, odd rows and scores: clear errors, and sets that stay sound."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from makers import quick_on_top as quick
from tightset import ConformalClassifier, Search
from tightset.compute.progress import Progress
from tightset.models.class_scores import Given, class_scores
from tightset.models.crossfit import CrossFitting, cross_fit

# ---- what goes wrong --------------------------------------------------------------------------------------------


class Awkward(ClassifierMixin, BaseEstimator):
    """A classifier that does as it is told."""

    def __init__(self, fails=None, result=None):
        self.fails = fails
        self.result = result

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        if self.fails is not None and len(X) == self.fails:
            raise RuntimeError("out of cheese")
        return self

    def predict_proba(self, X):
        P = np.full((len(X), len(self.classes_)), 1 / len(self.classes_))
        if self.result == "nan":
            P[3] = np.nan
        if self.result == "narrow":
            P = P[:, 1:]
        if self.result == "short":
            P = P[1:]
        return P


def test_a_fit_that_fails_in_a_fold_is_told_with_the_fold_and_leaves_the_earlier_fit(labelled_rows):
    X, y, X_new, _ = labelled_rows
    clf = quick(GaussianNB()).fit(X, y)
    before = clf.predict_p(X_new)
    k = 3 * len(y) // 4  # that train; a third of them is held out
    clf.estimator = Awkward(fails=k - k // 3)
    with pytest.raises(
        ValueError,
        match=r"Awkward could not be trained on the 300 rows outside fold 1 of 3: RuntimeError: out of cheese",
    ):
        clf.fit(X, y)
    np.testing.assert_array_equal(clf.predict_p(X_new), before)
    clf.estimator = Awkward(fails=k)
    with pytest.raises(ValueError, match="could not be trained on the 450 rows that train"):
        clf.fit(X, y)


def test_an_interrupted_fit_leaves_the_earlier_one(labelled_rows, monkeypatch):
    X, y, X_new, _ = labelled_rows
    clf = quick(GaussianNB()).fit(X, y)
    before = clf.predict_p(X_new)
    fits = []

    def interrupted(self, *args, **more):
        fits.append(1)
        if len(fits) == 3:
            raise KeyboardInterrupt
        return fit(self, *args, **more)

    fit = GaussianNB.fit
    monkeypatch.setattr(GaussianNB, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X[:500], y[:500])
    np.testing.assert_array_equal(clf.predict_p(X_new), before)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("nan", "Awkward gave scores that are NaN, first in row 3"),
        ("narrow", "gave 2 scores per row for 3 classes"),
        ("short", r"gave \d+ rows of scores for \d+ rows of X"),
    ],
)
@pytest.mark.parametrize("make", [quick, lambda one: ConformalClassifier(one, random_state=0)])
def test_bad_probabilities_are_named(labelled_rows, make, result, message):
    with pytest.raises(ValueError, match=message):
        make(Awkward(result=result)).fit(*labelled_rows[:2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": RandomForestClassifier}, "estimator must be an instance"),
        ({"estimator": "best"}, "estimator must be a classifier, 'auto', 'precomputed' or one of 'hgb'.*got 'best'"),
        ({"estimator": StandardScaler()}, "StandardScaler has neither"),
        ({"search": "grid"}, "leave estimator out"),
        ({"estimator": None, "search": Search(boost="lightgbm")}, "give one, or estimator='auto'"),
    ],
)
def test_wrong_settings_are_named(labelled_rows, change, message):
    with pytest.raises(ValueError, match=message):
        quick(GaussianNB()).set_params(**change).fit(*labelled_rows[:2])


def test_weights_for_a_classifier_that_takes_none(labelled_rows):
    X, y = labelled_rows[:2]
    with pytest.raises(ValueError, match="KNeighborsClassifier cannot be trained with weights"):
        quick(KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(len(y)))


def test_bad_bare_scores(labelled_rows):
    X, y = labelled_rows[:2]
    with pytest.raises(ValueError, match="X has 5 columns of scores, but y holds 3 classes"):
        quick("precomputed").fit(X, np.array(["a", "b", "c"])[y])
    X = X[:, :3].copy()
    X[7, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        quick("precomputed").fit(X, y)
    with pytest.raises(ValueError, match="X has scores that are NaN, first in row 7"):
        ConformalClassifier("precomputed").fit(X, y)


def test_scores_of_a_class_that_the_model_does_not_know_are_the_least():
    model = GaussianNB().fit(np.eye(4)[[0, 0, 1, 1]] + 0.1 * np.arange(16).reshape(4, 4), [0, 0, 2, 2])
    assert class_scores(model, np.eye(4), np.arange(3))[:, 1].tolist() == [0] * 4
    with pytest.raises(ValueError, match=r"predicts the classes \[2\], which y does not have"):
        class_scores(model, np.eye(4), np.arange(2))
    assert class_scores(Given(np.arange(2)), np.eye(2), np.arange(2)).tolist() == [[1, 0], [0, 1]]


# ---- found by review --------------------------------------------------------------------------------------------


def sharpened(power, seed=0):
    """Probabilities of a classifier that is far too sure of itself."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(1200, 6))
    y = np.argmax(logits + rng.gumbel(size=(1200, 6)), axis=1)
    P = np.exp(power * logits)
    return P / P.sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("power", [1, 8, 12])
def test_what_is_kept_promises_no_more_than_the_classifier_as_it_is(power):
    P, y = sharpened(power)
    clf = quick("precomputed", confidence=0.95).fit(P[:700], y[:700])
    verdict, table = clf.folds_[0].record[0].verdict, clf.selection_
    plain = table["criterion"][0]
    assert verdict.baseline == plain
    if verdict.accepted:
        assert verdict.ensemble < plain
    assert table["weight"].sum() == pytest.approx(1)
    theirs = ConformalClassifier("precomputed", confidence=0.95).fit(P[525:700], y[525:700])
    sizes = [one.evaluate(P[700:], y[700:])["mean_size"] for one in (clf, theirs)]
    assert sizes[0] < 1.08 * sizes[1]


@pytest.mark.parametrize(
    "estimator", [RidgeClassifier(), LinearSVC(), GaussianNB()], ids=lambda one: type(one).__name__
)
def test_a_class_that_a_fold_has_not_seen_does_not_spoil_the_scores(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    y = np.argmax(X[:, :3] + rng.gumbel(size=(1000, 3)), axis=1)
    rare = y.copy()
    rare[0] = 3
    sizes = []
    for labels in (y, rare):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf = quick(estimator).fit(X[:500], labels[:500], X_cal=X[500:700], y_cal=y[500:700])
        sizes.append(clf.predict_set(X[700:]).sum(axis=1).mean())
    assert sizes[1] < 1.15 * sizes[0]
    folds = np.arange(500)[None] % 3
    with Progress(show=False) as progress:
        fitted = cross_fit(estimator, X[:500], rare[:500], None, CrossFitting(np.arange(4), folds, rng, progress))
    new = fitted.averaged.scores(X[500:])
    assert new.min() >= fitted.held_out_averaged.min() - 2  # of the range that measures were trained on


def test_missing_values_in_new_rows_do_not_hang_on_what_was_chosen(labelled_rows, few_trees):
    X, y, X_new, y_new = labelled_rows
    holes = X_new.copy()
    holes[::3, 0] = np.nan
    for estimator in (HistGradientBoostingClassifier(max_iter=1, max_depth=1), "auto"):
        clf = quick(estimator).fit(X, y)
        assert clf.evaluate(holes, y_new)["coverage"] > 0.75
        np.testing.assert_array_equal(clf.predict_set(holes)[1::3], clf.predict_set(X_new)[1::3])
    few = quick("auto", confidence=0.7)
    X_few = X[:60].copy()
    X_few[::5, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert few.fit(X_few, y[:60]).predict_set(holes).shape == (len(holes), 3)


def test_rows_score_alike_in_any_batch_in_single_precision_too(labelled_rows):
    X, y, X_new, _ = (part.astype(np.float32) if part.dtype == float else part for part in labelled_rows)
    for clf in (
        quick(LogisticRegression()),
        ConformalClassifier(LogisticRegression(), confidence=0.9, random_state=0),
    ):
        clf.fit(X, y)
        alone = np.concatenate([clf.predict_p(X_new[at : at + 1]) for at in range(60)])
        np.testing.assert_array_equal(alone, clf.predict_p(X_new)[:60])


def test_pairs_of_classes_are_refused_wherever_they_hide(labelled_rows):
    X, y = labelled_rows[:2]
    pairs = SVC(decision_function_shape="ovo")
    for hidden in (
        GridSearchCV(pairs, {"C": [1.0]}, cv=2),
        FrozenEstimator(make_pipeline(StandardScaler(), pairs).fit(X, y)),
    ):
        with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
            ConformalClassifier(hidden).fit(X, y)


def test_named_columns_of_scores_must_be_in_order(labelled_rows):
    P = GaussianNB().fit(*labelled_rows[:2]).predict_proba(labelled_rows[2])
    labels = np.array(["a", "b", "c"])[labelled_rows[3]]
    for make in (quick, ConformalClassifier):
        make("precomputed").fit(pd.DataFrame(P, columns=list("abc")), labels)
        with pytest.raises(ValueError, match=r"must be in the order of the sorted labels, \['a', 'b', 'c'\]"):
            make("precomputed").fit(pd.DataFrame(P[:, ::-1], columns=list("cba")), labels)


def test_columns_do_not_give_away_own_labels_beside_scores_that_are_linear_in_them():
    """A held-out score lacks the row's own label; a linear classifier's columns would tell by how much."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1600, 25))
    y = np.argmax(0.7 * X[:, :3] + rng.gumbel(size=(1600, 3)), axis=1)
    clf = quick(LogisticRegression(), confidence=0.9).fit(X[:400], y[:400])
    assert not any("and plain" in name for name in clf.selection_["columns"])
    plain = ConformalClassifier(LogisticRegression(), confidence=0.9, random_state=0).fit(X[:400], y[:400])
    sizes = [one.evaluate(X[400:], y[400:])["mean_size"] for one in (clf, plain)]
    assert sizes[0] < 1.03 * sizes[1]
    verdict = clf.folds_[0].record[0].verdict
    assert verdict.ensemble > 0.93 * verdict.baseline  # what is promised can be kept
    forest = quick(RandomForestClassifier(10, random_state=0)).fit(X[:400], y[:400])
    assert any("and plain" in name for name in forest.selection_["columns"])
