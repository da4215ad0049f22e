"""The predictors that a command trains: SCPO on a named estimator, and the plain threshold on the same estimator."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["baseline_name", "predictors"]

_BASES = ("hgb", "rf", "et", "mlp", "logistic", "lightgbm")


def predictors(
    estimator: str, levels: list[float], search: str, how: dict[str, Any], *, nested: bool = False
) -> tuple[Any, Any]:
    """SCPO on an estimator, and the plain threshold on the same."""
    from tightset import ConformalClassifier, SCPOClassifier

    if search not in ("fast", "default", "thorough"):
        raise typer.BadParameter(f"{search!r} is none of fast, default, thorough", param_hint="--search")
    if estimator not in ("linear", "auto", *_BASES):
        raise typer.BadParameter(
            f"{estimator!r} is none of linear, auto, {', '.join(_BASES)}", param_hint="--estimator"
        )
    on: Any = None if estimator == "linear" else "auto" if estimator == "auto" else _base(estimator)
    plain = _base("hgb") if estimator == "auto" else on
    levels_or_one: Any = levels if len(levels) > 1 else levels[0]  # one level gives flat results in Python
    scpo = SCPOClassifier(levels_or_one, estimator=on, search=search, nested=nested, **how)
    return scpo, ConformalClassifier(plain, confidence=levels_or_one, **how)


def baseline_name(estimator: str) -> str:
    return {"linear": "logistic regression with C = 1", "auto": "hgb"}.get(estimator, estimator)


def _base(name: str) -> Any:
    if name == "lightgbm":
        try:
            from lightgbm import LGBMClassifier
        except ImportError:
            raise typer.BadParameter(
                'lightgbm is not installed: pip install "tightset[lightgbm]"', param_hint="--estimator"
            ) from None
        return LGBMClassifier(verbose=-1)
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    bases: dict[str, Any] = {
        "hgb": HistGradientBoostingClassifier(),
        "rf": RandomForestClassifier(),
        "et": ExtraTreesClassifier(),
        "mlp": make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True)),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }
    return bases[name]
