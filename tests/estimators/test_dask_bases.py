"""Classifiers as the start, on Dask collections: trained where rows lie, or on a sample that is told of."""

import os
import pickle
import signal
import tracemalloc
from dataclasses import replace
from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from makers import quick_scpo
from problems import ON_A_SAMPLE, rows_with_labels
from tightset import ConformalClassifier, Search, TightsetWarning, load
from tightset.compute.dask_rows import Partitions
from tightset.conformal.splits import calibration_mask, fold_of_rows
from tightset.estimators.labels import checked_labels

N = 3000
X, y = rows_with_labels(N)
X_new, y_new = rows_with_labels(500, seed=1)
LABELS = np.array(["ant", "bee", "cat"])[y]
ROWS, THERE = da.from_array(X, chunks=(700, 4)), da.from_array(y, chunks=999)
OTHER = rows_with_labels(400, seed=2)


def on_top(estimator, **changes):
    return quick_scpo(**({"estimator": estimator, "search": ON_A_SAMPLE, "confidence": [0.8, 0.95]} | changes))


def assert_same(one, other, **how):
    np.testing.assert_allclose(one.predict_p(X_new, **how), other.predict_p(X_new, **how), atol=1e-9)
    np.testing.assert_array_equal(one.predict_set(X_new, **how), other.predict_set(X_new, **how))


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        FrozenEstimator(RandomForestClassifier(10, random_state=0).fit(*OTHER)),
        FrozenEstimator(LinearSVC().fit(*OTHER)),
        FrozenEstimator(GaussianNB().fit(*OTHER)),
    ],
    ids=["partial_fit", "trained", "trained without probabilities", "trained, and not improved"],
)
def test_what_trains_or_scores_where_rows_lie_gives_the_result_in_memory(estimator):
    expected, found = on_top(estimator).fit(X, y), on_top(estimator).fit(ROWS, THERE)
    assert_same(expected, found)
    assert found.summary() == expected.summary()
    assert "chosen on a sample of 1,000 of 2,250 training rows, and trained on all" in found.summary()
    lazy = found.predict_set(da.from_array(X_new, chunks=(99, 4)))
    np.testing.assert_array_equal(lazy.compute(), found.predict_set(X_new))


def test_scores_that_are_given():
    P, P_new = (LogisticRegression().fit(*OTHER).predict_proba(rows) for rows in (X, X_new))
    found = on_top("precomputed").fit(da.from_array(P, chunks=(700, 3)), THERE)
    np.testing.assert_array_equal(found.predict_set(P_new), on_top("precomputed").fit(P, y).predict_set(P_new))


def test_weights_groups_frames_and_labels_of_any_kind():
    weight, groups = np.random.default_rng(0).uniform(0.5, 2, N), np.arange(N) % 2
    weight[::7] = 0
    frame = pd.DataFrame(X, columns=list("abcd"))
    how = {"sample_weight": weight, "groups": groups}
    lazy = dd.from_pandas(frame, npartitions=4), dd.from_pandas(pd.Series(LABELS), npartitions=3)
    one = on_top(GaussianNB(), class_weight="balanced", confidence=0.9, label_conditional=True)
    expected, found = clone(one).fit(frame, LABELS, **how), one.fit(*lazy, **how)
    assert found.feature_names_in_.tolist() == list("abcd")
    new = pd.DataFrame(X_new, columns=list("abcd"))
    np.testing.assert_array_equal(found.predict_set(new, groups=y_new % 2), expected.predict_set(new, groups=y_new % 2))


def test_columns_of_text_are_left_to_the_classifier():
    frame = pd.DataFrame(X, columns=list("abcd")).assign(e=LABELS)
    trained = make_pipeline(_Numbers(), GaussianNB()).fit(frame, y)
    expected = on_top(FrozenEstimator(trained), confidence=0.9).fit(frame, y)
    found = on_top(FrozenEstimator(trained), confidence=0.9).fit(dd.from_pandas(frame, npartitions=3), THERE)
    np.testing.assert_array_equal(found.predict_p(frame[:200]), expected.predict_p(frame[:200]))


class _Numbers(StandardScaler):
    def fit(self, X, y=None):
        return super().fit(X[list("abcd")])

    def transform(self, X):
        return super().transform(X[list("abcd")])


@pytest.mark.parametrize("estimator", ["auto", RandomForestClassifier(5, random_state=0)], ids=["auto", "forest"])
def test_others_are_trained_on_a_sample_and_that_is_said(estimator):
    how = {"search": replace(ON_A_SAMPLE, rows=300), "confidence": 0.9}
    with pytest.warns(TightsetWarning, match=r"trained on a sample of 300 of 2,250 training rows: give Search"):
        found = on_top(estimator, **how).fit(ROWS, THERE)
    assert "It was trained on a sample of 300 of 2,250 training rows." in found.summary()
    assert found.evaluate(ROWS, THERE)["coverage"] > 0.85


def test_of_few_rows_all_are_sent_whatever_the_classifier():
    forest = RandomForestClassifier(5, random_state=0)
    some = ROWS[:300], THERE[:300]
    assert_same(on_top(forest).fit(X[:300], y[:300]), on_top(forest).fit(*some))
    assert "sample" not in on_top(GaussianNB()).fit(*some).summary()


def test_a_model_of_many_rows_is_stored(tmp_path):
    found = on_top(GaussianNB(), confidence=0.9).fit(ROWS, THERE)
    found.save(tmp_path / "model.tightset")
    opened = load(tmp_path / "model.tightset")
    assert_same(found, opened)
    assert opened.summary() == found.summary()


def test_sets_on_a_sample_are_as_small_as_those_of_a_search_on_all_rows():
    """On top of a classifier, too, a sample is enough to choose by, since all rows train."""
    rows, labels = rows_with_labels(4000, seed=3)
    sizes = [
        on_top(GaussianNB(), confidence=0.9, search=search).fit(rows, labels).evaluate(X, y)["mean_size"]
        for search in (ON_A_SAMPLE, replace(ON_A_SAMPLE, rows=100_000))
    ]
    assert sizes[0] < 1.02 * sizes[1]


def test_evaluation_sends_sums_and_nothing_that_grows_with_the_rows(monkeypatch):
    clf = on_top(GaussianNB(), confidence=[0.8, 0.9], ordered=True).fit(X, y)
    sent, as_before = [], Partitions.map

    def recorded(self, function, *vectors):
        sent.append(as_before(self, function, *vectors))
        return sent[-1]

    monkeypatch.setattr(Partitions, "map", recorded)
    found = clf.evaluate(ROWS, THERE)
    (parts,) = sent
    assert len(pickle.dumps(parts)) < 5 * 2 * 4000  # 5 partitions, 2 levels
    for theirs, mine in zip(found, clf.evaluate(X, y), strict=True):
        np.testing.assert_allclose([theirs[key] for key in mine], list(mine.values()), rtol=1e-12)


def test_labels_come_as_a_byte_for_each_row():
    for labels in (THERE, dd.from_pandas(pd.Series(LABELS), npartitions=3), da.from_array(LABELS, chunks=999)):
        found = checked_labels(labels)
        assert found.at.dtype == np.int8
        np.testing.assert_array_equal(np.asarray(found), labels.compute())
    assert checked_labels(da.from_array(np.arange(1000), chunks=300)).at.dtype == np.int16


def test_a_split_takes_less_than_nine_bytes_for_each_row():
    n = 300_000
    labels = np.random.default_rng(0).integers(0, 5, n).astype(np.int8)
    tracemalloc.start()
    try:
        held = calibration_mask(np.broadcast_to(np.int8(0), n), labels, n // 4, np.random.RandomState(0))
        fold = fold_of_rows(labels, 5, np.random.default_rng(0), np.int8)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 9 * n + 10 * 2**20  # pieces of 2**16 rows
    assert held.sum() == n // 4
    assert np.ptp([np.bincount(fold[labels == label]) for label in range(5)], axis=1).max() <= 1


def test_folds_are_those_of_a_stable_sort():
    labels = np.random.default_rng(1).integers(0, 4, 70_000)
    mixed = np.random.default_rng(2).permutation(len(labels))
    expected = np.empty(len(labels), dtype=int)
    expected[mixed[np.argsort(labels[mixed], kind="stable")]] = np.arange(len(labels)) % 3
    np.testing.assert_array_equal(fold_of_rows(labels, 3, np.random.default_rng(2)), expected)


def lightgbm_on_dask(**changes):
    from lightgbm import DaskLGBMClassifier

    return DaskLGBMClassifier(**({"n_estimators": 4, "verbose": -1} | changes))


def xgboost_on_dask(**changes):
    from xgboost.dask import DaskXGBClassifier

    return DaskXGBClassifier(**({"n_estimators": 4, "max_depth": 3} | changes))


@pytest.mark.parametrize("make", [lightgbm_on_dask, xgboost_on_dask])
def test_classifiers_of_a_cluster_train_in_memory_too(make, tmp_path):
    found = on_top(make(random_state=0), confidence=0.9).fit(X, y)
    found.save(tmp_path / "model.tightset")
    assert_same(found, load(tmp_path / "model.tightset"))
    with pytest.raises(ValueError, match=r"start dask\.distributed\.Client\(\) first"):
        on_top(make()).fit(ROWS, THERE)
    with pytest.raises(ValueError, match=r"must not be a Pipeline around .*prepare the collection"):
        on_top(make_pipeline(StandardScaler(), make())).fit(X, y)


def test_weights_that_a_classifier_did_not_request_do_not_reach_it():
    weight = np.random.default_rng(0).uniform(0.5, 2, N)
    with config_context(enable_metadata_routing=True):
        base = GaussianNB().set_fit_request(sample_weight=False)
        clf = on_top(base, confidence=0.9).set_fit_request(sample_weight=True)
        expected = clone(clf).fit(X, y, sample_weight=weight)
        found = clf.fit(ROWS, THERE, sample_weight=weight)
        in_memory = on_top(lightgbm_on_dask().set_fit_request(sample_weight=False), confidence=0.9)
        in_memory.set_fit_request(sample_weight=True).fit(X, y, sample_weight=weight)
    assert_same(expected, found)
    assert in_memory.evaluate(X_new, y_new)["coverage"] > 0.85


def die_once(poison, block):
    """Rows of a block; the worker that is asked for it while there is poison is killed."""
    try:
        poison.unlink()
    except FileNotFoundError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
def test_a_cluster_trains_predicts_without_and_may_lose_a_worker(tmp_path, forkserver):
    import dask
    from dask.distributed import Client, LocalCluster

    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    quickly = dask.config.set({"distributed.worker.multiprocessing-method": forkserver.get_start_method()})
    poison = tmp_path / "poison"
    search = Search((("two-matrix", 2.0),), pulls=(0.1,), max_iter=10, folds=2, repeats=1, rows=500)
    makers = lightgbm_on_dask, partial(xgboost_on_dask, random_state=0)
    with quickly, LocalCluster(**how) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        rows = ROWS.map_blocks(partial(die_once, poison), dtype=float)
        fitted = [on_top(make(), confidence=0.9, search=search).fit(rows, THERE) for make in makers]
        poison.touch()
        wounded = on_top(makers[0](), confidence=0.9, search=search).fit(rows, THERE)
        assert not poison.exists()
        with pytest.raises(ValueError, match="not every part has rows of the labels 0, 2: shuffle"):
            on_top(makers[0](), search=search).fit(da.from_array(X[np.argsort(y)], chunks=(700, 4)), np.sort(y))
        frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")), npartitions=4)
        plain = ConformalClassifier(makers[1](), confidence=0.9, random_state=0).fit(rows, THERE)
        named = on_top(makers[0](), confidence=0.9, search=search).fit(frame, THERE)
    assert_same(fitted[0], wounded)
    assert 0.85 < named.evaluate(pd.DataFrame(X_new, columns=list("abcd")), y_new)["coverage"] < 0.95
    assert 0.85 < plain.evaluate(X_new, y_new)["coverage"] < 0.95
    for found, name in zip(fitted, ("LGBMClassifier", "XGBClassifier"), strict=True):
        (block,) = found.folds_[0].models[0].blocks
        assert {type(one).__name__ for one in block.models} == {name}
        found.save(tmp_path / "model.tightset")
        assert_same(found, load(tmp_path / "model.tightset"))
        assert 0.85 < found.evaluate(X_new, y_new)["coverage"] < 0.95
        lazy = found.predict_set(da.from_array(X_new, chunks=(99, 4)))
        np.testing.assert_array_equal(lazy.compute(scheduler="threads"), found.predict_set(X_new))


def test_sparse_rows_stay_sparse():
    thin = sparse.csr_array(np.where(np.abs(X) > 1, X, 0))
    rows = da.from_array(thin.toarray(), chunks=(700, 4)).map_blocks(sparse.csr_array, meta=sparse.csr_array((0, 0)))
    trained = FrozenEstimator(LogisticRegression().fit(sparse.csr_array(OTHER[0]), OTHER[1]))
    one, other = on_top(trained, confidence=0.9).fit(thin, y), on_top(trained, confidence=0.9).fit(rows, THERE)
    np.testing.assert_array_equal(one.predict_set(thin[:300]), other.predict_set(thin[:300]))
