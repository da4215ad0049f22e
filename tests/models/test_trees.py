"""Trees grown for small sets: the gradient, the bound, and what they gain."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from makers import scpo
from tightset import ConformalClassifier, SCPOClassifier, Search, TightsetWarning
from tightset.compute.progress import Progress
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.conformal.splits import fold_of_rows
from tightset.models.ensembles import tempered
from tightset.models.trees import _LOG_LOSS, LIBRARIES, Growth, grow, size_gradient
from tightset.objectives.profiled import Profiled

QUICK = Search((("softmax", 1.0),), pulls=(1.0, 0.1), max_iter=10, folds=3, repeats=1, strengths=(1.0,))


def rows(k=60, C=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, C)), np.sort(rng.integers(C, size=k)), rng.random(k) + 0.1


def loss(F, y, objective, weight):
    A = tempered(F, 1.0)
    value, _ = objective.value_and_gradient(A[None], y, None if weight is None else weight[None])
    return len(y) * (value[0] - _LOG_LOSS * np.average(A[np.arange(len(y)), y], weights=weight))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("f", [SIZE, LOG])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_equals_finite_differences(f, seed, weighted):
    F, y, weight = rows(seed=seed)
    weight = weight if weighted else None
    objective = Profiled(np.array([0.2]), np.array([2.0]), f, tol=1e-12)
    gradient, _ = size_gradient(F, y, objective, weight)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        step = rng.normal(size=F.shape)
        ends = [loss(F + h * step, y, objective, weight) for h in (1e-5, -1e-5)]
        np.testing.assert_allclose((gradient * step).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_is_at_least_the_curvature_at_a_fixed_threshold(weighted):
    F, y, weight = rows(seed=4)
    weight = weight if weighted else None
    gamma, k = 2.0, len(y)
    objective = Profiled(np.array([0.2]), np.array([gamma]), SIZE, tol=1e-12)
    w = np.full(k, 1 / k) if weight is None else weight / weight.sum()
    A = tempered(F, 1.0)
    q = objective.threshold(A[np.arange(k), y][None], w[None])[0]

    def sigma(A):
        return 1 / (1 + np.exp(-gamma * (A - q)))

    def slopes(A):
        return gamma * sigma(A) * (1 - sigma(A))

    rho = (w[:, None] * slopes(A)).sum() / (w * slopes(A)[np.arange(k), y]).sum()

    def frozen(F):
        """The loss of every row, threshold and rho as they are."""
        A = tempered(F, 1.0)
        own = np.arange(k), y
        return k * w * (sigma(A).sum(axis=1) - rho * sigma(A)[own] - _LOG_LOSS * A[own])

    gradient, bound = size_gradient(F, y, objective, weight)
    assert (bound > 0).all()
    for c in range(F.shape[1]):
        step = 1e-4 * np.eye(F.shape[1])[c]
        first = (frozen(F + step) - frozen(F - step)) / 2e-4
        np.testing.assert_allclose(first, gradient[:, c], atol=1e-6)
        second = (frozen(F + step) - 2 * frozen(F) + frozen(F - step)) / 1e-8
        assert (np.abs(second) <= bound[:, c] + 1e-5).all()


@pytest.fixture(scope="module")
def bent():
    """Labels that a line does not separate: the trees have something to add to logistic regression."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2000, 3))
    y = (np.floor(np.abs(2 * X[:, 0])) + (rng.random(2000) < 0.2)).astype(int) % 3
    return X[:1200], y[:1200], X[1200:], y[1200:]


@pytest.mark.parametrize("library", LIBRARIES)
def test_held_out_scores_of_trees_come_from_trees_that_have_not_seen_the_row(bent, library):
    X, y = bent[:2]
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    fold = fold_of_rows(y, 3, np.random.default_rng(0))
    Z = np.zeros((len(y), 3))
    with Progress(show=False) as progress:
        grown = grow(Growth(library, 0.1, SIZE, n_jobs=1), X, y, Z, fold, progress=progress)
    assert [one.trees.rounds for one in grown] == [5, 10, 20, 40]
    sizes = [loss(one.held_out, y, Profiled(np.array([0.1]), np.array([2.0])), None) for one in grown]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.95 * loss(Z, y, Profiled(np.array([0.1]), np.array([2.0])), None)
    in_sample = grown[-1].trees.scores(X)
    assert not np.allclose(in_sample, grown[-1].held_out)
    one = [grow(Growth(library, 0.1, SIZE, n_jobs=1), X, y, Z, fold, progress=progress)[-1].held_out for _ in range(2)]
    np.testing.assert_array_equal(*one)


@pytest.mark.parametrize("library", LIBRARIES)
def test_boosted_sets_are_smaller_and_valid(bent, library):
    X, y, X_new, y_new = bent
    X, X_new = X.copy(), X_new.copy()
    X[::50, 2] = X_new[::50, 2] = 0
    stump = DecisionTreeClassifier(max_depth=2, random_state=0)
    plain = ConformalClassifier(stump, confidence=0.8, random_state=2).fit(X, y)
    clf = scpo(confidence=0.8, estimator=stump, boost=library, search=QUICK, random_state=2).fit(X, y)
    ours, theirs = (one.evaluate(X_new, y_new) for one in (clf, plain))
    assert ours["mean_size"] < 0.9 * theirs["mean_size"]
    assert ours["coverage"] > 0.76
    chosen = clf.selection_["candidate"][clf.selection_["chosen"]]
    assert any(name.startswith("boosted") for name in chosen)
    np.testing.assert_array_equal(clf.predict_p(X_new[:7]), clf.predict_p(X_new)[:7])


def test_a_library_that_is_missing_is_named(bent, monkeypatch):
    monkeypatch.setattr("tightset.search.settings.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tightset\[xgboost\]'"):
        scpo(estimator=LogisticRegression(), boost="xgboost").fit(*bent[:2])


def test_rows_that_are_no_numbers_are_refused(bent):
    y = bent[1]
    texts = np.array([["a", "b"]] * len(y), dtype=object)
    pipeline = make_pipeline(OneHotEncoder(), LogisticRegression())
    with pytest.raises(ValueError, match="boost needs dense rows of numbers"):
        scpo(confidence=0.8, estimator=pipeline, boost="lightgbm", search=QUICK).fit(texts, y)


@pytest.mark.parametrize("kind", ["rare", "constant", "few"])
def test_where_no_tree_can_be_grown_it_is_said_and_none_is(kind):
    rng = np.random.default_rng(0)
    n = 76 if kind == "few" else 400
    X = {
        "rare": (rng.random((n, 5)) < 0.02).astype(float),
        "constant": np.ones((n, 3)),
        "few": rng.normal(size=(n, 3)),
    }[kind]
    y = rng.integers(0, 2, n)
    clf = scpo(confidence=0.8, estimator=LogisticRegression(), boost="lightgbm", search=QUICK, random_state=0)
    with pytest.warns(TightsetWarning, match="boost='lightgbm' adds no trees and is left out: LightGBM finds no"):
        clf.fit(X, y)
    plain = SCPOClassifier(0.8, estimator=LogisticRegression(), search=QUICK, random_state=0).fit(X, y)
    np.testing.assert_array_equal(clf.predict_set(X), plain.predict_set(X))
    assert not any(name.startswith("boosted") for name in clf.selection_["candidate"])
    scpo(confidence=0.8, estimator=LogisticRegression(), boost="xgboost", search=QUICK, random_state=0).fit(X, y)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_says_is_told_in_a_line(bent, library, monkeypatch):
    import lightgbm
    import xgboost

    said = "[01:02:03] /workspace/src/a.cc:7: Check failed: valid: it cannot\nStack trace:\n  [bt] (0) lib.so"
    error = {"lightgbm": lightgbm.basic.LightGBMError, "xgboost": xgboost.core.XGBoostError}[library](said)

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(f"{library}.train", fails)
    X, y = bent[:2]
    order = np.argsort(y, kind="stable")
    fold = fold_of_rows(y[order], 3, np.random.default_rng(0))
    with (
        Progress(show=False) as progress,
        pytest.warns(TightsetWarning, match="says 'Check failed: valid: it cannot'. Sets are valid without it"),
    ):
        found = grow(
            Growth(library, 0.1, SIZE, n_jobs=1), X[order], y[order], np.zeros((len(y), 3)), fold, progress=progress
        )
    assert found == []
    assert progress._done == progress._total == 4


@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_beyond_single_precision(bent, library):
    X, y = bent[:2]
    order = np.argsort(y, kind="stable")
    X, y = X[order].copy(), y[order]
    X[:3, 1] = [np.inf, -np.inf, 1e300]
    fold = fold_of_rows(y, 2, np.random.default_rng(0))
    with Progress(show=False) as progress:
        grown = grow(Growth(library, 0.1, SIZE, n_jobs=1), X, y, np.zeros((len(y), 3)), fold, progress=progress)
    assert np.isfinite(grown[-1].held_out).all()
    assert np.isfinite(grown[-1].trees.scores(X)).all()
