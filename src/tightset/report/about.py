"""How a report was made: the model and its settings, what the page was told of itself, versions."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np

from tightset.conformal.ranks import calibration_rows_needed
from tightset.estimators.base import ConformalPredictor
from tightset.report.numbers import calibration
from tightset.report.words import NAME, in_words, level_text, text
from tightset.search.verdict import Found

__all__ = ["about_model", "as_lists", "told", "unchanged", "versions"]

_ROWS = "model: rows"
_PARTS = {  # of them; what trains and calibrates is always said
    "model: trained": "trained",
    "model: calibrated": "calibrated",
    "model: tested": "left out for testing",
    "model: unused": "not used",
}
_LEFT_OUT = "model: sha256 of rows left out"


def about_model(model: ConformalPredictor) -> dict[str, Any]:
    rows, together = calibration(model)
    defaults = {name: one.default for name, one in signature(type(model).__init__).parameters.items()}
    given = model.get_params(deep=False)
    changed = {name: repr(value) for name, value in given.items() if repr(value) != repr(defaults.get(name))}
    changed.setdefault("random_state", repr(model.random_state))
    return {
        "name": type(model).__name__,
        "levels": in_words([level_text(level) for level in model.levels_]),
        "assurance": None if model.fitted_.assurance is None else level_text(model.fitted_.assurance),
        "too_few": together and calibration_rows_needed(0.999, model.fitted_.assurance) > rows,  # as in `stops`
        "one_for_all": not model.trains_for_level,
        "calibration_rows": f"{rows:,}",
        "by_label": model.fitted_.by_label,
        "by_group": model.fitted_.by_group,
        "folds": len(model.folds_),
        "allow_empty": bool(model.allow_empty),
        "parameters": {name: text(value, 1000) for name, value in changed.items()},
    }


def unchanged(model: ConformalPredictor) -> str:
    """What to say where the search kept a plain classifier, at which levels; nothing if its own measures are used."""
    records = [fold.record for fold in model.folds_]
    if not all(isinstance(found, Found) for record in records for found in record or [None]):
        return ""
    kept, few, names = [], False, []
    for level, *found in zip(model.levels_, *records, strict=True):
        verdicts = [one.verdict for one in found]
        if any(one.accepted for one in verdicts):
            continue
        kept.append(level_text(level))
        few = few or not all(np.isfinite(one.baseline) for one in verdicts)
        names += [one.fallback for one in verdicts]
    if not kept:
        return ""
    name = in_words(list(dict.fromkeys(names)))
    why = "There were too few training rows to choose a model" if few else "Training found no clear gain"
    if len(kept) == len(model.levels_):
        return f"{why} at {in_words(kept)}: this is {name}, calibrated."
    return f"{why} at {in_words(kept)}: there the model is {name}, calibrated."


def told(about: Mapping[str, Any]) -> dict[str, str | list[tuple[str, str]]]:
    """What the page was told of itself, for reading; the rows of the model stand in one line that adds up.

    >>> rows = {"model: rows": 944, "model: trained": 531, "model: calibrated": 177}
    >>> told({**rows, "model: tested": 200, "model: unused": 36})["model: rows"]
    '944: 531 trained, 177 calibrated, 200 left out for testing, 36 not used'
    """
    about = dict(about)
    parts = {name: about[name] for name in _PARTS if name in about}
    if {*[*_PARTS][:2]} <= {*parts} and all(isinstance(n, int) for n in (about.get(_ROWS), *parts.values())):
        said = [f"{n:,} {_PARTS[name]}" for name, n in parts.items() if n or name in [*_PARTS][:2]]
        rest = about[_ROWS] - sum(parts.values())
        if rest >= 0:
            why = "left out for testing or not used" if _LEFT_OUT in about else "not used"  # older models do not say
            said += [f"{rest:,} {why}"] if rest else []
            about[_ROWS] = f"{about[_ROWS]:,}: {', '.join(said)}"
            for name in parts:
                del about[name]
    return {text(name, NAME): as_lists(value) for name, value in about.items()}


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
