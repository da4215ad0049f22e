"""Training for what is asked: coverage by label and by group, and costs."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tightset
from makers import QUICK as SETTINGS
from tightset import ConformalClassifier, SCPOClassifier, Search
from tightset.conformal.costs import cost_matrix
from tightset.conformal.splits import calibration_split
from tightset.exceptions import TightsetWarning

QUICK = Search.fast(**SETTINGS)


def uneven(n, seed):
    """Three labels, the third rare and hard to tell; a group that decides how hard rows are."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    group = rng.integers(0, 2, n)
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]])
    X = centres[y] + rng.normal(size=(n, 2)) * np.where(group, 1.2, 0.6)[:, None]
    return np.column_stack([X, rng.normal(size=(n, 2))]), y, group


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_labels_of_calibration_rows_have_no_say_in_the_models():
    """Balanced weights were those of all rows, so that coverage was 0.76 for 0.8 with a score that falls."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.integers(0, 2, 200)
    held = calibration_split(np.zeros(200, int), y, 50, np.random.RandomState(0))[1]
    other = y.copy()
    other[held[5:]] = 0
    for make in (ConformalClassifier, lambda **how: SCPOClassifier(search=QUICK, **how)):
        one, two = (
            make(class_weight="balanced", confidence=0.8, calibration_size=50, random_state=0).fit(X, labels)
            for labels in (y, other)
        )
        scores = [model.fitted_.folds[0].models[0].scores(X, model.fitted_.shared(range(200))) for model in (one, two)]
        np.testing.assert_array_equal(*scores)


def wrapped(n, seed):
    """The third label, a rare one, lies on both sides of the others, which no linear score tells from them."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 0.0]])[y] + rng.normal(size=(n, 2))
    rare = y == 2
    X[rare] = rng.normal(0, 0.5, (rare.sum(), 2))
    X[rare, 0] += np.where(rng.random(rare.sum()) < 0.5, -2.5, 5.5)
    return X, y


def test_training_by_label_makes_sets_by_label_smaller():
    """On average over draws; and coverage of each label holds."""
    sizes, coverage = {True: [], False: []}, []
    search = Search.fast(unfold=False, strengths=(0.1, 1.0), pulls=(1.0, 0.1, 0.01, 1e-3))
    X_new, y_new = wrapped(4000, 99)
    for seed in range(4):
        X, y = wrapped(1600, seed)
        for by_label in (True, False):
            fitted = SCPOClassifier(0.9, search=search, label_conditional=by_label, random_state=seed)
            fitted.fit(X[:800], y[:800], X_cal=X[800:], y_cal=y[800:])
            fitted.label_conditional = True
            fitted.calibrate(X[800:], y[800:])
            sets = fitted.predict_set(X_new)
            sizes[by_label].append(sets.sum(axis=1).mean())
            if by_label:
                coverage.append([sets[y_new == label, label].mean() for label in range(3)])
    assert np.mean(sizes[True]) < 0.95 * np.mean(sizes[False])
    assert (np.mean(coverage, axis=0) > 0.87).all()


def test_costs_are_trained_for_and_a_costly_label_is_rarer_in_sets():
    X, y, _ = uneven(1600, 0)
    X_new, y_new, _ = uneven(4000, 99)
    cost = {0: 1.0, 1: 1.0, 2: 10.0}
    spent, third = {}, {}
    for asked in (None, cost):
        fitted = SCPOClassifier(0.9, search=QUICK, cost=asked, random_state=0).fit(X, y)
        sets = fitted.predict_set(X_new)
        assert abs(sets[np.arange(len(y_new)), y_new].mean() - 0.9) < 0.03
        spent[asked is None], third[asked is None] = (sets @ [1.0, 1.0, 10.0]).mean(), sets[:, 2].mean()
    assert spent[False] < 0.8 * spent[True]
    assert third[False] < third[True]
    assert "(cost per set)" in fitted.summary()
    equal = SCPOClassifier(0.9, search=QUICK, cost=[3.0, 3.0, 3.0], random_state=0).fit(X, y).predict_set(X_new)
    plain = SCPOClassifier(0.9, search=QUICK, random_state=0).fit(X, y).predict_set(X_new)
    assert (equal != plain).mean() < 0.02  # the same problem, to rounding


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({0: 1, 1: 2}, "cost lacks the label 2"),
        ({0: 1, 1: 2, 2: 3, 7: 1}, "cost has 7, which y does not have"),
        ([1, 2], r"cost must have a number for each of the 3 labels, or 3 x 3 .*got shape \(2,\)"),
        ([1, -1, 1], "cost must be finite and not negative; that of the label 1 is -1"),
        ([1, np.nan, 1], "that of the label 1 is nan"),
        ([0, 0, 0], "cost is zero for every label"),
        ("dear", "cost must be numbers; got 'dear'"),
        (["1", "2", "3"], "cost must be numbers; got"),
        ([True, False, 2], "cost must be numbers; got"),
        ([1, None, 2], "cost must be numbers; got"),
        ([10**400, 1, 1], "cost must be numbers; got"),
        (np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), "cost is a masked array in which costs are masked"),
        ([1e308, 1e308, 1], r"cost must be at most 1e\+09: write them in a larger unit"),
        (pl.DataFrame(np.ones((3, 3))), "cost is a data frame whose rows have no labels"),
        (pd.Series([1, 2, 3], ["a", "b", "c"]), "cost lacks the labels 0, 1, 2 and has 'a', 'b', 'c'"),
        (pd.Series([1, 2, 3, 3], [2, 1, 0, 0]), "cost has a label twice"),
        (pd.DataFrame(np.ones((3, 3)), columns=[*"abc"]), "cost lacks the labels 0, 1, 2"),
    ],
)
def test_costs_that_are_none(cost, message):
    X, y, _ = uneven(200, 0)
    with pytest.raises(ValueError, match=message):
        SCPOClassifier(0.9, search=QUICK, cost=cost).fit(X, y)


def test_costs_of_pandas_are_taken_by_their_labels():
    classes, square = np.array(["a", "b", "c"]), np.arange(1.0, 10).reshape(3, 3)
    series = pd.Series([3, 1, 2], ["c", "a", "b"])
    np.testing.assert_array_equal(cost_matrix(series, classes), np.tile([1.0, 2.0, 3.0], (3, 1)))
    frame = pd.DataFrame(square, [*"abc"], [*"abc"])
    np.testing.assert_array_equal(cost_matrix(frame.loc[[*"bca"], [*"cab"]], classes), square)
    plain = pd.Series([1, 2, 3])  # its index is of rows: in the order of the classes, as a list
    np.testing.assert_array_equal(cost_matrix(plain, classes), np.tile([1.0, 2.0, 3.0], (3, 1)))


def test_labels_of_weight_zero_are_said_to_be_those():
    X, y, _ = uneven(200, 0)
    for asked in ({"cost": {0: 1, 1: 1, 2: 1}}, {"ordered": [0, 1, 2]}):
        with pytest.warns(TightsetWarning), pytest.raises(ValueError, match=r"\(rows of weight 0 do not count\)"):
            SCPOClassifier(0.9, search=QUICK, **asked).fit(X, y, sample_weight=y != 2)


def test_a_label_that_costs_nothing_is_in_every_set_that_it_may_be():
    X, y, _ = uneven(1200, 0)
    fitted = SCPOClassifier(0.9, search=QUICK, cost=[1.0, 0.0, 1.0], random_state=0).fit(X, y)
    assert fitted.predict_set(X)[:, 1].mean() > 0.99


HOW = {
    "columns": {},
    "classifier": {"estimator": "logistic"},
    "several levels, nested": {"confidence": (0.8, 0.9), "nested": True},
    "few rows": {},
    "cross-conformal": {"cv": 3},
}


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
@pytest.mark.parametrize("how", HOW)
def test_everything_at_once_keeps_coverage_and_files(how, tmp_path):
    n = 160 if how == "few rows" else 900
    X, y, group = uneven(n, 1)
    settings = {"confidence": 0.8, "search": QUICK, "random_state": 0, "label_conditional": True, "cost": [1, 2, 3]}
    fitted = SCPOClassifier(**settings | HOW[how]).fit(X, y, groups=group)
    X_new, y_new, new_group = uneven(3000, 99)
    sets = fitted.predict_set(X_new, groups=new_group)
    sets = sets[0] if sets.ndim == 3 else sets
    for one in range(2):
        for label in range(3):
            mine = (new_group == one) & (y_new == label)
            assert sets[mine, label].mean() > 0.6
    assert fitted.score(X_new, y_new) > 0.4  # the most conforming label is a likely one
    fitted.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset").predict_set(X_new, groups=new_group)
    np.testing.assert_array_equal(fitted.predict_set(X_new, groups=new_group), again)


def test_a_measure_by_label_still_knows_which_label_is_likely():
    """Scores of labels are shifted by thresholds of their own, and shifted back."""
    X, y, _ = uneven(1600, 0)
    X_new, y_new, _ = uneven(4000, 99)
    by_label, marginal = (
        SCPOClassifier(0.9, search=QUICK, label_conditional=one, random_state=0).fit(X, y).score(X_new, y_new)
        for one in (True, False)
    )
    assert by_label > marginal - 0.05


ASKED = {
    "by label": ({"label_conditional": True}, False),
    "by group": ({}, True),
    "by both, with costs by true label": ({"label_conditional": True, "cost": [[1, 2, 3], [2, 1, 3], [5, 5, 1]]}, True),
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_chosen_on_a_sample_is_trained_on_all_rows_for_the_same(asked, monkeypatch):
    """Losses summed over blocks are those of all rows together, so the refined measure is no worse than its start."""
    how, with_groups = ASKED[asked]
    X, y, group = uneven(3000, 0)
    X_new, y_new, new_group = uneven(3000, 99)
    groups = {"groups": group} if with_groups else {}
    new = {"groups": new_group} if with_groups else {}
    sizes = {}
    for rows in (400, 10_000):
        search = Search.fast(**SETTINGS, rows=rows)
        fitted = SCPOClassifier(0.9, search=search, random_state=0, **how).fit(X, y, **groups)
        assert ("sample of 400" in fitted.summary()) == (rows == 400)
        sets = fitted.predict_set(X_new, **new)
        assert sets[np.arange(len(y_new)), y_new].mean() > 0.87
        sizes[rows] = sets.sum(axis=1).mean()
    assert sizes[400] < 1.05 * sizes[10_000]


def fitted_for(inefficiency, X, y, **how):
    settings = {"search": QUICK, "random_state": 0} | how
    return SCPOClassifier(0.9, inefficiency=inefficiency, **settings).fit(X, y)


@pytest.mark.parametrize("how", [{}, {"label_conditional": True}, {"estimator": "logistic"}])
def test_false_labels_are_trained_for_as_the_size_is(how):
    """At exact coverage OE is the size less a constant; evaluate tells it."""
    X, y, _ = uneven(900, 0)
    X_new, y_new, _ = uneven(1000, 99)
    size, observed = (fitted_for(name, X, y, **how) for name in ("size", "OE"))
    np.testing.assert_array_equal(size.predict_p(X_new), observed.predict_p(X_new))
    assert observed.summary() == size.summary()
    row = observed.evaluate(X_new, y_new)
    assert row["inefficiency"] == row["OE"] == pytest.approx(row["N"] - row["coverage"])


def test_sets_without_false_labels_are_trained_for():
    X, y, _ = uneven(1600, 0)
    X_new, y_new, _ = uneven(4000, 99)
    rows = {name: fitted_for(name, X, y).evaluate(X_new, y_new) for name in ("size", "OM")}
    assert rows["OM"]["inefficiency"] == rows["OM"]["OM"]
    assert rows["OM"]["OM"] < 0.97 * rows["size"]["OM"]
    assert abs(rows["OM"]["coverage"] - 0.9) < 0.03


def test_the_cost_of_false_labels_leaves_out_the_true_one():
    X, y, _ = uneven(1200, 0)
    cost = np.array([1.0, 2.0, 10.0])
    clf, size = (fitted_for(name, X, y, cost=cost) for name in ("OE", "size"))
    sets = clf.predict_set(X)
    false = sets & (np.arange(3) != y[:, None])
    row = clf.evaluate(X, y)
    assert row["inefficiency"] == row["mean_cost"] == pytest.approx((false @ cost).mean())
    assert row["inefficiency"] < size.evaluate(X, y)["mean_cost"]


def test_the_best_rule_stays_where_nothing_is_gained_and_is_left_out_if_asked():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    y = (2 * X + rng.gumbel(size=X.shape)).argmax(axis=1)  # logistic regression is right
    figures = {}
    for plug_in in (True, False):
        search = Search.fast(**SETTINGS, plug_in=plug_in)
        clf = fitted_for("multiple", X[:1500], y[:1500], search=search)
        figures[plug_in] = clf.evaluate(X[1500:], y[1500:])["inefficiency"]
        assert ("logistic regression by scores.Hull" in clf.summary()) == plug_in
        by_rule = [" by " in name for name in clf.selection_["candidate"]]
        assert any(by_rule) == plug_in
    assert figures[True] < figures[False]


@pytest.mark.parametrize(
    "how", [{}, {"estimator": "logistic"}, {"label_conditional": True}, {"confidence": (0.8, 0.9)}]
)
def test_costs_by_true_label_are_judged_against_expected_costs(how, tmp_path):
    X, y, _ = uneven(1200, 0)
    cost = np.array([[1.0, 9.0, 9.0], [1.0, 1.0, 1.0], [9.0, 1.0, 1.0]])
    how = {"confidence": 0.9, "search": QUICK, "random_state": 0} | how
    clf = SCPOClassifier(cost=cost, **how).fit(X, y)
    assert any(name.startswith("logistic by expected costs") for name in clf.selection_["candidate"])
    clf.save(tmp_path / "m.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "m.tightset").predict_p(X), clf.predict_p(X))
    flat = SCPOClassifier(cost=cost[0], **how).fit(X, y)
    assert not any("expected" in name for name in flat.selection_["candidate"])


@pytest.mark.parametrize("inefficiency", ["multiple", 2, "OM"])
def test_a_rule_that_is_chosen_on_a_sample_is_refined_on_all_rows(inefficiency):
    X, y, _ = uneven(3000, 0)
    X_new, y_new, _ = uneven(3000, 99)
    found = {}
    for rows in (400, 10_000):
        clf = fitted_for(inefficiency, X, y, search=Search.fast(**SETTINGS, rows=rows))
        found[rows] = clf.evaluate(X_new, y_new)["inefficiency"]
        assert abs(clf.predict_set(X_new)[np.arange(len(y_new)), y_new].mean() - 0.9) < 0.03
    assert found[400] < 1.08 * found[10_000]


def test_what_cannot_be_trained_for_is_refused():
    X, y, _ = uneven(200, 0)
    with pytest.raises(
        ValueError, match=r"search='grid' trains for functions of set size.*inefficiency='OM' counts false labels"
    ):
        SCPOClassifier(search="grid", inefficiency="OM").fit(X, y)
    with pytest.raises(ValueError, match="inefficiency='U' is made of p-values: it is the mean of 'M' over all levels"):
        SCPOClassifier(inefficiency="U").fit(X, y)
    with pytest.raises(ValueError, match="plug_in must be True or False"):
        Search(plug_in="yes")
