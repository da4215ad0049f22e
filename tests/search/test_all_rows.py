"""Losses summed over blocks of rows, with a threshold for each category: those of all rows together."""

import numpy as np
import pytest

from tightset.compute.rows import MemoryRows
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.measures import MEASURES
from tightset.models.columns import Columns
from tightset.objectives.on_terms import OnTerms, TermsOfRows
from tightset.objectives.profiled import Profiled
from tightset.objectives.terms import Terms
from tightset.objectives.training import Training
from tightset.search.all_rows import OnAllRows, Piece

C, EPS, GAMMA = 3, 0.1, 2.0


@pytest.mark.parametrize("f", [SIZE, LOG], ids=lambda f: f.name)
@pytest.mark.parametrize("measure", ["two-matrix", "linear"])
@pytest.mark.parametrize("asked", ["label", "group", "both", "cost"])
def test_losses_over_blocks_are_those_of_all_rows_together(asked, measure, f):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y, group = np.sort(rng.integers(0, C, 900)), rng.integers(0, 2, 900)
    cost = rng.random((C, C)) + 0.2
    how = {
        "label": {"by_label": True},
        "group": {"group": group},
        "both": {"by_label": True, "group": group},
        "cost": {"cost": cost},
    }[asked]
    terms = Terms.of(y, C, EPS, **how)
    columns = Columns.plain(X)
    theta = MEASURES[measure].start(rng.normal(size=(1, 5, C)))
    objective = OnTerms(np.array([EPS]), np.array([GAMMA]), f, TermsOfRows.of(terms, y, f), tol=1e-10)
    zero = np.zeros_like(theta)
    Z, _ = columns.apply(X)
    whole = Training(Z, y, MEASURES[measure], objective, np.ones((1, 900)), zero, zero[:, :, :1])
    loss, gradient = whole(theta)

    mixed = rng.permutation(900)
    profiled = Profiled(np.array([EPS]), np.array([GAMMA]), f, 1e-10)
    about = np.zeros(terms.n_thresholds)
    piece = Piece(columns, measure, profiled, EPS, GAMMA, theta[0], zero[0], zero[0, :, :1], about, terms)
    codes = y + (0 if "group" not in how else C * group)
    with Threads(1) as threads:
        rows = MemoryRows(X[mixed]).summed(codes[mixed], None, threads=threads)
        its_loss, its_gradient = OnAllRows.of(rows, [piece], None)(theta.reshape(1, -1))
    np.testing.assert_allclose(its_loss, loss, rtol=1e-5)
    np.testing.assert_allclose(its_gradient.reshape(theta.shape), gradient, rtol=2e-3, atol=1e-3 * abs(gradient).max())
