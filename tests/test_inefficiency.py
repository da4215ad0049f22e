import numpy as np
import pytest

from tightset.inefficiency import LOG, SIZE, Inefficiency, as_inefficiency, power


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
    with pytest.raises(ValueError, match=r"does not fit the function at w = 0\.1: it returns 0\.3.*give 0\.2"):
        Inefficiency("square", lambda w: w**2, lambda w: 3 * w)


def test_derivative_wrong_at_one_place_only_is_refused_there():
    with pytest.raises(ValueError, match="at w = 5:"):
        as_inefficiency((lambda w: w, lambda w: np.where(w > 4, 2.0, 1.0)))


@pytest.mark.parametrize("pair", [(lambda w: 1.0, lambda w: 0.0), (lambda w: w.sum(), lambda w: np.ones_like(w))])
def test_functions_that_are_not_elementwise_are_refused(pair):
    with pytest.raises(ValueError, match="elementwise"):
        as_inefficiency(pair)


@pytest.mark.parametrize("spec", ["sizes", None, -1, 0, True, (1, 2), np.inf, (np.square,)])
def test_nonsense_is_refused(spec):
    with pytest.raises(ValueError, match=r"inefficiency must be|power must be"):
        as_inefficiency(spec)


def test_power_below_one_has_a_finite_slope_at_zero():
    assert np.isfinite(power(0.5).derivative(np.zeros(1))).all()
