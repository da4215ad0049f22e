"""Rows worked on in pieces, chunks and threads: the same to the last bit, and in bounded memory."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from makers import baseline, quick_on_top, quick_scpo
from tightset import TightsetWarning
from tightset.compute.arrays import settle
from tightset.conformal import calibration as icp
from tightset.conformal import lookups
from tightset.conformal.calibration import Calibration
from tightset.conformal.scores import APS
from tightset.estimators import pieces
from tightset.estimators.labels import distinct_labels, label_codes

# ---- estimators -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cut(monkeypatch):
    """Cuts rows into pieces of 64 from now on."""
    return lambda: monkeypatch.setattr(pieces, "_ROWS", (64, 64))


def everything(clf, X, y, groups=None, **how):
    """All that can be asked of rows."""
    found = [clf.predict_set(X, groups=groups, **how), clf.predict_p(X, groups=groups, **how), clf.predict(X)]
    rows = clf.evaluate(X, y, groups=groups, **how)
    return found + [np.array(list(row.values())) for row in (rows if isinstance(rows, list) else [rows])]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


SETTINGS = {
    "plain": {},
    "levels": {"confidence": [0.8, 0.95]},
    "labels": {"label_conditional": True, "allow_empty": False},
    "folds": {"cv": 3, "allow_empty": False},
    "folds of labels": {"cv": 3, "label_conditional": True, "confidence": 0.8},
    "randomised": {"conformity_score": APS(randomised=True)},
}


@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("smoothed", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_pieces_change_nothing(setting, smoothed, by_group, blobs, cut):
    X, y = blobs
    groups = np.array(["a", "b"])[(X[:, 0] > 1).astype(int)] if by_group else None
    fit = lambda: baseline(**({"estimator": GaussianNB(), "confidence": 0.8} | SETTINGS[setting])).fit(  # noqa: E731
        X, y, groups=groups
    )
    expected = everything(fit(), X, y, groups, smoothed=smoothed)
    cut()
    assert_same(everything(fit(), X, y, groups, smoothed=smoothed), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pieces_change_nothing_for_a_trained_measure(dtype, blobs, cut):
    X, y = blobs[0].astype(dtype), blobs[1]
    clf = quick_scpo(confidence=[0.8, 0.9]).fit(X[:400], y[:400])
    fits = lambda: everything(clf.calibrate(X[400:], y[400:]), X, y)  # noqa: E731
    expected = fits()
    cut()
    assert_same(fits(), expected)


def test_a_generator_is_drawn_from_once_a_call_and_not_once_a_piece(blobs, cut):
    X, y = blobs
    clf = baseline(estimator=GaussianNB(), confidence=[0.8, 0.9]).fit(X.round(), y)

    def smoothed():
        clf.set_params(random_state=np.random.RandomState(3))
        return [clf.predict_p(X.round(), smoothed=True), clf.predict_set(X.round(), smoothed=True)]

    expected = smoothed()
    np.testing.assert_array_equal(expected[0][0], expected[0][1])  # so that sets grow with the level
    cut()
    assert_same(smoothed(), expected)


class Witness(ClassifierMixin, BaseEstimator):
    """Remembers what it was given."""

    def __init__(self, inner):
        self.inner, self.classes_, self.seen = inner, inner.classes_, []

    def fit(self, X, y):
        raise AssertionError

    def predict_proba(self, X):
        self.seen.append(X)
        return self.inner.predict_proba(X)


KINDS = {
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"], index=np.arange(len(X))[::-1]),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "list": lambda X: X.tolist(),
    "fortran": np.asfortranarray,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows_can_be_cut_and_stays_what_it_is(kind, blobs, cut):
    X, y = blobs
    rows = KINDS[kind](X)
    witness = Witness(LogisticRegression().fit(np.asarray(X), y))
    clf = baseline(estimator=FrozenEstimator(witness), confidence=0.8)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has feature names")
        expected = everything(clf.fit(rows, y), rows, y)
        cut()
        witness.seen.clear()
        assert_same(everything(clf.fit(rows, y), rows, y), expected)
    assert [len(np.arange(part.shape[0])) for part in witness.seen[:10]] == [64] * 9 + [24]
    given = np.ndarray if kind == "list" else type(rows)
    assert all(isinstance(part, given) for part in witness.seen)


def test_texts_can_be_cut(cut):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    texts = np.array([" ".join(rng.choice(["red", "green", "blue"], 3)) + " warm" * label for label in y], dtype=object)
    model = make_pipeline(HashingVectorizer(n_features=64), LogisticRegression())
    clf = baseline(estimator=model, confidence=0.8).fit(texts, y)
    expected = everything(clf, texts, y)
    cut()
    assert_same(everything(clf, texts, y), expected)


def test_levels_share_the_scores_of_a_piece(labelled_rows, cut):
    X, y, X_new, _ = labelled_rows
    witness = Witness(GaussianNB().fit(X, y))
    clf = quick_on_top(FrozenEstimator(witness), confidence=[0.8, 0.9]).fit(X, y)
    cut()
    witness = clf.folds_[0].models[0].blocks[0].models[0].estimator
    witness.seen.clear()
    clf.predict_set(X_new)
    assert len(witness.seen) == -(-len(X_new) // 64)


def test_a_warning_is_given_once_and_not_once_a_piece(blobs, cut):
    X, y = blobs
    clf = quick_scpo(confidence=0.8, calibration_size=40).fit(X, y)
    cut()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.predict_set(X, confidence=0.99)
    assert [one.category for one in caught] == [TightsetWarning] * 2  # too few rows; no measure for the level
    assert all(one.filename == __file__ for one in caught)


def test_an_error_says_which_row_it_counts_from(cut):
    P = np.tile([0.6, 0.4], (200, 1))
    clf = baseline(estimator="precomputed", confidence=0.8).fit(P, np.arange(200) % 2)
    P[130, 1] = np.nan
    cut()
    with pytest.raises(ValueError, match="X has scores that are NaN, first in row 2") as error:
        clf.predict_p(P)
    assert error.value.__notes__ == ["(Rows are scored in pieces; here row 0 is row 128 of X.)"]


def test_memory_does_not_grow_with_the_rows_but_for_what_is_returned():
    """400,000 rows of 10 scores are 32 MB; a piece of them is 5 MB, and a few arrays of that size are alive at once."""
    P = np.random.default_rng(0).dirichlet(np.full(10, 0.3), size=400_000)
    y = np.tile(np.arange(10), 40_000)
    clf = baseline(estimator="precomputed")
    for ask, kept in (
        (lambda: clf.fit(P, y), 3.2e6),
        (lambda: clf.predict_set(P), 4e6),
        (lambda: clf.predict_p(P), 32e6),
    ):
        tracemalloc.start()
        ask()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak - kept < 30e6


# ---- p-values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("few", [0, 2**10])
@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_look_ups_equal_a_brute_force_count(by_label, dtype, few, monkeypatch):
    rng = np.random.default_rng(0)
    scores, y, tau = rng.standard_normal((300, 4)).round(1), rng.integers(0, 4, 300), rng.uniform(size=50)
    scores = scores.astype(dtype)
    new = np.vstack([rng.standard_normal((49, 4)).round(1), [-np.inf, np.inf, -0.0, 0.0]]).astype(dtype)
    own = scores[np.arange(300), y]
    same = (y[:, None] == np.arange(4)) if by_label else np.ones((300, 4), dtype=bool)
    n = same.sum(axis=0)
    at_most = ((own[:, None, None] <= new) & same[:, None]).sum(axis=0)
    below = ((own[:, None, None] < new) & same[:, None]).sum(axis=0)
    predictor = Calibration.of(scores, y, by_label=by_label)
    monkeypatch.setattr(lookups, "_FEW", few)
    monkeypatch.setattr(lookups, "_IN_CACHE", 0)
    monkeypatch.setattr(lookups, "_TABLE", 10)
    np.testing.assert_array_equal(predictor.p_values(new), ((at_most + 1) / (n + 1)).astype(dtype))
    smoothed = (below + tau[:, None] * (at_most - below + 1)) / (n + 1)
    np.testing.assert_array_equal(predictor.p_values(new, smoothing=tau), smoothed.astype(dtype))


@pytest.mark.parametrize("few", [0, 2**10])
@pytest.mark.parametrize("n_folds", [1, 3])
def test_neither_chunks_nor_threads_nor_tables_change_a_bit(n_folds, few, monkeypatch):
    rng = np.random.default_rng(1)
    y, groups, tau = rng.integers(0, 3, 300), rng.choice(["a", "b"], 300), rng.uniform(size=300)
    scores = [rng.standard_normal((300, 3)).round(1) for _ in range(n_folds)]
    new = [rng.standard_normal((300, 3)).round(1) for _ in scores]

    def found():
        folds = [Calibration.of(some, y, by_label=True, groups=groups) for some in scores]
        plain = [icp.p_values(folds, new, groups=groups), icp.sets(folds, new, 0.9, groups=groups)]
        smoothed = icp.p_values(folds, new, groups=groups, smoothing=tau)
        return [*plain, smoothed, icp.sets(folds, new, 0.9, groups=groups, allow_empty=False)]

    expected = found()
    monkeypatch.setattr(icp, "_CHUNK", 7)
    monkeypatch.setattr(icp, "_CHUNK_OF_CATEGORY", 1)
    monkeypatch.setattr(lookups, "_FEW", few)
    monkeypatch.setattr(lookups, "_IN_CACHE", 0)
    monkeypatch.setattr(lookups, "_TABLE", 10)
    monkeypatch.setattr(icp, "_SCORES_FOR_THREADS", 0)
    for n_jobs in (1, 3):
        monkeypatch.setattr(icp, "cores", lambda n_jobs=n_jobs: n_jobs)
        assert_same(found(), expected)


def test_few_rows_need_no_threads(monkeypatch):
    monkeypatch.setattr(icp, "ThreadPoolExecutor", None)
    scores = np.random.default_rng(2).standard_normal((500, 10))
    assert Calibration.of(scores, np.zeros(500, dtype=int)).p_values(scores).shape == (500, 10)


# ---- what calibration is made of ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 3, 2**11]),
        np.array([3, 1, 3, 2**12]),
        np.array([-3, 1, 1]),
        np.array([200, 0, 255], dtype=np.uint8),
        np.array([2**63, 1, 7], dtype=np.uint64),
        np.array([7, 1, 7], dtype=np.uint64),
        np.array([True, False, True]),
        np.array([1.5, 0.5]),
        np.array(["b", "a", "b"]),
    ],
    ids=lambda labels: f"{labels.dtype} {labels[-1]}",
)
def test_labels_are_counted_as_they_would_be_sorted(labels):
    classes, codes = np.unique(labels, return_inverse=True)
    assert_same([distinct_labels(labels)], [classes])
    np.testing.assert_array_equal(label_codes(labels, classes, "y"), codes)
    with pytest.raises(ValueError, match=r"y has labels that were not in training: .*; known labels are"):
        label_codes(labels, classes[:-1], "y")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_settled_scores_are_near_and_their_last_digits_gone(dtype, order):
    scores = np.array([[0.1, -1 / 3, np.inf], [-0.0, 1e4, -np.inf]], dtype=dtype, order=order)
    before = scores.copy()
    found = settle(scores)
    np.testing.assert_array_equal(scores, before)
    assert found.flags.c_contiguous
    assert found.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_allclose(found, scores, rtol=2.0**-19)
    whole, drop = (np.uint32, 4) if dtype == np.float32 else (np.uint64, 12)
    assert not (found.view(whole) % (1 << drop)).any()
    np.testing.assert_array_equal(settle(found), found)
