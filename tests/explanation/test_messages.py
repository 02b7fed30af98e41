"""Messages of `mybert explain`: for each setting, what the one line must say."""

import sys

import pytest
from json_files import write_lines

ROW = {"text": "a great film", "question": "Who?", "context": "Ann sings in Rome."}
MISTAKES = [  # model, options and message
    ("classifier", "--output why.html --labels goood", "--labels goood: the model has bad, good, odd"),
    ("reader", "--output why.html --labels x", "question-answering has no labels"),
    ("classifier", "--output why.pdf", "--output: expected a file name in .html, .jsonl"),
    ("classifier", "--output why.jsonl --attention 2", "--attention has no effect without --output .html"),
    (
        *("classifier", "--output why.html --method occlusion --steps 8"),
        "--steps has no effect without --method integ",
    ),
    (
        *("classifier", "--output why.html --method occlusion --tolerance 0.1"),
        "--tolerance has no effect without --method",
    ),
]


@pytest.fixture
def refused(models, assert_refused, tmp_path):
    """A function from a model, options and the message with which `mybert explain` refuses them."""
    write_lines(tmp_path / "rows.jsonl", [ROW])
    return lambda model, options, message: assert_refused(
        ["explain", models(model), "rows.jsonl", *options.split()], message
    )


@pytest.mark.parametrize(("model", "options", "message"), MISTAKES, ids=[case[-1] for case in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(refused, model, options, message):
    refused(model, options, message)


def test_a_missing_package_is_named_with_its_extra(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    refused("classifier", "--output why.html", "needs captum: pip install 'mybert[explain]'")
