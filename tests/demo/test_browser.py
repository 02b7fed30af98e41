"""The page of the demo in a browser: every tab is used as a person would."""

import csv
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen

import numpy as np
import pytest

from mybert import Embedder, Predictor, UserError, build_index
from mybert.demo.run import serve
from mybert.demo.settings import DemoSettings

pytestmark = [  # importing Gradio takes seconds
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("gradio") is None, reason="Gradio is not installed"),
]
Keys = pytest.importorskip("selenium.webdriver", reason="selenium is not installed").Keys
NAMES = ("classifier", "tagger", "reader", "chooser", "filler", "multi")
CONTEXT = "Ann sings in Rome. Bert is in the sea."
SCRIPT = """
const isShown = e => (e.closest('.block, .form') ?? e).offsetParent !== null;
const begins = (e) => e.innerText.trim().startsWith(arguments[1]);
return [...document.querySelectorAll(arguments[0])].filter(e => isShown(e) && begins(e));
"""


@pytest.fixture(scope="module")
def address(models, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "films.txt").write_text("Ann sings in Rome.")
    build_index(models("encoder"), folder / "films.txt", output=folder / "index", language="en")
    shown = [*(str(models(name)) for name in NAMES), str(folder / "index")]
    return serve(DemoSettings(shown, port=0, device="cpu"), block=False)


@pytest.fixture
def page(browser, address):
    browser.resize(1200)
    browser.open("about:blank")
    browser.errors()  # a page that is left with an open stream may report that it was aborted
    browser.open(address)
    yield browser
    resources = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in resources if not name.startswith(address)] == []
    assert browser.errors() == []


def find(page, selector: str, text: str = ""):
    """Waits for a visible element whose text begins with `text`."""
    page.wait_for(f"return (function() {{ {SCRIPT} }})({selector!r}, {json.dumps(text)}).length > 0")
    return page.run(SCRIPT, selector, text)[0]


def press(page, selector: str, text: str) -> None:
    page.run("arguments[0].click()", find(page, selector, text))


def open_tab(page, name: str) -> None:
    """Opens a tab and waits for it: the tab before has elements of the same names."""
    press(page, "[role=tab]", name)
    find(page, "[role=tab][aria-selected=true]", name)
    find(page, "button.primary")


def use(page, tab: str, texts: dict[str, str], button: str = "Predict") -> None:
    """Opens a tab, writes texts into its fields and presses its button."""
    open_tab(page, tab)
    for name, text in texts.items():
        field = find(page, "label", name).find_element("css selector", "textarea, input")
        field.clear()
        field.send_keys(text)
    press(page, "button.primary", button)


def see(page, text: str) -> None:
    page.wait_for(f"return document.body.innerText.includes({json.dumps(text)})")


def predict_file(page, tab: str, file: Path, model: str) -> list[dict[str, str]]:
    """The rows of a model's predictions for a file. The chosen file has a link too, which may appear later."""
    open_tab(page, tab)
    press(page, "button", "Predict a file")
    find(page, "input[type=file]").send_keys(str(file))
    find(page, f"a[download][href$='/{file.name}']")
    press(page, "button", "Predict the file")
    with urlopen(find(page, f"a[download][href$='-{model}.csv']").get_attribute("href")) as file:
        return list(csv.DictReader(file.read().decode().splitlines()))


def test_the_first_example_is_answered_when_the_page_opens(page):
    open_tab(page, "Classify")
    page.wait_for("return /\\d%/.test(document.body.innerText)")


def test_two_classifiers_show_labels_and_words_side_by_side(page, models):
    use(page, "Classify", {"Text": "a great <b>film</b>"})
    label = Predictor(models("classifier"), device="cpu")("a great <b>film</b>")["label"]
    see(page, label)
    see(page, "great")
    assert {"classifier", "multi"} <= {title.text for title in page.all("h2")}
    assert not page.all(".marked b")


def test_every_tab_shows_the_prediction_of_its_model(page, models):
    text = "Ann sings in Rome the sea"
    use(page, "Tag", {"Text": text})
    for entity in Predictor(models("tagger"), device="cpu")(text)["entities"]:
        see(page, entity["type"])
    use(page, "Answer", {"Question": "Who sings?", "Context": CONTEXT})
    see(page, Predictor(models("reader"), device="cpu")(("Who sings?", CONTEXT))["answer"])
    use(page, "Choose", {"Context": "Ann sings", "Choices, one per line": "in Rome\na dull sea"})
    see(page, "%")
    use(page, "Masked words", {"Text with [MASK]": "the film"})
    see(page, "write [MASK] in place of the words")
    use(page, "Masked words", {"Text with [MASK]": "the [MASK] film"})
    see(page, "%")
    use(page, "Next sentence", {"First text": "Ann sings", "Second text": "in Rome"})
    see(page, "comes from elsewhere")


def test_documents_of_an_index_are_searched_beside_an_encoder(page):
    open_tab(page, "Search documents")
    see(page, "films.txt\nAnn sings in Rome.")
    use(page, "Search documents", {"Query": "great sea"}, "Search")
    see(page, "films.txt\nAnn sings in Rome.")


def test_a_file_of_texts_is_searched(page, models, tmp_path):
    texts = ["a great film", "the dull song", "Ann sings in Rome", "Bert is in the sea"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    open_tab(page, "Search")
    find(page, "input[type=file]").send_keys(str(tmp_path / "texts.txt"))
    see(page, "4 texts")
    use(page, "Search", {"Query": "great sea"}, "Search")
    vectors = Embedder(models("filler"), normalize=True, device="cpu").texts([*texts, "great sea"])
    best = texts[int(np.argmax(vectors[:4] @ vectors[4]))]
    for text in texts:
        see(page, text)
    assert min(texts, key=page.run("return document.body.innerText").index) == best


def test_a_file_of_rows_is_predicted_and_downloaded(page, models, tmp_path, monkeypatch):
    made = []

    def in_place(prefix: str) -> tempfile.TemporaryDirectory:
        made.append(tempfile.TemporaryDirectory(prefix=prefix, dir=tmp_path))
        return made[-1]

    monkeypatch.setattr("mybert.demo.page.tempfile", SimpleNamespace(TemporaryDirectory=in_place))
    texts = ["a great film", "the dull song"]
    (tmp_path / "rows.csv").write_text("\n".join(["text", *texts]))
    rows = predict_file(page, "Classify", tmp_path / "rows.csv", "classifier")
    expected = [one["label"] for one in Predictor(models("classifier"), device="cpu")(texts)]
    assert [(row["label"], row["input.text"]) for row in rows] == list(zip(expected, texts, strict=True))
    deadline = time.monotonic() + 60
    while (left := list(tmp_path.glob("mybert-demo-*"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert made and not left, "only gradio's copy is kept"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation_in_any_tab(page, address, axe, theme):
    page.open(f"{address}?__theme={theme}")
    use(page, "Classify", {"Text": "a great film"})
    see(page, "%")
    found = {}
    tabs = "Classify, Masked words, Next sentence, Similarity, Search, Search documents, Tag, Answer, Choose"
    for tab in tabs.split(", "):
        open_tab(page, tab)
        found[tab] = page.violations(axe)
    assert {tab: rules for tab, rules in found.items() if rules} == {}


def test_a_phone_shows_the_page_without_scrolling_sideways_and_the_keyboard_is_enough(page, address):
    page.resize(390)
    page.open(address)
    field = find(page, "label", "Text").find_element("css selector", "textarea")
    field.send_keys("a great film", Keys.SHIFT, Keys.ENTER)
    see(page, "%")
    assert page.run("return document.documentElement.scrollWidth") <= 390


def test_half_of_a_surrogate_pair_is_answered_in_every_tab(address):
    with urlopen(f"{address}gradio_api/info") as file:
        endpoints = json.load(file)["named_endpoints"]
    tabs = {name: len(found["parameters"]) for name, found in endpoints.items() if "file" not in name}
    tabs = {name: fields for name, fields in tabs.items() if name.startswith("/predict")}
    assert len(tabs) == 8
    for name, fields in tabs.items():
        rows = json.dumps({"data": ["a [MASK] \ud800 film\nthe sea \udc00"] * fields}).encode()
        with urlopen(Request(f"{address}gradio_api/call{name}", rows, {"Content-Type": "application/json"})) as file:
            event = json.load(file)["event_id"]
        with urlopen(f"{address}gradio_api/call{name}/{event}") as file:
            assert b"event: complete" in file.read(), name


def test_masks_and_next_sentences_of_a_file_are_predicted(page, tmp_path):
    (tmp_path / "rows.csv").write_text("text,text_pair\nthe [MASK] film,in rome\nno mask,a sea\n")
    for tab in ("Masked words", "Next sentence"):
        rows = predict_file(page, tab, tmp_path / "rows.csv", "filler")
        assert [row["input.text"] for row in rows] == ["the [MASK] film", "no mask"] and rows[0]["prediction"]


def test_the_port_of_another_page_is_refused(address, models):
    port = int(address.rstrip("/").rpartition(":")[2])
    with pytest.raises(UserError, match=f"--port {port}"):
        serve(DemoSettings([str(models("classifier"))], port=port, device="cpu"), block=False)
    assert address.startswith("http://127.0.0.1:") and Path(models("classifier")).is_dir()
