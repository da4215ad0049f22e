"""The score `OrdinalAPS`: intervals that grow from the likeliest label, and what it refuses."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tightset import ConformalClassifier, load
from tightset.compute.contracts import check_offers
from tightset.compute.label_intervals import hull_of_scores
from tightset.conformal.calibration import Calibration
from tightset.conformal.contract import Score
from tightset.conformal.scores import as_score
from tightset.exceptions import ModelFileError
from tightset.export import ExportError, to_onnx
from tightset.scores import LAC, OrdinalAPS
from tightset.storage.registry import make

ORDER = [2, 0, 4, 1, 3]


def labelled(n, C=5, seed=0):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(C, 0.5), n)
    return P, (P.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


P = labelled(500)[0]


def grown(p):
    """The same for a row whose labels are in order, step by step; ties are left to chance."""
    inside = [int(np.argmax(p))]
    lacks = {inside[0]: 1.0}
    while len(inside) < len(p):
        beside = [at for at in (min(inside) - 1, max(inside) + 1) if 0 <= at < len(p)]
        best = max(beside, key=lambda at: p[at])
        lacks[best] = 1 - p[inside].sum()
        inside.append(best)
    return [lacks[at] for at in range(len(p))]


@pytest.mark.parametrize("order", [None, ORDER, np.array(ORDER), range(5), list(np.array(ORDER))], ids=str)
def test_it_keeps_the_contract(order):
    score = as_score(OrdinalAPS(order))
    check_offers(score, Score)
    before = P.copy()
    A = score(P)
    np.testing.assert_array_equal(P, before)
    assert score.choices(P, None, 0.9) == [score]
    np.testing.assert_array_equal(score(P[-3:]), A[-3:])  # rows are scored one by one
    np.testing.assert_array_equal(score(P.astype(np.float32)).dtype, np.float64)
    assert hash(score) == hash(OrdinalAPS(order))
    assert eval(repr(score)) == score


def test_a_score_is_what_the_interval_lacks_that_a_label_joins():
    expected = np.array([grown(row) for row in P[:, ORDER]])
    np.testing.assert_allclose(OrdinalAPS(ORDER)(P)[:, ORDER], expected, atol=2e-9)


def test_sets_are_nested_intervals_that_hold_the_likeliest_label():
    A = OrdinalAPS(ORDER)(P)
    assert len(np.unique(A, axis=1)[0]) == 5
    np.testing.assert_array_equal(A.argmax(axis=1), P.argmax(axis=1))
    np.testing.assert_array_equal(hull_of_scores(A, np.array(ORDER))[0], A)  # gaps there are none


def test_ties_are_broken_by_distance_and_then_downwards():
    even, sure = np.full((1, 5), 0.2), np.eye(5)[[2]]
    np.testing.assert_allclose(OrdinalAPS()(even), [[1, 0.8, 0.6, 0.4, 0.2]], atol=2e-9)
    assert np.argsort(-OrdinalAPS()(sure)).tolist() == [[2, 1, 3, 0, 4]]  # one by one, though all lack nothing
    with_zeros = np.array([[0.4, 0.0, 0.0, 0.0, 0.6]])
    assert np.argsort(-OrdinalAPS()(with_zeros)).tolist() == [[4, 3, 2, 1, 0]]


def test_likeliest_labels_score_by_their_probability():
    A = OrdinalAPS()(P).max(axis=1)
    assert A.min() > 1 - 1e-9
    np.testing.assert_array_equal(np.argsort(A), np.argsort(P.max(axis=1)))


def test_labels_without_probability_do_not_fill_the_sets():
    """Where a classifier is sure and right of nineteen rows in twenty, most sets have a label."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 4000)
    seen = np.where(rng.random(4000) < 0.04, (y + 2) % 5, y)
    sure = np.eye(5)[seen]
    calibration = Calibration.of(OrdinalAPS()(sure[:2000]), y[:2000])
    sets = calibration.sets(OrdinalAPS()(sure[2000:]), 0.95)
    assert sets.sum(axis=1).mean() < 1.1
    assert sets[np.arange(2000), y[2000:]].mean() > 0.94


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_coverage_is_within_its_law_over_draws(level):
    """2,000 rows calibrate and as many are tested, in each of 40 draws: the mean lies within five deviations."""
    found = []
    for seed in range(40):
        Q, y = labelled(4000, seed=seed)
        Q = 0.5 * Q + 0.1  # not what the labels were drawn from
        A = OrdinalAPS(ORDER)(Q)
        sets = Calibration.of(A[:2000], y[:2000]).sets(A[2000:], level)
        found.append(sets[np.arange(2000), y[2000:]].mean())
    sd = np.sqrt(level * (1 - level) * (2 / 2000) / 40)
    assert abs(np.mean(found) - level) < 5 * sd + 1 / 2001


@pytest.mark.parametrize(
    "order", ["abc", [0, 0, 1], [1, 2, 3], [0.5, 1, 0], [True, False], 3, [[0, 1]], [[0], [0, 1]], {0: 1}], ids=str
)
def test_orders_that_are_none(order):
    with pytest.raises(ValueError, match=r"order must be None, or the numbers of the columns"):
        OrdinalAPS(order)


def test_an_order_of_other_labels():
    with pytest.raises(ValueError, match="order must be of the 5 labels; OrdinalAPS has 3"):
        OrdinalAPS([0, 1, 2])(P)


@pytest.mark.parametrize("order", ["x", (0, 0), (0.0, 1.0), (1, 2), {"a": 1}, [None], -1], ids=str)
def test_a_forged_file_is_refused(order):
    with pytest.raises(ModelFileError, match="OrdinalAPS"):
        make(OrdinalAPS, {"order": order})
    with pytest.raises(ModelFileError, match="OrdinalAPS"):
        make(OrdinalAPS, {"order": None, "more": order})


# ---- the estimator ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    quality = X[:, 0] + 0.6 * rng.normal(size=4000) + np.where(X[:, 1] > 0.5, rng.choice([-1.5, 1.5], 4000), 0)
    y = np.array(["low", "medium", "high", "top"])[np.digitize(quality, [-0.8, 0, 0.8])]
    return X[:2000], y[:2000], X[2000:], y[2000:]


NAMES = ["low", "medium", "high", "top"]


def test_the_estimator_gives_its_order_to_the_score_and_files_keep_it(rows, tmp_path):
    X, y, X_new, y_new = rows
    how = {"confidence": 0.9, "conformity_score": OrdinalAPS(), "random_state": 0}
    clf = ConformalClassifier(LogisticRegression(), ordered=NAMES, **how).fit(X, y)
    own = np.searchsorted(clf.classes_, NAMES).tolist()
    assert clf.fitted_.folds[0].models[0].score == OrdinalAPS(own)
    assert clf.conformity_score == OrdinalAPS()  # a parameter stays what it was
    row = clf.evaluate(X_new, y_new)
    assert row["with_gaps"] == 0
    assert row["mean_width"] == row["mean_size"]
    assert abs(row["coverage"] - 0.9) < 0.03
    how["conformity_score"] = OrdinalAPS(own)
    same = ConformalClassifier(LogisticRegression(), **how).fit(X, y)
    np.testing.assert_array_equal(same.predict_p(X_new), clf.predict_p(X_new))
    np.testing.assert_equal(same.evaluate(X_new, y_new), row)
    with pytest.raises(ValueError, match="have different orders: give the order once, as ordered"):
        ConformalClassifier(LogisticRegression(), ordered=NAMES[::-1], **how).fit(X, y)
    clf.save(tmp_path / "ordinal.tightset")
    for again in (load(tmp_path / "ordinal.tightset"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.predict_p(X_new), clf.predict_p(X_new))
    with pytest.raises(ExportError, match=r"conformity_score=OrdinalAPS\(.*cannot be exported to ONNX: intervals"):
        to_onnx(clf)


def test_both_ways_to_intervals_are_much_narrower_than_all_labels(rows):
    X, y, X_new, y_new = rows
    width = {}
    for score in (LAC(), OrdinalAPS()):
        how = {"confidence": 0.9, "conformity_score": score, "random_state": 0}
        row = ConformalClassifier(LogisticRegression(), ordered=NAMES, **how).fit(X, y).evaluate(X_new, y_new)
        width[score] = row["mean_width"]
    assert abs(width[LAC()] / width[OrdinalAPS()] - 1) < 0.06
    assert max(width.values()) < 3.2
