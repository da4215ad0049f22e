"""Calibration rows that say within which distance scores tie."""

import numpy as np

from tightset.estimators.calibrating import _commonest


def test_a_row_of_each_score_and_the_commonest_first():
    rng = np.random.default_rng(0)
    scores = np.repeat([0.5, 0.1, 0.3, 0.2], [3, 1, 5, 1])
    order = rng.permutation(10)
    rows, tied = _commonest(scores[order], 3)
    assert scores[order][rows].tolist() == [0.3, 0.5, 0.1]
    assert tied == 2


def test_of_scores_that_are_all_different_the_lowest():
    scores = np.random.default_rng(0).permutation(1000) / 1000
    scores[scores == 0] = -np.inf
    for one in (scores, np.append(scores, -np.inf)):  # one pair changes the way, not the rows
        rows, tied = _commonest(one, 100)
        assert tied == len(one) - 1000
        assert (one[rows] < 0.1).all()
        assert len(set(rows.tolist())) == 100
