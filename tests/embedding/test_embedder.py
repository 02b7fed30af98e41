"""Vectors compared with sentence-transformers, and with transformers' BERT one text at a time."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from transformers import BertModel, BertTokenizer

from modeling_mybert import MyBertForMaskedLM
from mybert.common.errors import UserError
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings
from tokenization import MyBertTokenizer

TEXTS = [
    "She ate a green apple under the tree.",
    "",
    "Apple reported unbelievably disproportionate earnings, didn't it?",
    "Zoë läuft — 東京は大きい。 naïve 😀",
    "word " * 60,
    "ok",
]


@pytest.fixture(scope="module")
def minilm_folder(minilm_folder, tmp_path_factory) -> Path:
    """The real checkpoint without its modules: a BERT."""
    folder = tmp_path_factory.mktemp("minilm")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"):
        (folder / name).symlink_to(minilm_folder / name)
    return folder


@pytest.fixture(scope="module")
def embedder(minilm_folder) -> Embedder:
    return Embedder(str(minilm_folder), device="cpu")


@pytest.fixture(scope="module")
def bert(minilm_folder) -> tuple[BertModel, BertTokenizer]:
    return BertModel.from_pretrained(minilm_folder).eval(), BertTokenizer.from_pretrained(minilm_folder)


def brute_force(bert, text, layers=(-1,)) -> tuple[torch.Tensor, torch.Tensor, object]:
    """(S, H) hidden states, (H,) pooler output, and the encoding, of one text alone."""
    model, tokenizer = bert
    encoding = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoding.pop("offset_mapping")[0]
    with torch.no_grad():
        output = model(**encoding, output_hidden_states=True)
    states = torch.stack([output.hidden_states[layer][0] for layer in layers]).mean(0)
    return states, output.pooler_output[0], (encoding.word_ids(), offsets)


def close(found: np.ndarray, expected) -> bool:
    return np.abs(found - np.asarray(expected)).max(initial=0) < 2e-5


@pytest.mark.parametrize("layers", [(-1,), (0,), (-4, -3, -2, -1), (6,)])
def test_mean_and_cls_of_any_layers_are_those_of_bert_one_text_at_a_time(minilm_folder, bert, layers):
    ours = Embedder(str(minilm_folder), layers=list(layers), device="cpu")
    expected = [brute_force(bert, text, layers)[0] for text in TEXTS]
    assert close(ours.texts(TEXTS), torch.stack([states.mean(0) for states in expected]))
    assert close(ours.texts(TEXTS, "cls"), torch.stack([states[0] for states in expected]))


def test_pooler_vectors_are_those_of_bert(embedder, bert):
    assert close(embedder.texts(TEXTS, "pooler"), torch.stack([brute_force(bert, text)[1] for text in TEXTS]))


@pytest.mark.parametrize("layers", [(-1,), (1, 3)])
def test_a_word_is_the_mean_over_its_pieces_and_stands_where_it_says(minilm_folder, bert, layers):
    ours = Embedder(str(minilm_folder), layers=list(layers), device="cpu")
    for text, found in zip(TEXTS, ours.words(TEXTS), strict=True):
        states, _, (word_ids, offsets) = brute_force(bert, text, layers)
        places = {}
        for place, word in enumerate(word_ids):
            if word is not None:
                places.setdefault(word, []).append(place)
        assert len(found.words) == len(found.spans) == len(found.vectors) == len(places)
        for word, (start, end), vector, pieces in zip(*found, places.values(), strict=True):
            assert (start, end) == (offsets[pieces[0]][0], offsets[pieces[-1]][1])
            assert word == text[start:end]
            assert close(vector, states[pieces].mean(0))


def test_the_model_sees_real_tokens_only(minilm_folder, bert):
    ours = Embedder(str(minilm_folder), max_tokens_per_batch=64, device="cpu")
    seen = []
    ours.model.register_forward_pre_hook(
        lambda model, args, kwargs: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    ours.texts(TEXTS)
    real = sum(len(bert[1](text)["input_ids"]) for text in TEXTS)
    assert sum(seen) == real == ours.tokens
    assert all(tokens <= 64 for tokens in seen)


def test_lengths_count_all_tokens(minilm_folder):
    short = EncodingSettings(str(minilm_folder), max_length=62, device="cpu")
    embedder = Embedder(short)
    assert embedder.lengths(["word " * 60, "word " * 61, ""]) == [62, 63, 2]


def test_pieces_of_a_long_text_come_from_the_window_that_gives_them_most_context(minilm_folder, bert):
    ours = Embedder(str(minilm_folder), max_length=22, stride=10, long_texts="window", device="cpu")
    numbers = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    text = " ".join(numbers * 4)  # 40 words of one piece: windows of 20 begin at 0, 10 and 20
    windows = [brute_force(bert, " ".join((numbers * 4)[start : start + 20]))[0] for start in (0, 10, 20)]
    words = torch.cat([windows[0][1:16], windows[1][6:16], windows[2][6:21]])
    assert close(ours.words([text])[0].vectors, words)
    ends = torch.stack([windows[0][0], windows[2][-1]])
    assert close(ours.texts([text, "ok"])[0], torch.cat([words, ends]).mean(0))
    assert close(ours.texts([text], "cls")[0], torch.stack([window[0] for window in windows]).mean(0))


def test_a_literal_mask_in_a_text_is_text(embedder):
    words = embedder.words(["The [MASK] fell."])[0].words
    assert words == ["The", "[", "MASK", "]", "fell", "."]


def test_the_length_is_that_of_the_training(tiny_config, tmp_path):
    MyBertForMaskedLM(tiny_config).save_pretrained(tmp_path)
    MyBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], model_max_length=6).save_pretrained(tmp_path)
    ours = Embedder(str(tmp_path), device="cpu")
    assert ours.texts(["a a"]).shape == (1, tiny_config.hidden_size)
    with pytest.raises(UserError, match="more than 6"):
        ours.texts(["a a a a a"])
    assert Embedder(str(tmp_path), max_length=7, device="cpu").texts(["a a a a a"]).shape[0] == 1


def test_what_is_no_list_of_texts_is_refused(embedder):
    columns = {"text": ["An apple a day.", "A film."]}
    tables = ("An apple a day.", columns, pd.DataFrame(columns), Dataset.from_dict(columns))
    for call in (embedder.texts, embedder.words):
        for given in tables:
            with pytest.raises(UserError, match=r"expected a list of texts"):
                call(given)
        for wrong in (None, 3, ["a film"]):
            with pytest.raises(UserError, match="text 1: expected a string, found"):
                call(["a film", wrong])
    assert len(embedder.texts(pd.DataFrame(columns)["text"])) == 2


def test_bfloat16_stays_near(minilm_folder, embedder):
    ours = Embedder(str(minilm_folder), dtype="bfloat16", device="cpu")
    found, expected = ours.texts(TEXTS[:1]), embedder.texts(TEXTS[:1])
    assert found.dtype == np.float32
    assert 0 < np.abs(found - expected).max() < 0.1


@pytest.mark.parametrize(
    "words", [["में", "हैं", "कुल", "कूल"], ["cafe\u0301", "nai\u0308ve"], ["שָׁלוֹם"], ["ก็", "น้ำ"], ["ok\ufe0f", "क्\u200dया"]]
)
def test_words_keep_their_last_marks(embedder, words):
    """The uncased tokenizer removes the marks, so that no token ends behind them."""
    (found,) = embedder.words([" ".join(words)])
    assert found.words == words
    assert [" ".join(words)[start:end] for start, end in found.spans.tolist()] == words


def test_a_mark_that_is_a_word_of_its_own_is_in_no_other_word(embedder):
    (found,) = embedder.words(["press #\ufe0f\u20e3 or *\u20e3 now"])
    starts, ends = found.spans.T
    assert (
        found.words == ["press", "#\ufe0f", "\u20e3", "or", "*", "\u20e3", "now"] and (ends[:-1] <= starts[1:]).all()
    )
