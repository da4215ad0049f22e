import numpy as np
import pytest

from tightset import SCPOClassifier, load
from tightset.conformal.inefficiency import EXCESS, LOG, MULTIPLE, SIZE, Inefficiency, as_inefficiency, power
from tightset.conformal.metrics import evaluate

NAMES = ["size", "log", "excess", "multiple", "M", "N", "E", "OE", "OM"]


@pytest.mark.parametrize("spec", [*NAMES, 1, 2, 0.5, (np.square, lambda w: 2 * w)])
def test_derivative_fits_between_the_probed_points(spec):
    f = as_inefficiency(spec)
    w = np.linspace(0.05, 20, 97)
    numeric = (f(w + 1e-6) - f(w - 1e-6)) / 2e-6
    np.testing.assert_allclose(f.derivative(w), numeric, rtol=1e-6, atol=1e-8)


def test_values_on_counts_are_those_of_the_paper():
    w = np.array([0.0, 1.0, 4.0])
    np.testing.assert_array_equal(SIZE(w), w)
    np.testing.assert_allclose(LOG(w), np.log([1, 2, 5]))
    np.testing.assert_allclose(power(2)(w), [0, 1, 16])


def test_wrong_derivative_is_refused_with_the_point():
    with pytest.raises(ValueError, match=r"does not match the function at w = 0\.1: it returns 0\.3.*give 0\.2"):
        Inefficiency("square", lambda w: w**2, lambda w: 3 * w)


def test_derivative_wrong_at_one_place_only_is_refused_there():
    with pytest.raises(ValueError, match=r"at w = 5\.7:"):
        as_inefficiency((lambda w: w, lambda w: np.where(w > 4, 2.0, 1.0)))


@pytest.mark.parametrize("pair", [(lambda w: 1.0, lambda w: 0.0), (lambda w: w.sum(), lambda w: np.ones_like(w))])
def test_functions_that_are_not_elementwise_are_refused(pair):
    with pytest.raises(ValueError, match="elementwise"):
        as_inefficiency(pair)


@pytest.mark.parametrize("spec", ["sizes", None, -1, 0, True, (1, 2), np.inf, (np.square,)])
def test_nonsense_is_refused(spec):
    with pytest.raises(ValueError, match=r"inefficiency must be|power must be"):
        as_inefficiency(spec)


def test_kinks_at_whole_numbers_are_fine_and_an_infinite_cost_of_the_empty_set_is_not():
    excess = as_inefficiency((lambda w: np.maximum(w - 1, 0), lambda w: np.where(w > 1, 1.0, 0.0)))
    np.testing.assert_array_equal(excess(np.array([0.0, 1.0, 3.0])), [0, 0, 2])
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=r"f\(0\) must be finite"):
        as_inefficiency((np.log, lambda w: 1 / w))


@pytest.mark.parametrize("number", [2, 2.0, np.int64(2), np.float32(2)])
def test_any_kind_of_number_is_a_power(number):
    assert as_inefficiency(number).name == "w**2"


def test_power_below_one_has_a_finite_slope_at_zero():
    assert np.isfinite(power(0.5).derivative(np.zeros(1))).all()


def test_criteria_of_vovk_are_exact_at_whole_sizes():
    w = np.arange(12.0)
    np.testing.assert_array_equal(as_inefficiency("M")(w), w > 1)
    np.testing.assert_array_equal(as_inefficiency("excess")(w), np.maximum(w - 1, 0))
    np.testing.assert_array_equal(as_inefficiency("multiple")(w), (w > 1) + 0.05 * np.maximum(w - 1, 0))
    np.testing.assert_array_equal(as_inefficiency("OM")(w), w > 0)  # of false labels
    np.testing.assert_array_equal(as_inefficiency("OE")(w), w)
    assert as_inefficiency("N") is SIZE
    assert as_inefficiency("E") is EXCESS
    assert as_inefficiency("M") is MULTIPLE


@pytest.mark.parametrize("name", ["excess", "multiple", "M", "OM", "OE"])
def test_they_do_not_fall_and_have_no_kink(name):
    f = as_inefficiency(name)
    w = np.linspace(0, 4, 40_001)
    assert (np.diff(f(w)) >= 0).all()
    assert np.abs(np.diff(f.derivative(w))).max() < 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_taken_as_arrays_are(name, torch):
    f, w = as_inefficiency(name), np.linspace(0, 5, 101)
    for one in (f, f.derivative):
        np.testing.assert_allclose(one(torch.as_tensor(w)).numpy(), one(w), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "criterion"), [("N", "N"), ("M", "M"), ("excess", "E"), ("OM", "OM"), ("OE", "OE")])
def test_what_is_minimised_is_what_is_reported(name, criterion):
    rng = np.random.default_rng(0)
    sets = rng.random((200, 5)) < 0.4
    row = evaluate(sets, np.zeros(200, dtype=int), confidence=0.9, p=rng.random((200, 5)), f=as_inefficiency(name))
    assert row["inefficiency"] == row[criterion]
    assert row["OE"] == pytest.approx(row["N"] - row["coverage"])


@pytest.mark.parametrize(("name", "at_levels"), [("S", "N"), ("U", "M"), ("F", "E"), ("OU", "OM"), ("OF", "OE")])
def test_criteria_of_p_values_are_means_of_the_others_over_levels(name, at_levels):
    rng = np.random.default_rng(0)
    p, y = rng.integers(1, 101, (50, 4)) / 100, rng.integers(0, 4, 50)
    levels = np.arange(100) / 100 + 0.005
    rows = [evaluate(p > eps, y, confidence=0.9, p=p, f=as_inefficiency(at_levels)) for eps in levels]
    assert np.mean([row["inefficiency"] for row in rows]) == pytest.approx(rows[0][name])
    with pytest.raises(ValueError, match=rf"inefficiency='{name}' is made of p-values.*inefficiency='{at_levels}'"):
        as_inefficiency(name)


@pytest.mark.parametrize("name", ["multiple", "excess", "M", "OM"])
def test_a_classifier_is_trained_for_them_and_stored_with_the_name(name, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.argmax(X + rng.gumbel(size=X.shape), axis=1)
    clf = SCPOClassifier(0.8, inefficiency=name, search="fast", random_state=0).fit(X[:400], y[:400])
    clf.save(tmp_path / "model.tightset")
    row, again = clf.evaluate(X[400:], y[400:]), load(tmp_path / "model.tightset")
    assert again.inefficiency == name
    assert again.evaluate(X[400:], y[400:]) == pytest.approx(row, nan_ok=True)
    assert 0 < row["inefficiency"] < as_inefficiency(name)(np.array([4.0]))[0]
