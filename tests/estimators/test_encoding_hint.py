"""Frames with text, categories and dates: an error that names the columns and says what works, and what works."""

import re

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import tightset
from makers import ON_TOP, scpo
from tightset import ConformalClassifier, SCPOClassifier
from tightset.estimators.encoding_hint import columns_not_numbers

FAILS = [
    ConformalClassifier(),
    ConformalClassifier("rf"),
    ConformalClassifier(LogisticRegression()),
    SCPOClassifier(),
    SCPOClassifier(estimator="auto"),
    SCPOClassifier(estimator="logistic"),
]


@pytest.fixture(scope="module")
def labelled():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=300),
            "colour": rng.choice(["red", "green", "blue"], 300),
            "shape": pd.Categorical(rng.choice(["round", "flat"], 300)),
            "whole": pd.array(rng.integers(0, 3, 300), dtype="Int64"),
        }
    )
    return X, ((X["size"] + 2 * (X["colour"] == "red") + rng.normal(size=300)) > 0.5).to_numpy().astype(int)


@pytest.mark.parametrize("clf", FAILS, ids=str)
def test_the_error_names_the_columns_and_both_ways(clf, labelled):
    X, y = labelled
    with pytest.raises(ValueError, match=r"'colour' \((object|str)\), 'shape' \(category\)\. ") as caught:
        clf.fit(X, y)
    told, name = str(caught.value), type(clf).__name__
    assert f"tightset.fit_table(frame, target, {name}(...))" in told
    assert "size" not in told
    assert "whole" not in told
    # What it says to write can be written.
    written = re.search(rf"{name}\(estimator=.*", told)[0].replace(name, "ConformalClassifier")
    assert "['colour', 'shape']" in written
    eval(written).fit(X, y).predict_set(X)
    table = X.assign(label=y)
    tightset.fit_table(table, "label", ConformalClassifier()).predict_set(table[:5])


@pytest.mark.parametrize("make", [ConformalClassifier, lambda estimator: scpo(estimator=estimator, search=ON_TOP)])
@pytest.mark.parametrize(
    "base",
    [
        HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=10),
        LGBMClassifier(n_estimators=10, verbose=-1),
    ],
    ids=["hgb", "lightgbm"],
)
def test_classifiers_that_take_categories_are_given_them(base, make, labelled):
    X, y = labelled
    X = X.astype({"colour": "category", "whole": float})
    clf = make(base).fit(X[:200], y[:200])
    assert clf.predict_set(X[200:]).any(axis=1).mean() > 0.8
    with pytest.raises(ValueError, match=r"not numbers: 'colour'"):
        make(base).fit(X.astype({"colour": object}), y)


@pytest.mark.parametrize("make", [ConformalClassifier, lambda estimator: scpo(estimator=estimator, search=ON_TOP)])
def test_a_pipeline_is_given_the_frame(make, labelled):
    X, y = labelled
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["colour", "shape"]), remainder="passthrough"
    )
    clf = make(make_pipeline(encode, LogisticRegression())).fit(X[:200], y[:200])
    assert clf.evaluate(X[200:], y[200:])["coverage"] > 0.85


def test_categories_that_are_numbers_stay_numbers(labelled):
    X, y = labelled
    coded = X[["size"]].assign(code=pd.Categorical(np.arange(300) % 3))
    ConformalClassifier().fit(coded, y)


def test_other_errors_stay_as_they_are(labelled):
    X, y = labelled
    with pytest.raises(ValueError, match="calibration_size must be"):
        ConformalClassifier(calibration_size=-1).fit(X, y)
    with pytest.raises(ValueError, match="could not convert string to float"):
        SCPOClassifier().fit(X.astype(object).to_numpy(), y)


def test_columns_of_frames_of_both_libraries():
    import polars as pl

    days = pd.date_range("2026-01-01", periods=2)
    frame = pd.DataFrame(
        {"day": days, "text": ["a", "b"], "digits": ["1", "2.5"], "flag": [True, False], 7: ["x", "y"]}
    )
    assert list(columns_not_numbers(frame)) == ["day", "text", "7"]
    frame.columns = ["day", "day", "day", "flag", "text"]  # names that come twice
    assert list(columns_not_numbers(frame)) == ["day", "text"]
    frame = pl.DataFrame({"number": [1, None], "text": ["a", "b"], "kind": pl.Series(["a", "b"], dtype=pl.Categorical)})
    assert columns_not_numbers(frame) == {"text": "String", "kind": "Categorical"}
    assert columns_not_numbers(np.array([["a"]])) == {}
