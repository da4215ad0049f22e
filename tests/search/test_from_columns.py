"""The default search: gains where there is something to gain, the baseline where there is not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from makers import scpo
from tightset import ConformalClassifier, SCPOClassifier, Search
from tightset.compute.progress import Progress
from tightset.compute.rows import MemoryRows
from tightset.compute.threads import StoppedError, Threads
from tightset.conformal.splits import fold_of_rows
from tightset.models.columns import Columns
from tightset.search.from_columns import _doubt, path_search
from tightset.search.judging import Judge
from tightset.search.levels import Level
from tightset.search.paths import View, logistic_candidates
from tightset.search.problem import Aim, Runtime, TrainingRows
from tightset.search.settings import SEARCHES
from tightset.search.shortlist import Judged, best_of_row, held_out

QUICK = Search((("two-matrix", 2.0), ("linear", 1.0)), pulls=(1.0, 0.01), max_iter=30, folds=3)


@pytest.fixture
def bands():
    """Four classes in bands of one column, of uneven noise in another: logistic regression cannot see either."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (2400, 2))
    y = (np.floor(2 * np.abs(x[:, 0])) + (rng.random(2400) < 0.3 * (x[:, 1] > 0))).astype(int) % 4
    return x, y


def searched(X, y, levels=(0.9,), search=QUICK, **changes):
    search = replace(search, unfold=changes.pop("unfold", True))
    rows = TrainingRows(MemoryRows(X), y, np.unique(y))
    with Progress() as progress:
        return path_search(rows, Aim(levels), search, Runtime(progress, **changes)).record


def test_sets_are_much_smaller_where_logistic_regression_is_blind(bands):
    X, y = bands
    sizes, coverages = np.empty((2, 3)), np.empty((2, 3))
    for seed in range(2):  # which rows calibrate moves sizes by some percent
        predictors = (
            ConformalClassifier(confidence=0.9),
            SCPOClassifier(confidence=0.9),
            SCPOClassifier(0.9, search="fast"),
        )
        for at, clf in enumerate(predictors):
            row = clf.set_params(random_state=seed).fit(X[:1200], y[:1200]).evaluate(X[1200:], y[1200:])
            sizes[seed, at], coverages[seed, at] = row["mean_size"], row["coverage"]
    baseline, default, fast = sizes.mean(axis=0)
    assert default < 0.6 * baseline
    assert fast < 1.03 * default
    assert (coverages > 0.87).all()


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
    assert accepted == 0


def test_the_baseline_is_logistic_regression(blobs):
    X, y = blobs
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    columns = Columns.plain(X)
    view = View.of(columns, X, y, 3, np.ones((2, len(y))), None)
    with Threads(1) as threads:
        ((*_, found),) = logistic_candidates(
            [view], Search(strengths=(0.01, 0.1, 1.0)), threads=threads, progress=Progress()
        )
    Z = columns.apply(X)[0]
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(Z[:, :-1], y)
    logits = Z @ found.theta[-1]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, theirs.predict_proba(Z[:, :-1]), atol=2e-3)


def test_held_out_margins_come_from_models_that_have_not_seen_the_row(blobs):
    """Each row by the model of its own fold, on a common scale; and a threshold for the model of all rows."""
    X, y = blobs
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    fold = np.arange(len(y)) % 3
    fits = np.stack([fold != 0, fold != 1, fold != 2, fold >= 0]).astype(float)
    view = View.of(Columns.plain(X), X, y, 3, fits, None)
    with Threads(1) as threads:
        ((found,),) = logistic_candidates([view], Search(strengths=(1.0,)), threads=threads, progress=Progress())
    judge = Judge(y, None, 0.1, rng=np.random.default_rng(0))
    margins, own, q = held_out(found, fold, judge)
    assert (judge.own(margins) >= 0).mean() == pytest.approx(0.9, abs=0.005)
    shuffled = found._replace(theta=found.theta[[1, 0, 2, 3]])  # fold 0 now scored by a model that saw it
    assert not np.allclose(held_out(shuffled, fold, judge).margins[fold == 0], margins[fold == 0])
    scores = np.stack([view.X @ theta for theta in found.theta])
    A = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    np.testing.assert_allclose(own, A[fold, np.arange(len(y)), y], atol=1e-4)  # log-likelihoods
    apart = np.stack([A[f] - judge.thresholds(A[f], fold != f) for f in range(3)])[fold, np.arange(len(y))]
    inner = judge.thresholds(A[-1])  # on the rows that it has seen
    assert q == pytest.approx(inner + judge.thresholds(apart), abs=1e-4)


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


def test_weights_train_as_copies_do(bands):
    X, y = bands
    times = np.arange(len(y)) % 3
    settings = {"confidence": 0.9, "search": Search.fast(max_iter=15), "random_state": 0}
    cal = {"X_cal": X[:300], "y_cal": y[:300]}
    weighted = SCPOClassifier(**settings).fit(X, y, times, **cal)
    copies = SCPOClassifier(**settings).fit(np.repeat(X, times, axis=0), np.repeat(y, times), **cal)
    sizes = [clf.evaluate(X, y)["mean_size"] for clf in (weighted, copies)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_few_rows_are_not_chosen_by_and_weights_equal_copies_to_the_last_bit(blobs):
    X, y = blobs
    times = np.arange(20) % 3
    cal = {"X_cal": X[300:], "y_cal": y[300:]}
    weighted = SCPOClassifier(0.9, random_state=0).fit(X[:20], y[:20], times, **cal)
    mixed = np.random.default_rng(0).permutation(times.sum())
    copies = SCPOClassifier(0.9, random_state=0).fit(
        np.repeat(X[:20], times, axis=0)[mixed], np.repeat(y[:20], times)[mixed], **cal
    )
    np.testing.assert_array_equal(weighted.predict_p(X), copies.predict_p(X))
    assert weighted.selection_["candidate"].tolist() == ["logistic, pull 1, plain columns"]
    assert "fewer than 50 training rows are too few to choose a model" in weighted.summary()


@pytest.mark.parametrize("columns", [2, 3])
def test_discrete_columns_are_judged_fairly(columns):
    """Rows are copies of each other; folds that kept copies together would hold out what was never seen."""
    rng = np.random.default_rng(columns)
    X = rng.integers(0, 2, (1600, columns)).astype(float)
    y = ((X @ np.arange(1, columns + 1)).astype(int) + (rng.random(1600) < 0.35) * rng.integers(0, 4, 1600)) % 4
    part = {"X_cal": X[500:1000], "y_cal": y[500:1000]}
    ours = SCPOClassifier(0.8, search="fast", random_state=0).fit(X[:500], y[:500], **part)
    theirs = ConformalClassifier(confidence=0.8).fit(X[:500], y[:500], **part)
    sizes = [clf.evaluate(X[1000:], y[1000:])["mean_size"] for clf in (ours, theirs)]
    assert sizes[0] <= 1.02 * sizes[1]
    promised = ours.folds_[0].record[0].verdict.baseline
    assert promised == pytest.approx(sizes[1], rel=0.25)  # scores tie, and the quantile falls on one step or the next


def likelihoods(bands, noise):
    """Two views of made-up rows, and logistic regressions on them: what the guard asks about their likelihood."""
    X, y = bands
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    if noise:
        X = np.random.default_rng(0).standard_normal(X.shape)
    fold = fold_of_rows(y, 3, np.random.default_rng(0))
    fits = np.stack([*(fold != held for held in range(3)), np.ones(len(y), dtype=bool)])
    views = [View.of(columns, X, y, 4, fits, None) for columns in (Columns.plain(X), Columns.unfolded(X))]
    judge = Judge(y, None, 0.1, rng=np.random.default_rng(0))
    with Threads(1) as threads:
        found = logistic_candidates(views, Search(strengths=(0.01, 1.0)), threads=threads, progress=Progress())
    judged = [
        [Judged(one, 1.0, 0.1, 0.0, float(held_out(one, fold, judge).own.mean())) for one in some] for some in found
    ]
    ways = ((judged, True), (judged, False), (judged[::-1], True), (judged[:1], True))
    return [_doubt(some, fold, judge, unfolded=unfolded) for some, unfolded in ways]


def test_likelihood_speaks_for_unfolded_columns_where_they_help(bands):
    usual = pytest.approx(1 + 1 / 240)
    assert likelihoods(bands, noise=False) == [0, usual, usual, np.inf]  # plain columns alone see nothing in bands


def test_where_there_is_no_signal_nothing_is_believed(bands):
    assert likelihoods(bands, noise=True) == [np.inf] * 4


def test_a_lucky_figure_between_bad_ones_does_not_win():
    def row(*figures):
        return [Judged(None, figure, 0.1, 0.0, 0.0) for figure in figures]

    assert best_of_row(row(2.0, 1.5, 2.0, 1.55, 1.55)).criterion == 1.55
    assert best_of_row(row(1.0, 1.1, 1.2)).criterion == 1.0
    assert best_of_row(row(1.7)).criterion == 1.7


def test_with_costs_the_likeliest_of_those_that_cost_no_more_wins():
    """Smoothed figures favoured the middle of a row with one bad end: 1.02 of the best rule's cost on dna at 95 %."""

    class Told(Level):
        def curve(self, one):
            return one.criterion

        def gain(self, ours, theirs):
            return theirs - ours, 0.1

    def tuned(cost, figures):
        judge = SimpleNamespace(terms=SimpleNamespace(cost=cost))
        row = [Judged(None, figure, 0.1, 0.0, likelihood) for figure, likelihood in figures]
        return Told(0.9, judge, *[None] * 5).tuned(row).criterion

    figures = [(9.0, -5.0), (4.24, -2.4), (4.29, -2.8), (4.4, -2.0)]
    assert tuned(np.ones((3, 3)), figures) == 4.24
    assert tuned(None, figures) == 4.29
    assert tuned(np.ones((3, 3)), [(4.4, -2.4), (4.33, -2.0), (4.29, -2.8)]) == 4.33
    assert tuned(np.ones((3, 3)), [(4.0, -2.0)]) == 4.0


def test_costs_that_can_be_negative_or_zero(blobs):
    X, y = blobs
    below = SCPOClassifier(0.8, inefficiency=(lambda w: w - 1, np.ones_like), search=QUICK, random_state=0)
    assert below.fit(X, y).evaluate(X, y)["mean_size"] < 1.5
    free = (lambda w: np.maximum(w - 1, 0) ** 2, lambda w: 2 * np.maximum(w - 1, 0))
    apart = np.column_stack([100.0 * y, X])
    assert "no clear gain" in SCPOClassifier(0.8, inefficiency=free, search=QUICK).fit(apart, y).summary()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"paths": (("quadratic", 1.0),)}, "paths"),
        ({"paths": (("linear", -1.0),)}, "paths"),
        ({"paths": ("linear",)}, "paths"),
        ({"pulls": ()}, "pulls"),
        ({"pulls": (1.0, -0.1)}, "pulls"),
        ({"strengths": (0.0,)}, "strengths"),
        ({"folds": 1}, "folds"),
        ({"restarts": -1}, "restarts"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 2.5}, "max_iter"),
        ({"unfold": "no"}, "unfold"),
        ({"standardise": "no"}, "standardise"),
        ({"average": 1.5}, "average"),
        ({"boost": "catboost"}, "boost"),
    ],
)
def test_nonsense_in_a_search_is_named(changes, named):
    with pytest.raises(ValueError, match=f"^{named} must be"):
        Search(**({"paths": ()} | changes))


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
    assert len({len(column) for column in table.values()}) == 1
    for level in (0.8, 0.9):
        own = table["confidence"] == level
        steps = (
            own & (table["candidate"] != "logistic") & ~np.char.startswith(table["candidate"].astype(str), "logistic")
        )
        assert own.sum() - steps.sum() == 10  # five strengths on plain and on unfolded columns
        assert 0 < steps.sum() <= 4  # some of the paths end early
        assert table["weight"][own].sum() == pytest.approx(1)
        assert ((table["weight"] > 0) == table["chosen"])[own].all()
        chosen = own & table["chosen"]
        assert table["criterion"][chosen].min() == table["criterion"][own].min()
        assert len(np.unique(table["candidate"][own])) == own.sum()
    assert (table["error"] > 0).all()
    assert clf.n_iter_ == table["n_iter"].max()
    first, second = clf.summary().splitlines()
    assert first.startswith("At 80% confidence: ")
    assert "% smaller (95% interval" in second
    rng = np.random.default_rng(1)
    noise = SCPOClassifier(0.9, search=QUICK, random_state=0).fit(
        rng.standard_normal((300, 3)), rng.integers(0, 3, 300)
    )
    assert "no clear gain, so tuned logistic regression is used unchanged" in noise.summary()


def test_the_grid_compares_with_nothing(blobs):
    assert "does not compare" in SCPOClassifier.paper(max_iter=20, random_state=0).fit(*blobs).summary()


@pytest.mark.parametrize("measure", ["linear", "softmax", "two-matrix"])
def test_one_measure_alone(measure, bands):
    clf = scpo(confidence=0.9, measure=measure, max_iter=15).fit(*bands)
    assert set(clf.selection_["measure"]) == {measure, "softmax"}  # logistic regression is always there


def test_an_interrupt_ends_the_tasks_and_keeps_an_earlier_fit(bands, monkeypatch):
    X, y = (part[:300] for part in bands)
    clf = SCPOClassifier(0.9, search=QUICK, random_state=0).fit(X, y)
    before = clf.predict_p(X)
    from tightset.search import paths

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(paths, "_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, y)
    np.testing.assert_array_equal(clf.predict_p(X), before)


def test_tasks_stop_when_nobody_waits():
    with Threads(2) as threads:
        threads.check()
    with pytest.raises(StoppedError):
        threads.check()


def test_progress_is_quiet_unless_asked_for(bands, capsys, monkeypatch):
    X, y = (part[:300] for part in bands)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the captured stream for a terminal
    for verbose, shown in ((False, False), ("auto", False), (True, True)):
        SCPOClassifier(0.9, search=QUICK, random_state=0, verbose=verbose).fit(X, y)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert ("searching" in captured.err) == shown
