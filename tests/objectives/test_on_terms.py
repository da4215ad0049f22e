"""The objective with a threshold for each category, and costs: its gradient, its coverage, its sums over blocks."""

from dataclasses import replace

import numpy as np
import pytest

from tightset.compute.arrays import label_runs
from tightset.conformal.inefficiency import LOG, OBSERVED_MULTIPLE, SIZE
from tightset.objectives.on_terms import OnTerms, TermsOfRows
from tightset.objectives.profiled import Profiled
from tightset.objectives.terms import Terms

C, K = 4, 300
EPS, GAMMA = np.array([0.1, 0.2]), np.array([2.0, 1.0])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y, group = np.sort(rng.integers(0, C, K)), rng.integers(0, 3, K)
    A = rng.normal(size=(2, K, C))
    A[:, np.arange(K), y] += 1
    return y, group, A, rng.random((2, K))


ASKED = {
    "by label": lambda group: {"by_label": True},
    "by group": lambda group: {"group": group},
    "by both": lambda group: {"by_label": True, "group": group},
    "costs": lambda group: {"cost": np.tile([1.0, 2.0, 3.0, 4.0], (C, 1))},
    "costs by true label": lambda group: {"cost": np.random.default_rng(1).random((C, C)) + 0.1},
    "false labels": lambda group: {"false_only": True},
    "false labels, by label, with costs": lambda group: {
        "by_label": True,
        "cost": np.tile([1.0, 2.0, 3.0, 4.0], (C, 1)),
        "false_only": True,
    },
    "everything": lambda group: {"by_label": True, "group": group, "cost": np.arange(1.0, 17).reshape(C, C)},
}


def objective(rows, asked, f=SIZE, tol=1e-13):
    y, group, _, _ = rows
    terms = Terms.of(y, C, 0.1, **ASKED[asked](group))
    return OnTerms(EPS, GAMMA, f, TermsOfRows.of(terms, y, f), tol), terms


@pytest.mark.parametrize("f", [SIZE, LOG, OBSERVED_MULTIPLE], ids=lambda f: f.name)
@pytest.mark.parametrize("asked", ASKED)
def test_the_gradient_is_that_of_finite_differences(rows, asked, f):
    y, _, A, w = rows
    loss, _ = objective(rows, asked, f)
    along, h = np.random.default_rng(2).normal(size=A.shape), 1e-5
    _, gradient = loss.value_and_gradient(A, y, w)
    up, down = (loss.value_and_gradient(A + step * along, y, w)[0] for step in (h, -h))
    np.testing.assert_allclose((gradient * along).sum(axis=(1, 2)), (up - down) / (2 * h), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("asked", ASKED)
def test_every_category_is_covered_as_asked(rows, asked):
    y, _, A, w = rows
    loss, terms = objective(rows, asked)
    own = A[:, np.arange(K), y]
    w = w / w.sum(axis=1, keepdims=True)
    q = loss.threshold(own, w)
    margins = loss.margins(A, q)[:, np.arange(K), y]
    covered = w / (1 + np.exp(-GAMMA[:, None] * margins))
    for category in range(terms.n_thresholds):
        mine = terms.own(y) == category
        np.testing.assert_allclose(covered[:, mine].sum(axis=1) / w[:, mine].sum(axis=1), 1 - EPS, atol=1e-8)


def test_one_category_and_no_costs_is_the_plain_objective(rows):
    y, _, A, w = rows
    plain = Terms(np.zeros((1, C), dtype=int), None, np.zeros(C), None)
    ours = OnTerms(EPS, GAMMA, SIZE, TermsOfRows.of(plain, y)).value_and_gradient(A, y, w)
    theirs = Profiled(EPS, GAMMA).value_and_gradient(A, y, w)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)
    assert Terms.of(y, C, 0.1) is None


@pytest.mark.parametrize("asked", ASKED)
def test_sums_over_blocks_are_those_of_all_rows(rows, asked):
    y, _, A, w = rows
    loss, terms = objective(rows, asked)
    w = w / w.sum(axis=1, keepdims=True)
    q = loss.threshold(A[:, np.arange(K), y], w)
    whole, _, _ = loss.block(A, label_runs(y), w, q)
    parts = []
    for some in (slice(0, 120), slice(120, K)):
        part = replace(loss, rows=TermsOfRows.of(terms.take(some), y[some]))
        parts.append(part.block(A[:, some], label_runs(y[some]), w[:, some], q)[0])
    for one, *several in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(one, sum(several), rtol=1e-9, atol=1e-12)


def test_false_labels_at_exact_coverage_are_the_size_less_the_coverage(rows):
    """So that OE is trained for as the size is."""
    y, _, A, w = rows
    loss, terms = objective(rows, "false labels")
    found, gradient = loss.value_and_gradient(A, y, w)
    size, of_size = Profiled(EPS, GAMMA, SIZE, 1e-13).value_and_gradient(A, y, w)
    np.testing.assert_allclose(found * terms.unit, size - (1 - EPS), rtol=1e-9)
    np.testing.assert_allclose(gradient * terms.unit, of_size, rtol=1e-7, atol=1e-12)
    np.testing.assert_array_equal(terms.offset, 0)


def test_small_categories_share_a_threshold_in_training():
    y = np.repeat([0, 1, 2, 3], [50, 40, 3, 2])
    terms = Terms.of(y, 4, 0.1, by_label=True)
    assert terms.index.tolist() == [[0, 1, 2, 2]]
    group = np.tile([0, 1], 48)[: len(y)]
    both = Terms.of(y, 4, 0.1, by_label=True, group=group)
    assert both.index.shape == (2, 4)
    assert both.n_thresholds == 5  # two groups of two labels with enough rows, and the rest
    assert both.without_groups(y, 0.1).index.tolist() == terms.index.tolist()
