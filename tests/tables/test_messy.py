"""Messy tables: other separators and marks, gaps in every form, dates, identifiers, columns that give the label away."""

import gzip
import io
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import tightset
from tightset import ConformalClassifier, TightsetWarning, fit_table
from tightset.conformal.scores import APS
from tightset.exceptions import TableError
from tightset.tables import TableFile
from tightset.tables.dates import forms_of
from tightset.tables.frames import FrameTable
from tightset.tables.preparing import prepare, split_rows
from tightset.tables.target import Rare
from tightset.tables.texts import as_text, spelled_as, with_gaps


def plain(**how):
    return ConformalClassifier(confidence=0.9, random_state=0, **how)


def rows_of(path, **how):
    return pd.concat(TableFile(path, **how).chunks())


def halves(n=2000):
    """A column that says nearly everything, half of it a text that may stand for a gap."""
    rng = np.random.default_rng(0)
    told = rng.random(n) < 0.5
    y = np.where(rng.random(n) < 0.97, told, ~told)
    return told, pd.DataFrame({"z": rng.normal(size=n).round(2), "y": np.where(y, "cheap", "dear")})


# ---- gaps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "missing"), [("?", ["?"]), ("NA", []), ("None", []), (-1, ["-1"])], ids=str)
def test_the_same_texts_are_gaps_wherever_a_table_comes_from(tmp_path, gap, missing):
    """It was 0.41 for 0.9 where a model of Parquet, which knew the text as a category, met CSV."""
    told, frame = halves()
    other = "yes" if isinstance(gap, str) else 40
    frame = frame.assign(garage=np.where(told, gap, other))
    for name, rows in (("train", frame[:1000]), ("new", frame[1000:])):
        rows.to_parquet(tmp_path / f"{name}.parquet")
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    new = {
        "parquet": rows_of(tmp_path / "new.parquet", missing=missing),
        "csv": rows_of(tmp_path / "new.csv", missing=missing),
        "frame": frame[1000:],
        "read": pd.read_csv(tmp_path / "new.csv"),
    }
    for kind in ("parquet", "csv"):
        model = fit_table(TableFile(tmp_path / f"train.{kind}", missing=missing), "y", plain())
        assert any("missing" in name for name in model.encoding.names)
        found = {name: model.evaluate(rows) for name, rows in new.items()}
        for row in found.values():
            assert row["coverage"] == found["csv"]["coverage"] > 0.88
            assert row["mean_size"] == found["csv"]["mean_size"] < 1.2


@pytest.mark.parametrize("kind", ["float32", "Float32", "float16", "texts", "decimals"])
def test_a_number_for_a_gap_is_one_in_every_type(kind):
    numbers = pd.Series([-99.9, 1.5, 2.5])
    if kind == "Float32":
        assert with_gaps(pd.Series([-99.9, None], dtype=kind), ["-99.9"]).isna().all()
    column = {
        "texts": numbers.map("{:.2f}".format),
        "decimals": numbers.map(lambda x: Decimal(f"{x:.2f}")),
    }.get(kind, numbers if kind in ("texts", "decimals") else numbers.astype(kind))
    assert with_gaps(column, ["-99.9"]).isna().tolist() == [True, False, False]


def test_days_at_midnight_and_zeros_are_the_same_in_frames_and_files():
    moments = pd.Series(pd.to_datetime(["1900-01-01 00:00", "2020-01-31 08:00"]))
    for column in (moments, moments.astype(str), moments.dt.strftime("%Y-%m-%dT%H:%M:%S")):
        for named in ("1900-01-01", "1900-01-01 00:00:00"):
            assert with_gaps(as_text(column), [named]).isna().tolist() == [True, False]
    assert spelled_as(["2020-01-31", "0", "x"], ["2020-01-31 00:00:00", "-0.0"]) == ["2020-01-31", "0"]
    assert spelled_as(["ab", "4e8317204551"], ["9e999999999", "7e8317204"]) == [None, None]


def test_frames_of_arrow_types_are_read(tmp_path):
    import datetime as dt

    told, frame = halves(300)
    noisy = np.where(frame.index % 20 == 0, ~told, told)
    frame = frame.assign(
        day=[dt.date(2024, 1 + at % 9, 1 + at % 27) for at in range(300)],
        price=[Decimal("1.50") if one else Decimal("2.25") for one in noisy],
    )
    frame.to_parquet(tmp_path / "t.parquet")
    model = fit_table(TableFile(tmp_path / "t.parquet", missing=["-1"]), "y", plain())
    arrow = pd.read_parquet(tmp_path / "t.parquet", dtype_backend="pyarrow")
    np.testing.assert_array_equal(model.encode(arrow), model.encode(rows_of(tmp_path / "t.parquet")))
    fit_table(arrow, "y", plain())


def test_gaps_that_no_training_row_had_are_told(tmp_path):
    told, frame = halves()
    model = fit_table(frame.assign(garage=np.where(told, "no", "yes")), "y", plain())
    with pytest.warns(TightsetWarning, match="no value in the column 'garage', where every training row had one"):
        model.predict_set(frame.assign(garage=np.where(told, None, "yes")))


def test_labels_of_coarse_numbers_and_dates_are_those_of_files(tmp_path):
    told, frame = halves(400)
    noisy = np.where(frame.index % 20 == 0, ~told, told)
    for labels in (
        np.where(told, 0.1, 0.2).astype(np.float32),
        pd.to_datetime(np.where(told, "2020-01-01", "2021-01-01")),
    ):
        full = frame.assign(garage=np.where(noisy, "no", "yes"), y=labels)
        full.to_csv(tmp_path / "t.csv", index=False)
        model = fit_table(full, "y", plain())
        assert model.evaluate(pd.read_csv(tmp_path / "t.csv", dtype=str))["coverage"] > 0.9


def test_other_frames_are_refused_in_words():
    import polars as pl

    with pytest.raises(
        TableError, match=r"must be a pandas data frame; got polars.DataFrame: give frame.to_pandas\(\)"
    ):
        fit_table(pl.DataFrame({"a": [1], "y": ["x"]}), "y", plain())


# ---- how files are written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_the_separator_is_found(tmp_path, sep):
    _, frame = halves(300)
    frame.assign(note="a, b").to_csv(tmp_path / "t.csv", sep=sep, index=False)
    table = TableFile(tmp_path / "t.csv")
    assert [list(chunk) for chunk in table.chunks()] == [["z", "y", "note"]]
    assert table.delimiter == sep


def test_german_numbers(tmp_path):
    rows = "Größe;Preis;Art\n" + "1,5;1.234,5;a\n2,25;99,0;b\n" * 60
    (tmp_path / "t.csv").write_text(rows, encoding="utf-8-sig")
    read = rows_of(tmp_path / "t.csv", decimal=",", thousands=".")
    assert read.iloc[0].tolist() == [1.5, 1234.5, "a"]
    with pytest.raises(TableError, match=r"'Größe' seems to hold numbers with separators: '1,5'; give --decimal"):
        fit_table(TableFile(tmp_path / "t.csv", decimal=None), "Art", plain())
    (tmp_path / "d.csv").write_text("a;Art\n" + "0,455;a\n1,234;b\n" * 60)
    with pytest.raises(TableError, match=r"'0,455'; give --decimal ','"):
        fit_table(TableFile(tmp_path / "d.csv"), "Art", plain())
    (tmp_path / "e.csv").write_text("a;Art\n" + "1,455;a\n1,234;b\n" * 60)
    with pytest.raises(TableError, match=r"give --thousands ',' \(or --decimal ',' if that is what it is\)"):
        fit_table(TableFile(tmp_path / "e.csv"), "Art", plain())
    with pytest.raises(TableError, match="cannot be both the decimal mark and the thousands separator"):
        TableFile(tmp_path / "t.csv", thousands=".")
    (tmp_path / "u.csv").write_text(rows + "unbekannt;1,0;a\n", encoding="utf-8-sig")
    with pytest.raises(TableError, match=r"'Größe' holds numbers, but also 'unbekannt' \(row 121\)"):
        fit_table(TableFile(tmp_path / "u.csv", decimal=",", thousands="."), "Art", plain())


@pytest.mark.parametrize(
    ("how", "gap", "named"), [({"thousands": ","}, "-999.00", "-999"), ({"decimal": ","}, "-99,90", "-99,9")]
)
def test_numbers_that_stand_for_a_gap_are_gaps_however_they_are_written(tmp_path, how, gap, named):
    cells = ("1,234.50", "10.5") if "thousands" in how else ("1234,5", "10,5")
    rows = "a;y\n" + "".join(f"{cell};{label}\n" for cell, label in ((cells[0], "u"), (gap, "v"), (cells[1], "u")) * 50)
    (tmp_path / "t.csv").write_text(rows)
    table = TableFile(tmp_path / "t.csv", missing=[named], **how)
    (read,) = table.chunks()
    assert read["a"].isna().tolist()[:3] == [False, True, False]
    model = fit_table(table, "y", plain())
    number = -999.0 if "thousands" in how else -99.9
    frame = pd.DataFrame({"a": [1234.5, number, 10.5]})
    np.testing.assert_array_equal(model.encode(frame), model.encode(read[:3]))


def test_a_file_in_another_dialect_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1.523;1520.3\n")
    with pytest.raises(TableError, match=r"'b' has '1520.3' in row 1, which is no number with the decimal mark ','"):
        rows_of(tmp_path / "t.csv", decimal=",", thousands=".")


def test_a_line_without_an_end_is_refused(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1," + b"x" * 200_000_000 + b"\n", 1))
    with pytest.raises(TableError, match="a line, or a few, of over 128 MB: is it a table"):
        rows_of(tmp_path / "t.csv.gz")
    (tmp_path / "h.csv").write_bytes(b"x" * 2**25)
    with pytest.raises(TableError, match="of over 16 MB"):
        rows_of(tmp_path / "h.csv")


def test_devices_are_no_files():
    with pytest.raises(TableError, match="/dev/zero is a device and not a file"):
        TableFile("/dev/zero")


# ---- dates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M", "%m/%d/%Y", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d", "%m/%d/%Y %I:%M %p"])
def test_dates_are_features(tmp_path, form):
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 700 * 24 * 60, 800), "min")
    y = np.where((when.day_of_week >= 5) ^ (rng.random(800) < 0.03), "weekend", "work")
    pd.DataFrame({"when": when.strftime(form), "z": rng.normal(size=800), "y": y}).to_csv(
        tmp_path / "t.csv", index=False
    )
    table = rows_of(tmp_path / "t.csv")
    table.loc[::40, "when"] = None
    model = fit_table(table, "y", plain(estimator="hgb"))
    names = [name for name in model.encoding.names if name.startswith("when: ")]
    assert ["when: days since 2019-01-0"] == [name[:-1] for name in names[:1]]
    parts = ["year", "month", "weekday"] + (["hour"] if "%M" in form else [])
    assert [name.removeprefix("when: ") for name in names[1:]] == parts
    assert model.evaluate(table)["mean_size"] < 1.1
    model.save(tmp_path / "m.tightset")
    loaded = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(loaded.predict_p(table), model.predict_p(table))
    with pytest.raises(TableError, match=r"was dates in training, such as .* but row 1 has 'soon'"):
        loaded.predict_set(table.assign(when="soon"))
    with pytest.raises(ValueError, match="ONNX cannot read dates, which the model uses"):
        tightset.to_onnx(loaded)


def test_moments_with_a_zone_are_the_same_in_frames_and_files(tmp_path):
    rng = np.random.default_rng(0)
    days = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 400), "D"))
    y = np.where((days.dt.day_of_week >= 5) ^ (rng.random(400) < 0.1), "weekend", "work")
    frame = pd.DataFrame({"day": days.dt.tz_localize("Europe/Berlin"), "z": rng.normal(size=400), "y": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    model = fit_table(frame, "y", plain(estimator="hgb"))
    expected = model.predict_p(frame)
    for name in ("t.csv", "t.parquet"):
        np.testing.assert_array_equal(model.predict_p(rows_of(tmp_path / name)), expected)
    np.testing.assert_array_equal(np.vstack([model.predict_p(frame[at : at + 1]) for at in range(9)]), expected[:9])


def test_a_single_date_with_gaps():
    told, frame = halves(400)
    noisy = np.where(frame.index % 20 == 0, ~told, told)
    model = fit_table(frame.assign(closed=np.where(noisy, "2024-03-31", None)), "y", plain())
    assert model.encoding.names == ["z", "closed is missing"]


def test_categories_are_known_however_numbers_and_truth_values_are_written():
    told, frame = halves(400)
    noisy = np.where(frame.index % 20 == 0, ~told, told)
    first = frame.assign(vip=np.where(noisy, "TRUE", "FALSE"), zip=np.where(noisy, "01067", "99999"))
    model = fit_table(first, "y", plain(), categorical=["zip"])
    np.testing.assert_array_equal(
        model.encode(
            frame.assign(vip=np.where(noisy, "True", "False"), zip=np.where(noisy, 1067, 99999)), strict=False
        ),
        model.encode(first),
    )
    with pytest.warns(TightsetWarning, match="rows have values of 'vip' that no training row had, such as 'maybe'"):
        model.encode(first.assign(vip=np.where(frame.index % 10 == 0, "maybe", first["vip"])))


def test_dates_that_may_be_either_are_told(tmp_path):
    _, frame = halves(300)
    days = [f"{1 + at % 12:02}/{1 + at % 11:02}/2020" for at in range(300)]
    with pytest.warns(TightsetWarning, match="read as month, day, year"):
        fit_table(frame.assign(day=days), "y", plain())
    assert forms_of("13/01/2020") == ["%d/%m/%Y"]
    assert forms_of("1.234,5") == forms_of("1.5") == forms_of("10.0.0.1") == []


# ---- identifiers and columns that say too much -----------------------------------------------------------------------


def test_shuffled_identifiers_are_told():
    _, frame = halves(400)
    ids = np.random.default_rng(1).permutation(400) + 7000
    with pytest.warns(TightsetWarning, match="'id' is a different number in every row; if it is an identifier"):
        fit_table(frame.assign(id=ids), "y", plain())


def test_a_column_that_gives_the_label_away_is_told():
    _, frame = halves(600)
    with pytest.warns(TightsetWarning, match=r"from one column alone: 'bill' \(100.0%\) of rows. Is it known when"):
        fit_table(frame.assign(bill=np.where(frame["y"] == "dear", 9.5, 1.5)), "y", plain())


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_rows_without_a_label_may_be_left_out():
    told, frame = halves(400)
    frame = frame.assign(garage=np.where(told, "no", "yes"), y=frame["y"].where(frame.index % 10 != 3))
    with pytest.raises(TableError, match=r"no value in row 4, nor in 39 more: give them a label, or --drop-unlabelled"):
        fit_table(frame, "y", plain())
    with pytest.warns(TightsetWarning, match="40 of 400 rows have no label and are left out"):
        prepared = prepare(
            FrameTable(frame), "y", lambda codes: split_rows(codes, plain()), rare=Rare(drop_unlabelled=True)
        )
    assert sum(len(y) for _, y in prepared.parts) == 360


def test_the_order_of_an_ordered_category_is_kept():
    told, frame = halves(400)
    y = pd.Categorical(frame["y"], categories=["dear", "cheap"], ordered=True)
    model = fit_table(frame.assign(garage=np.where(told, "no", "yes"), y=y), "y", plain())
    assert list(model.about["labels"]) == ["dear", "cheap"]


# ---- random numbers after calibration --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:no calibration row has the label")
def test_each_calibration_has_random_numbers_of_its_own():
    """They were those of `fit` in every calibration: 0.49 for 0.8 over 60 calibrations of nine equal rows."""
    from sklearn.dummy import DummyClassifier
    from sklearn.frozen import FrozenEstimator

    rng = np.random.default_rng(0)

    def drawn(n):
        return np.zeros((n, 1)), rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])

    frozen = FrozenEstimator(DummyClassifier(strategy="prior").fit(*drawn(5000)))
    for seed in (4, 6):
        clf = ConformalClassifier(frozen, conformity_score=APS(randomised=True), confidence=0.8, random_state=seed)
        clf.fit(*drawn(50))
        found = []
        for _ in range(80):
            clf.calibrate(*drawn(19))
            X, y = drawn(300)
            found.append(clf.predict_set(X)[np.arange(300), y].mean())
        assert 0.76 < np.mean(found) < 0.84  # four standard errors


def test_carriage_returns_survive_the_way_through_csv():
    from tightset.tables.predictions import CsvLines, Line

    stream = io.BytesIO()
    lines = CsvLines(stream, ["note"], ["a"])
    lines.write(iter([Line(1, ["a\rb"], 0.9, ["a"], [0.5])]))
    lines.close()
    assert pd.read_csv(io.BytesIO(stream.getvalue()))["note"].tolist() == ["a\rb"]


# ---- one table in several kinds of file -----------------------------------------------------------------------------


def test_rows_set_aside_of_parquet_are_parquet_with_the_same_types(tmp_path, cli, monkeypatch):
    """They are read as their table is: there is no spelling between them."""
    monkeypatch.chdir(tmp_path)
    told, frame = halves()
    frame["at"] = np.where(told, np.datetime64("2020-01-01T00:00"), np.datetime64("2021-06-01T12:30"))
    frame["price"] = [Decimal("1.50") if one else Decimal("20.00") for one in told]
    frame.to_parquet("t.parquet", row_group_size=300)
    code, out, err = cli(
        "fit", "t.parquet", "--target", "y", "--estimator", "logistic", "--test", "0.25", "--out", "m.tightset"
    )
    assert (code, "m-test.parquet" in out) == (0, True), err
    aside, frame = pd.read_parquet("m-test.parquet"), pd.read_parquet("t.parquet")
    assert aside.dtypes.tolist() == frame.dtypes.tolist()
    assert len(aside.merge(frame.drop_duplicates(), how="inner")) == len(aside) == 500
    code, out, err = cli("evaluate", "m.tightset", "m-test.parquet", "--json")
    assert (code, "trained" in err) == (0, False)


def test_columns_that_csv_would_spell_otherwise_are_named(tmp_path, recwarn):
    """Bytes are b'1' in CSV, and pandas leaves a lone carriage return without quotes."""
    told, frame = halves()
    alike = frame.assign(
        span=np.where(told, np.timedelta64(0, "s"), np.timedelta64(90, "m")), on=told, both=[*"ab"] * 1000
    )
    fit_table(alike, "y", plain())
    alike.to_parquet(tmp_path / "t.parquet")
    fit_table(TableFile(tmp_path / "t.parquet"), "y", plain())
    assert not [one for one in recwarn if "would be read" in str(one.message)]
    with pytest.warns(TightsetWarning, match="column 'odd' would be read differently from CSV than from the table"):
        fit_table(frame.assign(odd=[b"1" if one else b"2" for one in told]), "y", plain())


def test_numbers_beyond_single_precision_are_looked_at_too():
    """The look for columns that give the label away raised scikit-learn's error about float32."""
    told, frame = halves()
    fit_table(frame.assign(far=np.where(told, 1e60, -1e60)), "y", plain())
