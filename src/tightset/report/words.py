"""The words of a report: levels, shares, p-values, verdicts, any value of the data as text."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import numpy as np

from tightset.conformal.intervals import coverage_band, share_interval
from tightset.conformal.ranks import calibration_rows_needed, significance
from tightset.conformal.shortfall import Shortfall, why
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.checks import nearest_level
from tightset.report.numbers import ByLabel, Tally, calibration

__all__ = [
    "NAME",
    "band",
    "breaks",
    "in_words",
    "is_number",
    "level_text",
    "number",
    "p_text",
    "percent",
    "percents",
    "say",
    "say_of_pairs",
    "text",
    "thousandths",
    "words",
]

NAME = 200  # characters of a label or a column's name


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

    >>> percent(0.95123), percent(0.9996), percent(0.99996), percent(1.0), percent(0.0001)
    ('95.1%', '99.96%', '99.996%', '100%', '0.01%')
    """
    return _in_percent(share, _digits(share))


def percents(low: float, high: float) -> tuple[str, str]:
    """The ends of an interval with the same digits; all and nothing have none.

    >>> percents(0.9971, 0.99996), percents(0.9971, 1.0), percents(0.5, 0.61)
    (('99.710%', '99.996%'), ('99.7%', '100%'), ('50.0%', '61.0%'))
    """
    digits = max(_digits(low), _digits(high))
    return _in_percent(low, digits), _in_percent(high, digits)


def _digits(share: float) -> int:
    apart = min(share, 1 - share) * (1 + 1e-9)
    return 0 if apart <= 0 else next((d for d in (1, 2, 3, 4) if apart >= 10.0 ** -(d + 2)), 5)


def _in_percent(share: float, digits: int) -> str:
    return f"{100 * share:.{0 if share in (0, 1) else digits}f}%"


def is_number(label: str) -> bool:
    """Whether a label reads like a number.

    >>> [is_number(label) for label in ("5", "-1.5", "1e3", "5a", "nan")]
    [True, True, True, False, False]
    """
    return re.fullmatch(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?", label) is not None


def breaks(words: str) -> list[str]:
    """A text in parts between which a line may end: after "_" and "/", as in the script.

    >>> breaks("None_Used/Not_Applicable")
    ['None_', 'Used/', 'Not_', 'Applicable']
    """
    return re.split(r"(?<=[_/])(?=[^_/])", words)


def words(command: str) -> list[tuple[str, bool]]:
    """A command in parts, and whether a line must not end within: there are hyphens or slashes in it.

    >>> words("tightset report a-b.csv --out x")
    [('tightset report ', False), ('a-b.csv', True), (' ', False), ('--out', True), (' x', False)]
    """
    parts = re.split(r"(\S*[^\w\s.]\S*)", command)
    return [(part, at % 2 == 1) for at, part in enumerate(parts) if part]


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
    sure = model.fitted_.assurance
    if sure is not None:
        return coverage_band(level, n, list(model.fitted_.calibration_rows().values()), assurance=sure)
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
        "cost": "" if found.spent is None else number(np.nanmean(found.spent[k])),
        "baseline_cost": "" if other is None or other.spent is None else number(np.nanmean(other.spent[k])),
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
        said["interval"] = " to ".join(percents(*map(float, share_interval(hits, n))))
        short = Shortfall([], 0) if of_labels is None else of_labels.short[k]
        said["verdict"] = _verdict(model, level, hits / n, n, short)
        seen = f"coverage {said['coverage']}, "
        if short.labels:
            few = len(short.labels) == 1
            of = f"{len(short.labels):,} of {short.tested:,} labels"
            said["short"] = f"{of} {'is' if few else 'are'} covered less than {said['level']}, by more than chance."
            said["short"] += _untested(C - short.tested)
            low = hits / n < band(model, level, n)[0]
            by_label = model.fitted_.by_label
            said["short_why"] = why(by_label=by_label, low_on_average=low)
            fall = f" {of} short."
    many = "label" if said["size"] == "1.00" else "labels"
    said["told"] = f"At {said['level']} confidence: {seen}{said['size']} {many} per set, {said['single']} single.{fall}"
    return said


def _untested(count: int) -> str:
    if not count:
        return ""
    return f" {count:,} other label{'s have' if count > 1 else ' has'} too few rows to tell."


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
    sure = model.fitted_.assurance
    needed = calibration_rows_needed(level, sure)
    if together and rows < needed:
        return (
            f"There are {rows:,} calibration rows, but {needed:,} are needed to exclude a label at this level"
            f"{'' if sure is None else ' with this assurance'}: every set contains all labels."
        )
    low, high = band(model, level, n)
    least, most = percents(low, high)
    law = "if coverage is exactly as guaranteed, it"
    if sure is not None:
        law = f"{level_text(sure)} assurance asks for more than {level_text(level)}, and if new rows are like the "
        law += "calibration rows, coverage"
    begin = (
        f"On average over all rows: {law} lies between {least} and {most} "
        f"on {n:,} row{'s' if n > 1 else ''}, 19 times out of 20. Here "
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


def in_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
