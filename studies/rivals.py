"""Losses that SCPO is compared with, from the formulas of their papers: ConfTr, VR-ConfTr, rank-weighted training.

Each takes logits ``(m, C)`` and labels ``(m,)``, as `SCPOLoss` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ConfTr", "CrossEntropy", "RankWeighted"]


class CrossEntropy(nn.Module):
    """``mean of -log p_y``."""

    def forward(self, logits: Tensor, y: Tensor, **_: Any) -> Tensor:
        return nn.functional.cross_entropy(logits, y)


class RankWeighted(nn.Module):
    """Cross-entropy with each row weighted by the rank of its label (arXiv 2511.17861), weights of mean 1.

    The expected rank of the true label bounds the expected size of sets; re-created from that idea.
    """

    def forward(self, logits: Tensor, y: Tensor, **_: Any) -> Tensor:
        own = logits.gather(1, y[:, None])
        rank = 1 + (logits > own).sum(1).to(logits.dtype)
        each = nn.functional.cross_entropy(logits, y, reduction="none")
        return (rank / rank.mean() * each).mean()


class ConfTr(nn.Module):
    """Conformal training (Stutz et al., 2022), and with reduced variance (VR-ConfTr, arXiv 2411.01696).

    One half of a batch calibrates, the other predicts, with scores ``E = log p``::

        C_iy = sigma((E_iy - tau) / T),    size_i = max(0, sum_y C_iy - kappa),
        loss = log(mean size_i + class_loss * mean (1 - C_i,y_i))

    ``tau`` is the quantile of the calibration half. ConfTr makes sorting smooth: ``tau`` is a mean of scores with
    weights ``softmax(-|E_j - E_(r)| / spread)``, through which gradients go. VR-ConfTr takes the quantile as it is, and
    for its gradient the mean of the gradients of the ``nearest`` scores around it.
    """

    def __init__(
        self,
        eps: float,
        *,
        temperature: float,
        class_loss: float = 0.0,
        kappa: float = 1.0,
        spread: float = 0.1,
        nearest: int | None = None,
    ) -> None:
        super().__init__()
        self.eps, self.T, self.class_loss, self.kappa = eps, temperature, class_loss, kappa
        self.spread, self.nearest = spread, nearest

    def forward(self, logits: Tensor, y: Tensor, **_: Any) -> Tensor:
        E = torch.log_softmax(logits, 1)
        own = E.gather(1, y[:, None])[:, 0]
        half = len(y) // 2
        tau = self.quantile(own[:half])
        C = torch.sigmoid((E[half:] - tau) / self.T)
        size = (C.sum(1) - self.kappa).clamp_min(0).mean()
        missed = (1 - C.gather(1, y[half:, None])).mean()
        return torch.log(size + self.class_loss * missed + 1e-8)

    def quantile(self, own: Tensor) -> Tensor:
        """``tau``, the score of rank ``eps (n + 1)``."""
        rank = max(int(self.eps * (len(own) + 1)), 1) - 1
        at = own.sort().values[rank]
        if self.nearest is None:
            return (torch.softmax(-(own - at).abs() / self.spread, 0) * own).sum()
        near = own[(own - at).detach().abs().argsort()[: self.nearest]].mean()
        return at.detach() + near - near.detach()
