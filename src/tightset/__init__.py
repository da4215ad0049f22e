"""tightset: prediction sets with guaranteed coverage, trained to be small."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightset.estimators.conformal import ConformalClassifier
    from tightset.estimators.scpo import SCPOClassifier
    from tightset.exceptions import TightsetWarning
    from tightset.search.settings import Search
    from tightset.tables.stored import load

__all__ = ["ConformalClassifier", "SCPOClassifier", "Search", "TightsetWarning", "__version__", "load"]

_HOMES = {
    "ConformalClassifier": "estimators.conformal",
    "SCPOClassifier": "estimators.scpo",
    "Search": "search.settings",
    "TightsetWarning": "exceptions",
    "load": "tables.stored",
}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Classes are loaded when first asked for: `import tightset` and the command line's help stay instant, and
    # scikit-learn (which loads pandas where it is installed) comes in only with an estimator.
    if name in _HOMES:
        return getattr(import_module(f"tightset.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tightset' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
