"""Strings between spaces, encoded once, give the tokens that the tokenizers library gives for whole texts."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mybert.corpus.examples import text_encoding
from mybert.corpus.examples.text_encoding import PlainTokenizer
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

_PIECES = [*SPECIAL_TOKENS, *string.ascii_lowercase, *string.punctuation, *(f"##{c}" for c in string.ascii_lowercase)]
_TEXTS = st.lists(
    st.text(
        st.sampled_from("abAÉ é\u0301\u0327Σς\u200d\u3000\xa0\t\n\x0b\x1c中[CLS]#'. ")
        | st.characters(exclude_categories=["Cs"])
    )
)


def plain(added=(), **options) -> PlainTokenizer:
    tokenizer = MyBertTokenizer([*_PIECES, "ab", "##ab", "中"], **options)
    tokenizer.add_tokens(list(added))
    return PlainTokenizer(tokenizer.plain_text_backend(), 2, 3, 1)


_TOKENIZERS = [plain(), plain(do_lower_case=False), plain(["abc", "é"]), plain(["a b"])]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(_TOKENIZERS), _TEXTS)
def test_any_texts_are_encoded_as_by_the_library(tokenizer, texts):
    expected = [one.ids for one in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)]
    ids, lengths = tokenizer.encode(texts)
    assert ids.tolist() == [i for some in expected for i in some]
    assert lengths.tolist() == list(map(len, expected))


@pytest.mark.parametrize("most", [0, 1, 300_000])
def test_forgetting_strings_changes_nothing(monkeypatch, most):
    monkeypatch.setattr(text_encoding, "_MOST_STRINGS", most)
    tokenizer, texts = plain(), ["a b ab", "b ab", "", "ab"]
    found = [tokenizer.encode(texts[start : start + 2]) for start in (0, 2, 0)]
    ids = [[i for text in texts[s : s + 2] for i in tokenizer.backend.encode(text).ids] for s in (0, 2, 0)]
    assert [some.tolist() for some, _ in found] == ids
    assert [lengths.tolist() for _, lengths in found] == [[3, 2], [0, 1], [3, 2]]
