"""transformers' pipelines give with MyBERT what they give with a BERT of the same weights."""

import numpy as np
import pytest
from transformers import BertTokenizer, pipeline

from tokenization import MyBertTokenizer

TEXTS = [
    "Angela Merkel met Emmanuel Macron in unbelievably rainy Berlin.",
    "Ok.",
    "The naïve café-owner of 東京 didn't know Zoë.",
]


@pytest.fixture
def pipes(pair, bert_folders):
    """(task, head) → the pipeline with MyBERT and the one with BERT."""

    def make(task: str, head: str, **settings):
        folder = bert_folders(head)
        tokenizers = MyBertTokenizer.from_pretrained(folder), BertTokenizer.from_pretrained(folder)
        return [
            pipeline(task, model=model, tokenizer=tokenizer, **settings)
            for model, tokenizer in zip(pair(head), tokenizers, strict=True)
        ]

    return make


def equal(found, expected) -> bool:
    """The same structure, with numbers that differ by less than a ten-thousandth."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, float | np.floating):
        return abs(found - expected) < 1e-4
    return found == expected


@pytest.mark.parametrize("batch_size", [1, 3])
def test_fill_mask(pipes, batch_size):
    ours, theirs = pipes("fill-mask", "MyBertForMaskedLM", batch_size=batch_size)
    texts = ["The [MASK] fell.", "He is a [MASK] of the [MASK].", "[MASK]"]
    assert equal(ours(texts, top_k=4), theirs(texts, top_k=4))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_text_classification(pipes, batch_size):
    ours, theirs = pipes("text-classification", "MyBertForSequenceClassification", batch_size=batch_size, top_k=None)
    assert equal(ours(TEXTS), theirs(TEXTS))
    assert {entry["label"] for entry in ours(TEXTS)[0]} == {"O", "B-PER", "I-PER"}


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_token_classification(pipes, strategy):
    ours, theirs = pipes("token-classification", "MyBertForTokenClassification", aggregation_strategy=strategy)
    found = ours(TEXTS)
    assert equal(found, theirs(TEXTS))
    assert any(found)
    assert equal(ours(TEXTS, batch_size=3), found)


def test_feature_extraction(pipes):
    ours, theirs = pipes("feature-extraction", "MyBertModel")
    assert equal(ours(TEXTS), theirs(TEXTS))


def test_question_answering_of_a_bert(pipes):
    ours, theirs = pipes("question-answering", "MyBertForQuestionAnswering", top_k=5)
    asked = {"question": "Who met whom?", "context": TEXTS[0]}
    assert equal(ours(asked), theirs(asked))
