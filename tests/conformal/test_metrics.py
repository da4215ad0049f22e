import numpy as np
import pytest
from scipy import stats

from tightset.conformal.inefficiency import LOG
from tightset.conformal.metrics import bootstrap_difference, evaluate, sign_test, sign_test_p_value, vovk_criteria

SETS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=bool)
P = np.array([[0.5, 0.1, 0.02], [0.4, 0.3, 0.05], [0.04, 0.03, 0.01], [0.9, 0.8, 0.7]])
Y = np.array([0, 2, 0, 1])


def test_row_of_a_small_example_worked_out_by_hand():
    row = evaluate(SETS, Y, confidence=0.9, p=P, f=LOG, labels=["a", "b", "c"])
    assert row["n"] == 4
    assert row["coverage"] == 0.5
    assert row["mean_size"] == 1.5
    assert row["inefficiency"] == pytest.approx((np.log(2) + np.log(3) + 0 + np.log(4)) / 4)
    assert (row["empty"], row["singleton"]) == (0.25, 0.25)
    assert [row[f"share_of_size_{w}"] for w in range(4)] == [0.25] * 4
    assert [row[f"coverage_of_size_{w}"] for w in range(4)] == [0, 1, 0, 1]
    assert [row[f"coverage_of_label_{c}"] for c in "abc"] == [0.5, 1, 0]
    assert row["worst_label_gap"] == pytest.approx(0.9)


def test_criteria_of_vovk_worked_out_by_hand():
    expected = {
        "S": (0.62 + 0.75 + 0.08 + 2.4) / 4,
        "N": 1.5,
        "U": (0.1 + 0.3 + 0.03 + 0.8) / 4,
        "M": 0.5,
        "F": (0.12 + 0.35 + 0.04 + 1.5) / 4,
        "E": (0 + 1 + 0 + 2) / 4,
        "OU": (0.1 + 0.4 + 0.03 + 0.9) / 4,
        "OM": 0.5,
        "OF": (0.12 + 0.7 + 0.04 + 1.6) / 4,
        "OE": (0 + 2 + 0 + 2) / 4,
    }
    assert vovk_criteria(SETS, P, Y) == pytest.approx(expected)


def test_rows_are_flat_and_made_of_plain_numbers():
    row = evaluate(SETS, Y, confidence=0.9, p=P)
    assert all(type(value) in (int, float) for value in row.values())


def test_a_label_absent_from_the_rows_has_no_coverage():
    row = evaluate(SETS[:1], Y[:1], confidence=0.9)
    assert np.isnan(row["coverage_of_label_1"])
    assert row["coverage_of_label_0"] == 1


def test_sign_test_is_the_binomial_test():
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = rng.integers(1, 4, (2, int(rng.integers(1, 200))))
        result = sign_test(a, b)
        if (a != b).any():
            expected = stats.binomtest(int((a < b).sum()), int((a != b).sum())).pvalue
            assert result.p_value == pytest.approx(expected)
        assert result.first_smaller == (a < b).sum()
    assert sign_test(np.ones(3), np.ones(3)).p_value == 1


def test_bootstrap_interval_agrees_with_the_normal_one():
    rng = np.random.default_rng(1)
    a, b = rng.integers(1, 6, 2000), rng.integers(1, 5, 2000)
    found = bootstrap_difference(a, b, random_state=0)
    mean, error = (a - b).mean(), (a - b).std() / np.sqrt(2000)
    assert found.difference == pytest.approx(mean)
    assert found.low == pytest.approx(mean - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(mean + 1.96 * error, abs=0.1 * error)
    assert bootstrap_difference(a, b, random_state=0) == found
    small = bootstrap_difference(a.astype(np.uint8), b.astype(np.uint8), random_state=0)
    assert small == found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sets": SETS * 2}, "sets must be rows x labels of True and False"),
        ({"sets": SETS[0]}, "sets must be rows x labels"),
        ({"sets": np.ma.masked_array(SETS, mask=~SETS)}, "must not be masked"),
        ({"y": Y[:3]}, "y must be the column of each row's label"),
        ({"y": Y + 1}, "below 3 .* up to 3"),
        ({"y": np.array(["a", "b", "c", "c"])}, "4 whole numbers"),
        ({"confidence": 95}, "confidence must be between 0 and 1; got 95"),
        ({"labels": ["a", "b"]}, "a name for each of the 3 columns of sets; got 2"),
        ({"p": np.zeros((4, 6))}, r"p must have the shape of sets, \(4, 3\); got \(4, 6\)"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(changed, message):
    how = {"sets": SETS, "y": Y, "confidence": 0.9} | changed
    with pytest.raises(ValueError, match=message):
        evaluate(how.pop("sets"), how.pop("y"), **how)


def test_lists_and_zeros_and_ones_are_sets_too():
    expected = evaluate(SETS, Y, confidence=0.9)
    given = evaluate(SETS.astype(int).tolist(), Y.tolist(), confidence=0.9)
    np.testing.assert_equal(given, expected)


@pytest.mark.parametrize("test", [sign_test, bootstrap_difference])
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [([1, 2, 3], [1], "the same rows"), ([1, np.nan], [1, 2], "finite"), ([], [], "the same rows")],
)
def test_what_cannot_be_paired_is_refused(test, first, second, message):
    with pytest.raises(ValueError, match=message):
        test(first, second)


def test_a_sign_test_counts_rows():
    with pytest.raises(ValueError, match="whole numbers of at least 0; got -1"):
        sign_test_p_value(-1, 5)
