"""Judging by category: the figure is the mean size at exact coverage of each, and its error is honest."""

import numpy as np
import pytest

from makers import QUICK
from tightset import SCPOClassifier, Search
from tightset.conformal.calibration import Calibration
from tightset.conformal.inefficiency import SIZE, as_inefficiency
from tightset.objectives.terms import Terms
from tightset.search.judging_terms import JudgeOnTerms

C = 4


def scored(rng, n):
    y = np.sort(rng.choice(C, n, p=[0.4, 0.3, 0.2, 0.1]))
    A = rng.normal(size=(n, C))
    A[np.arange(n), y] += 2.5
    return y, A, A + 0.7 * rng.normal(size=A.shape)


@pytest.mark.parametrize("asked", ["label", "group", "cost"])
def test_the_figure_is_what_calibrated_sets_cost(asked):
    rng = np.random.default_rng(0)
    y, A, _ = scored(rng, 4000)
    group = rng.integers(0, 3, 4000)
    cost = np.tile([1.0, 2.0, 4.0, 8.0], (C, 1))
    how = {"label": {"by_label": True}, "group": {"group": group}, "cost": {"cost": cost}}[asked]
    terms = Terms.of(y, C, 0.1, **how)
    judge = JudgeOnTerms(y, None, 0.1, SIZE, terms, rng=rng)
    y_new, A_new, _ = scored(rng, 40_000)
    new_group = rng.integers(0, 3, 40_000)
    by_group = {"groups": new_group} if asked == "group" else {}
    scores = A_new - terms.offset
    sets = Calibration.of(scores, y_new, by_label=asked == "label", **by_group).sets(scores, 0.9, **by_group)
    price = cost[0] if asked == "cost" else np.ones(C)
    assert judge.criterion(judge.curve(A - terms.offset)) == pytest.approx((sets @ price).mean(), rel=0.03)


@pytest.mark.parametrize("name", ["size", "log", "excess", "multiple", "M"])
def test_the_error_told_is_that_of_the_difference_between_two_candidates(name):
    """Derivatives at whole sizes are nothing for M and E, and the error told was 0.4 of what it is."""
    rng = np.random.default_rng(0)
    f = as_inefficiency(name)
    differences, told = [], []
    for _ in range(60):
        y, A, worse = scored(rng, 1000)
        judge = JudgeOnTerms(y, None, 0.1, f, Terms.of(y, C, 0.1, by_label=True), rng=rng)
        one, other = judge.curve(A), judge.curve(worse)
        differences.append(judge.criterion(one) - judge.criterion(other))
        told.append((judge.resampled(one) - judge.resampled(other)).std())
    assert 0.75 < np.mean(told) / np.std(differences) < 1.6


def test_costs_count_once_in_thresholds_of_labels():
    """They were taken off margins a second time, so that sets were made by p / cost^2."""
    rng = np.random.default_rng(0)
    y, A, _ = scored(rng, 1500)
    cost = np.array([1.0, 1.0, 1.0, 20.0])
    fitted = SCPOClassifier(0.9, search=Search.fast(**QUICK, paths=()), cost=cost, random_state=0).fit(A, y)
    for member in fitted.folds_[0].models[0].members:
        np.testing.assert_allclose(member.threshold - member.threshold[0], np.log(cost), atol=1e-4)
