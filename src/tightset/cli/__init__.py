"""The command line: a thin shell over the library."""

from __future__ import annotations

from tightset.cli.app import app, main

__all__ = ["app", "main"]
