"""Ids, segment ids, masks and offsets are those of transformers' BertTokenizer, whatever the text."""

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from tokenization import MyBertTokenizer

COMPARED = {"return_offsets_mapping": True, "return_special_tokens_mask": True, "verbose": False}

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789.,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`",
    "äöüßéèêçñåøÅÉİıŁσςΣǅﬁⅧ½²",
    "\u0300\u0301\u0308\u0327\u0331\u20d0\u0345\u1ab0",  # combining marks
    "中文字漢字日本語かなカナ한국어\U00020000\uf900、。「」",
    "العربيةעברית\u0610\u05b0\u200f\u202eहिन्दीไทย\u0e31",
    "😀👍🏽👩‍👩‍👧🇩🇪❤️\u200d\ufe0f",
    " \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u2029\u3000\u200b\ufeff",
    "\x00\x01\x07\x1b\x7f\x9f\xad\ufffd\ufffe\ue000\U0010ffff",
]


def any_character(rng: random.Random) -> str:
    code = rng.choice([rng.randrange(0x250), rng.randrange(0xD800), rng.randrange(0xE000, sys.maxunicode + 1)])
    return chr(code)


def texts(number: int, words: list[str], seed: int) -> list[str]:
    """Random texts: runs of one alphabet each, vocabulary pieces, special tokens, and characters of all Unicode."""
    rng = random.Random(seed)

    def run() -> str:
        kind = rng.randrange(12)
        if kind < 5:
            return "".join(rng.choices(rng.choice(ALPHABETS), k=rng.randrange(1, 9)))
        if kind < 8:
            return rng.choice(words).removeprefix("##") + rng.choice(["", " ", "s"])
        if kind < 10:
            return "".join(any_character(rng) for _ in range(rng.randrange(1, 5)))
        return rng.choice([" ", "[MASK]", "[SEP]", "[mask]", " [UNK]x", "##", "x" * rng.randrange(95, 106), ""])

    return ["".join(run() for _ in range(rng.randrange(7))) for _ in range(number)]


@pytest.fixture(scope="module")
def both(minilm_folder):
    return MyBertTokenizer.from_pretrained(minilm_folder), BertTokenizer.from_pretrained(minilm_folder)


@pytest.fixture(scope="module")
def words(both) -> list[str]:
    return sorted(both[0].get_vocab())


def test_twenty_thousand_random_texts_encode_alike(both, words):
    batch = texts(20_000, words, seed=1)
    assert len(set(batch)) > 15_000
    ours, theirs = (tokenizer(batch, **COMPARED) for tokenizer in both)
    assert ours.data == theirs.data


def test_pairs_with_truncation_and_padding_encode_alike(both, words):
    first, second = texts(1_000, words, seed=2), texts(1_000, words, seed=3)
    for options in (
        {"truncation": "longest_first", "max_length": 12, "padding": "max_length"},
        {"truncation": "only_second", "max_length": 304, "padding": True, "pad_to_multiple_of": 8},
        {"truncation": "only_first", "max_length": 400, "add_special_tokens": False},
    ):
        ours, theirs = (tokenizer(first, second, **options, **COMPARED) for tokenizer in both)
        assert ours.data == theirs.data


@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False},
    ],
)
def test_every_option_encodes_and_decodes_alike(minilm_folder, words, options):
    path = str(minilm_folder / "vocab.txt")
    ours, theirs = MyBertTokenizer(path, **options), BertTokenizer(path, **options)
    batch = texts(2_000, words, seed=4)
    encoded = ours(batch, **COMPARED)
    assert encoded.data == theirs(batch, **COMPARED).data
    assert ours.batch_decode(encoded["input_ids"]) == theirs.batch_decode(encoded["input_ids"])


@settings(max_examples=200)
@given(text=st.text(), other=st.text())
def test_any_pair_of_texts_encodes_alike(both, text, other):
    ours, theirs = (tokenizer(text, other, **COMPARED) for tokenizer in both)
    assert ours.data == theirs.data


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\x00", "\u200b", "\u0301"])
def test_text_without_words_becomes_the_two_special_tokens(both, text):
    assert both[0](text)["input_ids"] == [101, 102]


def test_a_word_of_more_than_100_characters_is_unknown(tokenizer):
    assert tokenizer.tokenize("o" * 100) == ["o"] + ["##o"] * 99
    assert tokenizer.tokenize("o" * 101) == ["[UNK]"]


def test_decoding_joins_continuing_pieces(tokenizer):
    ids = tokenizer("hello worlds , unsing", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == "hello worlds, unsing"
