"""The paper's avila at 95 %, on the real data: slow, and run wherever the data are."""

from pathlib import Path

import pytest

from studies.datasets import load
from studies.experiments import PAPER
from studies.runner import read_rows
from tightset import ConformalClassifier, SCPOClassifier

STORED = Path(__file__).parents[2] / "results" / "paper" / "rows.csv"


@pytest.mark.slow
def test_avila_is_within_8_percent_of_the_paper(raw_data):
    """At the point of the paper's grid that the stored run chose; the choice itself is tested on smaller data."""
    wanted = {"dataset": "avila", "seed": "0", "method": "scpo", "f": "size", "form": "-1/L", "confidence": "0.95"}
    (stored,) = (
        row for row in read_rows(STORED, PAPER.columns) if wanted.items() <= row.items() and row["steps"] == "1000"
    )
    point = {name: (float(stored[name]),) for name in ("penalty", "sharpness", "learning_rate")}
    s = load("avila", 0, raw_data)
    scpo, base = (
        clf.fit(s.X_train, s.y_train, X_cal=s.X_cal, y_cal=s.y_cal).evaluate(s.X_test, s.y_test)
        for clf in (SCPOClassifier.paper(0.95, **point), ConformalClassifier(confidence=0.95))
    )
    # Coverage given 3476 calibration and 10437 test rows has a deviation of 0.0043.
    for row in (scpo, base):
        assert abs(row["coverage"] - 0.95) < 4 * 0.0043
    assert scpo["mean_size"] == pytest.approx(float(stored["mean_size"]), rel=0.01)
    assert scpo["mean_size"] == pytest.approx(3.04, rel=0.08)
    assert base["mean_size"] == pytest.approx(4.7, rel=0.08)
