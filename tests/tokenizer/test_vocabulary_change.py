"""Vocabularies with new pieces and without unneeded ones, against a brute-force matcher and transformers."""

import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longest_match import longest_match
from transformers import AutoTokenizer, BertTokenizer

from tokenization import SPECIAL_TOKENS, MyBertTokenizer
from tokenization.vocabulary_change import add_pieces, keep_pieces, spell

LETTERS = "abc"
OLD = [*SPECIAL_TOKENS, "[unused0]", "[unused1]", *LETTERS, "##a", "##b", "ab", "##ab", "cab"]
word = st.text(LETTERS, min_size=1, max_size=8)
piece = st.builds(lambda prefix, text: prefix + text, st.sampled_from(["", "##"]), st.text(LETTERS, min_size=2))
new_pieces = st.lists(piece.filter(lambda p: p not in OLD), unique=True, max_size=6)


@given(new_pieces, st.lists(word, min_size=1))
@settings(max_examples=60)
def test_a_vocabulary_with_new_pieces_is_an_exact_wordpiece_in_every_form(new, words):
    pieces, _ = add_pieces(OLD, new)
    ours = MyBertTokenizer(OLD).with_vocabulary(pieces)
    with tempfile.TemporaryDirectory() as folder:
        ours.save_pretrained(folder)
        forms = (ours, BertTokenizer(vocab=f"{folder}/vocab.txt"), AutoTokenizer.from_pretrained(folder))
    expected = [piece for word in words for piece in longest_match(word, set(pieces))]
    for tokenizer in forms:
        assert tokenizer.tokenize(" ".join(words)) == expected
        assert tokenizer.convert_tokens_to_ids(expected) == [pieces.index(piece) for piece in expected]


@given(new_pieces, word)
def test_words_without_a_new_piece_keep_their_ids(new, word):
    pieces, _ = add_pieces(OLD, new)
    found = longest_match(word, set(pieces))
    if not set(found) & set(new):
        assert found == longest_match(word, set(OLD))
        assert [pieces.index(piece) for piece in found] == [OLD.index(piece) for piece in found]


@given(new_pieces)
def test_new_pieces_take_unused_places_first_and_map_to_their_old_pieces(new):
    pieces, origins = add_pieces(OLD, new)
    unused = [OLD.index("[unused0]"), OLD.index("[unused1]")]
    places = [*unused, *range(len(OLD), len(OLD) + len(new))][: len(new)]
    assert [pieces[place] for place in places] == new
    assert len(pieces) == len(OLD) + max(0, len(new) - 2)
    for index, origin in enumerate(origins):
        if index not in places:
            assert pieces[index] == OLD[index]
            assert origin == [index]
            continue
        old = [OLD[i] for i in origin]
        text = pieces[index]
        if not text.startswith("##"):
            assert old == longest_match(text, set(OLD))
        elif old != ["[UNK]"]:
            assert all(p.startswith("##") for p in old)
            assert "##" + "".join(p.removeprefix("##") for p in old) == text


def test_a_piece_cannot_be_added_twice():
    with pytest.raises(ValueError, match="'cab' is in the vocabulary already"):
        add_pieces(OLD, ["cab"])
    with pytest.raises(ValueError, match="'abc' is in the vocabulary already"):
        add_pieces(OLD, ["abc", "abc"])


@given(st.lists(word, min_size=1), st.lists(piece, unique=True, max_size=8))
def test_a_text_keeps_its_pieces_when_unneeded_ones_go(words, others):
    vocabulary = list(dict.fromkeys([*OLD, *others]))
    before = [longest_match(word, set(vocabulary)) for word in words]
    needed = {piece for pieces in before for piece in pieces} | set(SPECIAL_TOKENS)
    kept = keep_pieces(vocabulary, needed)
    assert [longest_match(word, set(kept)) for word in words] == before
    assert kept == sorted(kept, key=vocabulary.index)
    assert {piece for piece in kept if len(piece.removeprefix("##")) > 1} == {
        piece for piece in needed if len(piece.removeprefix("##")) > 1
    }


@given(word)
def test_spelling_is_the_longest_match(word):
    expected = longest_match(word, set(OLD))
    assert (spell(word, OLD) or ["[UNK]"]) == expected


def test_options_and_words_of_add_tokens_survive_a_change_of_the_vocabulary():
    tokenizer = MyBertTokenizer([*OLD, "C"], do_lower_case=False, model_max_length=77)
    tokenizer.add_tokens(["bacab"])
    tokenizer.truncation_side = "left"
    tokenizer.add_special_tokens({"additional_special_tokens": ["<e>"]})
    changed = tokenizer.with_vocabulary([*OLD[:-1], "C"])
    text = "bacab xbacab <e> [MASK] C cab"
    assert changed.tokenize(text) == ["bacab", "[UNK]", "<e>", "[MASK]", "C", "c", "##ab"]
    assert tokenizer.tokenize(text) == [*changed.tokenize(text)[:-2], "cab"]
    assert (changed.model_max_length, changed.truncation_side) == (77, "left")
    assert "<e>" in changed.all_special_tokens
