"""Judging candidates: the criterion, its noise, weights, folds."""

import numpy as np
import pytest

from tightset.conformal.inefficiency import LOG, SIZE
from tightset.conformal.ranks import threshold
from tightset.conformal.splits import fold_of_rows
from tightset.search.judging import Judge


def scores_of(signal, k=2000, C=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, C, k))
    A = rng.standard_normal((k, C))
    A[np.arange(k), y] += signal
    return A, y


def judge_of(y, weight=None, eps=0.1, f=SIZE, seed=0):
    return Judge(y, weight, eps, f, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("f", [SIZE, LOG])
@pytest.mark.parametrize("eps", [0.2, 0.05, 0.01])
def test_the_criterion_is_near_the_hard_inefficiency(eps, f):
    A, y = scores_of(2.0, k=20_000)
    judge = judge_of(y, eps=eps, f=f)
    q = threshold(judge.own(A), 1 - eps)
    hard = f((q <= A).sum(axis=1).astype(float)).mean()
    assert judge.criterion(judge.curve(A)) == pytest.approx(hard, rel=0.02)


def test_it_prefers_the_better_scores():
    A, y = scores_of(2.0)
    judge = judge_of(y)
    better = A.copy()
    better[np.arange(len(y)), y] += 0.3
    assert judge.criterion(judge.curve(better)) < 0.95 * judge.criterion(judge.curve(A))


def test_it_depends_on_the_order_of_scores_only():
    A, y = scores_of(1.0)
    judge = judge_of(y)
    assert judge.criterion(judge.curve(A)) == judge.criterion(judge.curve(np.exp(A / 2) - 7))


def test_it_is_less_noisy_than_the_hard_figure_at_99():
    hard, smooth = [], []
    for seed in range(60):
        A, y = scores_of(2.0, k=400, seed=seed)
        judge = judge_of(y, eps=0.01)
        smooth.append(judge.criterion(judge.curve(A)))
        hard.append((threshold(judge.own(A), 0.99) <= A).sum(axis=1).mean())
    assert np.std(smooth) < 0.95 * np.std(hard)


def test_the_bootstrap_knows_the_noise():
    """Its deviation, against the deviation of the criterion over fresh samples."""
    figures, errors = [], []
    for seed in range(60):
        A, y = scores_of(2.0, k=600, seed=seed)
        judge = judge_of(y, eps=0.05)
        curve = judge.curve(A)
        figures.append(judge.criterion(curve))
        errors.append(judge.resampled(curve).std())
    assert 0.7 < np.mean(errors) / np.std(figures) < 1.4


def test_samples_are_shared_so_that_differences_are_paired():
    A, y = scores_of(2.0)
    judge = judge_of(y)
    one, other = judge.curve(A), judge.curve(A + 0.01 * np.random.default_rng(1).standard_normal(A.shape))
    difference = np.std(judge.resampled(one) - judge.resampled(other))
    assert difference < 0.2 * judge.resampled(one).std()


def test_weights_count_as_copies_in_the_figure():
    A, y = scores_of(1.5, k=900)
    times = np.random.default_rng(2).integers(1, 4, len(y))
    weighted, copies = judge_of(y, times.astype(float)), judge_of(np.repeat(y, times))
    one, other = weighted.criterion(weighted.curve(A)), copies.criterion(copies.curve(np.repeat(A, times, axis=0)))
    assert one == pytest.approx(other, rel=0.01)
    assert one != pytest.approx(judge_of(y).criterion(judge_of(y).curve(A)), rel=1e-4)


def test_few_rows_and_ties_are_survived():
    judge = judge_of(np.array([0, 0, 1]), eps=0.01)
    curve = judge.curve(np.zeros((3, 2)))
    assert judge.criterion(curve) == 2
    assert (judge.resampled(curve) == 2).all()


def test_scores_that_are_not_finite_lose():
    A, y = scores_of(2.0)
    judge = judge_of(y)
    A[3, 2] = np.nan
    curve = judge.curve(A)
    assert np.isinf(judge.criterion(curve))
    assert np.isinf(judge.resampled(curve)).all()
    assert np.isinf(judge.error(curve))


def test_few_rows_below_the_threshold_call_for_caution():
    _, y = scores_of(1.0, k=300)
    assert judge_of(y, eps=0.01).caution == pytest.approx(1 + 1 / 3)
    assert judge_of(y, eps=0.2).caution < 1.02
    assert np.isfinite(judge_of(y[:5], eps=0.001).caution)


def test_quantiles_are_ranks_whatever_the_sum_of_weights_rounds_to():
    for k in (10, 20, 30, 70, 110, 130):
        own = np.arange(k, dtype=float)[:, None]
        judge = judge_of(np.zeros(k, dtype=int), eps=0.1)
        assert judge.thresholds(own) == k // 10 - 1


def test_folds_are_even_random_and_stratified():
    y = np.repeat([0, 1, 2], [50, 30, 4])
    folds = [fold_of_rows(y, 5, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(folds[0], folds[1])
    assert (folds[0] != folds[2]).any()
    counts = np.array([np.bincount(folds[0][y == c], minlength=5) for c in range(3)])
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    assert np.bincount(folds[0]).max() - np.bincount(folds[0]).min() <= 1


@pytest.mark.parametrize("decimals", [1, 6])
def test_sizes_are_counted_at_every_threshold(decimals):
    A, y = scores_of(1.0, k=500)
    A = A.round(decimals)  # ties, on thresholds too
    curve = judge_of(y).curve(A)
    thresholds = np.unique(A)
    at = [np.count_nonzero(A >= q, axis=1) for q in thresholds]
    columns = {tuple(row) for row in np.array(at, dtype=np.float32).tolist()}
    assert {tuple(column) for column in curve.inefficiency.T.tolist()} <= columns
    assert (np.diff(curve.inefficiency.sum(axis=0)) < 0).all()
