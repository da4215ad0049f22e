"""tightset: prediction sets with guaranteed coverage, trained to be small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightset.checking import TightsetWarning
    from tightset.classifier import ConformalClassifier, SCPOClassifier

__all__ = ["ConformalClassifier", "SCPOClassifier", "TightsetWarning", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Classes are loaded when first asked for: `import tightset` and the command line's help stay instant, and
    # scikit-learn (which loads pandas where it is installed) comes in only with an estimator.
    if name in {"ConformalClassifier", "SCPOClassifier"}:
        from tightset import classifier

        return getattr(classifier, name)
    if name == "TightsetWarning":
        from tightset.checking import TightsetWarning

        return TightsetWarning
    raise AttributeError(f"module 'tightset' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
