"""Marks tell rows apart."""

import numpy as np
import pytest

from tightset.compute.hashing import mark_of


@pytest.mark.parametrize("n", [0, 1, 1000, 300_000])
def test_the_mark_is_that_of_the_numbers_and_not_of_their_width(n):
    rng = np.random.default_rng(n)
    scores, labels = rng.standard_normal(n), rng.integers(-1, 9, n)
    mark = mark_of(scores, labels)
    assert 0 <= mark < 2**63
    assert mark == mark_of(np.repeat(scores, 2)[::2], labels.astype(np.int8))
    assert mark != mark_of(scores, np.append(labels, 1))
    if n:
        assert mark != mark_of(scores + 1, labels)
        assert mark != mark_of(scores, labels + 1)
        assert mark != mark_of(rng.standard_normal(n), labels)
        assert mark != mark_of(np.append(scores[:-1], 0.0), labels)
