"""Reports in a real browser: opened, sorted, searched, filtered, toggled; checked by axe where it is installed."""

import csv
import io
from pathlib import Path

import pytest
from stage_folders import ENTITIES, NUMBERS, PREDICTIONS, STAGES, write_stage
from test_pages import HOSTILE

from mybert.reports.write import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {stage: write_report(write_stage(folder / stage, stage)) for stage in STAGES}
    rows = [
        {**PREDICTIONS[2], "input": {"id": f"q{number}", "text": text}, "reference": text, "label": f"{text}!"}
        for number, text in enumerate([*HOSTILE, "<b>" * 350_000], 1)
    ]
    changes = {"analysis/confusion/names": HOSTILE[:2], "manifest/settings": {"output": HOSTILE[0]}}
    numbers = write_stage(folder / "numbers", "finetune", {"results/metric": "pearson"}, NUMBERS)
    made["numbers"] = write_report(numbers)
    tags = {"results/task": "token-classification"}
    made["entities"] = write_report(write_stage(folder / "entities", "finetune", tags, ENTITIES))
    words = ["International", "Committee", "of", "the", "Red", "Cross", "and", "Red", "Crescent", "Societies"]
    wrapped = [
        {"tokens": [*words, "x" * shift, *words], "reference": (mark := ["B-ORG", *["I-ORG"] * 9]) + ["O", *mark]}
        | {"tags": [*["O"] * 11, *mark], "error": 10.0, "line": shift}
        for shift in range(1, 7)
    ]
    made["wrapped"] = write_report(write_stage(folder / "wrapped", "finetune", tags, wrapped))
    return made | {"hostile": write_report(write_stage(folder / "hostile", "finetune", changes, rows))}


@pytest.fixture
def opened(browser, pages):
    """A function that opens a page, and checks afterwards that the browser has nothing to say."""

    def open_page(name: str, width: int = 1280):
        browser.resize(width)
        browser.open(pages[name].as_uri())
        browser.wait_for("return [...document.querySelectorAll('.predictions')].every(card => card.dataset.ready)")
        return browser

    yield open_page
    assert browser.errors() == []


def rows_of(browser) -> list[list[str]]:
    return browser.run(
        "return [...document.querySelectorAll('.predictions tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("name", [*STAGES, "numbers", "entities", "hostile"])
def test_a_page_opens_without_errors_and_fits_every_width(name, width, opened):
    browser = opened(name, width)
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_hostile_text_never_runs(opened):
    browser = opened("hostile")
    assert browser.title != "run"
    assert len(browser.all("script")) == 2
    texts = [row[5] for row in rows_of(browser)]
    assert "<script>document.title='run'</script>" in texts


def test_rows_are_sorted_searched_filtered_and_paged(opened):
    browser = opened("finetune")
    rows = rows_of(browser)
    assert len(rows) == 50 and [row[1] for row in rows] == ["1"] * 50  # the wrong ones first
    header = browser.first(".predictions th:first-child button")
    header.click()
    assert rows_of(browser)[0][0] == "180"
    header.click()
    assert [row[0] for row in rows_of(browser)[:3]] == ["1", "2", "3"]
    assert browser.first(".predictions th").get_attribute("aria-sort") == "ascending"
    browser.first(".pager .next").click()
    assert rows_of(browser)[0][0] == "51"
    browser.first("input[type=search]").send_keys("NUMBER 17")
    browser.wait_for("return document.querySelectorAll('.predictions tbody tr').length == 12")  # 17, 117, 170 to 179
    browser.choose(".which", "wrong")
    found = rows_of(browser)
    assert found and all("17" in row[5] and row[2] != row[3] for row in found)
    assert f"{len(found)} of 180 rows" in browser.first(".count").text


SAVED = """
const done = arguments[0];
URL.createObjectURL = (blob) => { blob.text().then(done); return "data:,"; };
document.querySelector(".download").click();
"""


def test_the_filtered_rows_are_downloaded_and_formulas_are_not_computed(opened):
    browser = opened("hostile")
    assert len(list(csv.reader(io.StringIO(browser.driver.execute_async_script(SAVED))))) == 1 + len(HOSTILE) + 1
    browser.first("input[type=search]").send_keys("=1+1")
    browser.wait_for("return document.querySelectorAll('.predictions tbody tr').length == 1")
    header, row = csv.reader(io.StringIO(browser.driver.execute_async_script(SAVED)))
    assert header[0].lstrip("\ufeff") == "id" and row[5] == "'=1+1"
    search = browser.first("input[type=search]")
    search.clear()
    search.send_keys("Q4")
    browser.wait_for("return document.querySelector('.predictions tbody td').textContent === 'q4'")


def test_a_threshold_shows_counts_and_the_least_cost(opened):
    browser = opened("finetune")

    def answer(**values: float) -> str:
        for name, value in values.items():
            browser.run(
                "const input = document.querySelector(`[data-is=${arguments[0]}]`); input.value = arguments[1];"
                "input.dispatchEvent(new Event('input', {bubbles: true}))",
                name,
                value,
            )
        return browser.first("[data-is=answer]").text

    # 200 rows of the label; at 0.5 recall and precision are 0.9: 180 found, 20 missed, 180 / 0.9 - 180 mistakes
    text = answer(threshold=0.5)
    assert "of which 180 found and 20 missed. Other rows found by mistake: 20." in text and "The cost is 40." in text
    assert "The cost is 120." in answer(missed=5)
    text = answer(missed=20)  # at 0.0 all are found, with 200 mistakes
    assert "The cost is 420." in text and "The least cost, 200, is at about 0.00." in text


def test_predicted_numbers_are_searched_and_paged_without_a_mark(opened):
    browser = opened("numbers")
    assert len(rows_of(browser)) == 50 and browser.all(".predictions tr.wrong, .which") == []
    browser.first("input[type=search]").send_keys("5.9")
    browser.wait_for("return document.querySelectorAll('.predictions tbody tr').length == 1")


def test_entities_are_marked_in_their_sentence_and_found_by_a_search(opened):
    browser = opened("entities")
    marks = "[...document.querySelectorAll('.predictions tbody tr:first-child mark')]"
    shown = dict(browser.run(f"return {marks}.map(mark => [mark.innerText, mark.className])"))
    assert shown["Ann Lee\u00a0PER"] == shown["Bo\u00a0ORG"] == "entity wrong"
    browser.first("input[type=search]").send_keys("bo org")
    browser.wait_for("return document.querySelectorAll('.predictions tbody tr').length == 30")


@pytest.mark.parametrize("width", [320, 390])
def test_an_entity_on_several_lines_keeps_both_edges(width, opened):
    browser = opened("wrapped", width)
    edges = """const box = document.querySelector('.predictions .scroll').getBoundingClientRect();
        return [...document.querySelectorAll('.predictions mark')].flatMap(mark => [...mark.getClientRects()])
            .map(one => [one.left - box.left, box.right - one.right]);"""
    assert len(found := browser.run(edges)) > 12 and min(map(min, found)) >= 0


def test_the_axis_and_the_colours_are_chosen(opened):
    browser = opened("pretrain")
    background = "return getComputedStyle(document.body).backgroundColor"
    before = browser.run(background)
    button = browser.first("#theme")
    button.click()
    assert button.text == "Light" and browser.run(background) != before
    shown = "return document.querySelector('.picture').plot.axes[0].label"
    assert browser.run(shown) == "step"
    browser.first(".axes input[value='2']").click()
    assert browser.run(shown) == "hours"


PLOT = "const plot = document.querySelector('.picture').plot;"


def test_a_chart_shows_values_zooms_smooths_and_hides_lines(opened):
    browser = opened("pretrain")
    browser.wait_for("return document.querySelector('.picture canvas') !== null")
    legend = f"{PLOT} return [...plot.root.querySelectorAll('.u-value')].map(one => one.textContent)"
    at_rest = browser.run(legend)
    browser.run(f"{PLOT} plot.setCursor({{left: plot.bbox.width / devicePixelRatio / 2, top: 20}})")
    browser.wait_for(f"{PLOT} return plot.root.querySelector('.u-value').textContent !== {at_rest[0]!r}")
    assert browser.run(legend)[1] != at_rest[1]
    expected = browser.run(f"{PLOT} return [plot.data[0][plot.cursor.idx], plot.data[1][plot.cursor.idx]]")
    assert browser.run(legend)[0] == f"{expected[0]:,}"
    assert float(browser.run(legend)[1]) == pytest.approx(expected[1], rel=1e-3)
    values = browser.run(f"{PLOT} return plot.data[1]")
    slider = "const one = document.querySelector('.axes input[type=range]'); one.value = 0.9;"
    browser.run(f"{slider} one.dispatchEvent(new Event('input', {{bubbles: true}}))")
    smoothed, mean, share = browser.run(f"{PLOT} return plot.data[1]"), 0.0, 0.0
    for before, after in zip(values, smoothed, strict=True):
        if before is not None:
            mean, share = 0.9 * mean + 0.1 * before, 0.9 * share + 0.1
            assert after == pytest.approx(mean / share)
    browser.first(".axes input[type=checkbox]").click()
    assert browser.run(f"{PLOT} return plot.scales.y.distr") == 3
    browser.run(f"{PLOT} plot.setScale('x', {{min: 100, max: 200}})")
    browser.wait_for(f"{PLOT} return plot.scales.x.max === 200")
    browser.first(".picture .u-series:nth-child(2) th").click()
    assert browser.run(f"{PLOT} return plot.series[1].show") is False


@pytest.mark.parametrize("width", [1280, 390])
def test_text_of_charts_is_as_large_as_text_beside_it_at_every_width(width, opened):
    browser = opened("pretrain", width)
    browser.wait_for("return document.querySelector('.picture canvas') !== null")
    canvas = browser.run(
        "const one = document.querySelector('canvas'); return [one.clientWidth, one.width / devicePixelRatio]"
    )
    assert abs(canvas[0] - canvas[1]) <= 1  # drawn at its own size, not scaled
    assert browser.run(f"{PLOT} return plot.axes[0].font[0]").startswith("12px")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", [*STAGES, "entities"])
def test_axe_finds_no_violation(name, dark, opened, browser, axe):
    opened(name)
    browser.run("document.documentElement.dataset.theme = arguments[0]", "dark" if dark else "light")
    browser.run("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert browser.violations(axe) == []
