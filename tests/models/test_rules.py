"""Rules on log-probabilities: those of `Hull` and `PerCost`, on the scale that measures are combined on."""

import numpy as np
import pytest

import tightset
from makers import QUICK
from tightset import SCPOClassifier, Search
from tightset.exceptions import ModelFileError
from tightset.export import to_onnx
from tightset.export.graph import Graph
from tightset.models.ensembles import Ensemble, Member
from tightset.models.rules import ByExpectedCost, hull_rule
from tightset.models.stored import check_member
from tightset.objectives.terms import Terms
from tightset.scores import Hull, PerCost

C = 5
P = np.random.default_rng(0).dirichlet(np.full(C, 0.4), 400)
COST = np.random.default_rng(1).uniform(1, 9, (C, C))


def order(scores):
    return np.argsort(scores, axis=None, kind="stable")


@pytest.mark.parametrize("f", ["log", "multiple", "excess", 2, "OM"])
def test_by_hull_is_the_logarithm_of_the_hull(f):
    found = np.exp(hull_rule(f, C)(np.log(P)))
    exact = Hull(f)(P)
    finite = exact < 1e9
    np.testing.assert_allclose(found[finite], exact[finite], rtol=2e-3)  # labels of one piece are further apart
    assert (found[~finite] > found[finite].max()).all()


def test_by_hull_of_the_size_is_the_probability():
    np.testing.assert_allclose(hull_rule("size", C)(np.log(P)), np.log(P), atol=2e-3)


@pytest.mark.parametrize("f", ["multiple", "M", "OM", "log"])
def test_labels_of_one_piece_differ_in_single_precision_too(f):
    A = np.log(P).astype(np.float32)
    scores = hull_rule(f, C)(A)
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores.argmax(axis=1), A.argmax(axis=1))


@pytest.mark.parametrize("shift", [0.0, 3.0, -800.0])
def test_scores_that_are_no_log_probabilities_are_taken_as_if(shift):
    rule = hull_rule("log", C)
    np.testing.assert_allclose(rule(np.log(P) + shift), rule(np.log(P)), atol=1e-9)


def test_no_rule_where_an_inefficiency_falls_or_never_grows():
    assert hull_rule((lambda w: -w, lambda w: -np.ones_like(w)), C) is None
    assert hull_rule("M", 1) is None


def test_by_expected_cost_ranks_as_per_cost():
    y = np.repeat(np.arange(C), 20)
    terms = Terms.of(y, C, 0.1, cost=COST)
    margins = ByExpectedCost(COST, terms.offset)(np.log(P)) - terms.offset
    np.testing.assert_array_equal(order(margins), order(PerCost(COST)(P)))


def test_one_cost_for_each_label_changes_nothing():
    cost = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], (C, 1))
    np.testing.assert_allclose(ByExpectedCost(cost, np.log(cost[0]))(np.log(P)), np.log(P), atol=1e-12)


def test_rows_are_scored_alike_alone_and_together():
    for rule in (hull_rule("log", C), ByExpectedCost(COST, np.zeros(C))):
        alone = np.concatenate([rule(np.log(P[[at]])) for at in range(40)])
        np.testing.assert_array_equal(alone, rule(np.log(P))[:40])


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": -COST},
        {"cost": COST[:3]},
        {"cost": COST * np.nan},
        {"offset": np.zeros(3)},
    ],
)
def test_a_forged_rule_is_refused(wrong):
    rule = ByExpectedCost(**({"cost": COST, "offset": np.zeros(C)} | wrong))
    columns = SCPOClassifier(0.8, search=Search.fast(**QUICK)).fit(P, P.argmax(axis=1)).folds_[0].models[0].members[0]
    with pytest.raises(ModelFileError, match=r"ByExpectedCost\."):
        check_member(columns._replace(theta=np.zeros((C + 1, C)), measure="softmax", rule=rule), C, C)


def kept(rule, X, y):
    """A fitted predictor whose model is a measure by a rule."""
    clf = SCPOClassifier(0.8, search=Search.fast(**QUICK), random_state=0).fit(X, y)
    member = clf.folds_[0].models[0].members[0]
    theta = np.vstack([np.eye(C), np.zeros((1, C))])
    clf.folds_[0].models[0] = Ensemble([Member(member.columns, "softmax", theta, 0.1, rule)])
    return clf.calibrate(X, y)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, C))
    return X, (X + rng.gumbel(size=X.shape)).argmax(axis=1)


def test_files_hold_rules(rows, tmp_path):
    X, y = rows
    for rule in (hull_rule("multiple", C), hull_rule(2, C), ByExpectedCost(COST, np.zeros(C))):
        clf = kept(rule, X, y)
        clf.save(tmp_path / "m.tightset")
        again = tightset.load(tmp_path / "m.tightset")
        np.testing.assert_array_equal(again.predict_p(X), clf.predict_p(X))


@pytest.mark.parametrize("f", ["log", "multiple", "M", "OM", 2, 0.5, "costs"])
def test_onnx_has_rules(rows, f):
    import onnxruntime

    X, y = rows
    clf = kept(ByExpectedCost(COST, np.zeros(C)) if f == "costs" else hull_rule(f, C), X, y)
    graph = to_onnx(clf, output=["sets", "p-values"]).SerializeToString()
    sets, p = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]).run(None, {"X": X})
    np.testing.assert_array_equal(sets, clf.predict_set(X))
    np.testing.assert_allclose(p, clf.predict_p(X), atol=1e-12)


TIED = np.array([[0.3, 0.3, 0.2, 0.2, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [1.0, 0, 0, 0, 0], [0.4, 0.3, 0.3, 0, 0]])


@pytest.mark.parametrize("f", ["size", "log", "excess", "multiple", "M", "OM", "OE", 2, 0.5])
def test_slopes_in_a_graph_are_those_of_the_hull(f):
    import onnxruntime

    ordered = -np.sort(-np.concatenate([P, TIED]), axis=1)
    graph = Graph(["P"])
    found = graph.rename(Hull(f).slopes_in(graph, "P", C), "slopes")
    made = graph.finish([("P", "DOUBLE", [None, C])], [(found, "DOUBLE", [None, C])], {})
    (slopes,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"P": ordered})
    np.testing.assert_allclose(slopes, Hull(f).scores(ordered, 0.0), rtol=1e-9, atol=1e-15)
