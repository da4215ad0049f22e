"""The predictors that a command trains: SCPO on a named estimator, and the plain threshold on the same estimator."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["baseline_name", "predictors"]


def predictors(
    estimator: str, levels: list[float], search: str, how: dict[str, Any], *, nested: bool = False
) -> tuple[Any, Any]:
    """SCPO on an estimator, and the plain threshold on the same."""
    from tightset import ConformalClassifier, SCPOClassifier
    from tightset.models.named import NAMES, named_classifier

    if search not in ("fast", "default", "thorough"):
        raise typer.BadParameter(f"{search!r} is none of fast, default, thorough", param_hint="--search")
    if estimator not in ("linear", "auto", *NAMES):
        raise typer.BadParameter(f"{estimator!r} is none of linear, auto, {', '.join(NAMES)}", param_hint="--estimator")
    try:
        on: Any = {"linear": None, "auto": "auto"}[estimator] if estimator not in NAMES else named_classifier(estimator)
    except ImportError as error:
        raise typer.BadParameter(str(error), param_hint="--estimator") from None
    plain = named_classifier("hgb") if estimator == "auto" else on
    levels_or_one: Any = levels if len(levels) > 1 else levels[0]  # one level gives flat results in Python
    scpo = SCPOClassifier(levels_or_one, estimator=on, search=search, nested=nested, **how)
    return scpo, ConformalClassifier(plain, confidence=levels_or_one, **how)


def baseline_name(estimator: str) -> str:
    return {"linear": "logistic regression with C = 1", "auto": "hgb"}.get(estimator, estimator)
