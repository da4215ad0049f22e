"""The page about speed: what is stored, and that the page says it. No time is measured here."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks"

# Ratios that anyone who reads benchmarks/latest.json may count on. Peers that are optional may be left out.
PROMISED = [
    "step_over_floor", "step_speedup_vs_loop", "grid_speedup_vs_loop", "grid_speedup_vs_loop_covtype",
    "profiled_step_over_floor_linear", "profiled_step_over_floor_softmax", "profiled_step_over_floor_two_matrix",
    "slope_rows_avila", "slope_candidates_avila", "slope_rows_covtype", "slope_candidates_covtype", "slope_columns",
    "slope_classes", "slope_default_fit_rows", "float32_over_float64_size", "default_fit_over_logistic",
    "default_fit_over_logistic_cv", "fast_fit_over_logistic", "fast_fit_over_logistic_cv",
    "mapie_over_tightset_sets_1m", "mapie_over_tightset_predict_1m", "pvalues_over_sort_10m",
    "import_over_sklearn_linear_model", "import_classes_over_sklearn_linear_model",
]  # fmt: skip


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", STORED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(STORED))  # where its neighbours are
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(STORED))
    return module


@pytest.fixture(scope="module")
def page():
    return script("page")


@pytest.fixture(scope="module")
def clock():
    return script("clock")


def stored(name):
    return json.loads((STORED / name).read_text())


def test_the_page_is_what_the_stored_results_say(page):
    assert page.text(STORED) == (ROOT / "docs" / "performance.md").read_text()


def test_ratios_are_flat_and_each_has_its_spread():
    ratios = stored("latest.json")
    names = [name for name in ratios if not name.endswith("_spread")]
    assert set(PROMISED) <= set(names)
    assert set(ratios) == {*names, *(f"{name}_spread" for name in names)}
    assert all(isinstance(value, float) and value >= 0 for value in ratios.values())


def test_details_belong_to_the_same_run():
    ratios, details = stored("latest.json"), stored("latest-details.json")
    assert {f"{name}{end}" for name in details["measured"] for end in ("", "_spread")} == set(ratios)
    assert not set(details["left_out"]) & set(ratios)


def test_every_ratio_with_a_bound_is_judged(page):
    floor = page.LINES["step_over_floor"]
    assert (floor.bound(), floor.verdict(1.2), floor.verdict(1.9)) == ("at most 1.8", "yes", "**no**")
    slope = page.LINES["slope_rows_avila"]
    assert (slope.bound(), slope.verdict(0.8), slope.verdict(1.0)) == ("0.9 to 1.1", "**no**", "yes")
    free = page.Line("something")
    assert (free.bound(), free.verdict(3.0)) == ("", "")


def test_sections_of_what_was_not_measured_are_left_out(page):
    assert page.gpu_section({}) == page.dask_section({}) == page.ways_section({}) == ""


def test_a_gpu_and_workers_have_their_sections(page):
    gpu, dask = stored("gpu.json"), stored("dask.json")
    assert f"**{gpu['ms_per_step_400_covtype']:.3f} ms**" in page.gpu_section(gpu)
    assert "A bound is missed" not in page.gpu_section(gpu)
    assert "A bound is missed" in page.gpu_section(gpu | {"ms_per_step_400_covtype": 0.51})
    assert "50,000,000 rows of 20 columns" in page.dask_section(dask)
    assert "**not** equal" not in page.dask_section(dask)
    assert "**not** equal" in page.dask_section(dask | {"killed_sets_equal": False})
    assert max(dask["peak_worker_gb"]) < 2
    assert dask["theta_difference"] <= 1e-6
    assert page.gpu_section({}) == page.dask_section({}) == ""


def test_sides_take_turns_after_one_that_is_not_counted(clock):
    order = []
    times = clock.take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    assert order == ["a", "b"] * 3
    assert {name: len(row) for name, row in times.items()} == {"a": 2, "b": 2}


def test_the_slope_is_the_power(clock):
    assert clock.slopes({5: [5.0, 25.0], 20: [20.0, 400.0], 80: [80.0, 6400.0]}) == pytest.approx([1, 2])


def test_a_ledger_keeps_the_median_and_the_quartile_distance(clock, capsys):
    ledger = clock.Ledger()
    ledger.add("some_ratio", [1.0, 2.0, 3.0, 4.0, 50.0], "why", rows=7)
    ledger.leave_out("another", ImportError("No module named 'x'"))
    assert ledger.ratios == {"some_ratio": 3.0, "some_ratio_spread": 2.0}
    assert ledger.details == {"some_ratio": {"rounds": 5, "rows": 7}}
    assert ledger.left_out == {"another": "ImportError: No module named 'x'"}
    assert "why" in capsys.readouterr().out


def test_memory_at_the_peak_is_seen(clock):
    with clock.PeakMemory() as memory:
        held = bytearray(50_000_000)
    del held
    assert memory.extra is None or 45 < memory.extra < 200
