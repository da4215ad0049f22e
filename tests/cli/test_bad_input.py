"""What the commands say when a table, a model or an option is not what it should be; and what is left when they are stopped."""

import io
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import tightset
from commands import refused, write
from makers import table
from tightset.tables.fitting import fit_table


def test_bad_tables_at_fit(here, cli):
    new = table(100, seed=3)
    write("empty.csv", "")
    write("header.csv", "a,b\n")
    new.assign(kind="x").to_csv("constant.csv", index=False)
    new.assign(kind=[None, *new["kind"][1:]]).to_csv("gap.csv", index=False)
    write("out.tightset", Path("m.tightset").read_bytes())
    for message, name, target in (
        ("there is no file nothing.csv", "nothing.csv", "kind"),
        ("empty.csv is empty", "empty.csv", "kind"),
        ("header but no rows", "header.csv", "b"),
        ("no column 'kin' in train.csv; did you mean 'kind'?", "train.csv", "kin"),
        ("is 'x' in every row", "constant.csv", "kind"),
        ("has no value in row 1", "gap.csv", "kind"),
        ("is a tightset model and not a table", "m.tightset", "kind"),
    ):
        refused(cli, message, "fit", name, "--target", target, "--out", "out.tightset")
    only_one = "separated by commas: give --delimiter ','"
    refused(cli, only_one, "fit", "train.csv", "--target", "kind", "--delimiter", "tab", "--out", "out.tightset")


def test_wrong_usage(here, cli):
    fit = ("fit", "train.csv", "--target", "kind")
    refused(cli, "95 is not between 0 and 1; 95% is 0.95", *fit, "--confidence", 95, code=2)
    for text, meant in (("95%", "0.95"), ("0,95", "0.95"), ("high", "one such as 0.95"), ("150%", "one such as 0.95")):
        for option in ("--confidence", "--assurance"):
            message = f"Invalid value for '{option}': {text!r} is not a number; give {meant}"
            refused(cli, message, *fit, option, text, code=2)
    explain = ("explain", "m.tightset", "test.csv", "--row", 1)
    refused(cli, "'--confidence': 90 is not between 0 and 1", *explain, "--confidence", 90, code=2)
    refused(cli, "'svm' is none of linear, auto, hgb", *fit, "--estimator", "svm", code=2)
    refused(cli, "'quick' is none of fast, default, thorough", *fit, "--search", "quick", code=2)
    refused(cli, "train.csv is also the input", *fit, "--out", "train.csv", code=2)
    refused(cli, "test.csv exists and is not a model", *fit, "--out", "test.csv", code=2)
    refused(cli, "there is no folder nowhere", *fit, "--out", "nowhere/m.tightset", code=2)
    refused(
        cli,
        "'xlsx' is none of csv, jsonl, parquet, table",
        "predict",
        "m.tightset",
        "test.csv",
        "--format",
        "xlsx",
        code=2,
    )
    refused(
        cli, "does not end in .csv, .jsonl or .parquet", "predict", "m.tightset", "test.csv", "--out", "p.txt", code=2
    )
    refused(
        cli,
        "m.tightset is also the input",
        "predict",
        "m.tightset",
        "test.csv",
        "--out",
        "m.tightset",
        "--format",
        "csv",
        code=2,
    )
    names = "no column 'NAME'; did you mean 'name'? There are"
    refused(cli, names, "predict", "m.tightset", "test.csv", "--keep", "NAME", "--out", "p.csv", code=2)
    refused(cli, "no column 'idd'", "predict", "m.tightset", "test.csv", "--keep", "idd", "--out", "p.csv", code=2)
    refused(cli, "Missing option '--target'", "fit", "train.csv", code=2)


@pytest.mark.filterwarnings("ignore:rows have values of")
def test_bad_tables_at_predict(here, cli):
    new = pd.read_csv("test.csv")
    write("p.csv", "precious")
    new[new.columns[::-1]].to_csv("order.csv", index=False)
    new.assign(extra=1).to_csv("extra.csv", index=False)
    new.drop(columns="age").to_csv("absent.csv", index=False)
    new.rename(columns={"age": "AGE"}).to_csv("capitals.csv", index=False)
    new.assign(age=["old", *new["age"][1:]]).to_csv("type.csv", index=False)
    new.assign(colour="violet").to_csv("category.csv", index=False)
    new.to_csv("semicolon.csv", sep=";", index=False)
    write("empty.csv", "")
    for message, name in (
        ("in a different order than in training", "order.csv"),
        ("the column 'extra' was not there in training", "extra.csv"),
        ("the column 'age' that the model was trained on is missing", "absent.csv"),
        (
            "'age' that the model was trained on is missing; did you mean 'AGE'? There are 'name', 'AGE', 'kind'",
            "capitals.csv",
        ),
        ("'age' was numbers in training, but row 1 has 'old'", "type.csv"),
        ("'colour' has 'violet', first in row 1, which no training row had", "category.csv"),
        ("is empty", "empty.csv"),
        ("there is no file", "nothing.csv"),
    ):
        refused(cli, message, "predict", "m.tightset", name, "--out", "p.csv")
        refused(cli, message, "predict", "m.tightset", name)  # and nothing on standard output
    plain = cli("predict", "m.tightset", "test.csv")[1]
    assert cli("predict", "m.tightset", "semicolon.csv")[1] == plain
    for name in ("order.csv", "extra.csv"):
        assert cli("predict", "m.tightset", name, "--lenient")[1] == plain
    assert cli("predict", "m.tightset", "category.csv", "--lenient")[0] == 0
    assert cli("predict", "m.tightset", "type.csv", "--lenient")[0] == 1


def test_bad_models(here, cli):
    whole = Path("m.tightset").read_bytes()
    write("half.tightset", whole[: len(whole) // 2])
    altered = bytearray(whole)
    altered[-1000] ^= 1
    write("altered.tightset", bytes(altered))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10**8))
    write("bomb.tightset", buffer.getvalue())
    write("pickle.tightset", pickle.dumps({"a": 1}))
    write("p.csv", "precious")
    for message, name in (
        ("cut short", "half.tightset"),
        ("its bytes were altered", "altered.tightset"),
        ("is a zip archive and not a tightset model; it was not unpacked", "bomb.tightset"),
        ("is a pickle and not a tightset model", "pickle.tightset"),
        ("is not a tightset model", "test.csv"),
        ("there is no file nothing", "nothing"),
    ):
        refused(cli, message, "predict", name, "test.csv", "--out", "p.csv")
        refused(cli, message, "evaluate", name, "test.csv")
    tightset.ConformalClassifier(random_state=0).fit(np.arange(40.0)[:, None], np.arange(40) % 2).save(
        "arrays.tightset"
    )
    refused(cli, "holds a model fitted on arrays", "predict", "arrays.tightset", "test.csv")


def test_what_cannot_be_exported(here, cli, monkeypatch):
    export = ("export", "m.tightset")
    write("old.onnx", "precious")
    refused(cli, "m.tightset is also the input; give another name", *export, "--out", "m.tightset", code=2)
    refused(cli, "is a folder; give the name of a file", *export, "--out", here, code=2)
    refused(cli, "there is no folder nowhere", *export, "--out", "nowhere/m.onnx", code=2)
    refused(cli, "'set' is none of sets, p-values, scores", *export, "--output", "set", code=2)
    refused(cli, "90% is 0.9", *export, "--confidence", 90, code=2)
    refused(cli, "there is no file nothing", "export", "nothing", "--out", "old.onnx")
    refused(cli, "is not a tightset model", "export", "test.csv", "--out", "old.onnx")
    boosted = tightset.ConformalClassifier(LGBMClassifier(n_estimators=2, verbose=-1), confidence=0.8, random_state=0)
    fit_table(table(100), "kind", boosted).save("boosted.tightset")
    refused(cli, "LGBMClassifier cannot be exported to ONNX", "export", "boosted.tightset", "--out", "old.onnx")
    refused(cli, "--estimator linear, logistic, hgb", "export", "boosted.tightset", "--out", "old.onnx")
    monkeypatch.setattr("tightset.export.onnx.find_spec", lambda name: None if name == "onnx" else name)
    refused(cli, 'the export needs onnx: pip install "tightset[onnx]"', *export, "--out", "old.onnx")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_leaves_nothing_half_written(tmp_path, folder, how):
    """Stopped in the middle of predicting a long table, of which the end never comes."""
    (tmp_path / "p.csv").write_text("precious")
    command = [sys.executable, "-m", "tightset", "predict", folder / "m.tightset", "-", "--out", "p.csv"]
    job = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    header, *rows = (folder / "test.csv").read_bytes().splitlines(keepends=True)
    job.stdin.write(header)
    for _ in range(1000):  # until it writes; it reads no faster than that, so this many are never needed
        job.stdin.write(b"".join(rows) * 100)
        job.stdin.flush()
        if len(list(tmp_path.iterdir())) == 2:
            break
    assert len(list(tmp_path.iterdir())) == 2
    job.send_signal(how)
    _, err = job.communicate()
    assert err == b"interrupted\n"
    assert job.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    assert (tmp_path / "p.csv").read_text() == "precious"
