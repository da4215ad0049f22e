"""A report as a newcomer reads it: counts that agree, labels that are not counts, no change that is not one."""

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.by import By

from makers import baseline, quick_scpo
from tightset.conformal.shortfall import of_rows
from tightset.report import ReportPage, write_report
from tightset.report.about import unchanged
from tightset.report.comparison import compared
from tightset.report.numbers import Tally, stops
from tightset.report.words import percent, percents
from tightset.search.verdict import Verdict

LONG = "Nonincapaciting_Evident_Injury/Other"


@pytest.fixture(scope="module")
def rare():
    """Twelve labels that are numbers: some fall short, one has one test row and one has none."""
    rng = np.random.default_rng(5)
    y = rng.choice(12, 3600, p=[0.4, *[0.056] * 10, 0.04])
    X = 5 * rng.standard_normal((12, 4))[np.where(y > 7, 0, y)] + rng.standard_normal((3600, 4))
    X, y, X_new, y_new = X[:2600], y[:2600], X[2600:], y[2600:]
    kept = (y_new != 11) & ((y_new != 10) | (np.cumsum(y_new == 10) <= 1))
    model, other = (baseline(confidence=0.95, random_state=seed).fit(X, y) for seed in (0, 3))
    return model, X_new[kept], y_new[kept], other


@pytest.fixture(scope="module")
def page(rare, tmp_path_factory):
    model, X, y, other = rare
    frame = pd.DataFrame(X, columns=["AGE", "b_c", "c", "d"]).assign(**{f"AIR_BAG/{j}": LONG for j in range(9)})
    frame["AGE"] = np.nan
    path = tmp_path_factory.mktemp("reading") / "report.html"
    return write_report(
        path, model, X, y, baseline=other, page=ReportPage(frame=frame, about={"a": "tightset x --out y"})
    )


def text_of(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector).text


def test_labels_short_are_counted_among_those_tested_as_evaluate_does(opened, page, rare):
    model, X, y, _ = rare
    covered = model.predict_set(X)[np.arange(len(y)), y]
    short = of_rows(y, covered, 12, 0.95, model.fitted_.rows_of_labels())
    assert len(short.labels) == 1 < short.tested < 11
    browser = opened(page)
    of = f"{len(short.labels)} of {short.tested} labels"
    assert text_of(browser, "#short strong").startswith(f"{of} is covered less than 95%")
    assert text_of(browser, "#short strong").endswith(f"{12 - short.tested} other labels have too few rows to tell.")
    assert text_of(browser, "#told").endswith(f"{of} short.")
    assert text_of(browser, "#without-rows") == "No rows: label 11."


def test_labels_that_are_numbers_do_not_read_like_counts(opened, page):
    browser = opened(page)
    without_script = page.read_text().split('id="short-first"')[1].split("</li>")[0]
    assert ">label " in without_script
    assert text_of(browser, "#short-first li").startswith("label ")


def test_a_missing_value_in_an_example_is_called_missing(opened, page):
    assert "AGE = (missing), b_c = " in text_of(opened(page), "#examples .which")
    assert "AGE = (missing), b_c = " in page.read_text().split('id="examples"')[1][:600]


def test_true_labels_are_on_the_screen_of_a_phone_and_a_hint_says_that_there_is_more(opened, page):
    browser = opened(page, 390)
    heads = browser.execute_script("""return [...document.querySelectorAll('#table thead th')].map(
        (th) => [th.textContent, th.getBoundingClientRect().right])""")
    assert [name for name, _ in heads][3:6] == ["True label", "Its p", "Best p"]
    assert heads[3][1] <= 390
    assert text_of(browser, "#rows .shown") == "8 of 13 columns of the data.\nMore columns: swipe →"
    browser.execute_script("document.querySelector('#rows .box').scrollLeft = 250")
    assert browser.execute_script("return document.querySelector('#table tbody th').getBoundingClientRect().left") < 20
    browser.execute_async_script(
        "const done = arguments[0], box = document.querySelector('#rows .box');"
        "box.scrollLeft = 1e5; requestAnimationFrame(() => requestAnimationFrame(done))"
    )
    assert not browser.find_element(By.ID, "swipe").is_displayed()


def test_the_comparison_on_a_phone_is_a_card_for_each_level_with_all_values(opened, page):
    browser = opened(page, 390)
    boxes = browser.execute_script("""return [...document.querySelectorAll('.compared td')].map((td) =>
        [td.getBoundingClientRect().right, getComputedStyle(td, '::before').content])""")
    assert len(boxes) == 4 * 9
    assert all(right <= 390 and len(name) > 2 for right, name in boxes)


def test_paper_has_the_comparison_as_a_table_and_no_hint_to_swipe(opened, page):
    browser = opened(page, 680)
    assert browser.find_element(By.ID, "swipe").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert browser.execute_script("return getComputedStyle(document.querySelector('.compared')).display") == "table"
    assert not browser.find_element(By.ID, "swipe").is_displayed()
    assert "first 3 of 13 columns" in text_of(browser, ".printed")


def test_wide_screens_are_used_and_headings_tell_columns_apart(opened, page):
    browser = opened(page, 1400)
    assert browser.execute_script("return document.querySelector('#rows .box').clientWidth") > 1250
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1400
    groups = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".compared .group")]
    assert groups == ["the model", "the baseline"]
    second = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".compared thead tr:last-child th")]
    assert second == ["size", "coverage"] * 2


def test_lines_end_after_underscores_and_slashes(opened, page):
    browser = opened(page)
    parts = "Nonincapaciting_<wbr>Evident_<wbr>Injury/<wbr>Other"
    assert browser.execute_script("return document.querySelector('#table tbody .cell-text').innerHTML") == parts
    assert parts in page.read_text()
    assert "AIR_<wbr>BAG/<wbr>0" in browser.execute_script("return document.querySelector('#table thead').innerHTML")


def test_the_page_says_where_the_search_kept_a_plain_classifier(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = np.eye(3)[y] + rng.standard_normal((300, 3))
    model = quick_scpo(confidence=[0.9, 0.7], search="fast").fit(X[:250], y[:250])
    (record,) = (fold.record for fold in model.folds_)

    def kept(*rejected):
        for at, level in enumerate(model.levels_):
            verdict = Verdict(2.0, 1.9, 0.1, accepted=level not in rejected)
            record[at] = record[at]._replace(verdict=verdict)
        return unchanged(model)

    assert kept() == ""
    assert kept(0.7) == (
        "Training found no clear gain at 70%: there the model is tuned logistic regression, calibrated."
    )
    told = "Training found no clear gain at 90% and 70%: this is tuned logistic regression, calibrated."
    assert kept(0.9, 0.7) == told
    assert told in write_report(tmp_path / "page.html", model, X[250:], y[250:]).read_text().split("</header>")[0]
    assert unchanged(baseline().fit(X, y)) == ""


def test_an_interval_close_to_zero_has_another_digit_and_zero_no_sign(rare, monkeypatch):
    model, *_ = rare
    levels, _ = stops(model, None)
    some = Tally(np.ones((len(levels), 9)), np.ones((len(levels), 9), dtype=bool), np.ones(9), {})
    ends = iter([(-0.02, -0.0371, -0.0003, 0.045), (0.0, -0.0, 0.02, 1.0), *[(0.1, 0.05, 0.15, 0.01)] * 9])
    monkeypatch.setattr("tightset.report.comparison.at_equal_coverage", lambda *_: next(ends))
    first, second, third, *_ = compared(model, some, some, levels, lambda levels: some)
    assert (first["change"], first["interval"], first["verdict"]) == ("−2.0%", "−3.71% to −0.03%", "smaller")  # noqa: RUF001
    assert (second["change"], second["interval"]) == ("0.0%", "0.0% to +2.0%")
    assert third["interval"] == "+5.0% to +15.0%"


def test_the_ends_of_an_interval_have_the_same_digits():
    assert percents(0.997, 0.99996) == ("99.700%", "99.996%")
    assert percents(0.997, 1.0) == ("99.7%", "100%")
    assert percent(0.99996) == "99.996%"
