"""The figures of the report in Chromium: axes have titles, labels can be read, all follow the slider, at any width."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from makers import baseline
from tightset.report import ReportPage, write_report
from tightset.report.numbers import size_bins
from tightset.report.words import percent

WIDTHS = (360, 768, 1400)
FIGURES = ["coverage", "size", "sizes", "by-label", "pairs"]
NAMES = [
    *(f"Nonincapaciting_Evident_Injury_of_the_kind_{c:02d}" for c in range(10)),
    "Front_Seat_(Driver)",
    "x",
    *(f"of middle length {c}" for c in range(8)),
]


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A report on labels that are too long for a phone, some of which begin alike, with another model beside it."""
    rng = np.random.default_rng(2)
    C = len(NAMES)
    y = rng.integers(0, C, 3000)
    X = 1.5 * rng.standard_normal((C, 3))[y] + rng.standard_normal((3000, 3))
    y = np.array(NAMES)[y]
    model, other = (baseline(confidence=level).fit(X[:1500], y[:1500]) for level in (0.9, 0.8))
    path = tmp_path_factory.mktemp("long") / "report.html"
    about = {"labels": {name: 1000 + at for at, name in enumerate(NAMES)}, "rows": 3000, "kinds": ["a", "b"]}
    shown = ReportPage(max_rows=40, about=about)
    write_report(path, model, X[1500:], y[1500:], baseline=other, baseline_name="another " * 7, page=shown)
    return SimpleNamespace(path=path, model=model, X=X[1500:])


# Of each figure its axis titles, and the box around what is drawn between the axes.
AXES = """
    const box = (e) => (({ left, right, top, bottom }) => ({ left, right, top, bottom }))(e.getBoundingClientRect());
    const id = (figure) => figure.id || figure.getAttribute("aria-labelledby").split("-t ")[0];
    return Object.fromEntries([...document.querySelectorAll("[role=img]")].map((figure) => {
      const there = (element) => !element.closest(".absent");
      const marks = [...figure.querySelectorAll("circle, rect, path, .grid")].filter(there).map(box);
      const ends = (side, end) => Math[end](...marks.map((mark) => mark[side]));
      return [id(figure), {
        titles: [...figure.querySelectorAll("[data-axis]")].map((t) => [t.dataset.axis, t.textContent, box(t)]),
        left: ends("left", "min"), right: ends("right", "max"), top: ends("top", "min"), bottom: ends("bottom", "max"),
        whole: box(figure.closest("figure")),
      }];
    }))"""


@pytest.mark.parametrize("width", WIDTHS)
def test_each_figure_has_a_title_under_its_x_axis_and_one_above_its_y_axis(opened, long, width):
    figures = opened(long.path, width).execute_script(AXES)
    assert sorted(figures) == sorted(FIGURES)
    for name, figure in figures.items():
        kinds = [kind for kind, _, _ in figure["titles"]]
        assert sorted(set(kinds)) == ["x", "y"], name
        for kind, text, box in figure["titles"]:
            assert len(text) > 5
            if kind == "x":
                assert box["top"] >= figure["bottom"] - 1, (name, text)
                assert box["right"] > figure["left"]
            else:
                assert box["bottom"] <= figure["top"] + 8, (name, text)  # a point may reach above its axis
                assert box["left"] <= figure["left"] + 1
            assert figure["whole"]["left"] - 1 <= box["left"] < box["right"] <= figure["whole"]["right"] + 1, (
                name,
                text,
            )


LABELS = """
    return [...document.querySelectorAll(".name")].filter((name) => name.getClientRects().length).map((name) => {
      const [head, tail] = name.children;
      const upright = getComputedStyle(name).writingMode === "horizontal-tb";
      const long = (e) => (upright ? [e.scrollWidth, e.clientWidth] : [e.scrollHeight, e.clientHeight]);
      return {
        text: name.textContent, title: name.title, where: name.closest("[role=img]").id,
        head: head.textContent, tail: tail ? tail.textContent : "",
        cut: long(head)[0] > long(head)[1] + 1, shown: long(head)[1],
        clipped: long(name)[0] > long(name)[1] + 1, ellipsis: getComputedStyle(head).textOverflow,
      };
    })"""


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_are_whole_where_there_is_room_and_never_clipped_without_an_ellipsis(opened, long, width):
    page = opened(long.path, width)
    labels = page.execute_script(LABELS)
    assert {label["where"] for label in labels} == {"by-label", "pairs"}
    for label in labels:
        assert label["text"] == label["title"]
        assert label["text"] in NAMES
        assert not label["clipped"], label
        assert label["ellipsis"] == "ellipsis"
        assert not label["cut"] or label["shown"] > 12, label
        alike = label["text"].startswith(("Nonincapaciting", "of middle"))  # those are told apart by their ends
        assert label["tail"] == (label["text"][-8:] if alike else "")
    by_label = [label for label in labels if label["where"] == "by-label"]
    assert [label for label in by_label if label["cut"]] == []  # there is a line for each of them
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_figures_is_not_too_small_and_stays_within_them(opened, long, width):
    found = opened(long.path, width).execute_script("""
        const all = [...document.querySelectorAll("[role=img] text, [role=img] span:not(.sr)")];
        return all.filter((element) => element.textContent && !element.closest(".absent")).map((element) => {
          const scale = element.ownerSVGElement ? element.getScreenCTM().a : 1;
          const { left, right } = element.getBoundingClientRect();
          const whole = element.closest("figure").getBoundingClientRect();
          return [element.textContent, scale * parseFloat(getComputedStyle(element).fontSize), left >= whole.left - 2,
            right <= whole.right + 2];
        })""")
    assert len(found) > 100
    assert [one for one in found if one[1] < 9.9] == []
    assert [one for one in found if not one[2] or not one[3]] == []


# What each figure and table shows; axis titles and descriptions, which never change, are left out.
SHOWN = """
    const bare = (element) => {
      const copy = element.cloneNode(true);
      copy.querySelectorAll("[data-axis], .sr, title[id], desc").forEach((one) => one.remove());
      return copy.outerHTML;
    };
    const of = {};
    for (const figure of document.querySelectorAll("[role=img]"))
      of[figure.id || figure.getAttribute("aria-labelledby")] = bare(figure);
    for (const table of document.querySelectorAll("table"))
      of[table.id || table.closest("[aria-label], section").ariaLabel || "comparison"] = bare(table);
    of.examples = bare(document.getElementById("examples"));
    const said = [...document.querySelectorAll("figure, #rows")].map((one) => one.textContent);
    return { of, said, level: document.querySelector(".big-level").textContent };"""


def test_every_figure_and_table_follows_the_slider_and_says_its_level(opened, long):
    page = opened(long.path)
    slider = page.find_element(By.ID, "slider")
    before = page.execute_script(SHOWN)
    assert len(before["of"]) == 5 + 6 + 1  # figures; of sizes, levels, labels, pairs, rows, comparison; examples
    for key in (Keys.HOME, Keys.END, Keys.ARROW_LEFT):
        slider.send_keys(key)
        after = page.execute_script(SHOWN)
        assert after["level"] != before["level"]
        same = [name for name in after["of"] if after["of"][name] == before["of"][name]]
        assert set(same) <= {"comparison"}, after["level"]  # of which each row is for the level that it names
        assert len(after["said"]) == 6
        assert all(after["level"] in said for said in after["said"])
        before = after


def test_the_chosen_level_is_shaded_in_tables_of_levels(opened, long):
    page = opened(long.path)
    slider = page.find_element(By.ID, "slider")
    heads = "return [...document.querySelectorAll('tr[aria-current] th')].map((head) => head.textContent)"
    assert page.execute_script(heads) == ["90%", "90%"]  # of all levels, and of the comparison
    slider.send_keys(Keys.HOME)
    assert page.execute_script(heads) == ["50%"]  # which the comparison does not have


def test_sizes_of_many_labels_are_in_even_bins_at_every_stop(opened, long):
    page = opened(long.path)
    slider = page.find_element(By.ID, "slider")
    for key in (Keys.HOME, Keys.END, *[Keys.ARROW_LEFT] * 6):
        slider.send_keys(key)
        shown = page.execute_script("""
            const rows = [...document.querySelectorAll("[data-bar]")].filter((row) => row.children[0].offsetParent);
            return rows.map((row) => [...row.children].map((one) => one.textContent.trim()))""")
        size = long.model.predict_set(long.X, confidence=level_of(page)).sum(axis=1)
        assert len(shown) == len(size_bins(size, len(NAMES)))
        assert shown[0][0] == "empty"
        for name, _, text in shown:
            low = 0 if name == "empty" else int(re.findall(r"\d+", name)[0])
            high = low if len(re.findall(r"\d+", name)) < 2 else int(re.findall(r"\d+", name)[1])
            count = ((size >= low) & (size <= (len(NAMES) if "more" in name else high))).sum()
            assert text == (f"{count:,} ({percent(count / len(size))})" if count else "0")


def test_on_a_phone_sets_stand_whole_beside_the_numbers_of_their_rows(opened, long):
    found = opened(long.path, 360).execute_script("""
        const box = document.querySelector("#rows .box").getBoundingClientRect();
        const labels = [...document.querySelectorAll("#table .set .label, #examples .label")];
        const within = (label) => label.getBoundingClientRect().right <= box.right + 5; // a space may hang over
        return labels.map((label) => [label.textContent, within(label),
          label.scrollWidth <= label.clientWidth || getComputedStyle(label).whiteSpace === "pre-wrap", label.title])""")
    assert len(found) > 50
    assert [one for one in found if not (one[1] and one[2] and one[0] == one[3])] == []


def level_of(page):
    return round(float(page.find_element(By.CSS_SELECTOR, ".big-level").text.removesuffix("%")) / 100, 6)


def test_how_to_reproduce_lists_what_has_names(opened, long):
    page = opened(long.path, 360)
    text = page.find_element(By.CSS_SELECTOR, "#reproduce").text
    assert "{" not in text
    entries = page.execute_script(
        "return [...document.querySelectorAll('.entries li')].map((li) => [...li.children].map((c) => c.textContent))"
    )
    assert entries == [[name, f"{1000 + at:,}"] for at, name in enumerate(NAMES)]
    assert "3,000" in text
    assert "a, b" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_printed_on_paper_within_its_width(opened, long, scheme):
    page = opened(long.path, 680, scheme)  # A4 less its margins
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    assert page.execute_script("return document.documentElement.scrollWidth") <= 680
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    figures = page.execute_script("return [...document.querySelectorAll('figure')].map((one) => one.offsetWidth)")
    assert min(figures) > 250
