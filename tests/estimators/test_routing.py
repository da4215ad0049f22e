"""Metadata routing of scikit-learn: which weights and groups reach the predictor, its estimator and the scorer."""

import pickle

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.metadata_routing import MetadataRouter

import tightset
from makers import ON_TOP, baseline, scpo
from tightset import ConformalClassifier
from tightset.metrics import size_scorer


def quick(**how):
    search = {"max_iter": 5} if how.get("estimator") is None else {"search": ON_TOP}
    return scpo(**{"confidence": 0.8} | search | how)


def plain(**how):
    return baseline(**{"confidence": 0.8} | how)


both = pytest.mark.parametrize("make", [plain, quick])
UNSET = "ignore:LogisticRegression did not request sample_weight:tightset.TightsetWarning"


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def weighted(blobs):
    X, y = blobs
    return X, y, np.random.default_rng(0).choice([0.2, 5.0], len(y))


class Witness(ClassifierMixin, BaseEstimator):
    """A classifier that keeps the weights that it was given."""

    def fit(self, X, y, sample_weight=None):
        self.given_ = None if sample_weight is None else np.array(sample_weight)
        self.inner_ = LogisticRegression().fit(X, y, sample_weight)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)


def given_to(clf):
    """The weights that the estimator got, in each of its trainings."""
    (model,) = clf.fitted_.folds[0].models
    models = [model.classifier] if hasattr(model, "classifier") else [m for b in model.blocks for m in b.models]
    return [one.given_ for one in models]


# ---- weights --------------------------------------------------------------------------------------------------------


BASES = {
    "none": lambda: None,
    "unset": LogisticRegression,
    "requested": lambda: LogisticRegression().set_fit_request(sample_weight=True),
    "refused": lambda: LogisticRegression().set_fit_request(sample_weight=False),
    "by name": lambda: "logistic",
    "takes none": KNeighborsClassifier,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "pipeline, requested": lambda: make_pipeline(
        StandardScaler().set_fit_request(sample_weight=True), LogisticRegression().set_fit_request(sample_weight=True)
    ),
}


@pytest.mark.filterwarnings(UNSET)
@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("base", BASES)
@both
def test_cross_validation_with_weights(make, base, weighted):
    X, y, weight = weighted
    clf = make(estimator=BASES[base]()).set_fit_request(sample_weight=True)
    found = cross_validate(clf, X, y, params={"sample_weight": weight}, cv=2, error_score="raise")
    assert (found["test_score"] > 0.6).all()


@pytest.mark.usefixtures("routing")
@both
def test_the_estimator_gets_weights_only_if_it_requests_them(make, weighted):
    X, y, weight = weighted
    asks = Witness().set_fit_request(sample_weight=True)
    for one in given_to(make(estimator=asks).fit(X, y, weight)):
        assert set(np.unique(one)) == {0.2, 5.0}
    refuses = make(estimator=Witness().set_fit_request(sample_weight=False)).fit(X, y, weight)
    assert all(one is None for one in given_to(refuses))
    with pytest.warns(tightset.TightsetWarning, match="Witness did not request sample_weight"):
        unset = make(estimator=Witness()).fit(X, y, weight)
    assert all(one is None for one in given_to(unset))


@both
def test_without_routing_the_estimator_gets_all_weights(make, weighted):
    X, y, weight = weighted
    for one in given_to(make(estimator=Witness()).fit(X, y, weight)):
        assert set(np.unique(one)) == {0.2, 5.0}


@both
def test_routing_changes_nothing_but_who_gets_weights(make, weighted):
    X, y, weight = weighted
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    for base in (None, LogisticRegression(), pipe):
        off = make(estimator=base).fit(X, y, None if base is pipe else weight).predict_p(X)
        with config_context(enable_metadata_routing=True):
            if isinstance(base, LogisticRegression):
                base.set_fit_request(sample_weight=True)
            on = make(estimator=base).fit(X, y, None if base is pipe else weight).predict_p(X)
        np.testing.assert_array_equal(on, off)


@both
def test_weights_of_labels_are_not_metadata(make, weighted):
    X, y, weight = weighted
    by_label = {0: 1, 1: 3, 2: 1}
    for base in (Witness(), "logistic"):
        off = make(estimator=base, class_weight=by_label).fit(X, y)
        with config_context(enable_metadata_routing=True):
            on = make(estimator=base, class_weight=by_label).fit(X, y)
            if base != "logistic":
                refuses = Witness().set_fit_request(sample_weight=False)
                both_kinds = make(estimator=refuses, class_weight=by_label).fit(X, y, weight)
                assert all(set(np.unique(one)) == {1, 3} for one in given_to(both_kinds))
        np.testing.assert_array_equal(on.predict_p(X), off.predict_p(X))


@pytest.mark.usefixtures("routing")
def test_workers_route_as_well(weighted):
    X, y, weight = weighted
    pipe = make_pipeline(
        StandardScaler().set_fit_request(sample_weight=True), Witness().set_fit_request(sample_weight=True)
    )
    with parallel_config(backend="threading"):  # which starts sooner; settings belong to a thread
        alone, two = (quick(estimator=pipe, n_jobs=n).fit(X, y, weight).predict_p(X) for n in (1, 2))
    np.testing.assert_array_equal(alone, two)


@pytest.mark.usefixtures("routing")
def test_a_measure_does_not_take_weights_that_it_refuses(weighted):
    X, y, weight = weighted
    base = LogisticRegression().set_fit_request(sample_weight=True)
    with pytest.raises(ValueError, match="requested by estimator but not by SCPOClassifier"):
        quick(estimator=base).set_fit_request(sample_weight=False).fit(X, y, weight)
    only_base = plain(estimator=base).set_fit_request(sample_weight=False)
    cross_validate(only_base, X, y, params={"sample_weight": weight}, cv=2, error_score="raise")


@pytest.mark.usefixtures("routing")
def test_weights_reach_rows_in_partitions_if_requested(weighted):
    import dask.array as da

    X, y, weight = weighted
    rows, found = da.from_array(X, chunks=(100, 2)), []
    for request in (True, False):
        base = SGDClassifier(loss="log_loss", random_state=0).set_fit_request(sample_weight=request)
        found.append(plain(estimator=base).fit(rows, y, weight).predict_p(X))
    unweighted = plain(estimator=SGDClassifier(loss="log_loss", random_state=0)).fit(rows, y).predict_p(X)
    np.testing.assert_array_equal(found[1], unweighted)
    assert (found[0] != found[1]).any()


@pytest.mark.usefixtures("routing")
@both
def test_inside_a_pipeline_and_a_search(make, weighted):
    X, y, weight = weighted
    clf = make(estimator=LogisticRegression().set_fit_request(sample_weight=True)).set_fit_request(sample_weight=True)
    pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clf)
    name = type(clf).__name__.lower()
    assert pipe.fit(X, y, sample_weight=weight).score(X, y) > 0.6
    search = GridSearchCV(pipe, {f"{name}__estimator__C": [1e-6, 1.0]}, scoring=size_scorer(0.8), cv=2)
    search.fit(X, y, sample_weight=weight)
    assert search.best_params_ == {f"{name}__estimator__C": 1.0}
    assert search.cv_results_["mean_test_score"].max() > -2


# ---- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("routing")
@both
def test_groups_reach_fit_and_the_scorer(make, blobs):
    X, y = blobs
    groups = np.where(X[:, 0] > 0, "right", "left")
    clf = make().set_fit_request(groups=True)
    found = cross_validate(clf, X, y, params={"groups": groups}, scoring=size_scorer(), cv=2, return_estimator=True)
    assert (found["test_score"] > -3).all()
    assert all(one.fitted_.by_group for one in found["estimator"])
    # of a splitter alone: they are none of the predictor's business, nor of the scorer's
    by_splitter = cross_validate(
        make().set_fit_request(groups=False),
        X,
        y,
        params={"groups": np.arange(len(y)) % 10},
        scoring=size_scorer(),
        cv=GroupKFold(2),
        return_estimator=True,
        error_score="raise",
    )
    assert not any(one.fitted_.by_group for one in by_splitter["estimator"])


# ---- what is said ---------------------------------------------------------------------------------------------------


@both
def test_the_router_says_what_goes_where(make):
    with config_context(enable_metadata_routing=True):
        base = LogisticRegression().set_fit_request(sample_weight=True)
        router = make(estimator=base).set_fit_request(groups=True).get_metadata_routing()
        assert isinstance(router, MetadataRouter)
        assert router.consumes("fit", ["sample_weight", "groups"]) == {"sample_weight", "groups"}
        assert make(estimator=KNeighborsClassifier()).get_metadata_routing().consumes("fit", ["sample_weight"]) == set()
        told = str(router)
        assert "'estimator': {'mapping': [{'caller': 'fit', 'callee': 'fit'}]" in told
        assert "'router': {'fit': {'sample_weight': True}}" in told
        assert "'score': {'sample_weight': True}" in told
        for trained in (None, "logistic", "precomputed", FrozenEstimator(base)):  # nobody's but ours, or nobody trains
            assert "'estimator'" not in str(make(estimator=trained).get_metadata_routing())
        # What the estimator requests besides cannot be passed on, so the router does not promise it.
        inner = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=GroupKFold(2))
        assert make(estimator=inner).get_metadata_routing().consumes("fit", ["groups"]) == set()


@pytest.mark.usefixtures("routing")
@both
def test_requests_are_cloned_and_pickled_and_no_matter_for_files(make, weighted, tmp_path):
    X, y, weight = weighted
    base = make_pipeline(
        StandardScaler().set_fit_request(sample_weight=False), LogisticRegression().set_fit_request(sample_weight=True)
    )
    clf = make(estimator=base).set_fit_request(sample_weight=True).fit(X, y, weight)
    for again in (clone(clf), pickle.loads(pickle.dumps(clf))):
        assert str(again.get_metadata_routing()) == str(clf.get_metadata_routing())
    clf.save(tmp_path / "m.tightset")
    opened = tightset.load(tmp_path / "m.tightset")
    np.testing.assert_array_equal(opened.predict_p(X), clf.predict_p(X))
    assert clf.estimator is base
    assert "True" in str(clf.get_metadata_routing())  # saving took nothing away
    frozen = make(estimator=FrozenEstimator(base.fit(X, y, sample_weight=weight))).fit(X, y)
    frozen.save(tmp_path / "f.tightset")
    np.testing.assert_array_equal(tightset.load(tmp_path / "f.tightset").predict_p(X), frozen.predict_p(X))


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")  # the checks fit a handful of rows
@pytest.mark.usefixtures("routing")
@parametrize_with_checks(
    [
        scpo(confidence=0.8, max_iter=5),
        ConformalClassifier(confidence=0.8),
        ConformalClassifier(LogisticRegression(), confidence=0.8),
    ]
)
def test_scikit_learn_checks_with_routing(estimator, check):
    check(estimator)
