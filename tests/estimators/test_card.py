"""Data frames in and out, and the card that a fitted estimator shows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn

from makers import baseline, quick_grid, quick_scpo
from tightset.estimators.card import card

NAMES = np.array(["ash", "birch", "cedar"])


@pytest.fixture(scope="module")
def frames(labelled_rows):
    X, y, X_new, _ = labelled_rows
    columns = list("abcde")
    index = [f"row {i}" for i in range(40)]
    return pd.DataFrame(X, columns=columns), NAMES[y], pd.DataFrame(X_new[:40], columns=columns, index=index)


@pytest.fixture(scope="module")
def one_level(frames):
    X, y, _ = frames
    return baseline(confidence=0.9).fit(X, y)


@pytest.fixture(scope="module")
def two_levels(frames):
    X, y, _ = frames
    return quick_scpo(confidence=[0.8, 0.95]).fit(X, y)


# ---- data frames ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "kind"), [("predict_set", bool), ("predict_p", float)])
def test_a_frame_has_the_rows_index_and_a_column_for_each_label(one_level, frames, method, kind):
    X_new = frames[2]
    frame = getattr(one_level, method)(X_new, as_frame=True)
    assert frame.index.equals(X_new.index)
    assert frame.columns.tolist() == NAMES.tolist()
    assert (frame.dtypes == kind).all()
    np.testing.assert_array_equal(frame.to_numpy(), getattr(one_level, method)(X_new))


@pytest.mark.parametrize("method", ["predict_set", "predict_p"])
def test_a_level_of_several_is_a_frame_by_itself(two_levels, frames, method):
    X_new = frames[2]
    frame = getattr(two_levels, method)(X_new, as_frame=True)
    assert frame.columns.names == ["confidence", "label"]
    assert frame.index.equals(X_new.index)
    for level, expected in zip([0.8, 0.95], getattr(two_levels, method)(X_new), strict=True):
        np.testing.assert_array_equal(frame[level].to_numpy(), expected)
        assert frame[level].columns.tolist() == NAMES.tolist()


def test_arrays_are_numbered(frames):
    X, y, X_new = frames
    clf = baseline(confidence=0.9).fit(X.to_numpy(), y)
    assert clf.predict_set(X_new.to_numpy(), as_frame=True).index.tolist() == list(range(40))
    assert clf.predict_set(X_new.to_numpy().tolist(), as_frame=True).shape == (40, 3)


def test_labels_that_are_numbers_stay_numbers(labelled_rows):
    X, y, X_new, _ = labelled_rows
    frame = baseline(confidence=0.9).fit(X, y + 5).predict_set(X_new[:3], as_frame=True)
    assert frame.columns.tolist() == [5, 6, 7]
    assert frame[6].dtype == bool


def test_lists_of_labels_in_a_frame(one_level, two_levels, frames):
    X_new = frames[2]
    frame = one_level.predict_set(X_new, as_frame=True, as_labels=True)
    expected = [labels.tolist() for labels in one_level.predict_set(X_new, as_labels=True)]
    assert frame.columns.tolist() == ["set"]
    assert frame.index.equals(X_new.index)
    assert frame["set"].tolist() == expected
    several = two_levels.predict_set(X_new, as_frame=True, as_labels=True)
    expected = [labels.tolist() for labels in two_levels.predict_set(X_new, as_labels=True)[1]]
    assert several.columns.tolist() == [0.8, 0.95]
    assert several[0.95].tolist() == expected


def test_polars_in_polars_out(one_level, two_levels, frames):
    X_new = pl.DataFrame(frames[2].to_numpy(), schema=list("abcde"))
    frame = one_level.predict_set(X_new, as_frame=True)
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == NAMES.tolist()
    np.testing.assert_array_equal(frame.to_numpy(), one_level.predict_set(X_new))
    assert one_level.predict_p(X_new, as_frame=True).dtypes == [pl.Float64] * 3
    several = two_levels.predict_set(X_new, as_frame=True)
    assert list(several) == [0.8, 0.95]
    np.testing.assert_array_equal(several[0.95].to_numpy(), two_levels.predict_set(X_new)[1])
    lists = one_level.predict_set(X_new, as_frame=True, as_labels=True, confidence=0.2)  # many are empty
    assert lists.schema == {"set": pl.List(pl.String)}
    made = [labels.tolist() for labels in one_level.predict_set(X_new, as_labels=True, confidence=0.2)]
    assert lists["set"].to_list() == made
    assert [] in made


@pytest.mark.parametrize("method", ["predict_set", "predict_p"])
def test_dask_rows_are_refused(one_level, frames, method):
    import dask.dataframe as dd

    with pytest.raises(ValueError, match="as_frame=True needs rows in memory"):
        getattr(one_level, method)(dd.from_pandas(frames[2], npartitions=2), as_frame=True)


# ---- the card -------------------------------------------------------------------------------------------------------


def shown(model):
    return model._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("make", [baseline, quick_scpo, quick_grid])
def test_an_unfitted_estimator_shows_the_diagram_of_scikit_learn(make):
    assert "sk-top-container" in shown(make())
    assert "sk-top-container" in make()._repr_html_()
    assert "tightset-card" not in shown(make())


@pytest.mark.parametrize("make", [baseline, quick_scpo, quick_grid])
def test_a_fitted_one_shows_a_card(make, frames):
    X, y, _ = frames
    clf = make(confidence=[0.8, 0.95]).fit(X, y)
    html = shown(clf)
    assert html == clf._repr_html_() == card(clf)
    assert "<script" not in html
    assert f"<b>{type(clf).__name__}</b>" in html
    assert "Trained on 450 rows, calibrated on 150 others." in html
    assert "80%</td><td>rank 30 of 150" in html  # floor(0.2 * 151)
    assert "95%</td><td>rank 7 of 150" in html
    assert "3 labels: <code>ash</code>, <code>birch</code>, <code>cedar</code>." in html
    assert "<code>predict_set(X)</code>" in html
    assert "random_state=0" in html
    assert ("<code>summary()</code>" in html) == hasattr(clf, "summary")
    assert "sk-top-container" in sklearn.utils.estimator_html_repr(clf)


def test_the_card_has_what_the_summary_says(two_levels):
    for line in two_levels.summary().splitlines():
        sentence = line.partition(": ")[2]
        assert sentence[1:].replace("'", "&#x27;") in card(two_levels)


def test_text_only_is_respected(one_level):
    with sklearn.config_context(display="text"):
        assert set(one_level._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(one_level, "_repr_html_")


def test_text_of_the_data_is_escaped(labelled_rows):
    X, y, _, _ = labelled_rows
    bad = "<script>alert(1)</script>"
    names = np.array([bad, '"&quot;', "x" * 100])
    groups = np.where(np.arange(len(y)) % 2, bad, "plain")
    html = card(baseline(confidence=0.9, label_conditional=True).fit(X, names[y], groups=groups))
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "x" * 30 not in html
    assert "by group and label" in html
    assert "&lt;function" in card(baseline(conformity_score=lambda P: P).fit(X, y))


def test_few_rows_many_labels_folds_and_trained_models(labelled_rows):
    X, y, X_new, y_new = labelled_rows
    with pytest.warns(match="needs 99"):
        few = baseline(confidence=0.99).fit(X[:100], y[:100], X_cal=X_new[:50], y_cal=y_new[:50])
    assert "every score: 50 rows are too few" in card(few)
    rng = np.random.default_rng(0)
    many = baseline(confidence=0.5).fit(rng.normal(size=(800, 2)), np.arange(800) % 20)
    assert "20 labels:" in card(many)
    assert "and 12 more." in card(many)
    assert "3 folds, each trained on about 400 rows; calibrated on all 600 rows." in card(baseline(cv=3).fit(X, y))
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    trained = baseline(estimator=FrozenEstimator(LogisticRegression().fit(X, y))).fit(X_new, y_new)
    assert "fitted. 800 calibration rows." in card(trained)
    assert "training</th>" not in card(trained)
