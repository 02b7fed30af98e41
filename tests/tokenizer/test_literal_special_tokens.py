"""A literal `[MASK]` is the special token by default and text in plain text, where tokens of users are tokens."""

import json
from itertools import chain
from pathlib import Path

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer, BertTokenizer

from modeling_mybert.answer_decoding_mybert import keep_added_tokens
from mybert.corpus.examples.text_encoding import PlainTokenizer
from tokenization import MyBertTokenizer

WRITTEN = ["hello [MASK] world", "[SEP]", "[CLS] hello[PAD]", "[UNK] [unused0]", "", " "]


@pytest.fixture
def minilm(minilm_folder) -> MyBertTokenizer:
    return MyBertTokenizer.from_pretrained(minilm_folder)


def test_plain_text_backend_takes_literals_as_text(minilm):
    encodings = minilm.plain_text_backend().encode_batch_fast(WRITTEN)
    assert [e.ids for e in encodings] == minilm(WRITTEN, split_special_tokens=True, add_special_tokens=False).input_ids
    assert minilm.convert_ids_to_tokens(encodings[1].ids) == ["[", "sep", "]"]
    control = set(minilm.all_special_ids)
    assert not any(control & set(e.ids) for e in encodings)
    minilm("hello", truncation=True, max_length=4)  # which the backend keeps for later calls
    assert len(minilm.plain_text_backend().encode("hello " * 600).ids) == 600


def test_split_special_tokens_holds_for_that_call_alone(minilm):
    batch = minilm(WRITTEN, split_special_tokens=True)["input_ids"]
    assert all(ids[0] == 101 and ids[-1] == 102 and not {101, 102, 103, 0} & set(ids[1:-1]) for ids in batch)
    assert minilm("hello [MASK] world")["input_ids"] == [101, 7592, 103, 2088, 102]


TEXTS = [
    "the [E1] dog [/E1] bites",
    "x[E1]y <tag>x <tag>",
    "a<m> b  <l>  z <r>   z",
    "NORM norm Norm",
    "covid covids Covid-19 covid",
    "[unused0] <|x|> é-tok É-TOK E-TOK",
    "中文 and 中文x, two words, two  words, में",
]


def with_added_tokens(tokenizer: BertTokenizer) -> BertTokenizer:
    tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]", "[/E1]", "[unused0]", "<|x|>"]})
    flags = [AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("NORM", normalized=False)]
    words = [AddedToken("covid", single_word=True), AddedToken("Covid-19", single_word=True)]
    tokenizer.add_tokens([*flags, *words, "<tag>", "<m>", "é-tok", "中文", "two words", "में"])
    return tokenizer


def layout_of_transformers_4(tokenizer: BertTokenizer, folder: Path) -> None:
    """Files as `BertTokenizer.save_pretrained` wrote them: no tokenizer.json."""
    vocab, names = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False), ["[E1]", "[/E1]"]
    lines = "".join(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__))
    (folder / "vocab.txt").write_text(lines, encoding="utf-8", newline="\n")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "additional_special_tokens": names}
    added = {name: len(vocab) + place for place, name in enumerate([*names, "<tag>"])}
    for name, content in (("tokenizer_config", config), ("added_tokens", added), ("config", {"model_type": "bert"})):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("kind", ["transformers", "cased", "mybert", "transformers 4"])
def test_tokens_that_a_user_added_are_tokens_in_plain_text_as_in_every_text(kind, pieces, tmp_path):
    maker = MyBertTokenizer if kind == "mybert" else BertTokenizer
    vocab = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = maker(vocab=vocab, do_lower_case=kind != "cased")
    if kind == "transformers 4":
        layout_of_transformers_4(tokenizer, tmp_path)
    else:
        with_added_tokens(tokenizer).save_pretrained(tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    assert type(reference) is BertTokenizer
    expected = reference(TEXTS, add_special_tokens=False)["input_ids"]
    assert reference.convert_tokens_to_ids("[E1]") in expected[0]
    MyBertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    for folder in (tmp_path, tmp_path / "again"):
        loaded = MyBertTokenizer.from_pretrained(folder)
        assert [one.ids for one in loaded.plain_text_backend().encode_batch(TEXTS)] == expected
        assert loaded(TEXTS, split_special_tokens=True, add_special_tokens=False)["input_ids"] == expected
        kept = keep_added_tokens(AutoTokenizer.from_pretrained(folder))
        assert kept(TEXTS, split_special_tokens=True, add_special_tokens=False)["input_ids"] == expected
        assert PlainTokenizer(loaded.plain_text_backend(), 2, 3, 1).encode(TEXTS)[0].tolist() == [*chain(*expected)]


def test_bert_s_own_special_tokens_stay_text_beside_tokens_that_a_user_added(pieces):
    tokenizer = with_added_tokens(MyBertTokenizer(pieces))
    plain = MyBertTokenizer(pieces)(WRITTEN[:3], split_special_tokens=True)["input_ids"]
    assert tokenizer(WRITTEN[:3], split_special_tokens=True)["input_ids"] == plain
    cut = tokenizer("[SEP] hello [E1]", "[MASK]", split_special_tokens=True, truncation=True, max_length=8)
    assert cut["input_ids"].count(tokenizer.sep_token_id) == 2
    assert tokenizer.mask_token_id not in cut["input_ids"]
    assert tokenizer("[MASK]")["input_ids"][1] == tokenizer.mask_token_id  # the call before has changed nothing
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E2]"]}, replace_extra_special_tokens=False)
    assert tokenizer.convert_tokens_to_ids("[E2]") in tokenizer("x [E2]", split_special_tokens=True)["input_ids"]


def test_added_words_match_whole_words_and_other_strings_everywhere(pieces):
    tokenizer = MyBertTokenizer(pieces)
    tokenizer.add_tokens(["helloworld", "<tag>", "@"])
    tokenizer.add_tokens(["covid", "world"])  # "world" is in the vocabulary
    (ids,) = tokenizer(["covid covids helloworlds, helloworld <tag>x @x"])["input_ids"]
    words = ("covid", "helloworld", "<tag>", "@")
    assert [ids.count(tokenizer.convert_tokens_to_ids(word)) for word in words] == [1, 1, 1, 1]
    assert tokenizer.plain_text_backend().encode("world worlds").ids == tokenizer("world worlds")["input_ids"][1:-1]
