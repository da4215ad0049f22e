"""`SCPOLoss` against the NumPy objectives, and on mini-batches."""

import numpy as np
import pytest

from tightset.conformal.costs import cost_matrix
from tightset.conformal.inefficiency import as_inefficiency
from tightset.objectives.on_terms import OnTerms, TermsOfRows
from tightset.objectives.penalised import FORMS, Penalised
from tightset.objectives.profiled import Profiled
from tightset.objectives.terms import Terms

K, C, G = 90, 4, 3
EPS, GAMMA = 0.1, 1.7


@pytest.fixture(scope="module")
def make(torch):
    from tightset.neural.loss import SCPOLoss

    return lambda **how: SCPOLoss(**{"n_classes": C, "confidence": 0.9, "gamma": GAMMA, "cross_entropy": 0.0} | how)


@pytest.fixture(scope="module")
def rows():
    """Logits, labels in order as the NumPy objectives want them, groups."""
    rng = np.random.default_rng(0)
    y = np.sort(rng.integers(0, C, K))
    return rng.normal(size=(K, C)) + 1.5 * np.eye(C)[y], y, rng.integers(0, G, K)


def through_softmax(Z, dA):
    p = np.exp(Z - np.log(np.exp(Z).sum(axis=1, keepdims=True)))
    return dA - p * dA.sum(axis=1, keepdims=True)


def log_softmax(Z):
    return Z - np.log(np.exp(Z).sum(axis=1, keepdims=True))


def ours(torch, loss, Z, y, dtype="float64", **more):
    logits = torch.tensor(Z, dtype=getattr(torch, dtype), requires_grad=True)
    value = loss(logits, torch.as_tensor(y), **{name: torch.as_tensor(one) for name, one in more.items()})
    value.backward()
    return value.item(), logits.grad.numpy()


def assert_same(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-6 * abs(wanted[1]).max(), rtol=0)


@pytest.mark.parametrize("f", ["size", "log", 2, "multiple"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_profiled_loss_and_its_gradient_are_those_of_numpy(torch, make, rows, f, weighted):
    Z, y, _ = rows
    weight = np.random.default_rng(1).uniform(0.2, 2, K) if weighted else None
    objective = Profiled(np.array([EPS]), np.array([GAMMA]), as_inefficiency(f), tol=1e-12)
    loss, dA = objective.value_and_gradient(log_softmax(Z)[None], y, weight)
    more = {"sample_weight": weight} if weighted else {}
    assert_same(ours(torch, make(inefficiency=f, memory=0), Z, y, **more), (loss[0], through_softmax(Z, dA[0])))


@pytest.mark.parametrize("form", FORMS)
def test_the_penalised_loss_and_its_gradient_are_those_of_numpy(torch, make, rows, form):
    Z, y, _ = rows
    one = np.ones(1)
    loss, dA = Penalised(EPS * one, 20 * one, GAMMA * one, q=0.5, form=form).value_and_gradient(Z[None], y)
    how = {"objective": "penalised", "lam": 20.0, "q": 0.5, "form": form, "memory": 0}
    assert_same(ours(torch, make(**how), Z, y), (loss[0], dA[0]))


COSTS = np.array([[1.0, 2.0, 0.5, 4.0], [1.0, 0.0, 3.0, 1.0], [2.0, 2.0, 1.0, 1.0], [0.1, 1.0, 1.0, 2.0]])


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("cost", [None, [1, 3, 2, 0.5], COSTS])
@pytest.mark.parametrize("f", ["size", "log"])
def test_thresholds_by_category_and_costs_are_those_of_numpy(torch, make, rows, by_label, grouped, cost, f):
    if not by_label and not grouped and cost is None:
        return
    Z, y, groups = rows
    matrix = cost_matrix(cost, np.arange(C))
    terms = Terms.of(y, C, EPS, by_label=by_label, group=groups if grouped else None, cost=matrix)
    of_rows = TermsOfRows.of(terms, y, as_inefficiency(f))
    objective = OnTerms(np.array([EPS]), np.array([GAMMA]), as_inefficiency(f), of_rows, tol=1e-12)
    loss, dA = objective.value_and_gradient(log_softmax(Z)[None], y)
    more = {"groups": groups} if grouped else {}
    criterion = make(
        inefficiency=f,
        label_conditional=by_label,
        cost=cost,
        memory=0,
        labels=y,
        n_groups=G if grouped else None,
        label_groups=groups,
    )
    assert_same(ours(torch, criterion, Z, y, **more), (loss[0], through_softmax(Z, dA[0])))
