"""The scikit-learn estimators: `SCPOClassifier` and the plain `ConformalClassifier`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter, validate_data

from tightset.inefficiency import as_inefficiency
from tightset.objective import FORMS
from tightset.predictor import ConformalPredictor, Fold
from tightset.progress import training_bar
from tightset.scaling import LinearModel, Scaling
from tightset.search import OPTIMISERS, SELECTIONS, Chosen, grid_search

__all__ = ["ConformalClassifier", "SCPOClassifier"]


class SCPOClassifier(ConformalPredictor):
    """A conformal classifier trained for small prediction sets (surrogate conformal predictor optimization).

    Minimises ``mean_i f(s_i) + lambda V^2`` for a linear conformity measure, where ``s_i`` is the set size and ``V``
    the excess coverage with indicators replaced by sigmoids of sharpness ``gamma``; every setting of the grid is
    trained, in one batched descent from zeros, and the one with the smallest sets on the training rows is kept. An
    inductive conformal predictor on rows held aside then makes the sets valid whatever the training did.

    Parameters
    ----------
    confidence : level, or several: one measure is trained for each.
    inefficiency : ``"size"``, ``"log"`` (``log(1 + w)``), a power ``p`` (``w**p``) or a pair ``(f, f')``.
    penalty, sharpness, learning_rate : numbers or sequences: lambda, gamma and eta of the paper; the grid is their
        product.
    loss_form : ``"L"``, ``"log L"``, ``"-1/L"`` or ``"-1/L^2"``: which increasing function of the loss descends.
    optimiser : ``"gradient-descent"`` with a constant rate, or ``"adam"``.
    selection : ``"inefficiency"`` of the training ICP, or smallest ``"loss"``.
    max_iter, tol : steps at most; a candidate whose largest step is below ``tol`` (relative) stops early.
    standardise : train on columns of mean 0 and deviation 1, by the training rows.
    calibration_size : rows held aside, a fraction or a number. By default a quarter, and more (up to half) if the
        level needs more.
    label_conditional : make coverage hold for each label, not only on average.
    cv : None, or folds as in scikit-learn: cross-conformal prediction. Every row calibrates and none is held aside;
        the guarantee is then approximate (in theory ``1 - 2 eps``; in practice close to ``1 - eps``).
    keep_trace : keep the loss of every candidate at every step: ``traces_[fold][level]`` is an array
        ``(steps, candidates)``.
    random_state : for the rows held aside and for smoothing. Same seed, same bits.
    device : None for NumPy, or a PyTorch device such as ``"cuda"``: all levels then share one descent.
    n_jobs : threads; by default as many as BLAS may use. The result does not depend on it.
    verbose : show a progress bar.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn.
    levels_ : the levels trained for.
    selection_ : dict of columns, one entry a candidate: what was tried, how it ended and what was chosen.
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

    def __init__(
        self,
        confidence: Any = 0.95,
        *,
        inefficiency: Any = "size",
        penalty: Any = (10, 100, 500, 1000, 5000),
        sharpness: Any = (1, 2, 5, 10),
        learning_rate: Any = (1, 10, 100, 1000),
        loss_form: str = "-1/L",
        optimiser: str = "gradient-descent",
        selection: str = "inefficiency",
        max_iter: int = 1000,
        tol: float = 1e-7,
        standardise: bool = True,
        calibration_size: Any = None,
        label_conditional: bool = False,
        cv: Any = None,
        keep_trace: bool = False,
        random_state: Any = None,
        device: str | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.confidence = confidence
        self.inefficiency = inefficiency
        self.penalty = penalty
        self.sharpness = sharpness
        self.learning_rate = learning_rate
        self.loss_form = loss_form
        self.optimiser = optimiser
        self.selection = selection
        self.max_iter = max_iter
        self.tol = tol
        self.standardise = standardise
        self.calibration_size = calibration_size
        self.label_conditional = label_conditional
        self.cv = cv
        self.keep_trace = keep_trace
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
        settings: dict[str, Any] = {
            "penalty": (10, 100, 500, 1000, 5000),
            "sharpness": (1, 2, 5, 10),
            "learning_rate": (1, 10, 100, 1000),
            "loss_form": "-1/L",
            "optimiser": "gradient-descent",
            "selection": "inefficiency",
            "max_iter": 1000,
            "tol": 0.0,
        }
        return cls(confidence, **(settings | changes))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def selection_(self) -> dict[str, np.ndarray]:
        tables = [
            {"fold": np.full(len(found.table["loss"]), at)} | found.table
            for at, fold in enumerate(self.folds_)
            for found in fold.record
        ]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    @property
    def traces_(self) -> list[list[np.ndarray]]:
        if not self.keep_trace:
            raise AttributeError("traces_ are kept only by SCPOClassifier(keep_trace=True)")
        return [[found.trace for found in fold.record] for fold in self.folds_]

    @property
    def n_iter_(self) -> int:
        return int(self.selection_["n_iter"].max())

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, letter in (("penalty", "lambda"), ("sharpness", "gamma"), ("learning_rate", "eta")):
            try:
                values = np.atleast_1d(np.asarray(getattr(self, name), dtype=float))
            except (TypeError, ValueError):
                values = np.empty(0)
            if values.ndim > 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
                raise ValueError(
                    f"{name} ({letter}) must be a positive number or a sequence of them; got {getattr(self, name)!r}"
                )
        for name, allowed in (
            ("loss_form", FORMS),
            ("optimiser", tuple(OPTIMISERS)),
            ("selection", SELECTIONS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}")
        if isinstance(self.max_iter, bool) or not (isinstance(self.max_iter, (int, np.integer)) and self.max_iter > 0):
            raise ValueError(f"max_iter must be a positive whole number; got {self.max_iter!r}")
        if self.device is not None and not isinstance(self.device, str):
            raise ValueError(f"device must be None or the name of a PyTorch device; got {self.device!r}")
        if not (self.n_jobs is None or (isinstance(self.n_jobs, (int, np.integer)) and self.n_jobs != 0)):
            raise ValueError(f"n_jobs must be None or a whole number other than 0; got {self.n_jobs!r}")
        if not (isinstance(self.tol, (int, float, np.number)) and self.tol >= 0):
            raise ValueError(f"tol must be zero or a positive number; got {self.tol!r}")

    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[LinearModel], list[Chosen]]:
        if sample_weight is not None:
            sample_weight = sample_weight / sample_weight.max()  # only ratios matter, and sums must stay finite
        scaling = Scaling.of(X, sample_weight) if self.standardise else Scaling.none(X)
        Z, centre = scaling.apply(X)
        # On the host one level at a time, although levels could share a descent: a large constant rate amplifies
        # rounding, and a level's measure should not depend on which others were asked for.
        batches = [[level] for level in self.levels_] if self.device is None else [list(self.levels_)]
        searches: list[Chosen] = []
        for levels in batches:
            title = f"confidence {', '.join(map(str, levels))}"
            with training_bar(title, self.max_iter, show=bool(self.verbose)) as callback:
                searches += grid_search(
                    Z,
                    y,
                    len(self.classes_),
                    confidences=levels,
                    penalties=np.atleast_1d(self.penalty),
                    sharpnesses=np.atleast_1d(self.sharpness),
                    learning_rates=np.atleast_1d(self.learning_rate),
                    sample_weight=sample_weight,
                    centre=centre,
                    f=as_inefficiency(self.inefficiency),
                    form=self.loss_form,
                    optimiser=self.optimiser,
                    selection=self.selection,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    device=self.device,
                    keep_trace=self.keep_trace,
                    n_jobs=self.n_jobs,
                    callback=callback,
                )
        return [LinearModel(scaling, found.theta.astype(X.dtype)) for found in searches], searches

    def _scores(self, model: LinearModel, X: Any) -> np.ndarray:
        return model.scores(X)


class ConformalClassifier(ConformalPredictor):
    """A plain inductive conformal predictor over any classifier: the honest baseline.

    The score of a label is its probability (``predict_proba``), or its ``decision_function`` where there are none.

    Parameters
    ----------
    estimator : a classifier, a pipeline of one, or a `FrozenEstimator`. By default logistic regression on
        standardised columns.
    prefit : ``estimator`` is trained already and must not be touched; all rows given to `fit` calibrate.
    confidence, inefficiency, calibration_size, label_conditional, cv, random_state : as in `SCPOClassifier`. One
        model serves every level.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = ConformalClassifier(confidence=0.9, random_state=0).fit(X, y)
    >>> clf.predict_set(X[:2], as_labels=True)
    [array([0]), array([0])]
    """

    trains_for_level = False

    def __init__(
        self,
        estimator: Any = None,
        *,
        confidence: Any = 0.95,
        inefficiency: Any = "size",
        prefit: bool = False,
        calibration_size: Any = None,
        label_conditional: bool = False,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.inefficiency = inefficiency
        self.prefit = prefit
        self.calibration_size = calibration_size
        self.label_conditional = label_conditional
        self.cv = cv
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.input_tags.sparse = True
            return tags
        if hasattr(self.estimator, "__sklearn_tags__"):  # a prefit model need not be scikit-learn's
            for name in ("sparse", "allow_nan", "string", "categorical"):
                setattr(tags.input_tags, name, getattr(get_tags(self.estimator).input_tags, name))
        return tags

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_cal: Any, y_cal: Any, groups: Any, groups_cal: Any) -> None:
        if not (self.prefit or isinstance(self.estimator, FrozenEstimator)):
            super()._fit(X, y, sample_weight, X_cal, y_cal, groups, groups_cal)
            return
        if any(given is not None for given in (sample_weight, X_cal, y_cal, groups_cal, self.cv)):
            raise ValueError(
                "a prefit estimator is not trained: give fit nothing but the calibration rows, as X, y and groups"
            )
        self._check_parameters()
        if not hasattr(self.estimator, "classes_"):
            raise ValueError(
                f"estimator must be trained already where prefit=True; {type(self.estimator).__name__} has no classes_"
            )
        self.classes_ = np.unique(self.estimator.classes_)
        calibration = self._calibration_rows(self._check_rows(X, reset=True), y, groups)
        self.folds_ = [Fold([self.estimator], self._calibrations([self.estimator], *calibration))]
        self._warn_of_calibration(calibration[1])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.prefit and self.estimator is None:
            raise ValueError("prefit=True needs an estimator that is trained already")
        if self.estimator is None:
            return
        name = type(self.estimator).__name__
        if not _has_scores(self.estimator):
            raise ValueError(
                f"estimator must have predict_proba or decision_function to score labels; {name} has neither"
            )
        if hasattr(self.estimator, "__sklearn_tags__") and not is_classifier(self.estimator):
            raise ValueError(f"estimator must be a classifier; {name} is not")
        if getattr(_final_step(self.estimator)[0], "decision_function_shape", None) == "ovo" and not hasattr(
            self.estimator, "predict_proba"
        ):
            raise ValueError("estimator must score classes, not pairs of them: set decision_function_shape='ovr'")

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        # The estimator decides what its rows are: frames, missing values and strings pass through untouched.
        X = X if hasattr(X, "shape") else np.asarray(X)
        if len(X.shape) == 1 and getattr(X, "dtype", None) is not None and X.dtype.kind in "OUT" and len(X):
            return X  # texts, for an estimator that reads them
        if len(X.shape) != 2:
            raise ValueError(f"Expected a 2D array X, got shape {X.shape}. Reshape your data: one row a sample")
        if X.shape[0] == 0:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        if sparse.issparse(X) and X.format not in {"csr", "csc"}:
            X = X.tocsr()  # others cannot be cut by rows
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _train(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None) -> tuple[list[Any], None]:
        estimator = (
            _default_classifier(sparse_rows=sparse.issparse(X)) if self.estimator is None else clone(self.estimator)
        )
        weights = {} if sample_weight is None else {_weight_argument(estimator): sample_weight}
        estimator.fit(X, self.classes_[y], **weights)
        return [estimator], None

    def _scores(self, model: Any, X: Any) -> np.ndarray:
        scores = np.asarray(model.predict_proba(X) if hasattr(model, "predict_proba") else model.decision_function(X))
        if scores.dtype.kind != "f":
            scores = scores.astype(np.float64)
        if scores.ndim == 1:  # two classes, one signed distance
            scores = np.stack([-scores, scores], axis=1)
        if scores.shape[1] != len(model.classes_):
            raise ValueError(
                f"estimator {type(model).__name__} gave {scores.shape[1]} scores a row for {len(model.classes_)} "
                "classes; one score a class is needed"
            )
        if np.array_equal(model.classes_, self.classes_):
            return scores
        full = np.full((len(scores), len(self.classes_)), -np.inf, dtype=scores.dtype)
        full[:, np.searchsorted(self.classes_, model.classes_)] = scores  # a class unseen in training conforms least
        return full


def _default_classifier(*, sparse_rows: bool = False) -> Pipeline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(with_mean=not sparse_rows), LogisticRegression(max_iter=1000))


def _has_scores(estimator: Any) -> bool:
    return hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")


def _weight_argument(estimator: Any) -> str:
    """The name by which ``fit`` takes sample weights; a pipeline passes them to its last step."""
    final, path = _final_step(estimator)
    if not has_fit_parameter(final, "sample_weight"):
        raise ValueError(f"sample_weight was given, but {type(final).__name__} cannot be trained with weights")
    return f"{path}sample_weight"


def _final_step(estimator: Any) -> tuple[Any, str]:
    """The classifier at the end of a pipeline, and the prefix by which the pipeline's ``fit`` addresses it."""
    path = ""
    while isinstance(estimator, Pipeline):
        step, estimator = estimator.steps[-1]
        path += f"{step}__"
    return estimator, path
