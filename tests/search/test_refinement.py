"""What is chosen on a sample and trained on all rows: sums over blocks are those over all rows, and sets stay small."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from makers import quick_scpo
from problems import ON_A_SAMPLE, numeric_gradient, rows_with_labels
from tightset.compute.rows import MemoryRows
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.measures import MEASURES
from tightset.models.columns import Columns
from tightset.objectives.log_loss import LogLoss
from tightset.objectives.profiled import Profiled
from tightset.objectives.training import Training
from tightset.search.all_rows import OnAllRows, Piece


def pieces_of(X, measures, objective_of, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for at, name in enumerate(measures):
        anchor = MEASURES[name].start(rng.standard_normal((1, X.shape[1] + 1, 3)))[0]
        theta = anchor + rng.standard_normal(anchor.shape) / 3
        pull = rng.uniform(0, 1, (len(anchor), 1))
        gamma = 1.0 + at
        columns = Columns.plain(X)
        found.append(Piece(columns, name, objective_of(0.2, gamma), 0.2, gamma, theta, anchor, pull, np.zeros(1)))
    return found


def profiled(f):
    return lambda eps, gamma: Profiled(np.array([eps]), np.array([gamma]), f, 1e-12)


def stacked(pieces):
    theta = np.zeros((len(pieces), max(piece.theta.size for piece in pieces)))
    for row, piece in zip(theta, pieces, strict=True):
        row[: piece.theta.size] = piece.theta.ravel()
    return theta


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("objective", [profiled(SIZE), profiled(LOG), lambda *_: LogLoss()], ids=["size", "log", "nll"])
def test_losses_and_gradients_are_those_of_all_rows_at_once(objective, weighted, monkeypatch):
    monkeypatch.setattr("tightset.compute.rows._ROWS_PER_BLOCK", 37)
    monkeypatch.setattr("tightset.search.chunks._ENTRIES_AT_ONCE", 5 * 11)
    monkeypatch.setattr("tightset.search.chunks._FEWEST_AT_ONCE", 1)
    X, y = rows_with_labels(150)
    weight = np.random.default_rng(1).uniform(0.5, 2, 150) if weighted else None
    pieces = pieces_of(X, ["linear", "softmax", "two-matrix", "softmax"], objective)
    with Threads(2) as threads:
        problem = OnAllRows.of(MemoryRows(X).summed(y, weight, threads=threads), pieces, None)
        loss, gradient = problem(stacked(pieces))
    order = np.argsort(y, kind="stable")
    for b, piece in enumerate(pieces):
        Z, _ = piece.columns.apply(X[order])
        w = np.ones((1, 150)) if weight is None else weight[order][None]
        whole = Training(Z, y[order], MEASURES[piece.measure], piece.objective, w, piece.anchor[None], piece.pull[None])
        expected, slope = whole(piece.theta[None])
        np.testing.assert_allclose(loss[b], expected[0], rtol=1e-7)  # bins tell the threshold that well
        np.testing.assert_allclose(gradient[b, : piece.theta.size].reshape(piece.theta.shape), slope[0], atol=2e-5)
        assert (gradient[b, piece.theta.size :] == 0).all()


def test_gradients_meet_finite_differences():
    X, y = rows_with_labels(80)
    pieces = pieces_of(X, ["linear", "two-matrix"], profiled(SIZE))
    with Threads(1) as threads:
        problem = OnAllRows.of(MemoryRows(X).summed(y, None, threads=threads), pieces, None)
        at = stacked(pieces)
        slope = numeric_gradient(lambda theta: problem(theta)[0], at)
        np.testing.assert_allclose(problem(at)[1], slope, atol=1e-4)


def test_a_threshold_far_from_where_it_was_looked_for_is_found():
    X, y = rows_with_labels(500)
    (piece,) = pieces_of(X, ["linear"], profiled(SIZE))
    with Threads(1) as threads:
        rows = MemoryRows(X).summed(y, None, threads=threads)
        near, far = (OnAllRows.of(rows, [piece._replace(about=np.array([about]))], None) for about in (0.0, 500.0))
        for hard in (False, True):
            found = [problem.thresholds([piece.theta], hard=hard)[0] for problem in (near, far)]
            assert abs(found[0] - found[1]) < 1e-3
        Z, _ = piece.columns.apply(X)
        own = (Z @ piece.theta)[np.arange(500), y]
        assert abs(np.mean(own < found[0]) - 0.2) <= 2 / 500


@pytest.fixture(scope="module")
def on_a_sample():
    X, y = rows_with_labels(6000)
    return X, y, quick_scpo(search=ON_A_SAMPLE, max_iter=ON_A_SAMPLE.max_iter, confidence=[0.8, 0.95]).fit(X, y)


def test_sets_are_as_small_as_those_of_a_search_on_all_rows():
    X, y = rows_with_labels(5000)
    X_cal, y_cal = rows_with_labels(20_000, seed=1)
    X_new, y_new = rows_with_labels(20_000, seed=2)

    def found(rows, search):
        clf = quick_scpo(search=search, max_iter=search.max_iter, confidence=[0.8, 0.95])
        return clf.fit(X[rows], y[rows], X_cal=X_cal, y_cal=y_cal).evaluate(X_new, y_new)

    refined = found(slice(None), ON_A_SAMPLE)
    everything = found(slice(None), replace(ON_A_SAMPLE, rows=5000))
    sample = found(slice(1000), ON_A_SAMPLE)
    for at, level in enumerate((0.8, 0.95)):
        assert abs(refined[at]["coverage"] - level) < 0.01
        assert refined[at]["mean_size"] < 1.005 * everything[at]["mean_size"]
        assert refined[at]["mean_size"] < sample[at]["mean_size"]


def test_the_number_of_threads_does_not_change_a_bit(on_a_sample, monkeypatch):
    monkeypatch.setattr("tightset.compute.rows._ROWS_PER_BLOCK", 300)
    X, y, _ = on_a_sample
    clf = quick_scpo(search=ON_A_SAMPLE, max_iter=ON_A_SAMPLE.max_iter, confidence=[0.8, 0.95], n_jobs=3).fit(X, y)
    other = quick_scpo(search=ON_A_SAMPLE, max_iter=ON_A_SAMPLE.max_iter, confidence=[0.8, 0.95], n_jobs=1).fit(X, y)
    for one, two in zip(clf.folds_[0].models, other.folds_[0].models, strict=True):
        for a, b in zip(one.members, two.members, strict=True):
            np.testing.assert_array_equal(a.theta, b.theta)


def test_sparse_rows_train_as_dense_ones():
    X, y = rows_with_labels(3000)
    X = np.where(np.abs(X) > 1, X, 0)
    dense, thin = (quick_scpo(search=ON_A_SAMPLE, unfold=False).fit(rows, y) for rows in (X, sparse.csr_array(X)))
    for a, b in zip(dense.folds_[0].models[0].members, thin.folds_[0].models[0].members, strict=True):
        np.testing.assert_allclose(a.theta, b.theta, rtol=0.05, atol=0.02)  # the samples' descents differ by rounding
    assert abs(dense.evaluate(X, y)["mean_size"] - thin.evaluate(X, y)["mean_size"]) < 0.01


def test_weights_count_on_all_rows():
    X, y = rows_with_labels(4000)
    weight = np.where(np.arange(4000) % 2 == 0, 1.0, 1e-6)
    flipped = np.where(np.arange(4000) % 2 == 0, y, (y + 1) % 3)  # rows of next to no weight, labelled wrongly
    some = {"X_cal": X[::2], "y_cal": y[::2]}
    right = quick_scpo(search=ON_A_SAMPLE).fit(X[::2], y[::2], **some)
    weighted = quick_scpo(search=ON_A_SAMPLE).fit(X, flipped, sample_weight=weight, **some)
    wrong = quick_scpo(search=ON_A_SAMPLE).fit(X, flipped, **some)
    sizes = [one.evaluate(X[::2], y[::2])["mean_size"] for one in (right, weighted, wrong)]
    assert sizes[1] < 1.1 * sizes[0]
    assert sizes[2] > 1.2 * sizes[0]


def test_a_label_that_the_sample_missed_is_learnt_from_all_rows():
    X, y = rows_with_labels(4000)
    rare = np.zeros((20, 4))
    rare[:, 3] = 30 + np.arange(20) / 10
    X, y = np.vstack([X, rare]), np.append(y, np.full(20, 3))
    clf = quick_scpo(search=replace(ON_A_SAMPLE, rows=150), confidence=0.9).fit(X, y)
    assert clf.predict(rare).tolist() == [3] * 20
    assert clf.evaluate(X, y)["mean_size"] < 1.7  # of 4


def test_many_parameters_are_trained_a_few_measures_at_a_time(on_a_sample, monkeypatch):
    monkeypatch.setattr("tightset.search.refinement._PARAMETERS_AT_ONCE", 200)
    X, y, clf = on_a_sample
    other = quick_scpo(search=ON_A_SAMPLE, max_iter=ON_A_SAMPLE.max_iter, confidence=[0.8, 0.95]).fit(X, y)
    for one, two in zip(clf.folds_[0].models, other.folds_[0].models, strict=True):
        for a, b in zip(one.members, two.members, strict=True):
            np.testing.assert_allclose(a.theta, b.theta, atol=1e-6)


def test_the_summary_says_what_was_sampled(on_a_sample):
    assert "on a sample of 1,000 of 4,500 training rows, and trained on all" in on_a_sample[2].summary()
