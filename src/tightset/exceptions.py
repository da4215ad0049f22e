"""The warning and the errors of this package, and how it warns."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ModelFileError", "TableError", "TightsetWarning", "needed_for", "warn"]

_PACKAGE = str(Path(__file__).parent)


class TightsetWarning(UserWarning):
    """Warns of data or settings that make predictions less useful, and says what to do about it.

    Examples are too few calibration rows for a level, whose sets then hold every label, and labels that no set can
    hold. Filter it as any other warning.
    """


class TableError(ValueError):
    """Raised for a table that cannot be used; the message says what to do about it."""


class ModelFileError(ValueError):
    """Raised if a model cannot be stored safely, or a file is not a model that can be opened safely."""


@contextmanager
def needed_for(what: str, extra: str) -> Iterator[None]:
    """Around the import of a package that not everybody has: where it is missing, the error names the extra.

    >>> with needed_for("a choir", "song"):
    ...     import nightingale
    Traceback (most recent call last):
    ImportError: a choir needs nightingale, which is not installed: pip install "tightset[song]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "another package").partition(".")[0]
        raise ImportError(f'{what} needs {missing}, which is not installed: pip install "tightset[{extra}]"') from None


def warn(message: str) -> None:
    """Warn at the line of the user's that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, TightsetWarning, stacklevel=level)
