"""Types of rows: a row that calibrated ties with itself, whatever type it comes back in."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import tightset
from makers import scpo
from tightset import ConformalClassifier, TightsetWarning
from tightset.compute.row_rounding import slack_of
from tightset.compute.row_types import coarser_than, conform, dtypes_of
from tightset.tables.fitting import fit_table

FLOATS = ("float16", "float32", "float64")
TYPES = (*FLOATS, "int64", "bool", "Float32", "Float64", "Int64", "boolean")
UNEVEN = (0.1, 0.7)  # of which no float type holds what another does


def rows(seed, n, values=(0.0, 1.0)):
    """Two columns of two values; the first is the label, but for 7 % of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.choice(values, size=(n, 2))
    return X, ((X[:, 0] == values[1]) ^ (rng.uniform(size=n) < 0.07)).astype(int)


def of_type(X, name):
    """An array, or a frame for the types of pandas."""
    if name in ("Float32", "Float64", "Int64", "boolean"):
        plain = {"Int64": "int64", "boolean": "bool"}.get(name, "float64")
        return pd.DataFrame(X.astype(plain), columns=["a", "b"]).astype(name)
    return X.astype(name)


def quick(**how):
    return scpo(confidence=0.9, max_iter=5, verbose=False, **how)


def plain(estimator=None, **how):
    return ConformalClassifier(estimator, confidence=0.9, random_state=0, **how)


def boosted():
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)


MAKERS = {
    "SCPO": quick,
    "SCPO on trees": lambda: quick(estimator=RandomForestClassifier(5)),
    "default": plain,
    "logistic": lambda: plain(LogisticRegression()),
    "scaled logistic": lambda: plain(make_pipeline(StandardScaler(), LogisticRegression())),
    "histograms": lambda: plain(HistGradientBoostingClassifier(max_iter=5)),
    "forest": lambda: plain(RandomForestClassifier(5)),
    "lightgbm": lambda: plain(boosted()),
}


@pytest.fixture(autouse=True)
def _no_names_and_one_thread():
    """Threads of small trees would wait for each other, where two tests run side by side."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.filterwarnings("ignore", message="X (does not have valid|has) feature names")
        yield


@pytest.mark.parametrize("name", MAKERS)
def test_numbers_that_every_type_holds_give_the_same_sets_in_every_type(name):
    """For all types of training, of calibration and of new rows: 0 and 1 are the same in all of them."""
    (X, y), (X_cal, y_cal), (X_new, _) = rows(0, 300), rows(1, 99), rows(2, 40)
    expected = MAKERS[name]().fit(X, y, X_cal=X_cal, y_cal=y_cal).predict_p(X_new)
    types = TYPES if name == "default" else ("float16", "float32", "float64", "bool", "Int64")
    for trained in types:
        clf = MAKERS[name]().fit(of_type(X, trained), y, X_cal=of_type(X_cal, trained), y_cal=y_cal)
        for calibrated in types:
            clf.calibrate(of_type(X_cal, calibrated), y_cal)
            for new in types:
                found = clf.predict_p(of_type(X_new, new))
                np.testing.assert_allclose(found, expected, err_msg=f"{trained}, {calibrated}, {new}", atol=1e-6)


def coverage(clf, calibrated, types, draws, values=UNEVEN, as_rows=lambda X: X, n=99):
    """The mean coverage over calibration sets for new rows of each type, and four standard errors below the level."""
    seen = []
    for draw in range(draws):
        (X_cal, y_cal), (X_new, y_new) = rows([3, draw], n, values), rows([4, draw], 50, values)
        clf.calibrate(as_rows(of_type(X_cal, calibrated)), y_cal)
        found = [np.asarray(clf.predict_set(as_rows(of_type(X_new, new)))) for new in types]
        seen.append([sets[np.arange(50), y_new].mean() for sets in found])
    spread = np.sqrt((0.09 / (n + 2) + 0.09 / 50) / draws)
    return np.mean(seen, axis=0), 0.9 - 4 * spread


@pytest.mark.parametrize("trained", ["float32", "float64"])
@pytest.mark.parametrize("name", ["default", "logistic", "histograms", "SCPO"])
def test_coverage_holds_for_all_pairs_of_types_of_numbers_that_they_hold_differently(name, trained):
    """0.1 and 0.7 are other numbers in each type. (`make claims` does the same for more of everything.)"""
    X, y = rows(0, 400, UNEVEN)
    clf = MAKERS[name]().fit(of_type(X, trained), y)
    for calibrated in FLOATS:
        seen, least = coverage(clf, calibrated, FLOATS, 30)
        assert (seen > least).all(), (calibrated, FLOATS, seen)
        for new in FLOATS:
            assert clf.predict_set(of_type(X[:100], new)).sum(axis=1).mean() < 1.5


def test_coverage_of_given_scores_in_another_type():
    """Probabilities of a discrete column, and the same ones in float32."""
    table = np.array([[0.93, 0.07], [0.07, 0.93], [0.55, 0.45]])
    seen = []
    for draw in range(100):
        rng = np.random.default_rng([5, draw])
        at = rng.integers(3, size=149)
        y = (rng.uniform(size=149) > table[at, 0]).astype(int)
        for first, second in (("float64", "float32"), ("float32", "float64"), ("float64", "float16")):
            clf = plain("precomputed").fit(table[at[:99]].astype(first), y[:99])
            sets = clf.predict_set(table[at[99:]].astype(second))
            seen.append((sets[np.arange(50), y[99:]].mean(), sets.sum(axis=1).mean()))
    covered, size = np.mean(seen, axis=0)
    assert covered > 0.9 - 4 * np.sqrt((0.09 / 101 + 0.09 / 50) / 100)
    assert size < 1.5


def test_frames_of_mixed_types_are_computed_as_in_training():
    (X, y), (X_new, _) = rows(0, 400, UNEVEN), rows(1, 60, UNEVEN)
    frame = pd.DataFrame(X, columns=["a", "b"]).astype({"a": "float32"})
    new = pd.DataFrame(X_new, columns=["a", "b"])
    for make in (plain, quick, MAKERS["histograms"]):
        clf = make().fit(frame, y)
        expected = clf.predict_p(new.astype({"a": "float32"}))
        for other in (new, new.astype("Float64"), pl.from_pandas(new), new.astype({"a": "Float32"})):
            np.testing.assert_allclose(clf.predict_p(other), expected, atol=1e-6)


@pytest.mark.parametrize("first", ["float32", "float64"])
@pytest.mark.parametrize("second", ["float32", "float64"])
def test_sparse_rows(first, second):
    for make in (plain, quick, MAKERS["logistic"]):
        X, y = rows(0, 400, (0.0, 0.7))
        clf = make().fit(sparse.csr_array(X.astype(first)), y)
        seen, least = coverage(clf, first, [second], 30, (0.0, 0.7), sparse.csr_array)
        assert seen > least


@pytest.mark.parametrize("second", ["float16", "float32", "int64", "bool"])
def test_dask_rows(second):
    import dask.array as da

    (X, y), (X_new, _) = rows(0, 400), rows(1, 60)
    for make in (plain, quick):
        clf = make().fit(X, y)
        expected = clf.predict_set(X_new)
        np.testing.assert_array_equal(clf.predict_set(da.from_array(X_new.astype(second), chunks=(25, 2))), expected)
        clf.calibrate(da.from_array(X.astype(second), chunks=(100, 2)), y)
        np.testing.assert_array_equal(clf.calibrate(X, y).predict_set(X_new), clf.predict_set(X_new))


FORMS = {
    "array": lambda X: X,
    "float32": lambda X: X.astype("f4"),
    "bytes swapped": lambda X: X.astype(">f4"),
    "long": lambda X: X.astype(np.longdouble),
    "objects": lambda X: X.astype(object),
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=["a"]),
    "pandas float32": lambda X: pd.DataFrame(X.astype("f4"), columns=["a"]),
    "pandas objects": lambda X: pd.DataFrame(X.astype(object), columns=["a"]),
    "pandas categories": lambda X: pd.DataFrame(X, columns=["a"]).astype("category"),
    "pandas decimals": lambda X: pd.DataFrame(X, columns=["a"]).map(lambda x: Decimal(str(x))).astype(object),
    "arrow": lambda X: pd.DataFrame(X, columns=["a"]).astype("float[pyarrow]"),
    "pandas sparse": lambda X: pd.DataFrame(X, columns=["a"]).astype(pd.SparseDtype("f8", 0.0)),
    "polars": lambda X: pl.DataFrame({"a": X[:, 0]}),
    "polars float32": lambda X: pl.DataFrame({"a": X[:, 0].astype("f4")}),
    "sparse": sparse.csr_array,
    "list of float32": lambda X: X.astype("f4").tolist(),
    "pandas categories of float32": lambda X: pd.DataFrame(X.astype("f4"), columns=["a"]).astype("category"),
    "pandas texts": lambda X: pd.DataFrame(X, columns=["a"]).astype(str).astype(object),
    "polars decimals": lambda X: pl.DataFrame({"a": X[:, 0].round(2)}).with_columns(pl.all().cast(pl.Decimal(12, 2))),
}
_NOT_TRAINED_ON = ("list", "pandas categories", "sparse", "pandas texts", "polars decimals")


@pytest.mark.parametrize("first", [name for name in FORMS if name not in _NOT_TRAINED_ON])
def test_rows_tie_in_every_form_that_they_come_in(first):
    (X, y), (X_cal, y_cal), (X_new, _) = skewed(0, 300), skewed(1, 400), skewed(2, 200)
    for seed, make in enumerate((plain, MAKERS["logistic"], quick)):
        clf = make().fit(FORMS[first](X + seed), y).calibrate(FORMS[first](X_cal + seed), y_cal)
        expected = clf.predict_set(FORMS[first](X_new + seed))
        for second, as_rows in FORMS.items():
            found = clf.predict_set(as_rows(X_new + seed))
            np.testing.assert_array_equal(found, expected, err_msg=f"{make}, {second}")


def with_gaps(gap):
    kind = np.random.default_rng(0).integers(0, 3, 600)
    return pd.DataFrame({"c": np.array(["a", "b", gap], dtype=object)[kind]}), kind


GAPS = {
    "nan": lambda: with_gaps(np.nan)[0],
    "None": lambda: with_gaps(None)[0],
    "NA": lambda: with_gaps(pd.NA)[0],
    "string": lambda: with_gaps(np.nan)[0].astype("string"),
    "arrow": lambda: with_gaps(np.nan)[0].astype("string[pyarrow]"),
    "polars": lambda: pl.DataFrame(
        {"c": [text if isinstance(text, str) else None for text in with_gaps(None)[0]["c"]]}
    ),
}


@pytest.mark.parametrize("first", ["nan", "None", "polars"])  # scikit-learn's encoders do not learn from others
@pytest.mark.parametrize(
    "encoder",
    [OneHotEncoder(handle_unknown="ignore"), OrdinalEncoder(encoded_missing_value=-1)],
    ids=["one-hot", "ordinal"],
)
def test_a_gap_among_texts_is_the_same_in_every_form(first, encoder):
    _, y = with_gaps(None)
    clf = plain(make_pipeline(encoder, LogisticRegression())).fit(GAPS[first](), y)
    expected = clf.predict_set(GAPS[first]())
    for second in GAPS.values():
        np.testing.assert_array_equal(clf.predict_set(second()), expected)


@pytest.mark.parametrize("first", ["float64", "int64", "float32", "object"])
def test_texts_of_numbers_are_numbers_where_training_had_them(first):
    kind = np.random.default_rng(0).integers(0, 3, 600)
    frame = pd.DataFrame({"c": kind}).astype(first)
    clf = plain(make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())).fit(frame, kind)
    texts = pd.DataFrame({"c": kind.astype(str).astype(object)})
    np.testing.assert_array_equal(clf.predict_set(texts), clf.predict_set(frame))


def test_numbers_that_training_had_as_texts_stay_texts():
    kind = np.random.default_rng(0).integers(0, 3, 600)
    texts = pd.DataFrame({"c": kind.astype(str).astype(object)})
    clf = plain(make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())).fit(texts, kind)
    clf.calibrate(texts[:300], kind[:300])
    assert clf.evaluate(texts, kind)["coverage"] > 0.85
    assert clf.fitted_.kind.calibrated != ["float32"]


def test_calibrating_changes_all_at_once(monkeypatch):
    """Whoever predicts meanwhile gets the answers of before."""
    (X, y), (X_new, _) = skewed(0, 2000), skewed(1, 300)
    clf = plain().fit(X, y)
    before = clf.predict_p(X_new)
    seen = []
    monkeypatch.setattr(
        "tightset.estimators.calibrating.warn_of_guessing", lambda *_: seen.append(clf.predict_p(X_new)), raising=True
    )
    clf.calibrate(X[:900].astype("f4"), y[:900])
    np.testing.assert_array_equal(seen[0], before)


def test_dask_rows_of_numbers_that_types_hold_differently():
    import dask.array as da

    (X, y), (X_new, _) = skewed(0, 2000), skewed(1, 300)
    for make in (plain, quick):
        clf = make().fit(X, y)
        expected = clf.predict_set(X_new)
        coarse = da.from_array(X_new.astype("f4"), chunks=(100, 1))
        np.testing.assert_array_equal(clf.predict_set(coarse), expected)


def test_model_files_remember_the_types(tmp_path):
    X, y = rows(0, 400, UNEVEN)
    clf = plain().fit(X.astype("float32"), y)
    clf.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(again.predict_p(X), clf.predict_p(X.astype("float32")))
    other = plain().fit(X, y)
    other.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(again.predict_p(X.astype("float32")), other.predict_p(X.astype("float32")))


@pytest.mark.parametrize("name", ["default", "histograms", "forest", "SCPO"])
@pytest.mark.parametrize("trained", ["float32", "float64"])
@pytest.mark.parametrize("calibrated", FLOATS)
def test_an_exported_graph_rounds_as_the_library_does(name, trained, calibrated):
    import onnxruntime

    from tightset.export import to_onnx

    (X, y), (X_new, _) = rows(0, 300, UNEVEN), rows(1, 60, UNEVEN)
    clf = MAKERS[name]().fit(X.astype(trained), y).calibrate(of_type(X, calibrated), y)
    session = onnxruntime.InferenceSession(to_onnx(clf).SerializeToString(), providers=["CPUExecutionProvider"])
    kind = {"tensor(float)": "float32", "tensor(double)": "float64"}[session.get_inputs()[0].type]
    for rounded in FLOATS:  # before they are given to the graph
        given = X_new.astype(rounded).astype(kind)
        (found,) = session.run(None, {"X": given})
        np.testing.assert_array_equal(found, clf.predict_set(given))


def test_tables_of_any_type_give_the_same_sets():
    (X, y), (X_new, _) = rows(0, 400), rows(1, 60)
    frame, new = (pd.DataFrame(some, columns=["a", "b"]) for some in (X, X_new))
    model = fit_table(frame.assign(label=y), "label", plain())
    expected = model.predict_set(new)
    for name in ("float16", "float32", "int64", "Float32", "Int64"):
        np.testing.assert_array_equal(model.predict_set(new.astype(name)), expected)
        other = fit_table(frame.astype(name).assign(label=y), "label", plain())
        np.testing.assert_array_equal(other.predict_set(new), expected)


@pytest.mark.parametrize("first", ["float32", "float64"])
@pytest.mark.parametrize("second", ["float16", "float32", "float64"])
def test_a_number_of_a_table_is_what_is_written(first, second):
    """0.1 in float32 is not 0.1 in float64, but in a file both are written 0.1."""
    (X, y), (X_new, _) = rows(0, 400, UNEVEN), rows(1, 60, UNEVEN)
    frame, new = (pd.DataFrame(some, columns=["a", "b"]) for some in (X, X_new))
    expected = fit_table(frame.assign(label=y), "label", plain()).predict_p(new)
    model = fit_table(frame.astype(first).assign(label=y), "label", plain())
    np.testing.assert_array_equal(model.predict_p(new.astype(second)), expected)


def test_a_frozen_classifier_is_asked_in_the_type_of_calibration():
    X, y = rows(0, 400, UNEVEN)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    clf = plain(FrozenEstimator(model)).fit(X[:99], y[:99])
    seen, least = coverage(clf, "float64", FLOATS, 30)
    assert (seen > least).all(), seen


def skewed(seed, n):
    """Two kinds of rows, of which float32 holds one, and scores of which many tie just at the threshold of 90 %."""
    rng = np.random.default_rng(seed)
    at = rng.random(n) < 0.7
    return np.where(at, 0.1, 0.75)[:, None], np.where(at, rng.choice(3, n, p=[0.5, 0.41, 0.09]), 0)


@pytest.mark.parametrize(
    "as_rows",
    [
        list,
        memoryview,
        lambda X: X.astype(object),
        lambda X: X.astype(">f4"),
        lambda X: pd.DataFrame(X).astype(object),
        lambda X: pd.DataFrame(X).astype(pd.ArrowDtype(__import__("pyarrow").float32())),
    ],
    ids=["list", "memoryview", "objects", "bytes swapped", "frame of objects", "arrow"],
)
def test_rows_that_do_not_say_that_they_were_float32(as_rows):
    (X, y), (X_new, _) = skewed(0, 2000), skewed(1, 300)
    for make in (plain, quick):
        clf = make().fit(X, y)
        np.testing.assert_array_equal(clf.predict_set(as_rows(X_new.astype("f4"))), clf.predict_set(X_new))


def test_calibration_rows_in_order_tell_as_much_as_mixed_ones():
    X, y = skewed(0, 800)
    X_cal, y_cal = skewed(1, 5000)
    order = np.argsort(-X_cal[:, 0], kind="stable")
    X_new, _ = skewed(2, 500)
    for make in (plain, quick):
        clf = make().fit(X, y).calibrate(X_cal[order], y_cal[order])
        np.testing.assert_array_equal(clf.predict_set(X_new.astype("f4")), clf.predict_set(X_new))


class Difference(ClassifierMixin, BaseEstimator):
    """Rounding both columns cancels, rounding one does not."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        X = np.asarray(X, float)
        t = X[:, 0] - X[:, 1]
        return np.stack([0.5 + t, 0.4 - t, 0.1 + 0 * t], axis=1)


def test_frames_that_are_coarse_in_one_column():
    rng = np.random.default_rng(0)
    values = 0.1 * rng.integers(1, 3, 1500)
    frame, y = pd.DataFrame({"a": values, "b": values}), rng.choice(3, 1500, p=[0.5, 0.44, 0.06])
    clf = plain(Difference()).fit(frame[:1000], y[:1000])
    new = frame[1000:]
    np.testing.assert_array_equal(clf.predict_set(new.astype({"a": "f4"})), clf.predict_set(new))


def test_a_row_does_not_depend_on_another_that_is_no_whole_number():
    X, y = skewed(0, 2000)
    whole, new = np.where(X == 0.1, 1, 4), np.where(skewed(1, 300)[0] == 0.1, 1, 4).astype("f4")
    clf = plain().fit(whole, y)
    expected = clf.predict_set(new)
    new[0] = 2.5
    np.testing.assert_array_equal(clf.predict_set(new)[1:], expected[1:])


@pytest.mark.parametrize("seed", [21, 22, 45])
def test_a_row_alone_ties_with_its_copies_in_a_batch(seed):
    """Sums of a hundred columns in float32 are rounded otherwise for one row, by more digits than are dropped."""
    kinds = (0.1 * np.random.default_rng(seed).integers(0, 10, (2, 100))).astype("f4")
    X, y = skewed(seed, 1200)
    rows_ = kinds[(X[:, 0] == 0.75).astype(int)]
    clf = plain().fit(rows_, y)
    together = clf.predict_set(np.repeat(kinds, 20, axis=0))
    for at, kind in enumerate(kinds):
        np.testing.assert_array_equal(clf.predict_set(kind[None])[0], together[20 * at])


def test_what_is_coarser():
    assert coarser_than(["float32", "float64"], ["float32", "float64"]) is None
    assert coarser_than(["float32", "float16"], ["float32", "float64"]) == "float16"
    assert coarser_than("float32", None) == "float32"  # calibrated on lists
    assert coarser_than(["category", "int64"], ["category", "float64"]) is None


def test_rows_are_cast_only_where_nothing_is_lost():
    halves = np.array([[0.5, 1.0]])
    assert conform(halves, "int64", "int64").dtype == np.float64
    assert conform(np.array([[2.0, 1.0]]), "int64", "int64").dtype == np.int64
    texts = pd.DataFrame({"a": ["x"], "b": [1.0]})
    assert conform(texts, ["object", "float32"], None)["b"].dtype == np.float32
    assert dtypes_of([[1]]) is None
    huge = np.array([[1e300]])
    np.testing.assert_array_equal(conform(huge, "float64", "float32"), huge)


def test_slack_is_what_rounding_moves_rows_that_tie():
    scores, moved = np.array([0.5] * 30 + [0.9]), np.array([0.5 + 1e-8] * 30 + [0.1])
    assert 1e-8 <= slack_of(scores, moved, scores == 0.5) < 1.1e-8
    assert slack_of(np.arange(40.0), np.arange(40.0), np.zeros(40, dtype=bool)) == 0


def test_continuous_rows_are_not_made_larger_by_a_coarser_type():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5))
    y = (X[:, 0] + 0.5 * rng.standard_normal(2000) > 0).astype(int)
    for make in (plain, quick, MAKERS["histograms"]):
        clf = make().fit(X[:1000], y[:1000])
        fine, coarse = clf.predict_set(X[1000:]), clf.predict_set(X[1000:].astype(np.float32))
        assert (fine != coarse).mean() < 0.003


def test_smoothed_sets_of_a_coarser_type_cover_exactly():
    X, y = rows(0, 400, UNEVEN)
    clf, seen = plain().fit(X, y), []
    for draw in range(200):
        (X_cal, y_cal), (X_new, y_new) = rows([3, draw], 99, UNEVEN), rows([4, draw], 50, UNEVEN)
        clf.calibrate(X_cal, y_cal)
        sets = clf.predict_set(X_new.astype(np.float32), smoothed=True)
        seen.append(sets[np.arange(50), y_new].mean())
    assert abs(np.mean(seen) - 0.9) < 4 * np.sqrt((0.09 / 101 + 0.09 / 50) / 200)


def test_labels_that_training_lacks_are_missed_and_told():
    X, y = rows(0, 400)
    strange = np.where(np.arange(100) < 7, 9, y[300:])
    for make in (plain, quick):
        clf = make().fit(X[:300], y[:300])
        with pytest.warns(TightsetWarning, match=r"7 of 100 rows \(7\.0%\) in y have labels that were not in training"):
            row = clf.evaluate(X[300:], strange)
        known = clf.evaluate(X[307:], y[307:])
        assert row["coverage"] == pytest.approx(0.93 * known["coverage"])
        assert row["unknown_label"] == pytest.approx(0.07)
        with pytest.raises(ValueError, match="not in training"):
            clf.evaluate(X[:5], ["a"] * 5)


def test_calibration_rows_with_unknown_labels_count_as_rows_that_conform_least():
    """So coverage holds although such rows come: 4 % have a label that nobody knows."""
    X, y = rows(0, 400)
    clf, seen = plain().fit(X, y), []
    for draw in range(100):
        (X_cal, y_cal), (X_new, y_new) = rows([3, draw], 199), rows([4, draw], 200)
        rng = np.random.default_rng(draw)
        y_cal[rng.uniform(size=199) < 0.04] = 9
        y_new[rng.uniform(size=200) < 0.04] = 9
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TightsetWarning)
            seen.append(clf.calibrate(X_cal, y_cal).evaluate(X_new, y_new)["coverage"])
    assert np.mean(seen) > 0.9 - 4 * np.sqrt((0.09 / 201 + 0.09 / 200) / 100)
    y_cal[:3] = 9
    with pytest.warns(TightsetWarning, match="count as missed"):
        clf.calibrate(X_cal, y_cal)


def test_a_long_tail_of_labels_is_told_of():
    rng = np.random.default_rng(0)
    y = rng.zipf(1.6, 100)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plain().fit(rng.standard_normal((100, 2)), y)
    assert any("have a label that no training row has" in str(one.message) for one in told)


def test_the_law_of_coverage_is_met_exactly_by_rows_without_ties():
    """A check of the checks above: with continuous scores coverage is beta, in any pair of types."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 1))
    y = (X[:, 0] + rng.standard_normal(len(X)) > 0).astype(int)
    clf = plain().fit(X[:500], y[:500])
    for first, second in (("float64", "float32"), ("float32", "float64")):
        covered = []
        for draw in range(100):
            cal, new = X[500 * draw + 500 :][:99], X[500 * draw + 600 :][:400]
            clf.calibrate(cal.astype(first), y[500 * draw + 500 :][:99])
            sets = clf.predict_set(new.astype(second))
            covered.append(sets[np.arange(400), y[500 * draw + 600 :][:400]].mean())
        law = stats.beta(90, 10)
        assert abs(np.mean(covered) - law.mean()) < 4 * np.sqrt((law.var() + 0.09 / 400) / 100)
