"""Assurance in all that is built on a predictor: sets, files, ONNX, commands, report, figures; and clear errors."""

import json
from fractions import Fraction

import dask.array as da
import numpy as np
import onnxruntime
import pytest

import tightset
from commands import FAST, refused
from forging import forged
from makers import baseline, both, quick_grid, quick_scpo, table
from tightset import plots
from tightset.conformal.ranks import calibration_rows_needed, rank
from tightset.estimators.calibrating import CalibrationRows, assured_errors
from tightset.exceptions import ModelFileError, TightsetWarning
from tightset.report import write_report
from tightset.tables.explaining import explain
from tightset.tables.fitting import fit_table

SURE = 0.95


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1600)
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    X = centres[y] + rng.standard_normal((1600, 2))
    return X[:1000], y[:1000], X[1000:], y[1000:]


def assured(model, X, r_of_label, n_of_label, groups=None):
    """Sets by p-values, which assurance does not change."""
    counts = np.rint(model.predict_p(X, groups=groups) * (n_of_label + 1))
    return counts >= r_of_label + 1


@both
def test_sets_are_larger_and_p_values_stay(rows, make):
    X, y, X_new, _ = rows
    plain, sure = (make(confidence=0.9).fit(X[:750], y[:750], X_cal=X[750:], y_cal=y[750:]) for _ in range(2))
    sure.set_params(assurance=SURE).calibrate(X[750:], y[750:])
    np.testing.assert_array_equal(plain.predict_p(X_new), sure.predict_p(X_new))
    r = rank(0.9, 250, SURE)
    assert r < rank(0.9, 250)
    found = sure.predict_set(X_new)
    np.testing.assert_array_equal(found, assured(sure, X_new, r, 250))
    assert (plain.predict_set(X_new) <= found).all()
    assert plain.predict_set(X_new).sum() < found.sum()
    assert sure.evaluate(X_new, rows[3])["assurance"] == SURE
    assert "assurance" not in plain.evaluate(X_new, rows[3])


@pytest.mark.filterwarnings("ignore:group 2 has")
@pytest.mark.parametrize("make", [quick_scpo, quick_grid])
@pytest.mark.parametrize("asked", ["all rows", "by label", "by group", "by both"])
def test_measures_are_trained_for_the_level_that_is_calibrated_at(rows, make, asked):
    """That is ``1 - r / (n + 1)``, n being the median of the rows of a category."""
    X, y, X_new, _ = rows
    if make is quick_grid and asked != "all rows":
        pytest.skip("the search of the paper trains for coverage of all rows")
    group = np.repeat([0, 1, 2], [150, 60, 40])
    how = {"label_conditional": asked in ("by label", "by both")}
    groups = {"groups": np.arange(750) % 3, "groups_cal": group} if asked in ("by group", "by both") else {}
    category = how["label_conditional"] * y[750:] + (3 * group if groups else 0)
    n = int(np.median(np.unique(category, return_counts=True)[1]))
    error = Fraction(rank(0.8, n, SURE), n + 1)
    given = {"X_cal": X[750:], "y_cal": y[750:]} | groups
    sure = make(confidence=0.8, assurance=SURE, **how).fit(X[:750], y[:750], **given)
    stricter = make(confidence=1 - error, **how).fit(X[:750], y[:750], **given)
    one, other = (
        clf.folds_[0].models[0].scores(X_new, clf.fitted_.shared(range(len(X_new)))) for clf in (sure, stricter)
    )
    np.testing.assert_array_equal(one, other)
    assert sure.selection_["confidence"][0] == 0.8
    if make is quick_scpo:
        assert f"With assurance sets cover {100 * float(1 - error):.4g}% on average" in sure.summary()
        assert "With assurance" not in stricter.summary()


def test_a_level_that_the_rows_cannot_reach_is_trained_for_as_it_is(rows):
    X, y, *_ = rows
    with pytest.warns(TightsetWarning, match="needs 299"):
        clf = quick_scpo(confidence=0.99, assurance=SURE, calibration_size=200).fit(X, y)
    assert "With assurance" not in clf.summary()


@pytest.mark.parametrize("by_label", [False, True])
def test_by_label_and_by_group(rows, by_label):
    X, y, X_new, _ = rows
    groups, new = np.tile(["left", "right"], 500), np.tile(["left", "right"], 300)
    clf = baseline(confidence=0.8, assurance=SURE, label_conditional=by_label).fit(X, y, groups=groups)
    found = clf.predict_set(X_new, groups=new)
    for group in ("left", "right"):
        n = np.array([clf.fitted_.calibration_rows()[group, c if by_label else -1] for c in range(3)])
        r = np.array([rank(0.8, m, SURE) for m in n])
        here = new == group
        np.testing.assert_array_equal(found[here], assured(clf, X_new[here], r, n, new[here]))
        np.testing.assert_allclose(clf.fitted_.cuts(0.8, group), r / (n + 1))


def test_calibrate_other_levels_and_empty_sets(rows):
    X, y, X_new, y_new = rows
    clf = baseline(confidence=0.6, assurance=SURE, allow_empty=False).fit(X, y)
    assert clf.predict_set(X_new).any(axis=1).all()
    r = rank(0.5, 250, SURE)
    at_half = assured(clf, X_new, r, 250)
    some = at_half.any(axis=1)
    np.testing.assert_array_equal(clf.predict_set(X_new, confidence=0.5)[some], at_half[some])
    clf.calibrate(X_new[:300], y_new[:300])
    assert clf.fitted_.assurance == Fraction(19, 20)
    clf.set_params(assurance=None).calibrate(X_new[:300], y_new[:300])
    assert clf.fitted_.assurance is None


def test_dask_rows_and_frozen_levels(rows):
    X, y, X_new, _ = rows
    clf = baseline(confidence=[0.8, 0.9], assurance=SURE).fit(X, y)
    lazy = da.from_array(X_new, chunks=(250, 2))
    np.testing.assert_array_equal(clf.predict_set(lazy).compute(), clf.predict_set(X_new))
    with pytest.raises(ValueError, match="smoothed=True cannot be combined with assurance"):
        clf.predict_set(lazy, smoothed=True)
    assert clf.predict_p(lazy, smoothed=True).compute().shape == (2, 600, 3)


@pytest.mark.parametrize("make", [baseline, quick_scpo])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"assurance": 95}, "assurance must be a number between 0 and 1, such as 0.95; got 95"),
        ({"assurance": "high"}, "assurance must be a number between 0 and 1"),
        ({"assurance": 1}, "assurance must be a number between 0 and 1"),
        ({"assurance": SURE, "cv": 3}, "assurance needs calibration rows that did not train"),
    ],
)
def test_wrong_parameters(rows, make, wrong, message):
    with pytest.raises(ValueError, match=message):
        make(**wrong).fit(*rows[:2])


def test_smoothed_sets_are_refused_and_smoothed_p_values_are_not(rows):
    X, y, X_new, y_new = rows
    clf = baseline(confidence=0.9, assurance=SURE).fit(X, y)
    for ask in (lambda: clf.predict_set(X_new, smoothed=True), lambda: clf.evaluate(X_new, y_new, smoothed=True)):
        with pytest.raises(ValueError, match=r"smoothed=True cannot be combined with assurance.*assurance=0.95"):
            ask()
    assert (clf.predict_p(X_new, smoothed=True) <= clf.predict_p(X_new)).all()


def test_enough_rows_are_held_aside_and_too_few_are_told(rows):
    X, y, X_new, _ = rows
    needed = calibration_rows_needed(0.99, SURE)
    assert needed == 299
    clf = baseline(confidence=0.99, assurance=SURE).fit(X, y)  # a quarter of 1,000 would be too few
    assert clf.fitted_.calibration_rows().total() == needed
    assert not clf.predict_set(X_new).all()
    with pytest.warns(TightsetWarning, match=r"298 rows, but confidence 0.99 with assurance 0.95 needs 299"):
        clf = baseline(confidence=0.99, assurance=SURE, calibration_size=298).fit(X, y)
    assert clf.predict_set(X_new).all()
    assert baseline(confidence=0.99, assurance=SURE, calibration_size=299).fit(X, y).predict_set(X_new).any()


def test_one_row_of_a_category_and_none(rows):
    X, y, X_new, y_new = rows
    few = np.concatenate([np.flatnonzero(y_new != 2), np.flatnonzero(y_new == 2)[:1]])
    clf = baseline(confidence=0.8, assurance=0.9, label_conditional=True)
    with pytest.warns(TightsetWarning, match=r"1 rows of label 2, but confidence 0.8 with assurance 0.9 needs 11"):
        clf.fit(X, y, X_cal=X_new[few], y_cal=y_new[few])
    assert clf.predict_set(X)[:, 2].all()
    with pytest.warns(TightsetWarning, match=r"0 rows of label 2, .* label 2 stays in every set"):
        clf.calibrate(X_new[few[:-1]], y_new[few[:-1]])
    assert clf.predict_set(X)[:, 2].all()
    grouped = baseline(confidence=0.8, assurance=0.9).fit(X, y, groups=np.repeat("a", 1000))
    with pytest.warns(TightsetWarning, match="no calibration row has group 'b': its sets contain all labels"):
        assert grouped.predict_set(X_new, groups=np.repeat("b", 600)).all()


@pytest.mark.parametrize("how", [{}, {"label_conditional": True}, {"confidence": [0.8, 0.9]}])
def test_model_files_and_onnx(rows, tmp_path, how):
    X, y, X_new, y_new = rows
    clf = quick_scpo(**({"confidence": 0.9, "assurance": SURE} | how)).fit(X, y)
    clf.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(again.predict_set(X_new), clf.predict_set(X_new))
    assert again.get_params()["assurance"] == SURE
    assert again.fitted_.assurance == Fraction(19, 20)
    assert str(again.evaluate(X_new, y_new)) == str(clf.evaluate(X_new, y_new))
    proto = tightset.to_onnx(clf)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    sets = np.squeeze(np.stack(session.run(None, {"X": X_new})))
    np.testing.assert_array_equal(sets, clf.predict_set(X_new))
    assert {one.key: one.value for one in proto.metadata_props}["assurance"] == "0.95"


def test_forged_assurance_is_refused(rows, tmp_path):
    path = tmp_path / "m.tightset"
    baseline(confidence=0.9, assurance=SURE).fit(*rows[:2]).save(path)
    written = path.read_bytes()

    def calibrated(about, value):
        (one,) = [node["fields"] for node in about["nodes"] if node.get("kind") == "Calibration"]
        one["assurance"] = value

    for value, message in (
        (0.5, "Calibration.assurance must be a fraction"),
        ({"fraction": "3/2"}, "Calibration.assurance must be a fraction"),
        (None, "its header says assurance that the model inside does not have"),
    ):
        path.write_bytes(forged(written, lambda about, _, value=value: calibrated(about, value)))
        with pytest.raises(ModelFileError, match=message):
            tightset.load(path)


def test_card_report_and_figures(rows, tmp_path):
    X, y, X_new, y_new = rows
    clf = baseline(confidence=[0.8, 0.9], assurance=SURE).fit(X, y)
    card = clf._repr_html_()
    assert "with 95% assurance" in card
    assert f"rank {rank(0.9, 250, SURE)} of 250" in card
    write_report(tmp_path / "r.html", clf, X_new, y_new)
    page = (tmp_path / "r.html").read_text()
    assert "with 95% probability they are such that new rows are covered" in page
    assert "95% assurance asks for more than 80%" in page
    assert "Here it is in that range" in page
    ax = plots.coverage(clf, X_new, y_new)
    assert "250 calibration rows, 95 % assurance" in ax.get_xlabel()
    (band,) = ax.collections
    given = plots.coverage(clf.evaluate(X_new, y_new), calibration_rows=250)
    assert "95 % assurance" in given.get_xlabel()
    assert band.get_paths()[0].vertices[:, 1].max() > 0.9
    ax = plots.p_values(clf, X_new[0], confidence=0.9)
    assert f"line with assurance: {rank(0.9, 250, SURE) / 251:.3g}" in [
        one.get_text() for one in ax.get_legend().get_texts()
    ]
    by_label = baseline(confidence=0.8, assurance=SURE, label_conditional=True).fit(X, y)
    ax = plots.p_values(by_label, X_new[0])
    assert len({tuple(one[0]) for one in ax.collections[0].get_segments()}) == 3
    write_report(tmp_path / "l.html", by_label, X_new, y_new)
    assert "new rows of a given label are covered" in (tmp_path / "l.html").read_text()


def test_commands(here, cli):
    words = ("fit", "train.csv", "--target", "kind", *FAST)
    assert cli(*words, "--assurance", "0.95", "--out", "sure.tightset")[0] == 0
    sure = tightset.load("sure.tightset")
    assert sure.predictor.assurance == sure.baseline.assurance == SURE
    new = table(50, seed=2)
    plain = tightset.load("m.tightset")
    assert plain.predict_set(new).sum() < sure.predict_set(new).sum()
    code, out, _ = cli("info", "sure.tightset")
    assert code == 0
    assert "assurance:" in out
    assert f"0.9: 150 calibration rows, rank {rank(0.9, 150, SURE)}" in out
    code, out, _ = cli("evaluate", "sure.tightset", "test.csv")
    assert "With assurance 0.95, coverage of all future rows should lie above the level; that of the" in out
    told = json.loads(cli("evaluate", "sure.tightset", "test.csv", "--json")[1])
    assert told["predictor"][0]["assurance"] == SURE
    code, out, _ = cli("compare", "train.csv", "--target", "kind", *FAST, "--splits", "1", "--assurance", "0.9")
    assert code == 0
    refused(cli, "95 is not between 0 and 1; 95% is 0.95", *words, "--assurance", "95", code=2)
    code, out, _ = cli("explain", "sure.tightset", "test.csv", "--row", "3")
    assert code == 0


def test_explain_tells_the_level_above_which_a_label_is_in_the_set():
    model = fit_table(table(), "kind", baseline(confidence=0.9, assurance=0.9))  # one measure for all levels
    new, tried = table(20, seed=3), 0
    for at in range(20):
        levels = [explain(model, new.iloc[[at]], 0.9).joins_above(label) for label in range(3)]
        for label, level in enumerate(levels):
            if 0.01 < level < 0.95:
                tried += 1
                below, above = (
                    explain(model, new.iloc[[at]], round(level + by, 8)).kept[label] for by in (-1e-6, 1e-6)
                )
                assert (below, above) == (False, True)
    assert tried > 20


def test_training_knows_the_numbers_of_calibration_rows_by_category_only():
    y, groups = np.array([0] * 60 + [1] * 80 + [-1] * 60), np.arange(200) % 2  # -1 is a label that training had not

    def known(*, by_label, groups=None):
        rows = CalibrationRows(np.zeros((200, 1)), y, groups)
        return assured_errors([0.9], rows, SURE, by_label=by_label)[0.9]

    assert known(by_label=False) == Fraction(rank(0.9, 200, SURE), 201)  # a row of any label calibrates
    assert known(by_label=False, groups=groups) == Fraction(rank(0.9, 100, SURE), 101)
    assert known(by_label=True) == Fraction(rank(0.9, 70, SURE), 71)
