"""The study of networks: its plan, the losses that it compares with, and the page that is written from stored results."""

import json
from pathlib import Path

import numpy as np
import pytest

from studies.runner import ResultsError, read_rows

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _there(torch):
    pass


def test_every_method_is_trained_once_for_each_level():
    from studies.neural import FAMILIES, LEVELS, METHODS, plan

    rows = plan(range(2))
    assert len(set(rows)) == len(rows) == 2 * len(METHODS) * len(LEVELS)
    assert {one.method for one in plan([0], ["scpo"])} == set(FAMILIES["scpo"])


def test_the_page_is_that_of_the_stored_rows(tmp_path):
    from studies.neural_report import write_neural

    write_neural(ROOT / "results/neural", tmp_path / "neural.md")
    assert (tmp_path / "neural.md").read_text() == (ROOT / "docs/neural.md").read_text()


def test_stored_rows_are_of_the_plan():
    from studies.neural import NEURAL, plan

    known = {tuple(map(str, one)) for one in plan()}
    files = sorted((ROOT / "results/neural").rglob("rows.csv"))
    assert files
    for file in files:
        for row in read_rows(file, NEURAL.columns):
            assert tuple(row[name] for name in NEURAL.key) in known


def test_no_results_no_page(tmp_path):
    from studies.neural_report import write_neural

    with pytest.raises(ResultsError, match="holds no results; run: python -m studies neural run"):
        write_neural(tmp_path, tmp_path / "neural.md")


def test_the_page_says_who_measured_what_and_what_is_missing(tmp_path):
    from studies.neural import NEURAL, plan
    from studies.neural_report import write_neural

    rows = [one for split in (10, 11) for one in plan([split], ["scpo"]) if (split, one.method) != (11, "SCPO")]
    sessions = [{"hardware": "a large machine", "rows": 6}, {"hardware": "a small one", "rows": 4}]
    lines = [",".join(NEURAL.columns)]
    for at, one in enumerate(rows):
        figures = [0.95, 2.0 + 0.01 * at, 0.9, 0.95, 1.9, 0.9, 2.0]
        lines.append(",".join(map(str, [one.dataset, one.seed, f'"{one.method}"', one.confidence, *figures, "{}"])))
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.json").write_text(json.dumps(sessions))
    write_neural(tmp_path, tmp_path / "page.md", tmp_path / "not-there.json")
    page = (tmp_path / "page.md").read_text()
    assert (
        "6 rows on a large machine; 4 rows on a small one: *cross-entropy* (split 11); *cross-entropy, averaged*"
        in page
    )
    assert f"**{len(plan()) - 10} of {len(plan())} rows are not measured:** *cross-entropy* (splits 12, 13, 14)" in page
    assert "*SCPO* (splits 11, 12, 13, 14); *ConfTr, class loss*;" in page
    assert "## On a GPU" not in page
    assert "(-" not in page.split("### In words")[1]  # no interval of two splits


@pytest.mark.parametrize(("ratio", "replayed"), [(1.4, True), (2.0, False)])
def test_the_page_says_what_a_gpu_takes_and_where_it_takes_too_long(tmp_path, ratio, replayed):
    from studies.neural_gpu import SPEED
    from studies.neural_report import write_neural

    stored = json.loads(SPEED.read_text())
    stored["epochs"] = [stored["epochs"][0] | {"ratio": ratio, "replayed": replayed}]
    (tmp_path / "speed.json").write_text(json.dumps(stored))
    write_neural(ROOT / "results/neural", tmp_path / "page.md", tmp_path / "speed.json")
    page = (tmp_path / "page.md").read_text()
    assert ("2.00 (**missed**) (1) |" in page) != replayed
    assert ("| 1.40 |" in page) == replayed
    assert ("not\nmeasured on a GPU" in page) != replayed


def test_the_rivals_are_what_their_papers_say(torch):
    from studies.rivals import ConfTr, RankWeighted

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (400,), generator=generator)
    log_p = torch.log_softmax(logits, 1).numpy()
    own = np.sort(log_p[np.arange(200), y[:200]])
    tau = own[int(0.1 * 201) - 1]
    # Cold sigmoids count: the size of sets that are cut at the quantile of the first half.
    sizes = (log_p[200:] >= tau).sum(axis=1)
    cold = ConfTr(0.1, temperature=1e-6, nearest=5)
    assert cold(logits, y).item() == pytest.approx(np.log(np.maximum(sizes - 1, 0).mean()), abs=1e-5)
    missed = (log_p[np.arange(200, 400), y[200:]] < tau).mean()
    both = ConfTr(0.1, temperature=1e-6, nearest=5, class_loss=1.0)
    assert both(logits, y).item() == pytest.approx(np.log(np.maximum(sizes - 1, 0).mean() + missed), abs=1e-5)
    assert ConfTr(0.1, temperature=1e-6, spread=1e-9)(logits, y).item() == pytest.approx(
        cold(logits, y).item(), abs=1e-5
    )
    # The gradient of the quantile is a mean over the nearest scores, each in its own row.
    logits.requires_grad_()
    scores = torch.log_softmax(logits, 1)[torch.arange(400), y]
    cold.quantile(scores[:200]).backward()
    assert int((logits.grad.abs().sum(1) > 0).sum()) == 5
    assert logits.grad[200:].abs().max() == 0
    # Rows whose label is ranked first weigh least.
    equal = torch.zeros(1, 4, dtype=torch.float64).repeat(2, 1)
    equal[0, 0] = equal[1, 1] = 1.0
    rank = RankWeighted()(equal, torch.tensor([0, 0]))
    first, second = (torch.nn.functional.cross_entropy(equal[i : i + 1], torch.tensor([0])) for i in (0, 1))
    assert rank.item() == pytest.approx(((1 * first + 2 * second) / 3).item())


def test_a_row_is_measured_and_does_not_depend_on_who_trains(torch, raw_data, monkeypatch):
    import studies.neural as study
    from tightset import Training

    monkeypatch.setattr(study, "CROSS_ENTROPY", [Training(epochs=0, warm_epochs=1)])
    monkeypatch.setattr(study, "_EPOCHS", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = []
        for workers in (1, 2):
            workshop = study.Workshop("fashion-mnist", 0, raw_data, None, workers)
            methods = ("cross-entropy", "SCPO, shared body")[: 2 if workers == 1 else 1]
            found.append([workshop.measure(study.Trained("fashion-mnist", 0, one, 0.95)) for one in methods])
    finally:
        torch.set_num_threads(threads)
    assert found[1] == found[0][:1]
    for row in found[0]:
        assert set(row) == set(study.COLUMNS)
        assert row["coverage"] == pytest.approx(0.95, abs=0.01)
        assert row["coverage_together"] == pytest.approx(0.95, abs=0.01)
        assert 1.3 < row["mean_size_together"] < row["mean_size"] < 4.5
