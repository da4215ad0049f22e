"""What sets and p-values are worth: the public names of `tightset.conformal.metrics`."""

from tightset.conformal.interval_metrics import evaluate_intervals
from tightset.conformal.metrics import (
    Interval,
    SignTest,
    bootstrap_difference,
    evaluate,
    sign_test,
    sign_test_p_value,
    vovk_criteria,
)
from tightset.estimators.scorers import size_scorer

__all__ = [
    "Interval",
    "SignTest",
    "bootstrap_difference",
    "evaluate",
    "evaluate_intervals",
    "sign_test",
    "sign_test_p_value",
    "size_scorer",
    "vovk_criteria",
]
