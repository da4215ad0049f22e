"""Numbers as a reader wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def number(value: float) -> str:
    """As many digits as a reader wants."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}" if abs(value) < 0.1 else f"{value:.4g}"


def with_spread(ratios: Mapping[str, float], key: str) -> str:
    return f"{number(ratios[key])} ± {number(ratios[f'{key}_spread'] / 2)}" if key in ratios else "left out"


def quantity(value: float) -> str:
    return f"{value:.2e}" if abs(value) >= 1e5 else number(value)


def paragraph(lines: Iterable[str]) -> str:
    joined = "\n".join(lines)
    return f"\n{joined}\n" if joined else ""


def rounded(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def megabytes(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
