"""`predict_or_abstain`: what it answers, what it refuses, and that it outlives a file."""

import dask.array as da
import numpy as np
import pytest
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

import tightset
from forging import forged
from tightset import ConformalClassifier, SCPOClassifier, TightsetWarning

X, Y = make_classification(3000, 8, n_informative=5, n_classes=3, class_sep=1.5, random_state=0)
NAMES = np.array(["ash", "birch", "cedar"])
TRAIN, CAL, NEW = slice(0, 1000), slice(1000, 2000), slice(2000, 3000)


@pytest.fixture(scope="module")
def plain():
    return ConformalClassifier("hgb", random_state=0).fit(X[TRAIN], NAMES[Y[TRAIN]], X_cal=X[CAL], y_cal=NAMES[Y[CAL]])


@pytest.mark.parametrize(
    "clf",
    [
        ConformalClassifier(random_state=0),
        ConformalClassifier("hgb", conformity_score="margin", random_state=0),
        SCPOClassifier(confidence=[0.8, 0.95], search="fast", random_state=0),
    ],
)
def test_answers_are_labels_of_predict_and_their_errors_few(clf):
    clf.fit(X[TRAIN], NAMES[Y[TRAIN]], X_cal=X[CAL], y_cal=NAMES[Y[CAL]])
    labels, answered = clf.predict_or_abstain(X[NEW], error=0.15)
    assert labels.dtype == clf.classes_.dtype
    assert answered.dtype == bool
    assert (labels == clf.predict(X[NEW])).all()
    wrong = (labels != NAMES[Y[NEW]])[answered]
    assert len(wrong) >= 300
    assert wrong.sum() <= binom.ppf(0.9999, len(wrong), 0.15)
    if len(clf.levels_) > 1:
        of_level = [clf.predict_or_abstain(X[NEW], error=0.06, confidence=level)[1] for level in clf.levels_]
        assert (of_level[0] != of_level[1]).any()  # by measures of their own


def test_numbers_stay_numbers():
    clf = ConformalClassifier(random_state=0).fit(X[:2000], Y[:2000])
    labels, _ = clf.predict_or_abstain(X[NEW], error=0.2)
    assert labels.dtype == Y.dtype


@pytest.mark.filterwarnings("ignore:no row is answered")
def test_the_promise_is_kept_from_scores_to_answers():
    """300 calibrations on given scores; the true label is the favourite with a chance that its lead tells."""
    rng = np.random.default_rng(0)

    def draw(n):
        lead = rng.random(n)
        favourite = rng.integers(3, size=n)
        scores = np.full((n, 3), 0.1)
        scores[np.arange(n), favourite] += lead
        y = np.where(rng.random(n) < 0.5 * (1 - lead) ** 2, (favourite + rng.integers(1, 3, size=n)) % 3, favourite)
        return scores, y

    S_new, _ = draw(4000)
    lead = np.sort(S_new, axis=1)[:, 2] - 0.1
    failed = some = 0
    for _ in range(300):
        clf = ConformalClassifier("precomputed").fit(*draw(800))
        _, answered = clf.predict_or_abstain(S_new, error=0.05, assurance=0.9)
        t = lead[~answered].max(initial=0.0)  # the true error rate above it is (1 - t)^2 / 6
        some += answered.any()
        failed += answered.any() and (1 - t) ** 2 / 6 > 0.05 + 1e-4
    assert some > 200
    assert failed <= binom.ppf(0.999, 300, 0.1)


def test_a_file_keeps_it_and_an_older_one_says_what_to_do(plain, tmp_path):
    plain.save(tmp_path / "m.tightset")
    again = tightset.load(tmp_path / "m.tightset")
    for before, after in zip(plain.predict_or_abstain(X[NEW]), again.predict_or_abstain(X[NEW]), strict=True):
        assert (before == after).all()

    def as_before(about, arrays):
        for node in about["nodes"]:
            if node.get("kind") == "Calibration":
                del node["fields"]["abstention"]
        kept = [node for node in about["nodes"] if node.get("kind") != "Abstention"]
        assert len(kept) == len(about["nodes"]) - 1
        gone = next(node for node in about["nodes"] if node.get("kind") == "Abstention")
        gone.clear()
        gone["strings"], gone["dtype"], gone["shape"] = [], "<U1", [0]  # a part that nothing refers to

    (tmp_path / "old.tightset").write_bytes(forged((tmp_path / "m.tightset").read_bytes(), as_before))
    old = tightset.load(tmp_path / "old.tightset")
    assert (old.predict_set(X[NEW]) == plain.predict_set(X[NEW])).all()
    with pytest.raises(ValueError, match="calibrate again"):
        old.predict_or_abstain(X[NEW])
    old.calibrate(X[CAL], NAMES[Y[CAL]])
    assert (old.predict_or_abstain(X[NEW])[1] == plain.predict_or_abstain(X[NEW])[1]).all()


def test_counts_that_cannot_be_are_refused(plain, tmp_path):
    plain.save(tmp_path / "m.tightset")

    def flattered(about, arrays):
        node = next(node for node in about["nodes"] if node.get("kind") == "Abstention")
        arrays[about["nodes"][node["fields"]["wrong"]["ref"]]["array"]][:] = -1

    (tmp_path / "bad.tightset").write_bytes(forged((tmp_path / "m.tightset").read_bytes(), flattered))
    with pytest.raises(tightset.ModelFileError, match=r"Calibration\.abstention"):
        tightset.load(tmp_path / "bad.tightset")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"error": 5}, r"error must be a number between 0 and 1, such as 0\.05; got 5"),
        ({"error": 0}, "error must be"),
        ({"error": 1e-300}, r"error must be at least 1e-09, such as 0\.05; got 1e-300"),
        ({"error": True}, "error must be"),
        ({"error": float("nan")}, "error must be"),
        ({"assurance": "high"}, r"assurance must be a number between 0 and 1, such as 0\.95; got 'high'"),
        ({"assurance": 1.0}, "assurance must be"),
        ({"confidence": [0.9, 0.95]}, "confidence must be one level"),
        ({"confidence": 1.5}, "confidence must be"),
    ],
)
def test_what_cannot_be_asked(plain, how, message):
    with pytest.raises(ValueError, match=message):
        plain.predict_or_abstain(X[NEW], **how)


@pytest.mark.parametrize(
    ("clf", "fit", "message"),
    [
        (ConformalClassifier(label_conditional=True, random_state=0), {}, "by label, so fit with label_conditional"),
        (ConformalClassifier(random_state=0), {"groups": X[:2000, 0] > 0}, "by group, so fit without groups"),
        (ConformalClassifier(cv=3, random_state=0), {}, "fit with cv=None"),
    ],
)
def test_predictors_that_have_no_certificate(clf, fit, message):
    clf.fit(X[:2000], Y[:2000], **fit)
    with pytest.raises(ValueError, match=message):
        clf.predict_or_abstain(X[NEW])


def test_before_fit():
    with pytest.raises(NotFittedError):
        ConformalClassifier().predict_or_abstain(X)


def test_where_nothing_is_certified_nothing_is_answered(plain):
    few = ConformalClassifier(random_state=0).fit(X[:200], Y[:200])
    with pytest.warns(
        TightsetWarning, match="needs 65 calibration rows even if none of them is wrong, and there are 50"
    ):
        labels, answered = few.predict_or_abstain(X[NEW])
    assert not answered.any()
    assert len(labels) == 1000
    noise = np.random.default_rng(0).permutation(NAMES[Y[CAL]])
    blind = ConformalClassifier(random_state=0).fit(X[TRAIN], NAMES[Y[TRAIN]], X_cal=X[CAL], y_cal=noise)
    with pytest.warns(TightsetWarning, match="cannot be certified on 1,000 calibration rows"):
        _, answered = blind.predict_or_abstain(X[NEW])
    assert not answered.any()


def test_labels_that_were_not_in_training_count_as_wrong(plain):
    clf = ConformalClassifier("hgb", random_state=0)
    y_cal = NAMES[Y[CAL]].copy()
    y_cal[::5] = "yew"
    with pytest.warns(TightsetWarning, match="yew"):
        clf.fit(X[TRAIN], NAMES[Y[TRAIN]], X_cal=X[CAL], y_cal=y_cal)
    assert plain.predict_or_abstain(X[NEW], error=0.15)[1].mean() > 0.5
    with pytest.warns(TightsetWarning, match="no row is answered"):
        clf.predict_or_abstain(X[NEW], error=0.15)


def test_ties_between_labels_are_right_only_for_the_one_that_is_answered():
    """Equal scores: `predict` says the first label, and a true second label is an error, though no score is higher."""
    S, y = np.full((400, 2), 0.5), np.arange(400) % 2
    clf = ConformalClassifier("precomputed").fit(S, y)
    with pytest.warns(TightsetWarning, match="no row is answered"):
        assert not clf.predict_or_abstain(S, error=0.3)[1].any()
    assert clf.predict_or_abstain(S, error=0.6)[1].all()


def test_ranks_have_one_margin_and_answer_all_or_nothing():
    clf = ConformalClassifier("hgb", conformity_score="top-k", random_state=0).fit(X[:2000], Y[:2000])
    assert clf.predict_or_abstain(X[NEW], error=0.3)[1].all()


def test_answers_do_not_depend_on_the_batch(plain):
    labels, answered = plain.predict_or_abstain(X[NEW])
    one = [plain.predict_or_abstain(row[None]) for row in X[NEW][:30]]
    assert [label[0] for label, _ in one] == labels[:30].tolist()
    assert [sure[0] for _, sure in one] == answered[:30].tolist()
    assert 0.02 < answered.mean() < 0.98


def test_dask_collections_are_answered_at_once(plain):
    labels, answered = plain.predict_or_abstain(da.from_array(X[NEW], chunks=(300, -1)))
    expected = plain.predict_or_abstain(X[NEW])
    assert (labels == expected[0]).all()
    assert (answered == expected[1]).all()
