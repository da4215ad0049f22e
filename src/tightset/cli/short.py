"""Labels that fall short of the level, as `fit` and `compare` name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tightset.cli.show import say

if TYPE_CHECKING:
    from tightset.estimators.base import ConformalPredictor

__all__ = ["short_on_calibration_rows", "tell_short"]


def short_on_calibration_rows(
    predictor: ConformalPredictor, levels: list[float], rows: tuple[Any, Any], groups: Any
) -> list[Any]:
    """Labels that fall short among the rows that calibrated, at each level; nothing if coverage is by label.

    Over all labels these rows are covered as asked by construction, but not label by label: there they are nearly as
    good as new ones, and no test row is spent.
    """
    import numpy as np

    from tightset.conformal.shortfall import of_rows
    from tightset.report.numbers import tally

    if predictor.label_conditional:
        return []
    X, y = rows
    codes = np.searchsorted(predictor.classes_, y)
    covered = tally(predictor, X, codes, levels, groups=groups).covered
    assert covered is not None  # noqa: S101 - there are labels
    return [of_rows(codes, one, len(predictor.classes_), level) for level, one in zip(levels, covered, strict=True)]


def tell_short(
    levels: list[float], short: list[Any], names: list[Any], *, by_label: bool = False, kind: str = ""
) -> None:
    """Name the labels that fall short at each level, and say what helps."""
    from tightset.conformal.shortfall import reason

    if not any(one.labels for one in short):
        return
    for level, one in zip(levels, short, strict=True):
        for line in one.told(level, names, kind=kind):
            say(line)
    say(reason(by_label=by_label))
