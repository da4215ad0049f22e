"""The command line: a thin shell over the library (extra ``cli``)."""

from __future__ import annotations

import sys
from typing import Any

from tightset.exceptions import needed_for

__all__ = ["main"]


def main(commands: Any = None) -> None:
    """Run the command that the words of the process ask for, or one of other ``commands``."""
    try:
        with needed_for("the command line", "cli"):
            from tightset.cli.app import run
    except ImportError as error:
        sys.exit(f"tightset: {error}")
    run(commands)
