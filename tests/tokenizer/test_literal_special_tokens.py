"""A literal `[MASK]` is the special token by default, and ordinary text with the plain-text backend."""

import pytest

from tokenization import MyBertTokenizer

WRITTEN = ["hello [MASK] world", "[SEP]", "[CLS] hello[PAD]", "[UNK] [unused0]", "", " "]


@pytest.fixture
def minilm(minilm_folder) -> MyBertTokenizer:
    return MyBertTokenizer.from_pretrained(minilm_folder)


def test_a_literal_mask_is_the_control_token_by_default(minilm):
    assert minilm("hello [MASK] world")["input_ids"] == [101, 7592, 103, 2088, 102]


def test_plain_text_backend_takes_literals_as_text(minilm):
    encodings = minilm.plain_text_backend().encode_batch_fast(WRITTEN)
    assert [e.ids for e in encodings] == minilm(WRITTEN, split_special_tokens=True, add_special_tokens=False).input_ids
    assert minilm.convert_ids_to_tokens(encodings[1].ids) == ["[", "sep", "]"]
    control = set(minilm.all_special_ids)
    assert not any(control & set(e.ids) for e in encodings)


def test_split_special_tokens_holds_for_that_call_alone(minilm):
    batch = minilm(WRITTEN, split_special_tokens=True)["input_ids"]
    assert all(ids[0] == 101 and ids[-1] == 102 and not {101, 102, 103, 0} & set(ids[1:-1]) for ids in batch)
    assert minilm("[MASK]")["input_ids"] == [101, 103, 102]


def test_plain_text_is_encoded_as_by_the_tokenizer_where_nothing_is_literal(minilm):
    texts = ["Déjà vu, 中文!", "x" * 101, "\x00\u200b", "unbelievable 😀"]
    encodings = minilm.plain_text_backend().encode_batch_fast(texts)
    assert [e.ids for e in encodings] == minilm(texts, add_special_tokens=False)["input_ids"]


def test_a_special_token_that_looks_like_a_word_stays_text_too(pieces):
    tokenizer = MyBertTokenizer(pieces, mask_token="hello")
    backend = tokenizer.plain_text_backend()
    assert tokenizer.mask_token_id in tokenizer("hello world")["input_ids"]
    assert tokenizer.mask_token_id not in backend.encode("hello world").ids
    assert backend.token_to_id("world") == tokenizer.convert_tokens_to_ids("world")


def test_added_words_are_words_in_plain_text_and_added_special_tokens_are_not(pieces):
    tokenizer = MyBertTokenizer(pieces)
    tokenizer.add_tokens(["covid-19"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["[unused0]"]})
    text = "hello Covid-19 [unused0]"
    ids = tokenizer.plain_text_backend().encode(text).ids
    assert ids == tokenizer(text, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_tokens_to_ids("covid-19") == len(pieces) == ids[1]
    assert tokenizer.convert_tokens_to_ids("[unused0]") not in ids


def test_a_word_that_begins_with_an_added_word_is_split_like_any_other(pieces):
    tokenizer = MyBertTokenizer(pieces)
    tokenizer.add_tokens(["helloworld"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["[e1]", "marker"]})
    tokenizer.add_tokens(["covid", "world"])  # "world" is in the vocabulary
    texts = ["covid covids helloworlds, helloworld [e1] marker markers", "world worlds marker"]
    expected = tokenizer(texts, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    assert [one.ids for one in tokenizer.plain_text_backend().encode_batch(texts)] == expected
    assert expected[0].count(tokenizer.convert_tokens_to_ids("covid")) == 1
    assert not {*tokenizer.convert_tokens_to_ids(["[e1]", "marker"])} & {*expected[0], *expected[1]}
