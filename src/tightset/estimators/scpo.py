"""`SCPOClassifier`: a conformal classifier trained for small prediction sets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tightset.compute.hashing import distinct_rows
from tightset.compute.partitions import Partitions, as_floats, as_they_are, is_dask
from tightset.compute.progress import Progress
from tightset.conformal.inefficiency import as_inefficiency
from tightset.estimators.base import ConformalPredictor
from tightset.estimators.checks import generator
from tightset.measures import MEASURES
from tightset.models.classifiers import (
    PRECOMPUTED,
    auto_classifiers,
    check_any_rows,
    check_base,
    classes_of_columns,
    copy_input_tags,
    known_classes,
)
from tightset.models.columns import Columns, as_numbers
from tightset.models.ensembles import Ensemble, LinearModel, Stacked
from tightset.models.trees import LIBRARIES, numbers_or_missing
from tightset.search.from_columns import path_search
from tightset.search.grid import GRID, check_grid, grid_search
from tightset.search.settings import SEARCHES, Search
from tightset.search.shortlist import FEW_ROWS, Found
from tightset.search.stack import stacked_search, without_choice
from tightset.storage.registry import storable

__all__ = ["SCPOClassifier"]

AUTO = "auto"


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
    confidence : level, or several: one measure is trained for each. Two measures may differ about a label, so that the
        set at 90 % need not lie inside the set at 95 %; see ``nested``.
    nested : with several levels, use one measure for all of them, that whose sets are smallest over all levels on
        held-out training rows. Then sets grow with the level and never lose a label, and `summary` tells the price.
    estimator : what the measures are trained on.

        - None: the columns of X, starting from logistic regression.
        - A classifier, or a pipeline that ends in one: its log-probabilities (``decision_function`` where it has none)
          on rows that it has not seen, by cross-validation, with and without the columns of X; the start is its own
          ranking. Its models of the folds are kept, and averaged with the one of all rows: see ``average``.
        - A classifier in a `sklearn.frozen.FrozenEstimator`: the same, but it stays as it is. Give `fit` rows that it
          was not trained on.
        - ``"precomputed"``: X holds the scores of a classifier, probabilities or others, a column for each class.
        - ``"auto"``: gradient-boosted trees, extremely randomised trees, the columns themselves, and mixtures of them.
    average : use the average of an estimator's models of all rows and of the folds, unless cross-validation speaks
        against it. It makes sets smaller, but keeps ``1 + folds * repeats`` models (11 by default); with False there is
        one.
    boost : ``"lightgbm"`` or ``"xgboost"`` (extras of the same names), to try trees on top of the estimator's scores
        that are grown for small sets; X must be dense numbers, missing ones allowed. They are used if they make sets
        smaller.
    inefficiency : ``"size"``, ``"log"`` (``log(1 + w)``), a power ``p`` (``w**p``) or a pair ``(f, f')``.
    search : ``"default"``; ``"fast"``, a few times faster, sets nearly as small; ``"thorough"``, a few times slower; a
        `tightset.Search` of your own; or ``"grid"``, the search of the paper.
    measure : ``"linear"``, ``"softmax"`` or ``"two-matrix"``, to train only that one (beside logistic regression, the
        baseline, which stays if nothing is gained); by default those of the search.
    unfold : also try each column unfolded into a piecewise linear function, and keep that if it makes sets smaller.
        Not for the grid, nor for sparse rows or more columns than memory should hold.
    max_iter : steps at most: of each piece of a path (by default that of the search), or of the grid (1000).
    penalty, sharpness, learning_rate : for ``search="grid"``: numbers or sequences, lambda, gamma and eta of the paper;
        the grid is their product.
    loss_form : for the grid: ``"L"``, ``"log L"``, ``"-1/L"`` or ``"-1/L^2"``: which increasing function of the loss
        descends.
    optimiser : for the grid: ``"gradient-descent"`` with a constant rate, or ``"adam"``.
    selection : for the grid: ``"inefficiency"`` of the training ICP, or smallest ``"loss"``.
    tol : for the grid: a candidate whose largest step is below ``tol`` (relative) stops early.
    keep_trace : for the grid: keep the loss of every candidate at every step: ``traces_[fold][level]`` is an array
        ``(steps, candidates)``.
    standardise : train on columns of mean 0 and deviation 1, by the training rows. Without it columns of very different
        size make training slow and the sets larger.
    calibration_size : rows held aside, a fraction or a number. By default a quarter, and more (up to half) if the
        level needs more.
    label_conditional : make coverage hold for each label, not only on average.
    allow_empty : an empty set says that no label conforms. With False it gets the most conforming label, which makes
        coverage larger and never smaller.
    cv : None, or folds as in scikit-learn: cross-conformal prediction. Every row calibrates and none is held aside;
        the guarantee is then approximate (in theory ``1 - 2 eps``; in practice close to ``1 - eps``).
    random_state : for the rows held aside, the folds of the search, and smoothing. Same seed, same bits.
    device : None for NumPy, or a PyTorch device such as ``"cuda"``.
    n_jobs : threads; by default as many as BLAS may use. Inside ``joblib.parallel_config(backend="dask")`` candidates
        and folds go to that cluster. The result does not depend on it.
    verbose : show a progress bar: True, False, or ``"auto"``: on a terminal, if it takes longer than a few seconds.

    Notes
    -----
    The guarantee: calibration rows and new rows being exchangeable, a set holds the true label with probability at
    least ``confidence``, on average over rows (of each label or group if calibrated so). It cannot hold a label that no
    training row had: coverage is lower by the share of new rows with such labels. `fit` warns where calibration rows
    have them, and `evaluate` counts such rows as missed.

    Of more than 30,000 training rows a sample is searched, and what was chosen there is trained on all of them; `fit`
    also takes Dask arrays and data frames, whose rows stay where they are (docs/distributed.md).

    Sparse rows are scaled but not centred: a column that is full, and far from zero for its spread, loses precision (at
    a mean of a million deviations); give such rows dense.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn.
    selection_ : dict of columns, one entry a candidate: what was tried, its criterion (mean inefficiency on held-out
        training rows) and the standard error of that, what was chosen and with which weight.
    n_iter_ : the most steps a candidate took.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = SCPOClassifier(confidence=0.9, random_state=0).fit(X, y)
    >>> clf.predict_set(X[:2])
    array([[ True, False, False],
           [ True, False, False]])
    """

    nested = False  # of model files that were written before there was a choice

    def __init__(
        self,
        confidence: Any = 0.95,
        *,
        estimator: Any = None,
        nested: bool = False,
        average: bool = True,
        boost: str | None = None,
        inefficiency: Any = "size",
        search: Any = "default",
        measure: str | None = None,
        unfold: bool = True,
        max_iter: int | None = None,
        penalty: Any = None,
        sharpness: Any = None,
        learning_rate: Any = None,
        loss_form: str | None = None,
        optimiser: str | None = None,
        selection: str | None = None,
        tol: float | None = None,
        keep_trace: bool = False,
        standardise: bool = True,
        calibration_size: Any = None,
        label_conditional: bool = False,
        allow_empty: bool = True,
        cv: Any = None,
        random_state: Any = None,
        device: str | None = None,
        n_jobs: int | None = None,
        verbose: Any = "auto",
    ) -> None:
        self.confidence = confidence
        self.estimator = estimator
        self.nested = nested
        self.average = average
        self.boost = boost
        self.inefficiency = inefficiency
        self.search = search
        self.measure = measure
        self.unfold = unfold
        self.max_iter = max_iter
        self.penalty = penalty
        self.sharpness = sharpness
        self.learning_rate = learning_rate
        self.loss_form = loss_form
        self.optimiser = optimiser
        self.selection = selection
        self.tol = tol
        self.keep_trace = keep_trace
        self.standardise = standardise
        self.calibration_size = calibration_size
        self.label_conditional = label_conditional
        self.allow_empty = allow_empty
        self.cv = cv
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def paper(cls, confidence: Any = 0.95, **changes: Any) -> Self:
        """The set-up of the paper: linear measure, ``-1/L``, zero start, constant rate, its grid, its selection.

        The grid's penalties are 10, 100, 500, 1000 and 5000. The text prints 10000 in place of 1000, but its tables
        choose 1000 and never 10000, and five values make the 400 runs a data set that it counts. It does not give the
        number of steps; docs/paper.md has sizes by steps.
        """
        return cls(confidence, **({"search": "grid"} | GRID | {"tol": 0.0} | changes))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None or _is(self.estimator, AUTO):
            tags.input_tags.sparse = True
            tags.input_tags.allow_nan = self.estimator is not None
        elif not _is(self.estimator, PRECOMPUTED):
            copy_input_tags(tags, self.estimator)
        return tags

    # ---- what the search found ----------------------------------------------------------------------------------

    @property
    def selection_(self) -> dict[str, np.ndarray]:
        check_is_fitted(self, "folds_")
        tables = [
            {"fold": np.full(len(found.table["chosen"]), at)} | found.table
            for at, fold in enumerate(self.folds_)
            for found in fold.record
        ]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    @property
    def traces_(self) -> list[list[np.ndarray]]:
        if not self.keep_trace:
            raise AttributeError("traces_ are kept only by SCPOClassifier(search='grid', keep_trace=True)")
        return [[found.trace for found in fold.record] for fold in self.folds_]

    @property
    def n_iter_(self) -> int:
        return int(self.selection_["n_iter"].max())

    def summary(self) -> str:
        """What was gained against tuned logistic regression, by cross-validation on training rows, and how surely.

        >>> from sklearn.datasets import load_wine
        >>> clf = SCPOClassifier(confidence=0.9, random_state=0).fit(*load_wine(return_X_y=True))
        >>> clf.summary().startswith("At 90 % confidence")
        True
        """
        check_is_fitted(self, "folds_")
        if not isinstance(self.folds_[0].record[0], Found):
            return (
                "The paper's grid was searched, which does not compare with a baseline; selection_ has what was chosen."
            )
        lines = []
        for at, fold in enumerate(self.folds_):
            for level, found in zip(self.levels_, fold.record, strict=True):
                where = f"At {100 * float(level):g} % confidence" + (f", fold {at}" if len(self.folds_) > 1 else "")
                lines.append(f"{where}: {found.sentence()}")
        if self.label_conditional or self.folds_[0].calibrations[0].by_group:
            lines.append("These figures are for coverage on average over all rows; by label or group sets are larger.")
        return "\n".join(lines)

    # ---- training -----------------------------------------------------------------------------------------------

    def _classes(self, X: Any, present: np.ndarray) -> np.ndarray:
        if isinstance(self.estimator, FrozenEstimator):
            return known_classes(self.estimator, present)
        if _is(self.estimator, PRECOMPUTED):
            return classes_of_columns(X.shape[1], getattr(self, "feature_names_in_", ()), present)
        return present

    def _rows(self, X: Any, *, reset: bool) -> Any:
        if reset and is_dask(X):
            if self.estimator is not None:
                raise ValueError(
                    "X is a Dask collection, on which only estimator=None trains: fit the estimator on a sample in "
                    "memory, then calibrate() and predict_set() take the collection"
                )
            if self.search == "grid":
                raise ValueError("X is a Dask collection, which search='grid' does not take; the other searches do")
        return super()._rows(X, reset=reset)

    def _prepare(self) -> Any:
        if self.estimator is None or _is(self.estimator, PRECOMPUTED):
            return as_floats
        return partial(as_floats, missing=True) if _is(self.estimator, AUTO) else as_they_are

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        numbers: dict[str, Any] = {"reset": reset, "dtype": [np.float64, np.float32]}
        if _is(self.estimator, PRECOMPUTED):
            return validate_data(self, X, **numbers, ensure_min_features=2)
        if _is(self.estimator, AUTO):
            return validate_data(self, X, **numbers, accept_sparse="csr", ensure_all_finite="allow-nan")
        if self.estimator is not None:
            return check_any_rows(self, X, reset=reset)
        X = validate_data(self, X, **numbers, accept_sparse="csr")
        if reset and self.device is not None and sparse.issparse(X):
            raise ValueError(f"X is sparse, which device={self.device!r} cannot take: give a dense array or no device")
        return X

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("nested", "average", "unfold", "standardise", "keep_trace"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}")  # noqa: TRY004
        if not (isinstance(self.verbose, (bool, int, np.bool_)) or str(self.verbose) == "auto"):
            raise ValueError(f"verbose must be True, False or 'auto'; got {self.verbose!r}")
        if self.estimator is not None and not (_is(self.estimator, AUTO) or _is(self.estimator, PRECOMPUTED)):
            if isinstance(self.estimator, str):
                raise ValueError(f"estimator must be a classifier, 'auto' or 'precomputed'; got {self.estimator!r}")
            check_base(self.estimator)
        if self.boost is not None:
            if not (isinstance(self.boost, str) and self.boost in LIBRARIES):
                raise ValueError(f"boost must be None or one of {', '.join(map(repr, LIBRARIES))}; got {self.boost!r}")
            if self.estimator is None:
                raise ValueError("boost adds trees to the scores of an estimator: give one, or estimator='auto'")
            if find_spec(self.boost) is None:
                raise ImportError(f"boost={self.boost!r} needs another package: pip install 'tightset[{self.boost}]'")
        named = isinstance(self.search, str) and self.search in ("grid", *SEARCHES)
        if not (named or isinstance(self.search, Search)):
            raise ValueError(
                f"search must be one of {', '.join(map(repr, (*SEARCHES, 'grid')))} or a Search; got {self.search!r}"
            )
        if self.measure is not None and not (isinstance(self.measure, str) and self.measure in MEASURES):
            raise ValueError(f"measure must be None or one of {', '.join(map(repr, MEASURES))}; got {self.measure!r}")
        if self.search == "grid":
            if self.estimator is not None:
                raise ValueError("search='grid' trains on columns, as the paper does; leave estimator out")
            if self.nested:
                raise ValueError(
                    "nested=True is not for search='grid': train for one level, and ask predict_set for others, whose "
                    "sets by that one measure are nested"
                )
            self._check_grid()
        else:
            for name in (*GRID, "keep_trace"):
                if name != "max_iter" and getattr(self, name) is not None and getattr(self, name) is not False:
                    raise ValueError(f"{name} belongs to search='grid'; with search={self.search!r} leave it out")
        if self.max_iter is not None and not (_whole(self.max_iter) and self.max_iter > 0):
            raise ValueError(f"max_iter must be None or a positive whole number; got {self.max_iter!r}")
        if self.device is not None and not isinstance(self.device, str):
            raise ValueError(f"device must be None or the name of a PyTorch device; got {self.device!r}")
        if not (self.n_jobs is None or (_whole(self.n_jobs) and self.n_jobs != 0)):
            raise ValueError(f"n_jobs must be None or a whole number other than 0; got {self.n_jobs!r}")

    def _check_grid(self) -> None:
        settings = self._grid_settings()
        if self.measure not in (None, "linear"):
            raise ValueError(f"search='grid' trains the linear measure of the paper; got measure={self.measure!r}")
        check_grid(settings)

    def _grid_settings(self) -> dict[str, Any]:
        return {name: value if getattr(self, name) is None else getattr(self, name) for name, value in GRID.items()}

    def _path_settings(self) -> Search:
        search = self.search if isinstance(self.search, Search) else SEARCHES[self.search]
        if self.measure is not None:
            own = tuple(path for path in search.paths if path[0] == self.measure)
            search = replace(search, paths=own or tuple((self.measure, gamma) for gamma in (1.0, 2.0, 4.0)))
        return search if self.max_iter is None else replace(search, max_iter=self.max_iter)

    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[Any], list[Any]]:
        given = sample_weight
        if sample_weight is not None:  # only ratios matter, sums must stay finite, and float32 holds no ratio of 1e50
            sample_weight = np.maximum(sample_weight / sample_weight.max(), 1e-12)
        levels = ", ".join(f"{100 * float(level):g} %" for level in self.levels_)
        with Progress(f"training for {levels}", show=self.verbose) as progress:
            if self.search == "grid":
                return self._search_grid(X, y, sample_weight, progress)
            choose = len(y) >= FEW_ROWS
            if isinstance(X, Partitions) and not (choose and self._path_settings().samples(len(y))):
                X = X.gather()
            common: dict[str, Any] = {
                "confidences": list(self.levels_),
                "search": self._path_settings() if choose else None,
                "f": as_inefficiency(self.inefficiency),
                "unfold": self.unfold,
                "standardise": self.standardise,
                "nest": self.nested,
                "seed": generator(self.random_state).randint(2**31, size=4).tolist(),
                "device": self.device,
                "n_jobs": self.n_jobs,
                "progress": progress,
            }
            if self.estimator is not None and (choose or not _is(self.estimator, AUTO) or as_numbers(X) is None):
                found = self._train_on_top(X, y, given, common)
                return [one.model for one in found], found
            if not choose:  # copies of a row and weights then train the same model to the last bit
                rows, sample_weight = distinct_rows(X, y, sample_weight)
                X, y = X[rows], y[rows]
            found = path_search(X, y, len(self.classes_), sample_weight=sample_weight, **common)
        return [one.model for one in found], found

    def _train_on_top(
        self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None, common: dict[str, Any]
    ) -> list[Found]:
        auto = _is(self.estimator, AUTO)
        estimators = auto_classifiers(sparse_rows=sparse.issparse(X)) if auto else [self.estimator]
        if common["search"] is None:
            few = common["confidences"], sample_weight, common["seed"]
            return without_choice(X, y, self.classes_, estimators[0], *few)
        if self.boost is not None:
            numbers_or_missing(X)  # says so now if it cannot be done later
        columns = None if _is(self.estimator, PRECOMPUTED) else as_numbers(X)
        return stacked_search(
            X,
            columns,
            y,
            self.classes_,
            estimators,
            with_columns=auto,
            average=self.average,
            boost=self.boost,
            sample_weight=sample_weight,
            **common,
        )

    def _search_grid(
        self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None, progress: Progress
    ) -> tuple[list[Any], list[Any]]:
        columns = Columns.plain(X, sample_weight, standardise=self.standardise)
        Z, centre = columns.apply(X)
        settings = self._grid_settings()
        # On the host one level at a time, although levels could share a descent: a large constant rate amplifies
        # rounding, and a level's measure should not depend on which others were asked for.
        batches = [[level] for level in self.levels_] if self.device is None else [list(self.levels_)]
        progress.expect(len(batches) * settings["max_iter"])
        searches = []
        for levels in batches:
            searches += grid_search(
                Z,
                y,
                len(self.classes_),
                confidences=levels,
                penalties=np.atleast_1d(settings["penalty"]),
                sharpnesses=np.atleast_1d(settings["sharpness"]),
                learning_rates=np.atleast_1d(settings["learning_rate"]),
                sample_weight=sample_weight,
                centre=centre,
                f=as_inefficiency(self.inefficiency),
                form=settings["loss_form"],
                optimiser=settings["optimiser"],
                selection=settings["selection"],
                max_iter=settings["max_iter"],
                tol=settings["tol"],
                device=self.device,
                keep_trace=self.keep_trace,
                n_jobs=self.n_jobs,
                callback=lambda *_: progress.advance(),
            )
        return [LinearModel(columns, found.theta.astype(X.dtype)) for found in searches], searches

    def _model_for(self, level: Any) -> int:
        return 0 if self.nested else super()._model_for(level)

    def _scores(
        self,
        model: Ensemble | LinearModel | Stacked,
        X: Any,
        known: dict[int, np.ndarray],
        positions: Any,  # noqa: ARG002
    ) -> np.ndarray:
        return model.scores(X, known) if isinstance(model, Stacked) else model.scores(X)


def _is(estimator: Any, name: str) -> bool:
    return isinstance(estimator, str) and estimator == name


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
