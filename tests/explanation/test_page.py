"""The page of `mybert explain`: its data, hostile texts, and its use in a browser."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
from json_files import write_lines

from modeling_mybert import MyBertConfig
from mybert import cli
from mybert.explanation.page import write_page
from mybert.explanation.settings import ExplainSettings
from mybert.tasks.options import TextClassificationOptions, TokenClassificationOptions
from mybert.tasks.text_classification import TextClassification
from mybert.tasks.token_classification import TokenClassification

HOSTILE = [
    "<script>document.title = 'changed'</script> a great film",
    '"><img src=x onerror="document.title=1"> dull </script><!-- song',
    "\u202ereversed \u0000 سلام 😀👩‍👩‍👧 film \ud7ff",
    "great " + "x" * 20_000,
]


@pytest.fixture(scope="module")
def page(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_lines(folder / "rows.jsonl", [{"text": text} for text in [*HOSTILE, *HOSTILE] * 6])
    words = ("--steps", 4, "--attention", 2, "--output", folder / "why.html")
    assert cli.main(["explain", *map(str, (models("classifier"), folder / "rows.jsonl", *words))]) == 0
    return folder / "why.html"


def data_of(page) -> dict:
    packed = re.search(r'id="data">([^<]*)<', page.read_text())[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_the_page_has_the_texts_in_parts_with_their_values_and_nothing_from_outside(page):
    html, data = page.read_text(), data_of(page)
    assert len(data["rows"]) == 48 and not re.search(r"(src|href)=\"(?!data:|#)", html)
    assert html.count("<script") == 2 and "onerror" not in html
    for row, text in zip(data["rows"], HOSTILE, strict=False):
        (one,) = row["explanations"]
        ((column, parts),) = one["texts"]
        shown = "".join(part for part, _ in parts)
        kept = text.replace("\u202e", "").replace("\0", "").encode("utf-8", "ignore").decode()
        assert column == "text" and (shown == kept or "19,8" in shown)  # the last one is not read to its end
        assert [number for _, number in parts if number is not None] == list(range(len(one["words"])))
        assert sum(one["words"]) == pytest.approx(sum(value for *_, value in one["tokens"]), abs=1e-3)


def test_attention_is_that_of_rows_as_they_were_read(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exported = [{"data": {"text": "a great film"}, "annotations": []}]  # of Label Studio
    (tmp_path / "rows.json").write_text(json.dumps(exported))
    assert cli.main(["explain", str(models("classifier")), "rows.json", "--steps", "4", "--output", "why.html"]) == 0
    assert data_of(tmp_path / "why.html")["attention"][0]["tokens"][2] == "great"


def test_a_row_whose_attention_has_no_room_is_left_out_with_a_warning(tmp_path, caplog):
    rows = [(number, ["a"] * size, np.ones((2, 4, size, size))) for number, size in enumerate((900, 3))]
    settings = ExplainSettings(model="m", inputs=["rows.jsonl"], output=str(tmp_path / "why.html"))
    write_page(tmp_path / "why.html", [{"line": 1, "error": "none"}] * 2, rows, settings, [], TAGS)
    assert [one["record"] for one in data_of(tmp_path / "why.html")["attention"]] == [1]
    assert "the page lacks the attention of 1 long row" in caplog.text


WORDS = ["with", "Ann", "Lee", "Rome"]
TAGS = TokenClassification(TokenClassificationOptions(), MyBertConfig())


@pytest.fixture
def shown(tmp_path):
    """A function that returns the row of the page of one record without explanations."""

    def shown(task, **record) -> dict:
        page = tmp_path / "why.html"
        settings = ExplainSettings(model="model", inputs=["rows.jsonl"], output=str(page))
        write_page(page, [{"explanations": [], "line": 1, **record}], [], settings, [], task)
        (row,) = data_of(page)["rows"]
        return row

    return shown


def test_a_row_without_explanations_shows_its_text(shown):
    row = shown(TAGS, entities=[], texts={"text": "no names " + "here " * 400}, note="no predicted entity")
    assert (row["prediction"], row["explanations"]) == ("no entity", [])
    assert row["note"] == "no predicted entity"
    assert row["label"] is None and row["text"].startswith("no names here") and len(row["text"]) < 1100


@pytest.mark.parametrize(
    ("options", "row", "label"),
    [
        ({}, {"text": "a", "category": 1.0}, "1"),
        ({"columns": ["label=gold"], "label_names": ["0=bad"]}, {"text": "a", "gold": 0, "category": 1}, "bad"),
        ({}, {"text": "a", "labels": ["wheat", "grain"]}, "wheat, grain"),
        ({}, {"text": "a", "labels": ["wheat", "wheat"]}, "wheat"),  # several annotators of an answer often agree
        ({}, {"text": "a", "label": None}, None),
        ({}, "a line of text", None),
        (None, {"tags": ["O", "B-PER", "I-PER", "B-LOC"], "tokens": WORDS}, "Ann Lee (PER), Rome (LOC)"),
        (None, {"tags": ["O", "O", "O", "B-LOC"], "tokens": WORDS}, "Rome (LOC)"),
        (None, {"tags": ["DET", "NOUN", "NOUN", "NOUN"], "tokens": WORDS}, "DET, NOUN"),
    ],
)
def test_the_true_label_or_the_reference_entities_of_a_row_are_shown(shown, options, row, label):
    if options is None:
        found = shown(TAGS, entities=[], texts={"text": " ".join(WORDS)}, input=row)
    else:
        task = TextClassification(TextClassificationOptions(**options), MyBertConfig())
        found = shown(task, label="good", score=0.9, texts={"text": "a"}, input=row)
    assert found["label"] == label


def test_attention_is_stored_in_bytes_that_sum_to_one(page):
    for example in data_of(page)["attention"]:
        values, size = base64.b64decode(example["values"]), len(example["tokens"])
        assert len(values) == example["layers"] * example["heads"] * size * size
        assert sum(values[:size]) == pytest.approx(255, abs=size)


@pytest.fixture
def opened(page, browser):
    browser.resize(1280)
    browser.open(page.as_uri())
    browser.wait_for("return document.body.dataset.ready === 'true'")
    return browser


def open_all(browser) -> None:
    browser.run("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    browser.wait_for("return document.querySelector('.row details table') !== null")


@pytest.mark.slow
def test_a_reader_filters_sorts_opens_values_and_turns_pages(page, opened):
    browser = opened
    assert browser.title.startswith("Explanations") and len(browser.all(".row")) == 20
    assert browser.all(".word.up, .word.down") and not browser.all(".row img, .row script")
    browser.first("#next").click()
    assert browser.first("#page").text == "Page 2 of 3"
    browser.first("#search").send_keys("film v")  # the last letter decides: the rows are drawn once more after it
    browser.wait_for("return document.querySelector('#count').textContent.startsWith('12 of')")
    browser.choose("#order", "value")
    first = browser.first(".row")
    first.find_element("css selector", "summary").click()
    browser.wait_for("return document.querySelector('.row details table') !== null")
    values = [abs(float(c.text.replace("\u2212", "-"))) for c in browser.all(".row details[open] td.number")]
    assert len(values) > 2 and values == sorted(values, reverse=True)
    browser.choose("#unit", "tokens")
    assert any(word.text.startswith("##") for word in browser.all(".word"))
    browser.first("#values").click()
    assert browser.all(".word small")
    browser.first("#theme").click()
    assert browser.run("return document.documentElement.dataset.theme") in ("dark", "light")
    browser.all("#heads button")[5].click()
    assert (browser.value("#a-layer"), browser.value("#a-head")) == ("1", "1")
    assert len(browser.all("#matrix tbody tr")) == len(data_of(page)["attention"][0]["tokens"])
    assert browser.errors() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_no_text_is_wider_than_the_screen(opened, width):
    opened.resize(width)
    open_all(opened)
    assert opened.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(opened, axe, theme):
    opened.run("document.documentElement.dataset.theme = arguments[0]", theme)
    open_all(opened)
    assert opened.violations(axe) == []
