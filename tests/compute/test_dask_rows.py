"""Dask collections: the same result as in memory, nothing computed before it is asked for, and workers may die."""

import os
import pickle
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from makers import quick_scpo
from problems import ON_A_SAMPLE, rows_with_labels
from tightset import ConformalClassifier, SCPOClassifier, TightsetWarning
from tightset.compute.dask_rows import Partitions
from tightset.compute.row_forms import as_they_are

N = 3000
X, y = rows_with_labels(N)
X_new, y_new = rows_with_labels(500, seed=1)
LABELS = np.array(["ant", "bee", "cat"])[y]


def scpo(**changes):
    return quick_scpo(**({"search": ON_A_SAMPLE, "confidence": [0.8, 0.95]} | changes))


@pytest.fixture(scope="module")
def in_memory():
    return scpo().fit(X, y)


def assert_same(one, other):
    for a, b in zip(one.folds_[0].models, other.folds_[0].models, strict=True):
        for mine, theirs in zip(a.members, b.members, strict=True):
            np.testing.assert_allclose(mine.theta, theirs.theta, atol=1e-6)
            assert abs(mine.threshold - theirs.threshold) < 1e-6
    np.testing.assert_array_equal(one.predict_set(X_new), other.predict_set(X_new))


@pytest.mark.parametrize("chunks", [(N, 4), (700, 2), (251, 4)], ids=str)
def test_arrays_however_they_are_cut_give_the_result_in_memory(in_memory, chunks):
    assert_same(in_memory, scpo().fit(da.from_array(X, chunks=chunks), da.from_array(y, chunks=1234)))


def test_data_frames_and_labels_of_any_kind():
    frame = pd.DataFrame(X, columns=list("abcd"))
    expected = scpo().fit(frame, LABELS)
    found = scpo().fit(dd.from_pandas(frame, npartitions=4), dd.from_pandas(pd.Series(LABELS), npartitions=3))
    assert_same(expected, found)
    assert found.feature_names_in_.tolist() == list("abcd")
    lazy = found.predict(dd.from_pandas(pd.DataFrame(X_new, columns=list("abcd")), npartitions=3))
    np.testing.assert_array_equal(lazy.compute(), expected.predict(X_new))
    with pytest.raises(ValueError, match="feature names"):
        found.predict_set(dd.from_pandas(pd.DataFrame(X_new, columns=list("abce")), npartitions=2))


def test_weights_groups_and_coverage_by_label():
    weight, groups = np.random.default_rng(0).uniform(0, 2, N), np.arange(N) % 2
    weight[::7] = 0
    how = {"label_conditional": True, "confidence": 0.8}
    lazy = {"sample_weight": da.from_array(weight, chunks=500), "groups": da.from_array(groups, chunks=999)}
    found = scpo(**how).fit(da.from_array(X, chunks=(700, 4)), y, **lazy)
    expected = scpo(**how).fit(X, y, sample_weight=weight, groups=groups)
    for key, alphas in expected.folds_[0].calibrations[0].alphas.items():
        np.testing.assert_allclose(np.sort(found.folds_[0].calibrations[0].alphas[key]), np.sort(alphas), atol=1e-9)
    sets = found.predict_set(da.from_array(X_new, chunks=(99, 4)), groups=np.arange(500) % 2)
    np.testing.assert_array_equal(sets.compute(), expected.predict_set(X_new, groups=np.arange(500) % 2))
    with pytest.raises(ValueError, match="groups must be given"):
        found.predict_set(da.from_array(X_new))


def test_calibration_is_exact_and_any_predictor_takes_collections(in_memory):
    rows, labels = da.from_array(X_new, chunks=(77, 4)), da.from_array(y_new, chunks=50)
    for clf in (quick_scpo().fit(X[:500], y[:500]), quick_scpo(estimator=GaussianNB()).fit(X[:500], y[:500])):
        expected = clf.calibrate(X_new, y_new).predict_p(X)
        clf.calibrate(rows, labels)
        np.testing.assert_array_equal(clf.predict_p(da.from_array(X, chunks=(1000, 4))).compute(), expected)
    for theirs, mine in zip(in_memory.evaluate(rows, labels), in_memory.evaluate(X_new, y_new), strict=True):
        assert theirs.keys() == mine.keys()
        np.testing.assert_allclose([theirs[key] for key in mine], list(mine.values()), rtol=1e-12)


def test_prediction_is_lazy(in_memory, tmp_path):
    def touched(block):
        (tmp_path / f"{os.getpid()}").touch()
        return block

    rows = da.from_array(X_new, chunks=(100, 4)).map_blocks(touched, dtype=float, meta=np.empty((0, 0)))
    sets, p, labels = in_memory.predict_set(rows), in_memory.predict_p(rows, confidence=0.8), in_memory.predict(rows)
    assert (sets.shape, p.shape, labels.shape) == ((2, 500, 3), (500, 3), (500,))
    assert (sets.dtype, labels.dtype) == (bool, in_memory.classes_.dtype)
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(p.compute(), in_memory.predict_p(X_new, confidence=0.8))
    assert list(tmp_path.iterdir())
    np.testing.assert_array_equal(sets[:, :150].compute(), in_memory.predict_set(X_new)[:, :150])


def test_warnings_are_given_once_and_by_who_was_asked(in_memory):
    rows = da.from_array(X_new, chunks=(100, 4))
    with pytest.warns(TightsetWarning, match="no measure was trained for confidence 0.9") as seen:
        lazy = in_memory.predict_set(rows, confidence=0.9)
    assert len(seen) == 1
    lazy.compute()  # warnings are errors here


def test_few_rows_are_searched_in_memory_and_sparse_ones_stay_sparse():
    small = quick_scpo().fit(X[:300], y[:300])
    assert_same(small, quick_scpo().fit(da.from_array(X[:300], chunks=(70, 4)), y[:300]))
    thin = sparse.csr_array(np.where(np.abs(X) > 1, X, 0))
    rows = da.from_array(thin.toarray(), chunks=(700, 4)).map_blocks(sparse.csr_array, meta=sparse.csr_array((0, 0)))
    assert_same(scpo().fit(thin, y), scpo().fit(rows, y))


def test_a_plain_conformal_classifier(monkeypatch):
    monkeypatch.setattr("tightset.search.from_columns._ROWS_TO_START", 300)
    rows, labels = da.from_array(X, chunks=(700, 4)), da.from_array(y, chunks=999)
    trained = LogisticRegression().fit(X, y)
    for clf in (
        partial(ConformalClassifier, GaussianNB(), random_state=0),
        partial(ConformalClassifier, FrozenEstimator(trained), conformity_score="aps"),
        partial(ConformalClassifier, FrozenEstimator(trained), conformity_score="raps", random_state=0),
    ):
        np.testing.assert_allclose(
            clf().fit(rows, labels).predict_p(X_new), clf().fit(X, y).predict_p(X_new), atol=1e-3
        )
    default, expected = (ConformalClassifier(random_state=0).fit(*both) for both in ((rows, labels), (X, y)))
    assert (default.predict_set(X_new) == expected.predict_set(X_new)).mean() > 0.995
    np.testing.assert_allclose(default.predict_p(rows[:50]).compute(), expected.predict_p(X[:50]), atol=0.01)
    frame = dd.from_pandas(pd.DataFrame(X, index=np.arange(N) + 0.5, columns=list("abcd")), npartitions=3)
    np.testing.assert_allclose(
        ConformalClassifier(random_state=0).fit(frame, y).predict_p(X_new), default.predict_p(X_new), atol=0.01
    )
    counts = da.from_array((10 * X).astype(int), chunks=(700, 4))
    thin = counts.map_blocks(sparse.csr_array, meta=sparse.csr_array((0, 0), dtype=int))
    for whole_numbers in (counts, thin):
        found = ConformalClassifier(random_state=0).fit(whole_numbers, y).predict_p((10 * X_new).astype(int))
        np.testing.assert_allclose(found, default.predict_p(X_new), atol=0.1)


def test_partial_fit_sees_one_partition_at_a_time():
    loaded = []

    class Slow(GaussianNB):
        def partial_fit(self, X, y, classes=None, sample_weight=None):
            loaded.append(-1)
            return super().partial_fit(X, y, classes, sample_weight)

    def load(block):
        loaded.append(1)
        return block

    rows = da.from_array(X, chunks=(100, 4)).map_blocks(load, dtype=float, meta=np.empty((0, 0)))
    ConformalClassifier(Slow(), calibration_size=0.1, random_state=0).fit(rows, y)
    held = np.cumsum(loaded[: loaded.index(-1) + 60])
    assert held.max() <= 3


def test_what_is_lazy_does_not_follow_later_changes(in_memory):
    clf = quick_scpo(random_state=np.random.RandomState(0)).fit(X[:500], y[:500])
    rows = da.from_array(X_new, chunks=(50, 4))
    lazy, smoothed, now = clf.predict_set(rows), clf.predict_p(rows, smoothed=True), clf.predict_set(X_new)
    np.testing.assert_array_equal(smoothed.compute(), smoothed.compute())
    clf.calibrate(X_new[:60], y_new[:60]).set_params(confidence=[0.5, 0.6])
    np.testing.assert_array_equal(lazy.compute(), now)


def test_sets_travel_without_the_calibration_scores(in_memory):
    fitted = in_memory.fitted_
    bare, asked = fitted.slim([0.8]), fitted.ask([0.8])
    assert len(pickle.dumps(bare)) < len(pickle.dumps(fitted.slim())) - 750 * 8
    np.testing.assert_array_equal(bare.sets(asked, X_new), fitted.sets(asked, X_new))


def test_filters_of_warnings_stay_as_they_are(in_memory):
    before = list(warnings.filters)
    in_memory.predict_set(da.from_array(X_new, chunks=(10, 4))).compute(scheduler="threads", num_workers=8)
    assert warnings.filters == before


def test_folds_in_any_order():
    rows = np.arange(N)
    halves = (rows[N // 2 :], rows[: N // 2])
    mixed = quick_scpo(cv=[tuple(half[::-1] for half in halves)]).fit(da.from_array(X, chunks=(700, 4)), y)
    np.testing.assert_array_equal(mixed.predict_p(X_new), quick_scpo(cv=[halves]).fit(X, y).predict_p(X_new))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda rows: ConformalClassifier(RandomForestClassifier()).fit(rows, y), "having no partial_fit"),
        (lambda rows: SCPOClassifier.paper().fit(rows, y), "grid takes a thousand steps"),
        (lambda rows: scpo().fit(rows, da.from_array(np.where(y > 0, np.nan, y))), "missing label"),
        (lambda rows: scpo().fit(rows, dd.concat([dd.from_array(y[:9]), dd.from_array(LABELS)])), "mixes strings"),
        (lambda rows: scpo().fit(X, y).evaluate(rows[:0], y[:0]), "minimum of 1|no rows"),
        (lambda rows: scpo().fit(rows, y[:-1]), "inconsistent numbers of samples"),
        (lambda rows: scpo().fit(da.where(rows > 3, np.nan, rows), y), "NaN or infinity"),
        (lambda rows: scpo().fit(rows[:, 0], y), "1 dimensions"),
        (lambda rows: scpo().fit(dd.from_dask_array(rows)[0], y), "a Dask Series of 1 dimensions"),
        (lambda rows: scpo().fit(rows.to_delayed()[0, 0], y), "Dask array or data frame"),
        (lambda rows: scpo().fit(X, y, groups=y % 1).predict_set(rows, groups=[0]), "3000 rows, but 1 groups"),
        (lambda rows: scpo().predict(rows), "not fitted yet"),
        (lambda rows: scpo().fit(X, y).predict_set(rows[:, :3]), "X has 3 features"),
        (lambda rows: scpo().fit(X, y).predict_set(rows, as_labels=True), "as_labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_said(act, message):
    with pytest.raises(ValueError, match=message):
        act(da.from_array(X, chunks=(1000, 4)))


def test_what_is_wrong_with_a_partition_is_said_before_the_search(monkeypatch):
    monkeypatch.setattr("tightset.estimators.cases.path_search", None)
    with pytest.raises(ValueError, match="NaN or infinity"):
        scpo().fit(da.where(da.from_array(X, chunks=(100, 4)) > 3.2, np.inf, X), y)


def test_the_example_of_the_docs_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text()
    for folder, columns in (("rows", [*"abcd", "label"]), ("new", "abcd")):
        frame = pd.DataFrame(np.column_stack([X, y])[:400], columns=[*"abcd", "label"])[list(columns)]
        (tmp_path / folder).mkdir()
        frame.to_parquet(tmp_path / folder / "0.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dask.distributed.Client", lambda: None)
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert pd.read_parquet("sets").shape == (400, 3)


def test_a_trained_classifier_on_frames_says_nothing_of_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    trained = RandomForestClassifier(5, random_state=0).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = ConformalClassifier(FrozenEstimator(trained)).fit(dd.from_pandas(frame, npartitions=2), y)
        clf.predict_set(dd.from_pandas(frame, npartitions=3)).compute()


def test_rows_are_taken_in_order_and_vectors_must_fit():
    rows = Partitions.of(da.from_array(X, chunks=(700, 4)), as_they_are)
    some = np.array([3, 699, 700, 2999])
    np.testing.assert_array_equal(rows.take(some).gather(), X[some])
    np.testing.assert_array_equal(rows.take(some).take(np.array([1, 3])).gather(), X[some[[1, 3]]])
    with pytest.raises(ValueError, match="increasing order"):
        rows.take(some[::-1])
    with pytest.raises(ValueError, match="3000 rows, but 3 groups, labels or weights"):
        rows.map(as_they_are, np.zeros(3))


def rows_that_may_kill(folder, block, block_info=None):
    """Rows of a block; the worker that is asked for the fortieth one is killed, once."""
    calls = len(list(folder.glob("call-*")))
    (folder / f"call-{calls}-{os.getpid()}").touch()
    if calls >= 40:
        try:
            (folder / "poison").unlink()
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return block


def test_killing_a_worker_and_spreading_candidates(tmp_path, forkserver):
    from dask.distributed import Client, LocalCluster

    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    quickly = dask.config.set({"distributed.worker.multiprocessing-method": forkserver.get_start_method()})
    with quickly, LocalCluster(**how) as cluster, Client(cluster.scheduler_address):
        (tmp_path / "poison").touch()
        rows = da.from_array(X, chunks=(1500, 4)).map_blocks(partial(rows_that_may_kill, tmp_path), dtype=float)
        assert_same(scpo(confidence=0.9).fit(X, y), scpo(confidence=0.9).fit(rows, y))
        assert not (tmp_path / "poison").exists()
        with joblib.parallel_config(backend="dask"):
            spread = quick_scpo().fit(X[:300], y[:300])
            on_top = quick_scpo(estimator=GaussianNB()).fit(X[:300], y[:300])
    alone = quick_scpo().fit(X[:300], y[:300])
    for a, b in zip(spread.folds_[0].models[0].members, alone.folds_[0].models[0].members, strict=True):
        np.testing.assert_array_equal(a.theta, b.theta)  # to the last bit
    expected = quick_scpo(estimator=GaussianNB()).fit(X[:300], y[:300])
    np.testing.assert_array_equal(on_top.predict_p(X_new), expected.predict_p(X_new))


def test_dask_is_not_imported_for_arrays_in_memory():
    code = (
        "import sys; from sklearn.datasets import load_wine; from tightset import SCPOClassifier as S; "
        "S(0.9, search='fast').fit(*load_wine(return_X_y=True)); assert 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=Path(__file__).parents[1])
