"""The networks of `SCPONeuralClassifier`, made here or the user's: heads for all levels, and what scores rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tightset.models.columns import Scaling
from tightset.models.contract import Block
from tightset.models.networks import Perceptron

__all__ = ["Given", "Head", "block_of", "made", "with_heads"]

_STEP = 3.0  # of what is added, since steps that suit the weights of a network are small for it
_ROWS_AT_ONCE = 4096
_KIND = torch.float32  # whatever the default is


class Head(nn.Module):
    """Logits of a frozen network to others: ``Z'_y = a_y Z_y + b_y`` for each class, the identity at first.

    ``Z`` are log-probabilities: what is added to all logits of a row means nothing. (A matrix of low rank beside it,
    with as many numbers more for each class as it has ranks, fitted the training rows and no others.)
    """

    def __init__(self, C: int, levels: int = 1) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.zeros(levels, C, dtype=_KIND)) for _ in range(2))

    def forward(self, X: Tensor) -> Tensor:
        Z = torch.log_softmax(X, 1)[:, None]
        return (Z + _STEP * (Z * self.a + self.b)).flatten(1)

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """The same as a matrix ``(C, L C)`` and numbers ``(L C,)``."""
        return _array(torch.cat([torch.diag(1 + _STEP * a) for a in self.a], 1)), _array(_STEP * self.b.reshape(-1))


def made(network: Any, p: int, C: int, dropout: float, input_dropout: float = 0.0) -> nn.Module:
    """A network of ``p`` columns and ``C`` outputs: of hidden layers with these widths, or the one that was given."""
    if isinstance(network, nn.Module):
        return deepcopy(network)
    if isinstance(network, str):
        return Head(C)
    widths = [p, *map(int, network)]
    layers: list[nn.Module] = [nn.Dropout(input_dropout)]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after, dtype=_KIND), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], C, dtype=_KIND))


def with_heads(body: nn.Module, C: int, levels: int) -> nn.Module:
    """The same with ``L C`` outputs: a head for each level, all of which say what the one head did."""
    if levels == 1:
        return body
    if isinstance(body, Head):
        more = Head(C, levels).to(body.a.device)
        with torch.no_grad():
            for own, one in zip(more.parameters(), body.parameters(), strict=True):
                own.copy_(one.expand_as(own))
        return more
    if type(body) is nn.Sequential and _is_plain(body) and _is_plain(body[-1]):
        last: Any = body[-1]
        heads = nn.Linear(last.in_features, levels * C, dtype=_KIND).to(last.weight.device)
        W, b = last.weight, torch.zeros(C, dtype=_KIND) if last.bias is None else last.bias
        layers: list[nn.Module] = [*list(body)[:-1], heads]
    else:
        at = next(body.parameters())
        heads = nn.Linear(C, levels * C, dtype=_KIND).to(at.device)
        W, b = torch.eye(C, dtype=_KIND), torch.zeros(C, dtype=_KIND)
        layers = [body, heads]
    with torch.no_grad():
        heads.weight.copy_(W.repeat(levels, 1))
        heads.bias.copy_(b.repeat(levels))
    return nn.Sequential(*layers)


def _is_plain(layer: nn.Module) -> bool:
    """Whether it does what its kind does, and if it has weights they are trained."""
    hooked = any(found for name, found in vars(layer).items() if name.endswith("_hooks"))
    trained = all(one.requires_grad for one in layer.parameters(recurse=False))
    return type(layer) in (nn.Sequential, nn.Linear) and trained and not hooked


@dataclass(frozen=True, eq=False)
class Given:
    """A network of the user's, which scores rows by PyTorch; no model file can hold it."""

    network: nn.Module

    def scores(self, X: Any) -> np.ndarray:
        at = next(self.network.parameters()).device
        X = np.asarray(X, dtype=np.float32)
        with torch.inference_mode():
            parts = [self.network(torch.as_tensor(X[rows]).to(at)) for rows in _pieces(len(X))]
        return np.concatenate([_array(part.float()) for part in parts])


def block_of(network: nn.Module, scaling: Scaling | None, *, given: bool) -> Block:
    """What scores rows once the network is trained."""
    if given:
        return Given(network.eval())
    if isinstance(network, Head):
        W, b = network.dense()
        return Perceptron(None, [W], [b])
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    weights = [np.ascontiguousarray(_array(layer.weight).T) for layer in linear]
    return Perceptron(scaling, weights, [_array(layer.bias) for layer in linear])


def _pieces(n: int) -> Sequence[slice]:
    return [slice(at, at + _ROWS_AT_ONCE) for at in range(0, n, _ROWS_AT_ONCE)]


def _array(x: Tensor) -> np.ndarray:
    return np.array(x.detach().cpu().numpy())
