"""How a network is trained: `Training`, the settings of `SCPONeuralClassifier`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tightset.storage.registry import storable

__all__ = ["LOGITS", "MEMBERS", "NETWORKS", "Training", "rows_in_batch"]

LOGITS = "logits"
MEMBERS = 5
NETWORKS = "network must be a list of the widths of hidden layers, a torch.nn.Module or 'logits'; got {!r}"


@storable
@dataclass(frozen=True)
class Training:
    """Settings of the training of `SCPONeuralClassifier`.

    First the network is trained with cross-entropy, then for small sets; of both, the state stays that has the smallest
    sets on training rows that were held aside.

    Parameters
    ----------
    epochs : int, default 60
        Epochs of training for small sets, at most; 0 for none.
    warm_epochs : int, default 40
        Epochs of cross-entropy before, with a rate that falls to 0.
    patience : int, default 25
        Epochs without smaller sets after which training for small sets ends.
    members : int or None, default None
        Networks that are trained, each with other rows held aside, and whose probabilities are averaged. None is 5 for
        networks made here, which is more than any choice of the loss gains, and 1 for a module or a head on logits.
    batch_size : int or None, default None
        Rows in a batch. None is a thirtieth of the rows, from 32 to 1,024.
    learning_rate : float, default 0.001
        The step size of AdamW with cross-entropy.
    fine_rate : float, default 0.002
        The step size when training for small sets.
    weight_decay : float, default 0.1
        That of AdamW, on weights and not on biases.
    dropout : float, default 0.2
        The share of hidden units that are left out at random, of networks made here.
    gamma : float, default 2.0
        How steep the sigmoids are, as in `SCPOLoss`.
    cross_entropy : float, default 1.0
        How much cross-entropy is mixed in when training for small sets, as in `SCPOLoss`.
    averaged_epochs : float, default 16
        Weights are averaged over about the last so many epochs, exponentially. With 0 they are not.
    held_aside : float, default 0.2
        The share of the training rows that are held aside to choose the state of the network.
    input_dropout : float, default 0.0
        The share of columns that are left out at random, of networks made here. Many columns of an image say the same:
        with 0.3, and 0 for ``dropout`` and 0.3 for ``weight_decay``, sets of images become several percent smaller. A
        table of few columns cannot spare any.

    Examples
    --------
    >>> Training(members=3).members
    3
    """

    epochs: int = 60
    warm_epochs: int = 40
    patience: int = 25
    members: int | None = None
    batch_size: int | None = None
    learning_rate: float = 1e-3
    fine_rate: float = 2e-3
    weight_decay: float = 0.1
    dropout: float = 0.2
    gamma: float = 2.0
    cross_entropy: float = 1.0
    averaged_epochs: float = 16.0
    held_aside: float = 0.2
    input_dropout: float = 0.0

    def __post_init__(self) -> None:
        least = {"members": 1, "batch_size": 1, "patience": 1, "epochs": 0, "warm_epochs": 0}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("batch_size", "members") and value is None:
                continue
            if field.name in least:
                right = isinstance(value, (int, np.integer)) and value >= least[field.name]
                wanted = f"a whole number, {least[field.name]} or more"
            else:
                right, wanted = self._number(field.name, value)
            if not right or isinstance(value, (bool, np.bool_)):
                raise ValueError(f"Training: {field.name} must be {wanted}; got {value!r}")

    def _number(self, name: str, value: Any) -> tuple[bool, str]:
        is_number = isinstance(value, (int, float, np.number))
        if name in ("dropout", "input_dropout", "held_aside"):
            low = 1e-9 if name == "held_aside" else 0
            return is_number and low <= value < 1, f"a share {'above' if low else 'from'} 0, and below 1"
        if name in ("weight_decay", "cross_entropy", "averaged_epochs"):
            return is_number and 0 <= value < np.inf, "a number, 0 or more"
        return is_number and 0 < value < np.inf, "a positive number"


def rows_in_batch(settings: Training, n: int) -> int:
    """Of ``n`` rows.

    >>> rows_in_batch(Training(), 3000), rows_in_batch(Training(batch_size=512), 300)
    (100, 300)
    """
    return min(n, min(max(n // 30, 32), 1024) if settings.batch_size is None else settings.batch_size)
