"""Classifiers by name: those that people try first, with settings that need no thought."""

from __future__ import annotations

from typing import Any

from tightset.exceptions import needed_for

__all__ = ["NAMES", "named_classifier"]

NAMES = ("hgb", "rf", "et", "mlp", "logistic", "lightgbm")


def named_classifier(name: str) -> Any:
    """A new classifier: ``"hgb"`` and ``"lightgbm"`` (boosted trees), ``"rf"``, ``"et"``, ``"mlp"`` or ``"logistic"``.

    >>> type(named_classifier("rf")).__name__
    'RandomForestClassifier'
    """
    if name == "lightgbm":
        with needed_for("estimator='lightgbm'", "lightgbm"):
            from lightgbm import LGBMClassifier

        return LGBMClassifier(verbose=-1)
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known: dict[str, Any] = {
        "hgb": HistGradientBoostingClassifier(),
        "rf": RandomForestClassifier(),
        "et": ExtraTreesClassifier(),
        "mlp": make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True)),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }
    return known[name]
