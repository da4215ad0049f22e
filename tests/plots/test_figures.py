"""What the figures draw is what was measured, on any style, and nothing but the axes is touched."""

import sys
import warnings

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color, to_rgb
from scipy import stats

from makers import baseline, quick_grid, quick_scpo
from tightset import TightsetWarning, plots
from tightset.conformal.intervals import coverage_band, share_interval
from tightset.plots.canvas import COLOURS

NAMES = np.array(["ash", "birch", "cedar"])


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rows(labelled_rows):
    X, y, X_new, y_new = labelled_rows
    return X, NAMES[y], X_new, NAMES[y_new]


@pytest.fixture(scope="module")
def logistic(rows):
    return baseline(confidence=[0.8, 0.95]).fit(*rows[:2])


@pytest.fixture(scope="module")
def scpo(rows):
    return quick_scpo(confidence=[0.8, 0.95]).fit(*rows[:2])


@pytest.fixture(scope="module")
def grid(rows):
    return quick_grid(confidence=[0.8, 0.9], keep_trace=True).fit(*rows[:2])


@pytest.fixture(scope="module")
def in_the_plane(rows):
    return baseline(confidence=0.9).fit(rows[0][:, :2], rows[1])


def line(ax, label):
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return found


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars_of(container):
    (segments,) = [bar.get_segments() for bar in container.lines[2]]
    return np.array(segments)


# ---- coverage and size against confidence ---------------------------------------------------------------------------


def test_coverage_and_its_band(logistic, rows):
    X, y = rows[2:]
    levels = [0.6, 0.8, 0.9]
    ax = plots.coverage(logistic, X, y, confidence=levels)
    measured = [row["coverage"] for row in logistic.evaluate(X, y, confidence=levels)]
    np.testing.assert_allclose(line(ax, "ConformalClassifier").get_xydata(), np.column_stack([levels, measured]))
    np.testing.assert_allclose(line(ax, "coverage = confidence").get_xydata(), np.column_stack([levels, levels]))
    (band,) = ax.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.round(9)}
    for level in levels:
        for end in coverage_band(level, 800, 150):
            assert (level, round(end, 9)) in corners
    assert "800 rows; 150 calibration rows" in ax.get_xlabel()
    assert ax.yaxis.get_major_formatter()(0.9) == "90 %"


def test_coverage_minus_confidence_and_rows_in_place_of_a_model(logistic, rows):
    X, y = rows[2:]
    evaluated = logistic.evaluate(X, y)
    for given in (evaluated, evaluated[::-1], pd.DataFrame(evaluated), {"mine": evaluated}):
        ax = plots.coverage(given, minus_confidence=True, calibration_rows=150)
        name = "mine" if isinstance(given, dict) else "measured"
        gaps = [[row["confidence"], row["coverage"] - row["confidence"]] for row in evaluated]
        np.testing.assert_allclose(line(ax, name).get_xydata(), gaps)
    ax = plots.coverage(evaluated[0])
    assert "binomial" in ax.get_xlabel()
    (band,) = ax.collections
    assert band.get_paths()[0].vertices[:, 1].min() == pytest.approx(coverage_band(0.8, 800)[0])


def test_levels_that_were_not_trained_for_are_noted_and_not_warned_of(scpo, logistic, rows):
    X, y = rows[2:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = plots.coverage({"SCPO": scpo, "plain": logistic}, X, y)
        (marks,) = [one for one in ax.lines if one.get_gid() == "trained"]
        np.testing.assert_allclose(marks.get_xdata(), [0.8, 0.95])
        assert legend(ax) == ["SCPO", "plain", "coverage = confidence", "95 % band", "levels trained for"]
        assert len(line(ax, "SCPO").get_xdata()) == 10  # all of the usual ones up to 99 %: there are rows enough
        ax = plots.mean_size(scpo, X, confidence=[0.8, 0.95])
    assert not [one for one in ax.lines if one.get_gid() == "trained"]
    with pytest.warns(TightsetWarning, match="needs 999"):  # this one is news
        plots.coverage(scpo, X, y, confidence=0.999)


def test_usual_levels_are_those_that_calibration_rows_allow(rows):
    X, y = rows[2:]
    few = baseline(confidence=0.6).fit(*rows[:2], X_cal=X[:30], y_cal=y[:30])
    shown = line(plots.coverage(few, X, y), "ConformalClassifier").get_xdata()
    assert shown.max() == 0.95  # 19 rows are needed for it, and 49 for the next


def test_mean_size_and_its_interval(logistic, scpo, rows):
    X, y = rows[2:]
    ax = plots.mean_size({"SCPO": scpo, "plain": logistic}, X, confidence=[0.8, 0.95])
    for model, name, band in zip((scpo, logistic), ("SCPO", "plain"), ax.collections, strict=True):
        sizes = model.predict_set(X).sum(axis=2)
        np.testing.assert_allclose(line(ax, name).get_xydata(), np.column_stack([[0.8, 0.95], sizes.mean(axis=1)]))
        ends = [stats.t.interval(0.95, 799, one.mean(), stats.sem(one)) for one in sizes]
        corners = band.get_paths()[0].vertices[:, 1]
        assert (corners.min(), corners.max()) == pytest.approx((np.min(ends), np.max(ends)))
    from_rows = plots.mean_size(scpo.evaluate(X, y))
    np.testing.assert_allclose(from_rows.lines[0].get_ydata(), line(ax, "SCPO").get_ydata())


def test_histograms(logistic, rows):
    X = rows[2]
    ax = plots.size_histogram(logistic, X)
    assert legend(ax) == ["ConformalClassifier, 80 %", "ConformalClassifier, 95 %"]
    for container, sets in zip(ax.containers, logistic.predict_set(X), strict=True):
        share = np.bincount(sets.sum(axis=1), minlength=len(container)) / len(X)
        np.testing.assert_allclose([bar.get_height() for bar in container], share[: len(container)])
    hatches = [container[0].get_hatch() for container in ax.containers]
    assert hatches[0] != hatches[1]


def test_histograms_of_many_sizes_are_steps():
    share = {f"share_of_size_{w}": float(w in (1, 60)) / 2 for w in range(101)}
    ax = plots.size_histogram([{"confidence": 0.9, "n": 10, "mean_size": 30.5} | share])
    (steps,) = ax.patches
    np.testing.assert_allclose(steps.get_data().values[[0, 1, 60]], [0, 0.5, 0.5])
    assert len(steps.get_data().values) == 61


# ---- label by label -------------------------------------------------------------------------------------------------


def test_coverage_by_label(logistic, rows):
    X, y = rows[2:]
    ax = plots.class_coverage(logistic, X, y, confidence=0.8)
    sets = logistic.predict_set(X, confidence=0.8)
    hit = {name: sets[y == name, c] for c, name in enumerate(NAMES)}
    order = sorted(NAMES, key=lambda name: hit[name].mean())
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"{name}  ({len(hit[name])})" for name in order]
    (container,) = ax.containers
    np.testing.assert_allclose(container.lines[0].get_xdata(), [hit[name].mean() for name in order])
    low, high = share_interval([hit[name].sum() for name in order], [len(hit[name]) for name in order])
    np.testing.assert_allclose(bars_of(container)[:, :, 0], np.column_stack([low, high]))
    assert line(ax, "confidence, 80 %").get_xdata()[0] == 0.8
    assert ax.yaxis_inverted()  # the worst is on top


def test_sizes_by_label_of_sets_that_were_given(logistic, rows):
    X, y = rows[2:]
    sets = logistic.predict_set(X, confidence=0.8)
    ax = plots.class_size({"a": sets[:, ::-1], "b": sets}, y=y, labels=NAMES[::-1])  # names need not be sorted
    sizes = {name: sets.sum(axis=1)[y == name] for name in NAMES}
    order = sorted(NAMES, key=lambda name: -sizes[name].mean())
    assert [text.get_text().split()[0] for text in ax.get_yticklabels()] == order
    for container in ax.containers:
        np.testing.assert_allclose(container.lines[0].get_xdata(), [sizes[name].mean() for name in order])
    ends = [stats.t.interval(0.95, len(sizes[n]) - 1, sizes[n].mean(), stats.sem(sizes[n])) for n in order]
    np.testing.assert_allclose(bars_of(ax.containers[0])[:, :, 0], ends)


def test_many_labels_are_cut_with_a_note_and_absent_ones_left_out():
    y = np.repeat(np.arange(60), 3)[:-2]  # the last label has one row
    sets = np.random.default_rng(0).random((len(y), 62)) < 0.3
    ax = plots.class_coverage(sets, y=y, confidence=0.9)
    assert len(ax.get_yticks()) == 25
    assert "(the 25 labels covered least, of 60)" in ax.get_xlabel()
    assert len(plots.class_size(sets, y=y, most=100).get_yticks()) == 60
    ax = plots.shared_labels(sets)
    assert ax.images[0].get_array().shape == (25, 25)
    assert "of 62" in ax.get_xlabel()


@pytest.mark.parametrize("known", [True, False])
def test_labels_that_share_sets(logistic, rows, known):
    X, y = rows[2:]
    ax = plots.shared_labels(logistic, X, y if known else None, confidence=0.95)
    sets = logistic.predict_set(X, confidence=0.95)
    drawn = ax.images[0].get_array()
    numbers = {tuple(text.get_position()): text.get_text() for text in ax.texts}
    for a, name in enumerate(NAMES):
        own = sets[y == name] if known else sets[sets[:, a]]
        for b in range(3):
            assert numbers[b, a] == f"{100 * own[:, b].mean():.0f}"
            assert np.ma.is_masked(drawn[a, b]) or np.isnan(drawn[a, b]) if a == b else drawn[a, b] == own[:, b].mean()
    assert ax.get_ylabel() == ("true label" if known else "label in the set")


def test_p_values_of_a_row(logistic, scpo, rows):
    X, y = rows[2:]
    p = logistic.predict_p(X[:1], confidence=0.8)[0]
    kept = logistic.predict_set(X[:1], confidence=0.8)[0]
    order = np.argsort(-p)
    frame = pd.DataFrame(X[:1])
    for ax in (
        plots.p_values(logistic, X[0], confidence=0.8, true=y[0]),
        plots.p_values(logistic, frame.to_numpy(), true=y[0]),
        plots.p_values(p, labels=NAMES, confidence=0.8, true=y[0]),
    ):
        bars = sorted((bar.get_y(), bar.get_width(), bool(bar.get_hatch())) for bar in ax.patches)
        np.testing.assert_allclose([width for _, width, _ in bars], p[order])
        assert [hatched for *_, hatched in bars] == [not kept[c] for c in order]
        names = [f"{NAMES[c]}  (true)" if NAMES[c] == y[0] else NAMES[c] for c in order]
        assert [text.get_text() for text in ax.get_yticklabels()] == names
        assert line(ax, "1 \N{MINUS SIGN} confidence = 0.2").get_xdata()[0] == pytest.approx(0.2)
    assert "(the 20 largest of 50)" in plots.p_values(np.linspace(0, 1, 50)).get_xlabel()
    plots.p_values(scpo, X[0], confidence=0.9)  # not a level that was trained for, and no warning


def test_a_row_of_a_frame_keeps_its_names(rows):
    X = pd.DataFrame(rows[0], columns=list("abcde"))
    clf = baseline(confidence=0.9).fit(X, rows[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        widths = [sorted(bar.get_width() for bar in plots.p_values(clf, x).patches) for x in (X.iloc[3], X.iloc[[3]])]
    assert widths[0] == widths[1] == sorted(clf.predict_p(X.iloc[[3]])[0])


def test_regions_are_those_of_the_model(in_the_plane, rows):
    X, y = rows[2][:, :2], rows[3]
    ax = plots.regions(in_the_plane, X, y, confidence=0.8, resolution=60)
    (image,) = ax.images
    left, right, bottom, top = image.get_extent()
    points = np.array([[x, z] for z in np.linspace(bottom, top, 60) for x in np.linspace(left, right, 60)])
    sets = in_the_plane.predict_set(points, confidence=0.8)
    colours = np.asarray(image.get_array()).reshape(-1, 4)
    kinds = np.unique(np.column_stack([sets, colours]), axis=0)
    assert len(kinds) == len(np.unique(sets, axis=0)) == len(np.unique(colours, axis=0))  # a colour for every set
    assert (colours[~sets.any(axis=1), 3] == 0).all()  # and none for the empty one
    drawn = [one for one in ax.lines if one.get_marker() not in ("", "None")]
    assert [len(one.get_xdata()) for one in drawn] == [(y == name).sum() for name in NAMES]
    written = {text.get_text() for text in ax.texts} | set(legend(ax))
    assert {
        "{" + ", ".join(NAMES[kind]) + "}" if kind.any() else "empty" for kind in np.unique(sets, axis=0)
    } <= written


def test_regions_of_a_frame_have_the_names_of_its_columns(rows):
    X = pd.DataFrame(rows[0][:, :2], columns=["width", "price in $"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = plots.regions(baseline(confidence=0.9).fit(X, rows[1]), X, labels=["A", "B", "C"], resolution=40)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", r"price in \$")
    ax.figure.canvas.draw()


# ---- training -------------------------------------------------------------------------------------------------------


def test_traces(grid):
    ax = plots.traces(grid, confidence=0.9)
    trace = grid.traces_[0][1]
    table = grid.selection_
    chosen = int(np.flatnonzero(table["chosen"][table["confidence"] == 0.9])[0])
    thick = max(ax.lines, key=lambda one: one.get_linewidth())
    np.testing.assert_array_equal(thick.get_ydata(), trace[:, chosen])
    assert thick.get_label().startswith("chosen")
    assert len(ax.lines) == trace.shape[1]
    assert sorted(one.get_ydata()[-1] for one in ax.lines) == pytest.approx(sorted(trace[-1]))
    assert legend(ax)[0] == f"the other {trace.shape[1] - 1} candidates"
    assert "-1/L" in ax.get_ylabel()


def test_candidates(scpo):
    ax = plots.candidates(scpo, confidence=0.95, most=5)
    table = scpo.selection_
    own = {name: column[table["confidence"] == 0.95] for name, column in table.items()}
    chosen, other = ax.containers
    np.testing.assert_allclose(chosen.lines[0].get_xdata(), np.sort(own["criterion"][own["chosen"]]))
    assert same_color(chosen.lines[0].get_markerfacecolor(), COLOURS[0])
    assert other.lines[0].get_markerfacecolor() == "none"
    best = int(np.argmin(own["criterion"]))
    assert ax.get_yticklabels()[0].get_text() == own["candidate"][best]
    ends = np.concatenate([bars_of(one) for one in (chosen, other)])
    assert any(np.ptp(bar[:, 0]) == pytest.approx(2 * own["error"][best]) for bar in ends)
    verdict = scpo.folds_[0].record[1].verdict
    assert line(ax, "to beat: tuned logistic regression").get_xdata()[0] == verdict.baseline
    assert verdict.unit in ax.get_xlabel()
    left_out = len(own["chosen"]) - sum(len(one.lines[0].get_xdata()) for one in ax.containers)
    assert f"({left_out} more are worse" in ax.get_xlabel()


def test_candidates_of_the_grid(grid):
    ax = plots.candidates(grid, confidence=0.8)
    table = grid.selection_
    own = table["confidence"] == 0.8
    drawn = np.concatenate([one.lines[0].get_xdata() for one in ax.containers])
    np.testing.assert_allclose(np.sort(drawn), np.sort(table["inefficiency"][own]))


# ---- manners --------------------------------------------------------------------------------------------------------


@pytest.fixture
def figures(logistic, scpo, grid, in_the_plane, rows):
    X, y = rows[2:]
    return {
        "coverage": lambda ax=None: plots.coverage({"SCPO": scpo, "plain": logistic}, X, y, ax=ax),
        "mean_size": lambda ax=None: plots.mean_size(scpo, X, ax=ax),
        "size_histogram": lambda ax=None: plots.size_histogram(scpo, X, ax=ax),
        "class_coverage": lambda ax=None: plots.class_coverage(scpo, X, y, ax=ax),
        "class_size": lambda ax=None: plots.class_size(scpo, X, y, ax=ax),
        "traces": lambda ax=None: plots.traces(grid, ax=ax),
        "candidates": lambda ax=None: plots.candidates(scpo, ax=ax),
        "regions": lambda ax=None: plots.regions(in_the_plane, X[:, :2], y, resolution=50, ax=ax),
        "shared_labels": lambda ax=None: plots.shared_labels(scpo, X, y, ax=ax),
        "p_values": lambda ax=None: plots.p_values(scpo, X[0], ax=ax),
    }


@pytest.mark.parametrize("name", plots.__all__)
def test_axes_that_are_given_are_drawn_on_and_nothing_else_changes(name, figures):
    current = plt.figure()
    apart = mpl.figure.Figure(layout="constrained")  # pyplot does not know this one
    ax, before = apart.add_subplot(), dict(mpl.rcParams)
    assert figures[name](ax) is ax
    assert plt.get_fignums() == [current.number]
    assert not current.axes
    assert dict(mpl.rcParams) == before
    apart.canvas.draw()
    assert ax.get_xlabel()
    assert ax.get_ylabel() or name in ("candidates",)


@pytest.mark.parametrize("name", plots.__all__)
def test_every_figure_takes_its_ink_from_the_style(name, figures, tmp_path):
    with plt.style.context("dark_background"):
        ax = figures[name]()
        ax.figure.savefig(tmp_path / "dark.png", transparent=True)
    inks = [
        ax.xaxis.label.get_color(),
        ax.yaxis.label.get_color(),
        *(tick.get_color() for tick in ax.get_xticklabels()),
    ]
    if ax.get_legend():
        inks += [text.get_color() for text in ax.get_legend().get_texts()]
        assert not ax.get_legend().get_frame_on()
    assert all(same_color(ink, "white") for ink in inks)
    assert not any(same_color(one.get_color(), "black") for one in ax.lines)
    assert same_color(ax.get_facecolor(), "black")  # that of the style
    corner = plt.imread(tmp_path / "dark.png")[0, 0]
    assert corner[3] == 0


@pytest.mark.parametrize("name", plots.__all__)
def test_nothing_is_clipped_on_a_figure_of_its_own(name, figures):
    ax = figures[name]()
    ax.figure.canvas.draw()
    whole = ax.figure.bbox
    box = ax.get_tightbbox()
    assert whole.x0 - 1 <= box.x0
    assert box.x1 <= whole.x1 + 1
    assert whole.y0 - 1 <= box.y0
    assert box.y1 <= whole.y1 + 1
    if ax.get_legend():  # nor is anything covered
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1 - 1


def test_colours_stand_on_white_and_on_dark():
    def luminance(colour):
        rgb = np.array(to_rgb(colour))
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    for colour in COLOURS:
        for ground in ("white", "#111111"):
            light, dark = sorted([luminance(colour), luminance(ground)], reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, (colour, ground)


def test_without_matplotlib_the_extra_is_named(logistic, rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"tightset\[plots\]"):
        plots.mean_size(logistic, rows[2])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda m, X, y: plots.coverage(m), "X must be given"),
        (lambda m, X, y: plots.coverage(m, X), "y must be given"),
        (lambda m, X, y: plots.coverage(m, X, y[:5]), "a label for each of the 800 rows; got 5"),
        (lambda m, X, y: plots.coverage(m, X, np.full(800, "oak")), "not in training"),
        (lambda m, X, y: plots.coverage(m, X, y, confidence=1.5), "between 0 and 1"),
        (lambda m, X, y: plots.coverage({}), "empty dict"),
        (lambda m, X, y: plots.coverage([]), "rows of its evaluate"),
        (lambda m, X, y: plots.coverage(3), "rows of its evaluate"),
        (lambda m, X, y: plots.coverage(baseline()), "not fitted"),
        (lambda m, X, y: plots.coverage(m.evaluate(X, y), confidence=0.7), "none of the rows"),
        (lambda m, X, y: plots.coverage(m, X, y, ax=plt.subplots(1, 2)[1]), "ax must be one matplotlib Axes"),
        (lambda m, X, y: plots.mean_size([{"confidence": 0.9}]), "lack 'mean_size'"),
        (lambda m, X, y: plots.class_coverage(m, X), "y must be given"),
        (lambda m, X, y: plots.class_coverage(m, X, y, most=0), "most must be"),
        (lambda m, X, y: plots.class_coverage(m, X, y, confidence=[0.8, 0.9]), "one level"),
        (lambda m, X, y: plots.class_size(m.predict_p(X), y=y), "array of bool"),
        (lambda m, X, y: plots.class_size(m.predict_set(X)[0], y=y, labels=["a"]), "name each of the 3"),
        (lambda m, X, y: plots.shared_labels(m, X, most=1), "at least two"),
        (lambda m, X, y: plots.regions(m, X), "two columns; this one was fitted on 5"),
        (lambda m, X, y: plots.regions(3, X), "fitted predictor; got int"),
        (lambda m, X, y: plots.p_values(m), "x must be given"),
        (lambda m, X, y: plots.p_values(m, X[:2]), "one row; got 2"),
        (lambda m, X, y: plots.p_values([0.2, 1.3]), "p-values"),
        (lambda m, X, y: plots.p_values(m, X[0], true="oak"), "true must be one of"),
        (lambda m, X, y: plots.traces(m), "fitted SCPOClassifier; got ConformalClassifier"),
        (lambda m, X, y: plots.candidates(quick_scpo()), "not fitted"),
    ],
)
def test_bad_input_is_said(draw, message, logistic, rows):
    with pytest.raises(ValueError, match=message):
        draw(logistic, *rows[2:])


def test_what_training_did_not_keep_is_said(scpo, grid):
    with pytest.raises(ValueError, match="keeps no traces"):
        plots.traces(scpo)
    with pytest.raises(ValueError, match=r"trained for \(80%, 90%\); got 0.7"):
        plots.traces(grid, confidence=0.7)
    with pytest.raises(ValueError, match="fold must be from 0 to 0"):
        plots.candidates(scpo, fold=1)


def test_dask_rows_go_through_evaluate(logistic, rows):
    import dask.array as da

    X, y = da.from_array(rows[2], chunks=(400, 5)), rows[3]
    with pytest.raises(ValueError, match=r"rows of model.evaluate"):
        plots.coverage(logistic, X, y)
    ax = plots.coverage(logistic.evaluate(X, y))
    assert line(ax, "measured").get_ydata()[0] == logistic.evaluate(rows[2], y)[0]["coverage"]
