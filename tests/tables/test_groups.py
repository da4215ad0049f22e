"""Coverage within each group of a column: `fit_table(group=...)`, and the commands with `--group`."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tightset
from commands import FAST, refused
from makers import quick_scpo
from tightset import ConformalClassifier, fit_table
from tightset.exceptions import ModelFileError, TableError
from tightset.tables.files import TableFile
from tightset.tables.preparing import CALIBRATE, split_rows
from tightset.tables.stored import _check_model

quiet = pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")


def sites(n, seed=0):
    """Sites are numbers with zeros before them; rows of site 02 are harder."""
    rng = np.random.default_rng(seed)
    site = rng.choice(["01", "02"], n, p=[0.75, 0.25])
    y = rng.integers(0, 3, n)
    X = np.array([[0, 0], [3, 0], [0, 3]])[y] + rng.normal(size=(n, 2)) * np.where(site == "02", 1.8, 0.7)[:, None]
    return pd.DataFrame({"a": X[:, 0], "site": site, "b": X[:, 1], "kind": np.array(list("xyz"))[y]})


@pytest.fixture(scope="module")
def model():
    predictor = quick_scpo(confidence=0.9)
    return fit_table(sites(1500), "kind", predictor, ConformalClassifier(confidence=0.9, random_state=0), group="site")


def test_coverage_holds_within_each_group(model):
    new = sites(6000, 1)
    sets, labels = model.predict_set(new, as_frame=True), new["kind"].to_numpy()
    covered = sets.to_numpy()[np.arange(len(new)), np.searchsorted(model.classes_, labels)]
    for site in ("01", "02"):
        assert abs(covered[new["site"] == site].mean() - 0.9) < 0.05
    size = sets.sum(axis=1)
    assert size[new["site"] == "02"].mean() > 1.2 * size[new["site"] == "01"].mean()
    assert model.group == "site"
    assert model.encoding.left_out["site"] == "it is the group of each row"
    assert [column.name for column in model.encoding.columns] == ["a", "b"]
    assert model.evaluate(new)["coverage"] == covered.mean()
    np.testing.assert_array_equal(model.predict_p(new) > 0.1, sets.to_numpy())


def test_the_same_rows_in_python(model):
    """As the estimator itself, given groups."""
    new = sites(300, 1)
    own = model.predictor.predict_set(model.encode(new), groups=new["site"].to_numpy())
    np.testing.assert_array_equal(model.predict_set(new), own)
    assert model.groups(new).tolist() == new["site"].tolist()


def test_every_group_has_its_share_of_the_calibration_rows():
    codes = np.random.default_rng(0).integers(0, 3, 1000)
    groups = np.where(np.arange(1000) < 80, "small", "large")
    for seed in range(3):
        part = split_rows(codes, ConformalClassifier(random_state=seed), groups=groups)
        assert (part[:80] == CALIBRATE).sum() == 20
        by_label = ConformalClassifier(random_state=seed, label_conditional=True)
        part = split_rows(codes, by_label, groups=groups)
        assert all(abs((part[:80][codes[:80] == label] == CALIBRATE).mean() - 0.25) < 0.05 for label in range(3))


def test_files_keep_the_column_and_old_files_have_none(model, tmp_path):
    model.save(tmp_path / "g.tightset")
    again, new = tightset.load(tmp_path / "g.tightset"), sites(200, 1)
    assert again.group == "site"
    np.testing.assert_array_equal(again.predict_p(new), model.predict_p(new))
    model.encoding, before = model.encoding._replace(group=None), model.encoding
    with pytest.raises(ModelFileError, match=r"Encoding\.group must be there where coverage is by group"):
        _check_model(model)
    model.encoding = before


@quiet
def test_a_group_that_is_not_known_gets_all_labels_and_a_missing_one_is_a_group():
    frame = sites(1500)
    frame.loc[::5, "site"] = None
    model = fit_table(frame, "kind", ConformalClassifier(confidence=0.9, random_state=0), group="site")
    new = sites(50, 1)
    new["site"] = ["09"] * 20 + [None] * 30
    with pytest.warns(tightset.TightsetWarning, match="no calibration row has group '09': its sets contain all labels"):
        sets = model.predict_set(new)
    assert sets[:20].all()
    assert not sets[20:].all(axis=1).all()
    assert set(model.groups(new)) == {"09", "(missing)"}


def test_numbers_may_be_written_otherwise():
    frame = sites(600).assign(site=lambda one: one["site"].map(int))
    model = fit_table(frame, "kind", ConformalClassifier(confidence=0.9, random_state=0), group="site")
    new = sites(50, 1)
    assert model.groups(new).tolist() == new["site"].map(int).map(str).tolist()


def test_what_cannot_be_a_group(model):
    frame, plain = sites(200), ConformalClassifier()
    with pytest.raises(TableError, match="there is no column 'sites' with the group of each row; did you mean 'site'"):
        fit_table(frame, "kind", plain, group="sites")
    with pytest.raises(TableError, match="'kind' is the target; it cannot be the group as well"):
        fit_table(frame, "kind", plain, group="kind")
    with pytest.raises(TableError, match="'site' is a column to predict from; it cannot be the group"):
        fit_table(frame, "kind", plain, group="site", categorical=["site"])
    with pytest.raises(TableError, match="there is no column 'site' with the group of each row"):
        model.predict_set(frame.drop(columns="site"))


# ---- the commands -----------------------------------------------------------------------------------------------


@quiet
def test_the_commands_take_the_group_from_its_column(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    sites(1200).to_csv("train.csv", index=False)
    new = sites(400, 1)
    new.loc[:9, "site"] = "09"
    new.to_csv("new.csv", index=False)
    fit = ("fit", "train.csv", "--target", "kind", *FAST[:2], "--confidence", "0.9", "--out", "g.tightset")
    code, out, err = cli(*fit, "--group", "site", "--test", "0.2")
    assert code == 0, err
    assert "left out 'site': it is the group of each row" in out
    assert "Sets are calibrated by group." in out
    assert set(next(TableFile("g-test.csv").chunks(text=["site"]))["site"]) == {"01", "02"}  # zeros and all
    model = tightset.load("g.tightset")
    code, out, err = cli("predict", "g.tightset", "new.csv")
    assert code == 0, err
    expected = model.predict_set(new).sum(axis=1)
    assert pd.read_csv(io.StringIO(out))["size"].tolist() == expected.tolist()
    assert (expected[:10] == 3).all()
    code, out, err = cli("evaluate", "g.tightset", "g-test.csv")
    assert code == 0, err
    assert "Sets within each group of 'site'" in out
    code, out, err = cli("evaluate", "g.tightset", "new.csv", "--json")
    told = json.loads(out)
    assert told["predictor"][0]["coverage"] == model.evaluate(new)["coverage"]
    assert [one["group"] for one in told["groups"]] == ["01", "02", "09"]
    assert told["groups"][2]["coverage"] == [1.0]
    code, out, err = cli("explain", "g.tightset", "new.csv", "--row", "12")
    assert code == 0, err
    rows = model.predictor.fitted_.calibration_rows()[new["site"][11], -1]
    assert f"compared with {rows} calibration rows of group {new['site'][11]}" in out
    code, out, err = cli("explain", "g.tightset", "new.csv", "--row", "1")
    assert "no calibration row has this group" in out
    code, _, err = cli("report", "g.tightset", "new.csv", "--out", "r.html")
    assert code == 0, err
    assert Path("r.html").exists()
    code, out, err = cli("compare", "train.csv", "--target", "kind", *fit[4:8], "--group", "site", "--splits", "1")
    assert code == 0, err
    refused(cli, "there is no column 'place' with the group of each row", *fit[:-1], "x.tightset", "--group", "place")
    new.drop(columns="site").to_csv("less.csv", index=False)
    refused(cli, "there is no column 'site' with the group", "predict", "g.tightset", "less.csv", "--out", "s.csv")
