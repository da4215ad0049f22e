"""`tightset predict --abstain`: one label or an empty cell for each row."""

import io

import pandas as pd
import pytest

import tightset
from commands import refused
from makers import table


def test_one_label_or_an_empty_cell(here, cli):
    new = table(300, seed=2)
    new.to_csv("new.csv", index=False)
    code, out, err = cli("predict", "m.tightset", "new.csv", "--abstain", "0.1", "--keep", "name")
    assert (code, err) == (0, "")
    found = pd.read_csv(io.StringIO(out))
    labels, answered = tightset.load("m.tightset").predict_or_abstain(new, error=0.1)
    assert 0 < answered.mean() < 1
    assert (found["size"] == answered).all()
    assert (found["set"].notna() == answered).all()
    assert found["set"][answered].tolist() == labels[answered].tolist()
    assert (found["p"].notna() == answered).all()
    assert found["name"].tolist() == new["name"].tolist()
    code, out, _ = cli("predict", "m.tightset", "new.csv", "--abstain", "0.1", "--assurance", "0.6")
    assert code == 0
    assert pd.read_csv(io.StringIO(out))["size"].sum() >= answered.sum()


@pytest.mark.filterwarnings("default::tightset.TightsetWarning")
def test_what_cannot_be_certified_is_said_once_and_nothing_answered(here, cli):
    code, out, err = cli("predict", "m.tightset", "train.csv", "--abstain", "0.001")
    assert code == 0
    assert err.count("no row is answered") == 1
    assert pd.read_csv(io.StringIO(out))["size"].sum() == 0


def test_what_cannot_be_asked(here, cli):
    words = ("predict", "m.tightset", "train.csv", "--out", "sets.csv", "--abstain")
    refused(cli, "Invalid value for '--abstain': 5 is not between 0 and 1; 5% is 0.05", *words, "5", code=2)
    refused(cli, "Invalid value for '--assurance': 95 is not between", *words, "0.1", "--assurance", "95", code=2)
    refused(cli, "confidence must be one level", *words, "0.1", "--confidence", "0.8", "--confidence", "0.9")
