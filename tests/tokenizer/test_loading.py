"""Vocabularies load from every source; invalid ones are refused with file and line."""

import shutil

import pytest
from tokenizers import BertWordPieceTokenizer
from transformers import BertTokenizer

from tokenization import SPECIAL_TOKENS, MyBertTokenizer

TEXT = "Hello worlds, unsing 中 É!"


def ids(tokenizer):
    return tokenizer(TEXT, "hello")["input_ids"]


def test_every_way_of_giving_a_vocabulary_is_the_same(vocab_txt, pieces):
    mapping = {piece: i for i, piece in enumerate(pieces)}
    expected = ids(MyBertTokenizer(str(vocab_txt)))
    assert len(set(expected)) > 6
    for tokenizer in (
        MyBertTokenizer(vocab_txt),
        MyBertTokenizer(vocab_file=vocab_txt),
        MyBertTokenizer(vocab_file=str(vocab_txt)),
        MyBertTokenizer(vocab=mapping),
        MyBertTokenizer(vocab=dict(reversed(mapping.items()))),
        MyBertTokenizer(pieces),
        MyBertTokenizer(piece for piece in pieces),
        MyBertTokenizer.from_pretrained(vocab_txt.parent),
    ):
        assert ids(tokenizer) == expected
        assert tokenizer.get_vocab() == mapping


@pytest.mark.parametrize("kept", [{"vocab.txt"}, {"tokenizer.json"}, {"vocab.txt", "tokenizer.json"}])
@pytest.mark.parametrize("config", [True, False])
def test_a_stock_folder_loads_with_whichever_files_it_has(minilm_folder, tmp_path, kept, config):
    for name in kept | ({"tokenizer_config.json"} if config else set()):
        shutil.copy(minilm_folder / name, tmp_path / name)
    assert ids(MyBertTokenizer.from_pretrained(tmp_path)) == ids(MyBertTokenizer.from_pretrained(minilm_folder))


def test_tokenizer_json_alone_says_whether_case_is_kept(tmp_path, pieces):
    vocab = {piece: i for i, piece in enumerate(pieces)}
    BertWordPieceTokenizer(vocab, lowercase=False, strip_accents=False).save(str(tmp_path / "tokenizer.json"))
    loaded = MyBertTokenizer.from_pretrained(tmp_path)
    assert loaded.tokenize("É é") == ["É", "é"]
    assert (loaded.do_lower_case, loaded.strip_accents) == (False, False)
    assert MyBertTokenizer.from_pretrained(tmp_path, do_lower_case=True).tokenize("É") == ["é"]


def test_windows_line_ends_are_line_ends_and_a_byte_order_mark_is_skipped(tmp_path, pieces):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(pieces).encode("utf-8-sig"))
    assert MyBertTokenizer(tmp_path / "vocab.txt").get_vocab() == {piece: i for i, piece in enumerate(pieces)}


def test_only_line_feeds_end_a_piece(tmp_path):
    lines = [*SPECIAL_TOKENS, "a\u2028b", "a\x85b"]
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8", newline="\n")
    assert MyBertTokenizer(tmp_path / "vocab.txt").get_vocab()["a\x85b"] == 6


@pytest.mark.parametrize("end", [" ", "\t", "\u3000", "\xa0 "])
def test_white_space_at_the_end_of_a_line_is_none_of_its_piece(tmp_path, pieces, end):
    content = "".join(f"{piece}{end if len(piece) > 1 else ''}\n" for piece in pieces)
    (tmp_path / "vocab.txt").write_text(content, encoding="utf-8", newline="\n")
    text = " ".join(piece for piece in pieces if piece.isalpha())
    reference = BertTokenizer.from_pretrained(tmp_path)(text)["input_ids"]
    assert MyBertTokenizer.from_pretrained(tmp_path)(text)["input_ids"] == reference
    assert MyBertTokenizer(tmp_path / "vocab.txt").get_vocab() == {piece: i for i, piece in enumerate(pieces)}


ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("last", [0, 1, 3])
def test_duplicate_and_blank_lines_leave_all_other_ids_as_they_are(minilm_folder, tmp_path, end, last):
    """As in BertTokenizer, the last of equal lines counts."""
    lines = (minilm_folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    lines[5], lines[700] = "the", ""
    (tmp_path / "vocab.txt").write_bytes(ENDS[end].join(line.encode() for line in lines) + ENDS[end] * last)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    ours = MyBertTokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8", newline="\n")  # which BertTokenizer reads
    theirs = BertTokenizer.from_pretrained(tmp_path)
    text = "The film [MASK] is about an unbelievable vocabulary, and the sea."
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    assert len(ours) == len(lines) and ours.convert_tokens_to_ids("the") == lines.index("the", 6)
    assert ours.add_tokens(["sealegs"]) == 1 and ours.convert_tokens_to_ids("sealegs") == len(lines)
    theirs.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved/vocab.txt").unlink(missing_ok=True)
    ours.save_pretrained(tmp_path / "again")
    for folder in ("saved", "again"):
        assert MyBertTokenizer.from_pretrained(tmp_path / folder)(text)["input_ids"] == theirs(text)["input_ids"]


def test_tokenizers_differ_by_vocabulary_or_by_normalisation(pieces):
    tokenizer = MyBertTokenizer(pieces)
    assert tokenizer.difference_from(MyBertTokenizer(pieces, strip_accents=True)) is None  # as by default
    assert tokenizer.difference_from(MyBertTokenizer(pieces[:-1])) == "vocabulary"
    for options in ({"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}):
        assert tokenizer.difference_from(MyBertTokenizer(pieces, **options)) == "normalisation"
