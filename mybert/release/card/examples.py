"""Inputs for the code and the widget of the card, in the language of the model."""

from importlib import resources
from typing import Any

import yaml

EXAMPLES: dict[str, dict[str, Any]] = yaml.safe_load(
    (resources.files(__package__) / "examples.yaml").read_text(encoding="utf-8")
)


def examples_in(languages: list[str] | None, texts: list[str] | None = None) -> dict[str, Any]:
    """The inputs in the first language that has some, English otherwise; with these `texts` if they are given."""
    found = EXAMPLES[next((language for language in languages or () if language in EXAMPLES), "en")]
    return {**found, "texts": texts} if texts else found


def widget(
    task: str | None, languages: list[str] | None, mask: str, given: list[str] | None = None
) -> list[dict[str, str]] | None:
    """The examples of the widget on the Hub: those of the pipeline `task`; None for languages without inputs."""
    if languages and not given and not {"multilingual", *EXAMPLES} & {*languages}:
        return None
    found = examples_in(languages, given)
    texts = [{"text": text} for text in found["texts"]]
    return {
        "fill-mask": [{"text": found["mask"].format(mask=mask)}],
        "text-classification": texts,
        "token-classification": texts,
        "feature-extraction": texts,
        "question-answering": [{"text": found["question"], "context": found["context"]}],
    }.get(task or "")


def request_inputs(head: str, found: dict[str, Any], mask: str) -> Any:
    """The `inputs` of a request to `handler.py`, made of the examples `found`."""
    return {
        "MyBertForPreTraining": found["mask"].format(mask=mask),
        "MyBertForMaskedLM": found["mask"].format(mask=mask),
        "MyBertForNextSentencePrediction": {"text": found["start"], "text_pair": found["choices"][0]},
        "MyBertForQuestionAnswering": {"question": found["question"], "context": found["context"]},
        "MyBertForMultipleChoice": {"text": found["start"], "choices": found["choices"]},
    }.get(head, found["texts"])
