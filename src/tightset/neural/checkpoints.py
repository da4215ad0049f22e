"""Checkpoints of training: files that are written whole, opened without running code, and used where they belong."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor

from tightset.storage.file import written_whole

__all__ = ["Checkpoint", "fingerprint"]

_NO_CHECKPOINT = (  # what reading a file may raise that is none
    *(ArithmeticError, AssertionError, AttributeError, BadZipFile, EOFError, LookupError),
    *(OSError, RuntimeError, TypeError, UnpicklingError, ValueError),
)
_TIMES = 20  # as long as it took to write, before it is written again


def fingerprint(*parts: Any) -> str:
    """What tells one training from another: settings by their text, tensors by their numbers.

    >>> fingerprint("a", torch.zeros(2)) == fingerprint("a", torch.zeros(2)) != fingerprint("b", torch.zeros(2))
    True
    """
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            found.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        else:
            found.update(repr(part).encode())
        found.update(b"|")
    return found.hexdigest()


class Checkpoint:
    """The state of training in a file; without a path nothing is kept.

    Beside the states of the networks up to that which is being trained, the file has PyTorch's random numbers, so that
    training that is resumed has the same result. Writing takes a small part of the time at the most.
    """

    def __init__(self, path: Any, of: str, device: str) -> None:
        self.path = None if path is None else Path(path)
        self.of, self.device = of, device
        self._due = 0.0

    def read(self) -> dict[str, Any] | None:
        """What is in the file; None if there is none."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with ZipFile(self.path) as parts:
                whole = parts.testzip() is None
            found = torch.load(self.path, map_location=self.device, weights_only=True) if whole else {}
            belongs = found["of"] == self.of
        except _NO_CHECKPOINT:
            raise ValueError(f"checkpoint={str(self.path)!r} is not a checkpoint: give another name") from None
        if not belongs:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is of a training with other rows or settings: remove it to start anew, "
                "or give another name"
            )
        return dict(found)

    def resume(self, course: Any, found: dict[str, Any]) -> None:
        """Go on with the course that was broken off: its state, and the random numbers that come next."""
        course.restore(found["states"][-1])
        torch.set_rng_state(found["random"].cpu())
        if found["random_on_device"] is not None:
            torch.cuda.set_rng_state(found["random_on_device"].cpu(), self.device)

    def write(self, courses: Sequence[Any]) -> None:
        """The state of training, of which the last course is going on."""
        if self.path is None or time.monotonic() < self._due:
            return
        began = time.monotonic()
        on_device = torch.cuda.get_rng_state(self.device) if "cuda" in self.device else None
        content = {"of": self.of, "states": [one.state() for one in courses]}
        with written_whole(self.path) as file:
            torch.save(content | {"random": torch.get_rng_state(), "random_on_device": on_device}, file)
        self._due = time.monotonic() + _TIMES * (time.monotonic() - began)

    def remove(self) -> None:
        """Training is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
