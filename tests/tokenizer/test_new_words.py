"""The choice of new words by the tokens that a text needs less."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from longest_match import longest_match

from tokenization import SPECIAL_TOKENS, MyBertTokenizer
from tokenization.new_words import (
    MIN_DOCUMENTS,
    WordUse,
    choose_new_words,
    count_tokens,
    count_uses,
    describe_words,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
OLD = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), *DIGITS, *(f"##{c}" for c in DIGITS), "the"]
DOCUMENTS = [
    "the tanker 1987 aaaargh tankers once tanker",
    "the tanker 1987 aaaargh pipeline refineries",
    "the tanker 1987 aaaargh pipeline privatisation",
    "the pipeline 1987 aaaargh organisation barrel",
    "the solo solo solo solo solo solo solo solo barrel",
    "moderate barrel modern barrels élan élan μ-tanker",
]


@pytest.fixture(scope="module")
def uses():
    return count_uses(DOCUMENTS, MyBertTokenizer(OLD).backend_tokenizer)


def tokens(uses, vocabulary) -> int:
    return sum(use.count * len(longest_match(word, set(vocabulary))) for word, use in uses.items())


def test_words_and_their_documents_are_counted(uses):
    assert (uses["tanker"].count, uses["tanker"].documents) == (5, {0, 1, 2})  # of four documents
    assert (uses["solo"].count, uses["solo"].documents) == (8, {4})
    assert (uses["elan"].count, uses["elan"].documents) == (2, {5})


def test_the_number_of_tokens_is_that_of_a_brute_force_matcher(uses):
    assert count_tokens(uses, OLD) == tokens(uses, OLD)


def test_the_first_word_is_the_one_that_saves_most_and_its_saving_is_exact(uses):
    uses = {word: use for word, use in uses.items() if use.count > 1}  # the others are ignored
    first, *_ = chosen = choose_new_words(uses, OLD, 10)
    savings = {
        word: tokens(uses, OLD) - tokens(uses, [*OLD, word])
        for word, use in uses.items()
        if word.isalpha() and len(use.documents) >= MIN_DOCUMENTS and word not in OLD and word != "aaaargh"
    }
    assert savings[first.piece] == max(savings.values())
    assert first.saved == tokens(uses, OLD) - tokens(uses, [*OLD, first.piece])
    assert first.pieces == longest_match(first.piece, set(OLD))
    pieces = [word.piece for word in chosen]
    assert {"tanker", "pipeline", "barrel"} <= set(pieces)
    assert tokens(uses, [*OLD, *pieces]) == tokens(uses, OLD) - sum(word.saved for word in chosen)


@given(st.lists(st.text("abc", min_size=2, max_size=9), min_size=3, max_size=30), st.integers(1, 8))
@example(["acaa", "baab", "bba", "bcaaaba"], 6)  # a piece is no longer used after the choice of others
@settings(max_examples=50)
def test_the_savings_of_all_words_add_up_to_what_the_vocabulary_saves(words, limit):
    uses = {word: WordUse(words.count(word) + 1, set(range(MIN_DOCUMENTS))) for word in words}
    chosen = choose_new_words(uses, [*OLD, "##bc", "ab"], limit)
    new = [*OLD, "##bc", "ab", *(word.piece for word in chosen)]
    assert sum(word.saved for word in chosen) == tokens(uses, [*OLD, "##bc", "ab"]) - tokens(uses, new)
    assert [word.saved for word in chosen] == sorted((word.saved for word in chosen), reverse=True)


def test_given_words_are_described_with_all_words_that_contain_them(uses):
    tanker, tan = describe_words(["tanker", "tan"], uses, OLD)
    assert tanker.saved == tokens(uses, OLD) - tokens(uses, [*OLD, "tanker"])
    assert tanker.words == ["tanker", "tankers"]
    assert (tan.saved, tan.words) == (0, [])  # longest match first


def test_numbers_repeated_letters_and_words_of_one_document_are_not_chosen(uses):
    pieces = {word.piece.removeprefix("##") for word in choose_new_words(uses, OLD, 100)}
    assert "tanker" in pieces
    assert not pieces & {"1987", "solo", "aaaargh"}
    assert all(piece.isalpha() for piece in pieces)


def test_every_chosen_piece_is_used_and_the_limits_are_kept(uses):
    all_of_them = choose_new_words(uses, OLD, 100)
    vocabulary = {*OLD, *(word.piece for word in all_of_them)}
    used = {piece for word in uses for piece in longest_match(word, vocabulary)}
    assert {word.piece for word in all_of_them} <= used
    assert len(choose_new_words(uses, OLD, 2)) == 2
    assert all(word.saved >= 12 for word in choose_new_words(uses, OLD, 100, least_saving=12))


def test_a_piece_that_many_words_share_is_chosen_as_a_continuation():
    documents = [f"the {start}sation {start}sation" for start in "bcdfghjklm"]
    uses = count_uses(documents, MyBertTokenizer(OLD).backend_tokenizer)
    assert [word.piece for word in choose_new_words(uses, OLD, 1)] == ["##sation"]


def test_an_unknown_word_or_letter_is_chosen_and_a_mark_alone_is_not():
    uses = count_uses(["the 油 油輪 жук the"] * 3, MyBertTokenizer(OLD).backend_tokenizer)
    uses["\u0e31\u0e48"] = WordUse(9, {0, 1, 2})  # Thai vowel and tone marks without a consonant
    found = choose_new_words(uses, OLD, 5)
    assert sorted((word.piece, word.saved) for word in found) == [("жук", 3), ("油", 6), ("輪", 3)]
    assert all(word.pieces == ["[UNK]"] for word in found)


def test_a_text_that_the_vocabulary_spells_in_whole_words_has_no_new_word():
    uses = count_uses(["the the 12"] * 5, MyBertTokenizer(OLD).backend_tokenizer)
    assert choose_new_words(uses, OLD, 5) == []
