"""Ordered labels: sets are intervals, trained to be narrow."""

import numpy as np
import pytest

import tightset
from makers import QUICK as SETTINGS
from problems import numeric_gradient
from tightset import SCPOClassifier, Search
from tightset.compute.label_intervals import hull_of_scores
from tightset.conformal.inefficiency import SIZE
from tightset.objectives.ordered import Ordered
from tightset.objectives.profiled import Profiled

QUICK = Search.fast(**SETTINGS)
GRADES = np.array(["awful", "bad", "fair", "good", "superb"])  # their order happens to be that of the alphabet


def graded(n, seed):
    """Grades that rise with a hidden quality; a third of the rows have two likely grades far apart."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    quality = X[:, 0] + 0.5 * rng.normal(size=n) + np.where(X[:, 1] > 0.5, rng.choice([-1.5, 1.5], n), 0)
    return X, np.digitize(quality, [-1.2, -0.4, 0.4, 1.2])


def are_intervals(sets, order):
    inside = sets[:, order].astype(int)
    return (np.abs(np.diff(np.pad(inside, ((0, 0), (1, 1))), axis=1)).sum(axis=1) <= 2).all()


def test_hulls_of_scores_are_the_smallest_intervals_at_every_threshold():
    rng = np.random.default_rng(0)
    A, order = rng.normal(size=(50, 6)), rng.permutation(6)
    H, hulls = hull_of_scores(A, order)
    for t in np.linspace(-2, 2, 21):
        inside, hull = (A >= t)[:, order], (H >= t)[:, order]
        for one, own in zip(inside, hull, strict=True):
            at = np.flatnonzero(one)
            expected = np.zeros(6, dtype=bool)
            expected[at[0] if len(at) else 0 : at[-1] + 1 if len(at) else 0] = True
            np.testing.assert_array_equal(own, expected)
    weight = rng.normal(size=A.shape)
    slope = numeric_gradient(lambda at: (hull_of_scores(at, order)[0] * weight).sum(axis=1), A)
    np.testing.assert_allclose(hulls.pulled(weight), slope, atol=1e-6)


def test_the_gradient_of_the_objective_meets_finite_differences():
    rng = np.random.default_rng(1)
    A, y = rng.normal(size=(1, 40, 5)), np.sort(rng.integers(0, 5, 40))
    loss = Ordered(Profiled(np.array([0.2]), np.array([2.0]), SIZE, tol=1e-13), np.array([2, 0, 1, 4, 3]))
    _, gradient = loss.value_and_gradient(A, y)
    slope = numeric_gradient(lambda at: loss.value_and_gradient(at, y)[0], A)
    np.testing.assert_allclose(gradient, slope, atol=1e-6)


@pytest.mark.parametrize("how", [{}, {"estimator": "logistic"}, {"search": Search.fast(**SETTINGS, rows=300)}], ids=str)
def test_sets_are_intervals_with_coverage_and_narrower_than_hulls_of_others(how, tmp_path):
    X, y = graded(2400, 0)
    X_new, y_new = graded(3000, 9)
    settings = {"confidence": (0.8, 0.9), "search": QUICK, "random_state": 0, **how}
    fitted = SCPOClassifier(ordered=True, **settings).fit(X, GRADES[y])
    sets = fitted.predict_set(X_new)
    plain = SCPOClassifier(**settings).fit(X, GRADES[y]).predict_set(X_new)
    for level, own, other in zip((0.8, 0.9), sets, plain, strict=True):
        assert are_intervals(own, range(5))
        assert not are_intervals(other, range(5))
        assert abs(own[np.arange(3000), y_new].mean() - level) < 0.03
        assert own.sum(axis=1).mean() < 1.02 * hull_of_scores(other.astype(float), np.arange(5))[0].sum(axis=1).mean()
    assert fitted.score(X_new, GRADES[y_new]) > 0.4
    fitted.save(tmp_path / "m.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "m.tightset").predict_set(X_new), sets)


def test_an_order_of_ones_own_and_levels_that_are_nested():
    X, y = graded(1500, 0)
    names = np.array(["c", "a", "d", "b", "e"])  # worst to best
    fitted = SCPOClassifier((0.7, 0.9), ordered=list(names), nested=True, search=QUICK, random_state=0).fit(X, names[y])
    low, high = fitted.predict_set(X)
    order = np.searchsorted(fitted.classes_, names)
    assert are_intervals(low, order)
    assert are_intervals(high, order)
    assert (low <= high).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ordered": ["a", "b"]}, "ordered must name every label once: it lacks 'c'"),
        ({"ordered": ["a", "b", "c", "d"]}, "ordered must name every label once: y has no 'd'"),
        ({"ordered": ["a", "b", "c", "c"]}, "ordered must name every label once: one is there twice"),
        ({"ordered": "abc"}, "ordered must be True, False or a list of the labels"),
        ({"ordered": True, "label_conditional": True}, "ordered is not for label_conditional"),
        ({"ordered": True, "cost": [1, 2, 3]}, "ordered is not for cost"),
        ({"ordered": True, "search": "grid"}, "leave ordered out"),
    ],
)
def test_orders_that_are_none(settings, message):
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.array([*"abc"] * 30)
    with pytest.raises(ValueError, match=message):
        SCPOClassifier(**{"search": QUICK} | settings).fit(X, y)
