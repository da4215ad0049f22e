"""Which folders do the data go through, from `fit` to `predict_set`? Calls from one into another, as they happen.

    python tools/trace.py

Calls into `compute`, which everything may make, are not told, and what it calls back counts as a call of who called it.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
from sklearn.datasets import load_wine

import tightset

PACKAGE = str(Path(tightset.__file__).parent)
TRANSPARENT = ("compute", "exceptions")


def place(frame: FrameType) -> str | None:
    """The folder of the package that a frame's code lies in."""
    name = frame.f_code.co_filename
    if not name.startswith(PACKAGE):
        return None
    parts = Path(name).relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")


class Trace:
    """Calls from folder to folder, in the order in which each was first made."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        into = place(frame) if event == "call" else None
        if into is None or into in TRANSPARENT:
            return
        caller = frame.f_back
        while caller is not None and (place(caller) is None or place(caller) in TRANSPARENT):
            caller = caller.f_back
        out_of = None if caller is None else place(caller)
        if out_of not in (None, into):
            self.calls[out_of, into] = self.calls.get((out_of, into), 0) + 1  # type: ignore[index]

    def __enter__(self) -> Self:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def traced() -> dict[tuple[str, str], int]:
    X, y = load_wine(return_X_y=True)
    for _ in range(2):  # modules are imported the first time
        with Trace() as trace:
            clf = tightset.SCPOClassifier(0.9, search="fast", random_state=0, n_jobs=1, verbose=False).fit(
                X[::2], y[::2]
            )
            clf.predict_set(np.asarray(X[1::2]))
    return trace.calls


if __name__ == "__main__":
    calls = traced()
    for (out_of, into), times in calls.items():
        print(f"{out_of} -> {into}: {times:,}")
    print(f"{len(calls)} changes of folder")
