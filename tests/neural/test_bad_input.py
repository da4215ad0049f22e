"""`SCPONeuralClassifier`: what can go wrong in training, and what it cannot take."""

import numpy as np
import pytest

from perceptrons import body, neural
from tightset import TightsetWarning, Training
from tightset.compute.progress import Progress


@pytest.fixture(scope="module", autouse=True)
def _there(torch):
    pass


def test_training_that_was_interrupted_goes_on_to_the_same_result(rows, monkeypatch, tmp_path):
    X, y, X_new, _ = rows
    how = {"training": Training(members=2, warm_epochs=4, epochs=3), "confidence": (0.8, 0.9)}
    whole = neural(**how).fit(X, y)
    for stop in (2, 6, 9, 13):
        clf, steps, advance = neural(**how, checkpoint=tmp_path / "state.pt"), [], Progress.advance

        def interrupted(self, n=1, steps=steps, stop=stop, advance=advance):
            steps.append(n)
            if sum(steps) > stop:
                raise KeyboardInterrupt
            advance(self, n)

        with monkeypatch.context() as patched:
            patched.setattr("tightset.neural.checkpoints._TIMES", 0)
            patched.setattr(Progress, "advance", interrupted)
            with pytest.raises(KeyboardInterrupt):
                clf.fit(X, y)
        assert not hasattr(clf, "fitted_")
        assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
        clf.fit(X, y)
        assert list(tmp_path.iterdir()) == []
        np.testing.assert_array_equal(clf.predict_p(X_new), whole.predict_p(X_new))


def test_a_checkpoint_of_something_else_is_refused(rows, monkeypatch, tmp_path):
    X, y, _, _ = rows
    path = tmp_path / "state.pt"
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        neural(checkpoint=path).fit(X, y)
    path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr("tightset.neural.checkpoints.Checkpoint.remove", lambda self: None)
        neural(checkpoint=str(path)).fit(X, y)
    with pytest.raises(ValueError, match="other rows or settings: remove it"):
        neural(checkpoint=str(path)).fit(X[:-1], y[:-1])
    with pytest.raises(ValueError, match="needs a number as random_state"):
        neural(checkpoint=str(path), random_state=None).fit(X, y)


def begun(path, X, y, how, monkeypatch):
    """Leave a checkpoint of a whole training."""
    with monkeypatch.context() as patched:
        patched.setattr("tightset.neural.checkpoints.Checkpoint.remove", lambda self: None)
        patched.setattr("tightset.neural.checkpoints._TIMES", 0)
        neural(checkpoint=path, **how).fit(X, y)


def test_a_damaged_checkpoint_is_never_used(rows, monkeypatch, tmp_path):
    X, y, X_new, _ = rows
    path, how = tmp_path / "state.pt", {"training": Training(members=1, warm_epochs=3, epochs=2)}
    begun(path, X, y, how, monkeypatch)
    whole, wanted = path.read_bytes(), neural(**how).fit(X, y).predict_p(X_new)
    refused = 0
    for at in np.linspace(0, len(whole) - 1, 60).astype(int):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:
            np.testing.assert_array_equal(neural(checkpoint=path, **how).fit(X, y).predict_p(X_new), wanted)
        except ValueError as error:
            assert "is not a checkpoint" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("what", ["inefficiency", "requires_grad", "weights"])
def test_a_checkpoint_of_what_looks_alike_is_refused(rows, torch, monkeypatch, tmp_path, what):
    X, y, _, _ = rows

    def how(other):
        module = body(torch)
        module.register_buffer("small", torch.ones((), dtype=torch.bfloat16))
        if what == "requires_grad":
            module[0].requires_grad_(requires_grad=other)
        if what == "weights" and other:
            module[-1].bias.data += 1e-6
        f = (lambda w: 2.0 * w, lambda w: 0 * w + 2.0) if other else (lambda w: w, lambda w: 0 * w + 1.0)
        return {
            "training": Training(members=1, warm_epochs=2, epochs=1),
            "network": module,
            "inefficiency": f if what == "inefficiency" else "size",
        }

    path = tmp_path / "state.pt"
    begun(path, X, y, how(other=False), monkeypatch)
    with pytest.raises(ValueError, match="other rows or settings: remove it"):
        neural(checkpoint=path, **how(other=True)).fit(X, y)


def test_what_there_is_not_to_say_is_not_said(rows):
    X, y, _, _ = rows
    only = neural(training=Training(members=1, warm_epochs=0, epochs=2)).fit(X, y).summary()
    assert only == "the network was trained for small sets only, so there are none of cross-entropy to compare with."
    none = neural(training=Training(members=1, warm_epochs=0, epochs=0)).fit(X, y).summary()
    assert none == "the network is as it was: there were no epochs."
    broken = Training(members=1, warm_epochs=3, epochs=2, fine_rate=1e25)
    with pytest.warns(TightsetWarning, match="not a finite number"):
        assert "or the first one gave numbers that are not finite" in neural(training=broken).fit(X, y).summary()


def test_losses_that_are_no_numbers_end_training_at_the_best_state(rows, torch):
    X, y, X_new, _ = rows
    broken = Training(members=1, warm_epochs=12, epochs=6, learning_rate=0.01, fine_rate=1e25)
    with pytest.warns(TightsetWarning, match=r"epoch 1 of training for small sets.*Try a smaller fine_rate"):
        clf = neural(training=broken).fit(X, y)
    warm = neural(training=Training(members=1, warm_epochs=12, epochs=0, learning_rate=0.01)).fit(X, y)
    np.testing.assert_array_equal(clf.predict_p(X_new), warm.predict_p(X_new))
    with pytest.raises(ValueError, match="not a finite number from the first epoch on: try a smaller learning_rate"):
        neural(training=Training(learning_rate=1e25)).fit(X, y)


def test_bad_input_is_named(rows, torch):
    X, y, _, _ = rows
    cases = [
        (
            {"network": body(torch, width=3)},
            r"number for each of the 4 classes of y, shape \(2, 4\).*it gives \(2, 3\)",
        ),
        ({"network": "logits"}, r"logit for each of the 4 classes of y; got 6 columns"),
        ({"network": "mlp"}, r"network must be a list of the widths.*got 'mlp'"),
        ({"network": (16, 0)}, "widths that are whole numbers, 1 or more; got 0"),
        ({"training": {"epochs": 3}}, "training must be a tightset.Training or None"),
        ({"device": "nonsense"}, "device='nonsense' cannot be used"),
        ({"device": "meta"}, "device='meta' cannot be used"),
        ({"device": 3.5}, "device=3.5 cannot be used"),
        (
            {"network": body(torch).double()},
            r"network must have parameters in float32.*torch.float64: network.float\(\)",
        ),
        ({"network": torch.nn.Linear(5, 4)}, r"network cannot take rows of 6 columns in float32: RuntimeError"),
        ({"network": torch.nn.LSTM(6, 4)}, r"shape \(2, 4\) for 2 rows; it gives a tuple"),
        ({"checkpoint": "state.pt", "cv": 3}, "checkpoint is the state of one training, and cv trains once for each"),
    ]
    if not torch.cuda.is_available():
        cases.append(({"device": "cuda"}, r"device='cuda' cannot be used: .*device=None is the CPU"))
    for how, match in cases:
        with pytest.raises(ValueError, match=match):
            neural(**how).fit(X, y)
    for name, value, wanted in (
        ("epochs", -1, "0 or more"),
        ("dropout", 1.0, "below 1"),
        ("input_dropout", -0.1, "from 0, and below 1"),
        ("held_aside", 0.0, "above 0, and below 1"),
        ("gamma", 0, "positive number"),
        ("members", True, "1 or more"),
        ("batch_size", 0, "1 or more"),
    ):
        with pytest.raises(ValueError, match=f"Training: {name} must be a.*{wanted}; got {value}"):
            Training(**{name: value})
