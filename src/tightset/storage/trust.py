"""Which types of other packages a model file may hold, and in which role: nothing read may run code or crash.

skops calls what it builds by the role that a node of the file gives it: as a function that is passed on, as an object
whose state is set, or as a constructor with arguments of the file. A class that is harmless as the one, a booster whose
state is a text, may open files as the other. So each type has its roles here.

skops also trusts every estimator of scikit-learn, because none runs code when it is built. But some hand their state to
compiled code that follows it without looking, so that a file of wrong numbers crashes the process. Trusted here are
those that compute with NumPy alone, which looks (`_PLAIN`), and those whose numbers `compiled` checks (`_CHECKED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["unknown_types"]

_OBJECT, _FUNCTION = frozenset({"ObjectNode"}), frozenset({"FunctionNode"})
_HARMLESS: dict[str, frozenset[str]] = {
    "collections.OrderedDict": frozenset({"TypeNode", "DictNode"}),
    "functools.partial": frozenset({"PartialNode"}),  # of functions that are trusted below
    "numpy.dtype": frozenset({"DTypeNode", "TypeNode"}),
    "scipy._lib.array_api_compat.numpy._aliases.asarray": _FUNCTION,
    "sklearn.feature_selection._mutual_info.mutual_info_classif": _FUNCTION,
    "sklearn.feature_selection._univariate_selection.f_classif": _FUNCTION,
    "sklearn.tree._tree.Tree": frozenset({"TreeNode"}),
    "sklearn.utils._bunch.Bunch": frozenset({"DictNode"}),
    "sklearn.utils.validation.check_array": _FUNCTION,
    **dict.fromkeys(
        (
            "lightgbm.basic.Booster",
            "lightgbm.sklearn.LGBMClassifier",
            "scipy.interpolate._bsplines.BSpline",
            "sklearn.calibration._CalibratedClassifier",
            "sklearn.calibration._SigmoidCalibration",
            "sklearn.calibration._TemperatureScaling",
            "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
            "sklearn.metrics._dist_metrics.EuclideanDistance64",
            "sklearn.metrics._dist_metrics.ManhattanDistance64",
            "sklearn.metrics._dist_metrics.MinkowskiDistance64",
            "sklearn.metrics._scorer._PassthroughScorer",
            "sklearn.model_selection._split.KFold",
            "sklearn.model_selection._split.StratifiedKFold",
            "sklearn.neighbors._ball_tree.BallTree",
            "sklearn.neighbors._kd_tree.KDTree",
            "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
            "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
            "xgboost.core.Booster",
            "xgboost.sklearn.XGBClassifier",
        ),
        _OBJECT,
    ),
}

_PLAIN = """
    CalibratedClassifierCV ClassifierChain ColumnTransformer FeatureUnion FixedThresholdClassifier FrozenEstimator
    GridSearchCV OneVsOneClassifier OneVsRestClassifier Pipeline RandomizedSearchCV SelfTrainingClassifier
    StackingClassifier TunedThresholdClassifierCV VotingClassifier

    AdaBoostClassifier BaggingClassifier BernoulliNB CategoricalNB ComplementNB DummyClassifier ElasticNet ElasticNetCV
    GaussianNB IsotonicRegression Lasso LassoCV LinearDiscriminantAnalysis LinearRegression LinearSVC LogisticRegression
    LogisticRegressionCV MLPClassifier MultinomialNB NearestCentroid PassiveAggressiveClassifier Perceptron
    QuadraticDiscriminantAnalysis Ridge RidgeCV RidgeClassifier RidgeClassifierCV SGDClassifier SGDRegressor

    AdditiveChi2Sampler BernoulliRBM Binarizer EmpiricalCovariance FactorAnalysis FastICA FunctionTransformer
    GaussianRandomProjection GenericUnivariateSelect IncrementalPCA KBinsDiscretizer KNNImputer KernelCenterer KernelPCA
    LabelBinarizer LabelEncoder LedoitWolf MaxAbsScaler MinMaxScaler MissingIndicator NeighborhoodComponentsAnalysis
    Normalizer Nystroem OAS OrdinalEncoder PCA PLSRegression PolynomialCountSketch PowerTransformer QuantileTransformer
    RBFSampler RFE RFECV RobustScaler SelectFdr SelectFpr SelectFromModel SelectFwe SelectKBest SelectPercentile
    SequentialFeatureSelector ShrunkCovariance SimpleImputer SkewedChi2Sampler SplineTransformer StandardScaler
    TargetEncoder TfidfTransformer TruncatedSVD VarianceThreshold

    AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss HalfLogitLink HalfMultinomialLoss HalfPoissonLoss
    HalfSquaredError HuberLoss IdentityLink Interval LogLink LogitLink MultinomialLogit PinballLoss
"""
_CHECKED = """
    CountVectorizer DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor
    ExtraTreesClassifier ExtraTreesRegressor GradientBoostingClassifier HashingVectorizer HistGradientBoostingClassifier
    KMeans KNeighborsClassifier MiniBatchKMeans NuSVC OneHotEncoder PolynomialFeatures RandomForestClassifier
    RandomForestRegressor SVC TfidfVectorizer _BinMapper
"""
_OF_SKLEARN = frozenset((_PLAIN + _CHECKED).split())


def unknown_types(schema: Any, untrusted: Iterable[str], trusted: Iterable[str]) -> list[str]:
    """The types of a file that neither we nor the user (``trusted``) know as harmless in the roles they have there.

    ``schema`` is what skops wrote of an object, ``untrusted`` the types in it that skops does not trust by itself.
    """
    agreed, not_of_skops = set(trusted), set(untrusted)
    unknown = {name for name in not_of_skops if name not in _HARMLESS}
    for name, role in _roles(schema):
        if name in _HARMLESS:
            known = role in _HARMLESS[name]
        elif role == "ObjectNode":
            known = name in not_of_skops or name.rpartition(".")[2] in _OF_SKLEARN
        else:
            known = role != "SparseMatrixNode"  # whose indices SciPy follows without looking
        if not known:
            unknown.add(name)
    return sorted(unknown - agreed)


def _roles(node: Any) -> Iterator[tuple[str, str]]:
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                role = str(one["__loader__"])
                # Some functions that skops trusts take as long as an argument says.
                if role == "PartialNode" and _HARMLESS.get(_name(one["content"]["func"])) != _FUNCTION:
                    role = "PartialNode of another function"
                yield _name(one), role
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def _name(node: Any) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"
