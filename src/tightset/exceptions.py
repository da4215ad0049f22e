"""The warning and the errors of this package, and how it warns."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

__all__ = ["ModelFileError", "TableError", "TightsetWarning", "warn"]

_PACKAGE = str(Path(__file__).parent)


class TightsetWarning(UserWarning):
    """Something that makes sets valid but larger than they could be, and what to do about it."""


class TableError(ValueError):
    """A table that cannot be used, and what to do about it."""


class ModelFileError(ValueError):
    """A model cannot be stored safely, or a file is not a model that can be opened safely."""


def warn(message: str) -> None:
    """Warn at the line of the user's that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, TightsetWarning, stacklevel=level)
