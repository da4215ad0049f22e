import numpy as np
import pytest

from tightset.conformal.inefficiency import LOG, SIZE, Inefficiency, as_inefficiency, power


@pytest.mark.parametrize("spec", ["size", "log", 1, 2, 0.5, (np.square, lambda w: 2 * w)])
def test_derivative_fits_between_the_probed_points(spec):
    f = as_inefficiency(spec)
    w = np.linspace(0.05, 20, 97)
    numeric = (f(w + 1e-6) - f(w - 1e-6)) / 2e-6
    np.testing.assert_allclose(f.derivative(w), numeric, rtol=1e-6)


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
