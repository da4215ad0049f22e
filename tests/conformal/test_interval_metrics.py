"""Metrics of ordered labels: widths with and without gaps, and the distance of misses."""

import numpy as np
import pytest

from tightset.conformal.interval_metrics import widths
from tightset.metrics import evaluate_intervals

SETS = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]], dtype=bool)


def by_hand(sets, y, order):
    width, gaps, off = [], [], []
    place = {label: rank for rank, label in enumerate(order)}
    for row, label in zip(sets, y, strict=True):
        ranks = sorted(place[c] for c in np.flatnonzero(row))
        width.append(ranks[-1] - ranks[0] + 1 if ranks else 0)
        gaps.append(bool(ranks) and ranks != list(range(ranks[0], ranks[-1] + 1)))
        if ranks and label >= 0 and place[label] not in ranks:
            off.append(min(abs(place[label] - rank) for rank in ranks))
    return np.mean(width), np.mean(gaps), np.mean(off), sum(one > 1 for one in off) / len(y)


def test_widths_count_gaps_and_empty_sets_have_none():
    assert widths(SETS, np.arange(4)).tolist() == [2, 4, 0, 1, 4]
    assert widths(SETS, np.array([3, 0, 1, 2])).tolist() == [2, 2, 0, 1, 4]


def test_the_figures_are_those_of_rows_one_by_one():
    rng = np.random.default_rng(0)
    sets, y, order = rng.random((300, 6)) < 0.4, rng.integers(-1, 6, 300), rng.permutation(6)
    found = evaluate_intervals(sets, y, order=order)
    assert list(found) == ["mean_width", "with_gaps", "miss_distance", "missed_by_more"]
    np.testing.assert_allclose(list(found.values()), by_hand(sets, y, order))


def test_rows_without_a_distance():
    found = evaluate_intervals(SETS[2:4], np.array([0, -1]))  # an empty set, and a label that no set can hold
    assert np.isnan(found["miss_distance"])
    assert found["missed_by_more"] == 0
    np.testing.assert_equal(evaluate_intervals(SETS[2:4], np.array([0, -40])), found)
    assert evaluate_intervals(SETS[:1], np.array([3]))["miss_distance"] == 2


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 1, 2], [0.0, 1.0, 2.0, 3.0], [1, 2, 3, 4]], ids=str)
def test_orders_that_are_none(order):
    with pytest.raises(ValueError, match="order must hold the numbers of the 4 columns, each once"):
        evaluate_intervals(SETS, np.zeros(5, dtype=int), order=order)
