"""The initialisation from the text, compared with counts, formulas and transformers' attention."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from transformers import BertModel

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.initialization.from_text import (
    count_neighbours,
    factorize,
    initialize_from_text,
    positive_information,
    sinusoids,
)


@pytest.fixture(scope="module")
def corpus(corpus_folder):
    return Corpus.load(str(corpus_folder))


def new_model(corpus) -> MyBertForPreTraining:
    torch.manual_seed(0)
    return MyBertForPreTraining(MyBertConfig.from_size("tiny", vocab_size=len(corpus.tokenizer)))


def test_counts_are_those_of_all_pairs_of_near_tokens(corpus):
    counts, pairs = count_neighbours(corpus, seed=0)
    tokens, near = Counter(), Counter()
    for ids in corpus.train["input_ids"]:
        tokens.update(ids)
        for first in range(len(ids)):
            for second in range(first + 1, min(first + 5, len(ids))):
                near[ids[first], ids[second]] += 1 / (second - first)
                near[ids[second], ids[first]] += 1 / (second - first)
    assert {token: int(counts[token]) for token in np.flatnonzero(counts)} == tokens
    assert pairs.nnz == len(near)
    for (left, right), weight in near.items():
        assert pairs[left, right] == pytest.approx(weight, rel=1e-5)


def test_information_is_the_logarithm_of_together_over_expected(corpus):
    _, pairs = count_neighbours(corpus, seed=0)
    table = pairs.toarray().astype(np.float64)
    tokens = table.sum(axis=1)
    contexts = tokens**0.75 / (tokens**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.maximum(np.log(table / np.outer(tokens, contexts)), 0)
    expected[~np.isfinite(expected)] = 0
    np.testing.assert_allclose(positive_information(pairs).toarray(), expected, atol=1e-4)


def test_vectors_are_the_factors_of_the_largest_singular_values():
    generator = np.random.default_rng(0)
    factors = generator.normal(size=(60, 8)) * 2.0 ** -np.arange(8)
    matrix = (factors @ generator.normal(size=(8, 60))).astype(np.float32)
    vectors = factorize(csr_matrix(matrix), 8, seed=0)
    left, values, _ = np.linalg.svd(matrix)
    exact = left[:, :8] * np.sqrt(values[:8])
    exact -= exact.mean(axis=0)
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, atol=1e-3)


@pytest.mark.parametrize("hidden_size", [16, 15])
def test_positions_are_sinusoids_of_geometric_frequencies(hidden_size):
    table, half = sinusoids(30, hidden_size), (hidden_size + 1) // 2
    for position in (0, 3, 29):
        for pair in range(hidden_size // 2):
            angle = position * 2.5 * (0.02 / 2.5) ** (pair / (half - 1))
            assert table[position, pair] == pytest.approx(math.sqrt(2) * math.sin(angle), abs=1e-4)
            assert table[position, half + pair] == pytest.approx(math.sqrt(2) * math.cos(angle), abs=1e-4)


@pytest.mark.parametrize("shape", [(256, 4), (96, 3)], ids=str)
def test_each_head_of_the_first_layer_attends_to_its_neighbour(corpus, shape, tmp_path):
    torch.manual_seed(0)
    hidden_size, heads = shape
    config = MyBertConfig(
        vocab_size=len(corpus.tokenizer),
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_hidden_layers=2,
        intermediate_size=64,
        initializer_range=hidden_size**-0.5,
    )
    model = MyBertForPreTraining(config)
    initialize_from_text(model, corpus, seed=0)
    model.save_pretrained(tmp_path)
    bert = BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids = torch.tensor([max(corpus.train["input_ids"], key=len)])
    with torch.no_grad():
        first, second = bert(ids, output_attentions=True).attentions
    for head in range(heads):
        distance = (head // 2 + 1) * (-1) ** (head + 1)
        at_distance = first[0, head].diagonal(distance).mean()
        others = [first[0, head].diagonal(d).mean() for d in range(-8, 9) if d != distance]
        assert at_distance > 0.25 and at_distance > 1.2 * max(others)
    assert second.max() < 0.9  # other layers stay random


def test_the_first_prediction_is_the_frequency_and_special_tokens_stay(corpus):
    model, random = new_model(corpus), new_model(corpus)
    initialize_from_text(model, corpus, seed=0)
    special = corpus.tokenizer.all_special_ids
    words, before = model.bert.embeddings.word_embeddings.weight, random.bert.embeddings.word_embeddings.weight
    assert torch.equal(words[special], before[special]) and not torch.equal(words, before)
    assert words.isfinite().all() and words.std().item() == pytest.approx(model.config.initializer_range, rel=0.3)
    ids = torch.tensor([corpus.train[0]["input_ids"]])
    with torch.no_grad():
        logits = model.eval()(ids).prediction_logits[0].mean(dim=0)
    likely = set(logits.topk(5).indices.tolist()) - set(special)
    frequent = Counter(token for ids in corpus.train["input_ids"] for token in ids if token not in special)
    assert len(likely & {token for token, _ in frequent.most_common(10)}) >= 3
    transform = model.cls.predictions.transform.dense.weight - 0.5 * random.cls.predictions.transform.dense.weight
    torch.testing.assert_close(transform, 0.7 * torch.eye(len(transform)))
    again = new_model(corpus)
    initialize_from_text(again, corpus, seed=0)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
