"""The card that a fitted estimator shows in a notebook.

The card is HTML without scripts. It takes its colours from the page, so it works on light and dark ones. Text from the
data is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tightset.conformal.ranks import rank

if TYPE_CHECKING:
    from tightset.estimators.base import ConformalPredictor

__all__ = ["card", "with_card"]

_LABELS_SHOWN = 8
_LABEL_LENGTH = 30

_STYLE = """
.tightset-card {display: inline-block; max-width: 46em; padding: .6em .9em; border: 1px solid rgba(128, 128, 128, .55);
  border-radius: 6px; background: transparent; color: inherit; font-family: inherit; line-height: 1.45}
.tightset-card table {border-collapse: collapse; margin: .5em 0; background: transparent; color: inherit;
  font-size: inherit}
.tightset-card th, .tightset-card td {padding: .2em .9em .2em 0; text-align: left; vertical-align: top;
  border: 0; border-top: 1px solid rgba(128, 128, 128, .35); background: transparent; color: inherit;
  white-space: normal}
.tightset-card th + th, .tightset-card td:nth-child(2) {min-width: 7em}
.tightset-card thead th {border-top: 0}
.tightset-card p {margin: .2em 0}
.tightset-card pre {margin: .3em 0; white-space: pre-wrap; color: inherit; background: transparent}
.tightset-card code {color: inherit; background: rgba(128, 128, 128, .16); padding: 0 .25em; border-radius: 3px}
.tightset-card summary {cursor: pointer}
"""


def with_card(model: ConformalPredictor, diagram: str) -> str:
    """The card of a fitted estimator; scikit-learn's ``diagram`` of one that is not fitted."""
    return card(model) if hasattr(model, "fitted_") else diagram


def card(model: ConformalPredictor) -> str:
    """What a notebook shows of a fitted estimator: levels, labels, rows, thresholds, what was gained, how to go on."""
    told = [_gained(model, at) for at in range(len(model.levels_))]
    headings = ["confidence", "threshold", *(["training"] if any(told) else [])]
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    rows = "".join(
        f"<tr><td>{_percent(level)}</td><td>{_threshold(model, level)}</td>"
        + (f"<td>{escape(said)}</td></tr>" if any(told) else "</tr>")
        for level, said in zip(model.levels_, told, strict=True)
    )
    calls = ["predict_set(X)", "predict_set(X, as_frame=True)", "predict_p(X)", "evaluate(X, y)"]
    calls += ["summary()"] if hasattr(model, "summary") else []
    return (
        f"<style>{_STYLE}</style>"
        f'<div class="tightset-card"><p><b>{escape(type(model).__name__)}</b>, fitted. {_rows(model)}</p>'
        f"<p>{_labels(model.classes_)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>Go on with {', '.join(f'<code>{call}</code>' for call in calls)}.</p>"
        f"<details><summary>Parameters</summary><pre>{escape(repr(model))}</pre>"
        "<p>The diagram of scikit-learn: <code>sklearn.utils.estimator_html_repr(model)</code>.</p></details></div>"
    )


def _percent(level: Any) -> str:
    return f"{100 * float(level):g}%"


def _labels(classes: np.ndarray) -> str:
    shown = [str(label) for label in classes[:_LABELS_SHOWN]]
    short = [label if len(label) <= _LABEL_LENGTH else f"{label[: _LABEL_LENGTH - 1]}…" for label in shown]
    more = f" and {len(classes) - len(shown)} more" if len(classes) > len(shown) else ""
    return f"{len(classes)} labels: {', '.join(f'<code>{escape(label)}</code>' for label in short)}{more}."


def _rows(model: ConformalPredictor) -> str:
    trained = [fold.trained for fold in model.folds_ if fold.trained is not None]
    calibrated = model.fitted_.calibration_rows().total()
    if len(model.folds_) > 1:
        mean = f", each trained on about {round(sum(trained) / len(trained)):,} rows" if trained else ""
        return f"{len(model.folds_)} folds{mean}; calibrated on all {calibrated:,} rows."
    before = f"Trained on {trained[0]:,} rows, calibrated on " if trained else ""
    sure = model.fitted_.assurance
    with_it = "" if sure is None else f", with {_percent(sure)} assurance"
    return f"{before}{calibrated:,} {'others' if before else 'calibration rows'}{with_it}."


def _threshold(model: ConformalPredictor, level: Any) -> str:
    """From which calibration score on a label is kept at a level."""
    ranks = sorted((rank(level, n, model.fitted_.assurance), n) for n in model.fitted_.calibration_rows().values())
    r, n = ranks[0]
    low = f"rank {r:,} of {n:,}" if r else f"every score: {n:,} rows are too few"
    if len(ranks) == 1:
        return low
    by = [name for name, holds in (("group", model.fitted_.by_group), ("label", model.fitted_.by_label)) if holds]
    return f"{low}, to rank {ranks[-1][0]:,} of {ranks[-1][1]:,}, by {' and '.join(by)}"


def _gained(model: ConformalPredictor, at: int) -> str:
    """What training says of a level, where it says something."""
    records = [fold.record for fold in model.folds_]
    if not all(isinstance(record, list) and len(record) > at for record in records):
        return "one model serves every level" if not model.trains_for_level and len(model.levels_) > 1 else ""
    if not hasattr(records[0][at], "sentence"):
        return "the paper's grid; see selection_ for the choice"
    said = str(records[0][at].sentence())
    if len(records) > 1:
        return f"fold 0: {said} See summary() for the others."
    return said[:1].upper() + said[1:]
