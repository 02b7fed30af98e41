"""Messages of `mybert tokenizer`, and of MyBertTokenizer for what is no vocabulary."""

import json

import pytest
from json_files import write_lines
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

from tokenization import MyBertTokenizer

MISTAKES = [  # with text.jsonl, whose texts are in the column `body`, and blank.jsonl
    ("text.jsonl --vocab-size 100", "--vocab-size: expected 141 (special tokens … ) to 10,000,000, found 100"),
    ("text.jsonl --vocab-size 150 --cased", "--vocab-size: expected 193 (special"),
    ("text.jsonl --vocab-size 99999999999999999999", "to 10,000,000, found 99999999999999999999"),
    ("text.jsonl --num-proc 99999", "--num-proc: expected 1 to 1024, found 99999"),
    ("text.jsonl --min-frequency 0", "--min-frequency: expected 1 or more, found 0"),
    ("text.jsonl --language german", "--language: expected an ISO 639 code"),
    ("text.jsonl --text-column txt", "text.jsonl, line 1: no column 'txt' (there are 'body'; … --text-column"),
    ("blank.jsonl", "blank.jsonl: no words (1 document read); check the inputs and --text-column"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_line_and_leaves_nothing(assert_refused, tmp_path, words, message):
    write_lines(tmp_path / "text.jsonl", [{"body": "The cats sat on the mat."}])
    write_lines(tmp_path / "blank.jsonl", [{"body": "\u200b \u200b"}])
    given = f"tokenizer --text-column body --output out --num-proc 1 {words}"
    assert_refused(given.split(), message)


def refusal(*given, load=MyBertTokenizer, **options) -> str:
    with pytest.raises(ValueError) as raised:
        load(*given, **options)
    return str(raised.value)


def test_what_is_no_vocabulary_is_refused(tmp_path, pieces):
    mapping = {piece: i for i, piece in enumerate(pieces)}
    for wrong in (999, 0):
        assert f"each id from 0 to {len(pieces) - 1} once" in refusal(mapping | {"hello": wrong})
    assert "needs a vocabulary" in refusal()
    assert "is a folder" in refusal(tmp_path)
    assert "does not exist" in refusal(tmp_path / "nothing.txt")
    assert "lacks the special tokens <mask>" in refusal(pieces, mask_token="<mask>")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt is empty"),
        (b"[PAD]\n[UNK]\n[CLS]\na\n", "vocab.txt (lines 1 to 4) lacks the special tokens [SEP], [MASK]"),
        (b"[PAD]\n\xff\n", "vocab.txt, line 2: not UTF-8"),
    ],
)
def test_a_bad_vocabulary_file_is_refused_with_file_and_line(content, message, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(content)
    for refused in (refusal(tmp_path / "vocab.txt"), refusal(tmp_path, load=MyBertTokenizer.from_pretrained)):
        assert f"{tmp_path / message}" in refused


@pytest.mark.parametrize(
    ("part", "name", "value", "needed"),
    [
        ("model", "max_input_chars_per_word", 20, 100),
        ("model", "continuing_subword_prefix", "@@", "##"),
        ("normalizer", "clean_text", False, True),
        ("", "pre_tokenizer", {"type": "Whitespace"}, "BertPreTokenizer"),
        ("", "pre_tokenizer", None, "BertPreTokenizer"),
        ("", "normalizer", {"type": "NFC"}, "BertNormalizer"),
    ],
)
def test_a_tokenizer_whose_ids_bert_would_change_is_refused(part, name, value, needed, tmp_path, pieces):
    path = tmp_path / "tokenizer.json"
    BertWordPieceTokenizer({piece: i for i, piece in enumerate(pieces)}).save(str(path))
    content = json.loads(path.read_text(encoding="utf-8"))
    (content[part] if part else content)[name] = value
    path.write_text(json.dumps(content), encoding="utf-8")
    found = value["type"] if isinstance(value, dict) else value
    refused = refusal(tmp_path, load=MyBertTokenizer.from_pretrained)
    assert f"{path}: {name} is {found!r}; MyBertTokenizer needs BERT's {needed!r}; load this folder with" in refused


def test_a_folder_with_no_or_another_tokenizer_is_refused(tmp_path):
    load = MyBertTokenizer.from_pretrained
    assert f"{tmp_path} has neither tokenizer.json nor vocab.txt" in refusal(tmp_path, load=load)
    ByteLevelBPETokenizer().save(str(tmp_path / "tokenizer.json"))
    assert "expected WordPiece" in refusal(tmp_path, load=load)
