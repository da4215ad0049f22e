"""The command line: a thin shell over the library (extra ``cli``)."""

from __future__ import annotations

import os
import sys
from typing import Any

from tightset.exceptions import needed_for

__all__ = ["main"]


def main(commands: Any = None) -> None:
    """Run the command that the words of the process ask for, or one of other ``commands``."""
    # OpenMP's threads then sleep while they wait. Spinning, two of them take twenty times as long on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when scikit-learn is imported, which is later
    try:
        with needed_for("the command line", "cli"):
            from tightset.cli.app import run
    except ImportError as error:
        sys.exit(f"tightset: {error}")
    except KeyboardInterrupt:  # later `run` sees to it
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)
    run(commands)
