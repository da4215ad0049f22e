"""ONNX models that onnxruntime runs give the sets, p-values and scores of the library, calibration rows among them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from makers import baseline, quick_grid, quick_on_top, quick_scpo
from tightset import ConformalClassifier, TightsetWarning
from tightset.compute.arrays import settle
from tightset.conformal.scores import APS, LAC, RAPS, SAPS
from tightset.export import add_outputs, to_onnx
from tightset.export.graph import Graph, add_counts, least_equal
from tightset.models.class_scores import Averaged
from tightset.models.columns import Columns
from tightset.models.ensembles import Ensemble, LogProbabilities, Member, Stacked, Tempered
from tightset.models.scored import Logistic, Scored
from tightset.models.trees import Trees

ROWS = 10_000


@pytest.fixture(scope="module")
def rows():
    """Rows to train on, their labels, and 10,000 to predict: those again, and others."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, 5))
    hidden = np.c_[3 * np.sin(2 * X[:, 0]), X[:, 1] ** 2, X[:, 2] * X[:, 3]]
    y = np.argmax(2 * hidden + rng.gumbel(size=hidden.shape), axis=1)
    return X, y, np.vstack([X, rng.normal(size=(ROWS - 800, 5))])


def run(proto, X):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,), names = session.get_inputs(), [one.name for one in session.get_outputs()]
    dtype = {"tensor(double)": np.float64, "tensor(float)": np.float32}[given.type]
    return dict(zip(names, session.run(names, {given.name: X.astype(dtype)}), strict=True))


def assert_same(clf, T, *, p_may_differ=0, **levels):
    """Sets equal, p-values equal, scores equal but for rounding; where p-values may differ a set may be larger."""
    kinds = ["sets", "p-values"] + (["scores"] if len(clf.folds_) == 1 else [])
    found = run(to_onnx(clf, output=kinds, **levels), T)
    asked, single = clf.levels_asked(levels.get("confidence"))
    measures = list(dict.fromkeys(one.model for one in clf.fitted_.ask(asked)))
    sets, p = clf.predict_set(T, **levels), clf.predict_p(T, **levels)
    sets, p = (sets[None], p[None]) if single else (sets, p)
    of = {kind: [value for name, value in found.items() if name.startswith(kind)] for kind in ("sets", "p_", "scores")}
    assert len(of["sets"]) == len(sets)
    assert len(of["p_"]) == len(measures)
    for ours, theirs in zip(of["sets"], sets, strict=True):
        assert ours.dtype == bool
        assert (ours >= theirs).all()
        assert (ours != theirs).sum() <= p_may_differ // 100
    for ours, theirs in zip(of["p_"], p, strict=False):
        assert ours.dtype == np.float64
        assert np.any(ours.astype(theirs.dtype) != theirs, axis=1).sum() <= p_may_differ
    for ours, at in zip(of["scores"], measures, strict=False):
        theirs = clf.folds_[0].models[at].scores(T, clf.fitted_.shared(range(len(T))))
        close = 1e-12 if theirs.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * np.abs(theirs).max())


def with_model(clf, model, X, y):
    """The fitted predictor with another model, calibrated on the same rows again."""
    clf.fitted_ = replace(clf.fitted_, folds=[clf.folds_[0]._replace(models=[model])])
    return clf.calibrate(X, y)


def members(X, y, measures, columns, seed=0):
    """Measures with random parameters near those of a logistic regression."""
    rng = np.random.default_rng(seed)
    made = []
    for measure, own in zip(measures, columns, strict=True):
        Z, _ = own.apply(X)
        fit = LogisticRegression(fit_intercept=False, max_iter=500).fit(Z, y)
        theta = fit.coef_.T + 0.1 * rng.normal(size=fit.coef_.T.shape)
        theta = np.hstack([theta, 0.8 * theta]) if measure == "two-matrix" else theta
        made.append(Member(own, measure, theta, float(rng.normal())))
    return made


# ---- measures ---------------------------------------------------------------------------------------------------


def test_the_papers_grid(rows):
    X, y, T = rows
    assert_same(quick_grid(confidence=[0.8, 0.9]).fit(X, y), T)


@pytest.mark.parametrize("unfolded", [False, True])
@pytest.mark.parametrize("measure", ["linear", "softmax", "two-matrix"])
def test_one_measure(rows, measure, unfolded):
    X, y, T = rows
    columns = Columns.unfolded(X) if unfolded else Columns.plain(X)
    assert_same(
        with_model(quick_grid(confidence=0.9).fit(X, y), Ensemble(members(X, y, [measure], [columns])), X, y), T
    )


def test_members_that_vote(rows):
    X, y, T = rows
    plain, unfolded = Columns.plain(X), Columns.unfolded(X)
    measures = ["linear", "softmax", "two-matrix", "softmax", "two-matrix"]
    voting = Ensemble(members(X, y, measures, [plain, unfolded, unfolded, plain, unfolded]))
    assert_same(with_model(quick_grid(confidence=0.9).fit(X, y), voting, X, y), T)


def test_what_the_search_finds(rows):
    X, y, T = rows
    clf = quick_scpo(confidence=[0.8, 0.9], max_iter=60).fit(X, y)
    assert any(len(one.members) > 1 for one in clf.folds_[0].models)
    assert_same(clf, T)
    with pytest.warns(TightsetWarning, match=r"no measure was trained for confidence 0\.85"):
        proto = to_onnx(clf, confidence=[0.85, 0.9])
    assert [one.name for one in proto.graph.output] == ["sets_0.85", "sets_0.9"]


def test_equal_rows_tie_where_columns_are_discrete(rows):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(600, 5)) / 10
    y = np.argmax(np.c_[X[:, 0] - X[:, 1], X[:, 1] + X[:, 2], X[:, 2]] * 8 + rng.gumbel(size=(600, 3)), axis=1)
    T = rng.integers(0, 3, size=(ROWS, 5)) / 10
    assert_same(quick_scpo(confidence=0.9).fit(X, y), T)
    assert_same(baseline(confidence=0.9, estimator=RandomForestClassifier(20, min_samples_leaf=4)).fit(X, y), T)


def test_float32_rows(rows):
    """The library adds in float32, the graph in float64: p-values of a row in a hundred are a rank larger, and few sets."""
    X, y, T = (some.astype(np.float32) if some.dtype.kind == "f" else some for some in rows)
    clf = quick_scpo(confidence=0.9).fit(X, y)
    assert to_onnx(clf).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert_same(clf, T, p_may_differ=100)  # of 10,000; none may be smaller, below
    assert (run(to_onnx(clf, output="p-values"), T)["p_values"] >= clf.predict_p(T) - 1e-6).all()


# ---- calibration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("allow_empty", [False, True])
def test_calibration(rows, cv, label_conditional, allow_empty):
    X, y, T = rows
    how = {"cv": cv, "label_conditional": label_conditional, "allow_empty": allow_empty}
    clf = baseline(confidence=[0.4, 0.9], **how).fit(X, y)
    assert clf.predict_set(T)[0].any(axis=1).all() != allow_empty
    assert_same(clf, T)


def test_first_of_labels_that_tie_fills_an_empty_set():
    P = np.array([[0.2, 0.4, 0.4], [0.5, 0.25, 0.25], [0.3, 0.3, 0.4]])
    y = np.array([0, 1, 2] * 20)
    clf = baseline(estimator="precomputed", confidence=0.1, allow_empty=False).fit(np.tile(np.eye(3), (20, 1)), y)
    np.testing.assert_array_equal(run(to_onnx(clf), P)["sets"], clf.predict_set(P))


def test_least_equal_is_the_least_that_is_settled_to_a_score():
    rng = np.random.default_rng(0)
    raw = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-9, 9, 500), [1.0, -1.0, 0.5, -4.0, 2.0**-30]])
    alphas = settle(raw)
    least = least_equal(alphas, np.zeros(len(alphas)))
    assert (settle(least) == alphas).all()
    assert (settle(np.nextafter(least, -np.inf)) < alphas).all()
    assert least_equal(np.array([0.0, np.inf, -np.inf]), np.zeros(3)).tolist() == [0, np.inf, -np.inf]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 100])
def test_counts_are_those_of_a_binary_search(n):
    rng = np.random.default_rng(n)
    alphas = [np.sort(rng.integers(0, 9, size) / 1.0) for size in (n, 5)]
    scores = np.c_[rng.integers(-1, 10, 50), rng.integers(-1, 10, 50)] * 1.0
    scores[:2] = np.inf, -np.inf
    graph = Graph()
    graph.rename(add_counts(graph, "X", alphas), "counts")
    proto = graph.finish([("X", "DOUBLE", ["n", 2])], [("counts", "INT64", ["n", 2])], {})
    expected = np.c_[tuple(np.searchsorted(a, s, side="right") for a, s in zip(alphas, scores.T, strict=True))]
    np.testing.assert_array_equal(run(proto, scores)["counts"], expected)


# ---- scores and classifiers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["lac", "margin", "aps", "raps", "saps", "top-k", RAPS(0.1, 2), SAPS(0.2)])
def test_scores(rows, score):
    X, y, T = rows
    p_may_differ = 0 if isinstance(score, str) and score in ("lac", "margin", "saps", "top-k") else 3
    assert_same(baseline(confidence=0.9, conformity_score=score).fit(X, y), T, p_may_differ=p_may_differ)
    forest = RandomForestClassifier(10, min_samples_leaf=3, random_state=0)  # added up in the same order: the same bits
    assert_same(baseline(confidence=0.9, conformity_score=score, estimator=forest).fit(X, y), T)


CLASSIFIERS = [
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(
        make_column_transformer(
            (StandardScaler(), [1, 0]), (MinMaxScaler(), [2]), ("drop", [3]), remainder="passthrough"
        ),
        LogisticRegression(),
    ),
    make_pipeline(SimpleImputer(), "passthrough", ExtraTreesClassifier(10)),
    RandomForestClassifier(20, min_samples_leaf=2),
    ExtraTreesClassifier(20),
    HistGradientBoostingClassifier(max_iter=10),
    GradientBoostingClassifier(n_estimators=5),
    GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 4]}, cv=2),
    MLPClassifier((8,), max_iter=20),
    GaussianNB(),
    LinearSVC(),
    RidgeClassifier(),
    VotingClassifier([("a", ExtraTreesClassifier(5)), ("b", GaussianNB())], voting="soft", weights=[2, 1]),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda one: type(one).__name__)
def test_classifiers(rows, estimator, classes):
    X, y, T = rows
    labels = np.array(["one", "two", "three"])[np.minimum(y, classes - 1)]
    assert_same(baseline(estimator=estimator, confidence=0.9).fit(X, labels), T)


def test_the_logistic_regression_of_partitions(rows):
    X, y, T = rows
    clf = baseline(confidence=0.9).fit(X, y)
    trained = Logistic(np.arange(3), members(X, y, ["softmax"], [Columns.plain(X)])[0])
    assert_same(with_model(clf, Scored(trained, LAC()), X, y), T)


def test_missing_values(rows):
    X, y, T = (some.copy() for some in rows)
    rng = np.random.default_rng(0)
    T[rng.random(T.shape) < 0.1] = np.nan
    X = T[:800]
    for estimator in (RandomForestClassifier(10), HistGradientBoostingClassifier(max_iter=10)):
        assert_same(baseline(estimator=estimator, confidence=0.9).fit(X, y), T)


def test_a_forest_with_trees_of_one_leaf(rows):
    X, y, T = rows
    assert_same(baseline(estimator=RandomForestClassifier(4, max_leaf_nodes=2, min_samples_leaf=300)).fit(X, y), T)


@pytest.mark.filterwarnings("ignore:The least populated class")
def test_a_class_that_some_folds_have_not_seen(rows):
    X, y, T = rows
    y = np.minimum(y, 1)
    y[:4] = 2
    for estimator in (LogisticRegression(), LinearSVC()):
        assert_same(baseline(estimator=estimator, cv=5, confidence=0.9).fit(X, y), T)
        assert_same(quick_on_top(estimator).fit(X, y), T)


def test_on_top_of_a_classifier(rows):
    X, y, T = rows
    clf = quick_on_top(ExtraTreesClassifier(5), confidence=[0.8, 0.9]).fit(X, y)
    assert_same(clf, T)
    assert_same(quick_on_top(FrozenEstimator(GaussianNB().fit(X[:200], y[:200]))).fit(X[200:], y[200:]), T)


def test_every_part_of_a_stack(rows):
    X, y, T = (some.copy() for some in rows)
    T[900:1200, 1] = np.nan
    fill, C = X.mean(axis=0), np.arange(3)
    boosted = HistGradientBoostingClassifier(max_iter=10).fit(X, y)
    averaged = Averaged([boosted, HistGradientBoostingClassifier(max_iter=5).fit(X, y)], np.array([0.4, 0.6]), C, None)
    blocks = [
        Tempered(averaged, 0.7),
        LogProbabilities(members(X, y, ["softmax"], [Columns.unfolded(X)])[0], fill),
        Averaged([HistGradientBoostingClassifier(max_iter=7).fit(X, y)], np.ones(1), C, 2.0),
    ]
    model = Stacked(blocks, np.array([0.6, 0.4, 0.0]), fill, [0, 2], Ensemble([]))
    parts = np.hstack([X, blocks[0].scores(X), blocks[0].scores(X), blocks[2].scores(X)])
    own = [Columns.of_scores(parts[:, 5:8], np.arange(5, 8), "mixture"), Columns.plain(parts)]
    model = model._replace(ensemble=Ensemble(members(parts, y, ["linear", "two-matrix"], own)))
    clf = quick_on_top(boosted).fit(X, y)
    assert_same(with_model(clf, model, X, y), T)


def test_precomputed_scores(rows):
    X, y, T = rows
    P = GaussianNB().fit(X[:200], y[:200]).predict_proba(T)
    for make in (quick_on_top, baseline):
        assert_same(make(estimator="precomputed").fit(P[200:800], y[200:800]), P)
    assert_same(baseline(estimator="precomputed", conformity_score="aps").fit(P[200:800], y[200:800]), P)


# ---- the file ---------------------------------------------------------------------------------------------------


def test_what_the_file_says_of_itself(rows, tmp_path):
    import pandas as pd

    X, y, T = rows
    names = ["width", "height", "<b>", "weight", "é"]
    labels = np.array(["cat", "dog", "eel"])[y]
    clf = baseline(confidence=[0.8, 0.95]).fit(pd.DataFrame(X, columns=names), labels)
    to_onnx(clf, tmp_path / "model.onnx", output=("sets", "p-values", "scores"))
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    said = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    assert said == {
        "tightset_version": "0.1.0",
        "classes": ["cat", "dog", "eel"],
        "n_features": 5,
        "feature_names": names,
        "outputs": {
            "sets_0.8": {"kind": "sets", "confidence": 0.8},
            "sets_0.95": {"kind": "sets", "confidence": 0.95},
            "p_values": {"kind": "p-values", "confidence": None},
            "scores": {"kind": "scores", "confidence": None},
        },
    }
    assert [one.shape for one in session.get_outputs()] == [["n", 3]] * 4
    assert len(session.run(["sets_0.8"], {"X": T[:7]})[0]) == 7


def test_rows_that_the_library_refuses_exclude_nothing(rows):
    X, y, _ = rows
    clf = baseline(confidence=0.9).fit(X, y)
    found = run(to_onnx(clf, output=["sets", "p-values"]), np.full((1, 5), np.nan))
    assert found["sets"].all()
    assert (found["p_values"] == 1).all()


def test_rows_may_come_from_earlier_nodes(rows):
    X, y, T = rows
    clf = baseline(confidence=0.9).fit(X, y)
    graph = Graph()
    (output,) = add_outputs(graph, graph.add("Mul", "halves", 2.0), clf, "sets")
    proto = graph.finish([("halves", "DOUBLE", ["n", 5])], [(output.name, "BOOL", ["n", 3])], {})
    np.testing.assert_array_equal(run(proto, T / 2)["sets"], clf.predict_set(T))


class Constant(ClassifierMixin, BaseEstimator):
    """A classifier that skl2onnx has never heard of."""

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def by_groups(X, y):
    return baseline().fit(X, y, groups=(X[:, 0] > 0).astype(int))


def with_boosted_trees(X, y):
    clf = quick_on_top(GaussianNB()).fit(X, y)
    (model,) = clf.folds_[0].models
    clf.folds_[0].models[0] = model._replace(blocks=[Trees("lightgbm", None, 5, 3)])
    return clf


REFUSED = {
    "skl2onnx does not convert it": lambda X, y: baseline(estimator=Constant()).fit(X, y),
    "not your own functions": lambda X, y: baseline(conformity_score=np.sqrt).fit(X, y),
    "randomised": lambda X, y: baseline(conformity_score=APS(randomised=True)).fit(X, y),
    "by group": by_groups,
    "booster of lightgbm": with_boosted_trees,
    "converts the trees inside it in float32": lambda X, y: baseline(estimator=BaggingClassifier(n_estimators=2)).fit(
        X, y
    ),
    "PolynomialFeatures cannot be exported": lambda X, y: baseline(
        estimator=make_pipeline(PolynomialFeatures(), GaussianNB())
    ).fit(X, y),
    "it has no predict_proba": lambda X, y: baseline(estimator=SVC()).fit(X, y),
    "categorical columns": lambda X, y: baseline(
        estimator=HistGradientBoostingClassifier(max_iter=2, categorical_features=[0])
    ).fit(np.abs(X.round()), y),
    "trained on float32 rows": lambda X, y: baseline(conformity_score="aps").fit(X.astype(np.float32), y),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(rows, tmp_path, why):
    clf = REFUSED[why](*rows[:2])
    with pytest.raises(ValueError, match=f"cannot be exported to ONNX.*{why}|{why}"):
        to_onnx(clf, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_scores_of_several_folds_are_refused(rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match="fold of cv"):
        to_onnx(baseline(cv=3).fit(X, y), output="scores")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_float32_nodes_are_told_of(rows):
    X, y, T = rows
    clf = baseline(estimator=SVC(probability=True), confidence=0.9).fit(X[:300], y[:300])
    with pytest.warns(TightsetWarning, match="SVC as converted by skl2onnx does not give exactly the same scores"):
        proto = to_onnx(clf)
    assert np.any(run(proto, T)["sets"] != clf.predict_set(T), axis=1).sum() <= 10


def test_arguments():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    clf = baseline(confidence=0.8).fit(X, y)
    with pytest.raises(ValueError, match="output must be one or several of 'sets', 'p-values', 'scores'; got 'set'"):
        to_onnx(clf, output="set")
    with pytest.raises(TypeError, match="ConformalClassifier, or a TablePredictor; got LogisticRegression"):
        to_onnx(LogisticRegression().fit(X, y))
    with pytest.raises(FileNotFoundError, match="path must be in an existing folder; got 'nowhere"):
        to_onnx(clf, "nowhere/model.onnx")
    with pytest.raises(ValueError, match="not fitted"):
        to_onnx(ConformalClassifier())
    with pytest.raises(ValueError, match="confidence must be a number between 0 and 1"):
        to_onnx(clf, confidence=1.5)


def test_an_older_file_stays_if_writing_fails(tmp_path, monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    path = tmp_path / "model.onnx"
    path.write_bytes(b"older")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        to_onnx(baseline(confidence=0.8).fit(X, y), path)
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"older"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("tightset.export.onnx.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=re.escape('pip install "tightset[onnx]"')):
        to_onnx(baseline())
