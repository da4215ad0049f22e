"""Conventions of scikit-learn: names for classifiers, weights of labels, scorers, frozen estimators."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import tightset
from makers import scpo
from tightset import ConformalClassifier, SCPOClassifier
from tightset.metrics import size_scorer
from tightset.models.named import NAMES, named_classifier


@pytest.mark.parametrize("name", NAMES)
def test_classifiers_have_names(name, blobs):
    X, y = blobs
    by_name = ConformalClassifier(name, confidence=0.8, random_state=0).fit(X, y)
    given = ConformalClassifier(named_classifier(name), confidence=0.8, random_state=0).fit(X, y)
    np.testing.assert_array_equal(by_name.predict_p(X), given.predict_p(X))


def test_scpo_on_a_classifier_by_name_is_kept_in_a_file(blobs, tmp_path):
    X, y = blobs
    clf = scpo(estimator="logistic", confidence=0.8, max_iter=5).fit(X, y)
    clf.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    assert again.estimator == "logistic"
    np.testing.assert_array_equal(again.predict_p(X), clf.predict_p(X))


@pytest.mark.parametrize("make", [SCPOClassifier, ConformalClassifier])
def test_a_name_that_there_is_not_is_told_with_those_that_there_are(make, blobs):
    with pytest.raises(ValueError, match=r"one of 'hgb', 'rf', .*; got 'forest'"):
        make(estimator="forest").fit(*blobs)


def test_a_frozen_estimator_is_calibrated_without_a_fit(blobs):
    X, y = blobs
    model = FrozenEstimator(RandomForestClassifier(10, random_state=0).fit(X[:300], y[:300]))
    once = ConformalClassifier(model, confidence=0.8).calibrate(X[300:], y[300:])
    np.testing.assert_array_equal(
        once.predict_p(X), ConformalClassifier(model, confidence=0.8).fit(X[300:], y[300:]).predict_p(X)
    )
    again = once.calibrate(X[300:400], y[300:400])
    assert again.fitted_.calibration_rows().total() == 100
    with pytest.raises(ValueError, match="not fitted"):
        ConformalClassifier(confidence=0.8).calibrate(X, y)


@pytest.mark.parametrize("make", [ConformalClassifier, lambda **how: scpo(max_iter=5, **how)])
def test_weights_of_labels_are_weights_of_their_rows(make, blobs):
    X, y = blobs
    weight = np.array([1.0, 3.0, 1.0])
    by_label = make(class_weight={0: 1, 1: 3, 2: 1}, confidence=0.8, random_state=0).fit(X, y)
    by_row = make(confidence=0.8, random_state=0).fit(X, y, weight[y])
    np.testing.assert_array_equal(by_label.predict_p(X), by_row.predict_p(X))
    plain = make(confidence=0.8, random_state=0).fit(X, y)
    assert (plain.predict_p(X) != by_row.predict_p(X)).any()
    for wrong in ("balance", 3, {0: -1, 1: 1}):
        with pytest.raises(ValueError, match="class_weight must be"):
            make(class_weight=wrong).fit(X, y)


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")  # the weak one is no better than a guess
def test_a_search_tunes_for_size_and_lost_coverage_gains_nothing(blobs):
    X, y = blobs
    settings = {"estimator__C": [1e-6, 1.0], "calibration_size": [0.3]}
    search = GridSearchCV(
        ConformalClassifier(LogisticRegression(), random_state=0), settings, scoring=size_scorer(0.9), cv=3
    )
    search.fit(X, y)
    assert search.best_params_["estimator__C"] == 1.0
    assert (search.cv_results_["mean_test_score"] < 0).all()
    honest = ConformalClassifier(confidence=0.9, random_state=0).fit(X[:300], y[:300])
    careless = ConformalClassifier(confidence=0.5, random_state=0).fit(X[:300], y[:300])  # far smaller sets, that miss
    assert careless.evaluate(X[300:], y[300:])["mean_size"] < 0.8 * honest.evaluate(X[300:], y[300:])["mean_size"]
    assert size_scorer(0.9)(careless, X[300:], y[300:]) == size_scorer()(honest, X[300:], y[300:])
    with pytest.raises(ValueError, match="several levels: name one"):
        size_scorer()(ConformalClassifier(confidence=[0.8, 0.9]).fit(X, y), X, y)
