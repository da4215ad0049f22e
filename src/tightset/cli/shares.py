"""Shares as options take them: numbers between 0 and 1, which people also write in other ways."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["share"]


def share(text: Any) -> float:
    """A number between 0 and 1, as options take it; an error says which one was meant."""
    try:
        value = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number; give {_meant(text)}") from None
    if not 0 < value < 1:
        hint = f"; {value:g}% is {value / 100:g}" if 1 < value < 100 else ""
        raise typer.BadParameter(f"{value:g} is not between 0 and 1{hint}")
    return value


def _meant(text: str) -> str:
    """What may have been meant by a text that is no number.

    >>> [_meant(text) for text in ("95%", "0,95", "150%", "x")]
    ['0.95', '0.95', 'one such as 0.95', 'one such as 0.95']
    """
    try:
        value = float(text.strip(" %").replace(",", ".")) / (100 if "%" in text else 1)
    except ValueError:
        value = 0.0
    return f"{value:.10g}" if 0 < value < 1 else "one such as 0.95"
