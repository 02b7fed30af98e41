"""The end of a pair of texts that no model reads is left out, with the same tokens as before."""

import random

import pytest

from mybert.common.text_windows import without_unread_end
from tokenization import MyBertTokenizer

PARTS = ["the", "film", " ", "  ", "\n", "ab", "c", "中", "é", "\u0301", ",", "-", "x" * 150, "\t", "👩", "Σ", "[SEP]"]


@pytest.fixture(scope="module")
def tokenizer(models) -> MyBertTokenizer:
    return MyBertTokenizer(models.pieces)


def pair(tokenizer, texts: tuple[str, str], length: int):
    found = tokenizer(*texts, truncation=True, max_length=length, split_special_tokens=True)
    return found["input_ids"], bool(found.encodings[0].overflowing)


def test_pairs_have_the_same_tokens_as_their_whole_texts(tokenizer):
    draw, shortened = random.Random(11), 0
    for length in (11, 12) * 6:
        texts = tuple("".join(draw.choices(PARTS, k=draw.choice((3, 200, 560)))) for _ in range(2))
        short = without_unread_end(*texts, tokenizer, length)
        assert pair(tokenizer, short, length) == pair(tokenizer, texts, length)
        assert all(text.startswith(one) for one, text in zip(short, texts, strict=True))
        shortened += short != texts
    assert shortened > 1


def test_one_of_two_very_long_texts_becomes_short_and_one_long_word_stays(tokenizer):
    first, second = without_unread_end("the film " * 30_000, "sea song, " * 27_500, tokenizer, 64)
    assert len(first) < 5000 and len(second) == 275_000
    assert without_unread_end("a" * 50_000, "a" * 60_000, tokenizer, 64) == ("a" * 50_000, "a" * 60_000)
    assert without_unread_end("the film", "sea " * 50_000, tokenizer, 64)[0] == "the film"


def test_a_word_with_a_space_in_the_vocabulary_prevents_the_cut(models):
    tokenizer = MyBertTokenizer(models.pieces)
    tokenizer.add_tokens(["the film"])
    text = "the film " * 1000
    assert without_unread_end(text, text, tokenizer, 8) == (text, text)


def test_a_tokenizer_that_reads_the_ends_of_texts_gets_them(models):
    tokenizer = MyBertTokenizer(models.pieces, truncation_side="left")
    texts = "the film " * 200 + "sea " * 20, "film " * 500
    assert pair(tokenizer, without_unread_end(*texts, tokenizer, 11), 11) == pair(tokenizer, texts, 11)
