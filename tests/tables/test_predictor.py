"""Tables: what is read, what columns become, and that only training rows say so."""

import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest

import tightset
from makers import baseline, quick_scpo, table
from tightset import TightsetWarning
from tightset.exceptions import TableError
from tightset.tables.columns import MISSING, OTHER, Category, Number
from tightset.tables.encoding import Encoding
from tightset.tables.explaining import explain
from tightset.tables.files import TableFile
from tightset.tables.fitting import fit_table
from tightset.tables.frames import FrameTable
from tightset.tables.learning import Kinds, Statistics
from tightset.tables.preparing import prepare, split_rows


@pytest.fixture(scope="module")
def frame():
    return table()


@pytest.fixture(scope="module")
def model(frame):
    return fit_table(frame, "kind", quick_scpo(confidence=[0.8, 0.9]), baseline(confidence=[0.8, 0.9]))


# ---- files --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    """The same table in every form."""
    folder = tmp_path_factory.mktemp("tables")
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    for ending in ("gz", "bz2", "xz", "zip"):
        frame.to_csv(folder / f"a.csv.{ending}", index=False)
    frame.to_parquet(folder / "a.parquet")
    (folder / "no-ending").write_bytes((folder / "a.parquet").read_bytes())
    (folder / "windows.csv").write_bytes(b"\xef\xbb\xbf" + (folder / "a.csv").read_bytes().replace(b"\n", b"\r\n"))
    return folder


FORMS = ["a.csv", "a.tsv", "a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.csv.zip", "a.parquet", "no-ending", "windows.csv"]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_table_gives_the_same_model(name, files, frame, model):
    again = fit_table(TableFile(files / name), "kind", baseline(confidence=[0.8, 0.9]))
    assert again.encoding == model.encoding
    np.testing.assert_array_equal(again.encode(frame), model.encode(frame))
    np.testing.assert_array_equal(again.predict_p(frame), model.baseline.predict_p(model.encode(frame)))


def test_standard_input_is_read_as_often_as_needed(files, frame, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((files / "a.csv.gz").read_bytes())))
    source = TableFile("-")
    source.make_rereadable()
    first, second = ([len(chunk) for chunk in source.chunks()] for _ in range(2))
    assert first == second == [len(frame)]


def test_chunks_are_numbered_through(monkeypatch, files):
    monkeypatch.setattr("tightset.tables.files._CELLS", 600)
    monkeypatch.setattr("tightset.tables.parquet._CELLS", 600)
    for name in ("a.csv", "a.parquet"):
        chunks = list(TableFile(files / name).chunks(text=["kind"]))
        assert [len(chunk) for chunk in chunks] == [100] * 6
        assert np.concatenate([chunk.index for chunk in chunks]).tolist() == list(range(600))


def read(tmp_path, data, name="t.csv", **how):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(TableFile(path, **how).chunks())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "is empty"),
        ("\n1,2\n", "begins with an empty line"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        ("a,b\n1,2,3\n", "more cells than there are columns"),
        ("a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        ('a,b\n"1,2\n', "EOF inside string"),
        (b"a,b\n\xe9,1\n", "not text in utf-8; .*--encoding latin-1"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-20], "cannot be decompressed, it may be truncated"),
        (b"PAR1nonsense", "cannot be read as Parquet"),
        (b"\x28\xb5\x2f\xfdxxxx", "zstd"),
    ],
)
def test_files_that_are_no_tables(tmp_path, data, message):
    with pytest.raises(TableError, match=message):
        read(tmp_path, data)


def test_archives_hold_one_table(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("b.csv", "x\n1\n")
    with pytest.raises(TableError, match="2 files; it must hold one"):
        list(TableFile(tmp_path / "two.zip").chunks())
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "")
    with pytest.raises(TableError, match="Excel workbook; save the sheet as CSV"):
        list(TableFile(tmp_path / "book.xlsx").chunks())
    with pytest.raises(TableError, match="there is no file"):
        TableFile(tmp_path / "nothing.csv")
    with pytest.raises(TableError, match="is a folder"):
        TableFile(tmp_path)
    with pytest.raises(TableError, match="single character"):
        TableFile(tmp_path / "two.zip", delimiter="::")


def test_text_files_as_they_are_said_to_be(tmp_path):
    (chunk,) = read(tmp_path, "a;b\n1;?\n2;3\n", delimiter=";", missing=["?"])
    assert chunk["b"].isna().tolist() == [True, False]
    (chunk,) = read(tmp_path, "a,b\n\xe9,1\n".encode("latin-1"), encoding="latin-1")
    assert chunk["a"].tolist() == ["\xe9"]


# ---- columns ------------------------------------------------------------------------------------------------------


def test_columns_become_what_the_page_says(model):
    columns = {column.name: column for column in model.encoding.columns}
    assert list(columns) == ["age", "colour", "member", "town"]
    assert isinstance(columns["age"], Number)
    assert columns["age"].told
    assert columns["colour"].values == ["blue", "green", "red", MISSING]
    assert columns["member"].values == ["False", "True"]
    assert columns["town"].values[-1] == OTHER
    assert list(model.encoding.left_out) == ["name"]
    assert "not categories" in model.encoding.left_out["name"]


def test_rows_are_encoded_by_hand(model):
    rows = pd.DataFrame({"age": [50.0, None], "colour": ["red", None], "member": [True, False], "town": ["t0", "new"]})
    encoded = dict(zip(model.encoding.names, model.encode(rows).T, strict=True))
    fill = next(column for column in model.encoding.columns if column.name == "age").fill
    np.testing.assert_array_equal(encoded["age"], [50.0, fill])
    np.testing.assert_array_equal(encoded["age is missing"], [0, 1])
    np.testing.assert_array_equal(encoded["colour = red"], [1, 0])
    np.testing.assert_array_equal(encoded[f"colour = {MISSING}"], [0, 1])
    np.testing.assert_array_equal(encoded["member = True"], [1, 0])
    np.testing.assert_array_equal(encoded["town = t0"], [1, 0])
    np.testing.assert_array_equal(encoded[f"town = {OTHER}"], [0, 1])


def test_only_training_rows_say_what_columns_become(frame):
    """Values of calibration rows and test rows may be anything: the encoding stays."""
    predictor = baseline(confidence=0.9)
    codes = pd.factorize(frame["kind"], sort=True)[0]
    part = split_rows(codes, predictor, test=0.25)
    assert np.bincount(part).tolist() == [338, 112, 150]
    prepared = prepare(FrameTable(frame), "kind", lambda _: part)
    changed = frame.copy()
    changed.loc[part > 0, ["age", "colour", "town"]] = [1e6, "violet", "elsewhere"]
    again = prepare(FrameTable(changed), "kind", lambda _: part)
    assert again.encoding == prepared.encoding
    np.testing.assert_array_equal(again.parts[0][0], prepared.parts[0][0])
    fill = next(column for column in prepared.encoding.columns if column.name == "age").fill
    assert fill == pytest.approx(frame["age"][part == 0].median())


def test_both_predictors_calibrate_on_the_same_rows(model):
    rows = [one.folds_[0].calibrations[0].alphas[None, -1] for one in (model.predictor, model.baseline)]
    assert len(rows[0]) == len(rows[1]) == model.about["calibrated"] == 150


def test_tables_keep_coverage_and_gain_by_their_texts(frame, model):
    new = table(4000, seed=1)
    for row in model.evaluate(new):
        assert row["coverage"] == pytest.approx(row["confidence"], abs=0.08)
    without = fit_table(frame, "kind", baseline(confidence=0.9), drop=["colour", "town"])
    size = without.evaluate(new)["mean_size"]
    assert model.evaluate(new)[1]["mean_size"] < 0.9 * size


def test_numbers_may_be_categories(frame):
    coded = frame.assign(colour=frame["colour"].map({"red": 1, "green": 2, "blue": 3}))
    column = fit_table(coded, "kind", baseline(), categorical=["colour"]).encoding.columns[1]
    assert isinstance(column, Category)
    assert column.values == ["1", "2", "3", MISSING]


def test_a_column_asked_for_as_categories_is_one_however_many_values_it_has(monkeypatch):
    rng = np.random.default_rng(0)
    zips = rng.integers(0, 120, 1200)
    rows = pd.DataFrame({"zip": 10_000 + zips, "id": np.arange(1200), "kind": np.array(["a", "b"])[zips % 2]})
    model = fit_table(rows, "kind", baseline(confidence=0.9), categorical=["zip", "id"])
    assert len(model.encoding.columns[0].values) >= 119  # of 120, a few of which may have one training row
    assert model.evaluate(rows)["mean_size"] < 1.2  # and they tell the labels apart
    assert "no two of 900 training rows have the same value" in model.encoding.left_out["id"]
    texts = rows.assign(zip="z" + rows["zip"].astype(str))
    with pytest.raises(TableError, match=r"'zip': 120 different texts .*; if they are, give --categorical 'zip'"):
        fit_table(texts, "kind", baseline(), drop=["id"])
    monkeypatch.setattr("tightset.tables.learning._MOST_ASKED", 30)
    with pytest.warns(TightsetWarning, match="'zip' has 120 different values; the 30 most common have a column each"):
        model = fit_table(texts, "kind", baseline(), categorical=["zip"], drop=["id"])
    assert len(model.encoding.columns[0].values) == 31


def test_texts_beyond_those_that_are_counted(frame, monkeypatch):
    monkeypatch.setattr("tightset.tables.learning._MOST_COUNTED", 100)
    monkeypatch.setattr("tightset.tables.files._CELLS", 600)  # so that a file has several chunks
    statistics = Statistics(Kinds([], ["name"], {}, {}), 600)
    for start in range(0, 600, 100):
        statistics.see(frame.iloc[start : start + 100])
    with pytest.raises(TableError, match="more than 200 different texts in 600 training rows"):
        statistics.encoding(["name"], [])


def test_columns_with_one_value_are_left_out_with_a_word(frame):
    constant = frame.assign(one=1.5, same="x", gone=np.nan, half=[2.0, None] * 300)
    predictor = baseline(confidence=0.9)
    part = split_rows(pd.factorize(frame["kind"], sort=True)[0], predictor)
    constant.loc[part == 1, "gone"] = 3.0
    model = fit_table(constant, "kind", predictor)
    assert model.encoding.left_out["one"] == "it is 1.5 in every training row"
    assert model.encoding.left_out["same"] == "it is 'x' in every training row"
    assert model.encoding.left_out["gone"] == "it has no value in any training row"
    assert [column.name for column in model.encoding.columns] == ["age", "colour", "member", "town", "half"]
    np.testing.assert_array_equal(model.predict_p(constant), model.predict_p(constant.drop(columns=["one", "same"])))


class CountedName(str):
    """A text that counts how often it is compared."""

    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other):
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_columns_are_checked_in_linear_time():
    names = [CountedName(f"c{at}") for at in range(3000)]
    encoding = Encoding([Number(name, 0.0, told=False) for name in names], {}, [])
    CountedName.compared = 0
    encoding.check([CountedName(str(name)) for name in names])
    assert CountedName.compared < 20 * len(names)


def test_labels_that_are_numbers_stay_numbers(frame):
    coded = frame.assign(kind=frame["kind"].map({"x": 10, "y": 2, "z": -1}))
    model = fit_table(coded, "kind", baseline())
    assert model.classes_.tolist() == [-1, 2, 10]
    assert model.evaluate(coded)["n"] == len(coded)


def test_numbers_are_written_alike_in_files_and_frames(frame, tmp_path):
    coded = frame.assign(
        colour=frame["colour"].map({"red": 1.0, "green": 2.0, "blue": 3.0}),
        kind=frame["kind"].map({"x": 1.0, "y": 2.0, "z": 3.0}),
    )
    coded.to_csv(tmp_path / "t.csv", index=False)  # as 1.0 and 2.0
    model = fit_table(TableFile(tmp_path / "t.csv"), "kind", baseline(), categorical=["colour"])
    assert model.classes_.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(
        model.encode(coded),
        model.encode(pd.read_csv(tmp_path / "t.csv", dtype=str)[coded.columns].astype({"age": float})),
    )
    assert model.evaluate(coded)["coverage"] > 0.9
    padded = frame.assign(colour=frame["colour"].map({"red": "01", "green": "02", "blue": "03"}))
    model = fit_table(padded, "kind", baseline(), categorical=["colour"])
    np.testing.assert_array_equal(model.encode(coded), model.encode(padded))
    with pytest.warns(
        TightsetWarning, match=r"values of 'colour' that no training row had, such as '4'; they had '01'"
    ):
        model.predict_set(coded.assign(colour=4))


def test_dates_in_frames_are_read_as_in_files(frame):
    dated = frame.assign(
        day=pd.date_range("2020-01-01", periods=len(frame)), span=pd.to_timedelta(np.arange(600.0), "D")
    )
    encoding = fit_table(dated, "kind", baseline()).encoding
    assert "span" in encoding.left_out
    assert "day: month" in encoding.names


def test_a_single_column_keeps_its_gaps(tmp_path):
    (chunk,) = read(tmp_path, "x\n1\n\n3\n")
    assert chunk["x"].isna().tolist() == [False, True, False]


def test_labels_may_be_called_none(frame, tmp_path):
    frame.replace({"kind": {"x": "None", "y": "NA", "z": "null"}}).to_csv(tmp_path / "t.csv", index=False)
    model = fit_table(TableFile(tmp_path / "t.csv"), "kind", baseline())
    assert model.classes_.tolist() == ["NA", "None", "null"]


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")  # a label without calibration rows
def test_a_label_of_one_row_may_calibrate(frame):
    rare = pd.concat([frame, frame.iloc[[0]].assign(kind="single")])
    calibrates = set()
    for seed in range(6):
        predictor = baseline(confidence=0.8, random_state=seed)
        model = fit_table(rare, "kind", predictor)
        assert "single" in model.classes_
        assert model.predict_set(frame).shape == (600, 4)
        calibrates.add(split_rows(pd.factorize(rare["kind"])[0], predictor)[-1] == 1)
    assert calibrates == {True, False}


def test_memory_is_bounded_by_leaving_rows_out(frame, monkeypatch):
    monkeypatch.setattr("tightset.tables.preparing._OF_FILE", 0)
    monkeypatch.setattr("tightset.tables.preparing._LEAST_MEMORY", 600 * 20 * 4)
    half = prepare(FrameTable(frame), "kind", lambda codes: np.arange(len(codes)) % 2)
    assert half.encoding.dtype == "float32"
    monkeypatch.setattr("tightset.tables.preparing._LEAST_MEMORY", 300 * 4 * len(half.encoding.names))
    with pytest.warns(TightsetWarning, match="600 rows of .* encoded columns are more than 0 MB; 300 of them are used"):
        some = prepare(FrameTable(frame), "kind", lambda codes: np.arange(len(codes)) % 2)
    assert [len(y) for _, y in some.parts] == [150, 150]
    assert len(some.part) == 600
    for X, y in some.parts:
        assert len(X) == len(y)
        assert np.isfinite(X).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "x"}, "is 'x' in every row"),
        ({"kind": [f"{at}" for at in range(600)]}, "600 different values in 600 rows"),
        ({"kind": ["x", None, "y"] * 200}, "no value in row 2, nor in 199 more"),
        ({"age": ["old"] + [1.5] * 599}, r"holds numbers, but also 'old' \(row 1\).*--missing 'old'"),
        ({"age": [np.inf, *np.arange(599, 0, -1) // 2]}, "infinite value in row 1"),
    ],
)
def test_tables_that_cannot_be_learnt_from(frame, change, message):
    with pytest.raises(TableError, match=message):
        fit_table(frame.assign(**change), "kind", baseline(random_state=3))


def test_columns_that_are_not_there(frame):
    with pytest.raises(TableError, match=r"no column 'knd'.*did you mean 'kind'"):
        fit_table(frame, "knd", baseline())
    with pytest.raises(TableError, match=r"no column 'zzz'.*there are 'name', 'age'.*'town', 'kind'$"):
        fit_table(frame, "zzz", baseline())
    with pytest.raises(
        TableError, match=r"no column 'Kind '.*did you mean 'kind'\? There are 'name', .*'town', 'kind'$"
    ):
        fit_table(frame, "Kind ", baseline())
    with pytest.raises(TableError, match=r"no column 'kept'.* the table; there are"):  # which is not close to any
        fit_table(frame, "kept", baseline())
    with pytest.raises(TableError, match="'kind' is the target"):
        fit_table(frame, "kind", baseline(), drop=["kind"])
    with pytest.raises(TableError, match="two columns named 'age'"):
        fit_table(frame.set_axis(["age", "age", *frame.columns[2:]], axis=1), "kind", baseline())
    with pytest.raises(TableError, match="no column 'agee'"):
        fit_table(frame, "kind", baseline(), drop=["agee"])
    with pytest.raises(TableError, match="no column is left"):
        fit_table(frame[["name", "kind"]], "kind", baseline())


def test_numbers_with_separators_are_not_taken_for_texts(frame):
    for text in ("12,345", "1.234.567,8", "3,14"):
        with pytest.raises(TableError, match=f"'age' seems to hold numbers with separators: '{text}'"):
            fit_table(frame.assign(age=text), "kind", baseline())


def test_labels_that_differ_in_spaces_or_case_are_told(frame):
    with pytest.warns(TightsetWarning, match="'x' and ' X' differ only in case or spaces|' X' and 'x' differ"):
        model = fit_table(
            frame.assign(kind=[" X" if at % 9 == 0 and one == "x" else one for at, one in enumerate(frame["kind"])]),
            "kind",
            baseline(),
        )
    assert model.about["labels"].keys() == {" X", "x", "y", "z"}


def test_missing_texts_are_missing_in_frames_too(frame, tmp_path):
    frame.fillna({"age": -1}).replace({"age": {-1: "?"}}).to_csv(tmp_path / "t.csv", index=False)
    model = fit_table(TableFile(tmp_path / "t.csv", missing=["?"]), "kind", baseline())
    np.testing.assert_array_equal(model.encode(frame.astype({"age": object}).fillna({"age": "?"})), model.encode(frame))
    assert "TablePredictor(target='kind', columns=4, ConformalClassifier(" in repr(model)
    assert "ConformalClassifier" in model._repr_html_()


def test_identifiers_are_told(frame):
    with pytest.warns(TightsetWarning, match="'id' counts upwards"):
        fit_table(frame.assign(id=np.arange(len(frame))), "kind", baseline())


# ---- the predictor ------------------------------------------------------------------------------------------------


def test_it_predicts_for_frames_in_any_order(frame, model):
    np.testing.assert_array_equal(model.predict_set(frame[frame.columns[::-1]]), model.predict_set(frame))
    np.testing.assert_array_equal(model.predict(frame.assign(extra=1)), model.predict(frame))
    with pytest.raises(TableError, match="the column 'age' that the model was trained on is missing"):
        model.predict_set(frame.drop(columns="age"))
    with pytest.raises(TableError, match="'age' was numbers in training, but row 3 has 'old'"):
        model.predict_set(frame.assign(age=[1.0, 2.0, "old"] + [3.0] * 597))


def test_strictness(frame, model):
    model.encode(frame, strict=True)
    model.encode(frame.drop(columns=["name", "kind"]), strict=True)  # the one is not used, the other not needed
    with pytest.raises(TableError, match=r"'extra' was not there in training.*--lenient"):
        model.encode(frame.assign(extra=1), strict=True)
    with pytest.raises(TableError, match=r"in a different order.*--lenient"):
        model.encode(frame[frame.columns[::-1]], strict=True)
    violet = frame.assign(colour=["red", "violet"] * 300)
    with pytest.raises(TableError, match=r"'colour' has 'violet', first in row 2, .*they had 'blue', 'green', 'red'"):
        model.encode(violet, strict=True)
    with pytest.warns(TightsetWarning, match="values of 'town' that no training row had"):
        model.encode(frame.assign(town="never seen"), strict=True)  # as rare ones, which there were
    with pytest.raises(TableError, match="no column 'kind' with the labels"):
        model.evaluate(frame.drop(columns="kind"))


def test_it_is_saved_and_loaded(frame, model, tmp_path):
    model.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(again.predict_p(frame), model.predict_p(frame))
    assert str(again.evaluate(frame)) == str(model.evaluate(frame))
    assert again.encoding == model.encoding
    assert again.about == model.about
    said = tightset.storage.file.open_model(tmp_path / "m.tightset").about
    assert said["columns"] == ["age", "colour", "member", "town"]
    assert said["dtypes"] == ["number", "category", "category", "category"]
    assert said["target"] == "kind"


def test_an_explanation_is_what_the_model_says_of_the_changed_row(frame, model):
    row = frame.iloc[[7]]
    found = explain(model, row, 0.9)
    np.testing.assert_array_equal(found.p, model.predict_p(row)[1][0])
    np.testing.assert_array_equal(found.kept, model.predict_set(row)[1][0])
    assert found.calibration_rows.tolist() == [150, 150, 150]
    assert {one.column for one in found.influences} == {"age", "colour", "member", "town"}
    for one in found.influences:
        typical = float(one.typical) if one.column == "age" else one.typical
        np.testing.assert_allclose(model.predict_p(row.assign(**{one.column: typical}))[1][0], one.p, atol=0.02)
    assert found.order.tolist() == np.argsort(-found.p).tolist()
    assert found.joins_above(int(np.argmax(found.p))) == pytest.approx(1 - found.p.max())


def test_what_is_mostly_missing_is_typically_missing(frame):
    rng = np.random.default_rng(0)
    shown = rng.random(len(frame)) < 0.03
    sparse = frame.assign(
        note=np.where(shown, "seen", None), weight=np.where(shown, rng.normal(size=len(frame)), np.nan)
    )
    model = fit_table(sparse, "kind", baseline(confidence=0.9))
    row = sparse[shown].iloc[[0]]
    typical = {one.column: one for one in explain(model, row, 0.9).influences}
    assert typical["note"].typical == typical["weight"].typical == MISSING
    assert typical["colour"].typical != MISSING
    for name in ("note", "weight"):
        np.testing.assert_allclose(model.predict_p(row.assign(**{name: None}))[0], typical[name].p)


def test_sparse_columns_of_pandas_are_columns_of_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(3, size=200).astype(float), "b": rng.normal(size=200)})
    label = np.where(frame["a"] + rng.normal(size=200) > 1, "yes", "no")
    expected = fit_table(frame.assign(label=label), "label", baseline()).predict_p(frame)
    thin = frame.assign(a=pd.arrays.SparseArray(frame["a"]))
    found = fit_table(thin.assign(label=label), "label", baseline()).predict_p(thin)
    np.testing.assert_array_equal(found, expected)


def test_minus_zero_is_zero_among_labels():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "label": rng.choice([-0.0, 0.0, 1.0], size=200)})
    assert fit_table(frame, "label", baseline()).classes_.tolist() == [0, 1]


def test_a_table_is_split_once():
    with pytest.raises(ValueError, match="use cv=None"):
        fit_table(table(200), "kind", baseline(cv=3))


def test_large_numbers_are_not_called_the_same():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "label": rng.integers(2**53, 2**53 + 2, size=200)})
    fit_table(frame, "label", baseline())  # TightsetWarning would be an error


def test_a_parquet_file_without_rows_has_columns_to_check(tmp_path, cli):
    pd.DataFrame({"x": []}).to_parquet(tmp_path / "none.parquet")
    fit_table(table(200), "kind", baseline()).save(tmp_path / "m.tightset")
    code, _, told = cli("predict", str(tmp_path / "m.tightset"), str(tmp_path / "none.parquet"))
    assert code == 1
    assert "column" in told


def test_columns_of_categories_are_what_they_stand_for(frame, model):
    """pandas gives categories back for what is computed of a column of them; a single row has one category each."""
    coded = frame.astype(dict.fromkeys(("age", "colour", "member", "town"), "category"))
    np.testing.assert_array_equal(model.predict_p(coded), model.predict_p(frame))
    np.testing.assert_array_equal(
        model.predict_p(
            frame[:1].astype(coded.dtypes[["age", "colour", "member"]].map(lambda _: "category").to_dict())
        ),
        model.predict_p(frame[:1]),
    )
    constant = frame.assign(seven=7, three=3).astype({"seven": "category", "three": "category"})
    again = fit_table(constant, "kind", baseline(confidence=0.8))
    assert set(again.encoding.left_out) >= {"seven", "three"}
