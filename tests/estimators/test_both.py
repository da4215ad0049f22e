"""Both estimators as scikit-learn and its users meet them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from makers import ON_TOP, baseline, both, quick_grid, quick_scpo, scpo
from tightset import ConformalClassifier, Grid, SCPOClassifier, TightsetWarning
from tightset.conformal.splits import calibration_split, stratified_split


# The checks fit a handful of rows, which is warned about.
@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
# The paper's grid takes thousands of steps on sixteen rows; fewer steps go through the same code.
@parametrize_with_checks(
    [
        SCPOClassifier(),
        scpo(confidence=(0.5, 0.8), label_conditional=True, max_iter=20),
        SCPOClassifier.paper(max_iter=200),
        ConformalClassifier(),
        ConformalClassifier(LogisticRegression(), confidence=0.8),
        SCPOClassifier(0.8, estimator=LogisticRegression(), search=ON_TOP, allow_empty=False),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ---- validity and size ----------------------------------------------------------------------------------------------


@both
def test_sets_are_valid_and_small(make, blobs):
    X, y = blobs
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(30):
        order = rng.permutation(len(y))
        train, cal, test = np.split(order, [200, 400])
        clf = make(confidence=0.9, max_iter=100) if make is quick_scpo else make(confidence=0.9)
        rows.append(clf.fit(X[train], y[train], X_cal=X[cal], y_cal=y[cal]).evaluate(X[test], y[test]))
    # Mean coverage of 30 splits: deviation about 0.006 around at least 0.9.
    assert 0.875 < np.mean([row["coverage"] for row in rows]) < 0.93
    assert np.mean([row["mean_size"] for row in rows]) < 1.5  # guessing without x would need 2.7


def test_scpo_beats_the_baseline_where_a_linear_threshold_can(blobs):
    """One class wrapped around by others: logistic probabilities mislead, a trained measure need not."""
    rng = np.random.default_rng(1)
    n = 3000
    y = rng.integers(0, 4, n)
    X = rng.standard_normal((n, 2)) + np.array([[0, 0], [6, 0], [-6, 0], [0, 6]])[y]
    X[y == 0] *= 4
    train, cal, test = np.split(np.arange(n), [1000, 2000])
    sizes = [
        clf.fit(X[train], y[train], X_cal=X[cal], y_cal=y[cal]).evaluate(X[test], y[test])["mean_size"]
        for clf in (SCPOClassifier.paper(0.95, max_iter=500), ConformalClassifier())
    ]
    assert sizes[0] < sizes[1]


@both
def test_p_values_sets_and_evaluation_say_the_same(make, blobs):
    X, y = blobs
    clf = make(confidence=0.9).fit(X, y)
    p, sets = clf.predict_p(X), clf.predict_set(X)
    np.testing.assert_array_equal(sets, p > 0.1 + 1e-12)
    row = clf.evaluate(X, y)
    assert row["coverage"] == sets[np.arange(len(y)), y].mean()
    assert row["mean_size"] == sets.sum(axis=1).mean()
    labels = clf.predict_set(X, as_labels=True)
    assert [list(kept) for kept in labels] == [list(clf.classes_[row]) for row in sets]


@both
def test_label_conditional_covers_every_label(make):
    rng = np.random.default_rng(2)
    y = (rng.uniform(size=4000) < 0.15).astype(int)  # a minority that marginal calibration sacrifices
    X = rng.standard_normal((4000, 2)) + y[:, None]
    gaps = [
        make(confidence=0.9, label_conditional=by_label).fit(X[:2000], y[:2000]).evaluate(X[2000:], y[2000:])
        for by_label in (False, True)
    ]
    assert gaps[0]["worst_label_gap"] > 0.1
    assert gaps[1]["worst_label_gap"] < 0.08


@both
def test_group_conditional_covers_every_group(make):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 4000)
    groups = np.where(rng.uniform(size=4000) < 0.2, "noisy", "clean")
    X = 2.5 * y[:, None] + rng.standard_normal((4000, 1)) * np.where(groups == "noisy", 4, 1)[:, None]
    clf = make(confidence=0.9).fit(X[:2000], y[:2000], groups=groups[:2000])
    new = groups[2000:] == "noisy"
    sets = clf.predict_set(X[2000:], groups=groups[2000:])
    covered = sets[np.arange(2000), y[2000:]]
    assert covered[new].mean() > 0.8  # three deviations below, with 100 calibration rows; 0.6 without groups
    assert covered[~new].mean() > 0.85
    with pytest.raises(ValueError, match="groups must be given"):
        clf.predict_set(X)
    with pytest.raises(ValueError, match="one value for each of the 4000 rows"):
        clf.predict_set(X, groups=groups[:5])
    with pytest.warns(TightsetWarning, match="no calibration row has group 'new'"):
        assert clf.predict_set(X[:1], groups=["new"]).all()
    with pytest.raises(ValueError, match="calibration had none; pass groups to fit or calibrate"):
        make().fit(X, y).predict_set(X, groups=groups)
    before = clf.fitted_
    with pytest.raises(ValueError, match="groups must be given: the predictor was calibrated by group, and without"):
        clf.calibrate(X[2000:], y[2000:])  # as silent as it was, it took the guarantee of each group away
    assert clf.fitted_ is before
    later = make(confidence=0.9).fit(X[:2000], y[:2000]).calibrate(X[2000:], y[2000:], groups=groups[2000:])
    assert later.fitted_.by_group


@both
def test_cross_conformal_uses_every_row_and_covers(make, blobs):
    X, y = blobs
    clf = make(confidence=0.9, cv=4).fit(X[:300], y[:300])
    assert len(clf.folds_) == 4
    assert sum(len(fold.calibrations[0].alphas[None, -1]) for fold in clf.folds_) == 300
    row = clf.evaluate(X[300:], y[300:])
    assert row["coverage"] > 0.85
    assert row["mean_size"] < 1.5
    np.testing.assert_array_equal(clf.predict_set(X), clf.predict_p(X) > 0.1 + 1e-12)
    with pytest.raises(ValueError, match="calibrate needs a single trained model"):
        clf.calibrate(X, y)
    with pytest.raises(ValueError, match="either cv or X_cal"):
        clf.fit(X, y, X_cal=X, y_cal=y)


# ---- levels ---------------------------------------------------------------------------------------------------------


def test_one_measure_is_trained_for_each_level_and_does_not_depend_on_the_others(blobs):
    X, y = blobs
    several = quick_scpo(confidence=[0.8, 0.95]).fit(X, y)
    assert several.levels_ == (0.8, 0.95)
    assert several.predict_set(X).shape == (2, 600, 3)
    assert several.predict_p(X).shape == (2, 600, 3)
    assert [row["confidence"] for row in several.evaluate(X, y)] == [0.8, 0.95]
    scores = [model.scores(X) for model in several.folds_[0].models]
    assert np.abs(scores[0] - scores[1]).max() > 1e-3
    for at, level in enumerate((0.8, 0.95)):
        alone = quick_scpo(confidence=level, calibration_size=150).fit(X, y)
        same = clone(several).set_params(calibration_size=150).fit(X, y)
        np.testing.assert_array_equal(alone.predict_set(X), same.predict_set(X)[at])
        np.testing.assert_array_equal(same.predict_set(X, confidence=level), same.predict_set(X)[at])


def test_a_level_that_was_not_trained_is_valid_and_warned_about(blobs):
    X, y = blobs
    clf = quick_scpo(confidence=[0.8, 0.95]).fit(X[:400], y[:400])
    with pytest.warns(
        TightsetWarning, match=r"for confidence 0\.9; the one for 0\.95 is used.* fit with confidence 0\.9 for"
    ):
        sets = clf.predict_set(X[400:], confidence=0.9)
    assert sets[np.arange(200), y[400:]].mean() > 0.79
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict_set(X, confidence=1 - 0.05)  # the same level, written with a rounding error
        baseline().fit(X, y).predict_set(X, confidence=0.7)  # one model serves every level


@pytest.mark.parametrize("confidence", [0, 1.0, 95, -0.1, [], [0.9, 0.9], [0.9, 2], "often", None])
def test_bad_confidence(confidence, blobs):
    with pytest.raises(ValueError, match="confidence must"):
        quick_scpo(confidence=confidence).fit(*blobs)


# ---- calibration ----------------------------------------------------------------------------------------------------


@both
def test_just_enough_and_too_few_calibration_rows(make, blobs):
    X, y = blobs
    clf = make(confidence=0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.fit(X[:300], y[:300], X_cal=X[300:319], y_cal=y[300:319])
    assert not clf.predict_set(X).all()
    with pytest.warns(TightsetWarning, match="has 18 rows, but confidence 0.95 needs 19") as caught:
        clf.fit(X[:300], y[:300], X_cal=X[300:318], y_cal=y[300:318])
    assert len(caught) == 1
    assert clf.predict_set(X).all()


@both
def test_a_class_missing_from_calibration(make, blobs):
    X, y = blobs
    some = y[300:] != 2
    with pytest.warns(TightsetWarning, match="no calibration row has the label 2"):
        clf = make().fit(X[:300], y[:300], X_cal=X[300:][some], y_cal=y[300:][some])
    assert clf.predict_set(X).shape == (600, 3)
    with pytest.warns(TightsetWarning, match=r"0 rows of label 2.*label 2 stays in every set"):
        clf = make(label_conditional=True).fit(X[:300], y[:300], X_cal=X[300:][some], y_cal=y[300:][some])
    assert clf.predict_set(X)[:, 2].all()


@both
def test_calibrate_anew_keeps_the_measure(make, blobs):
    X, y = blobs
    clf = make(confidence=0.9).fit(X[:200], y[:200])
    predicted = clf.predict(X)
    clf.calibrate(X[200:400], y[200:400])
    np.testing.assert_array_equal(clf.predict(X), predicted)
    direct = make(confidence=0.9).fit(X[:200], y[:200])
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == 200
    assert len(direct.folds_[0].calibrations[0].alphas[None, -1]) == 50


@pytest.mark.parametrize(("size", "rows"), [(None, 150), (0.5, 300), (40, 40), (np.float64(0.1), 60)])
def test_rows_held_aside(size, rows, blobs):
    clf = baseline(calibration_size=size).fit(*blobs)
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == rows


@pytest.mark.parametrize("size", [0, 1.0, 600, -3, 1.5, "half", True])
def test_bad_calibration_size(size, blobs):
    with pytest.raises(ValueError, match="calibration_size must be a fraction"):
        baseline(calibration_size=size).fit(*blobs)


def test_default_holds_more_rows_where_the_level_needs_them(blobs):
    X, y = blobs
    clf = baseline(confidence=0.99).fit(X[:250], y[:250])
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == 99


def test_split_is_stratified_and_every_row_has_the_same_chance():
    strata = np.repeat([0, 1, 2, 3], [100, 50, 2, 1])
    times = np.zeros(153)
    for seed in range(3000):
        train, held = stratified_split(strata, 51, np.random.RandomState(seed))
        assert len(held) == 51
        assert sorted([*train, *held]) == list(range(153))
        np.testing.assert_allclose(np.bincount(strata[held], minlength=4), [100 / 3, 50 / 3, 2 / 3, 1 / 3], atol=1)
        times[held] += 1
    # Each count is binomial(3000, 1/3), deviation 26: five deviations for 153 rows, false alarm rate below 1e-4.
    assert np.abs(times - 1000).max() < 130


def test_the_default_split_covers_with_many_rare_labels():
    """A rounding that keeps rare labels out of calibration covers far less than the 90 % promised."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        y = np.minimum(rng.zipf(1.3, 300), 100) - 1
        _, held = stratified_split(y, 75, np.random.RandomState(rng.integers(2**31)))
        new = np.minimum(rng.zipf(1.3, 200), 100) - 1
        own, own_new = (-labels + rng.uniform(size=len(labels)) for labels in (y[held], new))  # rarer conforms less
        covered.append((own_new >= np.sort(own)[7 - 1]).mean())  # 7 = floor(0.1 * 76)
    assert np.mean(covered) > 0.9 - 4 * np.std(covered) / np.sqrt(400)


def coverage_of_noise(split):
    """Of a classifier that knows nothing but how often it saw each of two labels, at 60 %, over samples of 36 rows."""
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(4000):
        y, new = rng.integers(2, size=36), rng.integers(2, size=50)
        train, held = split(y, np.random.RandomState(seed))
        share = np.bincount(y[train], minlength=2) / len(train)
        own, own_new = (share[labels] + 1e-3 * rng.uniform(size=len(labels)) for labels in (y[held], new))
        covered.append((own_new >= np.sort(own)[4 - 1]).mean())  # 4 = floor(0.4 * 10)
    return np.mean(covered), np.std(covered) / np.sqrt(4000)


def test_calibration_rows_are_not_tuned_to_training_rows():
    """Drawn by label they are, and cover less: what a sample has too much of is in both parts."""
    mean, error = coverage_of_noise(lambda y, rng: calibration_split(np.zeros_like(y), y, 9, rng))
    assert abs(mean - 0.6) < 4 * error
    mean, error = coverage_of_noise(lambda y, rng: stratified_split(y, 9, rng))
    assert mean < 0.6 - 4 * error


def test_two_labels_are_left_to_train_on():
    y = np.array([0] * 30 + [1] * 2)
    for seed in range(200):
        train, held = calibration_split(np.zeros_like(y), y, 16, np.random.RandomState(seed))
        assert len(held) == 16
        assert set(y[train]) == {0, 1}


@both
def test_the_default_split_is_by_label_only_where_coverage_is(make, blobs, monkeypatch):
    X, y = blobs
    seen = []
    monkeypatch.setattr("tightset.estimators.base.calibrate", lambda *given, **how: seen.append(given[2].y) or 1 / 0)
    for label_conditional in (False, True):
        with pytest.raises(ZeroDivisionError):
            make(calibration_size=90, label_conditional=label_conditional, confidence=0.8).fit(X, y)
    assert [len(held) for held in seen] == [90, 90]
    assert np.ptp(np.bincount(seen[0])) > 1
    np.testing.assert_allclose(np.bincount(seen[1]) / 90, np.bincount(y) / len(y), atol=0.02)


# ---- in company -----------------------------------------------------------------------------------------------------


@both
def test_clone_and_pickle(make, blobs):
    X, y = blobs
    clf = make(confidence=(0.8, 0.9)).fit(X, y)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_p(X), clf.predict_p(X))
    np.testing.assert_array_equal(clone(clf).fit(X, y).predict_p(X), clf.predict_p(X))


@both
def test_pipeline_grid_search_and_cross_validation(make, blobs):
    X, y = blobs
    pipe = make_pipeline(StandardScaler(), make())
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.7
    name = pipe.steps[-1][0]
    search = GridSearchCV(pipe, {f"{name}__calibration_size": [0.2, 0.4]}, cv=2).fit(X, y)
    assert search.best_params_[f"{name}__calibration_size"] in (0.2, 0.4)
    assert pipe.fit(X, y)[-1].predict_set(pipe[:-1].transform(X)).shape == (600, 3)


def test_paper_set_up_is_spelled_out():
    clf = SCPOClassifier.paper(0.9, inefficiency="log", random_state=1)
    assert (clf.confidence, clf.inefficiency, clf.random_state) == (0.9, "log", 1)
    assert clf.search == Grid(tol=0.0)
    assert len(clf.search.candidates()) == 80
    chosen = clf.search.loss_form, clf.search.optimiser, clf.search.selection
    assert chosen == ("-1/L", "gradient-descent", "inefficiency")
    shorter = SCPOClassifier.paper(max_iter=7, n_jobs=1)
    assert (shorter.search.max_iter, shorter.n_jobs) == (7, 1)


def test_selection_table_and_traces(blobs):
    clf = quick_grid(confidence=(0.8, 0.9), keep_trace=True).fit(*blobs)
    table = pd.DataFrame(clf.selection_)
    assert len(table) == 16
    assert table.groupby("confidence")["chosen"].sum().tolist() == [1, 1]
    assert set(table["status"]) <= {"converged", "max_iter", "nonfinite"}
    assert clf.traces_[0][1].shape[1] == 8
    assert clf.n_iter_ == table["n_iter"].max()
    assert not hasattr(quick_grid().fit(*blobs), "traces_")


@pytest.mark.parametrize(
    "options", [{"optimiser": "adam", "learning_rate": 0.05}, {"selection": "loss"}, {"loss_form": "log L"}]
)
def test_other_ways_to_train(options, blobs):
    X, y = blobs
    row = quick_grid(confidence=0.9, penalty=100, **options).fit(X[:400], y[:400]).evaluate(X[400:], y[400:])
    assert row["coverage"] > 0.79  # three deviations below, with 100 calibration and 200 test rows
    assert row["mean_size"] < 1.7


@pytest.mark.parametrize("inefficiency", ["log", 2, (np.square, lambda w: 2 * w)])
def test_other_inefficiencies(inefficiency, blobs):
    X, y = blobs
    clf = quick_scpo(inefficiency=inefficiency).fit(X, y)
    row = clf.evaluate(X, y)
    sizes = clf.predict_set(X).sum(axis=1).astype(float)
    f = np.log1p if inefficiency == "log" else np.square
    assert row["inefficiency"] == pytest.approx(f(sizes).mean())


# ---- over other classifiers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [RandomForestClassifier(20, random_state=0), LinearSVC(), make_pipeline(StandardScaler(), LogisticRegression())],
)
def test_any_classifier_with_probabilities_or_scores(estimator, blobs):
    X, y = blobs
    row = baseline(estimator=estimator, confidence=0.9).fit(X[:400], y[:400]).evaluate(X[400:], y[400:])
    assert row["coverage"] > 0.79  # three deviations below, with 100 calibration and 200 test rows
    assert row["mean_size"] < 1.6
    binary = baseline(estimator=estimator, confidence=0.9).fit(X[:400], y[:400] == 0)
    assert binary.evaluate(X[400:], y[400:] == 0)["coverage"] > 0.79


def test_a_trained_classifier_is_only_calibrated(blobs):
    X, y = blobs
    model = LogisticRegression().fit(X[:300], y[:300])
    coefficients = model.coef_.copy()
    clf = baseline(estimator=FrozenEstimator(model))
    clf.fit(X[300:], y[300:])
    np.testing.assert_array_equal(model.coef_, coefficients)
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == 300
    own = baseline(estimator=LogisticRegression()).fit(X[:300], y[:300], X_cal=X[300:], y_cal=y[300:])
    np.testing.assert_array_equal(clf.predict_set(X), own.predict_set(X))
    with pytest.raises(ValueError, match="pass only the calibration rows to fit"):
        clf.fit(X, y, X_cal=X, y_cal=y)


def test_weights_reach_the_last_step_of_a_pipeline(blobs):
    X, y = blobs
    weight = np.where(y == 0, 20.0, 0.1)
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    assert (baseline(estimator=pipe).fit(X, y, sample_weight=weight).predict(X) == 0).mean() > 0.5
    from sklearn.neighbors import KNeighborsClassifier

    with pytest.raises(ValueError, match="KNeighborsClassifier cannot be trained with weights"):
        baseline(estimator=KNeighborsClassifier()).fit(X, y, sample_weight=weight)


def test_frames_of_mixed_types_pass_through_to_the_estimator():
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue"], 400), "x": rng.standard_normal(400)})
    y = (frame["colour"] == "red") ^ (frame["x"] > 1)
    pipe = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough"), LogisticRegression()
    )
    clf = baseline(estimator=pipe, confidence=0.8).fit(frame, y)
    assert clf.evaluate(frame, y)["coverage"] > 0.75


def test_a_fold_without_a_class_gives_that_class_the_least_score(blobs):
    X, y = blobs
    rare = np.flatnonzero(y == 2)[:1]
    rows = np.concatenate([np.flatnonzero(y != 2), rare])
    with pytest.warns(UserWarning, match="least populated class"):
        clf = baseline(confidence=0.9, cv=3).fit(X[rows], y[rows])
    assert clf.predict_set(X).shape == (600, 3)
