"""Doctests of modules that need PyTorch are left out where it is not installed; CI must have it."""

import os
from importlib.util import find_spec

_OF_TORCH = [
    "src/tightset/neural",
    "studies/networks.py",
    "studies/neural.py",
    "studies/neural_report.py",
    "studies/rivals.py",
]
_LEFT_OUT = find_spec("torch") is None and os.environ.get("CI") != "true"

collect_ignore = _OF_TORCH if _LEFT_OUT else []


def pytest_report_header() -> str | None:
    return f"PyTorch is not installed: doctests of {', '.join(_OF_TORCH)} are left out" if _LEFT_OUT else None
