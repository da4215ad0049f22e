"""Beside other libraries: the study, its stored results, the page written from them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from studies.experiments import LEVELS
from studies.peers import BASES, PEER_METHODS, PEERS, TRAINED, Peer, Workshop, plan
from studies.peers_report import Ratio, _key, best_table, ratios, short_table, write_peers
from studies.recipes import DATASETS
from studies.runner import ResultsError, read_rows

ROOT = Path(__file__).parents[2]
STORED = ROOT / "results" / "peers"


@pytest.fixture(scope="module")
def stored():
    return {_key(row): row for row in read_rows(STORED / "rows.csv", PEERS.columns)}


def test_the_plan_has_every_library_on_every_classifier():
    rows = plan()
    assert len(set(rows)) == len(rows)
    assert Counter(row.seed for row in rows if row[2:] == ("auto", "scpo", 0.99)) == dict.fromkeys(range(5), 7)
    of_dna = {row[2:4] for row in rows if row.dataset == "dna"}
    wrapped = {(base, method) for base in BASES if base != "lightgbm" for method in ("lac", *PEER_METHODS)}
    assert wrapped <= of_dna
    assert {(base, "scpo") for base in TRAINED} <= of_dna
    assert ("rf", "mapie-aps") not in {row[2:4] for row in rows if row.dataset == "wine"}  # two classes


def test_stored_results_are_whole_and_the_page_is_written_from_them(stored, tmp_path):
    assert set(stored) == set(plan())
    write_peers(STORED, tmp_path / "peers.md")
    assert (tmp_path / "peers.md").read_text() == (ROOT / "docs" / "peers.md").read_text()


def test_what_the_page_claims(stored):
    """The bounds that were set beforehand; where one is missed, the page says so and this test knows which."""
    cells = ratios(stored)
    assert len(cells) == len(DATASETS) * len(TRAINED) * len(LEVELS)
    assert np.exp(np.mean([np.log(c.ratio) for c in cells])) <= 0.985
    assert np.exp(np.mean([np.log(c.ratio) for c in cells if c.confidence == 0.99])) <= 0.97
    assert [c[:3] for c in cells if c.ratio > 1.01] == []
    for column, larger in (("mean_size", []), ("mean_size_divided", ["avila"])):
        best = best_table(stored, column)
        assert len(best) == len(DATASETS)
        assert [b.dataset for b in best if b.ratio > 1.0] == larger
        assert max(b.ratio for b in best) < 1.001
        assert np.exp(np.mean([np.log(b.ratio) for b in best])) < 0.98


def test_the_readme_has_the_stored_figures(stored):
    readme = (ROOT / "README.md").read_text()
    assert short_table(best_table(stored, "mean_size_divided")) in readme
    cells = ratios(stored)
    ratio = np.exp(np.mean([np.log(c.ratio) for c in cells]))
    assert f"the geometric mean of the ratio to its plain threshold is {ratio:.3f}" in readme


def test_coverage_is_what_was_asked_for(stored):
    for method in ("lac", "scpo"):
        off = [float(row["coverage_divided"]) - key.confidence for key, row in stored.items() if key.method == method]
        assert abs(np.mean(off)) < 0.002


def test_a_row_is_what_the_libraries_say(raw_data):
    workshop = Workshop("wine", 0, raw_data, None)
    rows = {m: workshop.measure(Peer("wine", 0, "logistic", m, 0.9)) for m in ("lac", "mapie-lac", "puncc", "crepes")}
    assert rows["lac"]["mean_size"] == rows["mapie-lac"]["mean_size"] == rows["puncc"]["mean_size"]
    assert rows["mapie-lac"]["equals_lac"]
    assert abs(rows["crepes"]["mean_size"] - rows["lac"]["mean_size"]) < 0.02
    assert abs(rows["lac"]["mean_size_divided"] - rows["lac"]["mean_size"]) < 0.1
    assert all(float(row["seconds"]) > 0 for row in rows.values())


def test_what_is_trained_is_measured(raw_data, monkeypatch):
    monkeypatch.setitem(BASES, "rf", lambda seed: RandomForestClassifier(20, random_state=seed))
    workshop = Workshop("mice", 0, raw_data, None)
    size = {
        method: workshop.measure(Peer("mice", 0, "rf", method, 0.95))["mean_size_divided"]
        for method in ("lac", "scpo", "averaged")
    }
    assert 0.9 < size["scpo"] < 1.02 * size["averaged"]
    assert size["averaged"] < size["lac"]


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(ResultsError, match="python -m studies peers run"):
        write_peers(tmp_path, tmp_path / "peers.md")


def test_a_ratio_is_that_of_means():
    cell = Ratio("dna", "rf", 0.9, np.array([1.0, 3.0]), np.array([1.0, 1.0]), np.array([1.0, 2.0]))
    assert cell.ratio == 0.5
