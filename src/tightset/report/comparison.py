"""The comparison of a report: both predictors by level, at equal coverage, in numbers and words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tightset.conformal.metrics import bootstrap_difference, sign_test
from tightset.conformal.ranks import significance
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.comparing import at_equal_coverage, levels_around
from tightset.report.numbers import Tally
from tightset.report.words import in_words, level_text, number, percent

__all__ = ["compared", "in_short"]

_VERDICTS = {
    "smaller": "smaller",
    "larger": "larger (a loss)",
    "cheaper": "cheaper",
    "dearer": "dearer (a loss)",
    "no clear difference": "not clearly different",
    "too different in coverage": "not comparable (coverage differs too much)",
}
_OF_COST = {"smaller": "cheaper", "larger": "dearer"}
_COMPARED = (0.8, 0.9, 0.95, 0.99)  # besides the levels that were trained for


def compared(
    model: ConformalPredictor, found: Tally, other: Tally, levels: list[Any], theirs_at: Callable[[list[float]], Tally]
) -> list[dict[str, Any]]:
    """Both predictors by level, the change at equal coverage with its interval, and what that means in words.

    ``theirs_at`` gives the baseline at further levels. Without labels sizes are compared as they are.
    """
    of_model = {significance(level) for level in model.levels_}
    wanted = of_model | {significance(level) for level in _COMPARED}
    places = [k for k, level in enumerate(levels) if significance(level) in wanted]
    around = levels_around([levels[k] for k in places])
    curve = None if found.covered is None else theirs_at([level for some in around for level in some])
    rows, start = [], 0
    for k, some in zip(places, around, strict=True):
        ours, theirs = found.size[k], other.size[k]
        if found.spent is not None and other.spent is not None:
            ours, theirs = found.spent[k], other.spent[k]
        if found.covered is None or curve is None or curve.covered is None:
            before = max(float(theirs.mean()), 1e-9)
            change, low, high = (one / before for one in bootstrap_difference(ours, theirs, random_state=0))
            p_value = sign_test(ours, theirs).p_value
        else:
            at = slice(start, start + len(some))
            start = at.stop
            around_it = curve.size if curve.spent is None else curve.spent
            own = ours, found.covered[k], around_it[at], curve.covered[at]
            change, low, high, p_value = at_equal_coverage(*own, levels[k])
        verdict = "smaller" if high < 0 else "larger" if low > 0 else "no clear difference"
        verdict = verdict if change == change else "too different in coverage"
        rows.append(
            {
                "level": level_text(levels[k]),
                "made_for": significance(levels[k]) in of_model,
                "size": number(found.size[k].mean()),
                "baseline": number(other.size[k].mean()),
                "cost": None if found.spent is None else number(np.nanmean(ours)),
                "baseline_cost": None if found.spent is None else number(np.nanmean(theirs)),
                "coverage": None if found.covered is None else percent(found.covered[k].mean()),
                "baseline_coverage": None if other.covered is None else percent(other.covered[k].mean()),
                "change": _change(change),
                "interval": _interval(low, high),
                "smaller": f"{int((ours < theirs).sum()):,}",
                "larger": f"{int((ours > theirs).sum()):,}",
                "p_value": f"{p_value:.2g}" if not p_value < 1e-4 else "<0.0001",
                "verdict": verdict,
            }
        )
    return rows


def _change(share: float, digits: int | None = None) -> str:
    """A change in percent, with a sign unless it is zero.

    >>> _change(-0.0371), _change(0.0002), _change(-0.0), _change(float("nan"))
    ('−3.7%', '+0.02%', '0.0%', '–')
    """  # noqa: RUF002
    if share != share:
        return "–"  # noqa: RUF001
    digits = _digits(share) if digits is None else digits
    rounded = round(100 * share, digits) + 0.0  # no sign of zero
    return f"{rounded:{'+' if rounded else ''}.{digits}f}%".replace("-", "−")  # noqa: RUF001


def _interval(low: float, high: float) -> str:
    """Both ends with the digits that tell them from zero.

    >>> _interval(-0.0371, -0.0003), _interval(-0.02, 0.0)
    ('−3.71% to −0.03%', '−2.0% to 0.0%')
    """  # noqa: RUF002
    digits = max(_digits(low), _digits(high))
    return f"{_change(low, digits)} to {_change(high, digits)}"


def _digits(share: float) -> int:
    """How many digits a change needs lest it look like none."""
    if not share or share != share:
        return 1
    return next((digits for digits in (1, 2, 3) if round(100 * share, digits)), 4)


def in_short(rows: list[dict[str, Any]]) -> str:
    """The comparison in a sentence, losses included."""
    if rows and rows[0]["cost"] is not None:
        rows = [one | {"verdict": _OF_COST.get(one["verdict"], one["verdict"])} for one in rows]
    of = {verdict: [one["level"] for one in rows if one["verdict"] == verdict] for verdict in _VERDICTS}
    said = [f"{words} at {in_words(of[verdict])}" for verdict, words in _VERDICTS.items() if of[verdict]]
    where = "At equal coverage on these rows" if rows and rows[0]["coverage"] is not None else "On these rows"
    return f"{where} the sets of the model are {'; they are '.join(said)}." if said else ""
