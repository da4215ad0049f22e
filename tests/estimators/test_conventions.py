"""Conventions of scikit-learn: names for classifiers, weights of labels, scorers, frozen estimators."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

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


def test_the_scorer_looks_into_pipelines_and_searches(blobs):
    X, y = blobs
    clf = ConformalClassifier(LogisticRegression(), confidence=0.9, random_state=0)
    pipe = make_pipeline(StandardScaler(), clf)
    search = GridSearchCV(pipe, {"conformalclassifier__estimator__C": [1.0]}, scoring=size_scorer(), cv=2).fit(X, y)
    fitted = search.best_estimator_
    by_hand = size_scorer()(fitted[-1], fitted[:-1].transform(X), y)
    assert size_scorer()(search, X, y) == size_scorer()(fitted, X, y) == by_hand
    assert size_scorer()(Pipeline([("clf", clf)]).fit(X, y), X, y) == size_scorer()(clf.fit(X, y), X, y)
    assert (cross_val_score(pipe, X, y, scoring=size_scorer(), cv=2, error_score="raise") > -3).all()
    with pytest.raises(TypeError, match="got LogisticRegression"):
        size_scorer()(LogisticRegression().fit(X, y), X, y)


def test_the_scorer_says_when_rows_are_too_few_to_tell(blobs):
    X, y = blobs
    clf = ConformalClassifier(confidence=0.95, random_state=0).fit(X, y)
    with pytest.warns(tightset.TightsetWarning, match="18 rows cannot tell sizes at confidence 0.95, which needs 19"):
        assert size_scorer()(clf, X[:18], y[:18]) == -3
    assert size_scorer()(clf, X[:19], y[:19]) > -3


@pytest.mark.parametrize("make", [ConformalClassifier, SCPOClassifier])
@pytest.mark.parametrize(
    ("level", "rows"),
    [
        (0.999999999999, "999,999,999,999"),
        (0.9999999995, "1,999,999,999"),
        (np.float64(0.999999999999), "999,999,999,999"),
        ([0.9, 1 - 2**-53], "9,999,999,999,999,999"),
    ],
)
def test_a_level_next_to_one_is_told_what_it_would_need(make, level, rows, blobs):
    clf = make(confidence=level)
    with pytest.raises(ValueError, match=f"at most 0.999999999; got 0.9999.* would need {rows} calibration rows"):
        clf.fit(*blobs)
    with pytest.raises(ValueError, match=f"would need {rows} calibration rows"):
        ConformalClassifier(random_state=0).fit(*blobs).predict_set(blobs[0], confidence=level)


@pytest.mark.parametrize("make", [ConformalClassifier, lambda **how: scpo(max_iter=5, **how)])
def test_the_highest_level_gives_full_sets_and_says_why(make, blobs):
    X, y = blobs
    with pytest.warns(tightset.TightsetWarning, match="confidence 0.999999999 needs 999,999,999 to exclude a label"):
        clf = make(confidence=0.999999999).fit(X, y)
    assert clf.predict_set(X).all()


def test_weights_of_labels_are_refused_where_nothing_is_trained(blobs):
    X, y = blobs
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    with pytest.raises(ValueError, match="class_weight is for training"):
        ConformalClassifier(frozen, class_weight="balanced").fit(X, y)
    with pytest.raises(ValueError, match="class_weight was given, but KNeighborsClassifier cannot"):
        ConformalClassifier(KNeighborsClassifier(), class_weight="balanced").fit(X, y)


def test_a_pipeline_inside_and_around_as_the_readme_has_it(blobs, tmp_path):
    X, y = blobs
    text = (Path(__file__).parents[2] / "README.md").read_text().replace("\n", " ")
    inside, around = (
        re.search(f"`({start}[^`]*)`", text)[1] for start in (r"SCPOClassifier\(estimator=make_pipe", r"pipe\[")
    )
    clf = eval(inside).set_params(search="fast", estimator__randomforestclassifier__n_estimators=5).fit(X, y)
    clf.calibrate(X[:200], y[:200]).save(tmp_path / "m.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "m.tightset").predict_set(X), clf.predict_set(X))
    pipe = make_pipeline(StandardScaler(), ConformalClassifier(random_state=0)).fit(X, y)
    assert not hasattr(pipe, "predict_set")  # if ever it has, the page can say less
    assert eval(around, {"pipe": pipe, "X_new": X}).shape == (len(y), 3)
