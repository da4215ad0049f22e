"""Columns unfolded into piecewise linear functions, and ensembles on top of them."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, logit

from makers import quick_scpo
from tightset.models import columns
from tightset.models.columns import Columns, Knots
from tightset.models.ensembles import Ensemble, LinearModel, Member, combine

rng = np.random.default_rng(0)
X = np.column_stack([rng.standard_normal(500), rng.exponential(size=500) ** 3, rng.integers(0, 2, 500), np.ones(500)])


def test_ramps_are_bounded_and_add_up_to_the_clipped_column():
    knots = Knots.of(X)
    ramps = knots.ramps(X)
    assert set(knots.column) == {0, 1}  # two values and one value have nothing to unfold
    for column in (0, 1):
        own = knots.column == column
        assert own.sum() == 10
        low, high = knots.start[own][0], knots.start[own][-1] + knots.width[own][-1]
        np.testing.assert_allclose(ramps[:, own].sum(axis=1), np.clip(X[:, column], low, high) - low, atol=1e-12)
    far = knots.ramps(np.full((1, 4), 1e9))
    np.testing.assert_allclose(far[0], knots.width)


def test_knots_are_quantiles_also_with_weights_and_copies():
    times = np.arange(500) % 4
    weighted = Knots.of(X[times > 0], times[times > 0].astype(float))
    copies = Knots.of(np.repeat(X, times, axis=0))
    for one, other in zip(weighted, copies, strict=True):
        np.testing.assert_array_equal(one, other)
    inner = Knots.of(X).start[:10]
    np.testing.assert_allclose((X[:, :1] < inner).mean(axis=0), (np.arange(10) + 0.5) / 11, atol=0.01)


def test_a_few_values_give_a_few_ramps():
    knots = Knots.of(rng.integers(0, 4, (300, 1)).astype(float))
    np.testing.assert_array_equal(knots.start, [0, 1, 2])
    np.testing.assert_array_equal(knots.width, [1, 1, 1])


def test_nothing_to_unfold_or_too_much():
    assert Columns.unfolded(X[:, 2:]) is None
    assert Columns.unfolded(sparse.csr_array(X)) is None


def test_wide_arrays_get_fewer_pieces_or_none(monkeypatch):
    monkeypatch.setattr(columns, "_LARGEST", 500 * (4 + 2 * 5))
    assert (Knots.of(X).column == 0).sum() == 5
    monkeypatch.setattr(columns, "_LARGEST", 500 * (4 + 2 * 2))
    assert Knots.of(X) is None


def test_unfolded_columns_are_standardised_and_outliers_bounded():
    view = Columns.unfolded(X)
    Z, centre = view.apply(X)
    assert centre is None
    assert view.name == "unfolded"
    np.testing.assert_allclose(Z[:, :-1].mean(axis=0), 0, atol=1e-9)
    varying = Z.std(axis=0) > 0
    np.testing.assert_allclose(Z[:, varying].std(axis=0), 1)
    np.testing.assert_array_equal(Z[:, -1], 1)


def test_huge_and_tiny_values_are_scaled_alike():
    for size in (1e-200, 1.0, 1e200):
        Z = Columns.plain(size * X[:, :2]).apply(size * X[:, :2])[0]
        np.testing.assert_allclose(Z, Columns.plain(X[:, :2]).apply(X[:, :2])[0], rtol=1e-9)


def test_columns_as_they_are_stay_so_when_unfolded():
    view = Columns.unfolded(X, standardise=False)
    np.testing.assert_array_equal(view.apply(X)[0][:, :4], X)


def ensemble(dtype=np.float64):
    plain, unfolded = Columns.plain(X.astype(dtype)), Columns.unfolded(X.astype(dtype))
    m, n = 5, 1 + 4 + 20
    return Ensemble([
        Member(plain, "softmax", rng.standard_normal((m, 3)).astype(dtype), -1.0),
        Member(unfolded, "two-matrix", rng.standard_normal((n, 6)).astype(dtype), 0.5),
        Member(plain, "linear", rng.standard_normal((m, 3)).astype(dtype), 0.1),
    ])  # fmt: skip


def test_an_ensemble_votes():
    model = ensemble()
    margins = [member.scores(*member.columns.apply(X)) - member.threshold for member in model.members]
    share = np.mean([expit(4 * margin) for margin in margins], axis=0)
    np.testing.assert_allclose(expit(model.scores(X)), share, rtol=1e-9)


def test_votes_do_not_saturate():
    far = np.array([[30.0, 40.0, -900.0, -901.0]])
    scores = combine([far, far + 1])
    assert np.isfinite(scores).all()
    assert (np.diff(scores[0]) != 0).all()
    near = rng.standard_normal((4, 5))
    np.testing.assert_allclose(combine([near, near / 2]), logit((expit(4 * near) + expit(2 * near)) / 2), rtol=1e-9)


def test_one_member_ranks_as_by_itself():
    member = ensemble().members[0]
    own = member.scores(*member.columns.apply(X))
    np.testing.assert_allclose(Ensemble([member]).scores(X), 4 * (own + 1), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_scores_the_same_alone_and_among_others(dtype):
    model = ensemble(dtype)
    rows = np.concatenate([X, X[::-1], X[:37]]).astype(dtype)
    together = model.scores(rows)
    assert together.dtype == dtype
    for at in (0, 13, 511, 512, len(rows) - 1):
        np.testing.assert_array_equal(model.scores(rows[at : at + 1])[0], together[at])


def test_sparse_rows_score_as_dense_ones():
    plain = Columns.plain(sparse.csr_array(X))
    theta = rng.standard_normal((5, 3))
    for model in (LinearModel(plain, theta), Ensemble([Member(plain, "softmax", theta, 0.0)])):
        np.testing.assert_allclose(model.scores(sparse.csr_array(X)), model.scores(X), atol=1e-9)


def test_members_share_their_columns_after_a_pickle():
    model = pickle.loads(pickle.dumps(ensemble()))
    assert model.members[0].columns is model.members[2].columns


def test_scores_too_large_are_an_error():
    with pytest.raises(ValueError, match="too large to be scored"):
        ensemble().scores(np.full((1, 4), 1e308))


def test_sparse_rows_for_a_model_of_dense_ones():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 2))
    y = (np.abs(X[:, 0]) + 0.3 * rng.standard_normal(600) > 0.7).astype(int)  # only unfolded columns tell
    clf = quick_scpo().fit(X, y)
    assert any(member.columns.knots is not None for member in clf.folds_[0].models[0].members)
    np.testing.assert_array_equal(clf.predict_set(sparse.csr_array(X)), clf.predict_set(X))
