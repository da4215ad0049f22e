"""`SCPONeuralClassifier`: as a classifier of scikit-learn, and its promises."""

import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import tightset
from perceptrons import body, neural
from tightset import ModelFileError, SCPONeuralClassifier, Training
from tightset.models.contract import Shared


@pytest.fixture(scope="module", autouse=True)
def _there(torch):
    pass


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_it_is_a_classifier_of_scikit_learn():
    check_estimator(SCPONeuralClassifier(training=Training(members=1, warm_epochs=15, epochs=3, learning_rate=0.02)))


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
@pytest.mark.parametrize("n_groups", [1, 2])
def test_of_few_rows_weights_equal_copies_to_the_last_bit(rows, n_groups):
    X, y, X_new, _ = rows
    times, groups = np.arange(40) % 5, np.arange(len(y)) % n_groups  # 80 copies of 32 rows
    given = {"X_cal": X[200:], "y_cal": y[200:], "groups_cal": groups[200:]}
    weighted = neural().fit(X[:40], y[:40], times, groups=groups[:40], **given)
    copies = np.random.default_rng(0).permutation(np.repeat(np.arange(40), times))
    repeated = neural().fit(X[copies], y[copies], groups=groups[copies], **given)
    new = {"groups": np.zeros(len(X_new), dtype=int)}
    np.testing.assert_array_equal(weighted.predict_p(X_new, **new), repeated.predict_p(X_new, **new))


def test_coverage_holds_and_sets_are_as_small_as_they_should_be(rows):
    X, y, X_new, y_new = rows
    row = neural().fit(X, y).evaluate(X_new, y_new)
    assert row["coverage"] == pytest.approx(0.9, abs=0.05)
    linear = tightset.SCPOClassifier(0.9, search="fast", random_state=0).fit(X, y).evaluate(X_new, y_new)
    assert row["mean_size"] < linear["mean_size"]


def test_the_same_seed_gives_the_same_bits_and_leaves_no_trace(rows, torch):
    X, y, X_new, _ = rows
    before = torch.get_rng_state()
    one, other = neural().fit(X, y), clone(neural()).fit(X, y)
    np.testing.assert_array_equal(one.predict_p(X_new), other.predict_p(X_new))
    assert (neural(random_state=1).fit(X, y).predict_p(X_new) != one.predict_p(X_new)).any()
    np.testing.assert_array_equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "how",
    [
        {"confidence": (0.8, 0.9)},
        {"label_conditional": True, "confidence": 0.8},
        {"cost": [1, 2, 3, 4], "training": Training(members=2, warm_epochs=8, epochs=2, learning_rate=0.01)},
        {"training": Training(members=1, warm_epochs=8, epochs=2, learning_rate=0.02, input_dropout=0.1)},
        {"network": (8,), "cv": 3},
        {"class_weight": "balanced", "inefficiency": "multiple"},
    ],
    ids=str,
)
def test_whatever_is_asked_is_kept_in_files_and_pickles(rows, how, tmp_path):
    X, y, X_new, y_new = rows
    clf = neural(**how).fit(X, y)
    clf.save(tmp_path / "m.tightset")
    for again in (tightset.load(tmp_path / "m.tightset"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.predict_p(X_new), clf.predict_p(X_new))
        assert again.summary() == clf.summary()
    found = clf.evaluate(X_new, y_new)
    for row in found if isinstance(found, list) else [found]:
        assert row["coverage"] >= row["confidence"] - 0.06
        assert 0.8 < row["mean_size"] < 2.9


def test_members_hold_other_rows_aside_and_average_probabilities(rows):
    from tightset.neural.fitting import _aside

    asides = [_aside(1000, 0.2, seed=3, member=at) for at in range(5)]
    np.testing.assert_array_equal(np.sort(np.concatenate(asides)), np.arange(1000))
    X, y, X_new, _ = rows
    clf = neural(training=Training(warm_epochs=3, epochs=1, learning_rate=0.01)).fit(X, y)
    model = clf.fitted_.folds[0].models[0]
    assert len(model.members) == 5
    each = [np.exp(one.scores(X_new.astype(float))) for one in model.members]
    mean = np.mean([one / one.sum(axis=1, keepdims=True) for one in each], axis=0)
    np.testing.assert_allclose(np.exp(model.scores(X_new, Shared(clf.classes_))), mean, rtol=1e-4)


def test_columns_are_left_out_of_networks_made_here(rows):
    from tightset.neural.bodies import made

    assert [one.p for one in made((4,), 6, 3, 0.2, 0.3) if hasattr(one, "p")] == [0.3, 0.2]
    X, y, X_new, _ = rows
    how = {"members": 1, "warm_epochs": 3, "epochs": 1}
    whole, some = (neural(training=Training(**how, input_dropout=share)).fit(X, y) for share in (0.0, 0.3))
    assert (whole.predict_p(X_new) != some.predict_p(X_new)).any()


def test_groups_and_assurance(rows):
    X, y, X_new, y_new = rows
    groups = (X[:, 0] > 0).astype(int)
    clf = neural(0.8, assurance=0.9).fit(X, y, groups=groups)
    hit = clf.predict_set(X_new, groups=(X_new[:, 0] > 0).astype(int))[np.arange(len(y_new)), y_new]
    for group in (0, 1):
        assert hit[(X_new[:, 0] > 0) == group].mean() > 0.74


def test_stored_networks_predict_without_torch(rows, tmp_path):
    X, y, X_new, _ = rows
    clf = neural().fit(X, y)
    clf.save(tmp_path / "m.tightset")
    np.save(tmp_path / "X.npy", X_new)
    np.save(tmp_path / "p.npy", clf.predict_p(X_new))
    code = """
def refuse(name, path=None, target=None):
    if name == "torch":
        raise ModuleNotFoundError("hidden", name="torch")
import sys
sys.meta_path.insert(0, type("Hidden", (), {"find_spec": staticmethod(refuse)}))
import numpy as np, tightset
np.testing.assert_array_equal(tightset.load("m.tightset").predict_p(np.load("X.npy")), np.load("p.npy"))
for use in (lambda: tightset.SCPOLoss, lambda: tightset.SCPONeuralClassifier().fit(np.eye(60), np.arange(60) % 2)):
    try: use()
    except ImportError as error: print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.findall(r"(\w+) needs torch.*tightset\[torch\]", ran.stdout) == ["SCPOLoss", "SCPONeuralClassifier"]


# ---- modules of the user's, logits, tensors -------------------------------------------------------------------------


def test_a_module_is_copied_and_trained_at_all_levels(rows, torch, tmp_path):
    X, y, X_new, y_new = rows
    module = body(torch)
    before = [one.clone() for one in module.state_dict().values()]
    clf = neural((0.8, 0.9), network=module).fit(torch.tensor(X), torch.tensor(y))
    for one, was in zip(module.state_dict().values(), before, strict=True):
        np.testing.assert_array_equal(one, was)
    for row in clf.evaluate(X_new, y_new):
        assert row["coverage"] == pytest.approx(row["confidence"], abs=0.06)
        assert row["mean_size"] < 2.2
    np.testing.assert_array_equal(clf.predict_p(torch.tensor(X_new)), clf.predict_p(X_new))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_p(X_new), clf.predict_p(X_new))
    with pytest.raises(ModelFileError, match=r"network is a Sequential.*pickle"):
        clf.save(tmp_path / "m.tightset")
    assert list(tmp_path.iterdir()) == []


def test_what_a_module_has_frozen_stays(rows, torch):
    X, y, _, _ = rows
    module = body(torch)
    module[0].requires_grad_(requires_grad=False)
    clf = neural(network=module).fit(X, y)
    trained = clf.fitted_.folds[0].models[0].members[0].network
    np.testing.assert_array_equal(trained[0].weight, module[0].weight)
    assert (trained[3].weight != module[3].weight).any()


def test_heads_for_levels_say_what_the_network_said(torch):
    """Also where it is of a kind of its own: another forward, a hook, a last layer that is not to be trained."""
    from tightset.neural.bodies import with_heads

    nn = torch.nn

    class Wave(nn.Sequential):
        def forward(self, x):
            return super().forward(torch.sin(3 * x))

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    hooked, frozen = nn.Sequential(nn.Linear(6, 3)), nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    hooked.register_forward_hook(lambda module, inputs, found: found + 1)
    frozen[-1].requires_grad_(requires_grad=False)
    plain = nn.Sequential(nn.Linear(6, 3, bias=False))
    X = torch.randn(5, 6)
    for network in (
        Wave(nn.Linear(6, 3)),
        nn.Sequential(nn.ReLU(), Doubled(6, 3)),
        hooked,
        frozen,
        plain,
        nn.Linear(6, 3),
    ):
        wanted = network(X)
        found = with_heads(network, 3, 2)(X)
        torch.testing.assert_close(found, torch.cat([wanted, wanted], 1))
    assert not with_heads(frozen, 3, 2)[0][-1].weight.requires_grad
    assert len(with_heads(plain, 3, 2)) == 1


def test_a_module_is_not_touched_by_a_look_at_it(rows, torch):
    """Nor are the random numbers of the process, if layers draw their first weights only then."""
    X, y, _, _ = rows
    nn = torch.nn

    class Counting(nn.Sequential):
        def forward(self, x):
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x)

    module = Counting(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.Linear(8, 4)).train()
    module[1].eval()
    before = torch.get_rng_state()
    clf = neural(network=module).fit(X, y)
    assert (module.training, module[1].training, hasattr(module, "calls")) == (True, False, False)
    assert isinstance(module[0], nn.LazyLinear)
    np.testing.assert_array_equal(torch.get_rng_state(), before)
    assert clf.predict_p(X[:2]).shape == (2, 4)


@pytest.mark.parametrize("network", [(8,), "module"])
def test_rows_that_make_no_number_are_named(rows, torch, network):
    X, y, _, _ = rows
    nn = torch.nn
    clf = neural(network=nn.Sequential(nn.Linear(6, 4)) if network == "module" else network).fit(X, y)
    odd = X[:3].copy()
    odd[1] = 1e308
    for use in (lambda: clf.predict_set(odd), lambda: clf.predict_p(odd), lambda: clf.calibrate(odd, y[:3])):
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="the network gives NaN, first in row 1 of X"):
            use()
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=r"X has numbers that float32.*scale its columns"):
        neural(network=nn.Linear(6, 4)).fit(X * 1e39, y)


def test_whatever_mode_pytorch_is_in_it_trains_the_same(rows, torch):
    X, y, X_new, _ = rows
    wanted = neural((0.8, 0.9)).fit(X, y).predict_p(X_new)
    with torch.no_grad():
        np.testing.assert_array_equal(neural((0.8, 0.9)).fit(X, y).predict_p(X_new), wanted)
    with torch.inference_mode():
        np.testing.assert_array_equal(neural((0.8, 0.9)).fit(X, y).predict_p(X_new), wanted)
    torch.set_default_dtype(torch.float64)
    try:
        again = neural((0.8, 0.9), device=torch.device("cpu")).fit(X, y)
    finally:
        torch.set_default_dtype(torch.float32)
    assert again.fitted_.folds[0].models[0].members[0].weights[0].dtype == np.float32
    np.testing.assert_allclose(again.predict_p(X_new), wanted, atol=0.1)


def test_fits_in_threads_have_the_bits_of_fits_alone(rows):
    X, y, X_new, _ = rows
    wanted = neural().fit(X, y).predict_p(X_new)
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda _: neural().fit(X, y).predict_p(X_new), range(3)):
            np.testing.assert_array_equal(found, wanted)


def test_a_head_on_frozen_logits_repairs_them(rows, tmp_path):
    X, y, X_new, y_new = rows
    rng = np.random.default_rng(1)
    good = tightset.ConformalClassifier("logistic", confidence=0.9).fit(X[:300], y[:300])
    model = good.fitted_.folds[0].models[0]
    logits, new = (np.log(model.probabilities(one, good.classes_)) for one in (X[300:], X_new))
    tilt = 4 * rng.normal(size=4)
    logits, new = 2 * logits + tilt, 2 * new + tilt  # too sure, and of the wrong labels
    clf = neural(network="logits", training=None).fit(logits, y[300:])
    plain = tightset.ConformalClassifier("precomputed", confidence=0.9).fit(logits, y[300:])
    assert clf.evaluate(new, y_new)["mean_size"] < 0.98 * plain.evaluate(new, y_new)["mean_size"]
    clf.save(tmp_path / "m.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "m.tightset").predict_p(new), clf.predict_p(new))
