"""The form and types of training and calibration rows, which determine how new rows are converted."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from tightset.compute.row_forms import form_of, gap_of, in_form, with_gap
from tightset.compute.row_rounding import types_by_value
from tightset.compute.row_types import Types, coarser_than, conform, dtypes_of, in_units_of

__all__ = ["RowKind"]


class RowKind(NamedTuple):
    """Types of rows as they were given to training, as they were trained on, and as they were given to calibrate on.

    ``form`` is that of the rows of training, ``gap`` what stands for a missing value among their texts, and ``names``
    are those of the columns. Model files of the first version may know
    ``given`` only; gaps then stay as they come.
    """

    given: Types = None
    trained: Types = None
    calibrated: Types = None
    form: str | None = None
    gap: str | None = None
    names: np.ndarray | None = None

    @classmethod
    def of(cls, given: Types, checked: Any, names: np.ndarray | None) -> Self:
        """Of rows as they came out of their check, some of them or all."""
        calibrated = types_by_value(given, checked)
        # Where no gap was seen any one form of it will do, as long as it is the same for all rows.
        gap = gap_of(checked) or "nan"
        return cls(given, dtypes_of(checked), calibrated, form_of(checked), gap, names)

    def in_its_units(self, X: Any) -> Any:
        """Dates and times in the units of training."""
        return in_units_of(self.given, X)

    def prepared(self, X: Any) -> Any:
        """Rows that were checked, in the types and the form in which they are computed."""
        types = self.trained, self.calibrated
        X = in_form(conform(X, *types), self.form, self.names)
        return with_gap(conform(X, *types), self.gap)

    def coarse(self, X: Any) -> str | None:
        """The type of rows, if it is coarser than that of the calibration rows."""
        return coarser_than(dtypes_of(X), self.calibrated)
