"""Promises on odd input: masks, dates, weights, sparse entries, gaps, scores that work in place; and files that keep them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

import tightset
from makers import baseline, both, quick_scpo, scpo
from tightset import ConformalClassifier, TightsetWarning
from tightset.conformal.scores import as_score


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads of small trees would wait for each other, where two tests run side by side."""
    with threadpool_limits(1):
        yield


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
