"""The report in headless Chromium: no errors, no network, slider and table by mouse and keyboard, text stays text."""

import base64
import json
import warnings
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from makers import baseline, quick_scpo
from tightset import TightsetWarning
from tightset.conformal.intervals import share_interval
from tightset.conformal.shortfall import of_rows
from tightset.report import ReportPage, write_report
from tightset.report.words import number, percent, percents

SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
LABELS = np.array([SCRIPT, IMAGE, "plain"])


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A report on 60 rows by measures for two levels, with a text that would like to be a script wherever one can be."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 460)
    X = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])[y] + rng.standard_normal((460, 2))
    y = LABELS[y]
    model = quick_scpo(confidence=[0.9, 0.7]).fit(X[:400], y[:400])
    other = baseline(confidence=0.9).fit(X[:400], y[:400])
    frame = pd.DataFrame(X[400:], columns=["across", SCRIPT])
    frame["note"] = [IMAGE if at % 2 else f"stone {at}" for at in range(60)]
    path = tmp_path_factory.mktemp("report") / "report.html"
    shown = ReportPage(title=f"Stones {SCRIPT}", frame=frame, about={SCRIPT: IMAGE})
    write_report(path, model, X[400:], y[400:], baseline=other, baseline_name=IMAGE, page=shown)
    return SimpleNamespace(path=path, model=model, X=X[400:], y=y[400:], frame=frame)


@pytest.fixture
def page(driver, told):
    """The report, freshly opened on a screen of its own, with nothing left in the logs; checked for errors at the end."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    show_at(driver, 1280)
    driver.get("about:blank")
    for log in ("browser", "performance"):
        driver.get_log(log)
    open_whole(driver, told.path)
    yield driver
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
    with pytest.raises(NoAlertPresentException):
        driver.switch_to.alert  # noqa: B018


def open_whole(driver, path):
    """Open the file and wait until all of it is there, and its script, if it may, has run."""
    driver.get(path.as_uri())
    ready = "return document.readyState === 'complete' && document.querySelector('footer') !== null"
    WebDriverWait(driver, 30).until(lambda one: one.execute_script(ready))


def show_at(driver, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def text_of(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector).text


def shown_rows(page):
    """(row, labels of its set, true label, missed) for the rows of this page of the table."""
    return page.execute_script("""
        return [...document.querySelectorAll("#table tbody tr")].filter((tr) => tr.querySelector("th")).map((tr) => ({
          at: Number(tr.querySelector("th").textContent) - 1,
          size: Number(tr.children[1].textContent),
          set: [...tr.querySelectorAll(".set .label")].map((label) => label.textContent).sort(),
          truth: tr.children[3].querySelector(".label").textContent,
          missed: tr.children[3].querySelector(".miss") !== null,
          cells: [...tr.children].slice(6).map((cell) => cell.textContent),
        }))""")


def all_rows(page):
    """Those of every page of the table, turned by keyboard."""
    found = shown_rows(page)
    for name, act in (("after", lambda: found.extend(shown_rows(page))), ("before", lambda: None)):
        button = page.find_element(By.ID, name)
        while button.get_attribute("aria-disabled") == "false":
            button.send_keys(Keys.ENTER)
            act()
    return found


def click(page, element):
    """Click where it stands once it is in the middle of the screen, clear of the slider that stays at the top."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def sets_at(told, level):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TightsetWarning)
        return told.model.predict_set(told.X, confidence=level)


def check_shows(page, told, *, rows):
    """The page says of its level what `predict_set` says."""
    shown = page.execute_script("""
        const text = (selector) => document.querySelector(selector).textContent;
        const all = (selector, what) => [...document.querySelectorAll(selector)].map(what);
        return {
          level: text(".big-level"),
          glance: ["#coverage", "#size", "#single", "#empty", "#full"].map(text),
          told: text("#told"),
          bars: all("[data-bar] .bar", (bar) => parseFloat(bar.getAttribute("width"))),
          names: all("[data-bar]", (row) => row.children[0].textContent),
          counts: all("#size-table td", (cell) => cell.textContent),
          value: document.querySelector("#slider").getAttribute("aria-valuetext"),
        }""")
    level = round(float(shown["level"].removesuffix("%")) / 100, 6)
    sets = sets_at(told, level)
    size = sets.sum(axis=1)
    covered = sets[np.arange(60), np.searchsorted(told.model.classes_, told.y)]
    shares = [(size == 1).mean(), (size == 0).mean(), (size == 3).mean()]
    assert shown["glance"] == [percent(covered.mean()), number(size.mean()), *map(percent, shares)]
    for said in (shown["level"], percent(covered.mean()), number(size.mean())):
        assert said in shown["told"]
    assert shown["value"].startswith(shown["level"])
    assert ("made for" in shown["value"]) == (level in (0.7, 0.9))
    counts = np.bincount(size, minlength=4)
    assert shown["names"] == ["empty", "1", "2", "all 3"]
    np.testing.assert_allclose(np.array(shown["bars"]) / 100, counts / 60, atol=1e-3)
    assert [int(text.split(" ")[0]) for text in shown["counts"]] == counts.tolist()
    for row in all_rows(page) if rows else shown_rows(page):
        assert row["set"] == sorted(told.model.classes_[sets[row["at"]]].tolist())
        assert row["size"] == size[row["at"]]
        assert row["truth"] == told.y[row["at"]]
        assert row["missed"] == (not covered[row["at"]])
    return level


def test_it_opens_without_an_error_and_asks_nothing_of_the_network(page, told):
    assert page.title == f"Stones {SCRIPT}"
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [told.path.as_uri()]
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_the_policy_of_the_page_forbids_the_network(page):
    violated = page.execute_async_script("""
        const done = arguments[arguments.length - 1];
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        new Image().src = "http://127.0.0.1:9/pixel";""")
    assert violated == "img-src"
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]


def test_the_slider_by_keyboard_shows_the_sets_of_predict_set_at_every_stop(page, told):
    slider = page.find_element(By.ID, "slider")
    assert check_shows(page, told, rows=True) == pytest.approx(0.9)  # the first level of the model
    slider.send_keys(Keys.HOME)
    seen = [check_shows(page, told, rows=False)]
    for _ in range(int(slider.get_attribute("max"))):
        slider.send_keys(Keys.ARROW_RIGHT)
        seen.append(check_shows(page, told, rows=len(seen) % 5 == 0))
    assert seen == sorted(seen)
    assert seen[0] == 0.5
    assert seen[-1] >= 0.98
    assert {0.7, 0.9} < set(seen)
    slider.send_keys(Keys.ARROW_LEFT)
    assert check_shows(page, told, rows=True) == seen[-2]


def test_the_slider_by_mouse(page, told):
    slider = page.find_element(By.ID, "slider")
    before = check_shows(page, told, rows=False)
    width = slider.size["width"]
    ActionChains(page).move_to_element_with_offset(slider, -width // 4, 0).click().perform()
    after = check_shows(page, told, rows=True)
    assert after < before
    assert "No measure was trained for this level" in text_of(page, "#answer .note")
    assert text_of(page, "#examples li p b").startswith("Row ")


def test_rows_come_hardest_first_and_sort_by_mouse_and_by_keyboard(page, told):
    sets = sets_at(told, 0.9)
    p = told.model.predict_p(told.X, confidence=0.9)
    hardness = np.where(sets.any(axis=1), sets.sum(axis=1), 1.5)
    expected = np.lexsort((np.arange(60), p.max(axis=1), -hardness))
    rows = [row["at"] for row in all_rows(page)]
    assert sorted(rows) == list(range(60))
    assert [(hardness[at], p[at].max()) for at in rows] == [(hardness[at], p[at].max()) for at in expected]

    def head(name):
        return page.find_element(By.CSS_SELECTOR, f"#table th[data-sort='{name}']")

    assert head("size").get_attribute("aria-sort") == "descending"
    across = head(0)
    click(page, across.find_element(By.TAG_NAME, "button"))
    assert across.get_attribute("aria-sort") == "ascending"
    assert head("size").get_attribute("aria-sort") is None
    assert [row["at"] for row in all_rows(page)] == np.argsort(told.frame["across"].to_numpy()).tolist()
    button = across.find_element(By.TAG_NAME, "button")
    button.send_keys(Keys.ENTER)
    assert across.get_attribute("aria-sort") == "descending"
    assert [row["at"] for row in all_rows(page)] == np.argsort(-told.frame["across"].to_numpy()).tolist()
    head("at").find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert page.execute_script("return document.activeElement.closest('th').dataset.sort") == "at"
    assert [row["at"] for row in all_rows(page)] == list(range(60))


def test_tab_reaches_the_controls_and_focus_is_visible(page):
    reached = []
    for _ in range(60):
        ActionChains(page).send_keys(Keys.TAB).perform()
        here = page.execute_script("""
            const a = document.activeElement;
            return a === document.body ? null : [a.id || a.className, getComputedStyle(a).outlineStyle !== "none"]""")
        if here is None:  # round the end
            break
        reached.append(here)
    assert reached[0][0] == "skip"
    assert [name for name, visible in reached if not visible] == []
    assert {"slider", "search", "filter", "sort", "before", "after", "box"} <= {name for name, _ in reached}


def test_pages_turn_by_mouse(page):
    first = [row["at"] for row in shown_rows(page)]
    after, before = page.find_element(By.ID, "after"), page.find_element(By.ID, "before")
    click(page, before)  # there is none
    assert [row["at"] for row in shown_rows(page)] == first
    click(page, after)
    assert text_of(page, "#count") == "26 to 50 of 60 rows"
    click(page, after)
    assert len(shown_rows(page)) == 10
    click(page, before)
    click(page, before)
    assert [row["at"] for row in shown_rows(page)] == first


def test_search_and_filters(page, told):
    search = page.find_element(By.ID, "search")
    search.send_keys("STONE 4")
    assert {row["at"] for row in shown_rows(page)} == {4, 40, 42, 44, 46, 48}
    search.clear()
    search.send_keys("nothing is called so")
    assert shown_rows(page) == []
    assert text_of(page, "#count") == "none of 60 rows"
    search.clear()
    search.send_keys(SCRIPT)
    sets, truth = sets_at(told, 0.9), told.y == SCRIPT
    at = told.model.classes_.tolist().index(SCRIPT)
    assert {row["at"] for row in all_rows(page)} == set(np.flatnonzero(sets[:, at] | truth))
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys(Keys.BACKSPACE)

    size = sets.sum(axis=1)
    missed = ~sets[np.arange(60), np.searchsorted(told.model.classes_, told.y)]
    choose = Select(page.find_element(By.ID, "filter"))
    for value, kept in {"missed": missed, "empty": size == 0, "single": size == 1, "several": size > 1}.items():
        choose.select_by_value(value)
        assert {row["at"] for row in all_rows(page)} == set(np.flatnonzero(kept)), value
    assert missed.any()
    assert (size > 1).any()


def test_text_of_the_data_stays_text(page):
    assert text_of(page, "h1") == f"Stones {SCRIPT}"
    assert SCRIPT in text_of(page, "#table thead")
    body = page.execute_script("return document.body.textContent")
    assert IMAGE in page.execute_script("return document.querySelector('#comparison h2').textContent")
    assert body.count(IMAGE) > 10
    assert page.execute_script("return document.images.length") == 0
    assert page.execute_script("return document.scripts.length") == 2
    assert page.execute_script("return document.querySelectorAll('[onerror]').length") == 0
    assert IMAGE in text_of(page, ".about dd")
    titles = page.execute_script("return [...document.querySelectorAll('.by-label .name')].map(n => n.title)")
    assert SCRIPT in titles
    assert page.execute_script("return [...document.querySelectorAll('svg')].every(s => s.closest('svg') === s)")


CONTRAST = """
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (rgb) => {
      const [r, g, b] = rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
      for (let e = element; e; e = e.parentElement) {
        const found = parse(getComputedStyle(e).backgroundColor);
        if (found.length < 4 || found[3] > 0) return found;
      }
    };
    const poor = [];
    for (const element of document.querySelectorAll("body *:not(script)")) {
      const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      if (!own || !element.getClientRects().length) continue;
      const style = getComputedStyle(element);
      const ink = parse(element instanceof SVGElement ? style.fill : style.color);
      const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
      if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(element.outerHTML.slice(0, 90));
    }
    return poor;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_light_and_dark(page, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (int(background.removeprefix("rgb(").split(",")[0]) > 128) == (scheme == "light")
    page.execute_script("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.execute_script(CONTRAST) == []


def test_a_phone_does_not_scroll_sideways(page):
    show_at(page, 380)
    page.execute_script("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    for key in (Keys.HOME, Keys.END):
        page.find_element(By.ID, "slider").send_keys(key)
        assert page.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [380, 380]
    table = page.find_element(By.CSS_SELECTOR, "#rows .box")
    assert page.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", table)


def test_it_prints(page):
    printed = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") <= 12
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert not any(page.find_element(By.ID, name).is_displayed() for name in ("slider", "tools", "pager"))
    assert page.find_element(By.ID, "table").is_displayed()


def test_without_scripts_it_shows_the_chosen_level(page, told):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_whole(page, told.path)
        assert not page.find_element(By.ID, "slider").is_displayed()
        assert text_of(page, "#size") == number(sets_at(told, 0.9).sum(axis=1).mean())
        rows = page.find_elements(By.CSS_SELECTOR, "#table tbody tr")
        assert len(rows) == 25
        assert "With JavaScript there is a slider" in text_of(page, "noscript")
        assert "this page shows 90" in text_of(page, "noscript")
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_headings_and_landmarks(page):
    levels = page.execute_script("return [...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.execute_script("return document.documentElement.lang") == "en"
    named = page.execute_script("""
        return [...document.querySelectorAll("[role=img]")].map((figure) =>
          figure.getAttribute("aria-labelledby").split(" ").every((id) => document.getElementById(id).textContent.length > 10))""")
    assert len(named) == 5
    assert all(named)
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_large_sets_open_and_close_by_keyboard(driver, tmp_path):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 12, 400)
    X = rng.standard_normal((12, 3))[y] + rng.standard_normal((400, 3))
    model = baseline(confidence=0.95).fit(X[:300], y[:300])
    open_whole(
        driver, write_report(tmp_path / "report.html", model, X[300:], page=ReportPage(max_rows=20))
    )  # and no labels
    sets = model.predict_set(X[300:])
    (row, *_) = driver.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    at, size = (int(row.find_elements(By.CSS_SELECTOR, "th, td")[place].text) for place in (0, 1))
    at -= 1  # people count from one
    assert size == sets[at].sum() > 6

    def labels():
        return [int(label.text) for label in row.find_elements(By.CSS_SELECTOR, ".set .label")]

    closed = labels()
    assert len(closed) == 6
    more = row.find_element(By.CSS_SELECTOR, ".more")
    assert more.text == f"and {size - 6} more"
    more.send_keys(Keys.ENTER)
    assert sorted(labels()) == np.flatnonzero(sets[at]).tolist()
    p = model.predict_p(X[300:])[at]
    assert labels()[:6] == closed == np.argsort(-p, kind="stable")[:6].tolist()
    assert driver.switch_to.active_element.text == "fewer"
    driver.switch_to.active_element.send_keys(Keys.SPACE)
    assert labels() == closed
    assert text_of(driver, "#coverage") == "unknown"
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []


def test_one_row_of_two_labels(driver, told, tmp_path):
    model = baseline().fit(told.X, told.y == "plain")
    open_whole(driver, write_report(tmp_path / "report.html", model, told.X[:1], told.y[:1] == "plain"))
    driver.find_element(By.ID, "slider").send_keys(Keys.HOME)
    expected = model.classes_[model.predict_set(told.X[:1], confidence=0.5)[0]]
    found = driver.find_elements(By.CSS_SELECTOR, "#table .set .label")
    assert sorted(label.text for label in found) == sorted(map(str, expected))
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A report with more labels than a figure has room for, some of which hide behind others."""
    rng = np.random.default_rng(7)
    C = 26
    share = np.full(C, 0.5 / (C - 1))
    share[3] = 0.5
    y = rng.choice(C, 5000, p=share)
    X = 4 * rng.standard_normal((C, 3))[np.where(y % 2, 3, y)] + rng.standard_normal((5000, 3))
    names = np.array([f"kind {c:02d}" for c in range(C)])
    names[5] = SCRIPT  # also where it falls short
    order = np.argsort(names)
    model = baseline(confidence=0.8).fit(X[:3000], names[y[:3000]])
    path = tmp_path_factory.mktemp("uneven") / "report.html"
    write_report(path, model, X[3000:], names[y[3000:]], page=ReportPage(max_rows=30))
    codes = np.argsort(order)[y[3000:]]
    return SimpleNamespace(path=path, model=model, X=X[3000:], codes=codes, names=names[order])


SEEN = """
    const text = (element) => element.textContent;
    const all = (selector, what) => [...document.querySelectorAll(selector)].map(what);
    const cells = (selector) => all(selector, (row) => [...row.cells].map(text));
    const numbers = (element, ...names) => names.map((name) => parseFloat(element.getAttribute(name)));
    return {
      level: Number(text(document.querySelector(".big-level")).replace("%", "")) / 100,
      warned: !document.getElementById("short").hidden,
      head: text(document.querySelector("#short strong")),
      named: all("#short li", (item) => [text(item.querySelector(".label")), text(item.querySelector(".share"))]),
      first: document.querySelectorAll("#short-first li").length,
      rest: document.getElementById("short-rest").hidden ? "" : text(document.querySelector("#short-rest summary")),
      headings: all("#figures h3", text),
      labels: cells("#label-table tbody tr"),
      bars: all("[data-label-bar]", (bar) => ({
        name: text(bar.querySelector(".name")),
        title: bar.querySelector(".name").title,
        short: bar.classList.contains("falls-short"),
        size: text(bar.querySelector(".value")),
        width: numbers(bar.querySelector("rect"), "width")[0],
        x: [...numbers(bar.querySelector(".whisker"), "x1", "x2"), ...numbers(bar.querySelector("circle"), "cx")],
      })),
      ticks: all("[data-label-tick]", (tick) => [...numbers(tick, "x"), Number(text(tick))]),
      asked: all("#by-label .asked", (line) => numbers(line, "x1", "x2")).flat(),
      cells: all("#pair-cells title", text),
      shown: !document.getElementById("pairs").hasAttribute("hidden"),
      pairs: cells("#pair-table tbody tr"),
      note: text(document.querySelector("#pairs").closest("figure").querySelector("figcaption p")),
    }"""


def check_labels(driver, told):
    """What is said of labels and pairs of labels, against an independent recount at the level of the slider."""
    seen = driver.execute_script(SEEN)
    level = round(seen["level"], 6)
    sets, codes, C = told.model.predict_set(told.X, confidence=level), told.codes, len(told.names)
    covered, size = sets[np.arange(len(codes)), codes], sets.sum(axis=1)
    rows, hits = np.bincount(codes, minlength=C), np.bincount(codes[covered], minlength=C)
    short = [one.label for one in of_rows(codes, covered, C, level, 750).labels]

    assert seen["warned"] == bool(short)
    assert seen["named"] == [[told.names[c], f"{percent(hits[c] / rows[c])} of {rows[c]} rows"] for c in short]
    assert seen["first"] == min(8, len(short))
    assert seen["rest"] == (f"and {len(short) - 8} more" if len(short) > 8 else "")
    assert sum(f"at {100 * level:.10g}%" in heading for heading in seen["headings"]) == 2

    mean = [number(size[codes == c].mean()) for c in range(C)]
    low, high = share_interval(hits, rows)
    for c, (name, n, coverage, interval, labels) in enumerate(seen["labels"]):
        star = " *" if c in short else ""
        assert (name, n, coverage) == (told.names[c], f"{rows[c]:,}", percent(hits[c] / rows[c]) + star)
        assert (interval, labels) == (" to ".join(percents(low[c], high[c])), mean[c])

    missing = level * rows - hits
    expected = np.sort(np.argsort(-missing, kind="stable")[:20])
    assert [bar["name"] for bar in seen["bars"]] == told.names[expected].tolist()
    assert all(bar["name"] == bar["title"] for bar in seen["bars"])
    (x0, at0), _, (x1, at1) = seen["ticks"]
    scale = lambda share: x0 + (100 * share - at0) / (at1 - at0) * (x1 - x0)  # noqa: E731
    assert seen["asked"] == pytest.approx([scale(level)] * 40, abs=0.02)
    for c, bar in zip(expected, seen["bars"], strict=True):
        assert bar["short"] == (c in short)
        assert bar["size"] == mean[c]
        assert bar["x"] == pytest.approx([scale(low[c]), scale(high[c]), scale(hits[c] / rows[c])], abs=0.02)
    widths = np.array([bar["width"] for bar in seen["bars"]])
    sizes = np.array([size[codes == c].mean() for c in expected])
    np.testing.assert_allclose(widths / widths.max(), sizes / sizes.max(), atol=1e-3)

    numbers = sets.astype(int)
    together = numbers.T @ numbers * (1 - np.eye(C, dtype=int))
    assert seen["shown"] == together.any()
    among = np.argsort(-together.sum(axis=1), kind="stable")[: min(12, int(together.any(axis=1).sum()))]
    pairs = [(a, b) for a in among for b in among if a != b]
    n = len(codes)
    told_cells = {f"{told.names[a]} and {told.names[b]}: {together[a, b]:,} of {n:,} sets" for a, b in pairs}
    assert set(seen["cells"]) == told_cells
    place = told.names.tolist().index
    for first, second, text in seen["pairs"]:
        count = together[place(first), place(second)]
        assert text == f"{count:,} ({100 * count / n:.1f}%)"
    if together.any():
        assert seen["pairs"][0][2].startswith(f"{together.max():,} (")
        assert len(seen["pairs"]) == min(40, int((np.triu(together) > 0).sum()))
        assert f"The {len(among)} of {C} labels that share most." in seen["note"]
    else:
        assert seen["note"] == "No set holds two labels."
    return level, len(short), bool(together.any())


def test_the_warning_and_both_figures_of_labels_follow_the_slider(driver, uneven):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    show_at(driver, 1280)
    driver.get_log("browser")
    open_whole(driver, uneven.path)
    slider = driver.find_element(By.ID, "slider")
    found = [check_labels(driver, uneven)]
    assert found[0][0] == 0.8
    for key in (Keys.HOME, *[Keys.ARROW_RIGHT] * 4, Keys.END, *[Keys.ARROW_LEFT] * 4):
        slider.send_keys(key)
        found.append(check_labels(driver, uneven))
    assert found[1][0] == 0.5
    assert len({level for level, _, _ in found}) >= 10
    assert len({short for _, short, _ in found}) > 2  # it changes, beyond the labels that are named at once
    assert max(short for _, short, _ in found) > 8
    assert {any_pairs for _, _, any_pairs in found} == {True, False}
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []


def test_without_scripts_labels_and_pairs_stand_at_the_first_level(driver, uneven):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_whole(driver, uneven.path)
        assert check_labels(driver, uneven)[0] == 0.8
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_warning_can_be_read_and_fits_a_phone(driver, uneven, scheme):
    show_at(driver, 380)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    open_whole(driver, uneven.path)
    driver.execute_script("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert driver.execute_script(CONTRAST) == []
    assert driver.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [380, 380]
    assert driver.find_element(By.ID, "short").is_displayed()
