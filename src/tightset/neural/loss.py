"""`SCPOLoss`: set size at exact coverage as a loss for mini-batches, in a training loop of your own."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Any

import numpy as np

from tightset.exceptions import needed_for

with needed_for("SCPOLoss", "torch"):
    import torch
    from torch import Tensor, nn

from tightset.conformal.costs import cost_matrix
from tightset.conformal.inefficiency import LOG, SIZE, as_inefficiency
from tightset.conformal.ranks import significance
from tightset.neural.checks import check_batch, check_choice, check_number, check_whole, checked_categories
from tightset.neural.memory import Memory, OwnScores, by_category, follow, solve, tolerance
from tightset.neural.replay import Replays
from tightset.objectives.penalised import FORMS, transformed
from tightset.objectives.terms import Terms

__all__ = ["SCPOLoss"]

_ROWS_BELOW = 100  # of every category, below its threshold, among the rows that are remembered
_LEAST = 1e-3  # of a row, that coverage moves by when the threshold does: where no row is near, it would be 0


class SCPOLoss(nn.Module):
    """Mean set size at exact coverage, as a loss for training a network on mini-batches.

    Indicators of labels being in sets are replaced by sigmoids, the threshold ``q`` is solved for, and its derivative
    is part of the gradient::

        loss = mean_i f(s_i),    s_i = sum_y cost_iy sigma(gamma (A_iy - q)),
        q such that  mean_i sigma(gamma (A_i,y_i - q)) = confidence

    with scores ``A = log_softmax(logits)``. A batch has too few rows to say where ``q`` is, and how it moves. So both
    are computed from the rows of many batches: the scores of the last ``memory`` rows are remembered (in the
    ``state_dict``, so that training can be resumed), and the gradient is that of the loss of all rows on average, for
    batches of any size. This part of the loss grows from 0 while the memory fills. In ``eval`` mode nothing is
    remembered: the threshold is that of the rows that are, or if there are none that of the batch.

    Parameters
    ----------
    n_classes : int
        The number of labels, which are ``0 ... n_classes - 1``.
    confidence : float, default 0.95
        The level that the sets are trained for.
    objective : {"profiled", "penalised"}, default "profiled"
        ``"penalised"`` is the loss of the paper: ``q`` is fixed and missed coverage costs ``lam V**2``,
        ``V = mean_i sigma(gamma (A_i,y_i - q)) - confidence``. It has one threshold and no costs.
    inefficiency : str, float or pair of functions, default "size"
        ``f``, as in `SCPOClassifier`.
    gamma : float, default 2.0
        How steep the sigmoids are. Small ones see more labels around the threshold, large ones only those near it.
    cross_entropy : float, default 1.0
        This much of the cross-entropy is added: it keeps apart labels far from the threshold, where there is no
        gradient else. With 0 the loss is what the formula says.
    label_conditional : bool, default False
        A threshold for each label, as for ``SCPOClassifier(label_conditional=True)``.
    n_groups : int or None, default None
        A threshold for each group: the loss is then called with ``groups`` in ``0 ... n_groups - 1``.
    cost : dict, array-like of shape (n_classes,) or (n_classes, n_classes), or None, default None
        What a label in a set costs, by label, or by true label (row) and label in the set (column).
    labels : array-like of shape (n_samples,), optional
        The labels of all training rows: labels or groups with too few rows for a threshold of their own then share
        one, and costs are weighted by the shares of labels.
    label_groups : array-like of shape (n_samples,), optional
        The groups of these rows.
    scores : {"softmax", "linear"} or None, default None
        ``A`` is ``log_softmax(logits)``, or the logits themselves, as the paper has it. None is ``"softmax"`` if
        profiled and ``"linear"`` if penalised.
    memory : int or None, default None
        Rows that are remembered. By default so many that 100 of each category are below its threshold: 2,000 at 95 %,
        10,000 at 99 %. Of a batch that is no smaller, only its own rows count: with 0 that is so for every batch, as it
        should be for training on all rows at once.
    lam, q, form : float, float and str
        Of the penalised objective: the penalty, the threshold, and which increasing function of the loss ``L`` is
        minimised: ``"L"``, ``"log L"``, ``"-1/L"`` or ``"-1/L^2"``.

    Notes
    -----
    The quantile of a batch of 256 rows would be noisy, biased, and correlated with the gradient that it is used in;
    docs/neural.md has what that costs. Rows of a batch should be drawn at random from all rows.

    Examples
    --------
    >>> import torch
    >>> criterion = SCPOLoss(n_classes=3, confidence=0.9)
    >>> logits = torch.zeros(8, 3, requires_grad=True)
    >>> loss = criterion(logits, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]))
    >>> loss.backward()
    >>> logits.grad.shape
    torch.Size([8, 3])
    """

    index: Tensor
    offset: Tensor
    price: Tensor | None
    threshold: Tensor
    swept: Tensor

    def __init__(
        self,
        n_classes: int,
        confidence: Any = 0.95,
        *,
        objective: str = "profiled",
        inefficiency: Any = "size",
        gamma: float = 2.0,
        cross_entropy: float = 1.0,
        label_conditional: bool = False,
        n_groups: int | None = None,
        cost: Any = None,
        labels: Any = None,
        label_groups: Any = None,
        scores: str | None = None,
        memory: int | None = None,
        lam: float = 10.0,
        q: float = 1.0,
        form: str = "L",
    ) -> None:
        super().__init__()
        for name, whole, least in (("n_classes", n_classes, 2), ("n_groups", n_groups, 1), ("memory", memory, 0)):
            if whole is not None or name == "n_classes":
                check_whole(name, whole, least)
        for name, number in (("gamma", gamma), ("lam", lam), ("cross_entropy", cross_entropy), ("q", q)):
            check_number(name, number, sign={"q": "", "cross_entropy": "0 or more"}.get(name, "above 0"))
        self.eps = float(significance(confidence))
        self.f = as_inefficiency(inefficiency)
        self.n_classes, self.gamma, self.cross_entropy = n_classes, gamma, cross_entropy
        self.objective, self.lam, self.q, self.form = objective, lam, q, form
        self.scores = ("softmax" if objective == "profiled" else "linear") if scores is None else scores
        self.n_groups = n_groups
        check_choice("objective", objective, ("profiled", "penalised"))
        check_choice("scores", self.scores, ("softmax", "linear"))
        check_choice("form", form, tuple(FORMS))
        if objective == "penalised" and (label_conditional or n_groups is not None or cost is not None):
            raise ValueError(
                "objective='penalised' has one threshold and no costs: leave label_conditional, n_groups and cost out, "
                "or use 'profiled'"
            )
        terms = self._terms(label_conditional, cost, labels, label_groups)
        self.T = terms.n_thresholds
        price = None if terms.cost is None else terms.cost / (terms.unit if self.f == SIZE else 1.0)
        self.register_buffer("index", torch.as_tensor(terms.index), persistent=False)
        self.register_buffer("offset", torch.as_tensor(terms.offset), persistent=False)
        self.register_buffer("price", None if price is None else torch.as_tensor(price), persistent=False)
        self.register_buffer("threshold", torch.zeros(self.T, dtype=torch.float64))
        self.register_buffer("swept", torch.zeros(self.T, dtype=torch.float64))
        rows = ceil(_ROWS_BELOW / self.eps) * self.T if memory is None else memory
        self.memory = Memory(rows if labels is None else min(rows, len(labels)))
        self.replays = Replays()

    def _terms(self, by_label: bool, cost: Any, labels: Any, label_groups: Any) -> Terms:
        """Categories and costs; without labels, every label is as frequent as the others and no category is small."""
        C, G = self.n_classes, self.n_groups or 1
        if label_groups is not None and self.n_groups is None:
            raise ValueError("label_groups belong to n_groups, which was not given")
        if labels is None:
            rows = ceil(2 / self.eps)
            y, group = (one.ravel() for one in np.tile(np.indices((C, G)), (1, 1, rows)))
        else:
            y = checked_categories("labels", labels, C, "labels")
            if self.n_groups is not None and label_groups is None:
                raise ValueError("labels of rows in groups need label_groups beside them")
            group = None if label_groups is None else checked_categories("label_groups", label_groups, G, "groups")
            if group is not None and (len(group) != len(y) or group.max() + 1 < G):
                raise ValueError(f"label_groups must be those of the rows of labels, some of each of the {G} groups")
        found = Terms.of(
            y,
            C,
            self.eps,
            by_label=by_label,
            group=group if self.n_groups is not None else None,
            cost=cost_matrix(cost, np.arange(C)),
            false_only=self.f.observed,
        )
        return found or Terms(np.zeros((1, C), dtype=np.int64), None, np.zeros(C), None)

    def forget(self) -> None:
        """Remember no row, as at the start."""
        self.memory.forget()

    # ---- the loss -----------------------------------------------------------------------------------------------

    def forward(
        self, logits: Tensor, y: Tensor, *, groups: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        logits : Tensor of shape (n_samples, n_classes)
            What the network says.
        y : Tensor of shape (n_samples,)
            The labels.
        groups : Tensor of shape (n_samples,), optional
            The groups, if there are ``n_groups``.
        sample_weight : Tensor of shape (n_samples,), optional
            Weights of the rows, as they are for all rows: it does not matter what those of a batch add up to.

        Returns
        -------
        loss : Tensor
            A number, to call ``backward()`` on. Its gradient is what the formula says; its value is corrected to first
            order for the coverage that the batch does not have.
        """
        check_batch(logits, y, groups, sample_weight, n_classes=self.n_classes, n_groups=self.n_groups)
        if sample_weight is not None and logits.device.type == "cpu" and not sample_weight.any():
            nothing = torch.zeros_like(logits, requires_grad=False)  # it counts for nothing
            return _Stated.apply(
                logits, torch.zeros((), dtype=torch.promote_types(logits.dtype, torch.float32)), nothing
            )
        with torch.inference_mode(mode=False), torch.no_grad():
            slots = self.memory.slots(len(y), logits.device) if self.training else None
            inputs = (logits.detach(), y, None if groups is None else groups.long(), sample_weight, slots)
            follows = self.training and slots is None and self.memory.batches > 1 and self.replays.can(logits)
            # Somebody else's f may look at its numbers, which no graph can.
            steady = (follows or (slots is not None and self.memory.full)) and self.f in (SIZE, LOG)
            how = (follows, self.gamma, self.cross_entropy, self.lam, self.q, self.memory.weighted)
            places = [one.data_ptr() for one in (self.threshold, self.swept, self.memory.z)]
            compute = partial(self._value_and_gradient, follows=follows)
            value, derivative = self.replays.run(compute, inputs, (*how, *places), steady=steady)
        return _Stated.apply(logits, value, derivative)

    def _value_and_gradient(
        self, logits: Tensor, y: Tensor, groups: Any, sample_weight: Any, slots: Tensor | None, *, follows: bool
    ) -> tuple[Tensor, Tensor]:
        """The loss and its derivative with respect to the logits ``(m, C)``.

        Once the memory is full, or if thresholds follow those of the batch before, it never looks at a number and
        changes what it keeps in place, so that it can be replayed.
        """
        kind = logits.dtype if logits.dtype == torch.float64 else torch.float32
        Z, y = logits.to(kind), y.long()
        if self.offset.dtype != kind or self.offset.device != Z.device:
            self.to(device=Z.device, dtype=kind)
        m = len(Z)
        log_p = torch.log_softmax(Z, 1)
        at = y[:, None]
        index = self.index if groups is None else self.index[groups]  # (1 or m, C)
        own_category = None if self.T == 1 else index.expand(m, -1).gather(1, at)[:, 0]
        A = log_p if self.scores == "softmax" else Z
        z = self.gamma * (A if self.price is None else A - self.offset)
        own_weight = None if sample_weight is None else sample_weight.to(Z)
        own_weight = torch.ones_like(z[:, 0]) if own_weight is None and self.T > 1 else own_weight
        own = OwnScores(z.gather(1, at)[:, 0], own_category, own_weight)
        rows = self.memory.with_those_before(own) if slots is None else self.memory.remember(own, slots)
        # Of weights the mean over many rows is 1: in a batch they may add up to more or less.
        w = (1.0 if sample_weight is None else sample_weight.to(Z)[:, None]) / (m * rows.unit())
        value, G = self._in_scores(z, own, rows, w, at, index, y, follows=follows)
        if self.cross_entropy:
            mixed = -self.cross_entropy * w * torch.ones_like(Z[:, :1])
            value = value + (mixed * log_p.gather(1, at)).sum()
            G.scatter_add_(1, at, mixed)
            if self.scores == "linear":
                G -= log_p.exp() * mixed
        if self.scores == "softmax":  # from log-probabilities to logits, for both parts
            G = torch.addcmul(G, log_p.exp(), G.sum(1, keepdim=True), value=-1)
        return value, G

    def _in_scores(
        self, z: Tensor, own: OwnScores, rows: OwnScores, w: Any, at: Tensor, index: Tensor, y: Tensor, *, follows: bool
    ) -> tuple[Tensor, Tensor]:
        """The loss and its derivative with respect to the scores ``A``, ``z = gamma (A - offset)``.

        Weights ``w`` are ``(m, 1)``, or a number for all rows; ``rows`` are those that say where thresholds are.
        """
        q, slope, missed = self._over_many_rows(own, rows, follows=follows)
        t = torch.sigmoid(z - (q if self.T == 1 else q[index]))
        price = None if self.price is None else self.price[y]
        s = (t if price is None else t * price).sum(1, keepdim=True)
        D = torch.addcmul(t, t, t, value=-1)  # gamma waits until the end
        dF = D * (w if self.f == SIZE else w * self.f.derivative(s))
        dF = dF if price is None else dF * price
        inefficiency = (w * self.f(s)).sum()
        d_own, t_own = w * D.gather(1, at), t.gather(1, at)
        if self.objective == "penalised":
            mean = self._running(inefficiency.reshape(1), len(z))
            value, rate = transformed(mean[0] + self.lam * missed * missed, self.form)
            G = rate * dF.scatter_add_(1, at, 2 * self.lam * missed * d_own)
            return value, self.gamma * G
        swept = self._running(by_category(dF, None if self.T == 1 else index.expand_as(dF), self.T), len(z))
        rho = swept / slope
        of_rows = rho if own.category is None else rho[own.category][:, None]
        excess = by_category(w * (t_own - (1 - self.eps)), own.category, self.T)
        # What the solver leaves is not to be corrected: where no row is near the threshold, rho is huge.
        value = inefficiency - (rho * nn.functional.hardshrink(excess, 2 * tolerance(excess.dtype))).sum()
        known = not self.training or len(z) >= self.memory.rows
        sure = 1.0 if known else min(1.0, self.memory.seen / self.memory.rows)
        return sure * value, (sure * self.gamma) * dF.scatter_add_(1, at, -of_rows * d_own)

    # ---- what is known of many rows -----------------------------------------------------------------------------

    def _over_many_rows(self, own: OwnScores, rows: OwnScores, *, follows: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Thresholds ``q (T,)`` in units of the sigmoid, the slope of coverage there, and missed coverage ``V``."""
        share = None if rows.weight is None else rows.weight.sum()
        if self.objective == "penalised":
            q = torch.full_like(rows.z[:1], self.gamma * self.q)
            covered = rows.total(torch.sigmoid(rows.z - q), 1)[0]
            covered = covered if share is None else covered / share
            return q, covered, covered - (1 - self.eps)
        if follows:
            q, slope = follow(own, self.eps, self.threshold, self.T)
        else:
            known = self.memory.seen > (0 if rows is own else len(own.z))  # thresholds of the batch before
            q, slope = solve(rows, self.eps, self.threshold if known else None, self.T, exactly=rows is own)
        if self.training:
            self.threshold.copy_(torch.where(q.isfinite(), q, self.threshold))
        return q, (slope if share is None else slope / share).clamp_min(_LEAST / len(rows.z)), q

    def _running(self, batch: Tensor, m: int) -> Tensor:
        """The mean over the rows that are remembered of what is known batch by batch."""
        if m >= self.memory.rows:
            return batch
        rate = min(1.0, m / max(1, min(self.memory.seen, self.memory.rows)))
        found = torch.lerp(self.swept, batch.nan_to_num(), rate)
        if self.training:
            self.swept.copy_(found)
        return found


class _Stated(torch.autograd.Function):
    """A number whose derivative is known, perhaps more exactly than the logits are."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, derivative: Tensor) -> Tensor:
        ctx.dtype = logits.dtype
        ctx.save_for_backward(derivative)
        return value

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, None, None]:
        (derivative,) = ctx.saved_tensors
        return (outputs[0] * derivative).to(ctx.dtype), None, None  # after what scales it, lest small ones are lost
