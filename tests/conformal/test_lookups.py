"""Ranks among sorted scores are those of `np.searchsorted`, whatever the numbers are like."""

import pickle
import warnings

import numpy as np
import pytest

from tightset.conformal import lookups
from tightset.conformal.calibration import Calibration
from tightset.conformal.lookups import SortedScores

TINY = 5e-324
NASTY = np.array([0.0, -0.0, TINY, -TINY, 2.3e-308, -1e-310, 1.0, 1 - 2**-53, 1 + 2**-52, -1.0, 1e308, -1e308, 1.7e308])
KINDS = {
    "uniform": lambda rng, n: rng.random(n),
    "both signs": lambda rng, n: 3 * rng.standard_normal(n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "all powers": lambda rng, n: rng.choice([-1.0, 1.0], n) * np.exp(rng.uniform(-740, 709, n)),
    "near one": lambda rng, n: 1 - np.exp(-30 * rng.random(n)),
    "logarithms": lambda rng, n: -np.exp(4 * rng.standard_normal(n)),
    "clusters": lambda rng, n: rng.integers(1, 20, n) / 20 + 1e-12 * rng.standard_normal(n),
    "cluster far out": lambda rng, n: np.where(rng.random(n) < 0.1, -1e300, 1e6 + 1e-9 * rng.integers(0, 9, n)),
    "few values": lambda rng, n: rng.integers(0, 7, n) / 7,
    "many ties": lambda rng, n: rng.integers(0, n // 2 + 1, n) / 1000,
    "half are one": lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, rng.random(n)),
    "a third are one": lambda rng, n: np.where(rng.random(n) < 0.3, 1.0, rng.random(n)),
    "all equal": lambda rng, n: np.full(n, 0.1),
    "all minus infinity": lambda rng, n: np.full(n, -np.inf),
    "infinities": lambda rng, n: rng.choice([-np.inf, np.inf, 0.0, -0.0, 1.0], n),
    "missing": lambda rng, n: rng.choice([np.nan, -np.nan, np.inf, 0.5, 0.7], n) * rng.random(n),
    "nasty": lambda rng, n: rng.choice([*NASTY, np.inf, -np.inf, np.nan], n),
    "denormal": lambda rng, n: TINY * rng.integers(-1000, 1000, n),
    "huge": lambda rng, n: 1.7e308 * rng.uniform(-1, 1, n),
    "huge ones only": lambda rng, n: 1e308 + 1e300 * rng.random(n),
    "whole": lambda rng, n: rng.integers(-50, 50, n),
    "beyond 2**53": lambda rng, n: 2**60 + rng.integers(0, 300, n),
}


def around(numbers, rng):
    """Scores that are equal to the numbers, next to them, between them, beyond them, and special ones."""
    some = rng.choice(numbers, 400)
    if numbers.dtype.kind != "f":
        return np.concatenate([some, some + 1, some - 1])
    with np.errstate(all="ignore"):
        special = np.array([*NASTY, np.inf, -np.inf, np.nan, -np.nan]).astype(numbers.dtype)
        up, down = np.nextafter(some, np.inf, dtype=numbers.dtype), np.nextafter(some, -np.inf, dtype=numbers.dtype)
        return np.concatenate([some, up, down, some / 2 + rng.permutation(some) / 2, special])


def assert_ranks(numbers, scores):
    ours = SortedScores(numbers)
    for side in ("left", "right"):
        np.testing.assert_array_equal(ours.ranks(scores, side=side), np.searchsorted(numbers, scores, side=side))


@pytest.fixture(params=["all at once", "table of few", "blocks of few"])
def small(request, monkeypatch):
    """Few numbers are treated as many are."""
    monkeypatch.setattr(lookups, "_FEW", 0)
    if request.param != "all at once":
        monkeypatch.setattr(lookups, "_IN_CACHE", 0)
        monkeypatch.setattr(lookups, "_TABLE", lookups._NEAR)
    if request.param == "blocks of few":
        monkeypatch.setattr(lookups, "_BLOCK", 13)
        monkeypatch.setattr(lookups, "_SAMPLE", 50)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_are_those_of_searchsorted(kind, dtype):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 8, 9, 50, 1000):
        numbers = np.sort(KINDS[kind](rng, n))
        if numbers.dtype.kind == "f":
            with np.errstate(over="ignore"):
                numbers = numbers.astype(dtype)
        scores = around(numbers, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_ranks(numbers, scores)


@pytest.mark.parametrize("kind", ["uniform", "near one", "clusters", "many ties", "a third are one", "nasty"])
def test_ranks_among_many_are_those_of_searchsorted(kind):
    rng = np.random.default_rng(1)
    numbers = np.sort(KINDS[kind](rng, 40_000))
    assert_ranks(numbers, around(numbers, rng))
    assert_ranks(numbers, np.concatenate([around(numbers, rng), KINDS[kind](rng, 5000)]))


@pytest.mark.usefixtures("small")
def test_types_may_differ_and_scores_have_any_shape():
    rng = np.random.default_rng(2)
    numbers = np.sort(rng.random(500).astype(np.float32))
    scores = np.concatenate([numbers.astype(np.float64), np.nextafter(numbers.astype(np.float64), 1), rng.random(200)])
    assert_ranks(numbers, scores)
    assert_ranks(scores[:500], numbers)
    wide = scores.reshape(4, 300).T
    assert_ranks(numbers, wide)
    assert_ranks(numbers, wide[:, 1:2])
    assert_ranks(numbers, scores[:0])
    assert_ranks(numbers[:0], scores)
    assert len(SortedScores(numbers)) == 500


def test_inputs_are_not_changed():
    rng = np.random.default_rng(3)
    numbers, scores = np.sort(rng.random(40_000)), rng.random((3000, 2))
    kept = numbers.copy(), scores.copy()
    SortedScores(numbers).ranks(scores, side="right")
    np.testing.assert_array_equal(numbers, kept[0])
    np.testing.assert_array_equal(scores, kept[1])


# ---- where searches start -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["uniform", "both signs", "heavy tails", "near one", "logarithms"])
def test_few_searches_end_far_from_where_they_start(kind):
    """That it is exact hangs on no such thing; that it is fast does."""
    table = SortedScores(np.sort(KINDS[kind](np.random.default_rng(4), 100_000)))._table
    assert table.crowded < 15_000
    assert len(table.first) < 100_000


def test_numbers_that_no_table_tells_apart_have_none():
    assert SortedScores(np.sort(KINDS["clusters"](np.random.default_rng(5), 100_000)))._table is None


def test_equal_numbers_are_searched_once():
    numbers = SortedScores(np.sort(KINDS["few values"](np.random.default_rng(6), 100_000)))
    assert len(numbers._distinct) == 7
    assert len(numbers) == 100_000


def test_lookups_are_made_once_for_all_slacks_and_are_not_pickled():
    scores = np.random.default_rng(0).normal(size=20_000)
    calibration = Calibration.of_own(scores, np.zeros(len(scores), dtype=int), 2)
    calibration.slacks = {"alone": 1e-9}
    before = len(pickle.dumps(calibration))
    calibration.widened(None).p_values(scores[:10_000].reshape(-1, 2))
    assert calibration.widened(None)._sorted[None, -1] is calibration._sorted[None, -1]
    assert len(pickle.dumps(calibration)) < 2.1 * before
