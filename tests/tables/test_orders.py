"""The order of labels of a table: given, or that of the column itself."""

import numpy as np
import pandas as pd
import pytest

from tightset import ConformalClassifier
from tightset.exceptions import TableError
from tightset.tables import fit_table
from tightset.tables.orders import labels_in, listed

GRADES = ["low", "mid", "top", "best"]


def frame(n=200, labels=GRADES):
    rng = np.random.default_rng(0)
    k = rng.integers(0, 4, n)
    return pd.DataFrame({"x": (k + rng.normal(size=n)).round(3), "grade": np.array(labels)[k]})


def plain(**how):
    return ConformalClassifier(confidence=0.9, random_state=0, **how)


def test_both_predictors_get_the_order():
    one, other = plain(), plain()
    model = fit_table(frame(), "grade", one, other, ordered=GRADES)
    assert one.ordered == other.ordered == GRADES
    lists = model.predict_set(frame(), as_labels=True)
    for labels in lists:
        places = [GRADES.index(label) for label in labels]
        assert places == list(range(places[0], places[0] + len(places))) if places else True
    assert {"mean_width", "with_gaps"} <= model.evaluate(frame()).keys()
    assert list(model.about["labels"]) == GRADES


def test_numbers_may_be_written_otherwise():
    table = frame(labels=[1, 2, 10, 11])
    for order in ("auto", [1, 2, 10, 11], ["1.0", "2", "10", "11"], np.array([1, 2, 10, 11]).tolist()):
        predictor = plain()
        fit_table(table, "grade", predictor, ordered=order)
        assert predictor.ordered == [1, 2, 10, 11]


def test_an_ordered_category_has_its_own_order():
    table = frame()
    table["grade"] = pd.Categorical(table["grade"], ["never", *GRADES], ordered=True)
    predictor = plain()
    fit_table(table, "grade", predictor, ordered="auto")
    assert predictor.ordered == GRADES
    with pytest.raises(TableError, match=r"ordered=True .* is the order 'best', 'low', .*: give fit_table\("):
        fit_table(table, "grade", plain(ordered=True))


@pytest.mark.parametrize(
    ("ordered", "message"),
    [
        ("auto", "the labels have no order of their own"),
        ("low", "ordered must be 'auto' or a list of the labels"),
        ({"low"}, "ordered must be 'auto' or a list of the labels"),
        (["low", "mid", "top"], "lacks the label 'best'"),
        (["low", "top"], "lacks the labels 'best', 'mid'"),
        ([*GRADES, "low"], "names 'low' 2 times"),
        ([*GRADES, 5], "names '5', which is no label"),
    ],
    ids=str,
)
def test_orders_that_are_none(ordered, message):
    with pytest.raises(TableError, match=message):
        fit_table(frame(), "grade", plain(), ordered=ordered)


def test_labels_that_are_listed_are_read_as_they_were():
    labels = ["high, low", 'so "so"', "top", '"']
    assert labels_in(listed(labels)) == labels
