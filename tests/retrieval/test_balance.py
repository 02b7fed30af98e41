"""The weight of BM25 in a hybrid search, and the teacher that has it."""

import random

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim
from transformers import BertConfig

from mybert.common.errors import UserError
from mybert.retrieval.balance import DEFAULT, balance, start_weight
from mybert.retrieval.pairs import Pair
from mybert.retrieval.ranking import words_unit
from mybert.retrieval.teacher import CachedTaughtLoss, TaughtLoss, Teacher
from mybert.retrieval.words import Words

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

    def knowing(given: list[str]) -> np.ndarray:
        return vectors(given, 60)

    assert balance([""] * 60, texts, noise, noise) >= 4
    assert balance([""] * 60, texts, knowing, knowing) == DEFAULT / 2
    assert balance([""] * 60, texts, noise, noise) == balance([""] * 60, texts, noise, noise)
    assert balance([""] * 60, texts, knowing, knowing, least=5.0) == 5.0


@pytest.mark.parametrize("weight", [-1, 9, float("nan"), "8", True, None])
def test_a_weight_that_no_training_writes_is_refused(weight):
    assert start_weight(BertConfig()) == 0 and start_weight(BertConfig(words_weight=2.5)) == 2.5
    with pytest.raises(UserError, match=r"words_weight in config\.json: expected a number from 0 to 8"):
        start_weight(BertConfig(words_weight=weight))


def test_few_or_short_documents_have_the_default_weight():
    def unused(given: list[str]) -> np.ndarray:
        raise AssertionError

    assert balance([""] * 20, documents(20, 20), unused, unused) == DEFAULT
    assert balance(["one two three four"] * 100, ["a single sentence"] * 100, unused, unused) == DEFAULT


@pytest.fixture
def model(tiny_bert) -> SentenceTransformer:
    return SentenceTransformer(str(tiny_bert), device="cpu").eval()


PAIRS = [
    Pair("a red car", "the red car drives fast", ("a blue ship sails",)),
    Pair("ship sails", "a blue ship sails", ("trees are green",)),
    Pair("green tree", "the tree is green", ("the red car drives fast",)),
]


def test_the_loss_is_that_of_the_own_passage_and_of_the_sum_of_start_model_and_bm25(model):
    teacher, rows = Teacher(model, PAIRS, weight=3.0), [2, 0]
    passages = [PAIRS[2].positive, PAIRS[0].positive, PAIRS[2].negatives[0], PAIRS[0].negatives[0]]
    texts = list(dict.fromkeys(text for pair in PAIRS for text in (pair.positive, *pair.negatives)))
    places = [texts.index(text) for text in passages]
    cosines = cos_sim(model.encode([pair.query for pair in PAIRS]), model.encode(texts))
    spread = float(cosines.std(correction=0))
    by_words = torch.tensor(np.array([Words.of(texts).scores(pair.query) for pair in PAIRS]))
    in_units = by_words / torch.tensor([[words_unit(scores.numpy())] for scores in by_words])
    cosines, in_units = cosines[rows][:, places], in_units[rows][:, places]
    wanted = (2 * (cosines / max(spread, 0.01) + 3 * in_units)).softmax(1)
    wanted = 5 / 8 * wanted + 3 / 8 * torch.eye(4)[:2]  # and the own passage
    student = torch.randn(2, 8), torch.randn(2, 8), torch.randn(2, 8)
    logits = 2 / max(spread, 0.01) * cos_sim(student[0], torch.cat(student[1:]))
    expected = -(wanted * logits.log_softmax(1)).sum(1).mean()
    assert teacher.loss(student, torch.tensor(rows)).item() == pytest.approx(expected.item(), rel=1e-4)


def test_cached_gradients_equal_uncached_ones(model):
    teacher = Teacher(model, PAIRS, weight=3.0)
    texts = [[pair.query for pair in PAIRS], [pair.positive for pair in PAIRS], [pair.negatives[0] for pair in PAIRS]]
    gradients = []
    for loss in (TaughtLoss(model, teacher), CachedTaughtLoss(model, teacher, mini_batch_size=2)):
        model.zero_grad()
        features = [model.preprocess(column) for column in texts]
        loss(features, torch.arange(3)).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    largest = max(one.norm() for one in gradients[0])  # gradients of key biases are rounding noise
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() < 1e-4 * one.norm() + 1e-6 * largest
