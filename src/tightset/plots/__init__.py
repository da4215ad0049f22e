"""Figures of predictors and of what they are worth; they need matplotlib (``pip install "tightset[plots]"``).

Every function takes a fitted predictor with rows, or what was computed before (rows of ``evaluate``, sets, p-values),
draws on ``ax`` if it is given and on a new figure otherwise, and returns the axes. Where several predictors can be
compared, a dict gives them names. Nothing global is changed and nothing is shown. Text and lines have the colours of
the style in force, backgrounds are left alone, colours stand on light and dark ones, and whatever a colour says, a
marker, a line or a hatch says too.

Examples
--------
>>> import matplotlib; matplotlib.use("agg")
>>> from sklearn.datasets import load_wine
>>> from tightset import ConformalClassifier, plots
>>> X, y = load_wine(return_X_y=True)
>>> clf = ConformalClassifier(confidence=0.9, random_state=0).fit(X[::2], y[::2])
>>> plots.coverage(clf, X[1::2], y[1::2]).get_ylabel()
'coverage'
"""

from __future__ import annotations

from tightset.plots.by_label import class_coverage, class_size
from tightset.plots.evaluation import coverage, mean_size, size_histogram
from tightset.plots.labels import p_values, regions, shared_labels
from tightset.plots.training import candidates, traces

__all__ = [
    "candidates",
    "class_coverage",
    "class_size",
    "coverage",
    "mean_size",
    "p_values",
    "regions",
    "shared_labels",
    "size_histogram",
    "traces",
]
