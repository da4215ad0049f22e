"""The same computation for batch after batch as one launch: CUDA graphs of what `SCPOLoss` does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from tightset.exceptions import warn

__all__ = ["Replays", "captured"]

_KEPT = 8  # graphs: of the sizes of batches that come again and again

Compute = Callable[..., Sequence[Tensor]]


def captured(compute: Compute, inputs: Sequence[Tensor | None]) -> tuple[Callable[[], None], Sequence[Tensor]]:
    """What runs ``compute(*inputs)`` again, on what is in ``inputs`` then, and where its results will be."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = compute(*inputs)
    finally:
        torch.cuda.set_stream(stream)  # a capture that fails may leave its own behind
    return graph.replay, outputs


class Replays:
    """Computations that are captured when they come for the second time, and replayed from then on.

    A loss of some fifty small kernels costs a GPU little and the processor that launches them much, as much as the
    network itself if that is small. What is computed must change its state in place, and look at no numbers. Where
    a capture fails, for want of memory say, no other is tried.
    """

    def __init__(self) -> None:
        self.on = True
        self._found: dict[Hashable, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"on": self.on, "_found": {}}  # a graph is bound to its process

    def can(self, logits: Any) -> bool:
        """Whether computations on these numbers can be captured."""
        if not (self.on and logits.is_cuda):
            return False
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "SCPOLoss counts the rows it remembers, which a CUDA graph cannot: leave it out of the graph that you "
                "capture (it captures what it computes itself)"
            )
        return True

    def has(self, rows: int) -> bool:
        """Whether batches of so many rows are replayed."""
        return any(one is not None and len(one[0][0]) == rows for one in self._found.values())

    def run(
        self, compute: Compute, inputs: Sequence[Tensor | None], how: Hashable, *, steady: bool
    ) -> Sequence[Tensor]:
        """``compute(*inputs)``; ``how`` is all else that it depends on, if ``steady`` it does the same each time."""
        if not (self.can(inputs[0]) and steady):
            return compute(*inputs)
        key = (how, *(None if one is None else (one.shape, one.dtype, one.device) for one in inputs))
        if key not in self._found:
            while len(self._found) >= _KEPT:
                self._found.pop(next(iter(self._found)))
            self._found[key] = None
            return compute(*inputs)
        if self._found[key] is None:
            try:
                kept = [None if one is None else one.clone() for one in inputs]
                self._found[key] = (kept, *captured(compute, kept))
            except RuntimeError as error:
                self.on = False
                self._found.clear()
                warn(f"SCPOLoss cannot be captured as a CUDA graph here ({error!r}); batches take longer without it")
                return compute(*inputs)
        kept, replay, outputs = self._found[key]
        for own, new in zip(kept, inputs, strict=True):
            if own is not None:
                own.copy_(new)
        replay()
        return [one.clone() for one in outputs]
