"""The score `PerCost`: LAC where costs are equal, the cheapest sets elsewhere, and what it refuses."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from tightset import ConformalClassifier, load
from tightset.compute.contracts import check_offers
from tightset.conformal.calibration import Calibration
from tightset.conformal.contract import Score
from tightset.conformal.scores import as_score
from tightset.exceptions import ModelFileError
from tightset.export import ExportError, to_onnx
from tightset.scores import LAC, PerCost
from tightset.storage.registry import make

SQUARE = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 5.0], [2.0, 2.0, 0.0]])


def labelled(n, C=3, seed=0):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(C, 0.5), n)
    return P, (P.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


P = labelled(500)[0]


@pytest.mark.parametrize("cost", [[1, 2, 4], SQUARE, [0, 1, 0], [1e-10, 1, 1e8]], ids=str)
def test_it_keeps_the_contract(cost):
    score = as_score(PerCost(cost))
    check_offers(score, Score)
    before = P.copy()
    A = score(P)
    np.testing.assert_array_equal(P, before)
    assert np.isfinite(A).all()
    assert score.choices(P, None, 0.9) == [score]
    np.testing.assert_array_equal(score(P[-3:]), A[-3:])  # rows are scored one by one
    np.testing.assert_array_equal(PerCost(8 * np.asarray(cost, dtype=float))(P), A)  # the unit does not matter
    assert hash(score) == hash(PerCost(cost))


def test_scores_rank_labels_by_probability_per_cost_over_all_rows():
    for cost in ([1.0, 2.0, 4.0], SQUARE):
        expected = P @ cost if np.ndim(cost) == 2 else np.broadcast_to(cost, P.shape)
        np.testing.assert_array_equal(np.argsort(PerCost(cost)(P), axis=None), np.argsort(P / expected, axis=None))


def test_equal_costs_give_the_sets_of_lac():
    cal, y = labelled(400, seed=1)
    for cost in ([3, 3, 3], 1 - np.eye(3)):
        sets = [Calibration.of(score(cal), y).sets(score(P), 0.9) for score in (LAC(), PerCost(cost))]
        np.testing.assert_array_equal(*sets)


def test_a_label_that_costs_nothing_is_above_all_others_in_the_order_of_probabilities():
    A = PerCost([1, 0, 2])(P)
    assert A[:, 1].min() >= 1 > A[:, [0, 2]].max()
    np.testing.assert_array_equal(np.argsort(A[:, 1]), np.argsort(P[:, 1]))
    assert PerCost(SQUARE)(np.eye(3)).tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]


@pytest.mark.parametrize("cost", [[1, 1, 10], SQUARE], ids=str)
def test_mean_cost_is_smaller_than_with_lac_at_the_same_coverage(cost):
    """Of true probabilities, so that no other rule is cheaper."""
    (cal, y), (new, _) = labelled(30_000, seed=1), labelled(30_000, seed=2)
    expected = new @ cost if np.ndim(cost) == 2 else np.broadcast_to(cost, new.shape)
    spent = {}
    for score in (LAC(), PerCost(cost)):
        sets = Calibration.of(score(cal), y).sets(score(new), 0.9)
        assert abs((new * sets).sum(axis=1).mean() - 0.9) < 0.01
        spent[score] = (sets * expected).sum(axis=1).mean()
    assert spent[PerCost(cost)] < 0.95 * spent[LAC()]


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({"a": 1}, "cost must be numbers, one for each label in the order of the classes"),
        (3, "cost must be numbers, one for each"),
        ([[1, 2, 3], [4, 5, 6]], "or 3 x 3 of them"),
        ([1, -1], "finite and not negative"),
        ([0, 0], "zero for every label"),
        (["1", "2"], "cost must be numbers"),
        ([1e308, 1], "cost must be at most"),
        (pd.Series([1, 2], ["b", "a"]), "in the order of the classes"),
    ],
)
def test_costs_that_are_none(cost, message):
    with pytest.raises(ValueError, match=message):
        PerCost(cost)


def test_costs_for_other_labels_are_refused():
    with pytest.raises(ValueError, match="cost must be for the 3 labels; PerCost has 2"):
        PerCost([1, 2])(P)


# ---- the estimator ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    y = np.array(list("abc"))[np.argmax(X + rng.gumbel(size=X.shape), axis=1)]
    return X[:2000], y[:2000], X[2000:], y[2000:]


@pytest.mark.parametrize("cost", [[1, 1, 10], SQUARE], ids=str)
def test_the_estimator_reports_its_cost_and_files_keep_it(rows, tmp_path, cost):
    X, y, X_new, y_new = rows
    clf = ConformalClassifier(LogisticRegression(), confidence=0.9, conformity_score=PerCost(cost), random_state=0)
    row = clf.fit(X, y).evaluate(X_new, y_new)
    sets, codes = clf.predict_set(X_new), np.searchsorted(clf.classes_, y_new)
    matrix = np.broadcast_to(np.asarray(cost, dtype=float), (3, 3))
    assert row["mean_cost"] == pytest.approx((sets * matrix[codes]).sum(axis=1).mean())
    assert row["inefficiency"] == row["mean_cost"]
    assert list(row).index("mean_cost") == list(row).index("mean_size") + 1
    clf.save(tmp_path / "priced.tightset")
    for again in (load(tmp_path / "priced.tightset"), pickle.loads(pickle.dumps(clf))):
        assert again.conformity_score == clf.conformity_score
        np.testing.assert_array_equal(again.predict_p(X_new), clf.predict_p(X_new))
    with pytest.raises(ExportError, match=r"conformity_score=PerCost\(.*cannot be exported to ONNX: costs are not"):
        to_onnx(clf)


@pytest.mark.parametrize("cost", [None, "x", (1.0, "a"), ((1.0,), (1.0, 2.0)), (-1.0, 1.0), (), {"a": 1.0}], ids=str)
def test_a_forged_file_is_refused(cost):
    with pytest.raises(ModelFileError, match="PerCost"):
        make(PerCost, {"cost": cost})
