"""ONNX models of tables: raw columns in, and the sets that the library gives for the same rows."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import tightset
from makers import baseline, quick_on_top, quick_scpo
from tightset.export import to_onnx
from tightset.export.graph import Graph
from tightset.export.tables import add_encoding, inputs_of
from tightset.tables.columns import MISSING, OTHER, Category, Number
from tightset.tables.encoding import Encoding
from tightset.tables.fitting import fit_table
from tightset.tables.predictor import TablePredictor
from tightset.tables.texts import USUAL_GAPS, as_text

pytestmark = pytest.mark.filterwarnings("ignore:rows have values of")  # of categories that are new on purpose

ROWS = 10_000


def table(n, seed=0, *, new=False):
    """Numbers, categories, truth values, gaps in all of them, and rare texts; new rows have texts never seen."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 3, n)

    def gaps(values, share):
        return np.where(rng.random(n) < share, None, values)

    colour = np.array(["red", "grün", "blue"], dtype=object)[(k + (rng.random(n) < 0.3)) % 3]
    town = np.array([f"t{int(x)}" for x in rng.exponential(2, n)], dtype=object)
    if new:
        colour[::7], town[::5] = "violet", "Nowhere"
    return pd.DataFrame(
        {
            "size (cm)": np.where(rng.random(n) < 0.1, np.nan, 40 + 8 * k + rng.normal(0, 5, n)).round(1),
            "sets": rng.integers(0, 5, n) + k,  # no gaps; and named as an output is
            "Concat_1": np.where(rng.random(n) < 0.01, np.nan, rng.normal(k) * 1e6),  # named as a node is
            "colour": gaps(colour, 0.05),
            "member": gaps(rng.random(n) < 0.2 + 0.3 * k, 0.03),
            "town": gaps(town, 0.02),
            "code": rng.integers(0, 4, n),
            "kind": np.array(["x", "y", "z"])[k],
        }
    )


@pytest.fixture(scope="module")
def frame():
    return table(900)


@pytest.fixture(scope="module")
def new(frame):
    """The rows that trained and calibrated, and others."""
    return pd.concat([frame, table(ROWS - len(frame), seed=1, new=True)], ignore_index=True)


@pytest.fixture(scope="module")
def model(frame):
    return fit_table(frame, "kind", quick_scpo(confidence=[0.8, 0.9]), categorical=["code"])


def fed(encoding, frame, missing=""):
    """What the inputs get: a column each."""
    values = {
        column.name: frame[column.name].to_numpy(dtype=np.float64)
        if isinstance(column, Number)
        else np.array([missing if text is None else text for text in as_text(frame[column.name])], dtype=object)
        for column in encoding.columns
    }
    return {name: column[:, None] for name, column in values.items()}


def session_of(proto):
    return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def run(proto, feed):
    session = session_of(proto)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def encoded(encoding, feed):
    inputs = inputs_of(encoding)
    graph = Graph([name for name, *_ in inputs])
    name = graph.rename(add_encoding(graph, encoding), "rows")
    return run(graph.finish(inputs, [(name, "DOUBLE", ["n", len(encoding.names)])], {}), feed)[name]


def test_sets_of_ten_thousand_rows_are_the_same(model, new):
    found = run(to_onnx(model, output=["sets", "p-values"]), fed(model.encoding, new))
    assert {"t0", OTHER, MISSING} <= set(model.encoding.columns[5].values)
    assert OTHER not in model.encoding.columns[3].values  # where what is unseen is none of the values
    assert len(new) == ROWS
    for level, sets, p in zip((0.8, 0.9), model.predict_set(new), model.predict_p(new), strict=True):
        assert 0.1 < sets.mean() < 0.9
        np.testing.assert_array_equal(found[f"sets_{level}"], sets)
        np.testing.assert_array_equal(found[f"p_values_{level}"], p)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_columns_are_encoded_to_the_bit(model, new, dtype):
    encoding = model.encoding._replace(dtype=dtype)
    texts = new.assign(**{name: as_text(new[name]) for name in encoding.text})
    np.testing.assert_array_equal(encoded(encoding, fed(encoding, new)), encoding.apply(texts))


@pytest.mark.parametrize("by", [baseline, lambda **how: quick_on_top(RandomForestClassifier(9, random_state=0), **how)])
def test_other_predictors_of_tables(frame, new, by):
    model = fit_table(frame, "kind", by(confidence=0.9))
    proto = to_onnx(model)
    assert [one.name for one in proto.graph.output] == ["sets_"]  # since a column has the name of the output
    found = run(proto, fed(model.encoding, new))["sets_"]
    np.testing.assert_array_equal(found, model.predict_set(new, confidence=0.9))


def test_a_model_in_single_precision(frame, new, monkeypatch):
    monkeypatch.setattr("tightset.tables.preparing._LEAST_MEMORY", 70_000)
    model = fit_table(frame, "kind", quick_scpo(confidence=0.9))
    assert model.encoding.dtype == "float32"
    proto = to_onnx(model)
    assert {one.type.tensor_type.elem_type for one in proto.graph.input} == {8, 11}  # string and double all the same
    found, own = run(proto, fed(model.encoding, new))["sets_"], model.predict_set(new, confidence=0.9)
    assert found[own].all()  # within float32 rounding a set may be larger, as docs/production.md says, and not smaller
    assert (found != own).sum() <= 2


@pytest.mark.parametrize("values", [["a", "b"], ["a", "b", MISSING], ["a", OTHER], ["a", "b", MISSING, OTHER]])
@pytest.mark.parametrize("seen", [["a", "b", "rare"], ["", "?", "a", "b"], [MISSING, OTHER, "a"]])
def test_every_text_has_the_place_that_the_library_gives_it(values, seen):
    column = Category("c", ["", *values] if "" in seen else values, seen, "a")
    encoding = Encoding([column], {}, ["?"])
    texts = ["a", "b", "rare", "never", MISSING, OTHER, *seen]
    rows = pd.DataFrame({"c": pd.Series([*texts, None], dtype=object)})
    feed = {"c": np.array([*texts, MISSING], dtype=object)[:, None]}
    np.testing.assert_array_equal(encoded(encoding, feed), encoding.apply(rows))
    if "" not in seen:
        for_missing = np.array([["", "?"]], dtype=object).T
        np.testing.assert_array_equal(encoded(encoding, {"c": for_missing}), encoding.apply(rows.iloc[[-1, -1]]))


def test_the_metadata_say_how_to_feed_it(model, tmp_path):
    proto = to_onnx(model, tmp_path / "m.onnx", output=["scores", "sets"], confidence=0.9)
    session = session_of(proto)
    assert {one.name: (one.type, one.shape) for one in session.get_inputs()} == {
        "size (cm)": ("tensor(double)", ["n", 1]),
        "sets": ("tensor(double)", ["n", 1]),
        "Concat_1": ("tensor(double)", ["n", 1]),
        "colour": ("tensor(string)", ["n", 1]),
        "member": ("tensor(string)", ["n", 1]),
        "town": ("tensor(string)", ["n", 1]),
        "code": ("tensor(string)", ["n", 1]),
    }
    about = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    assert about["classes"] == ["x", "y", "z"]
    assert about["target"] == "kind"
    assert about["inputs"]["size (cm)"] == {"kind": "number"}
    values = ["blue", "grün", "red", MISSING]
    missing = ["", MISSING, *sorted(set(USUAL_GAPS) - {""})]
    assert about["inputs"]["colour"] == {"kind": "category", "values": values, "missing": missing}
    assert about["outputs"]["sets_"] == {"kind": "sets", "confidence": 0.9}
    assert (tmp_path / "m.onnx").read_bytes() == proto.SerializeToString()


def test_a_model_file_and_what_is_no_model(model, new, tmp_path):
    model.save(tmp_path / "m.tightset")
    assert to_onnx(tightset.load(tmp_path / "m.tightset")).SerializeToString() == to_onnx(model).SerializeToString()
    with pytest.raises(TypeError, match="or a TablePredictor; got Encoding"):
        to_onnx(TablePredictor(model.encoding, "kind", model.encoding))
