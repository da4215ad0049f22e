"""The default search: gains where there is something to gain, the baseline where there is not."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from tightset import ConformalClassifier, SCPOClassifier, Search
from tightset.columns import Columns
from tightset.paths import SEARCHES, View, logistic_candidates
from tightset.progress import Progress
from tightset.search import _held_out, path_search
from tightset.threads import StoppedError, Threads

QUICK = Search((("two-matrix", 2.0), ("linear", 1.0)), pulls=(1.0, 0.01), max_iter=30, folds=3)


@pytest.fixture
def bands():
    """Four classes in bands of one column, of uneven noise in another: logistic regression cannot see either."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (2400, 2))
    y = (np.floor(2 * np.abs(x[:, 0])) + (rng.random(2400) < 0.3 * (x[:, 1] > 0))).astype(int) % 4
    return x, y


def searched(X, y, levels=(0.9,), search=QUICK, **changes):
    with Progress() as progress:
        return path_search(
            X, y, len(np.unique(y)), confidences=list(levels), search=search, progress=progress, **changes
        )


def test_sets_are_much_smaller_where_logistic_regression_is_blind(bands):
    X, y = bands
    rows = []
    for clf in (
        ConformalClassifier(confidence=0.9),
        SCPOClassifier(confidence=0.9),
        SCPOClassifier(0.9, search="fast"),
    ):
        clf.set_params(random_state=0).fit(X[:1200], y[:1200])
        rows.append(clf.evaluate(X[1200:], y[1200:]))
    baseline, default, fast = (row["mean_size"] for row in rows)
    assert default < 0.6 * baseline
    assert fast < 1.03 * default
    assert all(row["coverage"] > 0.87 for row in rows)


def test_training_for_size_gains_without_unfolded_columns_too(bands):
    X, y = bands
    X = np.column_stack([X, X**2, np.abs(X)])  # the baseline has what it needs
    found = searched(X, y, (0.95,), SEARCHES["fast"], unfold=False)[0]
    assert set(found.table["columns"]) == {"plain"}
    assert found.verdict.accepted
    assert found.verdict.ensemble < 0.97 * found.verdict.baseline


def test_pure_noise_comes_out_as_the_baseline():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((600, 5)), rng.integers(0, 4, 600)
    accepted = 0
    for seed in range(4):
        found = searched(X, y, (0.9,), SEARCHES["fast"], seed=(seed,))[0]
        accepted += found.verdict.accepted
        if not found.verdict.accepted:
            assert [member.measure for member in found.model.members] == ["softmax"]
            chosen = found.table["candidate"][found.table["chosen"]].item()
            assert chosen.startswith("logistic")
            assert chosen.endswith("plain columns")
        assert found.verdict.ensemble > 0.97 * found.verdict.baseline
    assert accepted <= 1


def test_the_baseline_is_logistic_regression(blobs):
    X, y = blobs
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    columns = Columns.plain(X)
    view = View.of(columns, X, y, 3, np.ones((2, len(y))), None)
    with Threads(1) as threads:
        ((*_, found),) = logistic_candidates([view], (0.01, 0.1, 1.0), threads=threads, progress=Progress())
    Z = columns.apply(X)[0]
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(Z[:, :-1], y)
    logits = Z @ found.theta[-1]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, theirs.predict_proba(Z[:, :-1]), atol=2e-3)


def test_held_out_margins_come_from_models_that_have_not_seen_the_row(blobs):
    """Each row by the model of its own fold, on a common scale; and a threshold for the model of all rows."""
    from tightset.choice import Judge

    X, y = blobs
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    fold = np.arange(len(y)) % 3
    fits = np.stack([fold != 0, fold != 1, fold != 2, fold >= 0]).astype(float)
    view = View.of(Columns.plain(X), X, y, 3, fits, None)
    with Threads(1) as threads:
        ((found,),) = logistic_candidates([view], (1.0,), threads=threads, progress=Progress())
    judge = Judge(y, None, 0.1, rng=np.random.default_rng(0))
    margins, own, q = _held_out(found, fold, judge)
    assert (judge.own(margins) >= 0).mean() == pytest.approx(0.9, abs=0.005)
    shuffled = found._replace(theta=found.theta[[1, 0, 2, 3]])  # fold 0 now scored by a model that saw it
    assert not np.allclose(_held_out(shuffled, fold, judge).margins[fold == 0], margins[fold == 0])
    scores = np.stack([view.X @ theta for theta in found.theta])
    A = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    np.testing.assert_allclose(own, A[fold, np.arange(len(y)), y], atol=1e-4)  # log-likelihoods
    A = A[-1]
    assert (judge.own(A) >= q).mean() == pytest.approx(0.9, abs=0.03)


def test_a_level_does_not_depend_on_its_company(bands):
    X, y = bands
    together, alone = searched(X, y, (0.8, 0.9)), searched(X, y, (0.9,))
    np.testing.assert_array_equal(together[1].model.scores(X[:50]), alone[0].model.scores(X[:50]))


def test_threads_do_not_change_a_bit_and_seeds_do(bands):
    X, y = bands
    one, two, other = (searched(X, y, n_jobs=n, seed=seed)[0] for n, seed in ((1, (0,)), (2, (0,)), (2, (5,))))
    np.testing.assert_array_equal(one.model.scores(X[:50]), two.model.scores(X[:50]))
    np.testing.assert_array_equal(one.table["criterion"], two.table["criterion"])
    assert (one.table["criterion"] != other.table["criterion"]).any()


def test_sparse_rows_train_as_dense_ones(bands):
    X, y = bands
    dense, filled = (searched(kind(X + 3), y, unfold=False)[0] for kind in (np.asarray, sparse.csr_array))
    np.testing.assert_allclose(filled.table["criterion"], dense.table["criterion"], rtol=0.02)


def test_weights_equal_copies_to_the_last_bit(bands):
    X, y = bands
    times = np.arange(len(y)) % 3
    settings = {"confidence": 0.9, "search": "fast", "max_iter": 15, "random_state": 0}
    cal = {"X_cal": X[:300], "y_cal": y[:300]}
    weighted = SCPOClassifier(**settings).fit(X, y, times, **cal)
    mixed = np.random.default_rng(0).permutation(times.sum())
    copies = SCPOClassifier(**settings).fit(np.repeat(X, times, axis=0)[mixed], np.repeat(y, times)[mixed], **cal)
    np.testing.assert_array_equal(weighted.predict_p(X), copies.predict_p(X))


def test_restarts_both_columns_and_more_folds_are_in_the_same_search(bands):
    X, y = bands
    wide = Search((("two-matrix", 2.0),), pulls=(0.1,), max_iter=20, folds=4, restarts=2, both_columns=True)
    table = searched(X, y, search=wide)[0].table
    paths = table["candidate"][table["measure"] == "two-matrix"]
    assert len(paths) == 2 * 3
    assert sum("restart" in name for name in paths) == 4
    starts = table["criterion"][table["measure"] == "two-matrix"]
    assert len(set(starts)) == 6


def test_the_table_and_the_summary(bands):
    X, y = bands
    clf = SCPOClassifier((0.8, 0.9), search=QUICK, random_state=0).fit(X, y)
    table = clf.selection_
    assert {"candidate", "criterion", "error", "chosen", "weight"} <= set(table)
    lengths = {len(column) for column in table.values()}
    assert lengths == {2 * (10 + 4)}
    for level in (0.8, 0.9):
        own = table["confidence"] == level
        assert table["weight"][own].sum() == pytest.approx(1)
        assert ((table["weight"] > 0) == table["chosen"])[own].all()
        chosen = own & table["chosen"]
        assert table["criterion"][chosen].min() == table["criterion"][own].min()
        assert len(np.unique(table["candidate"][own])) == own.sum()
    assert (table["error"] > 0).all()
    assert clf.n_iter_ == table["n_iter"].max()
    first, second = clf.summary().splitlines()
    assert first.startswith("At 80 % confidence: ")
    assert "% smaller, with a standard error of" in second
    rng = np.random.default_rng(1)
    noise = SCPOClassifier(0.9, search=QUICK, random_state=0).fit(
        rng.standard_normal((300, 3)), rng.integers(0, 3, 300)
    )
    assert "nothing was gained for sure, so tuned logistic regression is used as it is" in noise.summary()
    assert "does not compare" in SCPOClassifier.paper(max_iter=3).fit(X, y).summary()


@pytest.mark.parametrize("measure", ["linear", "softmax", "two-matrix"])
def test_one_measure_alone(measure, bands):
    clf = SCPOClassifier(0.9, measure=measure, search="fast", max_iter=15, random_state=0).fit(*bands)
    assert set(clf.selection_["measure"]) == {measure, "softmax"}  # logistic regression is always there


def test_an_interrupt_ends_the_tasks_and_keeps_an_earlier_fit(bands, monkeypatch):
    X, y = bands
    clf = SCPOClassifier(0.9, search=QUICK, random_state=0).fit(X, y)
    before = clf.predict_p(X)
    from tightset import paths

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(paths, "_displacement", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, y)
    np.testing.assert_array_equal(clf.predict_p(X), before)


def test_tasks_stop_when_nobody_waits():
    with Threads(2) as threads:
        threads.check()
    with pytest.raises(StoppedError):
        threads.check()


def test_progress_is_quiet_unless_asked_for(bands, capsys, monkeypatch):
    X, y = bands
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the captured stream for a terminal
    for verbose, shown in ((False, False), ("auto", False), (True, True)):
        SCPOClassifier(0.9, search=QUICK, random_state=0, verbose=verbose).fit(X, y)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert ("training for 90 %" in captured.err) == shown
