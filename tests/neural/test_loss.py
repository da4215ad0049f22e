"""`SCPOLoss` against the NumPy objectives, and on mini-batches."""

import pickle
import re

import numpy as np
import pytest

from tightset.conformal.costs import cost_matrix
from tightset.conformal.inefficiency import as_inefficiency
from tightset.exceptions import TightsetWarning
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


@pytest.mark.parametrize("how", [{}, {"objective": "penalised", "q": 0.5}])
def test_cross_entropy_is_added(torch, make, rows, how):
    Z, y, _ = rows
    plain, mixed = (ours(torch, make(**how, memory=0, cross_entropy=share), Z, y) for share in (0.0, 0.7))
    value, gradient = ours(torch, torch.nn.CrossEntropyLoss(), Z, y)
    assert_same(mixed, (plain[0] + 0.7 * value, plain[1] + 0.7 * gradient))


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
        label_groups=groups if grouped else None,
    )
    assert_same(ours(torch, criterion, Z, y, **more), (loss[0], through_softmax(Z, dA[0])))


@pytest.mark.parametrize("memory", [0, 500])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gap_at_the_threshold_does_not_blow_the_loss_up(torch, make, memory, dtype):
    """Of sure logits, exactly 5 % of them wrong, no row is near the threshold: coverage does not move with it."""
    y = np.arange(500) % C
    sure = 60 * np.eye(C)[y] + np.random.default_rng(0).normal(size=(500, C)) / 10
    sure[::20] *= -1
    criterion = make(confidence=0.95, memory=memory)
    for batch in np.arange(500).reshape(-1, 100 if memory else 500):
        value, slope = ours(torch, criterion, sure[batch], y[batch], dtype)
        assert 0 <= value <= C
        assert abs(slope).max() < 1


# ---- mini-batches ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    """Rows enough for batches: logits of a network that is not sure, and labels."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, C, 8000)
    return rng.normal(size=(8000, C)) + 1.2 * np.eye(C)[y], y


def gradient(torch, criterion, Z, y, rows):
    """The derivative with respect to an offset, a scale and a tilt of all logits, of the batches of an epoch."""
    theta = torch.zeros(C + 1, requires_grad=True)
    Z, y = torch.tensor(Z, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    found = []
    for batch in order.split(rows):
        loss = criterion(Z[batch] * (1 + theta[-1]) + theta[:-1], y[batch])
        found.append(torch.autograd.grad(loss, theta)[0].numpy())
    return np.array(found)


def weighted_gradient(torch, criterion, Z, y, weight, rows):
    """As `gradient`, of weighted rows."""
    theta = torch.zeros(C + 1, requires_grad=True)
    Z, y, weight = (
        torch.tensor(one, dtype=kind)
        for one, kind in zip((Z, y, weight), (torch.float32, torch.int64, torch.float32), strict=True)
    )
    found = []
    for batch in torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).split(rows):
        loss = criterion(Z[batch] * (1 + theta[-1]) + theta[:-1], y[batch], sample_weight=weight[batch])
        found.append(torch.autograd.grad(loss, theta)[0].numpy())
    return np.array(found)


@pytest.mark.parametrize("how", [{}, {"label_conditional": True}, {"cost": [1, 2, 3, 4]}], ids=str)
def test_batches_have_the_gradient_of_all_rows_on_average(torch, make, many, how):
    Z, y = many
    how = {"confidence": 0.98, **how}
    whole = gradient(torch, make(**how, memory=0), Z, y, len(y))[0]
    criterion = make(**how, memory=8000)
    gradient(torch, criterion, Z, y, 80)  # fills the memory
    carried = gradient(torch, criterion, Z, y, 80).mean(axis=0)
    naive = gradient(torch, make(**how, memory=0), Z, y, 80).mean(axis=0)
    off, off_naive = (np.linalg.norm(one - whole) / np.linalg.norm(whole) for one in (carried, naive))
    assert off < 0.02
    assert off_naive > 5 * off  # the mean of many wrong gradients is wrong


def test_what_was_remembered_is_part_of_the_state(torch, make, many, tmp_path):
    Z, y = many
    one, other = make(), make()
    gradient(torch, one, Z[:1000], y[:1000], 100)
    torch.save(one.state_dict(), tmp_path / "loss.pt")
    other.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    here, there = (gradient(torch, criterion, Z[1000:1500], y[1000:1500], 100) for criterion in (one, other))
    np.testing.assert_array_equal(here, there)
    before = {name: value.numpy().copy() for name, value in one.state_dict().items() if "extra" not in name}
    one.eval()
    gradient(torch, one, Z[:300], y[:300], 100)
    for name, value in before.items():
        np.testing.assert_array_equal(one.state_dict()[name], value)
    one.forget()
    one.train()
    np.testing.assert_array_equal(
        gradient(torch, one, Z[:500], y[:500], 100), gradient(torch, make(), Z[:500], y[:500], 100)
    )


@pytest.fixture
def replays_as_graphs(torch, monkeypatch):
    """Lets a loss replay as on a GPU; returns the shapes of what is captured, or None where there is a GPU."""
    captures = []

    def recorded(compute, inputs):  # as a graph does: nothing happens now, and later what is in the inputs then
        captures.append(tuple(inputs[0].shape))
        outputs = torch.zeros(()), torch.zeros_like(inputs[0])

        def replay():
            for kept, new in zip(outputs, compute(*inputs), strict=True):
                kept.copy_(new)

        return replay, outputs

    def allow(criterion):
        if torch.cuda.is_available():
            return None
        monkeypatch.setattr("tightset.neural.replay.captured", recorded)
        monkeypatch.setattr(criterion.replays, "can", lambda _: criterion.replays.on)
        return captures

    return allow


def pair_of_gradients(torch, pair, Z, y, weighted):
    """The loss and its gradient in single precision, of each of a pair of losses."""
    at = "cuda" if torch.cuda.is_available() else "cpu"
    for criterion in pair:
        logits = torch.tensor(Z, dtype=torch.float32, device=at, requires_grad=True)
        weight = torch.linspace(0.5, 1.5, len(Z), device=at) if weighted else None
        value = criterion(logits, torch.tensor(y, device=at), sample_weight=weight)
        value.backward()
        yield value.item(), logits.grad.cpu().numpy()


WAYS = pytest.mark.parametrize(
    "how",
    [{}, {"label_conditional": True}, {"cost": COSTS, "inefficiency": "log"}, {"objective": "penalised", "q": 0.5}],
    ids=str,
)


@WAYS
def test_what_is_replayed_is_what_would_be_computed(torch, make, many, how, replays_as_graphs):
    Z, y = many
    plain, replayed = make(**how, memory=300), make(**how, memory=300)
    plain.replays.on = False
    captures = replays_as_graphs(replayed)
    weighted = not {"cost", "objective"} & set(how)
    for batch in (*torch.arange(1000).split(100), *torch.arange(1000, 1600).split(70)):
        wanted, found = pair_of_gradients(torch, (plain, replayed), Z[batch], y[batch], weighted)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
        np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=1e-9)
    assert captures in (None, [(100, C), (70, C)])
    pickle.loads(pickle.dumps(replayed))  # without its graphs


@WAYS
def test_thresholds_that_follow_drifting_batches_are_those_that_are_solved_for(
    torch, make, many, how, replays_as_graphs
):
    Z, y = many
    plain, replayed = make(**how, memory=200), make(**how, memory=200)
    plain.replays.on = False
    captures = replays_as_graphs(replayed)
    for at, batch in enumerate(torch.arange(4000).split(400)):
        # From batch to batch thresholds move by up to a unit of the sigmoid, and to and fro.
        drifting = (1 + 0.1 * at + 0.2 * (at % 2)) * Z[batch]
        wanted, found = pair_of_gradients(torch, (plain, replayed), drifting, y[batch], at % 3 == 0)
        np.testing.assert_allclose(replayed.threshold.cpu(), plain.threshold.cpu(), atol=2e-5)
        np.testing.assert_allclose(found[0], wanted[0], rtol=2e-5)
        np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=2e-5 * abs(wanted[1]).max())
    assert captures in (None, [(400, C)] * 2)  # with weights and without
    lost = np.full_like(Z[:400], np.nan)
    for rows in (lost, drifting):
        wanted, found = pair_of_gradients(torch, (plain, replayed), rows, y[batch], weighted=False)
    np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=2e-5 * abs(wanted[1]).max())
    replayed.forget()
    assert replayed.memory.batches == 0


def test_where_a_capture_fails_batches_are_computed_one_by_one(torch, make, many, replays_as_graphs, monkeypatch):
    Z, y = many
    plain, replayed = make(memory=150), make(memory=150)
    plain.replays.on = False
    replays_as_graphs(replayed)
    asked = []

    def refused(*_):
        asked.append(1)
        raise RuntimeError("out of memory")

    monkeypatch.setattr("tightset.neural.replay.captured", refused)
    said = "SCPOLoss cannot be captured as a CUDA graph here (RuntimeError('out of memory')); batches take longer"
    batches = torch.arange(1000).split(100)
    with pytest.warns(TightsetWarning, match=re.escape(said)) as told:
        pairs = [list(pair_of_gradients(torch, (plain, replayed), Z[one], y[one], weighted=False)) for one in batches]
    for wanted, found in pairs:
        np.testing.assert_array_equal(found[1], wanted[1])
    assert len(asked) == len(told) == 1


def test_numbers_that_are_not_finite_are_not_remembered_for_ever(torch, make, many):
    Z, y = many
    criterion = make(memory=200)
    gradient(torch, criterion, Z[:200], y[:200], 50)
    assert not np.isfinite(gradient(torch, criterion, np.full((50, C), np.nan), y[:50], 50)).any()
    gradient(torch, criterion, Z[:250], y[:250], 50)
    assert np.isfinite(gradient(torch, criterion, Z[:200], y[:200], 50)).all()


def test_half_precision_is_computed_in_single(torch, make, many):
    Z, y = many
    logits = torch.tensor(Z[:64], dtype=torch.bfloat16, requires_grad=True)
    make()(logits, torch.tensor(y[:64])).backward()
    assert logits.grad.dtype == torch.bfloat16
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"n_classes": 1}, "n_classes must be a whole number, 2 or more; got 1"),
        ({"objective": "hinge"}, "objective must be one of 'profiled', 'penalised'; got 'hinge'"),
        ({"objective": "penalised", "cost": [1, 2, 3, 4]}, "one threshold and no costs"),
        ({"gamma": -1}, "gamma must be a number, above 0; got -1"),
        ({"gamma": "2"}, "gamma must be a number, above 0; got '2'"),
        ({"lam": None}, "lam must be a number, above 0; got None"),
        ({"q": np.nan}, "q must be a number; got nan"),
        ({"n_groups": 2.5}, "n_groups must be a whole number, 1 or more; got 2.5"),
        ({"memory": -1}, "memory must be a whole number, 0 or more; got -1"),
        ({"memory": True}, "memory must be a whole number, 0 or more; got True"),
        ({"labels": [0, 1, 5]}, r"labels must be whole numbers 0 \.\.\. 3, one for each row, of 4 labels"),
        ({"labels": ["a", "b"]}, "labels must be whole numbers"),
        ({"labels": []}, "labels must be whole numbers"),
        ({"label_groups": [0, 1]}, "label_groups belong to n_groups, which was not given"),
        ({"labels": [0, 1], "label_groups": [0, 5], "n_groups": 2}, r"label_groups must be whole numbers 0 \.\.\. 1"),
        ({"labels": [0, 1], "label_groups": [0, 0], "n_groups": 2}, "some of each of the 2 groups"),
        ({"cross_entropy": -0.1}, "cross_entropy must be a number, 0 or more; got -0.1"),
        ({"scores": "probabilities"}, "scores must be one of 'softmax', 'linear'; got 'probabilities'"),
        ({"objective": "penalised", "form": "L^2"}, "form must be one of"),
        ({"confidence": 1.2}, "1.2"),
        ({"cost": [1, 2]}, "cost must have a number for each of the 4 labels"),
    ],
)
def test_settings_that_cannot_be_are_named(make, how, match):
    with pytest.raises(ValueError, match=match):
        make(**how)


def test_batches_that_cannot_be_are_named(torch, make, many):
    Z, y = torch.tensor(many[0][:9]), torch.tensor(many[1][:9])
    ones = torch.ones(9)
    for logits, labels, more, match in (
        (Z[:, :3], y, {}, r"a column for each of the 4 labels; got torch.float64 of shape \(9, 3\)"),
        (Z.numpy(), y, {}, "logits must be a tensor of numbers.*got a ndarray"),
        (Z[:0], y[:0], {}, "the batch is empty"),
        (Z, y[:8], {}, r"y must be a tensor of whole numbers, a label 0 \.\.\. 3 for each of the 9 rows; got"),
        (Z, y.double(), {}, "got torch.float64"),
        (Z, y + 1, {}, r"y must be a label 0 \.\.\. 3 for each row; got 4"),
        (Z, y - 100, {}, r"y must be a label 0 \.\.\. 3 for each row; got -100"),
        (Z, y, {"groups": y}, "groups belong to n_groups: give both or neither"),
        (Z, y, {"sample_weight": ones[:1]}, r"a number for each of the 9 rows; got torch.float32 of shape \(1,\)"),
        (Z, y, {"sample_weight": -ones}, "sample_weight must be finite numbers, 0 or more"),
        (Z, y, {"sample_weight": ones / 0}, "sample_weight must be finite numbers, 0 or more"),
    ):
        criterion = make()
        with pytest.raises(ValueError, match=match):
            criterion(logits, labels, **more)
        assert criterion.memory.seen == 0
    for groups, match in (
        (y * 0 - 1, r"groups must be a group 0 \.\.\. 1 for each row; got -1"),
        (y[:1], "got torch.int64"),
    ):
        with pytest.raises(ValueError, match=match):
            make(n_groups=2)(Z, y, groups=groups)


def test_a_batch_without_weight_counts_for_nothing(torch, make, many):
    Z, y = many
    criterion = make(memory=200)
    gradient(torch, criterion, Z[:300], y[:300], 50)
    masked = np.where(np.arange(C) == 3, -np.inf, Z[:50])
    for logits in (Z[:50], masked):
        value, slope = ours(torch, criterion, logits, y[:50], "float32", sample_weight=np.zeros(50))
        assert value == 0
        assert not slope.any()
    assert np.isfinite(ours(torch, criterion, Z[:50], y[:50])[0])


@pytest.mark.parametrize("rows", [32, 80])
def test_weighted_batches_have_the_gradient_of_all_weighted_rows_on_average(torch, make, many, rows):
    Z, y = many
    weight = np.where(Z[:, 0] > 3, 30.0, 1.0)  # few rows have most of it
    whole = weighted_gradient(torch, make(confidence=0.98, memory=0), Z, y, weight, len(y))[0]
    criterion = make(confidence=0.98, memory=2000)
    for _ in range(3):  # until what was known of the first few rows is forgotten
        mean = weighted_gradient(torch, criterion, Z, y, weight, rows).mean(axis=0)
    assert abs(mean - whole).max() < 0.02 * abs(whole).max()


@pytest.mark.parametrize("kind", ["bool", "uint8", "int32"])
def test_groups_are_numbers_whatever_their_type(torch, make, kind):
    Z, y, groups = np.random.default_rng(0).normal(size=(2, C)), np.array([0, 1]), np.array([0, 1])
    wanted = ours(torch, make(n_groups=2, memory=0), Z, y, groups=groups)
    assert_same(ours(torch, make(n_groups=2, memory=0), Z, y, groups=groups.astype(kind)), wanted)


def test_validation_without_a_memory_is_that_of_its_batch(torch, make, many):
    Z, y = many
    fresh, own = make().eval(), make(memory=0)
    assert ours(torch, fresh, Z, y)[0] == pytest.approx(ours(torch, own, Z, y)[0], rel=1e-9)


def test_small_derivatives_outlive_half_precision(torch, make, many):
    """A scale of the loss, as mixed precision has it, must come before derivatives are rounded."""
    Z, y = torch.tensor(many[0]), torch.tensor(many[1])
    exact, half = (Z.to(kind).requires_grad_() for kind in (torch.float32, torch.float16))
    for logits in (exact, half):
        (make(memory=0)(logits, y) * 2.0**15).backward()
    lost = ((half.grad == 0) & (exact.grad.half() != 0)).float().mean()
    assert lost < 0.01


def test_what_saw_batches_in_inference_mode_can_be_trained(torch, make, many):
    Z, y = many
    criterion = make(memory=100)
    with torch.inference_mode():
        criterion(torch.tensor(Z[:50]), torch.tensor(y[:50]))
    assert np.isfinite(ours(torch, criterion, Z[:50], y[:50])[0])


def trained_size(torch, criterion, X, y, rows, epochs, rate):
    """The size of sets at 99 %, in the sample, of a linear network trained in batches of so many rows."""
    torch.manual_seed(0)
    network = torch.nn.Linear(X.shape[1], C)
    torch.nn.init.zeros_(network.weight)
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(rows):
            optimiser.zero_grad()
            criterion(network(X[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    scores = torch.log_softmax(network(X), 1).detach().numpy()
    own = np.sort(scores[np.arange(len(y)), y])
    return (scores >= own[int(0.01 * len(y))]).sum(axis=1).mean()


def test_batches_of_256_reach_the_sizes_of_training_on_all_rows(torch, make):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4096, 4))
    Z = np.stack([4 * X[:, 0] ** 2 - 4, 4 * X[:, 1], X[:, 2] - 4 * X[:, 1], 4 * X[:, 2]], axis=1)  # not linear in X
    y = torch.tensor(np.argmax(Z + rng.gumbel(size=Z.shape), axis=1))
    X = torch.tensor(X, dtype=torch.float32)
    how = {"confidence": 0.99, "cross_entropy": 0.1, "gamma": 2.0}
    start = trained_size(torch, torch.nn.CrossEntropyLoss(), X, y, 4096, 150, 0.1)
    whole = trained_size(torch, make(**how, memory=0), X, y, 4096, 150, 0.1)
    assert whole < 0.95 * start
    for size in (256, 64):
        batches = trained_size(torch, make(**how, memory=4096), X, y, size, 20, 0.05)
        assert batches == pytest.approx(whole, rel=0.01)
    assert trained_size(torch, make(**how, memory=0), X, y, 64, 20, 0.05) > 1.01 * whole  # the quantile of the batch
