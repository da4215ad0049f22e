"""What reviewers found, each kept from coming back."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_info

from makers import baseline, both, quick_grid, quick_scpo
from tightset import ConformalClassifier, SCPOClassifier, TightsetWarning
from tightset.compute.hashing import hash_uniform
from tightset.conformal.scores import APS
from tightset.models.columns import Scaling
from tightset.search.grid import StandardisedRows, training_inefficiency

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


def test_smoothed_sets_are_the_p_values_above_the_error_rate():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 4000)
    X = (y[:, None] + rng.integers(0, 2, (4000, 1))).astype(float)
    clf = baseline(confidence=0.75, random_state=0).fit(X[:2000], y[:2000])
    p = clf.predict_p(X[2000:], smoothed=True)
    sets = clf.predict_set(X[2000:], smoothed=True)
    np.testing.assert_array_equal(sets, p > 0.25)
    assert (sets != clf.predict_set(X[2000:])).any()


@pytest.mark.parametrize("distinct", [1, 4])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 57])
def test_smoothing_covers_exactly_with_a_fixed_seed_however_few_distinct_rows_there_are(distinct, seed):
    """Equal rows get random numbers of their own: 100 calibration sets of 99 rows, 50 new rows each.

    The error rate is 0.1 exactly; its deviation over the draws is sqrt((0.1 * 0.9 / 101 + 0.1 * 0.9 / 50) / 100) = 0.005.
    """
    rng = np.random.default_rng(1000 + seed)
    clf = ConformalClassifier("precomputed", confidence=0.9, random_state=seed)
    table = np.sort(rng.dirichlet([1, 1], size=distinct))[:, ::-1]
    covered = []
    for _ in range(100):
        at = rng.integers(distinct, size=149)
        y = (rng.uniform(size=149) < 0.4).astype(int)
        clf.fit(table[at[:99]], y[:99])
        covered.append(clf.evaluate(table[at[99:]], y[99:], smoothed=True)["coverage"])
    assert abs(np.mean(covered) - 0.9) < 4 * 0.005


def test_a_randomised_score_treats_equal_rows_apart():
    rng = np.random.default_rng(0)
    P, y = np.tile([[0.6, 0.4]], (2000, 1)), (rng.uniform(size=2000) < 0.4).astype(int)
    clf = ConformalClassifier("precomputed", confidence=0.7, conformity_score=APS(randomised=True), random_state=0)
    sets = clf.fit(P[:1000], y[:1000]).predict_set(P[1000:])
    covered = sets[np.arange(1000), y[1000:]].mean()
    assert abs(covered - 0.7) < 4 * np.sqrt(0.21 / 1000 + 0.21 / 1000)
    assert len(np.unique(sets, axis=0)) > 1
    np.testing.assert_array_equal(sets, clf.predict_set(P[1000:]))


def test_smoothed_numbers_are_uniform_and_belong_to_row_and_position():
    scores = np.random.default_rng(3).integers(0, 50, (20000, 2)).astype(float)
    at = np.arange(20000)
    tau = hash_uniform(scores, 5, at)
    assert stats.kstest(tau, "uniform").pvalue > 1e-6
    np.testing.assert_array_equal(tau[7:9], hash_uniform(scores[7:9], 5, range(7, 9)))
    assert (tau != hash_uniform(scores, 6, at)).mean() > 0.99
    constant = hash_uniform(np.zeros((20000, 2)), 5, at)
    assert stats.kstest(constant, "uniform").pvalue > 1e-6
    assert len(np.unique(constant)) == 20000


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
@pytest.mark.filterwarnings("ignore:no calibration row has the label")
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
    with pytest.raises(ValueError, match="groups_cal needs X_cal"):
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

    assert baseline(estimator=FrozenEstimator(Duck())).fit(*blobs).predict_set(blobs[0]).all()
    with pytest.raises(ValueError, match="has no classes_"):
        baseline(estimator=FrozenEstimator(LogisticRegression())).fit(*blobs)
    from sklearn.ensemble import IsolationForest

    with pytest.raises(ValueError, match="must be a classifier; IsolationForest is not"):
        baseline(estimator=IsolationForest()).fit(*blobs)


@pytest.mark.parametrize(
    ("name", "value"), [("penalty", "a"), ("tol", "a"), ("n_jobs", 0), ("n_jobs", "a"), ("max_iter", True)]
)
def test_settings_of_a_wrong_type_are_named(name, value, blobs):
    with pytest.raises(ValueError, match=name):
        SCPOClassifier.paper(**{name: value}).fit(*blobs)


def test_weights_against_copies_with_calibration_rows_of_ones_own(blobs):
    """The same measure to rounding, so the same sets but for rows at the edge."""
    X, y = blobs
    times = np.arange(300) % 3
    settings = {"penalty": 100, "sharpness": 1, "learning_rate": 10, "confidence": 0.9}
    weighted = quick_grid(**settings).fit(X[:300], y[:300], times, X_cal=X[300:], y_cal=y[300:])
    copies = quick_grid(**settings).fit(
        np.repeat(X[:300], times, axis=0), np.repeat(y[:300], times), X_cal=X[300:], y_cal=y[300:]
    )
    assert (weighted.predict_set(X) == copies.predict_set(X)).mean() > 0.995


def test_weights_take_part_in_the_choice(blobs):
    X, y = blobs
    Z = Scaling.of(X).apply(X)[0]
    theta = np.random.default_rng(0).standard_normal((5, 3, 3))
    times = np.arange(600) % 3
    weighted = training_inefficiency(StandardisedRows(Z, y, 3, times.astype(float)), theta, 0.9)
    copied = training_inefficiency(StandardisedRows(np.repeat(Z, times, axis=0), np.repeat(y, times), 3), theta, 0.9)
    np.testing.assert_allclose(weighted, copied, rtol=0.02)
    plain = training_inefficiency(StandardisedRows(Z, y, 3), theta, 0.9)
    assert np.abs(plain - copied).max() > np.abs(weighted - copied).max()


def test_the_strictest_level_decides_how_many_rows_are_held(blobs):
    X, y = blobs
    clf = baseline(confidence=(0.5, 0.99)).fit(X[:250], y[:250])
    assert len(clf.folds_[0].calibrations[0].alphas[None, -1]) == 99


def test_sparse_training_chooses_as_dense_training_does(blobs):
    X, y = blobs
    dense, filled = (quick_grid().fit(kind(X + 5), y) for kind in (np.asarray, sparse.csr_array))
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
