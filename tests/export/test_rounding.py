"""Ties of an exported graph are those of the library, wherever columns lie and in whatever type they come."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from makers import baseline, quick_grid, quick_scpo
from tightset import TightsetWarning
from tightset.export import to_onnx
from tightset.export.graph import Graph
from tightset.export.linear import add_scaled
from tightset.models.columns import Columns
from tightset.models.ensembles import Ensemble, Member

pytestmark = pytest.mark.filterwarnings("ignore:the true label has the highest score:tightset.TightsetWarning")


def run(proto, X):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,), names = session.get_inputs(), [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, {given.name: X}), strict=True))


def zeros_and_ones(seed, dtype, offset, columns):
    """Rows of 0 and 1 away from zero, with labels that have nothing to do with them: every score ties with many."""
    rng = np.random.default_rng(seed)
    X = (rng.integers(2, size=(200, columns)) + offset).astype(dtype)
    return X, rng.integers(2, size=200), np.unique(X, axis=0)


OFFSETS = [(np.float32, 1_000, 2), (np.float32, 10_000, 1), (np.float64, 1e9, 1), (np.float64, 1e9, 2)]


@pytest.mark.parametrize(("dtype", "offset", "columns"), OFFSETS)
@pytest.mark.parametrize("score", ["lac", "margin"])
def test_ties_of_columns_far_from_zero(dtype, offset, columns, score):
    for seed in range(12):
        X, y, each = zeros_and_ones(seed, dtype, offset, columns)
        clf = baseline(confidence=0.95, conformity_score=score, random_state=seed).fit(
            X[:40], y[:40], X_cal=X[40:], y_cal=y[40:]
        )
        found = run(to_onnx(clf, output=["sets", "p-values"]), each)
        np.testing.assert_array_equal(found["sets"], clf.predict_set(each))
        np.testing.assert_allclose(found["p_values"], clf.predict_p(each), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "offset", "columns"), OFFSETS)
def test_ties_of_measures_on_such_columns(dtype, offset, columns):
    for seed in range(3):
        X, y, each = zeros_and_ones(seed, dtype, offset, columns)
        clf = quick_scpo(confidence=0.95, random_state=seed).fit(X, y)
        found = run(to_onnx(clf, output=["sets", "p-values"]), each)
        np.testing.assert_array_equal(found["sets"], clf.predict_set(each))
        np.testing.assert_allclose(found["p_values"], clf.predict_p(each), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_where_large_terms_cancel(dtype):
    """Columns of a classifier without a scaler: the error is that of terms a thousand times as large as their sum."""
    rng = np.random.default_rng(0)
    X = (rng.integers(2, size=(300, 12)) + 1_000).astype(dtype)
    model = LogisticRegression().fit(X - 1_000, rng.integers(2, size=300))
    model.coef_ = rng.normal(size=(1, 12)).astype(dtype)
    model.intercept_ = -(X.mean(axis=0) @ model.coef_.T).astype(dtype)
    clf = baseline(estimator=FrozenEstimator(model), confidence=0.9).fit(X, rng.integers(2, size=300))
    p = run(to_onnx(clf, output="p-values"), X)["p_values"]
    assert (p >= clf.predict_p(X) - 1e-6).all()


SCALERS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler((-1, 2)),
    MinMaxScaler(clip=True),
    MaxAbsScaler(),
    RobustScaler(),
    RobustScaler(with_centering=False),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scaler", SCALERS, ids=repr)
def test_scalers_agree_to_the_last_bit(scaler, dtype):
    rng = np.random.default_rng(0)
    X, T = (rng.normal([1e4, 0.0, -3.0], [1.0, 1e3, 1e-3], size=(500, 3)).astype(dtype) for _ in range(2))
    graph = Graph()
    rows = graph.cast("X", "DOUBLE")
    graph.single[rows] = np.full(3, dtype == np.float32)
    scaled = graph.rename(add_scaled(graph, rows, scaler.fit(X)), "scaled")
    kind = "FLOAT" if dtype == np.float32 else "DOUBLE"
    proto = graph.finish([("X", kind, ["n", 3])], [(scaled, "DOUBLE", ["n", 3])], {})
    np.testing.assert_array_equal(run(proto, T)["scaled"], scaler.transform(T))


def test_float32_products_that_cannot_be_bounded_are_told_of():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)).astype(np.float32), rng.integers(2, size=200)
    network = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5, random_state=0))
    with pytest.warns(ConvergenceWarning):
        clf = baseline(estimator=network).fit(X, y)
    with pytest.warns(TightsetWarning, match="MLPClassifier was trained on float32 rows"):
        to_onnx(clf)


def test_steps_that_add_otherwise_far_from_zero_are_told_of():
    """scikit-learn's PCA centres after its product, skl2onnx's before it."""
    X, y, _ = zeros_and_ones(0, np.float64, 1e9, 2)
    clf = baseline(estimator=make_pipeline(PCA(2), LogisticRegression())).fit(X, y)
    with pytest.warns(TightsetWarning, match="PCA as converted by skl2onnx does not give exactly the same scores"):
        to_onnx(clf)


def test_rows_far_out():
    """Members that vote by sigmoids of scores in the thousands: exp of them is infinite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    plain = Columns.plain(X)
    voting = Ensemble(
        [
            Member(plain, "linear", rng.normal(size=(3, 2)) * 9, 0.2),
            Member(plain, "softmax", rng.normal(size=(3, 2)), 0.1),
        ]
    )
    clf = quick_grid(confidence=0.9).fit(X, y)
    clf.fitted_ = replace(clf.fitted_, folds=[clf.folds_[0]._replace(models=[voting])])
    clf.calibrate(X, y)
    far = np.vstack([X, X * [100, 1], X * [-100, 1]])
    found = run(to_onnx(clf, output=["sets", "p-values", "scores"]), far)
    np.testing.assert_allclose(found["scores"], voting.scores(far), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found["sets"], clf.predict_set(far))
    np.testing.assert_array_equal(found["p_values"], clf.predict_p(far))
