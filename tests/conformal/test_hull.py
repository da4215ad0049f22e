"""The score `Hull`: LAC where f is the size, the optimum of the Lagrangian elsewhere, and smaller mean f."""

import pickle

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from tightset import ConformalClassifier, load
from tightset.compute.contracts import check_offers
from tightset.conformal.calibration import Calibration
from tightset.conformal.contract import Score
from tightset.conformal.inefficiency import MULTIPLE, as_inefficiency
from tightset.conformal.scores import as_score
from tightset.exceptions import ModelFileError
from tightset.export import ExportError, to_onnx
from tightset.scores import LAC, Hull
from tightset.storage.registry import make

COSTS = ["size", "log", "excess", "multiple", "M", 2, 0.5, MULTIPLE, (np.square, lambda w: 2 * w)]
every = pytest.mark.parametrize(
    "f", COSTS, ids=lambda f: f if isinstance(f, str) else getattr(f, "name", type(f).__name__)
)


def test_of_false_labels_no_other_set_is_a_better_buy():
    """Sets of score ``t`` and more have the most covered probability less ``t`` times what false labels cost."""
    A, (p, _) = Hull("OM")(P), decreasing(P, P)
    covered = np.hstack([np.zeros((len(P), 1)), p.cumsum(axis=1)])
    cost = np.ones_like(covered)  # of a false label in the set of the k likeliest
    cost[:, 0], cost[:, 1] = 0, 1 - p[:, 0]
    for t in (0.3, 0.9, 1.7, 4.0):
        worth = covered - t * cost
        size = (t <= A).sum(axis=1)
        np.testing.assert_allclose(worth[np.arange(len(P)), size], worth.max(axis=1), atol=1e-9)
    np.testing.assert_array_equal(np.argsort(Hull("OE")(P), axis=None), np.argsort(P, axis=None))


def labelled(n, C=6, seed=0):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(C, 0.5), n)
    return P, (P.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


P = labelled(500)[0]
TIED = np.array(
    [[0.5, 0.25, 0.25, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.0, 1.0, 0.0, 0.0], [0.3, 0.3, 0, 0.2, 0.2]]
)


def decreasing(P, A):
    """Probabilities and scores of each row in the order of the probabilities."""
    order = np.argsort(-P, axis=1, kind="stable")
    return np.take_along_axis(P, order, axis=1), np.take_along_axis(A, order, axis=1)


def by_hand(p, f):
    """Slopes of the hull of one row by going from corner to corner, each time the steepest way; sorted, no ties."""
    points = [(float(f(np.array(float(k)))), sum(p[:k])) for k in range(len(p) + 1)]
    slopes, at = [], 0
    while at < len(p):
        ways = {
            k: (points[k][1] - points[at][1]) / (points[k][0] - points[at][0])
            for k in range(at + 1, len(p) + 1)
            if points[k][0] > points[at][0]
        }
        to = max(ways, key=ways.get)
        slopes += [ways[to]] * (to - at)
        at = to
    return slopes


@every
def test_it_keeps_the_contract_and_ranks_as_probabilities_do(f):
    score = as_score(Hull(f))
    check_offers(score, Score)
    before = P.copy()
    A = score(P)
    np.testing.assert_array_equal(P, before)
    np.testing.assert_array_equal(np.argsort(A, axis=1, kind="stable"), np.argsort(P, axis=1, kind="stable"))
    assert score.choices(P, None, 0.9) == [score]


@pytest.mark.parametrize("f", ["size", "N", 1, (lambda w: w, np.ones_like)])
def test_for_the_size_it_is_lac_to_the_last_bit(f):
    for rows in (P, TIED, P.astype(np.float32), np.round(P, 1)):
        np.testing.assert_array_equal(Hull(f)(rows), LAC()(rows))


@pytest.mark.parametrize("f", ["log", 2, 0.5])
def test_scores_are_the_slopes_of_the_hull(f):
    p, A = decreasing(P, Hull(f)(P))
    expected = [by_hand(row, as_inefficiency(f)) for row in p]
    np.testing.assert_allclose(A, expected, rtol=2e-9)


@every
@pytest.mark.parametrize("C", [2, 3, 6, 20])
def test_every_threshold_gives_the_sets_of_the_best_trade(f, C):
    """Labels above a threshold maximise covered probability less threshold times cost, over all sizes."""
    p, A = decreasing(labelled(300, C)[0], Hull(f)(labelled(300, C)[0]))
    cost = as_inefficiency(f)(np.arange(C + 1.0))
    covered = np.concatenate([np.zeros((300, 1)), p.cumsum(axis=1)], axis=1)
    for q in (0.01, 0.1, 0.3, 0.6, 0.95):
        trade = covered - q * cost
        kept = (A >= q).sum(axis=1)
        np.testing.assert_allclose(trade[np.arange(300), kept], trade.max(axis=1), atol=1e-8)


@every
def test_labels_that_tie_score_alike_and_the_order_of_labels_does_not_matter(f):
    p, A = decreasing(TIED, Hull(f)(TIED))
    np.testing.assert_array_equal(p[:, 1:] == p[:, :-1], A[:, 1:] == A[:, :-1])
    assert (np.diff(A, axis=1) <= 0).all()
    assert np.isfinite(A).all()
    mixed = np.random.default_rng(1).permutation(6)
    np.testing.assert_array_equal(Hull(f)(P[:, mixed]), Hull(f)(P)[:, mixed])


def test_rows_are_scored_one_by_one():
    rows, _ = labelled(60_000)
    np.testing.assert_array_equal(Hull("log")(rows)[-5:], Hull("log")(rows[-5:]))


@pytest.mark.parametrize("f", ["M", "multiple", "excess"])
def test_a_label_that_costs_nothing_is_above_all_others(f):
    p, A = decreasing(P, Hull(f)(P))
    assert A[:, 0].min() > 1 + A[:, 1].max()
    np.testing.assert_array_equal(np.argsort(A[:, 0]), np.argsort(p[:, 0]))


def test_for_m_alone_sets_have_one_label_or_all():
    cal, y = labelled(2000, seed=1)
    size = Calibration.of(Hull("M")(cal), y).sets(Hull("M")(P), 0.9).sum(axis=1)
    assert set(size[size > 0]) == {1, 6}


@pytest.mark.parametrize(("f", "gain"), [("log", 0.995), ("multiple", 0.7), (2, 0.98)])
def test_mean_f_is_smaller_than_with_lac_and_coverage_keeps_its_law(f, gain):
    """Of true probabilities; the mean probability in the sets is their coverage, which has a beta distribution."""
    n, cost = 50_000, as_inefficiency(f)
    (cal, y), (new, _) = labelled(n, seed=1), labelled(n, seed=2)
    low, high = beta(n + 1 - n // 5, n // 5).ppf([1e-4, 1 - 1e-4])
    mean = {}
    for score in (LAC(), Hull(f)):
        sets = Calibration.of(score(cal), y).sets(score(new), 0.8)
        mean[score] = cost(sets.sum(axis=1).astype(float)).mean()
        assert low - 0.003 < (new * sets).sum(axis=1).mean() < high + 0.003  # of so many rows
    assert mean[Hull(f)] < gain * mean[LAC()]


@pytest.mark.parametrize(
    ("f", "message"),
    [
        ((lambda w: -w, lambda w: -np.ones_like(w)), "must not fall where sets grow; '<lambda>' is -0 for 0 labels"),
        ((np.sin, np.cos), "'sin' is 0.909297 for 2 labels and 0.14112 for 3"),
        ((np.zeros_like, np.zeros_like), "f must grow with the size of a set; 'zeros_like' is 0 for 0 to 10 labels"),
        ("sizes", "inefficiency must be one of 'size', 'log'"),
    ],
)
def test_a_cost_that_is_none_is_refused_at_once(f, message):
    with pytest.raises(ValueError, match=message):
        Hull(f)


def test_an_f_that_falls_beyond_ten_labels_is_refused_when_there_are_more():
    late = Hull((lambda w: np.minimum(w, 24 - w), lambda w: np.where(w < 12, 1.0, -1.0)))
    assert late(P).shape == P.shape
    with pytest.raises(ValueError, match="is 12 for 12 labels and 11 for 13"):
        late(labelled(5, 20)[0])


# ---- the estimator ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 5))
    y = np.array(list("abcde"))[np.argmax(X + rng.gumbel(size=X.shape), axis=1)]
    return X[:3000], y[:3000], X[3000:], y[3000:]


def test_the_estimator_takes_it_stores_it_and_has_more_single_labels(rows, tmp_path):
    X, y, X_new, y_new = rows
    clf = ConformalClassifier(LogisticRegression(), confidence=0.9, conformity_score=Hull("multiple"), random_state=0)
    clf.set_params(inefficiency="multiple").fit(X, y)
    plain = clone(clf).set_params(conformity_score="lac").fit(X, y)
    ours, theirs = clf.evaluate(X_new, y_new), plain.evaluate(X_new, y_new)
    assert ours["singleton"] > theirs["singleton"] + 0.05
    assert ours["inefficiency"] < theirs["inefficiency"]
    assert ours["inefficiency"] == pytest.approx(ours["M"] + 0.05 * ours["E"])
    assert abs(ours["coverage"] - 0.9) < 0.04
    clf.save(tmp_path / "hull.tightset")
    for again in (load(tmp_path / "hull.tightset"), pickle.loads(pickle.dumps(clf))):
        assert again.conformity_score == Hull("multiple")
        np.testing.assert_array_equal(again.predict_p(X_new), clf.predict_p(X_new))


def test_what_it_cannot_do_is_refused_by_name(rows, tmp_path):
    X, y, _, _ = rows
    clf = ConformalClassifier(LogisticRegression(), conformity_score=Hull("log"), random_state=0).fit(X, y)
    with pytest.raises(
        ExportError, match=r"conformity_score=Hull\(f='log'\) cannot be exported to ONNX: hulls are not"
    ):
        to_onnx(clf)
    for own in ((np.exp, np.exp), MULTIPLE):
        clf.set_params(conformity_score=Hull(own)).fit(X, y)
        with pytest.raises(
            ModelFileError, match=r"Hull\.f is a (tuple|Inefficiency); a model file holds only a name or a"
        ):
            clf.save(tmp_path / "own.tightset")
    with pytest.raises(ValueError, match="needs probabilities"):
        ConformalClassifier("precomputed", conformity_score=Hull("log")).fit(X * 3, y)


def test_a_forged_file_calls_nothing():
    called = []
    for parts in ({"f": (called.append, called.append)}, {"f": None}, {"f": True}, {}, {"f": "log", "g": 1}):
        with pytest.raises(ModelFileError, match=r"Hull\.f is"):
            make(Hull, parts)
    assert not called
    assert make(Hull, {"f": 2}) == Hull(2)
