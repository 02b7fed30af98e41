"""Windows over long texts keep each token once; the end of a pair of texts that no model reads is left out."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mybert.common.text_windows import cut_windows, without_unread_end
from tokenization import MyBertTokenizer


@given(st.integers(0, 200), st.integers(1, 40), st.data())
def test_each_token_is_kept_once_in_the_window_with_most_context(length, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    windows = cut_windows(length, size, overlap)

    def context(window, token) -> float:
        """The number of tokens on the shorter side; the ends of the text do not count as short."""
        left = math.inf if window.start == 0 else token - window.start
        right = math.inf if window.end == length else window.end - 1 - token
        return min(left, right)

    kept = [token for window in windows for token in range(window.kept_start, window.kept_end)]
    assert kept == list(range(length))
    for window in windows:
        assert window.start <= window.kept_start <= window.kept_end <= window.end
        assert window.end - window.start == min(size, length)
        for token in range(window.kept_start, window.kept_end):
            assert context(window, token) == max(context(w, token) for w in windows if w.start <= token < w.end)
    shared = [a.end - b.start for a, b in itertools.pairwise(windows)]
    assert shared[:-1] == [overlap] * len(shared[:-1])
    assert all(count >= overlap for count in shared[-1:])


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
