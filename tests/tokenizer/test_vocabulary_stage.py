"""`mybert tokenizer` writes a complete folder and a report."""

import json
import unicodedata

import pytest
from json_files import write_lines
from transformers import AutoTokenizer, BertTokenizer

from mybert.cli import main
from mybert.common.languages import is_language, normalization
from mybert.corpus.settings import TokenizerSettings
from mybert.corpus.train_tokenizer import build_tokenizer
from tokenization import MyBertTokenizer, processes


@pytest.fixture
def corpus(tmp_path):
    lines = ["The cats sat on the mat. Ünïcode!", "A cat, the hat and the rat.", "Hats and mats and cats."]
    return write_lines(tmp_path / "corpus.jsonl", [{"body": line} for line in lines])


def run(corpus, output, *options):
    words = ["tokenizer", str(corpus), "--output", str(output), "--text-column", "body", "--num-proc", "1", *options]
    return main(words)


def test_the_command_leaves_a_tokenizer_a_manifest_and_a_report(corpus, tmp_path, capsys):
    output = tmp_path / "tokenizer"
    options = ["--vocab-size", "200", "--cased", "--pad-to-multiple-of", "64"]
    assert run(corpus, output, *options) == 0
    tokenizer = MyBertTokenizer.from_pretrained(output)
    assert (len(tokenizer), tokenizer.do_lower_case, tokenizer.model_max_length) == (256, False, 512)
    assert tokenizer.tokenize("A cat")[0] == "A"
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["stage"] == "tokenizer"
    assert manifest["counts"]["documents"] == 3
    (source,) = manifest["inputs"].values()
    assert source["path"] == str(corpus) and len(source["sha256"]) == 64
    printed = capsys.readouterr().out
    assert "tokens per word" in printed and "words and punctuation marks" in printed
    assert "100.0%" in printed
    assert "document" not in printed, "their number depends on how a file is divided, which the vocabulary does not"


def test_a_vocabulary_larger_than_the_text_is_reported(corpus, tmp_path, capsys, caplog):
    corpus.write_text(corpus.read_text(encoding="utf-8") * 4, encoding="utf-8")
    assert run(corpus, tmp_path / "tokenizer", "--vocab-size", "2000") == 0
    pieces = MyBertTokenizer.from_pretrained(tmp_path / "tokenizer").get_vocab()
    learned = sum(not piece.startswith("[unused") for piece in pieces)
    assert learned < 2000
    assert f"{learned:,} tokens; {len(pieces) - learned:,} [unusedN]" in capsys.readouterr().out
    # "the", "and" and the full stop
    for fact in ("vocabulary size 2000 is more", "16 distinct words", "3 words with 10 or more", "--vocab-size 150"):
        assert fact in caplog.text


def test_a_suggested_size_has_room_for_every_frequent_character(tmp_path, caplog):
    ideographs = "".join(chr(0x4E00 + n) for n in range(120))
    (tmp_path / "words.jsonl").write_text(json.dumps({"body": ideographs * 10}) + "\n")
    assert run(tmp_path / "words.jsonl", tmp_path / "tokenizer", "--vocab-size", "500") == 0
    assert "120 words with 10 or more" in caplog.text and "--vocab-size 270" in caplog.text
    caplog.clear()
    assert run(tmp_path / "words.jsonl", tmp_path / "fitting", "--vocab-size", "270") == 0
    assert "distinct words" not in caplog.text


def test_a_vocabulary_smaller_than_the_number_of_words_gives_no_warning(tmp_path, caplog):
    (tmp_path / "words.jsonl").write_text(json.dumps({"body": " ".join(f"w{n}x" for n in range(300))}) + "\n")
    assert run(tmp_path / "words.jsonl", tmp_path / "tokenizer", "--vocab-size", "200") == 0
    assert "distinct words" not in caplog.text


def test_files_in_any_order_give_the_same_bytes(corpus, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"body": "dogs and logs"}\n', encoding="utf-8")
    folders = []
    for number, inputs in enumerate([[corpus, other], [other, corpus]]):
        folders.append(tmp_path / str(number))
        settings = TokenizerSettings(
            inputs, output=str(folders[-1]), vocab_size=170, text_column="body", num_proc=1 + number
        )
        build_tokenizer(settings)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


PAIRS = {  # two words that differ in a mark alone
    "ar": "كَتَبَ كُتِبَ", "bn": "কুল কূল", "he": "סֵפֶר סָפַר", "hi": "में मैं", "ja": "か が", "kn": "ಕಲ ಕೆಲ", "mr": "कुल कूल",
    "ru": "мои мой", "ta": "பல பல்", "te": "కల కిల", "th": "มา ม้า", "vi": "má mà", "de": "schon schön", "el": "πού που",
}  # fmt: skip


def train(tmp_path, text, *options) -> tuple[MyBertTokenizer, float]:
    """The tokenizer of a text, and the character coverage of its report."""
    (tmp_path / "text.txt").write_text(f"{text}\n" * 30, encoding="utf-8")
    output = str(tmp_path / "tokenizer")
    words = ["tokenizer", str(tmp_path / "text.txt"), "--output", output, "--num-proc", "1", "--vocab-size", "300"]
    assert main([*words, "--overwrite", *options]) == 0
    report = json.loads((tmp_path / "tokenizer" / "manifest.json").read_text(encoding="utf-8"))["report"]
    return MyBertTokenizer.from_pretrained(output), report["character coverage"]


@pytest.mark.parametrize("language", PAIRS)
def test_marks_stay_with_the_language_and_are_missed_aloud_without(language, tmp_path, caplog):
    text = PAIRS[language]
    first, second = text.split()
    tokenizer, coverage = train(tmp_path, text)
    assert tokenizer.tokenize(first) == tokenizer.tokenize(second)
    decomposed = unicodedata.normalize("NFD", text.replace(" ", ""))
    marks = sum(unicodedata.category(character) == "Mn" for character in decomposed)
    assert coverage == pytest.approx(1 - marks / len(decomposed))
    assert all(f"'{word}'" in caplog.text for word in (first, second)) and "--language hi" in caplog.text
    caplog.clear()
    tokenizer, coverage = train(tmp_path, text, "--language", language)
    reference = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert reference.tokenize(text) == tokenizer.tokenize(text) == [first, second]
    assert coverage == 1 and "marks" not in caplog.text


def test_what_is_decomposed_and_loses_nothing_gives_no_warning(tmp_path, caplog):
    assert train(tmp_path, "한국 사람")[1] == 1 and "marks" not in caplog.text
    assert train(tmp_path, "한국 사람", "--language", "ko")[0].tokenize("한국 사람") == ["한국", "사람"]
    assert train(tmp_path, "the cat " * 300 + "café")[0].tokenize("café") == ["cafe"] and "marks" not in caplog.text


def test_letters_are_shown_where_no_words_become_equal(tmp_path, caplog):
    train(tmp_path, "がぎぐ", "--language", "en")
    assert "'が' = 'か'" in caplog.text


def test_english_is_encoded_as_by_bert(tmp_path):
    tokenizer, _ = train(tmp_path, "Déjà vu, a résumé of Zoë's naïve café.", "--language", "en")
    reference = BertTokenizer(vocab=tokenizer.get_vocab())
    text = "Déjà-vu RÉSUMÉ Zoe\u0308 ÅNGSTRÖM"
    assert tokenizer(text)["input_ids"] == reference(text)["input_ids"]
    config = json.loads((tmp_path / "tokenizer" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["strip_accents"] is None


def test_case_and_accents_stay_except_in_english(tmp_path):
    """As in the published BERTs: English ones exist in both forms, those for other languages keep case or accents."""
    text = "Reich reich schön schon"
    for options, expected in (
        ([], ["reich", "reich", "schon", "schon"]),
        (["--cased"], ["Reich", "reich", "schön", "schon"]),
        (["--language", "de"], ["Reich", "reich", "schön", "schon"]),
        (["--language", "de", "--uncased"], ["reich", "reich", "schön", "schon"]),
        (["--language", "de", "--uncased", "--strip-accents"], ["reich", "reich", "schon", "schon"]),
    ):
        tokenizer, _ = train(tmp_path, text, *options)
        assert tokenizer.tokenize(text) == expected, options


def test_codes_of_languages_are_known_and_other_words_are_none():
    for code in ("en", "eng", "en-us", "be-tarask", "sr-latn", "zh", "yue", "zh-hant", "hin", "vi-vn"):
        assert is_language(code) and normalization(code, None, None)[0] is code.startswith("en"), code
    for code in ("", "jp", "xx", "EN", "English", "en_US", "en-", "zz-hant"):
        assert not is_language(code), code


def test_no_more_processes_are_started_than_there_are_jobs(monkeypatch):
    started, pool = [], processes.ProcessPoolExecutor
    monkeypatch.setattr(
        processes, "ProcessPoolExecutor", lambda count, **how: started.append(count) or pool(count, **how)
    )
    assert sorted(processes.map_unordered(abs, [-1, -2, -3], 1000)) == [(0, 1), (1, 2), (2, 3)]
    assert started == [3]
