"""`SCPOClassifier`: a conformal classifier trained for small prediction sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tightset.compute.progress import Progress
from tightset.compute.rows import RowSource, lies_elsewhere
from tightset.conformal.costs import cost_matrix
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.cases import case_of
from tightset.estimators.checks import generator
from tightset.estimators.ordering import label_order
from tightset.estimators.upgrades import with_search
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows
from tightset.search.settings import Grid, Search, as_search
from tightset.search.verdict import Found
from tightset.storage.registry import storable

__all__ = ["SCPOClassifier"]


@storable
class SCPOClassifier(ConformalPredictor):
    """A conformal classifier trained for small prediction sets (surrogate conformal predictor optimization).

    Set size, with indicators replaced by sigmoids, is minimised at exact coverage by gradient descent on the
    conformity measure, starting from logistic regression or from a classifier of yours. Many measures are trained,
    judged by cross-validation on the training rows, and the best few combined; if that is not surely better, what they
    started from stays. An inductive conformal predictor on rows held aside then makes the sets valid whatever the
    training did.

    Parameters
    ----------
    confidence : float or sequence of float, default 0.95
        The level, or several: one measure is trained for each. Two measures may differ about a label, so that the set
        at 90 % need not lie inside the set at 95 %; see ``nested``.
    estimator : classifier, str or None, default None
        What the measures are trained on.

        - None: the columns of X, starting from logistic regression.
        - ``"hgb"``, ``"lightgbm"``, ``"rf"``, ``"et"``, ``"mlp"`` or ``"logistic"``: a classifier by name.
        - A classifier, or a pipeline that ends in one: its log-probabilities (``decision_function`` where it has none)
          on rows that it has not seen, by cross-validation, with and without the columns of X; the start is its own
          ranking. Its models of the folds are kept, and averaged with the one of all rows: see ``Search.average``.
        - A classifier in a `sklearn.frozen.FrozenEstimator`: the same, but it stays as it is. Give `fit` rows that it
          was not trained on.
        - ``"precomputed"``: X holds the scores of a classifier, probabilities or others, a column for each class.
        - ``"auto"``: gradient-boosted trees, extremely randomised trees, the columns themselves, and mixtures of them.
    search : "default", "fast", "thorough", "grid", Search or Grid, default "default"
        What is tried: ``"fast"`` takes two thirds of the time of the default or less, with sets nearly as small, and
        ``"thorough"`` a few times as long; a `tightset.Search` has settings of your own, and ``"grid"``, or a
        `tightset.Grid`, is the search of the paper.
    nested : bool, default False
        With several levels, use one measure for all of them, that whose sets are smallest over all levels on held-out
        training rows. Then sets grow with the level and never lose a label, and `summary` tells the price.
    inefficiency : str, float or pair of functions, default "size"
        What is made small, as a function of the size w of a set (N, E and M are criteria of Vovk et al., 2016).

        - ``"size"``, ``"N"``, ``"OE"``: w; ``"log"``: ``log(1 + w)``; a number p: ``w**p``; a pair ``(f, f')``.
        - ``"excess"`` or ``"E"``: labels beyond the first, ``max(w - 1, 0)``.
        - ``"multiple"``: 1 if ``w > 1``, plus 0.05 for each label beyond the first. For as many sets of one label as
          possible, while the others stay small.
        - ``"M"``: 1 if ``w > 1``; ``"OM"``: 1 if a false label is in the set. The best sets hold one label or all.
    cost : dict, array-like of shape (n_classes,) or (n_classes, n_classes), or None, default None
        What a label in a set costs, by label, or by true label (row) and label in the set (column). Sets of small cost
        are then trained for, and w is the cost of a set.
    ordered : bool or list of labels, default False
        Labels have an order, that of ``classes_`` or of the list, and sets are intervals of it, as narrow as possible.
        Not for ``cv``, ``label_conditional`` and ``cost``.
    calibration_size : float, int or None, default None
        Rows held aside, a fraction or a number. By default a quarter, and more (up to half) if the level needs more.
    assurance : float or None, default None
        With 0.95, coverage given the calibration rows is at least the level with that probability, for each label or
        group by itself if calibrated so; sets are larger (docs/confidence.md). None: coverage holds on average over
        calibration samples. Not for ``cv`` or smoothed sets.
    label_conditional : bool, default False
        Make coverage hold for each label, not only on average.
    class_weight : dict, "balanced" or None, default None
        Weights of the labels in training, as in scikit-learn, times ``sample_weight``. Coverage stays that of rows as
        they come: for coverage of each label use ``label_conditional``.
    allow_empty : bool, default True
        An empty set says that no label conforms. With False it gets the label with the largest p-value: coverage is
        larger and never smaller.
    cv : int, splitter, iterable or None, default None
        Folds as in scikit-learn, for cross-conformal prediction: every row calibrates and none is held aside; the
        guarantee is then approximate (in theory ``1 - 2 eps``; in practice close to ``1 - eps``).
    random_state : int, RandomState or None, default None
        For the rows held aside, the folds of the search, and smoothing. Same seed, same bits.
    device : str or None, default None
        None for NumPy, or a PyTorch device such as ``"cuda"``.
    n_jobs : int or None, default None
        Threads, by default as many as BLAS may use; a number also says how many processes train folds of a classifier.
        Inside ``joblib.parallel_config(backend="dask")`` both go to that cluster. Results do not depend on it.
    verbose : bool or "auto", default "auto"
        Show a progress bar: ``"auto"`` on a terminal, after a few seconds; elsewhere, how long a long fit takes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        As in scikit-learn.
    feature_names_in_ : ndarray of str
        As in scikit-learn; there if the columns of X have names.
    fitted_ : Fitted
        Models and calibrations (`tightset.estimators.fitted.Fitted`), and what is answered from them.
    selection_ : dict of str to ndarray
        A table with an entry for each candidate: what was tried, its criterion (mean inefficiency on held-out training
        rows) and the standard error of that, what was chosen and with which weight.
    n_iter_ : int
        The most steps that a candidate took.
    traces_ : list of list of ndarray of shape (n_steps, n_candidates)
        The losses by fold and level; only with ``search=Grid(keep_trace=True)``.

    Notes
    -----
    The guarantee: calibration rows and new rows being exchangeable, a set holds the true label with probability at
    least ``confidence``, on average over rows (of each label or group if calibrated so). It cannot hold a label that no
    training row had: coverage is lower by the share of new rows with such labels. `fit` warns where calibration rows
    have them, and `evaluate` counts such rows as missed.

    Of more than 30,000 training rows a sample is searched, and what was chosen there is trained on all of them; `fit`
    also takes Dask arrays and data frames, whose rows stay where they are. Dask classifiers of LightGBM and XGBoost,
    and any with ``partial_fit``, are trained there, others on a sample (docs/distributed.md).

    Sparse rows are scaled but not centred: a column that is full, and far from zero for its spread, loses precision (at
    a mean of a million deviations); give such rows dense.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = SCPOClassifier(confidence=0.9, random_state=0).fit(X, y)
    >>> clf.predict_set(X[:2])
    array([[ True, False, False],
           [ True, False, False]])
    """

    def __init__(
        self,
        confidence: Any = 0.95,
        *,
        estimator: Any = None,
        search: Any = "default",
        nested: bool = False,
        inefficiency: Any = "size",
        cost: Any = None,
        ordered: Any = False,
        calibration_size: Any = None,
        assurance: float | None = None,
        label_conditional: bool = False,
        class_weight: Any = None,
        allow_empty: bool = True,
        cv: Any = None,
        random_state: Any = None,
        device: str | None = None,
        n_jobs: int | None = None,
        verbose: Any = "auto",
    ) -> None:
        self.confidence = confidence
        self.estimator = estimator
        self.search = search
        self.nested = nested
        self.inefficiency = inefficiency
        self.cost = cost
        self.ordered = ordered
        self.calibration_size = calibration_size
        self.assurance = assurance
        self.label_conditional = label_conditional
        self.class_weight = class_weight
        self.allow_empty = allow_empty
        self.cv = cv
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def paper(cls, confidence: Any = 0.95, **changes: Any) -> Self:
        """Return a classifier set up as in the paper.

        That is a linear measure, the loss ``-1/L``, a start from zero, a constant rate, and the paper's grid and
        selection. The paper does not give the number of steps; docs/paper.md has set sizes by steps.

        Parameters
        ----------
        confidence : float or sequence of float, default 0.95
            The level, or several.
        **changes : dict
            Settings of `Grid`, or parameters of the classifier.

        Returns
        -------
        clf : SCPOClassifier
            A classifier that is not fitted yet.
        """
        grid = {name: changes.pop(name) for name in Grid.names() if name in changes}
        return cls(confidence, search=Grid(**{"tol": 0.0} | grid), **changes)

    @classmethod
    def upgraded(cls, parts: dict[str, Any]) -> dict[str, Any]:
        """Fields of a model file as they are called now: what is tried was a parameter each, and is ``search``."""
        rest = with_search(parts)
        rest = {"nested": False, "cost": None, "ordered": False, **rest}
        return super().upgraded(rest)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        case_of(self.estimator).tag(tags)
        return tags

    # ---- what the search found ----------------------------------------------------------------------------------

    @property
    def selection_(self) -> dict[str, np.ndarray]:
        check_is_fitted(self, "fitted_")
        tables = [
            {"fold": np.full(len(found.table["chosen"]), at)} | found.table
            for at, fold in enumerate(self.folds_)
            for found in fold.record
        ]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    @property
    def traces_(self) -> list[list[np.ndarray]]:
        settings = as_search(self.search)
        if not (isinstance(settings, Grid) and settings.keep_trace):
            raise AttributeError("traces_ are kept only by SCPOClassifier(search=Grid(keep_trace=True))")
        return [[found.trace for found in fold.record] for fold in self.folds_]

    @property
    def n_iter_(self) -> int:
        return int(self.selection_["n_iter"].max())

    def summary(self) -> str:
        """Say how much smaller sets are than those of the baseline, and how certain that is.

        The baseline is tuned logistic regression, or with ``estimator`` the best that was started from. Both are judged
        by cross-validation on training rows.

        Returns
        -------
        text : str
            A line for each level and fold.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> clf = SCPOClassifier(confidence=0.9, random_state=0).fit(*load_wine(return_X_y=True))
        >>> clf.summary().startswith("At 90% confidence")
        True
        """
        check_is_fitted(self, "fitted_")
        if not isinstance(self.folds_[0].record[0], Found):
            return (
                "The paper's grid was searched, which does not compare with a baseline; see selection_ for the choice."
            )
        lines = []
        for at, fold in enumerate(self.folds_):
            for level, found in zip(self.levels_, fold.record, strict=True):
                where = f"At {100 * float(level):g}% confidence" + (f", fold {at}" if len(self.folds_) > 1 else "")
                lines.append(f"{where}: {found.sentence()}")
        by = [name for name, is_so in (("label", self.fitted_.by_label), ("group", self.fitted_.by_group)) if is_so]
        if by:
            lines.append(f"Sets are calibrated by {' and '.join(by)}.")
        return "\n".join(lines)

    # ---- training -----------------------------------------------------------------------------------------------

    def _classes(self, X: RowSource, present: np.ndarray) -> np.ndarray:
        return case_of(self.estimator).classes(self, X.shape[-1], present)

    def _one_for_all(self) -> bool:
        return bool(self.nested)

    def _first_rows(self, X: Any) -> Any:
        if lies_elsewhere(X) and isinstance(as_search(self.search), Grid):
            raise ValueError(
                "X is a Dask collection, which search='grid' does not support: the paper's grid takes a thousand steps "
                "over all rows, a pass over the cluster each, and on a sample it would not be the paper's. Use another "
                "search, or search='grid' on a sample in memory and then calibrate() on the collection"
            )
        return super()._first_rows(X)

    def _prepare(self) -> Callable[[Any], Any]:
        return case_of(self.estimator).prepare

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        return case_of(self.estimator).check_rows(self, X, reset=reset)

    def check_parameters(self) -> tuple[Any, ...]:
        levels = super().check_parameters()
        if not isinstance(self.nested, (bool, np.bool_)):
            raise ValueError(f"nested must be True or False; got {self.nested!r}")  # noqa: TRY004
        if not (isinstance(self.verbose, (bool, int, np.bool_)) or str(self.verbose) == "auto"):
            raise ValueError(f"verbose must be True, False or 'auto'; got {self.verbose!r}")
        if self.device is not None and not isinstance(self.device, str):
            raise ValueError(f"device must be None or the name of a PyTorch device; got {self.device!r}")
        if not (self.n_jobs is None or (_whole(self.n_jobs) and self.n_jobs != 0)):
            raise ValueError(f"n_jobs must be None or a whole number other than 0; got {self.n_jobs!r}")
        case, settings = case_of(self.estimator), as_search(self.search)
        is_ordered = self.ordered is not False and self.ordered is not None
        if is_ordered and self.cost is not None:
            raise ValueError("ordered is not for cost: thresholds that differ between labels would cut intervals up")
        if isinstance(settings, Grid) and is_ordered:
            raise ValueError("search='grid' trains for set size, as the paper does: leave ordered out")
        if isinstance(settings, Search):
            if settings.boost is not None and case.on_columns:
                raise ValueError("boost adds trees to the scores of an estimator: give one, or estimator='auto'")
        elif not case.on_columns:
            raise ValueError("search='grid' trains on columns, as the paper does; leave estimator out")
        elif self.cost is not None:
            raise ValueError(
                "search='grid' trains for set size, as the paper does: leave cost out, or use another search"
            )
        elif self.nested:
            raise ValueError(
                "nested=True is not for search='grid': train for one level, and ask predict_set for others, whose "
                "sets by that one measure are nested"
            )
        return levels

    def _train(self, rows: TrainingRows, levels: Sequence[Any], estimator: Any, errors: Any) -> Outcome:
        settings = as_search(self.search)
        aim = Aim.of(
            list(levels),
            self.inefficiency,
            nested=bool(self.nested),
            by_label=bool(self.label_conditional),
            cost=cost_matrix(self.cost, rows.classes),
            order=label_order(self.ordered, rows.classes),
            errors=errors,
        )
        seed: list[int] = []
        if isinstance(settings, Search):
            settings.check_installed()
            seed = generator(self.random_state).randint(2**31, size=4).tolist()
        with Progress(show=self.verbose) as progress:
            runtime = Runtime(progress, seed, self.device, self.n_jobs)
            return case_of(estimator).train(rows, aim, settings, runtime)


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
