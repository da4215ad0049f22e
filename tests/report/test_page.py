"""The report without a browser: what is embedded is what `predict_set` gives, text is escaped, limits hold."""

import json
import re
from datetime import date
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from makers import baseline, quick_scpo
from tightset import ConformalClassifier
from tightset.conformal.shortfall import of_rows
from tightset.report import ReportPage, write_report
from tightset.report.numbers import by_label, size_bins, stops, tally
from tightset.report.words import number, percent

SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'


class Elements(HTMLParser):
    """Names of elements, and what stands in them, by name."""

    def __init__(self, page):
        super().__init__()
        self.names, self.attributes, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    """The page, and the data in it."""
    page = path.read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    return page, json.loads(data)


def embedded_sets(data):
    """``(K, R, C)`` of bool, decoded as the script of the page does."""
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
    width, patterns = data["width"], np.array([[c == "1" for c in pattern] for pattern in data["patterns"]])
    rows = []
    for text in data["codes"]:
        digits = np.array([alphabet.index(c) for c in text]).reshape(-1, width)
        rows.append(digits @ 64 ** np.arange(width)[::-1])
    return np.moveaxis(patterns[np.array(rows)], 2, 0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, 700)
    X = rng.standard_normal((4, 5))[y] * 1.3 + rng.standard_normal((700, 5))
    return X[:500], np.array(list("abcd"))[y[:500]], X[500:], np.array(list("abcd"))[y[500:]]


@pytest.fixture(scope="module")
def model(rows):
    return baseline().fit(*rows[:2])


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
@pytest.mark.parametrize(
    "make",
    [
        baseline,
        lambda: quick_scpo(confidence=[0.9, 0.6, 0.8]),
        lambda: baseline(label_conditional=True, allow_empty=False),
        lambda: quick_scpo(confidence=[0.95, 0.75], label_conditional=True, allow_empty=False),
        lambda: baseline(cv=3, confidence=0.77),
    ],
)
def test_what_is_embedded_are_the_sets_of_predict_set_at_every_stop(rows, tmp_path, make):
    X, y, X_new, y_new = rows
    fitted = make().fit(X, y)
    _, data = read(write_report(tmp_path / "page.html", fitted, X_new, y_new))
    levels, chosen = stops(fitted, None)
    assert levels[chosen] == fitted.levels_[0]
    assert set(fitted.levels_) <= set(levels)
    sets = fitted.predict_set(X_new, confidence=levels)
    assert sorted(data["at"][: data["listed"]]) == list(range(200))
    np.testing.assert_array_equal(embedded_sets(data), sets[:, data["at"]])
    for k, level in enumerate(levels):
        row = fitted.evaluate(X_new, y_new, confidence=level)
        assert data["say"][k]["coverage"] == percent(row["coverage"])
        assert data["say"][k]["size"] == f"{row['mean_size']:.2f}"
        assert data["say"][k]["empty"] == percent(row["empty"])
        p = fitted.predict_p(X_new, confidence=level)[data["at"]]
        best = np.array([row[0] for row in data["topP"][data["measure"][k]]])
        np.testing.assert_allclose(best / 1000, p.max(axis=1), atol=5.1e-4)
        own = p[np.arange(len(p)), np.searchsorted(fitted.classes_, y_new[data["at"]])]
        np.testing.assert_allclose(np.array(data["ownP"][data["measure"][k]]) / 1000, own, atol=5.1e-4)


def test_groups(rows, tmp_path):
    X, y, X_new, y_new = rows
    groups, groups_new = np.where(X[:, 0] > 0, "x", "y"), np.where(X_new[:, 0] > 0, "x", "y")
    fitted = baseline().fit(X, y, groups=groups)
    plain = baseline().fit(X, y)
    page, data = read(
        write_report(
            tmp_path / "page.html",
            fitted,
            X_new,
            y_new,
            groups=groups_new,
            baseline=plain,
            page=ReportPage(max_rows=50),
        )
    )
    levels, _ = stops(fitted, None)
    sets = fitted.predict_set(X_new, confidence=levels[5], groups=groups_new)
    np.testing.assert_array_equal(embedded_sets(data)[5], sets[data["at"]])
    assert "within each group" in page
    with pytest.raises(ValueError, match="groups must be given"):
        write_report(tmp_path / "page.html", fitted, X_new, y_new)


def test_only_the_hardest_rows_are_listed_and_the_page_says_so(rows, model, tmp_path):
    page, data = read(write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(max_rows=30)))
    sizes = model.predict_set(rows[2]).sum(axis=1)
    assert data["listed"] == 30
    assert "The 30 hardest of 200 rows" in page
    assert sizes[data["at"][:30]].min() >= np.sort(sizes)[-30]


def test_text_of_the_data_is_escaped_everywhere(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.array([SCRIPT, IMAGE, "</script><b>", "a\u2028b & 'c'"])
    y = labels[rng.integers(0, 4, 400)]
    X = pd.DataFrame(rng.standard_normal((400, 3)), columns=[SCRIPT, IMAGE, "-->"])
    shown = X.assign(**{SCRIPT: SCRIPT, "{{ 7 * 7 }}": IMAGE, "bytes": b"<i>\xff", "turned": "\u202eevil\0"})
    fitted = baseline().fit(X, y)
    how = {"baseline": fitted, "baseline_name": IMAGE}
    how["page"] = ReportPage(title=SCRIPT, frame=shown, about={SCRIPT: IMAGE, IMAGE: SCRIPT})
    page, data = read(write_report(tmp_path / "page.html", fitted, X, y, **how))
    found = Elements(page)
    assert found.names.count("script") == 2
    assert not {"img", "i"} & set(found.names)
    assert "onerror" not in found.attributes
    assert "style" not in found.attributes  # the policy would forbid it
    assert SCRIPT in found.text
    assert any("{{ 7 * 7 }}" in text for text in found.text)
    assert data["labels"] == sorted(labels)
    assert data["columns"] == [SCRIPT, IMAGE, "-->", "{{ 7 * 7 }}", "bytes", "turned"]
    assert data["cells"][0][0] == SCRIPT
    assert data["cells"][0][3:] == [IMAGE, "<i>\ufffd", "\ufffdevil\ufffd"]
    embedded = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert not set("<>&\u2028") & set(embedded)


def test_the_page_is_one_file_with_a_policy_that_forbids_everything_else(rows, model, tmp_path):
    page, _ = read(write_report(tmp_path / "page.html", model, *rows[2:]))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http:" not in page
    assert "https:" not in page
    assert not re.search(r"@import|url\(|innerHTML|<link rel=.stylesheet", page)
    assert re.findall(r'(?:src|href)="(?!#)([^"]*)"', page) == ["data:,"]


def test_without_labels_the_page_shows_sizes_and_says_why_no_coverage(rows, model, tmp_path):
    page, data = read(write_report(tmp_path / "page.html", model, rows[2]))
    assert data["truth"] is None
    assert data["say"][0]["coverage"] == "unknown"
    assert "shows set sizes but no coverage" in page
    assert 'value="missed"' not in page
    assert set(data["marks"]) == {"size"}


def test_what_is_not_printable_or_missing_in_the_frame(rows, model, tmp_path):
    frame = pd.DataFrame(
        {
            "none": [None, "x"] * 100,
            "nan": [np.nan, 1234567.0] * 100,
            "when": pd.to_datetime(["2024-02-29", None] * 100),
            "day": [date(2024, 2, 29), "\ud800"] * 100,
            "list": [[1, 2], {"a": 1}] * 100,
            "na": pd.array([1, None] * 100, dtype="Int64"),
            "kind": pd.Categorical(["p", None] * 100),
            "long": ["y" * 5000, True] * 100,
            "ninth": 1,
        },
        index=[f"id {at}" for at in range(200)],
    )
    data = read(write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(frame=frame)))[1]
    cells = dict(zip(data["at"], data["cells"], strict=True))
    assert data["columns"] == ["index", "none", "nan", "when", "day", "list", "na", "kind"]
    assert cells[0] == ["id 0", "", "", "2024-02-29", "2024-02-29", "[1, 2]", "1", "p"]
    assert cells[1][:4] == ["id 1", "x", "1234567", ""]
    assert cells[1][6] == ""
    long = frame[["long"]].reset_index(drop=True)
    data = read(write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(frame=long)))[1]
    assert max(len(cells[0]) for cells in data["cells"]) == 80


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_two_labels_one_row_and_booleans(rows, tmp_path):
    X, y, X_new, _ = rows
    fitted = baseline().fit(X, y == "a")
    page, data = read(write_report(tmp_path / "page.html", fitted, X_new[:1], [True], baseline=fitted))
    assert data["labels"] == ["False", "True"]
    assert "Prediction sets for 1 row<" in page
    tiny = ConformalClassifier(DummyClassifier(), confidence=0.5, calibration_size=2).fit(X[:6], [0, 1] * 3)
    assert read(write_report(tmp_path / "page.html", tiny, X_new[:3], [0, 1, 1]))[1]["labels"] == ["0", "1"]


@pytest.mark.filterwarnings("ignore::tightset.TightsetWarning")
def test_many_rows_and_many_labels_make_a_page_of_few_megabytes(tmp_path):
    rng = np.random.default_rng(0)
    C, n = 1000, 3000
    labels = np.array([f"{c:04d}" + "é" * 196 for c in range(C)])
    scores = rng.standard_normal((n, C)) + 6 * np.eye(C)[np.arange(n) % C]
    fitted = baseline(estimator="precomputed", confidence=0.9).fit(scores[:1000], labels[np.arange(1000) % C])
    path = write_report(tmp_path / "page.html", fitted, scores, labels[np.arange(n) % C])
    page, data = read(path)
    assert path.stat().st_size < 6e6
    assert data["listed"] == 2**20 // C
    assert f"The {data['listed']:,} hardest of {n:,} rows" in page
    np.testing.assert_array_equal(
        embedded_sets(data)[7], fitted.predict_set(scores, confidence=stops(fitted, None)[0][7])[data["at"]]
    )
    assert "The 20 of 1,000 labels with the most misses beyond what the level allows" in page


def test_sparse_rows_lists_and_polars(rows, model, tmp_path):
    import polars as pl

    X, y, X_new, y_new = rows
    expected = read(write_report(tmp_path / "page.html", model, X_new, y_new))[1]
    assert expected["columns"] == [f"column {j}" for j in range(5)]
    assert read(write_report(tmp_path / "page.html", model, X_new.tolist(), list(y_new)))[1] == expected
    named = pl.DataFrame(X_new, schema=list("vwxyz"))
    assert read(write_report(tmp_path / "page.html", model, X_new, y_new, page=ReportPage(frame=named)))[1][
        "columns"
    ] == list("vwxyz")
    of_sparse = quick_scpo().fit(sparse.csr_array(X), y)
    data = read(write_report(tmp_path / "page.html", of_sparse, sparse.csr_array(X_new), y_new))[1]
    assert data["cells"][0] == [f"{value:.4g}" for value in X_new[data["at"][0]]]


def test_comparison_says_losses_plainly(rows, model, tmp_path):
    X, y, X_new, y_new = rows
    one_column = make_pipeline(SelectKBest(k=1), LogisticRegression())
    worse = ConformalClassifier(one_column, random_state=0).fit(X, y)
    page, _ = read(write_report(tmp_path / "page.html", worse, X_new, y_new, baseline=model, baseline_name="the other"))
    assert "Comparison with the other" in page
    assert "larger (a loss) at 80%, 90%, 95" in page
    assert page.count("larger: a loss") >= 3
    page, _ = read(write_report(tmp_path / "page.html", model, X_new, y_new, baseline=model))
    assert "At equal coverage on these rows the sets of the model are not clearly different at" in page
    page, _ = read(write_report(tmp_path / "page.html", model, X_new, y_new))
    assert "Comparison" not in page


def test_how_to_reproduce_names_versions_parameters_and_what_it_was_told(rows, tmp_path):
    X, y, X_new, y_new = rows
    fitted = baseline(calibration_size=100, random_state=7).fit(X, y)
    about = {"command": "tightset report m.tightset d.csv", "sha256": "0f" * 32}
    text = Elements(
        read(write_report(tmp_path / "page.html", fitted, X_new, y_new, page=ReportPage(about=about)))[0]
    ).text
    assert {"command", about["command"], about["sha256"], "calibration_size", "100", "random_state", "7"} <= set(text)
    assert "score" not in text
    assert any("scikit-learn" in part for part in text)


def test_commands_stand_in_a_block_that_does_not_break_within_options_and_rows_add_up(rows, model, tmp_path):
    about = {"command": "tightset report m-1.tightset /a/d.csv --out x.html", "model: rows": 944, "model: trained": 531}
    about |= {"model: calibrated": 177, "model: sha256 of rows left out": "0f"}
    page, _ = read(write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(about=about)))
    block = re.search("<pre>(.*?)</pre>", page)[1]
    assert "".join(Elements(block).text) == about["command"]
    assert re.findall('<span class="nb">(.*?)</span>', block) == ["m-1.tightset", "/a/d.csv", "--out"]
    assert "944: 531 trained, 177 calibrated, 236 left out for testing or not used" in page  # of an older model
    assert "model: trained" not in page


def test_the_level_at_which_it_opens_can_be_chosen(rows, model, tmp_path):
    data = read(write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(confidence=0.873)))[1]
    assert data["say"][data["start"]]["level"] == "87.3%"
    assert "one model serves all" in data["say"][data["start"]]["note"]
    with pytest.raises(ValueError, match="confidence must be a number between 0 and 1"):
        write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(confidence=95))


def test_bad_input_leaves_the_file_as_it_was(rows, model, tmp_path, monkeypatch):
    X, y, X_new, y_new = rows
    path = tmp_path / "page.html"
    path.write_text("as it was")
    for error, words, change in [
        (NotFittedError, "not fitted", {"model": ConformalClassifier()}),
        (TypeError, "model must be a SCPOClassifier or a ConformalClassifier; got DummyClassifier", {"model": DummyClassifier()}),
        (ValueError, "labels that were not in training", {"y": ["z"] * 200}),
        (ValueError, "inconsistent numbers of samples", {"y": y_new[:7]}),
        (ValueError, "baseline must have the classes", {"baseline": baseline().fit(X, y == "a")}),
        (ValueError, "frame must have a row for each row of X: 200; got 3", {"page": ReportPage(frame=pd.DataFrame({"a": [1, 2, 3]}))}),
        (ValueError, "features", {"X": X_new[:, :2]}),
        (FileNotFoundError, "there is no folder", {"path": tmp_path / "nowhere" / "page.html"}),
        (IsADirectoryError, "is a folder", {"path": tmp_path}),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            write_report(**({"path": path, "model": model, "X": X_new, "y": y_new} | change))
    monkeypatch.setattr("tightset.storage.file.Path.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(path, model, X_new, y_new)
    with pytest.raises(TypeError, match=r"as in write_report\(path, model, X, y\); got ConformalClassifier"):
        write_report(model, path, X_new, y_new)
    with pytest.raises(TypeError, match="frame must be a data frame; got list"):
        ReportPage(frame=[1])
    with pytest.raises(ValueError, match="max_rows must be at least 1; got 0"):
        ReportPage(max_rows=0)
    assert path.read_text() == "as it was"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_the_same_input_gives_the_same_bytes(rows, model, tmp_path):
    first, second = (write_report(tmp_path / f"{at}.html", model, *rows[2:], baseline=model) for at in "ab")
    assert first.read_bytes() == second.read_bytes()


@pytest.fixture(scope="module")
def uneven():
    """Eleven labels, one of which is common and easy, and some of which hide behind others."""
    rng = np.random.default_rng(5)
    y = rng.choice(11, 3600, p=[0.4, *[0.06] * 10])
    X = 5 * rng.standard_normal((11, 4))[np.where(y > 7, 0, y)] + rng.standard_normal((3600, 4))
    names = np.array([f"label {c:02d}" for c in range(11)])
    return X[:2600], names[y[:2600]], X[2600:], names[y[2600:]]


def recount(model, X, y, level):
    """Sets and codes, independent of the report."""
    return model.predict_set(X, confidence=level), np.searchsorted(model.classes_, y)


def test_labels_that_fall_short_are_named_at_the_top_and_the_verdict_is_of_the_average(uneven, tmp_path):
    X, y, X_new, y_new = uneven
    fitted = baseline(confidence=0.8).fit(X, y)
    page, data = read(write_report(tmp_path / "page.html", fitted, X_new, y_new))
    levels, chosen = stops(fitted, None)
    shown = 0
    for k, level in enumerate(levels):
        sets, codes = recount(fitted, X_new, y_new, level)
        covered = sets[np.arange(len(codes)), codes]
        short = of_rows(codes, covered, 11, level, 650).labels
        of = data["ofLabels"]
        assert [of["of"][at] for at in of["short"][k]] == [one.label for one in short]
        said = data["say"][k]
        assert said["verdict"].startswith("On average over all rows")
        assert bool(short) == ("hides the label" in said["verdict"])
        assert bool(short) == (said["short"] != "")
        assert ("None of the 11 labels" in said["verdict"]) == (not short)
        if short:
            assert said["short"].startswith(f"{len(short)} of 11 labels")
            assert said["told"].endswith(f"{len(short)} of 11 labels short.")
        shown += bool(short)
        for at, c in enumerate(of["of"]):
            hits, rows = int(covered[codes == c].sum()), int((codes == c).sum())
            assert of["shares"][of["share"][k][at]][0] == percent(hits / rows)
            assert of["size"][k][at] == number(sets[codes == c].sum(axis=1).mean())
            assert of["rows"][at] == f"{rows:,}"
    assert shown > 3
    begin = page.index("The question and the answer</h2>")
    assert begin < page.index('id="short">') < page.index('class="glance"') < page.index('class="verdict"')
    assert "For coverage of each label, fit with" in page
    assert '<code class="nb">--label-conditional</code>' in page
    named = page[page.index('id="short">') : page.index('class="glance"')]
    for at in data["ofLabels"]["short"][chosen]:
        assert fitted.classes_[data["ofLabels"]["of"][at]] in named


def test_a_model_calibrated_label_by_label_raises_no_alarm_and_is_not_told_to_become_one(uneven, tmp_path):
    X, y, X_new, y_new = uneven
    fitted = baseline(confidence=0.8, label_conditional=True).fit(X, y)
    page, data = read(write_report(tmp_path / "page.html", fitted, X_new, y_new))
    assert sum(map(bool, data["ofLabels"]["short"])) == 0
    assert 'id="short" hidden' in page
    shifted = np.where(y_new == "label 01", "label 02", y_new)
    page, data = read(write_report(tmp_path / "page.html", fitted, X_new, shifted))
    of = data["ofLabels"]
    assert [of["of"][at] for at in of["short"][data["start"]]] == [2]
    assert "may differ from the calibration rows" in data["say"][data["start"]]["short_why"]
    assert "For coverage of each label, fit with" not in page


def test_pairs_of_labels_are_those_of_every_stop(uneven, tmp_path):
    X, y, X_new, _ = uneven
    fitted = baseline(confidence=0.8).fit(X, y)
    page, data = read(write_report(tmp_path / "page.html", fitted, X_new))  # which needs no labels
    assert data["ofLabels"] is None
    for level, stop, said in zip(stops(fitted, None)[0], data["pairs"]["stops"], data["say"], strict=True):
        sets = fitted.predict_set(X_new, confidence=level).astype(int)
        pairs = sets.T @ sets * (1 - np.eye(11, dtype=int))
        if not pairs.any():
            assert stop is None
            assert said["pairs"] == "No set holds two labels."
            continue
        at = stop["labels"]
        assert stop["counts"] == [int(pairs[at[i], at[j]]) for i in range(len(at)) for j in range(i + 1, len(at))]
        assert all(pairs[a].sum() >= np.sort(pairs.sum(axis=1))[-len(at)] for a in at)
        (a, b, text), *_ = stop["pairs"]
        assert text.startswith(f"{pairs.max():,} (")
        assert pairs[a, b] == pairs.max()
    assert "does not follow the slider" not in page


def test_of_too_many_labels_the_pairs_stay_and_the_page_says_at_which_level(rows, model, tmp_path, monkeypatch):
    monkeypatch.setattr("tightset.report.numbers._PAIRS_IN_MEMORY", 100)
    page, data = read(write_report(tmp_path / "page.html", model, *rows[2:]))
    level = data["say"][data["start"]]["level"]
    assert f"This figure does not follow the slider: with this many labels, pairs are counted at {level} only." in page
    assert f'Labels that share sets <span class="at">at {level}</span>' in page
    assert data["pairs"]["stops"] is None


def test_rows_of_a_label_that_the_model_does_not_know_are_missed_and_belong_to_no_label(rows, model):
    levels, _ = stops(model, None)
    codes = np.searchsorted(model.classes_, rows[3])
    codes[:50] = -1
    found = tally(model, rows[2], codes, levels)
    assert not found.covered[:, :50].any()
    of = by_label(model, codes, found, levels)
    assert of.rows.sum() == 150
    np.testing.assert_array_equal(of.covered.sum(axis=1), found.covered.sum(axis=1))


def test_words_are_labels_per_set(rows, model, tmp_path):
    page, _ = read(write_report(tmp_path / "page.html", model, *rows[2:], baseline=model))
    assert not re.search("labels a set", page, re.IGNORECASE)
    assert "Labels per set" in page
    assert "So it does here" not in page


def test_percent_is_written_in_one_way(rows, model, tmp_path):
    page, data = read(write_report(tmp_path / "page.html", model, *rows[2:], baseline=model))
    text = re.sub(r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
    said = json.dumps([data["say"], data["sizes"], data["ofLabels"], data["pairs"]], ensure_ascii=False)
    assert re.findall(r"\d+(?:\s|&nbsp;|&#160;)+%", text + said) == []
    assert len(re.findall(r"\d%", text)) > 50


@pytest.mark.parametrize("C", [2, 16, 17, 29, 1000])
def test_bins_of_sizes_are_even_and_few_and_hold_all_sizes(C):
    rng = np.random.default_rng(C)
    for size in (rng.integers(0, C + 1, 500), rng.binomial(C, 0.1, 500), np.full(500, C), np.zeros(500, dtype=int)):
        bins = size_bins(size, C)
        assert bins[0] == (0, 0)
        assert len(bins) <= 18
        assert [low for low, _ in bins[1:]] == [high + 1 for _, high in bins[:-1]]
        assert bins[-1][1] is None or bins[-1][1] >= size.max()
        assert len({high - low for low, high in bins[1:-1]}) <= 1
        if bins[-1][1] is None:
            assert (size >= bins[-1][0]).mean() <= 0.05
    assert size_bins(np.minimum(rng.poisson(5, 500), C), C)[1] == (1, 1)


def test_what_has_names_is_listed_and_not_written_as_python(rows, model, tmp_path):
    many = {f"label {c}": c for c in range(45)}
    about = {"labels": {SCRIPT: 1234, "b": {"x": 1}}, "none": {}, "some": ("a", 2.5), "many": many}
    page, _ = read(write_report(tmp_path / "page.html", model, *rows[2:], page=ReportPage(about=about)))
    text = Elements(page[page.index("How to reproduce</h2>") : page.index("</main>")]).text
    assert not any("{" in part for part in text)
    assert {SCRIPT, "1,234", "x: 1", "none", "a, 2.5", "label 44", "and 15 more"} <= set(text)
