"""Networks in quick settings, for every test that fits one; and a module."""

from tightset import SCPONeuralClassifier, Training

QUICK = Training(warm_epochs=12, epochs=6, learning_rate=0.01)


def neural(confidence=0.9, **how):
    return SCPONeuralClassifier(confidence, **{"network": (16,), "training": QUICK, "random_state": 0, **how})


def body(torch, width=4, inner=12):
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(6, inner), nn.BatchNorm1d(inner), nn.ReLU(), nn.Linear(inner, width))
