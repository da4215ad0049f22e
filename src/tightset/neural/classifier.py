"""`SCPONeuralClassifier`: a network trained for small prediction sets, behind the methods of scikit-learn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from tightset.compute.progress import Progress
from tightset.compute.rows import lies_elsewhere
from tightset.conformal.costs import cost_matrix
from tightset.estimators.base import ConformalPredictor, GivenRows
from tightset.estimators.checks import generator
from tightset.exceptions import ModelFileError
from tightset.neural.settings import LOGITS, NETWORKS, Training
from tightset.search.problem import Aim, Outcome, Runtime, TrainingRows
from tightset.storage.registry import storable

__all__ = ["SCPONeuralClassifier"]


@storable
class SCPONeuralClassifier(ConformalPredictor):
    """A neural network trained for small prediction sets, in PyTorch (extra ``torch``).

    The network is trained with cross-entropy, then with `SCPOLoss`: mean set size at exact coverage. Of all epochs the
    state stays that has the smallest sets on training rows held aside, so that of cross-entropy if nothing is gained.
    An inductive conformal predictor on other rows then makes the sets valid, as for `SCPOClassifier`.

    Parameters
    ----------
    confidence : float or sequence of float, default 0.95
        The level, or several: one network is then trained for all of them, with a head for each.
    network : list of int, torch.nn.Module or "logits", default (64, 64)
        What is trained.

        - A list of the widths of hidden layers: a multi-layer perceptron on standardised columns. Its numbers are kept
          as arrays, so that it predicts, and is stored in a model file, without PyTorch.
        - A module that gives a number for each class, in the order of the labels, of rows ``(n, n_features)`` in
          float32 as they come; one that is trained already needs no ``warm_epochs``. It is copied, not changed.
        - ``"logits"``: X holds the logits of a frozen network, a column for each class in the order of the labels, and
          a head on them is trained: a scale and a shift for each class.
    training : Training or None, default None
        Settings of the training; None is ``Training()``.
    inefficiency : str, float or pair of functions, default "size"
        What is made small, as in `SCPOClassifier`.
    cost : dict, array-like of shape (n_classes,) or (n_classes, n_classes), or None, default None
        What a label in a set costs, as in `SCPOClassifier`.
    calibration_size : float, int or None, default None
        Rows held aside for calibration, a fraction or a number. By default a quarter, and more if the level needs more.
    assurance : float or None, default None
        The probability with which coverage given the calibration rows is at least the level, as in `SCPOClassifier`.
    label_conditional : bool, default False
        Make coverage hold for each label, in training as in calibration.
    class_weight : dict, "balanced" or None, default None
        Weights of the labels in training.
    allow_empty : bool, default True
        With False an empty set gets the label with the largest p-value.
    cv : int, splitter, iterable or None, default None
        Folds for cross-conformal prediction, as in `SCPOClassifier`.
    random_state : int, RandomState or None, default None
        For the rows held aside, the weights at the start, batches and dropout. On a CPU the same seed and number of
        threads give the same bits.
    device : str, torch.device or None, default None
        Where to train: None for the CPU, or a PyTorch device such as ``"cuda"``.
    checkpoint : str, os.PathLike or None, default None
        A file that keeps the state of training. If `fit` is interrupted, the same call goes on from there and has the
        same result. It is removed when training is over, needs a number as ``random_state``, and serves one training:
        not the folds of ``cv``.
    verbose : bool or "auto", default "auto"
        Show a progress bar, as in `SCPOClassifier`.

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
    history_ : dict of str to ndarray
        A table with an entry for each epoch: the size of sets on rows held aside, and which state was kept.

    Notes
    -----
    `SCPOLoss` is the loss for a training loop of your own.

    X and y may be tensors. The guarantee is that of `SCPOClassifier`. With fewer than 50 training rows (of fewer
    than 200, copies of a row count once) none can be spared to judge by, and the network is trained with cross-entropy
    only.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = SCPONeuralClassifier(0.9, network=(16,), random_state=0).fit(X, y)
    >>> clf.predict_set(X[:2])
    array([[ True, False, False],
           [ True, False, False]])
    """

    estimator = None  # there is none, for `Routing`

    def __init__(
        self,
        confidence: Any = 0.95,
        *,
        network: Any = (64, 64),
        training: Any = None,
        inefficiency: Any = "size",
        cost: Any = None,
        calibration_size: Any = None,
        assurance: float | None = None,
        label_conditional: bool = False,
        class_weight: Any = None,
        allow_empty: bool = True,
        cv: Any = None,
        random_state: Any = None,
        device: str | None = None,
        checkpoint: Any = None,
        verbose: Any = "auto",
    ) -> None:
        self.confidence = confidence
        self.network = network
        self.training = training
        self.inefficiency = inefficiency
        self.cost = cost
        self.calibration_size = calibration_size
        self.assurance = assurance
        self.label_conditional = label_conditional
        self.class_weight = class_weight
        self.allow_empty = allow_empty
        self.cv = cv
        self.random_state = random_state
        self.device = device
        self.checkpoint = checkpoint
        self.verbose = verbose

    # ---- what training did --------------------------------------------------------------------------------------

    @property
    def history_(self) -> dict[str, np.ndarray]:
        check_is_fitted(self, "fitted_")
        tables = [
            {"fold": np.full(len(found.table["chosen"]), at)} | found.table
            for at, fold in enumerate(self.folds_)
            for found in fold.record
        ]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def summary(self) -> str:
        """Say how much smaller than those of cross-entropy sets became in training.

        Returns
        -------
        text : str
            A line for each fold.
        """
        check_is_fitted(self, "fitted_")
        told = [fold.record[0].sentence() for fold in self.folds_]
        return "\n".join(f"fold {at}: {one}" if len(told) > 1 else one for at, one in enumerate(told))

    def save(self, path: Any, *, about: dict[str, Any] | None = None, trusted: Sequence[str] = ()) -> None:
        """Write the predictor to a file that `tightset.load` opens without running code, and without PyTorch.

        Parameters
        ----------
        path : str or os.PathLike
            The file, usually ``name.tightset``. It is written completely or not at all.
        about : dict, optional
            Notes on the model that JSON can hold.
        trusted : sequence of str, default ()
            As in `SCPOClassifier`.

        Raises
        ------
        ModelFileError
            If ``network`` is a module, which only code can rebuild.
        """
        check_is_fitted(self, "fitted_")
        if _is_module(self.network):
            raise ModelFileError(
                f"network is a {type(self.network).__name__}, and a module can be rebuilt only by running its code, "
                "which opening a model file never does: pickle the predictor, or keep the state_dict of its network by "
                "torch.save. With network=[64, 64], a list of hidden layers, the predictor can be saved"
            )
        super().save(path, about=about, trusted=trusted)

    # ---- rows ---------------------------------------------------------------------------------------------------

    def fit_given(self, given: GivenRows) -> None:
        super().fit_given(GivenRows(**{name: _from_tensor(one) for name, one in vars(given).items()}))

    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> Any:
        return super().calibrate(_from_tensor(X), _from_tensor(y), groups=_from_tensor(groups))

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, _from_tensor(X), reset=reset, dtype=[np.float64, np.float32])

    def _first_rows(self, X: Any) -> Any:
        if lies_elsewhere(X):
            raise ValueError(
                "X is a Dask collection, on which networks are not trained here: fit on a sample in memory, then "
                "calibrate() and predict_set() take the collection; or use SCPOLoss in a loop of your own"
            )
        return super()._first_rows(X)

    # ---- training -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> tuple[Any, ...]:
        levels = super().check_parameters()
        if not (self.training is None or isinstance(self.training, Training)):
            raise ValueError(f"training must be a tightset.Training or None; got {self.training!r}")
        network = self.network
        if isinstance(network, (list, tuple)):
            for width in network:
                if not isinstance(width, (int, np.integer)) or isinstance(width, bool) or width < 1:
                    raise ValueError(f"network must have widths that are whole numbers, 1 or more; got {width!r}")
        elif not (network == LOGITS if isinstance(network, str) else _is_module(network)):
            raise ValueError(NETWORKS.format(network))
        if not isinstance(self.checkpoint, (str, PathLike, type(None))):
            raise ValueError(f"checkpoint must be the name of a file or None; got {self.checkpoint!r}")  # noqa: TRY004
        if self.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            raise ValueError(
                "checkpoint needs a number as random_state: without, other rows train when training is resumed"
            )
        if self.checkpoint is not None and self.cv is not None:
            raise ValueError(
                "checkpoint is the state of one training, and cv trains once for each fold: give one of them"
            )
        return levels

    def _train(self, rows: TrainingRows, levels: Sequence[Any], estimator: Any, errors: Any) -> Outcome:  # noqa: ARG002
        from tightset.neural.fitting import fit_networks

        aim = Aim.of(
            list(levels),
            self.inefficiency,
            by_label=bool(self.label_conditional),
            cost=cost_matrix(self.cost, rows.classes),
            errors=errors,
        )
        seed = generator(self.random_state).randint(2**31, size=1).tolist()
        with Progress(show=self.verbose) as progress:
            runtime = Runtime(progress, seed, self.device)
            return fit_networks(rows, aim, self.network, self.training or Training(), runtime, self.checkpoint)


def _is_module(network: Any) -> bool:
    torch = sys.modules.get("torch")  # who has a module has imported it
    return torch is not None and isinstance(network, torch.nn.Module)


def _from_tensor(X: Any) -> Any:
    """Tensors as arrays, wherever they are."""
    if not hasattr(X, "detach"):
        return X
    X = X.detach().cpu()
    return (X.float() if "bfloat16" in str(X.dtype) else X).numpy()
