"""tightset: prediction sets with guaranteed coverage, trained to be small."""

from tightset.classifier import ConformalClassifier, SCPOClassifier

__all__ = ["ConformalClassifier", "SCPOClassifier", "__version__"]

__version__ = "0.1.0"
