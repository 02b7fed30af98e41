"""Reports in a real browser: opened, sorted, searched, filtered, toggled; checked by axe where it is installed."""

from pathlib import Path

import pytest
from stage_folders import PREDICTIONS, STAGES, write_stage
from test_pages import HOSTILE

from mybert.reports.write import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {stage: write_report(write_stage(folder / stage, stage)) for stage in STAGES}
    rows = [
        {**PREDICTIONS[2], "input": {"text": text}, "reference": text, "label": f"{text}!", "line": number}
        for number, text in enumerate([*HOSTILE, "<b>" * 350_000], 1)
    ]
    changes = {"analysis/confusion/names": HOSTILE[:2], "manifest/settings": {"output": HOSTILE[0]}}
    return made | {"hostile": write_report(write_stage(folder / "hostile", "finetune", changes, rows))}


@pytest.fixture
def opened(browser, pages):
    """A function that opens a page, and checks afterwards that the browser has nothing to say."""

    def open_page(name: str, width: int = 1280):
        browser.resize(width)
        browser.open(pages[name].as_uri())
        browser.wait_for("return [...document.querySelectorAll('.predictions')].every(card => card.dataset.ready)")
        return browser.driver

    yield open_page
    assert browser.errors() == []


def wait_for(browser, script: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 20, poll_frequency=0.05).until(lambda driver: driver.execute_script(script))


def rows_of(browser) -> list[list[str]]:
    return browser.execute_script(
        "return [...document.querySelectorAll('.predictions tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("name", [*STAGES, "hostile"])
def test_a_page_opens_without_errors_and_fits_every_width(name, width, opened):
    browser = opened(name, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_hostile_text_never_runs(opened):
    browser = opened("hostile")
    assert browser.title != "run"
    assert browser.execute_script("return document.querySelectorAll('script').length") == 2
    texts = [row[5] for row in rows_of(browser)]
    assert "<script>document.title='run'</script>" in texts


def test_rows_are_sorted_searched_filtered_and_paged(opened):
    browser = opened("finetune")
    rows = rows_of(browser)
    assert len(rows) == 50 and [row[1] for row in rows] == ["1"] * 50  # the wrong ones first
    header = browser.find_element("css selector", ".predictions th:first-child button")
    header.click()
    assert rows_of(browser)[0][0] == "180"
    header.click()
    assert [row[0] for row in rows_of(browser)[:3]] == ["1", "2", "3"]
    state = browser.execute_script("return document.querySelector('.predictions th').getAttribute('aria-sort')")
    assert state == "ascending"
    browser.find_element("css selector", ".pager .next").click()
    assert rows_of(browser)[0][0] == "51"
    browser.find_element("css selector", "input[type=search]").send_keys("NUMBER 17")
    wait_for(browser, "return document.querySelectorAll('.predictions tbody tr').length == 12")  # 17, 117, 170 to 179
    which = browser.find_element("css selector", ".which")
    which.send_keys("incorrect")
    found = rows_of(browser)
    assert found and all("17" in row[5] and row[2] != row[3] for row in found)
    assert f"{len(found)} of 180 rows" in browser.find_element("css selector", ".count").text


def test_the_axis_and_the_colours_are_chosen(opened):
    browser = opened("pretrain")
    background = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(background)
    button = browser.find_element("css selector", "#theme")
    button.click()
    assert button.text == "Light" and browser.execute_script(background) != before
    shown = "return [...document.querySelectorAll('figure .picture')].filter(p => p.offsetHeight)[0].dataset.axis"
    assert browser.execute_script(shown) == "0"
    browser.find_element("css selector", ".axes input[value='2']").click()
    assert browser.execute_script(shown) == "2"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", STAGES)
def test_axe_finds_no_violation(name, dark, opened, browser, axe):
    opened(name)
    browser.run("document.documentElement.dataset.theme = arguments[0]", "dark" if dark else "light")
    browser.run("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert browser.violations(axe) == []
