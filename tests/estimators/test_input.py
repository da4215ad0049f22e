"""Input of every kind and every kind of bad input, and what reviewers found."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from makers import baseline, both, quick_scpo
from tightset import SCPOClassifier, Search

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
    kwargs = {baseline: {"estimator": LogisticRegression()}, quick_scpo: {"unfold": False}}.get(make, {})
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
        assert clf.folds_[0].models[0].members[0].theta.dtype == np.float32


def test_constant_and_huge_columns_survive(blobs):
    X, y = blobs
    wide = np.column_stack([X, np.full(600, 3e7), 1e9 + 1e3 * X[:, 0], np.zeros(600)])
    clf = quick_scpo().fit(wide, y)
    assert clf.evaluate(wide, y)["mean_size"] < 2
    assert all(np.isfinite(member.theta).all() for member in clf.folds_[0].models[0].members)


@both
def test_weights_are_used_and_scale_does_not_matter(make, blobs):
    X, y = blobs
    weight = np.where(y == 0, 20.0, 0.1)
    plain, weighted, rescaled = (make().fit(X, y, sample_weight=w) for w in (None, weight, 1e-5 * weight))
    assert (weighted.predict(X) == 0).mean() > (plain.predict(X) == 0).mean() + 0.1
    if make is not baseline:  # logistic regression itself depends on the scale of weights
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
        SCPOClassifier.paper(**{name: value}).fit(*blobs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss_form", "1/L"), ("optimiser", "sgd"), ("selection", "best"), ("max_iter", 0), ("max_iter", 1.5), ("tol", -1), ("inefficiency", "big")],
)  # fmt: skip
def test_other_settings_are_checked_by_name(name, value, blobs):
    with pytest.raises(ValueError, match=f"{name} must be"):
        SCPOClassifier.paper(**{name: value}).fit(*blobs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("search", "slow"), ("search", None), ("inefficiency", "big")],
)
def test_settings_of_the_default_are_checked_by_name(name, value, blobs):
    with pytest.raises(ValueError, match=f"{name} must be"):
        SCPOClassifier(**{name: value}).fit(*blobs)


def test_a_search_of_one_measure_names_those_that_there_are():
    with pytest.raises(ValueError, match="measure must be one of 'linear', 'softmax', 'two-matrix'; got 'quadratic'"):
        Search().only("quadratic")


@pytest.mark.parametrize(
    "weight", [np.ones(5), -np.ones(600), np.full(600, np.nan), np.zeros(600), ["a"] * 600, np.full(600, 1j), {"a": 1}]
)
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


@pytest.mark.parametrize("groups", [np.ones((90, 2)), 3, np.arange(90) + 1j], ids=["table", "number", "complex"])
def test_groups_that_are_none_are_named(groups):
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3
    with pytest.raises(ValueError, match=r"^groups( should be a 1d array|: Complex data not supported$)"):
        baseline().fit(X, y, groups=groups)
