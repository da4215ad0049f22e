"""Small sets in your own loop: a PyTorch network whose last epochs use `SCPOLoss` in place of cross-entropy.

The loop is the usual one but for one line. It starts with cross-entropy, and weights are averaged over the last epochs.
Calibration on other rows makes the sets valid whatever the loop did. The network is a narrow one: where a network can
learn all that there is to learn, less is gained. This needs the extra `torch`.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tightset import ConformalClassifier, SCPOLoss

torch.manual_seed(0)
rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
X = X + rng.normal(scale=3, size=X.shape)  # digits that are hard to read
order = rng.permutation(len(y))
X, y = torch.tensor(X[order] / 16, dtype=torch.float32), torch.tensor(y[order])
train, held, new = slice(0, 800), slice(800, 1300), slice(1300, None)

network = nn.Sequential(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 10))


def sizes(model, name):
    """Calibrate, and say how large sets are on new rows."""
    with torch.no_grad():
        scores = torch.log_softmax(model.eval()(X), 1).numpy()
    clf = ConformalClassifier("precomputed", confidence=0.95).fit(scores[held], y[held].numpy())
    row = clf.evaluate(scores[new], y[new].numpy())
    print(f"{name}: coverage {row['coverage']:.3f}, {row['mean_size']:.2f} labels per set")


def run(criterion, epochs, rate):
    """The usual loop, on mini-batches; the result is the average of the last weights."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.1)
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(800).split(100):
            loss = criterion(network(X[train][batch]), y[train][batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            averaged.update_parameters(network)
    return averaged


sizes(run(nn.CrossEntropyLoss(), epochs=60, rate=0.003), "cross-entropy")
sizes(run(SCPOLoss(n_classes=10, confidence=0.95), epochs=60, rate=0.002), "SCPOLoss     ")
