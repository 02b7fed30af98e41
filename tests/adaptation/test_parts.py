"""Parts of an adaptation: held-out documents, passages, rows of tokens, nearest tokens, scores."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_domain import CONFIG, PIECES, make_documents

from modeling_mybert import MyBertConfig, MyBertForMaskedLM, MyBertForPreTraining
from mybert import Scorer
from mybert.adaptation import preparation
from mybert.adaptation.comparison import held_out_scores, nearest_tokens
from mybert.adaptation.preparation import START, prepare
from mybert.adaptation.settings import AdaptSettings
from mybert.adaptation.texts import digest, documents, held_out_texts, passages, read_texts, sample, write_texts
from mybert.adaptation.vocabulary_tensors import change_rows
from tokenization import MyBertTokenizer


@given(st.lists(st.text("ab\n", min_size=1, max_size=3), min_size=1, max_size=30), st.floats(0, 0.5))
@settings(max_examples=25)
def test_equal_texts_are_held_out_together_whatever_their_order(tmp_path_factory, texts, share):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    assert write_texts(path, texts) == sum(map(len, texts))
    assert list(read_texts(path)) == texts
    held = held_out_texts(path, share)
    assert held <= {digest(text) for text in texts}
    distinct = len(set(texts))
    assert len(held) == (min(max(round(share * distinct), 1), distinct - 1) if share else 0)
    write_texts(path, random.Random(0).sample(texts, len(texts)))
    assert held_out_texts(path, share) == held


@given(st.lists(st.text("ab ", max_size=40), max_size=8), st.integers(1, 60), st.integers(1, 12))
def test_passages_are_whole_words_in_the_order_of_the_text(texts, characters, length):
    found, everything = passages(texts, characters, length), passages(texts, 10**6, length)
    places = iter(everything)
    assert all(passage in places for passage in found)  # a subsequence
    assert all(len(passage) <= length for passage in everything)
    assert "".join(everything).replace(" ", "") == "".join("".join(texts).split())
    words = {word for text in texts for word in text.split()}
    if all(len(word) <= length for word in words):
        assert all(word in words for passage in found for word in passage.split())


@pytest.mark.parametrize("text", ["a short line", "一" * 2000, "long text " * 200])
def test_passages_have_the_characters_asked_for(text):
    assert 9_500 < sum(map(len, passages([text] * 1000, 10_000))) < 10_700


def test_a_copy_at_the_end_of_a_file_without_a_line_end_is_no_other_document(tmp_path):
    (tmp_path / "texts.txt").write_text("the oil\n\nthe price\n\nthe oil")
    settings = AdaptSettings(str(tmp_path / "texts.txt"), model="model", output="out")
    assert list(preparation._distinct(documents(settings.inputs, settings), Counter())) == ["the oil", "the price"]


def test_a_sample_is_spread_over_the_texts_and_has_a_number_of_characters():
    texts = [f"{number:03}" for number in range(100)]
    chosen = list(sample(lambda: iter(texts), 150, seed=0))
    assert chosen == sorted(set(chosen)) and len(chosen) == 50
    assert 15 < sum(text < "050" for text in chosen) < 35
    assert list(sample(lambda: iter(texts), 150, seed=0)) == chosen != list(sample(lambda: iter(texts), 150, seed=1))
    assert list(sample(lambda: iter(texts), 300, seed=0)) == list(sample(lambda: iter(texts), 999, seed=0)) == texts
    assert list(sample(lambda: iter(["one two\nthree four"]), 11, seed=0)) == ["one two"]
    assert list(sample(lambda: iter(["тексты"]), 4, seed=0)) == ["текс"]
    assert list(sample(lambda: iter(texts), 0, seed=0)) == []


def test_replayed_documents_are_a_sample_of_the_original_text(tmp_path):
    write_texts(tmp_path / "domain.jsonl", ["x" * 100])
    write_texts(tmp_path / "news.jsonl", (f"{number:05}" for number in range(100)))
    settings = AdaptSettings("domain", model="model", output="out", replay=str(tmp_path / "news.jsonl"))
    settings.replay_share, settings.validation_share = 0.5, 0.0
    assert preparation._write_general(settings, tmp_path, 100, seed=3) == {"replay_characters": 100}
    found = [int(text) for text in read_texts(tmp_path / "replay-training.jsonl")]
    assert len(found) == 20 and max(found) > 50


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_are_the_means_of_their_origins_and_others_are_kept_bit_for_bit(tied):
    torch.manual_seed(0)
    model = MyBertForPreTraining(MyBertConfig(**CONFIG, pad_token_id=0, tie_word_embeddings=tied))
    with torch.no_grad():
        model.cls.predictions.bias.normal_()
    tables = {name: value.clone() for name, value in model.state_dict().items() if value.shape[0] == len(PIECES)}
    origins = [[3], [0], [9, 11, 12], [9], [40, 41]]
    change_rows(model, origins)
    assert model.config.vocab_size == len(origins)
    assert model.config.pad_token_id == 1
    after = model.state_dict()
    for name, table in tables.items():
        expected = np.stack([table[ids].double().mean(0).numpy() for ids in origins])
        np.testing.assert_allclose(after[name].double().numpy(), expected, rtol=1e-6, atol=1e-9)
        assert all(torch.equal(after[name][i], table[ids[0]]) for i, ids in enumerate(origins) if len(ids) == 1)
    output = model.get_output_embeddings()
    assert (output.weight is model.get_input_embeddings().weight) == tied
    loss = model(input_ids=torch.tensor([[0, 2, 4]]), labels=torch.tensor([[-100, 2, -100]])).loss
    assert loss.isfinite()


@pytest.mark.parametrize(("given", "expected"), [(6, None), ([6, 9, 1], [2, 1])])
def test_ids_of_the_configuration_follow_their_tokens_and_become_none_with_them(given, expected):
    model = MyBertForPreTraining(MyBertConfig(**CONFIG, pad_token_id=0))
    model.config.eos_token_id = given
    change_rows(model, [[0], [1], [9]])
    assert (model.config.pad_token_id, model.config.eos_token_id) == (0, expected)


def test_an_unused_token_that_is_a_special_token_keeps_its_place(texts, tmp_path):
    old = MyBertTokenizer(PIECES, model_max_length=64, extra_special_tokens=["[unused1]"])
    model = MyBertForPreTraining(MyBertConfig(**CONFIG, pad_token_id=0))
    for part in (model, old):
        part.save_pretrained(tmp_path / "model")
    choices = {"inputs": texts["domain"], "model": str(tmp_path / "model"), "output": "out", "num_proc": 1}
    facts = prepare(AdaptSettings(new_words=4, **choices), tmp_path)
    new = MyBertTokenizer.from_pretrained(tmp_path / START)
    place = PIECES.index("[unused1]")
    assert facts["new_ids"] == [place - 1, place + 1, len(PIECES), len(PIECES) + 1]
    assert len(new) == len(PIECES) + 2
    assert new("the [unused1] oil")["input_ids"] == old("the [unused1] oil")["input_ids"]
    after = MyBertForPreTraining.from_pretrained(tmp_path / START).get_input_embeddings().weight
    assert torch.equal(after[place], model.get_input_embeddings().weight[place])


def test_the_nearest_tokens_are_those_of_a_brute_force_search():
    table = torch.randn(len(PIECES), 8, generator=torch.manual_seed(0))
    tokenizer = MyBertTokenizer(PIECES)
    ids = tokenizer.convert_tokens_to_ids(["oil", "price"])
    found = nearest_tokens(table, tokenizer, ids, 3)
    unit = (table / table.norm(dim=1, keepdim=True)).double().numpy()
    for token, index in zip(["oil", "price"], ids, strict=True):
        order = np.argsort(-(unit @ unit[index]), kind="stable")
        expected = [PIECES[i] for i in order if i != index and not PIECES[i].startswith("[unused")]
        assert found[token] == expected[:3]


def test_bits_per_character_are_those_of_one_masked_copy_at_a_time(bert):
    scorer = Scorer(str(bert))
    sample = ["the hydrocarbons rises", "oil in the pipeline"]
    scores = held_out_scores(scorer.tokenizer, scorer, make_documents(3), sample)
    model, tokenizer = MyBertForMaskedLM.from_pretrained(bert).eval(), scorer.tokenizer
    nats = 0.0
    for text in sample:
        encoding = tokenizer(text, return_tensors="pt")
        ids, words = encoding["input_ids"][0], encoding.word_ids()
        for place in range(1, len(ids) - 1):
            masked = ids.clone()
            for later in range(place, len(ids) - 1):
                if words[later] == words[place]:
                    masked[later] = tokenizer.mask_token_id
            with torch.no_grad():
                nats -= model(masked[None]).logits[0, place].log_softmax(-1)[ids[place]].item()
    assert scores["bits_per_character"] == pytest.approx(nats / math.log(2) / sum(map(len, sample)), rel=1e-4)
    words = [word for text in make_documents(3) for word in tokenizer.tokenize(text)]
    starts = sum(not word.startswith("##") for word in words)
    assert scores["tokens_per_word"] == pytest.approx(len(words) / starts)
    assert held_out_scores(tokenizer, None, make_documents(3), sample)["bits_per_character"] is None
