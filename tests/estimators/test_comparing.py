"""Comparisons: intervals over splits hold what they should."""

import numpy as np

from tightset.estimators.comparing import Comparison, over_splits, verdict


def split(size, level=0.9):
    return [
        Comparison(
            level, {"coverage": 0.9, "mean_size": 2.0}, {"coverage": 0.9, "mean_size": size}, size / 2 - 1, 0, 0, 0
        )
    ]


def test_the_interval_of_the_mean_is_nadeau_and_bengios():
    from scipy import stats

    sizes = np.array([1.8, 1.9, 2.1, 1.7, 1.9])
    (row,) = over_splits([split(size) for size in sizes], 0.25)
    changes = sizes / 2 - 1
    error = changes.std(ddof=1) * np.sqrt(1 / 5 + 1 / 3)
    low, high = stats.t(4, changes.mean(), error).interval(0.95)
    np.testing.assert_allclose([row.change, row.low, row.high], [changes.mean(), low, high])
    np.testing.assert_allclose(row.p_value, 2 * stats.t(4).sf(abs(changes.mean()) / error))
    assert row.scpo["mean_size"] == sizes.mean()


def test_it_covers_where_splits_share_their_rows():
    """A mean over test rows stands for a size: splits of 100 rows, of which a quarter tests."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        noise = rng.normal(0, 0.3, 100)
        found = []
        for _ in range(5):
            mixed = rng.permutation(100)
            found.append(split(2.0 + noise[mixed[:25]].mean()))
        (row,) = over_splits(found, 0.25)
        held += row.low <= 0 <= row.high
    assert held > 0.9 * 400


def test_the_verdict_names_every_level():
    def row(level, low, high):
        return Comparison(level, {}, {}, 0.0, low, high, 0.5)

    assert verdict([row(0.8, -2, -1), row(0.9, 1, 2), row(0.95, -1, 1)]) == (
        "At equal coverage, SCPO's sets are smaller at 0.8, larger at 0.9, not clearly different at 0.95."
    )
