"""Ordered labels: sets are intervals, trained to be narrow."""

import numpy as np
import pytest

import tightset
from makers import QUICK as SETTINGS
from problems import numeric_gradient
from tightset import ConformalClassifier, SCPOClassifier, Search
from tightset.compute.label_intervals import hull_of_scores
from tightset.conformal.inefficiency import SIZE
from tightset.conformal.interval_metrics import widths
from tightset.estimators.comparing import compare, verdict
from tightset.exceptions import ModelFileError
from tightset.export import to_onnx
from tightset.models.stored import check_scores
from tightset.objectives.ordered import Ordered
from tightset.objectives.profiled import Profiled
from tightset.scores import APS, RAPS, Hull, OrdinalAPS

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
        ({"ordered": ["b"]}, "ordered must name every label once: it lacks 'a', 'c'"),
        ({"ordered": ["a", "b", "c", "d"]}, "ordered must name every label once: y has no 'd'"),
        ({"ordered": ["a", "b", "c", "c"]}, "ordered must name every label once: one is there twice"),
        ({"ordered": "abc"}, "ordered must be True, False or a list of the labels"),
        ({"ordered": True, "label_conditional": True}, "ordered is not for label_conditional"),
        ({"ordered": True, "cost": [1, 2, 3]}, "ordered is not for cost"),
        ({"ordered": True, "cv": 3}, "ordered is not for cv: the intervals of its folds"),
        ({"ordered": True, "search": "grid"}, "leave ordered out"),
    ],
)
def test_orders_that_are_none(settings, message):
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.array([*"abc"] * 30)
    with pytest.raises(ValueError, match=message):
        SCPOClassifier(**{"search": QUICK} | settings).fit(X, y)


@pytest.mark.parametrize("settings", [{"label_conditional": True}, {"cv": 3}, {"ordered": ["a", "b"]}], ids=str)
def test_what_a_plain_predictor_refuses(settings):
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.array([*"abc"] * 30)
    with pytest.raises(ValueError, match="ordered"):
        ConformalClassifier(**{"ordered": True} | settings).fit(X, y)


@pytest.mark.parametrize("settings", [{"label_conditional": True}, {"cv": 3}], ids=str)
def test_intervals_that_grow_are_refused_where_they_would_have_gaps(settings):
    X, y = graded(300, 0)
    clf = ConformalClassifier(conformity_score=OrdinalAPS(), **settings)
    with pytest.raises(ValueError, match=r"conformity_score=OrdinalAPS\(order=None\) is not for"):
        clf.fit(X, y)


@pytest.mark.parametrize("make", [lambda **how: SCPOClassifier(search=QUICK, **how), ConformalClassifier])
def test_calibration_anew_checks_parameters_and_keeps_the_order_that_was_fitted(make):
    X, y = graded(400, 0)
    clf = make(ordered=True, random_state=0).fit(X, y)
    for changed, message in [
        ({"label_conditional": True}, "ordered is not for label_conditional"),
        ({"ordered": False}, "fit again"),
        ({"ordered": [4, 3, 1, 2, 0]}, "fit again"),
        ({"allow_empty": "no"}, "allow_empty must be True or False"),
    ]:
        before = {name: clf.get_params()[name] for name in changed}
        with pytest.raises(ValueError, match=message):
            clf.set_params(**changed).calibrate(X, y)
        clf.set_params(**before)
    clf.calibrate(*graded(300, 1))
    assert are_intervals(clf.predict_set(X), range(5))
    assert clf.evaluate(X, y)["with_gaps"] == 0
    plain = make(random_state=0).fit(X, y).set_params(ordered=True)
    assert "mean_width" not in plain.evaluate(X, y)  # its sets may have gaps, whatever is asked for now
    with pytest.raises(ValueError, match="fit again"):
        plain.calibrate(X, y)


def test_calibration_anew_with_another_score():
    X, y = graded(300, 0)
    clf = ConformalClassifier(conformity_score=OrdinalAPS(), random_state=0).fit(X, y)
    assert "mean_width" in clf.calibrate(*graded(300, 1)).evaluate(X, y)
    with pytest.raises(ValueError, match="ask for another order of labels"):
        clf.set_params(conformity_score="lac").calibrate(X, y)


@pytest.mark.parametrize("ordered", [iter([2, 1, 0]), {0, 1, 2}, {0: 2, 1: 1, 2: 0}, (one for one in range(3))])
def test_an_order_is_a_list_or_an_array(ordered):
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3
    with pytest.raises(ValueError, match="ordered must be True, False or a list"):
        ConformalClassifier(ordered=ordered).fit(X, y)


def test_true_is_no_other_order_than_that_of_a_categorical():
    import pandas as pd
    import polars as pl

    X, y = np.random.default_rng(0).normal(size=(90, 2)), ["low", "mid", "top", "a"] * 22 + ["low", "mid"]
    own = pd.Categorical(y, categories=["a", "none", "top", "mid", "low"], ordered=True)
    enum = pl.Series(y, dtype=pl.Enum(["a", "top", "mid", "low"]))
    for labels in (own, pd.Series(own), enum):
        with pytest.raises(ValueError, match=r"y has another\. For that give ordered=\['a', 'top', 'mid', 'low'\]"):
            ConformalClassifier(ordered=True).fit(X, labels)
    ConformalClassifier(ordered=["a", "top", "mid", "low"]).fit(X, own)
    ConformalClassifier(ordered=True).fit(X, pd.Categorical(y))  # which has none


# ---- gaps filled: the plain predictor ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return *graded(2000, 0), *graded(4000, 9)


@pytest.mark.parametrize("score", ["lac", "margin", APS(), RAPS(), Hull("log")], ids=str)
def test_gaps_of_any_score_are_filled(rows, score):
    X, y, X_new, y_new = rows
    clf = ConformalClassifier(
        confidence=[0.8, 0.95], conformity_score=score, ordered=list(GRADES[::-1]), random_state=0
    )
    sets = clf.fit(X, GRADES[y]).predict_set(X_new)
    for level, one, row in zip([0.8, 0.95], sets, clf.evaluate(X_new, GRADES[y_new]), strict=True):
        assert are_intervals(one, range(5))
        assert abs(one[np.arange(4000), y_new].mean() - level) < 0.03
        assert row["with_gaps"] == 0
        assert row["mean_width"] == row["mean_size"] == pytest.approx(one.sum(axis=1).mean())


def test_filling_before_calibration_is_narrower_than_after(rows):
    """The hull of the scores covers more than the sets do, so that its threshold may be higher."""
    X, y, X_new, y_new = rows
    filled, plain = (
        ConformalClassifier(confidence=0.9, ordered=ordered, random_state=0).fit(X, y) for ordered in (True, False)
    )
    row, after = filled.evaluate(X_new, y_new), widths(plain.predict_set(X_new), np.arange(5))
    assert row["mean_width"] <= after.mean()
    assert "mean_width" not in plain.evaluate(X_new, y_new)
    assert abs(row["coverage"] - 0.9) < 0.02


def test_labels_are_listed_in_their_order(rows):
    X, y, X_new, _ = rows
    names = np.array(["e", "c", "a", "d", "b"])  # worst to best
    clf = ConformalClassifier(confidence=0.9, ordered=names, random_state=0).fit(X, names[y])
    lists = clf.predict_set(X_new[:200], as_labels=True)
    sets = clf.predict_set(X_new[:200])
    place = {name: at for at, name in enumerate(names)}
    for own, one in zip(lists, sets, strict=True):
        assert sorted(own) == sorted(clf.classes_[one])
        assert [place[name] for name in own] == sorted(place[name] for name in own)
    frame = clf.predict_set(X_new[:200], as_labels=True, as_frame=True)
    assert frame["set"].tolist() == [own.tolist() for own in lists]
    wide = clf.predict_set(X_new[:200], as_frame=True)
    np.testing.assert_array_equal(wide.to_numpy(), sets)
    assert wide.columns.tolist() == list(clf.classes_)


def test_files_and_onnx_keep_the_order(rows, tmp_path):
    import onnxruntime as runtime

    X, y, X_new, _ = rows
    clf = ConformalClassifier(confidence=0.9, ordered=[2, 0, 1, 4, 3], random_state=0).fit(X, y)
    clf.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(again.predict_p(X_new), clf.predict_p(X_new))
    session = runtime.InferenceSession(to_onnx(clf).SerializeToString())
    found = session.run(None, {session.get_inputs()[0].name: X_new})
    np.testing.assert_array_equal(found[0].reshape(4000, 5), clf.predict_set(X_new))
    (model,), classes = clf.fitted_.folds[0].models, clf.classes_
    check_scores(model, 3, classes)
    for forged in ([0, 1], [0, 0, 1, 2, 3], [1, 2, 3, 4, 5]):
        with pytest.raises(ModelFileError, match=r"Scored\.order"):
            check_scores(model._replace(order=np.array(forged)), 3, classes)


def test_groups_have_intervals_of_their_own(rows):
    X, y, X_new, y_new = rows
    groups, new = X[:, 2] > 0, X_new[:, 2] > 0
    clf = ConformalClassifier(confidence=0.9, ordered=True, random_state=0).fit(X, y, groups=groups)
    sets = clf.predict_set(X_new, groups=new)
    assert are_intervals(sets, range(5))
    hit = sets[np.arange(4000), y_new]
    assert max(abs(hit[new == one].mean() - 0.9) for one in (False, True)) < 0.04


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_coverage_of_filled_sets_is_within_its_law_over_draws(level):
    """Scores of 600 rows calibrate and 600 are tested, in each of 60 draws."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        P = rng.dirichlet(np.full(5, 0.5), 1200)
        y = (P.cumsum(axis=1) > rng.random((1200, 1))).argmax(axis=1)
        clf = ConformalClassifier("precomputed", confidence=level, ordered=True).fit(P[:600], y[:600])
        found.append(clf.predict_set(P[600:])[np.arange(600), y[600:]].mean())
    assert abs(np.mean(found) - level) < 5 * np.sqrt(level * (1 - level) * (2 / 600) / 60) + 1 / 601


def test_comparison_is_by_width(rows):
    X, y, X_new, y_new = rows
    ours = ConformalClassifier(confidence=[0.8, 0.9], ordered=True, random_state=0).fit(X, y)
    theirs = ConformalClassifier(confidence=[0.8, 0.9], random_state=0).fit(X, y)  # with gaps
    for row in compare(theirs, ours, X_new, y_new):
        assert row.by == "mean_width"
        sets = theirs.predict_set(X_new, confidence=row.confidence)
        assert row.baseline["mean_width"] == pytest.approx(widths(sets, np.arange(5)).mean())
        assert row.change <= 0
    assert verdict(compare(ours, ours, X_new, y_new)).endswith("sets are not clearly different at 0.8, 0.9.")
    assert any(word in verdict(compare(theirs, ours, X_new, y_new)) for word in ("narrower", "not clearly"))
