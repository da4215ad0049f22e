"""Default settings on data that are hard in one way or another: no warning, no error, sets as small as they should be."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

from makers import quick_scpo
from tightset import ConformalClassifier, SCPOClassifier
from tightset.search.verdict import Verdict


def mixture(n, p, C, seed=0, noise=1.0):
    """``C`` classes around random centres."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    centres = np.random.default_rng(99).standard_normal((C, p)) * 2.5 / np.sqrt(p)
    return centres[y] + noise * rng.standard_normal((n, p)) / np.sqrt(np.sqrt(p)), y


def sizes(X, y, X_new, y_new, level=0.9, **settings):
    """Ours and logistic regression's, calibrated on the same rows."""
    half = len(y) * 3 // 5
    part = {"X_cal": X[half:], "y_cal": y[half:]}
    ours = SCPOClassifier(level, random_state=0, **settings).fit(X[:half], y[:half], **part)
    theirs = ConformalClassifier(confidence=level).fit(X[:half], y[:half], **part)
    rows = [clf.evaluate(X_new, y_new) for clf in (ours, theirs)]
    assert rows[0]["coverage"] > level - 3.5 * np.sqrt(level * (1 - level) / (len(y) - half))
    return rows[0]["mean_size"], rows[1]["mean_size"]


@pytest.mark.parametrize(
    ("n", "p", "C"), [(100, 3, 2), (400, 1, 3), (1000, 4, 50), (300, 500, 2), (3000, 6, 2)],
    ids=["few rows", "one column", "fifty classes", "many columns", "many rows"],
)  # fmt: skip
def test_shapes(n, p, C):
    X, y = mixture(n, p, C)
    ours, theirs = sizes(X, y, *mixture(2000, p, C, seed=1), search="fast" if C == 50 else "default")
    assert ours < 1.1 * theirs


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.filterwarnings("ignore:no calibration row has the label:tightset.TightsetWarning")
def test_a_class_with_few_rows(rows):
    X, y = mixture(400, 3, 2)
    rare = np.random.default_rng(1).standard_normal((rows, 3)) + 4
    X, y = np.concatenate([X, rare]), np.concatenate([y, np.full(rows, 2)])
    clf = SCPOClassifier(0.9, search="fast", random_state=0).fit(X, y)
    assert clf.predict_set(X).shape == (len(y), 3)
    assert clf.evaluate(X, y)["coverage"] > 0.85


def test_separable_classes():
    X, y = mixture(600, 4, 3, noise=0.05)
    ours, theirs = sizes(X, y, *mixture(2000, 4, 3, seed=1, noise=0.05))
    assert ours <= 1.0
    assert ours < 1.05 * theirs


def test_constant_columns_change_nothing():
    X, y = mixture(500, 3, 3)
    wide = np.column_stack([np.zeros(500), X, np.full(500, 7.0)])
    one, other = (SCPOClassifier(0.9, search="fast", random_state=0).fit(rows, y) for rows in (X, wide))
    assert other.evaluate(wide, y)["mean_size"] == pytest.approx(one.evaluate(X, y)["mean_size"], rel=0.05)
    blank = SCPOClassifier(0.9, search="fast", random_state=0).fit(np.ones((300, 2)), np.arange(300) % 3)
    assert blank.predict_set(np.ones((1, 2))).all()


def test_integer_columns_are_as_good_as_the_same_with_a_jitter():
    rng = np.random.default_rng(0)
    P = np.random.default_rng(5).dirichlet(np.full(5, 0.4), 20)

    def draw(n):
        x = rng.integers(20, size=n)
        return x[:, None].astype(float), np.array([rng.choice(5, p=P[i]) for i in x])

    (X, y), (X_new, y_new) = draw(3000), draw(4000)
    found = []
    for jitter in (0.0, 1e-6):
        clf = SCPOClassifier(0.9, search="fast", random_state=0).fit(X + jitter * rng.standard_normal(X.shape), y)
        found.append(clf.evaluate(X_new + jitter * rng.standard_normal(X_new.shape), y_new)["mean_size"])
    assert found[0] < 1.1 * found[1]


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e150, 1e200])
def test_columns_of_any_size(scale):
    X, y = mixture(400, 2, 3)
    clf, other = (quick_scpo(confidence=0.9).fit(rows, y) for rows in (X, X * np.array([1.0, scale])))
    assert other.evaluate(X * np.array([1.0, scale]), y)["mean_size"] == pytest.approx(
        clf.evaluate(X, y)["mean_size"], rel=0.03
    )


def test_outliers_do_not_spoil_the_rest():
    X, y = mixture(600, 2, 3)
    clean = quick_scpo(confidence=0.9).fit(X, y).evaluate(X, y)["mean_size"]
    X[5, 0] = 1e12
    assert quick_scpo(confidence=0.9).fit(X, y).evaluate(X, y)["mean_size"] < 1.1 * clean
    heavy = np.random.default_rng(0).standard_cauchy((600, 2)) + 3 * np.eye(3)[y][:, :2]
    ours, theirs = sizes(heavy, y, np.random.default_rng(1).standard_cauchy((600, 2)) + 3 * np.eye(3)[y][:, :2], y)
    assert ours < theirs


@pytest.mark.parametrize("ratio", [1e-300, 1e-8, 1e8, 1e50, 1e300])
def test_weights_of_any_size(ratio):
    X, y = mixture(400, 2, 3)
    weight = np.where(np.arange(400) % 2, 1.0, ratio)
    assert quick_scpo(confidence=0.9).fit(X, y, weight).evaluate(X, y)["mean_size"] < 2.2


def test_columns_that_vary_only_where_weights_vanish():
    X, y = mixture(400, 2, 3)
    hidden = np.zeros(400)
    hidden[:5] = np.arange(5)
    weight = np.where(np.arange(400) < 5, 1e-100, 1.0)
    X = np.column_stack([X, hidden])
    assert quick_scpo(confidence=0.9).fit(X, y, weight).evaluate(X, y)["mean_size"] < 2.2


def test_a_hundred_thousand_rows_fit_in_chunks_of_one_candidate(monkeypatch):
    """The cut into chunks must not matter; forced here on few rows."""
    from tightset.search import paths

    X, y = make_classification(600, 6, n_informative=4, n_classes=3, random_state=0)
    whole = quick_scpo(confidence=0.9).fit(X, y)
    monkeypatch.setattr(paths, "_SCORES_PER_CHUNK", 1)
    single = quick_scpo(confidence=0.9).fit(X, y)
    np.testing.assert_allclose(single.selection_["criterion"], whole.selection_["criterion"], rtol=0.03)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nested", "no"), ("label_conditional", "no"), ("verbose", "yes"), ("n_jobs", True),
        ("search", np.array([1, 2])), ("random_state", "a"), ("random_state", -1),
    ],
)  # fmt: skip
def test_words_for_switches_are_refused_by_name(name, value, blobs):
    with pytest.raises(ValueError, match=name):
        SCPOClassifier(**{name: value}).fit(*blobs)


def test_devices_are_refused_by_name(blobs, torch):
    X, y = blobs
    with pytest.raises(ValueError, match=r"device='nosuch' cannot be used"):
        quick_scpo(device="nosuch").fit(X, y)
    with pytest.raises(ValueError, match=r"X is sparse, which device='cpu' cannot take"):
        quick_scpo(device="cpu").fit(sparse.csr_array(X), y)


def test_what_was_found_does_not_change_with_later_settings(blobs):
    clf = quick_scpo(confidence=0.9).fit(*blobs)
    said, table = clf.summary(), clf.selection_
    clf.set_params(search="grid", inefficiency="log", label_conditional=False)
    assert clf.summary() == said
    assert list(clf.selection_) == list(table)
    for read in (lambda clf: clf.selection_, lambda clf: clf.n_iter_, lambda clf: clf.summary()):
        with pytest.raises(NotFittedError):
            read(SCPOClassifier())


def test_the_summary_does_not_say_what_training_knew(blobs):
    X, y = blobs
    clf = quick_scpo(confidence=0.9).fit(X[::2], y[::2])
    said, groups = clf.summary(), np.arange(len(y)) % 2
    clf.calibrate(X[1::2], y[1::2], groups=groups[: len(y[1::2])])
    assert clf.summary() == f"{said}\nSets are calibrated by group."


def test_a_gain_of_an_inefficiency_below_zero_has_its_sign():
    gain, low, high = Verdict(-4.0, -5.0, 0.1, accepted=True).gain()
    assert low < gain == 0.25 < high
    assert Verdict(4.0, 3.0, 0.1, accepted=True).gain()[0] == 0.25


def test_the_summary_says_what_its_figures_are_of(blobs):
    assert "labels per set" in quick_scpo(confidence=0.9).fit(*blobs).summary()
    assert "(mean inefficiency 'log')" in quick_scpo(confidence=0.9, inefficiency="log").fit(*blobs).summary()
    by_label = quick_scpo(confidence=0.9, label_conditional=True).fit(*blobs).summary()
    assert by_label.endswith("Sets are calibrated by label.")
