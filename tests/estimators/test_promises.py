"""Promises on odd data: classifiers that break, input that misleads, gains that are not there, nested sets."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

import tightset
from makers import baseline, both, quick_on_top, quick_scpo, scpo
from tightset import ConformalClassifier, SCPOClassifier, Search, TightsetWarning
from tightset.conformal.scores import as_score
from tightset.estimators.comparing import Comparison, at_equal_coverage, compare, levels_around, verdict
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


# ---- classifiers that rare labels break -----------------------------------------------------------------------------


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


# ---- gains ----------------------------------------------------------------------------------------------------------


def test_a_gain_is_told_only_at_equal_coverage():
    """Ours cover 96 % with 4.25 labels, theirs 99 % with 4.9; at 96 % theirs have 4.25 too."""
    rng = np.random.default_rng(0)
    own = rng.uniform(size=4000)  # how hard a row is
    curve = np.array([0.9, 0.93, 0.96, 0.99])
    theirs = np.stack([3.2 + (level - 0.9) / 0.09 * 1.575 + 0 * own for level in curve]), own < curve[:, None]
    ours = np.full(4000, 3.2 + 0.06 / 0.09 * 1.575), own < 0.96
    found = at_equal_coverage(*ours, *theirs, 0.95)
    assert abs(found.change) < 0.01
    assert found.low < 0 < found.high
    smaller = at_equal_coverage(0.8 * ours[0], ours[1], *theirs, 0.95)
    assert smaller.high < 0
    assert smaller.p_value < 1e-3
    row = Comparison(0.95, {}, {}, *found)
    assert verdict([row]) == "At equal coverage, SCPO's sets are not clearly different at 0.95."


def test_intervals_of_a_change_cover_it():
    """Two predictors of the same law: the interval holds 0 in 95 % of the draws, and seldom in fewer."""
    held = 0
    for draw in range(200):
        rng = np.random.default_rng(draw)
        n, levels = 300, np.array([0.8, 0.85, 0.9, 0.95, 0.98])
        hard, theirs = rng.uniform(size=n), rng.uniform(size=n)
        sizes = 1 + 4 * levels[:, None] ** 4 + rng.uniform(-0.5, 0.5, (5, n)).round()
        own = 1 + 4 * 0.9**4 + rng.uniform(-0.5, 0.5, n).round()
        found = at_equal_coverage(own, hard < 0.9, sizes, theirs < levels[:, None], 0.9)
        held += found.low <= 0 <= found.high
    assert held > 0.9 * 200


def test_compare_counts_what_the_sets_are(blobs):
    X, y = blobs
    first, second = baseline(confidence=0.8, random_state=0).fit(X, y), quick_scpo(confidence=0.8).fit(X, y)
    (row,) = compare(first, second, X, y)
    assert row.baseline["mean_size"] == first.predict_set(X).sum(axis=1).mean()
    assert row.scpo["coverage"] == second.predict_set(X)[np.arange(len(y)), y].mean()


def test_summary_has_intervals_and_claims_no_gain_that_is_not_clear(blobs):
    X, y = blobs
    clf = quick_scpo(confidence=0.9).fit(X, y)
    verdict_ = clf.folds_[0].record[0].verdict
    gain, low, high = verdict_.gain()
    assert low < gain < high
    assert "95% interval" in clf.summary()
    said = clf.folds_[0].record[0]._replace(verdict=verdict_._replace(accepted=True, ensemble=verdict_.baseline))
    assert "not clearly different" in said.sentence()
    better = verdict_._replace(accepted=True, ensemble=0.5 * verdict_.baseline, error=1e-3)
    assert "50.0% smaller (95% interval" in clf.folds_[0].record[0]._replace(verdict=better).sentence()


# ---- nested sets ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rings():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 2))
    return X, np.digitize(np.hypot(*X.T) + 0.4 * rng.standard_normal(1200), [0.7, 1.1, 1.5, 2.0])


@pytest.mark.parametrize("how", [{}, {"estimator": RandomForestClassifier(10)}, {"cv": 3}, {"label_conditional": True}])
def test_nested_sets_grow_with_the_level(how, rings):
    X, y = rings
    levels = [0.6, 0.75, 0.9]
    search = {"search": Search.fast(max_iter=10), "random_state": 0, "verbose": False}
    clf = SCPOClassifier(levels, nested=True, **search, **how).fit(X[:800], y[:800])
    sets = clf.predict_set(X[800:], confidence=[*levels, 0.95])
    assert (sets[:-1] <= sets[1:]).all()
    p = clf.predict_p(X[800:])
    np.testing.assert_array_equal(p[0], p[2])
    assert "which makes sets nested" in clf.summary()
    for row in clf.evaluate(X[800:], y[800:]):
        assert row["coverage"] > row["confidence"] - 0.08


def test_sets_of_measures_of_their_own_need_not_be_nested(rings):
    X, y = rings
    clf = scpo(confidence=[0.8, 0.81, 0.82], max_iter=15).fit(X[:800], y[:800])
    sets = clf.predict_set(X[800:])
    assert not (sets[:-1] <= sets[1:]).all()  # which is why there is a choice


def test_nested_is_not_for_the_grid_and_is_true_or_false(blobs):
    with pytest.raises(ValueError, match="nested=True is not for search='grid'"):
        SCPOClassifier.paper([0.8, 0.9], nested=True).fit(*blobs)
    with pytest.raises(ValueError, match="nested must be True or False"):
        SCPOClassifier(nested="yes").fit(*blobs)


def test_nested_sets_of_many_rows_are_trained_on_all_of_them(rings):
    from tightset import Search

    X, y = rings
    search = Search((("two-matrix", 1.0),), pulls=(1.0, 0.1), max_iter=10, folds=3, strengths=(1.0,), rows=300)
    clf = SCPOClassifier([0.6, 0.9], nested=True, search=search, random_state=0).fit(X, y)
    sets = clf.predict_set(X)
    assert (sets[0] <= sets[1]).all()
    assert clf.folds_[0].models[0] is clf.folds_[0].models[1]
    assert "trained on all" in clf.summary()


# ---- input ----------------------------------------------------------------------------------------------------------


@both
def test_masks_are_not_ignored(make, blobs):
    X, y = blobs
    masked = np.ma.masked_array(X, mask=np.zeros(X.shape, dtype=bool))
    clf = make().fit(masked, y)
    np.testing.assert_array_equal(clf.predict_set(masked), make().fit(X, y).predict_set(X))
    masked[3, 1] = np.ma.masked
    for call in (lambda: make().fit(masked, y), lambda: clf.predict_set(masked)):
        with pytest.raises(ValueError, match="X is a masked array with 1 masked values: fill them"):
            call()
    labels = np.ma.masked_array(y, mask=np.arange(len(y)) == 2)
    with pytest.raises(ValueError, match="y is a masked array in which labels are masked"):
        make().fit(X, labels)


@both
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_indices_outside_the_matrix_are_refused(make, kind, blobs):
    X, y = blobs
    clf = make().fit(kind(X), y)
    damaged = kind(X)
    damaged.indices[5] = 10**6
    for call in (lambda: make().fit(damaged, y), lambda: clf.predict_set(damaged)):
        with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
            call()


def damaged(kind, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        found = sparse.coo_matrix(X).asformat(kind)
    if kind == "coo":
        found.row = found.row.copy()
        found.row[0] = 9999
    elif kind == "lil":
        found.rows[3] = [99] * len(found.rows[3])
    elif kind == "dia":
        found.offsets = found.offsets + 10**6
    return found


@both
@pytest.mark.parametrize("kind", ["coo", "lil", "dia"])
def test_other_sparse_formats_are_looked_at_too(make, kind, blobs):
    X, y = blobs
    clf = make().fit(X, y) if make is not baseline else make().fit(sparse.csr_array(X), y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        other = sparse.coo_matrix(X).asformat(kind)
    np.testing.assert_array_equal(clf.predict_set(other), clf.predict_set(sparse.csr_array(X)))
    for call in (lambda: make().fit(damaged(kind, X), y), lambda: clf.predict_set(damaged(kind, X))):
        with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
            call()


def test_masks_of_dask_arrays_and_of_weights_are_not_ignored(blobs):
    import dask.array as da

    X, y = blobs
    masked = np.ma.masked_array(X, mask=X > 2)
    clf = baseline().fit(X, y)
    with pytest.raises(ValueError, match="masked"):
        clf.predict_set(da.from_array(masked, chunks=(100, -1))).compute()
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        clf.fit(X, y, sample_weight=np.ma.masked_array(np.ones(len(y)), mask=y == 0))


def test_missing_dates_are_no_numbers(blobs):
    X, y = blobs
    dates = (X * 1e6).astype("datetime64[s]")
    clf = baseline().fit(dates, y)
    dates[3, 0] = "NaT"
    with pytest.raises(ValueError, match="NaT"):
        clf.predict_set(dates)


@both
def test_a_label_of_rows_without_weight_is_left_out_and_told_of(make, blobs):
    X, y = blobs
    with pytest.warns(TightsetWarning, match="every row of label 0 has weight 0"):
        clf = make().fit(X, y, sample_weight=(y > 0) * 1.0)
    np.testing.assert_array_equal(clf.classes_, np.unique(y[y > 0]))
    with pytest.warns(TightsetWarning, match="labels that were not in training"):
        clf.evaluate(X, y)


def test_nothing_is_compared_where_coverage_is_too_different():
    rng = np.random.default_rng(0)
    own = rng.uniform(size=1500)
    theirs = np.full((3, 1500), 1.5), np.ones((3, 1500), dtype=bool)  # whatever the level, all rows are covered
    found = at_equal_coverage(np.ones(1500), own < 0.88, *theirs, 0.9)
    assert np.isnan(found).all()
    assert "not comparable" in verdict([Comparison(0.9, {}, {}, *found)])


@both
@pytest.mark.parametrize("weight", [1e308, 1e-320])
def test_weights_beyond_sums_count_by_their_ratios(make, weight, blobs):
    X, y = blobs
    expected = make().fit(X, y, sample_weight=np.ones(len(y))).predict_set(X)
    np.testing.assert_array_equal(make().fit(X, y, sample_weight=np.full(len(y), weight)).predict_set(X), expected)


@pytest.mark.parametrize("value", [1e300, 1e160])
def test_numbers_whose_squares_overflow_are_not_called_nan(value, blobs):
    X, y = blobs
    X = X.copy()
    X[3, 1] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(ValueError, match=r"X has values as large as 1e\+\d+, whose squares overflow"):
            baseline().fit(X, y)
    assert quick_scpo().fit(X, y).predict_set(X).sum(axis=1).mean() < 3  # columns are scaled by their reach here


def test_sets_that_are_all_empty_are_no_gain():
    empty, never = np.zeros(50), np.zeros(50, dtype=bool)
    theirs = np.zeros((3, 50)), np.zeros((3, 50), dtype=bool)
    found = at_equal_coverage(empty, never, *theirs, 0.1)
    assert found.change == 0
    assert found.low <= 0 <= found.high
    assert np.isnan(at_equal_coverage(np.ones(50), never, *theirs, 0.1).change)


def dates(blobs, unit):
    X, y = blobs
    return (np.datetime64("2020-01-01T00") + (1000 * X).astype("timedelta64[h]")).astype(f"datetime64[{unit}]"), y


@both
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_dates_are_the_same_in_every_unit(make, unit, blobs):
    import dask.array as da
    import pandas as pd

    X, y = dates(blobs, "h")
    clf = make().fit(X, y)
    other, expected = X.astype(f"datetime64[{unit}]"), clf.predict_p(X)
    np.testing.assert_array_equal(clf.predict_p(other), expected)
    np.testing.assert_array_equal(clf.predict_p(da.from_array(other, chunks=(50, X.shape[1]))), expected)
    np.testing.assert_array_equal(clf.calibrate(other, y).predict_p(X), clf.calibrate(X, y).predict_p(X))
    frame = pd.DataFrame(X.astype("datetime64[s]"))
    clf = make().fit(frame, y)
    np.testing.assert_array_equal(clf.predict_p(frame.astype(f"datetime64[{unit}]")), clf.predict_p(frame))
    with pytest.raises(ValueError, match=r"X has float64 where training had datetime64\[s\]"):
        clf.predict_set(blobs[0])


@both
def test_dates_as_labels_are_stored(make, blobs, tmp_path):
    import tightset

    X, y = blobs
    clf = make().fit(X, np.datetime64("2020-01-01") + y)
    clf.save(tmp_path / "m.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "m.tightset").predict(X), clf.predict(X))


@both
@pytest.mark.parametrize("first", ["int64", "uint64"])
def test_large_whole_numbers_are_the_same_label_in_every_type(make, first, blobs):
    X, y = blobs
    labels = (y + 2**62).astype(first)
    clf = make().fit(X, labels)
    for other in ("int64", "uint64"):
        assert clf.evaluate(X, labels.astype(other))["coverage"] == clf.evaluate(X, labels)["coverage"] > 0.8
    with pytest.warns(TightsetWarning, match="1 of"):
        clf.evaluate(X, np.append(labels[:-1].astype("int64"), -1))


@both
@pytest.mark.parametrize(("dtype", "offset"), [("float32", 1000), ("float64", 1e6)])
def test_sparse_rows_tie_with_dense_ones(make, dtype, offset):
    """Sums of columns that are not centred are rounded otherwise."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = (rng.integers(2, size=(240, 1)) + offset).astype(dtype), rng.integers(2, size=240)
        for first, second in ((np.asarray, sparse.csr_array), (sparse.csr_array, np.asarray)):
            clf = make().fit(first(X), y)
            np.testing.assert_array_equal(clf.predict_p(second(X)), clf.predict_p(first(X)))


@both
def test_an_entry_that_is_stored_in_parts_is_their_sum(make, blobs):
    X, y = blobs
    whole = sparse.csr_array(X)
    parts = whole.copy()
    parts.data = np.repeat(whole.data / 2, 2)
    parts.indices, parts.indptr = np.repeat(whole.indices, 2), 2 * whole.indptr
    np.testing.assert_array_equal(make().fit(parts, y).predict_p(parts), make().fit(whole, y).predict_p(whole))
    assert parts.nnz == 2 * whole.nnz


def grows(sets):
    """Whether no set has a label that a set at a higher level lacks; levels rise."""
    return not any((low & ~high).any() for at, low in enumerate(sets) for high in sets[at + 1 :])


@pytest.mark.parametrize("how", [{"label_conditional": True}, {"label_conditional": True, "cv": 3}, {"groups": True}])
@pytest.mark.parametrize("smoothed", [False, True])
def test_sets_that_are_filled_grow_with_the_level(how, smoothed):
    """An empty set gets the label that enters first, and not one that the next level takes out again."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 1200, p=[0.7, 0.2, 0.1])
    X = (rng.normal(size=(1200, 2)) + np.array([[0, 0], [1.2, 0], [0, 1.2]])[y]).round(1)
    groups = X[:, 0] > 0.5 if "groups" in how else None
    own = {name: value for name, value in how.items() if name != "groups"} | ({"cv": 3} if "groups" in how else {})
    levels = [0.3, 0.5, 0.7, 0.9]
    of = [None, None] if groups is None else [groups[:600], groups[600:]]
    filled = ConformalClassifier(confidence=levels, allow_empty=False, random_state=0, **own)
    filled.fit(X[:600], y[:600], groups=of[0])
    sets = filled.predict_set(X[600:], groups=of[1], smoothed=smoothed)
    assert sets.any(axis=2).all()
    assert grows(sets)
    holed = filled.set_params(allow_empty=True).predict_set(X[600:], groups=of[1], smoothed=smoothed)
    assert not holed.any(axis=2).all()  # there was something to fill
    assert (sets == holed)[holed.any(axis=2)].all()


@pytest.mark.parametrize("seed", [None, 0, np.random.RandomState(0)])
def test_smoothed_sets_grow_with_the_level_too(seed):
    """Ties are broken alike at all levels of a call."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (1200, 2)) * 1.0
    y = np.where(rng.random(1200) < 0.6, X[:, 0].astype(int), rng.integers(0, 3, 1200))
    clf = ConformalClassifier(confidence=[0.6, 0.65, 0.7, 0.75, 0.8], random_state=seed).fit(X[:400], y[:400])
    for _ in range(5):
        assert grows(clf.predict_set(X[400:], smoothed=True))


def test_levels_of_a_curve_can_be_asked_for():
    from tightset.conformal.ranks import significance

    for level in (0.99999999, 0.9999999, 1e-8):
        assert all(0 < significance(one) < 1 for one in levels_around([level])[0])


def test_an_interval_is_wider_where_few_rows_lie_near_the_threshold():
    """At 99.9 % of 150 rows nothing is known for sure, and the interval must not say otherwise."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 4))
        y = (X @ rng.normal(size=(4, 6)) + 2 * rng.gumbel(size=(200, 6))).argmax(axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf = quick_scpo(confidence=0.999, random_state=seed).fit(X, y)
        verdict = clf.folds_[0].record[0].verdict
        assert verdict.accepted or verdict.gain()[1] <= 0


def test_masked_scores_and_lazy_frames_are_refused(blobs):
    import polars as pl

    X, y = blobs

    class Masked(LogisticRegression):
        def predict_proba(self, X):
            return np.ma.masked_less(super().predict_proba(X), 0.5)

    with pytest.raises(ValueError, match="masked"):
        ConformalClassifier(Masked(), confidence=0.9).fit(X, y)
    with pytest.raises(ValueError, match=r"X\.collect\(\)"):
        ConformalClassifier(confidence=0.9).fit(pl.DataFrame(X).lazy(), y)


# ---- the sixth attack -----------------------------------------------------------------------------------------------


def gappy(n, gap, seed=0):
    """Texts with gaps, of which none is in the first rows."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    column = np.where(rng.random(n) < 0.9, np.array(["a", "b"], dtype=object)[y], "a")
    missing = rng.random(n) < 0.5
    missing[:5] = False
    column = column.astype(object)
    column[missing] = gap
    return pd.DataFrame({"c": column}), np.where(missing, rng.random(n) < 0.8, y).astype(int)


@pytest.mark.parametrize("way", ["memory", "dask", "calibrate"])
def test_gaps_tie_in_every_form_though_the_first_rows_have_none(way):
    import dask
    import dask.dataframe as dd

    X, y = gappy(400, np.nan)
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(*gappy(400, np.nan, seed=1))
    clf = ConformalClassifier(FrozenEstimator(model), confidence=0.8)
    with dask.config.set({"dataframe.convert-string": False}), warnings.catch_warnings():
        warnings.simplefilter("ignore", TightsetWarning)
        if way == "dask":
            clf.fit(dd.from_pandas(X, npartitions=2), y)
        elif way == "calibrate":
            clf.fit(X[:5], y[:5]).calibrate(X, y)
        else:
            clf.fit(X, y)
    found = [clf.predict_p(gappy(300, gap, seed=2)[0]) for gap in (np.nan, None)]
    np.testing.assert_array_equal(*found)
    assert clf.evaluate(*gappy(300, None, seed=2))["coverage"] > 0.75


def test_a_score_that_works_in_place_is_looked_at_and_harms_nothing():
    def halved_logs(P):
        P *= np.log(P)
        return P

    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (200, 2)).astype(float), rng.integers(0, 2, 200)
    tree = DecisionTreeClassifier(random_state=0)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="returned NaN scores"):
        ConformalClassifier(tree, conformity_score=halved_logs).fit(X[:, :1] + np.arange(200)[:, None], y)
    P = np.full((3, 2), 0.5)
    as_score(halved_logs)(P)
    assert (P == 0.5).all()


def test_a_file_keeps_what_was_fitted_whatever_parameters_say_now(tmp_path, blobs):
    X, y = blobs
    clf = scpo(confidence=[0.5, 0.95], max_iter=10).fit(X[:400], y[:400]).set_params(nested=True)
    clf.save(tmp_path / "m.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "m.tightset").predict_set(X[400:]), clf.predict_set(X[400:]))


def test_numbers_of_a_score_are_chosen_on_rows_in_the_form_of_training(blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=["p", "q"])
    pipe = make_pipeline(
        make_column_transformer((StandardScaler(), ["p"]), remainder="passthrough"), LogisticRegression()
    )
    clf = ConformalClassifier(pipe, conformity_score="raps", confidence=0.8, random_state=0)
    found = clf.fit(frame[:300], y[:300], X_cal=X[300:], y_cal=y[300:])
    again = clone(clf).fit(frame[:300], y[:300], X_cal=frame[300:], y_cal=y[300:])
    np.testing.assert_array_equal(found.predict_p(frame), again.predict_p(frame))


def test_a_fold_of_weight_zero_calibrates_nothing(blobs):
    X, y = blobs
    weight = np.ones(600)
    weight[:150] = 0
    clf = ConformalClassifier(cv=KFold(4), confidence=0.8).fit(X, y, weight)
    assert len(clf.folds_) == 3
    assert clf.fitted_.calibration_rows().total() == 450
    none = [(np.arange(150, 600), np.arange(150))]
    with pytest.raises(ValueError, match="cv leaves no row to calibrate on"):
        ConformalClassifier(cv=none, confidence=0.8).fit(X, y, weight)


def test_an_answer_is_of_one_calibration_though_another_comes_meanwhile(blobs, monkeypatch):
    X, y = blobs
    clf = ConformalClassifier(confidence=0.8, random_state=0).fit(X[:300], y[:300])
    before, new_rows = clf.predict_set(X), type(clf)._new_rows

    def meanwhile(self, *given):
        rows = new_rows(self, *given)
        monkeypatch.undo()
        clf.calibrate(X[300:350], y[300:350])
        return rows

    monkeypatch.setattr(type(clf), "_new_rows", meanwhile)
    np.testing.assert_array_equal(clf.predict_set(X), before)
    assert (clf.predict_set(X) != before).any()
