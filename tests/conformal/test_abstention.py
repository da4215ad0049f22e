"""The certified error rate among answered rows: kept in 2,000 draws of calibration rows, whatever margins tell."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom

from tightset.conformal import abstention
from tightset.conformal.abstention import (
    Abstention,
    answered_and_wrong,
    highest_and_margin,
    rows_needed,
    top_and_margin,
)
from tightset.estimators.pieces import OwnScores

DRAWS, ERROR, ASSURANCE = 2000, 0.05, 0.95


class Law:
    """Margins that are one of ``values`` with equal chance, and the chance of an error at each."""

    def __init__(self, values, chances):
        self.values, self.chances = np.asarray(values, dtype=float), np.broadcast_to(chances, len(values))

    def draw(self, n, rng):
        at = rng.integers(len(self.values), size=n)
        return self.values[at], rng.random(n) < self.chances[at]

    def error(self, threshold):
        """The true error rate of answered rows, 0 if there is none."""
        return np.mean(self.chances[self.values > threshold]) if (self.values > threshold).any() else 0.0

    def share(self, threshold):
        return np.mean(self.values > threshold)


CERTAIN = np.linspace(0, 1, 20_001)  # of a law without noticeable ties
LAWS = {
    "margins that tell": Law(CERTAIN, 0.5 * (1 - CERTAIN) ** 2),
    "margins that tell much": Law(CERTAIN, np.where(CERTAIN > 0.5, 0.0, 0.5)),
    "margins that tell nothing": Law(CERTAIN, 0.0501),
    "the most certain are worst": Law(CERTAIN, 0.02 + 0.1 * CERTAIN),
    "bad in the middle": Law(CERTAIN, 0.3 * np.exp(-(((CERTAIN - 0.85) / 0.05) ** 2))),
    "constant margins": Law([0.3], 0.0501),
    "few margins": Law([0.1, 0.2, 0.3, 0.9, 0.9], [0.5, 0.2, 0.052, 0.051, 0.051]),
    "endless margins": Law([0.0, 1.0, 1e300], [0.3, 0.0501, 0.0501]),
}


def thresholds(law, n, rng, certify):
    for _ in range(DRAWS):
        yield certify(*law.draw(n, rng))


def certified(margins, wrong):
    return Abstention.of(margins, wrong).threshold(ERROR, ASSURANCE)


@pytest.mark.parametrize("n", [150, 1200])
@pytest.mark.parametrize("name", LAWS)
def test_the_promise_is_kept_in_2000_draws(name, n):
    law, rng = LAWS[name], np.random.default_rng(n)
    failed = sum(t is not None and law.error(t) > ERROR for t in thresholds(law, n, rng, certified))
    assert failed <= binom.ppf(0.999, DRAWS, 1 - ASSURANCE)


def test_the_promise_is_nearly_used_up_where_every_threshold_is_barely_bad():
    law, rng = LAWS["constant margins"], np.random.default_rng(0)
    failed = sum(t is not None for t in thresholds(law, 1200, rng, certified))
    assert failed >= binom.ppf(0.001, DRAWS, 0.03)  # a single test, whose binomial tail is below 0.05 by its steps


def test_a_rule_without_a_certificate_would_be_found_out():
    def hopeful(margins, wrong):
        order = np.argsort(-margins, kind="stable")
        fine = np.flatnonzero(np.cumsum(wrong[order]) <= ERROR * np.arange(1, len(order) + 1))
        return margins[order[fine[-1]]] if len(fine) else None

    law, rng = LAWS["margins that tell"], np.random.default_rng(0)
    failed = sum(t is not None and law.error(t) > ERROR for t in thresholds(law, 1200, rng, hopeful))
    assert failed > 0.3 * DRAWS


@pytest.mark.parametrize(
    ("name", "n", "at_least"),
    [
        ("margins that tell", 1200, 0.36),  # of 0.55 that would be answered if the law were known
        ("margins that tell", 20_000, 0.51),
        ("margins that tell much", 1200, 0.50),  # of 0.56
        ("bad in the middle", 20_000, 0.60),  # where the first start fails often, and a later one does not
    ],
)
def test_many_rows_are_answered(name, n, at_least):
    law, rng = LAWS[name], np.random.default_rng(1)
    found = [certified(*law.draw(n, rng)) for _ in range(100)]
    assert np.mean([0.0 if t is None else law.share(t) for t in found]) >= at_least


def test_fewer_errors_or_a_larger_error_never_answer_fewer_rows():
    margins, wrong = LAWS["margins that tell"].draw(3000, np.random.default_rng(2))
    found = Abstention.of(margins, wrong)
    levels = [found.threshold(error, ASSURANCE) for error in (0.03, 0.05, 0.1, 0.2, 0.5)]
    assert all(a >= b for a, b in pairwise(levels))
    assert levels[-1] == -1  # all
    assert Abstention.of(margins, np.zeros(3000, dtype=bool)).threshold(ERROR, ASSURANCE) == -1


@pytest.mark.parametrize(("error", "assurance"), [(0.05, 0.95), (0.01, 0.9), (0.2, 0.99), (0.001, 0.95)])
def test_the_least_number_of_rows_that_can_certify(error, assurance):
    n = rows_needed(error, assurance)
    for rows, whether in ((n - 1, False), (n, True)):
        found = Abstention.of(np.ones(rows), np.zeros(rows, dtype=bool)).threshold(error, assurance)
        assert (found is not None) == whether


@pytest.mark.parametrize("n", [0, 1, 9, 10, 20])
def test_few_rows_certify_nothing(n):
    assert Abstention.of(np.arange(n) / 10, np.zeros(n, dtype=bool)).threshold(ERROR, ASSURANCE) is None


def test_a_p_value_of_zero_needs_a_level_all_the_same():
    n = 100_000  # so many rows without an error that p-values underflow; the first start is after the first thresholds
    found = Abstention.of(np.linspace(0, 1, n), np.zeros(n, dtype=bool))
    weights = found._weights(0.5, 0.05)
    assert weights.sum() == pytest.approx(0.05)
    assert found.threshold(0.5, 0.95) == -1
    silent = found._replace(share=np.where(np.arange(len(found.share)) < len(found.share) - 1, 0.0, 1.0))
    silent.wrong[-1] = n  # all levels are at the last threshold, and it is bad
    assert silent.threshold(0.5, 0.95) is None


def test_rounding_does_not_move_a_row_across_a_threshold():
    rng = np.random.default_rng(0)
    margins = np.repeat([0.2, 0.5, 0.8], 400) * (1 + 1e-9 * rng.standard_normal(1200))
    found = Abstention.of(margins, rng.random(1200) < np.repeat([0.5, 0.2, 0.0], 400))
    assert np.abs(found.thresholds[:, None] - [0.2, 0.5, 0.8]).min() > 0.02
    assert len(found.thresholds) == 3 * 4 + 1


def test_margins_of_scores():
    scores = np.array([[0.0, -np.inf, -np.inf], [-np.inf] * 3, [1.0, 1.0, 0.0], [3.0, 1.0, 2.5]])
    top, margin = top_and_margin(scores)
    assert top.tolist() == [0, 0, 0, 0]
    assert margin.tolist() == [1e300, 0.0, 0.0, 0.5]
    assert top_and_margin(np.ones((2, 1)))[1].tolist() == [0.0, 0.0]
    assert top_and_margin(scores.astype(np.float32))[1].dtype == np.float64


@pytest.mark.parametrize("C", [1, 2, 3, 40, 41, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_highest_score_and_its_lead_are_those_of_a_sort(C, dtype):
    rng = np.random.default_rng(C)
    scores = rng.integers(-3, 4, (5000, C)).astype(dtype) / 3
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    highest, margin = highest_and_margin(scores)
    np.testing.assert_array_equal(highest, scores.max(axis=1))
    least = np.full((5000, 1), np.nan if C == 1 else -np.inf)
    two = np.sort(np.hstack([least, scores.astype(np.float64)]), axis=1)[:, -2:]
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(margin, np.minimum(np.nan_to_num(two[:, 1] - two[:, 0], posinf=1e300), 1e300))


def test_own_scores_are_wrong_where_another_label_is_first():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (2000, 5)).astype(float)  # with many ties
    scores[:20] = -np.inf
    y = rng.integers(-1, 5, 2000)
    found = OwnScores.of(scores, y)
    np.testing.assert_array_equal(found.wrong, scores.argmax(axis=1) != y)
    np.testing.assert_array_equal(found.first, (scores[np.arange(2000), y] == scores.max(axis=1)) & (y >= 0))
    np.testing.assert_array_equal(found.scores, np.where(y < 0, -np.inf, scores[np.arange(2000), y]))


def test_answers_and_errors_are_those_that_are_counted_one_by_one(monkeypatch):
    monkeypatch.setattr(abstention, "_SORTED", 64)
    rng = np.random.default_rng(0)
    margins = rng.integers(0, 9, 1000) / 4  # with many ties, and rows without a lead
    margins[rng.random(1000) < 0.05] = 1e300
    wrong, proposing = rng.random((2, 1000)) < [[0.3], [0.1]]
    thresholds = np.array([2.1, 1.6, 1.1, 0.2, 1e-9, -1.0])
    above = margins > thresholds[:, None]
    expected = [(above & ~proposing).sum(axis=1), (above & ~proposing & wrong).sum(axis=1)]
    np.testing.assert_array_equal(answered_and_wrong(thresholds, margins, wrong, proposing), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"wrong": np.array([5, 5])},
        {"wrong": np.array([-1, 2])},
        {"answered": np.array([4, 99])},
        {"answered": np.array([4.0, 9.0])},
        {"share": np.array([0.5, np.nan])},
        {"share": np.array([0.5, 0.9])},
        {"thresholds": np.array([0.5, 0.7])},
        {"thresholds": np.array(0.5)},
        {"thresholds": np.array([0.5])},
        {"rows": 3},
    ],
)
def test_counts_of_a_file_are_looked_at(change):
    right = Abstention(np.array([0.5, -1.0]), np.array([0.5, 1.0]), np.array([4, 9]), np.array([0, 2]), 10)
    assert right.is_sound()
    assert not right._replace(**change).is_sound()
