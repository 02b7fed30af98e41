"""The weight of BM25 in a hybrid search."""

import random

import numpy as np
import pytest
from transformers import BertConfig

from mybert.common.errors import UserError
from mybert.retrieval.balance import DEFAULT, balance, start_weight

WORDS = [a + b + c for a in "bdfgklmnprst" for b in ("aro", "enu", "ilo", "osa", "umi") for c in "knst"]


def documents(topics: int, number: int) -> list[str]:
    """Documents of four sentences; those of a topic share their words."""
    draw = random.Random(1)
    found = []
    for place in range(number):
        words = WORDS[place % topics :: topics]
        found.append(" ".join(f"The {' '.join(draw.choices(words, k=7))} is here." for _ in range(4)))
    return found


def vectors(texts: list[str], topics: int) -> np.ndarray:
    """(texts, H): how many words of each topic a text has, and nothing else."""
    topic_of = {word: place % topics for place, word in enumerate(WORDS)}
    counts = np.array(
        [[sum(topic_of.get(word) == t for word in text.split()) for t in range(topics)] for text in texts]
    )
    return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


def test_bm25_counts_much_beside_a_model_that_knows_nothing_and_less_beside_one_that_knows_all():
    texts = documents(topics=60, number=60)
    draw = np.random.default_rng(1)

    def noise(given: list[str]) -> np.ndarray:
        found = draw.normal(size=(len(given), 32)).astype(np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def equal(given: list[str]) -> np.ndarray:
        return np.ones((len(given), 1), dtype=np.float32)

    def knowing(given: list[str]) -> np.ndarray:
        return vectors(given, 60)

    assert balance([""] * 60, texts, noise, noise) >= 4
    assert balance([""] * 60, texts, equal, equal) > DEFAULT / 2, "the vectors find nothing"
    assert balance([""] * 60, texts, knowing, knowing) == DEFAULT / 2
    assert balance([""] * 60, texts, noise, noise) == balance([""] * 60, texts, noise, noise)
    assert balance([""] * 60, texts, knowing, knowing, least=5.0) == 5.0


@pytest.mark.parametrize("weight", [-1, 11, float("nan"), "8", True, None])
def test_a_weight_that_no_training_writes_is_refused(weight):
    assert start_weight(BertConfig()) == 0 and start_weight(BertConfig(words_weight=2.5)) == 2.5
    with pytest.raises(UserError, match=r"words_weight in config\.json: expected a number from 0 to 10"):
        start_weight(BertConfig(words_weight=weight))


def test_few_or_short_documents_have_the_default_weight():
    def unused(given: list[str]) -> np.ndarray:
        raise AssertionError

    assert balance([""] * 20, documents(20, 20), unused, unused) == DEFAULT
    assert balance(["one two three four"] * 100, ["a single sentence"] * 100, unused, unused) == DEFAULT
