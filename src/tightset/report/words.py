"""The words of a report: levels, shares, p-values, verdicts, any value of the data as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from inspect import signature
from typing import Any

import numpy as np

from tightset.conformal.intervals import coverage_band, share_interval
from tightset.conformal.metrics import bootstrap_difference, sign_test
from tightset.conformal.ranks import calibration_rows_needed, significance
from tightset.conformal.shortfall import Shortfall, why
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.checks import nearest_level
from tightset.estimators.comparing import at_equal_coverage, levels_around
from tightset.report.numbers import ByLabel, Tally, calibration

__all__ = [
    "NAME",
    "about_model",
    "as_lists",
    "band",
    "compared",
    "in_short",
    "in_words",
    "level_text",
    "number",
    "p_text",
    "percent",
    "say",
    "say_of_pairs",
    "text",
    "thousandths",
    "versions",
]

_VERDICTS = {
    "smaller": "smaller",
    "larger": "larger (a loss)",
    "no clear difference": "not clearly different",
    "too different in coverage": "not comparable (coverage differs too much)",
}
NAME = 200  # characters of a label or a column's name
_COMPARED = (0.8, 0.9, 0.95, 0.99)  # besides the levels that were trained for


def text(value: Any, length: int) -> str:
    r"""Any value as text that a page can hold: nothing for what is missing, no control characters, not too long.

    >>> text(float("nan"), 9), text(b"caf\xc3\xa9", 9), text("a\0b" * 9, 5)
    ('', 'café', 'a�ba…')
    >>> text(datetime(2024, 2, 29), 99), text(datetime(2024, 2, 29, 12), 99)
    ('2024-02-29', '2024-02-29 12:00:00')
    """
    if value is None or repr(value) in ("nan", "np.float64(nan)", "np.float32(nan)", "NaT", "<NA>"):
        return ""
    if isinstance(value, (bytes, bytearray)):
        value = value.decode("utf-8", "replace")
    elif isinstance(value, datetime):
        value = str(value).removesuffix(" 00:00:00")
    found = str(value)[: length + 1].encode("utf-8", "replace").decode("utf-8")  # half characters cannot be written
    # What is not printable but a space or a joiner could hide text, or turn its direction.
    found = "".join(c if c.isprintable() or c.isspace() or c in "\u200c\u200d\u00ad" else "\ufffd" for c in found)
    return found if len(found) <= length else found[: length - 1] + "…"


def level_text(level: Any) -> str:
    return f"{100 * float(level):.10g}%"


def percent(share: float) -> str:
    """A share with the digits that tell it from all and from nothing.

    >>> percent(0.95123), percent(0.9996), percent(1.0), percent(0.0001)
    ('95.1%', '99.96%', '100%', '0.01%')
    """
    digits = 0 if share in (0, 1) else 1 if 0.001 <= share <= 0.999 else 2
    return f"{100 * share:.{digits}f}%"


def number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def p_text(thousandths: int) -> str:
    """A p-value as the page shows it; its script has the same rule."""
    return f"{thousandths / 1000:.3f}" if thousandths else "<0.001"


def thousandths(p: np.ndarray) -> list[Any]:
    found: list[Any] = np.rint(1000 * np.asarray(p, dtype=np.float64)).astype(int).tolist()
    return found


def band(model: ConformalPredictor, level: Any, n: int) -> tuple[float, float]:
    rows, together = calibration(model)
    return coverage_band(level, n, rows if together else None)


def say(
    model: ConformalPredictor, found: Tally, of_labels: ByLabel | None, levels: list[Any], k: int, other: Tally | None
) -> dict[str, str]:
    """All that the page says of a level, in words."""
    level, size, n = levels[k], found.size[k], found.size.shape[1]
    C = len(model.classes_)
    said = {
        "level": level_text(level),
        "note": _level_note(model, level),
        "value": f"{level_text(level)} confidence" + (", made for it" if _made_for(model, level) else ""),
        "size": number(size.mean()),
        "single": percent((size == 1).mean()),
        "empty": percent((size == 0).mean()),
        "full": percent((size == C).mean()),
        "single_count": f"{int((size == 1).sum()):,} of {n:,}",
        "empty_count": f"{int((size == 0).sum()):,} of {n:,}",
        "full_count": f"{int((size == C).sum()):,} of {n:,}",
        "baseline": "" if other is None else number(other.size[k].mean()),
        "coverage": "unknown",
        "interval": "no labels were given",
        "verdict": "",
        "short": "",
        "short_why": "",
    }
    seen = fall = ""
    if found.covered is not None:
        hits = int(found.covered[k].sum())
        said["coverage"] = percent(hits / n)
        said["interval"] = " to ".join(percent(float(end)) for end in share_interval(hits, n))
        short = Shortfall([], 0) if of_labels is None else of_labels.short[k]
        said["verdict"] = _verdict(model, level, hits / n, n, short)
        seen = f"coverage {said['coverage']}, "
        if short.labels:
            few = len(short.labels) == 1
            of = f"{len(short.labels):,} of {C:,} labels"
            said["short"] = f"{of} {'is' if few else 'are'} covered less than {said['level']}, by more than chance."
            low = hits / n < band(model, level, n)[0]
            by_label = model.fitted_.by_label
            said["short_why"] = why(by_label=by_label, low_on_average=low)
            fall = f" {of} short."
    many = "label" if said["size"] == "1.00" else "labels"
    said["told"] = f"At {said['level']} confidence: {seen}{said['size']} {many} per set, {said['single']} single.{fall}"
    return said


def say_of_pairs(stop: dict[str, Any] | None, C: int) -> str:
    """What the figure of labels that share sets shows at a level."""
    if stop is None:
        return "No set holds two labels."
    shown = len(stop["labels"])
    which = f"The {shown} of {C:,} labels that share most. " if shown < C else ""
    what = "whose set contains both labels: labels that the model cannot tell apart"
    return f"{which}Rows, of every {stop['per']}, {what}."


def _made_for(model: ConformalPredictor, level: Any) -> bool:
    return significance(level) in map(significance, model.levels_)


def _level_note(model: ConformalPredictor, level: Any) -> str:
    if _made_for(model, level):
        return "The model was made for this level."
    if not model.trains_for_level:
        return "The model was not made for this level, but one model serves all levels."
    at = model.levels_[nearest_level(level, model.levels_)]
    return (
        f"No measure was trained for this level; the one for {level_text(at)} is used. The sets are valid, but may be "
        "larger than necessary."
    )


def _verdict(model: ConformalPredictor, level: Any, seen: float, n: int, short: Shortfall) -> str:
    """What the coverage on average means; it never reassures of labels that fall short."""
    rows, together = calibration(model)
    if together and rows < calibration_rows_needed(level):
        return (
            f"There are {rows:,} calibration rows, but {calibration_rows_needed(level):,} are needed to exclude a "
            "label at this level: every set contains all labels."
        )
    low, high = band(model, level, n)
    begin = (
        f"On average over all rows: if coverage is exactly as guaranteed, it lies between {percent(low)} and "
        f"{percent(high)} on {n:,} row{'s' if n > 1 else ''}, 19 times out of 20. Here "
    )
    if seen < low:
        return f"{begin}it is lower than chance explains: these rows may differ from the calibration rows."
    if seen > high:
        why = "" if model.allow_empty else "No set is left empty, which raises it. "
        begin += (
            f"it is higher. {why}Possible reasons: tied scores, too few calibration rows, or rows that the model was "
            "trained or calibrated on."
        )
    else:
        begin += "it is in that range."
    if short.labels:
        return f"{begin} But the average hides the label{'s' if len(short.labels) > 1 else ''} named above."
    if short.tested > 1:
        enough = f"{short.tested:,} labels with enough rows to tell"
        return f"{begin} None of the {enough} falls short of {level_text(level)} by more than chance."
    return f"{begin} There are too few rows to judge single labels."


def about_model(model: ConformalPredictor) -> dict[str, Any]:
    rows, together = calibration(model)
    defaults = {name: one.default for name, one in signature(type(model).__init__).parameters.items()}
    given = model.get_params(deep=False)
    changed = {name: repr(value) for name, value in given.items() if repr(value) != repr(defaults.get(name))}
    changed.setdefault("random_state", repr(model.random_state))
    return {
        "name": type(model).__name__,
        "levels": in_words([level_text(level) for level in model.levels_]),
        "too_few": together and calibration_rows_needed(0.999) > rows,  # as in `stops`
        "one_for_all": not model.trains_for_level,
        "calibration_rows": f"{rows:,}",
        "by_label": model.fitted_.by_label,
        "by_group": model.fitted_.by_group,
        "folds": len(model.folds_),
        "allow_empty": bool(model.allow_empty),
        "parameters": {name: text(value, 1000) for name, value in changed.items()},
    }


def as_lists(value: Any) -> str | list[tuple[str, str]]:
    """What was told about the page, for reading: a text, or the names and values of what has names.

    >>> as_lists({"yes": 1234, "no": 0.51234567}), as_lists(["a", 2]), as_lists({})
    ([('yes', '1,234'), ('no', '0.51235')], 'a, 2', 'none')
    >>> as_lists({"at 90%": {"a": 1, "b": 2}}), as_lists(20000), as_lists(True)
    ([('at 90%', 'a: 1, b: 2')], '20,000', 'yes')
    """
    if isinstance(value, Mapping) and value:
        return [(text(name, NAME), _as_text(one)) for name, one in value.items()]
    return _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        pairs = [f"{name}: {_as_text(one)}" for name, one in value.items()] if isinstance(value, Mapping) else []
        return text(", ".join(pairs or map(_as_text, value)), 4000) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return f"{value:,.5g}"
    return text(value, 4000) or "–"  # noqa: RUF001


def versions() -> dict[str, str]:
    import platform

    import scipy
    import sklearn

    import tightset

    return {
        "tightset": tightset.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def in_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


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
        if found.covered is None or curve is None or curve.covered is None:
            before = max(float(theirs.mean()), 1e-9)
            change, low, high = (one / before for one in bootstrap_difference(ours, theirs, random_state=0))
            p_value = sign_test(ours, theirs).p_value
        else:
            at = slice(start, start + len(some))
            start = at.stop
            own = ours, found.covered[k], curve.size[at], curve.covered[at]
            change, low, high, p_value = at_equal_coverage(*own, levels[k])
        verdict = "smaller" if high < 0 else "larger" if low > 0 else "no clear difference"
        verdict = verdict if change == change else "too different in coverage"
        rows.append(
            {
                "level": level_text(levels[k]),
                "made_for": significance(levels[k]) in of_model,
                "size": number(ours.mean()),
                "baseline": number(theirs.mean()),
                "coverage": None if found.covered is None else percent(found.covered[k].mean()),
                "baseline_coverage": None if other.covered is None else percent(other.covered[k].mean()),
                "change": _change(change),
                "interval": f"{_change(low)} to {_change(high)}",
                "smaller": f"{int((ours < theirs).sum()):,}",
                "larger": f"{int((ours > theirs).sum()):,}",
                "p_value": f"{p_value:.2g}" if not p_value < 1e-4 else "<0.0001",
                "verdict": verdict,
            }
        )
    return rows


def _change(share: float) -> str:
    if share != share:
        return "–"  # noqa: RUF001
    return f"{100 * share + 0.0:+z.1f}%".replace("-", "−")  # noqa: RUF001


def in_short(rows: list[dict[str, Any]]) -> str:
    """The comparison in a sentence, losses included."""
    of = {verdict: [one["level"] for one in rows if one["verdict"] == verdict] for verdict in _VERDICTS}
    said = [f"{words} at {in_words(of[verdict])}" for verdict, words in _VERDICTS.items() if of[verdict]]
    where = "At equal coverage on these rows" if rows and rows[0]["coverage"] is not None else "On these rows"
    return f"{where} the sets of the model are {'; they are '.join(said)}." if said else ""
