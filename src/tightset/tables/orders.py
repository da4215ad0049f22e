"""The order of the labels of a table, whose sets are then intervals: from the user, or from the column itself."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

from tightset.estimators.base import ConformalPredictor
from tightset.exceptions import TableError
from tightset.tables.target import Labelled
from tightset.tables.texts import spelled_as

__all__ = ["AUTO", "check_own_order", "labels_in", "listed", "order_labels"]

AUTO = "auto"  # the order of an ordered category, or of numbers


def labels_in(text: str) -> str | list[str]:
    """The labels that somebody wrote between commas, in their order; those that have a comma in double quotes.

    >>> labels_in('low, "medium, or so",high'), labels_in("auto")
    (['low', 'medium, or so', 'high'], 'auto')
    """
    if text.strip() == AUTO:
        return AUTO
    found = [one.strip() for row in csv.reader([text], skipinitialspace=True) for one in row]
    if len(found) < 2 or "" in found:
        raise TableError(
            f"the order of the labels must be names between commas, from the lowest to the highest, such as "
            f"low,medium,high, or {AUTO}; got {text!r}"
        )
    return found


def listed(labels: Sequence[Any]) -> str:
    """Labels between commas, as `labels_in` reads them.

    >>> listed(["low", "medium, or so", "high"])
    'low, "medium, or so", high'
    """
    texts = [str(label) for label in labels]
    return ", ".join('"' + text.replace('"', '""') + '"' if {",", '"'} & set(text) else text for text in texts)


def order_labels(ordered: str | Sequence[Any], labelled: Labelled, *predictors: ConformalPredictor | None) -> list[Any]:
    """Give predictors, not fitted yet, the order of the labels of a table; the labels in that order.

    Labels that were merged or dropped as rare need no place, and are ignored.
    """
    classes = labelled.classes.tolist()
    order = _own_order(labelled) if isinstance(ordered, str) and ordered == AUTO else _given(ordered, labelled)
    by_name = {str(label): label for label in classes}
    found = [by_name[name] for name in order]
    for one in predictors:
        if one is not None:
            one.set_params(ordered=found)
    return found


def check_own_order(predictor: ConformalPredictor, labelled: Labelled) -> None:
    """Raise if ``ordered=True``, the order of sorted labels, is not that of the ordered category that they are."""
    names = [str(label) for label in labelled.classes.tolist()]
    own = [name for name in labelled.order if name in names]
    if predictor.ordered is True and own and own != names:
        raise TableError(
            f"ordered=True of the predictor is the order {_listed(names)}, but the column of labels has an order of "
            f"its own, {_listed(own)}: give fit_table(..., ordered='{AUTO}')"
        )


def _own_order(labelled: Labelled) -> list[str]:
    names = [str(label) for label in labelled.classes.tolist()]
    own = [name for name in labelled.order if name in names]
    if labelled.order and len(own) == len(names):
        return own
    if labelled.classes.dtype.kind == "i":
        return names
    raise TableError(
        f"the labels have no order of their own: they are neither whole numbers nor an ordered category, in Parquet or "
        f"a data frame. Name them in their order in place of {AUTO}: {_listed(names)}"
    )


def _given(ordered: str | Sequence[Any], labelled: Labelled) -> list[str]:
    names = [str(label) for label in labelled.classes.tolist()]
    if isinstance(ordered, str) or not isinstance(ordered, Sequence):
        raise TableError(f"ordered must be {AUTO!r} or a list of the labels in their order; got {ordered!r}")
    texts = [str(one) for one in ordered]
    spelled = spelled_as([*names, *labelled.merged, *labelled.dropped], texts)
    unknown = [text for text, label in zip(texts, spelled, strict=True) if label is None]
    order = [label for label in spelled if label in names]
    twice = [label for label in order if order.count(label) > 1]
    lacking = [name for name in names if name not in order]
    if unknown or twice or lacking:
        why = (
            f"names {unknown[0]!r}, which is no label of the table"
            if unknown
            else f"names {twice[0]!r} {order.count(twice[0])} times"
            if twice
            else f"lacks the label{'s' if len(lacking) > 1 else ''} {_listed(lacking)}"
        )
        raise TableError(f"the order of the labels {why}; it must have each of these once: {_listed(names)}")
    return [label for label in order if label is not None]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:12])) + (" ..." if len(names) > 12 else "")
