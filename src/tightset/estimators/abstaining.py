"""One label or none: `predict_or_abstain`, with a certified error rate among the rows that are answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tightset.compute.rows import RowSource
from tightset.conformal.abstention import Abstention, rows_needed
from tightset.estimators.fitted import Asked, Fitted
from tightset.exceptions import warn
from tightset.storage.fields import fits

__all__ = ["Abstaining"]

_LEAST = 1e-9  # as that of levels: fewer calibration rows than that asks for can be counted


class Abstaining(ABC):
    """The part of a predictor that answers with one label, or not at all."""

    @abstractmethod
    def levels_asked(self, confidence: Any) -> tuple[list[Any], bool]: ...

    @abstractmethod
    def _fitted(self) -> Fitted: ...

    @abstractmethod
    def _checked_rows(self, fitted: Fitted, X: Any, groups: Any) -> tuple[RowSource, np.ndarray | None]: ...

    def predict_or_abstain(
        self, X: Any, *, error: float = 0.05, assurance: float = 0.95, confidence: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one label for each row that is certain enough, and which rows those are.

        Among answered rows at most a share ``error`` is wrong. This is certified on the calibration rows: it holds with
        probability at least ``assurance`` over their choice, for rows like them. A row is answered if the score of its
        most conforming label leads that of the next by more than a threshold; the threshold is the lowest that is
        certified.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask collection of shape (n_samples, n_features)
            The rows. Of a Dask collection, both arrays are computed at once.
        error : float, default 0.05
            The largest error rate among answered rows.
        assurance : float, default 0.95
            How certain that is.
        confidence : float, optional
            The level whose measure compares the labels; by default the first of the constructor, as in `predict`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The most conforming label of each row, as `predict` returns it. Where ``answered`` is False it is a
            suggestion that nothing is promised of.
        answered : ndarray of bool of shape (n_samples,)
            Whether each row is answered. If no threshold can be certified it is False everywhere, and a warning says
            why.

        Raises
        ------
        ValueError
            If ``error`` or ``assurance`` is not between 0 and 1; if coverage is by label or by group, for which there
            is no certificate; if ``cv`` left no rows that a single model has not seen; or if the model file is from
            before this method.

        Notes
        -----
        The certificate is for one choice of ``error``, ``assurance`` and ``confidence``; the best of several choices is
        not certified. Rows whose labels were not in training count as wrong. `tightset.conformal.abstention` has the
        tests and the proof.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.model_selection import train_test_split
        >>> from tightset import ConformalClassifier
        >>> X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), random_state=0)
        >>> clf = ConformalClassifier(random_state=0).fit(X, y)
        >>> labels, answered = clf.predict_or_abstain(X_new, error=0.03)
        >>> print(f"{answered.mean():.0%} answered, {(labels != y_new)[answered].mean():.1%} of them wrong")
        85% answered, 0.8% of them wrong
        """
        _check_share(error, "error", 0.05)
        _check_share(assurance, "assurance", 0.95)
        levels, single = self.levels_asked(confidence)
        if confidence is not None and not single:
            raise ValueError(f"confidence must be one level here, such as {levels[0]}; got {confidence!r}")
        fitted = self._fitted()
        asked = fitted.ask(levels[:1])
        abstention = _abstention(fitted, asked[0].model)
        rows, _ = self._checked_rows(fitted, X, None)
        threshold = abstention.threshold(float(error), float(assurance))
        if threshold is None:
            _warn_of_silence(abstention, float(error), float(assurance))
        parts = rows.map(partial(_tops, fitted.slim(), asked), range(rows.shape[0]))
        top, margin = (np.concatenate(some) for some in zip(*parts, strict=True))
        answered = np.zeros(len(top), dtype=bool) if threshold is None else margin > threshold
        return fitted.classes[top], answered


def _tops(fitted: Fitted, asked: Sequence[Asked], X: Any, positions: Any) -> tuple[np.ndarray, np.ndarray]:
    """The most conforming labels of rows, as indices, and their margins."""
    found = [piece.top_and_margin() for _, [piece] in fitted.scored(asked, X, None, positions)]
    top, margin = zip(*found, strict=True) if found else ([np.zeros(0, dtype=np.intp)], [np.zeros(0)])
    return np.concatenate(top), np.concatenate(margin)


def _abstention(fitted: Fitted, model: int) -> Abstention:
    calibration = fitted.folds[0].calibrations[model]
    if len(fitted.folds) > 1:
        raise ValueError(
            "predict_or_abstain needs calibration rows that one model has not seen, but cv trained one for each fold; "
            "fit with cv=None"
        )
    if calibration.by_label or calibration.by_group:
        how = "group, so fit without groups" if calibration.by_group else "label, so fit with label_conditional=False"
        raise ValueError(
            "predict_or_abstain certifies the error rate among all answered rows, which needs calibration rows drawn "
            f"from all rows alike; here they are by {how}, or use predict_set"
        )
    if calibration.abstention is None:
        raise ValueError(
            "predict_or_abstain needs what a calibration keeps since this version, and the model file is older: "
            "calibrate again, clf.calibrate(X_cal, y_cal), with rows that were not trained on"
        )
    return calibration.abstention


def _warn_of_silence(abstention: Abstention, error: float, assurance: float) -> None:
    needed, own = rows_needed(error, assurance), abstention.rows
    aim = f"an error rate of at most {error:g} with assurance {assurance:g}"
    if own < needed:
        warn(
            f"no row is answered: {aim} needs {needed:,} calibration rows even if none of them is wrong, and there are "
            f"{own:,}; give more calibration rows, or allow a larger error"
        )
    else:
        warn(
            f"no row is answered: {aim} cannot be certified on {own:,} calibration rows: for their number, too many "
            "of the most certain ones are wrong; allow a larger error, give more calibration rows, or use a better "
            "classifier"
        )


def _check_share(value: Any, name: str, such_as: float) -> None:
    if not fits(value, float) or not 0 < value < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, such as {such_as}; got {value!r}")
    if value < _LEAST:
        raise ValueError(f"{name} must be at least {_LEAST:g}, such as {such_as}; got {value!r}")
