"""The column of labels: what is one label and what are two, and labels that few rows have."""

import json

import numpy as np
import pandas as pd
import pytest

import tightset
from makers import baseline, quick_scpo, table
from tightset import TightsetWarning
from tightset.exceptions import TableError
from tightset.tables.explaining import explain
from tightset.tables.files import TableFile
from tightset.tables.fitting import fit_prepared, fit_table
from tightset.tables.frames import FrameTable
from tightset.tables.predictions import predicted
from tightset.tables.preparing import prepare
from tightset.tables.target import Rare


@pytest.fixture(scope="module")
def frame():
    return table()


def as_file(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    return TableFile(tmp_path / "t.csv")


# ---- texts and numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "file"])
def test_texts_of_one_number_are_two_labels_with_a_word(frame, form, tmp_path):
    texts = frame.replace({"kind": {"x": "1", "y": "1.0", "z": "2"}})
    with pytest.warns(
        TightsetWarning, match=r"the labels '1(\.0)?' and '1(\.0)?' are the same number written differently"
    ):
        model = fit_table(texts if form == "frame" else as_file(texts, tmp_path), "kind", baseline())
    assert model.classes_.tolist() == ["1", "1.0", "2"]
    assert model.about["labels"] == texts["kind"].value_counts().to_dict()
    assert model.labels(texts).tolist() == texts["kind"].tolist()


def test_numbers_are_the_same_label_however_they_are_written(frame, tmp_path):
    whole = frame.assign(kind=frame["kind"].map({"x": 1, "y": 2, "z": 10}))
    forms = [whole, whole.astype({"kind": float}), whole.astype({"kind": str}), whole.astype({"kind": "Int64"})]
    forms.append(whole.assign(kind=whole["kind"].astype(float).astype(str)))  # 1.0 and 2.0
    forms.append(whole.assign(kind=whole["kind"].astype("category")))
    for rows in forms:
        for source in (rows, as_file(rows, tmp_path)):
            model = fit_table(source, "kind", baseline(confidence=0.8))
            assert model.classes_.tolist() == [1, 2, 10]
            for other in forms:
                np.testing.assert_array_equal(model.labels(other), whole["kind"])


def test_categories_that_are_numbers_go_by_their_value(frame, tmp_path):
    coded = frame.dropna().assign(zone=np.random.default_rng(0).integers(0, 4, len(frame.dropna())))
    mixed = coded.assign(zone=[f"{zone}.0" if at % 2 else f"{zone}" for at, zone in enumerate(coded["zone"])])
    model = fit_table(as_file(mixed, tmp_path), "kind", baseline(confidence=0.8), categorical=["zone"])
    assert model.encoding.columns[-1].values == ["0", "1", "2", "3"]
    for rows in (coded, coded.astype({"zone": float}), mixed):
        np.testing.assert_array_equal(model.encode(rows, strict=True), model.encode(coded))
    floats = coded.assign(zone=coded["zone"].astype(float).astype(str))
    versions = floats.assign(zone=["beta" if at % 5 == 0 else zone for at, zone in enumerate(floats["zone"])])
    model = fit_table(versions, "kind", baseline(confidence=0.8))
    assert model.encoding.columns[-1].values == ["0.0", "1.0", "2.0", "3.0", "beta"]
    np.testing.assert_array_equal(
        model.encode(versions.replace({"zone": {f"{at}.0": at for at in range(4)}}), strict=True),
        model.encode(versions),
    )
    both = versions.replace({"zone": {"3.0": "1"}})  # 1 and 1.0 beside beta: a text stands for itself
    assert fit_table(both, "kind", baseline(confidence=0.8)).encoding.columns[-1].values == [
        *("0.0", "1", "1.0", "2.0", "beta")
    ]


# ---- rare labels --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rare(frame):
    """Two labels of four and three rows."""
    kind = frame["kind"].tolist()
    kind[:7] = ["p"] * 4 + ["q"] * 3
    return frame.assign(kind=kind)


@pytest.mark.filterwarnings("ignore:no calibration row has")
def test_rare_labels_are_kept_with_a_word(rare):
    with pytest.warns(
        TightsetWarning, match=r"kept 2 labels with fewer than 10 rows: 'q' \(3\), 'p' \(4\); .*--rare-lab"
    ):
        model = fit_table(rare, "kind", baseline(confidence=0.8))
    assert model.classes_.tolist() == ["p", "q", "x", "y", "z"]
    assert model.about["rare labels"].startswith("kept 2 labels")
    with pytest.warns(TightsetWarning, match="kept 1 label with fewer than 4 rows"):
        fit_table(rare, "kind", baseline(confidence=0.8), rare_rows=4)
    fit_table(rare, "kind", baseline(confidence=0.8, random_state=4), rare_rows=1)


def test_rare_labels_as_one(rare, tmp_path):
    model = fit_table(rare, "kind", baseline(confidence=0.8), rare_labels="other", rare_rows=5)
    assert model.classes_.tolist() == ["(other)", "x", "y", "z"]
    assert model.about["labels"]["(other)"] == 7
    assert model.about["rare labels"] == (
        "(other) (7 rows) stands for 2 labels with fewer than 5 rows: 'q' (3), 'p' (4)"
    )
    expected = rare["kind"].replace({"p": "(other)", "q": "(other)"}).tolist()
    assert model.labels(rare).tolist() == expected
    assert model.evaluate(rare)["n"] == 600
    model.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    assert again.labels(rare).tolist() == expected
    assert again.merged == {"p": "(other)", "q": "(other)"}


def test_the_label_for_the_others_has_a_name_of_its_own(rare):
    taken = rare.replace({"kind": {"x": "(other)", "y": "(other labels)"}})
    model = fit_table(taken, "kind", baseline(confidence=0.8), rare_labels="other")
    assert sorted(model.classes_) == ["(other labels 2)", "(other labels)", "(other)", "z"]
    numbers = rare.replace({"kind": {"x": "1", "y": "2", "z": "30", "p": "4"}})
    model = fit_table(numbers, "kind", baseline(confidence=0.8), rare_labels="other")
    assert model.classes_.tolist() == ["(other)", "1", "2", "30"]
    assert model.labels(numbers.iloc[[0, 4]]).tolist() == ["(other)", "(other)"]
    assert "7 rows, still fewer than 10" in model.about["rare labels"]


def test_rows_of_rare_labels_are_as_if_they_had_not_been_there(rare, tmp_path):
    with pytest.warns(
        TightsetWarning, match=r"7 rows left out, of 2 labels .* Coverage is guaranteed for rows of the oth"
    ):
        model = fit_table(rare, "kind", quick_scpo(confidence=0.8), rare_labels="drop")
    without = fit_table(rare[7:], "kind", quick_scpo(confidence=0.8))
    np.testing.assert_array_equal(model.predict_p(rare), without.predict_p(rare))
    assert (model.about["trained"], model.about["calibrated"]) == (445, 148)
    model.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    assert again.dropped == ["q", "p"]
    with pytest.warns(TightsetWarning, match="rows have the label 'p', 'q', which was dropped as rare in training"):
        assert again.labels(rare).tolist() == rare["kind"].tolist()


def test_labels_that_were_never_seen_are_returned_as_they_are(rare, frame):
    model = fit_table(frame, "kind", baseline(confidence=0.8))
    assert model.labels(rare).tolist() == rare["kind"].tolist()
    numbers = fit_table(frame.replace({"kind": {"x": 1, "y": 2, "z": 3}}), "kind", baseline(confidence=0.8))
    assert numbers.labels(pd.DataFrame({"kind": ["1", "70", "3.0"]})).tolist() == [1, 70, 3]
    with pytest.raises(
        TableError, match="'kind' has 'w' in row 2, but the labels of training are whole numbers: 1, 2, 3"
    ):
        numbers.labels(pd.DataFrame({"kind": ["1", "w"]}))


def test_files_without_rare_labels_have_none(frame):
    model = fit_table(frame, "kind", baseline(confidence=0.8))
    del model.__dict__["merged"], model.__dict__["dropped"]  # as a file of an earlier version is opened
    assert model.labels(frame).tolist() == frame["kind"].tolist()


def test_what_cannot_be_done_with_rare_labels(rare):
    with pytest.raises(TableError, match="rare_labels must be one of 'keep', 'other', 'drop'; got 'merge'"):
        fit_table(rare, "kind", baseline(), rare_labels="merge")
    with pytest.raises(TableError, match="rare_rows must be a positive whole number of rows; got 0"):
        fit_table(rare, "kind", baseline(), rare_rows=0)
    with pytest.raises(TableError, match=r"5 labels .* have fewer than 900 rows, and --rare-labels drop leaves none"):
        fit_table(rare, "kind", baseline(), rare_labels="drop", rare_rows=900)
    with pytest.raises(TableError, match="--rare-labels other leaves 1: at least two labels are needed"):
        fit_table(rare, "kind", baseline(), rare_labels="other", rare_rows=900)
    assert Rare.of(baseline(confidence=[0.9, 0.99], label_conditional=True)).rows == 396
    assert Rare.of(baseline(confidence=0.5, label_conditional=True)).rows == 10


# ---- coverage by label --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_label(rare):
    """Of the labels p and q all rows train, and none calibrates."""
    part = np.ones(len(rare), dtype=int)
    part[:450] = 0
    predictor = baseline(confidence=0.9, label_conditional=True)
    with pytest.warns(TightsetWarning, match="a label with fewer than 9 calibration rows is in every set at conf"):
        return fit_prepared(
            prepare(FrameTable(rare), "kind", lambda _: part, rare=Rare.of(predictor, "keep", None)), "kind", predictor
        )


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_a_label_without_calibration_rows_comes_last(by_label, rare):
    new = rare[100:140].reset_index(drop=True)
    known = by_label.classes_.tolist().index
    found = explain(by_label, new.iloc[[3]], 0.9)
    assert [found.calibration_rows[known(label)] for label in "pq"] == [0, 0]
    assert found.calibration_rows.sum() == 150
    assert set(found.order[-2:]) == {known("p"), known("q")}
    assert (np.diff(found.p[found.order[:3]]) <= 0).all()
    lines = list(predicted(by_label, new, [0.9], [], strict=False))
    for line in lines:
        assert line.labels[-2:] == ["p", "q"]
        assert line.p[:-2] == sorted(line.p[:-2], reverse=True)
    assert {len(line.labels) for line in lines} != {2}


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_the_size_that_is_told_is_that_of_coverage_by_label():
    model = fit_table(
        table(4000).drop(columns="name"), "kind", baseline(confidence=[0.8, 0.95], label_conditional=True)
    )
    new = model.evaluate(table(4000, seed=1))
    assert list(model.about["mean size by label"]) == ["0.8", "0.95"]
    for row, told in zip(new, model.about["mean size by label"].values(), strict=True):
        assert told == pytest.approx(row["mean_size"], abs=0.05)
    json.dumps(model.about)
    assert "mean size by label" not in fit_table(table(), "kind", baseline()).about
