"""What training for small sets costs in PyTorch: `PYTHONPATH=. python benchmarks/neural_speed.py [device [file]]`.

An epoch of the loop of `SCPONeuralClassifier` with `SCPOLoss` against one with cross-entropy, the same network and
batches, in one run: medians of alternating epochs, on a GPU also with the loss launched kernel by kernel. And the time
to fit a head on frozen logits of 1000 classes. What a GPU takes is stored in benchmarks/neural.json, from which
`python -m studies neural report` writes its part of docs/neural.md; of a CPU nothing is stored unless a file is named.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tightset import SCPONeuralClassifier, Training
from tightset.neural.bodies import made
from tightset.neural.loss import SCPOLoss

ROWS, COLUMNS, CLASSES, REPEATS = 50_000, 784, 10, 5
LOGITS, LABELS = 50_000, 1000


class Epochs:
    """Epochs of a perceptron with one loss."""

    def __init__(self, criterion: Any, batch: int, device: str) -> None:
        torch.manual_seed(0)
        self.X = torch.randn(ROWS, COLUMNS, device=device)
        self.y = torch.randint(CLASSES, (ROWS,), device=device)
        self.network = made((64, 64), COLUMNS, CLASSES, 0.2).to(device).train()
        self.optimiser = torch.optim.AdamW(self.network.parameters(), fused=device != "cpu")
        self.criterion, self.batch, self.device = criterion, batch, device

    def seconds(self) -> float:
        wait(self.device)
        begun = time.perf_counter()
        for rows in torch.randperm(ROWS, device=self.device).split(self.batch):
            loss = self.criterion(self.network(self.X[rows]), self.y[rows])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        wait(self.device)
        return time.perf_counter() - begun


def wait(device: str) -> None:
    if "cuda" in device:
        torch.cuda.synchronize()


def epochs(device: str) -> list[dict[str, Any]]:
    measured = []
    for level in (0.95, 0.99):
        for batch in (256, 2048):
            losses = [nn.CrossEntropyLoss(), SCPOLoss(CLASSES, level), SCPOLoss(CLASSES, level)]
            losses[2].replays.on = False
            several = [Epochs(one, batch, device) for one in losses]
            for _ in range(2):  # fills the memory, captures what is replayed
                for one in several:
                    one.seconds()
            times = [[one.seconds() for one in several] for _ in range(REPEATS)]
            plain, ours, launched = (statistics.median(own) for own in zip(*times, strict=True))
            found: dict[str, Any] = {"confidence": level, "batch_size": batch, "replayed": losses[1].replays.has(batch)}
            found |= {"s_cross_entropy": plain, "s": ours, "s_kernel_by_kernel": launched}
            measured.append(found | {"ratio": ours / plain, "ratio_kernel_by_kernel": launched / plain})
            print(measured[-1], flush=True)
    return measured


def agreement(device: str) -> list[dict[str, Any]]:
    """What is replayed is what is computed: gradients of batches that are the same for both."""
    torch.manual_seed(0)
    measured = []
    for how in ({}, {"label_conditional": True}, {"objective": "penalised"}):
        pair = [SCPOLoss(CLASSES, 0.95, memory=1000, **how) for _ in range(2)]
        pair[1].replays.on = False
        off = 0.0
        for size in [256] * 20 + [100] * 5 + [256] * 5 + [1200] * 5:
            Z, y = 3 * torch.randn(size, CLASSES, device=device), torch.randint(CLASSES, (size,), device=device)
            here, there = (Z.clone().requires_grad_() for _ in pair)
            for criterion, logits in zip(pair, (here, there), strict=True):
                criterion(logits, y).backward()
            off = max(off, float((here.grad - there.grad).abs().max() / there.grad.abs().max()))
        measured.append({"how": how, "gradient_error": off})
        print(measured[-1], flush=True)
    return measured


def frozen(device: str) -> list[dict[str, Any]]:
    """A head on logits that are too sure, of a network that knows the label about as well as a good one does."""
    rng = np.random.default_rng(0)
    y = rng.integers(LABELS, size=LOGITS)
    Z = rng.normal(size=(LOGITS, LABELS)).astype(np.float32)
    Z[np.arange(LOGITS), y] += 4
    Z = 1.5 * Z + rng.normal(scale=0.5, size=LABELS).astype(np.float32)
    X = torch.as_tensor(Z, device=device)
    measured = []
    for settings in (Training(), Training(batch_size=2048)):
        begun = time.perf_counter()
        how = {"network": "logits", "training": settings, "device": device, "random_state": 0}
        clf = SCPONeuralClassifier(0.9, **how)
        clf.fit(X, y)
        whole = time.perf_counter() - begun
        row = clf.evaluate(Z[:5000], y[:5000])
        figures = {"s": whole, "coverage": row["coverage"], "mean_size": row["mean_size"]}
        measured.append({"batch_size": settings.batch_size, **figures})
        print(measured[-1], flush=True)
    return measured


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    told = {"device": torch.cuda.get_device_name() if "cuda" in where else where, "torch": torch.__version__}
    shape = {"rows": ROWS, "frozen_rows": LOGITS, "frozen_classes": LABELS}
    parts = {"agreement": agreement(where), "epochs": epochs(where), "frozen": frozen(where)}
    if len(sys.argv) > 2 or "cuda" in where:
        out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "neural.json"
        out.write_text(json.dumps(told | shape | parts, indent=2) + "\n")
