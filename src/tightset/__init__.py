"""tightset: prediction sets with guaranteed coverage, trained to be small."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightset import metrics, plots, scores
    from tightset.estimators.comparing import compare
    from tightset.estimators.conformal import ConformalClassifier
    from tightset.estimators.scpo import SCPOClassifier
    from tightset.exceptions import ModelFileError, TableError, TightsetWarning
    from tightset.export.onnx import to_onnx
    from tightset.neural.classifier import SCPONeuralClassifier
    from tightset.neural.loss import SCPOLoss
    from tightset.neural.settings import Training
    from tightset.report.write import ReportPage, write_report
    from tightset.search.settings import Grid, Search
    from tightset.tables.fitting import fit_table
    from tightset.tables.predictor import TablePredictor
    from tightset.tables.stored import load

__all__ = [
    "ConformalClassifier",
    "Grid",
    "ModelFileError",
    "ReportPage",
    "SCPOClassifier",
    "SCPOLoss",
    "SCPONeuralClassifier",
    "Search",
    "TableError",
    "TablePredictor",
    "TightsetWarning",
    "Training",
    "__version__",
    "compare",
    "fit_table",
    "load",
    "metrics",
    "plots",
    "scores",
    "to_onnx",
    "write_report",
]

# Where each of them lives; a module stands for itself.
_HOMES = {
    "ConformalClassifier": "estimators.conformal",
    "Grid": "search.settings",
    "ModelFileError": "exceptions",
    "ReportPage": "report.write",
    "SCPOClassifier": "estimators.scpo",
    "SCPOLoss": "neural.loss",
    "SCPONeuralClassifier": "neural.classifier",
    "Search": "search.settings",
    "TableError": "exceptions",
    "TablePredictor": "tables.predictor",
    "TightsetWarning": "exceptions",
    "Training": "neural.settings",
    "compare": "estimators.comparing",
    "fit_table": "tables.fitting",
    "load": "tables.stored",
    "metrics": "metrics",
    "plots": "plots",
    "scores": "scores",
    "to_onnx": "export.onnx",
    "write_report": "report.write",
}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # What is asked for is loaded then: `import tightset` and the command line's help stay instant, and scikit-learn
    # (which loads pandas where it is installed) comes in only with an estimator.
    if name not in _HOMES:
        raise AttributeError(f"module 'tightset' has no attribute {name!r}")
    home = import_module(f"tightset.{_HOMES[name]}")
    return home if _HOMES[name] == name else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
