"""The study of training for what is asked: its plan, and the page that is written from stored results."""

from pathlib import Path

import pytest

from studies.asked import ASKED, plan
from studies.asked_report import write_asked
from studies.runner import ResultsError, read_rows

ROOT = Path(__file__).parents[2]


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
