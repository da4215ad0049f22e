"""Both estimators as scikit-learn and its users meet them."""

import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info

from tightset import ConformalClassifier, SCPOClassifier, TightsetWarning
from tightset.checking import hash_uniform, stratified_split
from tightset.scaling import Scaling
from tightset.search import training_inefficiency

QUICK = {"penalty": (10, 100), "sharpness": (1, 2), "learning_rate": (10, 100), "max_iter": 200}


def quick_scpo(**changes):
    return SCPOClassifier(**(QUICK | {"random_state": 0} | changes))


def baseline(**changes):
    return ConformalClassifier(**({"random_state": 0} | changes))


both = pytest.mark.parametrize("make", [quick_scpo, baseline])


# The checks fit a handful of rows, which is warned about.
@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
# SCPO's own defaults take thousands of steps on sixteen rows; fewer steps go through the same code.
@parametrize_with_checks(
    [
        SCPOClassifier(max_iter=200),
        SCPOClassifier(confidence=(0.5, 0.8), label_conditional=True, max_iter=100),
        ConformalClassifier(),
        ConformalClassifier(LogisticRegression(), confidence=0.8),
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
    for _ in range(20):
        order = rng.permutation(len(y))
        train, cal, test = np.split(order, [200, 400])
        clf = make(confidence=0.9, max_iter=100) if make is quick_scpo else make(confidence=0.9)
        rows.append(clf.fit(X[train], y[train], X_cal=X[cal], y_cal=y[cal]).evaluate(X[test], y[test]))
    # Mean coverage of 20 splits: deviation about 0.006 around at least 0.9.
    assert 0.88 < np.mean([row["coverage"] for row in rows]) < 0.93
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
    with pytest.warns(TightsetWarning, match="no calibration row is of group 'new'"):
        assert clf.predict_set(X[:1], groups=["new"]).all()
    with pytest.raises(ValueError, match="pass groups to fit too"):
        make().fit(X, y).predict_set(X, groups=groups)


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
    thetas = [model.theta for model in several.folds_[0].models]
    assert np.abs(thetas[0] - thetas[1]).max() > 1e-3
    for at, level in enumerate((0.8, 0.95)):
        alone = quick_scpo(confidence=level, calibration_size=150).fit(X, y)
        same = clone(several).set_params(calibration_size=150).fit(X, y)
        np.testing.assert_array_equal(alone.predict_set(X), same.predict_set(X)[at])
        np.testing.assert_array_equal(same.predict_set(X, confidence=level), same.predict_set(X)[at])


def test_a_level_that_was_not_trained_is_valid_and_warned_about(blobs):
    X, y = blobs
    clf = quick_scpo(confidence=[0.8, 0.95]).fit(X[:400], y[:400])
    with pytest.warns(TightsetWarning, match=r"no measure was trained for confidence 0\.9; the one for 0\.95 is used"):
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


# ---- input of every kind --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kind", ["pandas", "polars", "csr", "csc", "coo", "list", "fortran"])
def test_every_kind_of_rows_gives_the_same_sets(make, kind, blobs):
    X, y = blobs
    convert = {
        "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"]),
        "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
        "csr": sparse.csr_array,
        "csc": sparse.csc_matrix,
        "coo": sparse.coo_array,
        "list": lambda X: X.tolist(),
        "fortran": np.asfortranarray,
    }[kind]
    kwargs = {"estimator": LogisticRegression()} if make is baseline else {}
    expected = make(**kwargs).fit(X, y).predict_set(X)
    labels = {"pandas": pd.Series(y), "polars": pl.Series(y), "list": y.tolist()}.get(kind, y)
    clf = make(**kwargs).fit(convert(X), labels)
    found = clf.predict_set(convert(X))
    assert (found == expected).mean() > 0.995  # sparse products round differently
    if kind in {"pandas", "polars"}:
        assert list(clf.feature_names_in_) == ["a", "b"]


@both
@pytest.mark.parametrize(
    "labels",
    [["x", "y", "z"], [7, -3, 10**6], [2.0, 5.0, 9.0], np.array(["x", "y", "z"], dtype=object)],
    ids=["str", "int", "float", "object"],
)
def test_every_kind_of_label(make, labels, blobs):
    X, y = blobs
    named = np.asarray(labels)[y]
    clf = make().fit(X, named)
    order = np.argsort(np.asarray(labels))
    np.testing.assert_array_equal(clf.classes_, np.sort(np.asarray(labels)))
    np.testing.assert_array_equal(clf.predict_set(X), make().fit(X, np.argsort(order)[y]).predict_set(X))
    assert set(clf.predict(X)) <= set(labels)
    assert clf.predict_set(X[:3], as_labels=True)[0].dtype == clf.classes_.dtype


@both
def test_two_classes_and_booleans(make, blobs):
    X, y = blobs
    clf = make().fit(X, y == 1)
    assert clf.classes_.dtype == bool
    assert clf.predict(X).dtype == bool
    assert clf.evaluate(X, y == 1)["coverage"] > 0.9


@both
def test_float32_stays_float32(make, blobs):
    X, y = blobs
    clf = make().fit(X.astype(np.float32), y)
    assert clf.predict_p(X.astype(np.float32)).dtype == np.float32
    assert make().fit(X, y).predict_p(X).dtype == np.float64
    if make is quick_scpo:
        assert clf.folds_[0].models[0].theta.dtype == np.float32


def test_constant_and_huge_columns_survive(blobs):
    X, y = blobs
    wide = np.column_stack([X, np.full(600, 3e7), 1e9 + 1e3 * X[:, 0], np.zeros(600)])
    clf = quick_scpo().fit(wide, y)
    assert clf.evaluate(wide, y)["mean_size"] < 2
    assert np.isfinite(clf.folds_[0].models[0].theta).all()


@both
def test_weights_are_used_and_scale_does_not_matter(make, blobs):
    X, y = blobs
    weight = np.where(y == 0, 20.0, 0.1)
    plain, weighted, rescaled = (make().fit(X, y, sample_weight=w) for w in (None, weight, 1e-5 * weight))
    assert (weighted.predict(X) == 0).mean() > (plain.predict(X) == 0).mean() + 0.1
    if make is quick_scpo:  # logistic regression itself depends on the scale of weights
        assert (weighted.predict(X) == rescaled.predict(X)).mean() > 0.98


def test_rows_of_weight_zero_are_absent(blobs):
    X, y = blobs
    weight = np.ones(600)
    weight[::3] = 0
    with_zeros = baseline().fit(X, y, sample_weight=weight)
    without = baseline().fit(X[weight > 0], y[weight > 0], sample_weight=weight[weight > 0])
    np.testing.assert_array_equal(with_zeros.predict_p(X), without.predict_p(X))


@both
def test_same_seed_same_bits(make, blobs):
    X, y = blobs
    first, second, other = (make(random_state=seed).fit(X, y).predict_p(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    clf = make(random_state=1).fit(X, y)
    np.testing.assert_array_equal(clf.predict_p(X, smoothed=True), clf.predict_p(X, smoothed=True))


def test_thread_count_does_not_change_a_bit(blobs):
    X, y = blobs
    one, two = (quick_scpo(n_jobs=n).fit(X, y).predict_p(X) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_global_random_state_is_left_alone(blobs):
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    quick_scpo(random_state=3).fit(*blobs).predict_p(blobs[0], smoothed=True)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


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
    assert len(clf.penalty) * len(clf.sharpness) * len(clf.learning_rate) == 80
    assert (clf.loss_form, clf.optimiser, clf.selection) == ("-1/L", "gradient-descent", "inefficiency")


def test_selection_table_and_traces(blobs):
    clf = quick_scpo(confidence=(0.8, 0.9), keep_trace=True).fit(*blobs)
    table = pd.DataFrame(clf.selection_)
    assert len(table) == 16
    assert table.groupby("confidence")["chosen"].sum().tolist() == [1, 1]
    assert set(table["status"]) <= {"converged", "max_iter", "nonfinite"}
    assert clf.traces_[0][1].shape[1] == 8
    assert clf.n_iter_ == table["n_iter"].max()
    assert not hasattr(quick_scpo().fit(*blobs), "traces_")


@pytest.mark.parametrize(
    "options", [{"optimiser": "adam", "learning_rate": 0.05}, {"selection": "loss"}, {"loss_form": "log L"}]
)
def test_other_ways_to_train(options, blobs):
    X, y = blobs
    row = quick_scpo(confidence=0.9, penalty=100, **options).fit(X[:400], y[:400]).evaluate(X[400:], y[400:])
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


@pytest.mark.parametrize("freeze", [False, True])
def test_a_trained_classifier_is_only_calibrated(freeze, blobs):
    X, y = blobs
    model = LogisticRegression().fit(X[:300], y[:300])
    coefficients = model.coef_.copy()
    clf = baseline(estimator=FrozenEstimator(model)) if freeze else baseline(estimator=model, prefit=True)
    clf.fit(X[300:], y[300:])
    np.testing.assert_array_equal(model.coef_, coefficients)
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == 300
    own = baseline(estimator=LogisticRegression()).fit(X[:300], y[:300], X_cal=X[300:], y_cal=y[300:])
    np.testing.assert_array_equal(clf.predict_set(X), own.predict_set(X))
    with pytest.raises(ValueError, match="not trained: give fit nothing but the calibration rows"):
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


# ---- bad input ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_in_rows(make, bad, blobs):
    X, y = blobs
    spoiled = X.copy()
    spoiled[5, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        make().fit(spoiled, y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        make().fit(X, y).predict_set(spoiled)


@both
def test_labels_that_cannot_be_learnt(make, blobs):
    X, y = blobs
    with pytest.raises(ValueError, match=r"at least two classes.*one class: 0"):
        make().fit(X, np.zeros(600, dtype=int))
    with pytest.raises(ValueError, match=r"y_cal has labels that were not in training: \[9\]"):
        make().fit(X, y, X_cal=X[:50], y_cal=np.full(50, 9))
    with pytest.raises(ValueError, match="Input y contains NaN"):
        make().fit(X, np.where(y == 0, np.nan, y))
    with pytest.raises(ValueError, match=r"y has labels that were not in training: \['b'\]"):
        make().fit(X, np.array(["x", "y", "z"])[y]).evaluate(X, np.full(600, "b"))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(X, y[:-1])


@both
def test_rows_that_do_not_fit(make, blobs):
    X, y = blobs
    clf = make().fit(X, y)
    with pytest.raises(ValueError, match=r"3 features.*expecting 2"):
        clf.predict_set(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"3 features.*expecting 2"):
        clf.calibrate(np.zeros((40, 3)), np.zeros(40, dtype=int))
    with pytest.raises(ValueError, match="0 sample"):
        make().fit(np.empty((0, 2)), [])
    with pytest.raises(ValueError, match="X_cal and y_cal belong together"):
        make().fit(X, y, X_cal=X)
    for method in ("predict_set", "predict_p", "predict"):
        with pytest.raises(ValueError, match="not fitted yet"):
            getattr(make(), method)(X)
    with pytest.raises(ValueError, match="not fitted yet"):
        make().calibrate(X, y)


@pytest.mark.parametrize("name", ["penalty", "sharpness", "learning_rate"])
@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, [], [10, -10]])
def test_settings_must_be_positive(name, value, blobs):
    with pytest.raises(ValueError, match=rf"{name} \((lambda|gamma|eta)\) must be a positive number"):
        SCPOClassifier(**{name: value}).fit(*blobs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss_form", "1/L"), ("optimiser", "sgd"), ("selection", "best"), ("max_iter", 0), ("max_iter", 1.5), ("tol", -1), ("inefficiency", "big")],
)  # fmt: skip
def test_other_settings_are_checked_by_name(name, value, blobs):
    with pytest.raises(ValueError, match=f"{name} must be"):
        SCPOClassifier(**{name: value}).fit(*blobs)


@pytest.mark.parametrize("weight", [np.ones(5), -np.ones(600), np.full(600, np.nan), np.zeros(600)])
@both
def test_bad_weights(make, weight, blobs):
    with pytest.raises(ValueError, match="sample_weight"):
        make().fit(*blobs, sample_weight=weight)


def test_an_estimator_that_cannot_score(blobs):
    from sklearn.linear_model import LinearRegression

    with pytest.raises(ValueError, match="LinearRegression has neither"):
        baseline(estimator=LinearRegression()).fit(*blobs)


@both
def test_a_failed_fit_leaves_the_earlier_one_in_place(make, blobs):
    X, y = blobs
    clf = make(confidence=(0.8, 0.9)).fit(X, np.array(["x", "y", "z"])[y])
    before, predicted = clf.predict_p(X), clf.predict(X)
    for attempt in (
        lambda: clf.calibrate(X[:100], np.full(100, "w")),
        lambda: clf.fit(np.ones((9, 4)), np.arange(9) % 3, X_cal=X, y_cal=y),
        lambda: clf.fit(X, np.array(["c", "b", "a"])[y], groups=[0]),
        lambda: clf.set_params(confidence=(0.5, 0.9)).fit(X, y[:-1]),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            attempt()
    clf.set_params(confidence=(0.8, 0.9))
    np.testing.assert_array_equal(clf.predict_p(X), before)
    np.testing.assert_array_equal(clf.predict(X), predicted)
    unfitted = make()
    with pytest.raises(ValueError, match="one class"):
        unfitted.fit(X, np.zeros(600))
    assert not hasattr(unfitted, "classes_")


# ---- what reviewers found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [0.1, 1 / 3, 3.7, 3e7, 0.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_columns_of_any_value_are_harmless(constant, kind, dtype, blobs):
    X, y = (np.tile(part, (40,) + (1,) * (part.ndim - 1)) for part in blobs)
    wide = np.column_stack([X, np.full(len(y), constant)]).astype(dtype)
    scaling = Scaling.of(kind(wide))
    assert scaling.scale[-1] == 1
    np.testing.assert_allclose(scaling.scale[:2], X.std(axis=0), rtol=1e-5)


def test_sparse_and_dense_statistics_agree_far_from_zero():
    X = 1e6 + np.random.default_rng(0).standard_normal((500, 2))
    np.testing.assert_allclose(Scaling.of(sparse.csr_array(X)).scale, X.std(axis=0), rtol=1e-9)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_is_treated_alike_alone_and_in_a_batch(make, dtype):
    """Discrete features: most new rows equal a calibration row, so a last bit that differs would break ties."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (400, 3)).astype(dtype)
    y = (X.sum(axis=1) + rng.standard_normal(400) > 1.5).astype(int)
    clf = make(confidence=0.8).fit(X, y)
    batch = clf.predict_p(X)
    alone = np.concatenate([clf.predict_p(row[None]) for row in X])
    if make is quick_scpo:
        np.testing.assert_array_equal(alone, batch)
    else:  # a base model may round as it likes; scores are compared to twelve digits
        assert (alone == batch).mean() > 0.99


def test_a_stricter_level_than_calibration_allows_is_warned_about_when_asked_for(blobs):
    X, y = blobs
    clf = baseline(confidence=0.8, calibration_size=30).fit(X, y)
    with pytest.warns(TightsetWarning, match=r"30 rows, but confidence 0\.99 needs 99"):
        assert clf.predict_set(X, confidence=0.99).all()
    with pytest.warns(TightsetWarning, match=r"needs 99"):
        clf.evaluate(X, y, confidence=[0.7, 0.99])


def test_smoothing_treats_rows_alone_as_in_a_batch_and_covers_exactly():
    """2000 rows one by one: the deviation of the error rate around 0.2 is 0.009, given the calibration rows' own 0.02."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 4000)
    X = (y[:, None] + rng.integers(0, 2, (4000, 1))).astype(float) + 1e-9 * rng.standard_normal((4000, 1)).round(3)
    clf = baseline(confidence=0.8, random_state=0).fit(X[:2000], y[:2000])
    p = clf.predict_p(X[2000:], smoothed=True)
    sets = clf.predict_set(X[2000:], smoothed=True)
    np.testing.assert_array_equal(sets, p > 0.2)
    assert (sets != clf.predict_set(X[2000:])).any()
    assert len(np.unique(np.concatenate([clf.predict_p(row[None], smoothed=True) for row in X[2000:2200]]))) > 100


def test_smoothed_numbers_are_uniform_and_belong_to_the_row():
    scores = np.random.default_rng(3).integers(0, 50, (20000, 2)).astype(float)
    tau = hash_uniform(scores + np.arange(20000)[:, None], 5)
    assert stats.kstest(tau, "uniform").pvalue > 1e-6
    np.testing.assert_array_equal(tau[7:9], hash_uniform(scores[7:9] + np.arange(7, 9)[:, None], 5))
    assert (tau != hash_uniform(scores + np.arange(20000)[:, None], 6)).mean() > 0.99


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (lambda n: [(np.arange(n), np.arange(n))], "calibrates on rows it trains on"),
        (lambda n: [(np.arange(50), np.arange(50, n))] * 2, "more than once"),
        (lambda n: ShuffleSplit(3, random_state=0), "more than once"),
        (lambda n: [(np.arange(50), np.array([], dtype=int))], "non-empty indices"),
        (lambda n: [(np.arange(50), np.array([n + 5]))], "non-empty indices"),
        (lambda n: [], "no folds"),
    ],
)
def test_folds_that_would_break_the_guarantee_are_refused(cv, message, blobs):
    X, y = blobs
    with pytest.raises(ValueError, match=message):
        baseline(cv=cv(len(y))).fit(X, y)


def test_folds_may_be_lists_and_masks(blobs):
    X, y = blobs
    half = np.arange(600) < 300
    lists = baseline(cv=[(list(range(300)), list(range(300, 600)))]).fit(X, y)
    masks = baseline(cv=[(half, ~half)]).fit(X, y)
    np.testing.assert_array_equal(lists.predict_p(X), masks.predict_p(X))


class Backwards(ClassifierMixin, BaseEstimator):
    """A classifier whose classes_ are not sorted."""

    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_ = self.model_.classes_[::-1]
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)[:, ::-1]


def test_classes_in_any_order_are_put_in_place(blobs):
    X, y = blobs
    straight = baseline(estimator=LogisticRegression()).fit(X, y)
    np.testing.assert_array_equal(baseline(estimator=Backwards()).fit(X, y).predict_p(X), straight.predict_p(X))


def test_pairwise_scores_are_refused(blobs):
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        baseline(estimator=make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))).fit(*blobs)


@both
@pytest.mark.parametrize("many", [3, 60])
def test_labels_of_another_kind_are_refused(make, many):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((600, 2)), rng.integers(0, many, 600)
    clf = make(confidence=0.5).fit(X, y)
    with pytest.raises(ValueError, match="y has labels that were not in training"):
        clf.evaluate(X, y.astype(str))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_labels_and_groups_are_named(missing, blobs):
    X, y = blobs
    labels = np.array(["x", "y", "z"], dtype=object)[y]
    labels[7] = missing
    with pytest.raises(ValueError, match=r"Input y contains NaN or a missing label, first in row 7"):
        baseline().fit(X, labels)
    with pytest.raises(ValueError, match=r"Input groups contains NaN or a missing label, first in row 7"):
        baseline().fit(X, y, groups=labels)
    mixed = np.array(["x", "y", 3], dtype=object)[y]
    with pytest.raises(ValueError, match="y mixes strings with other labels"):
        baseline().fit(X, mixed)


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "int64[pyarrow]", object])
def test_nullable_and_object_labels_keep_their_kind(dtype, blobs):
    X, y = blobs
    labels = pd.Series(y == 1 if dtype == "boolean" else y + 2**53, dtype=dtype)
    clf = baseline().fit(X, labels)
    assert clf.classes_.dtype.kind == ("b" if dtype == "boolean" else "i")
    assert len(clf.classes_) == (2 if dtype == "boolean" else 3)


def test_groups_belong_to_calibration_rows(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="groups_cal must be given with X_cal"):
        baseline().fit(X, y, groups=y, X_cal=X, y_cal=y)
    with pytest.raises(ValueError, match="groups_cal belongs to X_cal"):
        baseline().fit(X, y, groups_cal=y)


def test_rows_too_large_to_score_are_refused(blobs):
    X, y = blobs
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="too large to be scored"):
        quick_scpo().fit(X, y).predict_set(np.array([[1.7e308, -1.7e308]]) * np.array([[1, 1]]))


def test_texts_reach_an_estimator_that_reads_them():
    texts = np.array(["a red apple", "blue sky", "red wine", "sky and blue sea"] * 50)
    clf = baseline(estimator=make_pipeline(TfidfVectorizer(), LogisticRegression()), confidence=0.9)
    assert clf.fit(texts, [0, 1, 0, 1] * 50).evaluate(texts, [0, 1, 0, 1] * 50)["mean_size"] == pytest.approx(
        1, abs=0.2
    )


def test_models_of_other_libraries_can_be_calibrated(blobs):
    class Duck:
        classes_ = np.arange(3)

        def predict_proba(self, X):
            return np.full((len(X), 3), 1 / 3)

    assert baseline(estimator=Duck(), prefit=True).fit(*blobs).predict_set(blobs[0]).all()
    with pytest.raises(ValueError, match="has no classes_"):
        baseline(estimator=LogisticRegression(), prefit=True).fit(*blobs)
    from sklearn.ensemble import IsolationForest

    with pytest.raises(ValueError, match="must be a classifier; IsolationForest is not"):
        baseline(estimator=IsolationForest()).fit(*blobs)


@pytest.mark.parametrize(
    ("name", "value"), [("penalty", "a"), ("tol", None), ("n_jobs", 0), ("n_jobs", "a"), ("max_iter", True)]
)
def test_settings_of_a_wrong_type_are_named(name, value, blobs):
    with pytest.raises(ValueError, match=name):
        SCPOClassifier(**{name: value}).fit(*blobs)


def test_weights_against_copies_with_calibration_rows_of_ones_own(blobs):
    """The same measure to rounding, so the same sets but for rows at the edge."""
    X, y = blobs
    times = np.arange(300) % 3
    settings = {"penalty": 100, "sharpness": 1, "learning_rate": 10, "confidence": 0.9}
    weighted = quick_scpo(**settings).fit(X[:300], y[:300], times, X_cal=X[300:], y_cal=y[300:])
    copies = quick_scpo(**settings).fit(
        np.repeat(X[:300], times, axis=0), np.repeat(y[:300], times), X_cal=X[300:], y_cal=y[300:]
    )
    assert (weighted.predict_set(X) == copies.predict_set(X)).mean() > 0.995


def test_weights_take_part_in_the_choice(blobs):
    X, y = blobs
    Z = Scaling.of(X).apply(X)[0]
    theta = np.random.default_rng(0).standard_normal((5, 3, 3))
    times = np.arange(600) % 3
    weighted = training_inefficiency(Z, y, theta, 0.9, sample_weight=times.astype(float))
    copied = training_inefficiency(np.repeat(Z, times, axis=0), np.repeat(y, times), theta, 0.9)
    np.testing.assert_allclose(weighted, copied, rtol=0.02)
    plain = training_inefficiency(Z, y, theta, 0.9)
    assert np.abs(plain - copied).max() > np.abs(weighted - copied).max()


def test_the_strictest_level_decides_how_many_rows_are_held(blobs):
    X, y = blobs
    clf = baseline(confidence=(0.5, 0.99)).fit(X[:250], y[:250])
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == 99


def test_sparse_training_chooses_as_dense_training_does(blobs):
    X, y = blobs
    dense, filled = (quick_scpo().fit(kind(X + 5), y) for kind in (np.asarray, sparse.csr_array))
    np.testing.assert_allclose(filled.selection_["inefficiency"], dense.selection_["inefficiency"], rtol=0.02)


def test_predict_of_several_folds_uses_all_of_them(blobs):
    X, y = blobs
    clf = quick_scpo(cv=3).fit(X, y)
    alone = [fold.models[0].scores(X).argmax(axis=1) for fold in clf.folds_]
    joint = clf.predict(X)
    assert all((joint != one).any() for one in alone)
    p = clf.predict_p(X)
    assert (p[np.arange(600), joint] == p.max(axis=1)).all()


def test_overlapping_fits_restore_blas_threads(blobs):
    X, y = blobs
    before = [lib["num_threads"] for lib in threadpool_info()]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda steps: quick_scpo(max_iter=steps).fit(X, y), [20, 200, 80]))
    assert [lib["num_threads"] for lib in threadpool_info()] == before


def test_without_a_seed_the_global_generator_is_left_alone(blobs):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    baseline(random_state=None).fit(*blobs).predict_p(blobs[0], smoothed=True)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_device_without_pytorch_names_the_extra(monkeypatch, blobs):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install \"tightset\[torch\]\""):
        quick_scpo(device="cuda").fit(*blobs)
    with pytest.raises(ValueError, match="device must be None or the name"):
        quick_scpo(device=0).fit(*blobs)


def test_warnings_point_at_the_users_line(blobs):
    X, y = blobs
    with pytest.warns(TightsetWarning) as caught:
        baseline(confidence=0.99, calibration_size=20).fit(X, y)
    assert caught[0].filename == __file__


def test_digits_sizes_are_those_of_a_correct_predictor():
    """Known figures: logistic regression with thresholded probabilities needs about 0.90 labels at 90 % on digits."""
    X, y = load_digits(return_X_y=True)
    sizes = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(y))
        train, cal, test = np.split(order, [898, 1347])
        clf = baseline(confidence=0.9).fit(X[train], y[train], X_cal=X[cal], y_cal=y[cal])
        sizes.append(clf.evaluate(X[test], y[test])["mean_size"])
    assert 0.87 < np.mean(sizes) < 0.94
