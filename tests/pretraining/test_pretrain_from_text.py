"""Text to model in one command."""

import random
import re

import pytest
from json_files import write_lines
from transformers import AutoTokenizer

import mybert
from mybert.artifacts.manifest import read_manifest, write_manifest
from mybert.common.errors import UserError
from mybert.io.sources import describe_sources, find_sources
from mybert.pretraining.arguments import PretrainingArguments, check_output
from mybert.pretraining.settings import PretrainSettings
from mybert.workflows import pretrain as workflow
from mybert.workflows.pretrain import TextSize, vocabulary_size

QUICK = {"size": "tiny", "use_cpu": True, "disable_tqdm": True, "max_steps": 2, "save_strategy": "no"}
IDEOGRAPHS = [chr(0x4E00 + i) for i in range(300)]


def write_text(path, words, per_sentence=12, between=" ", end=".", separator=" "):
    sentences = [between.join(words[i : i + per_sentence]) + end for i in range(0, len(words), per_sentence)]
    path.write_text(separator.join(sentences), encoding="utf-8")
    return str(path)


@pytest.fixture
def one_document(tmp_path):
    rng = random.Random(0)
    stems = ["".join(rng.choices("abdeilmnorst", k=rng.randint(2, 8))) for _ in range(900)]
    return write_text(tmp_path / "novel.txt", rng.choices(stems, range(900, 0, -1), k=12_000))


def test_one_document_becomes_a_model_and_its_vocabulary_and_examples_are_used_again(one_document, tmp_path, capsys):
    output = tmp_path / "model"
    found = mybert.pretrain(text=[one_document], output=output, **QUICK)
    assert found.metrics["mlm_tokens"] > 0, "parts of the document are held out"
    corpus, tokenizer = tmp_path / "model-corpus", tmp_path / "model-tokenizer"
    counts = read_manifest(corpus)["counts"]
    assert counts["documents"] >= 50 and counts["documents_held_out"] >= 2
    vocabulary = (tokenizer / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert len(vocabulary) == 704 and (output / "vocab.txt").read_text().splitlines() == vocabulary
    times = [(folder / "manifest.json").stat().st_mtime_ns for folder in (corpus, tokenizer)]
    for path in output.iterdir():
        path.unlink()
    output.rmdir()
    capsys.readouterr()
    mybert.pretrain(text=one_document, output=output, **QUICK)
    assert "are used again" in capsys.readouterr().out
    assert [(folder / "manifest.json").stat().st_mtime_ns for folder in (corpus, tokenizer)] == times
    with open(one_document, "a", encoding="utf-8") as file:
        file.write(" More words.")
    with pytest.raises(UserError, match=r"model-tokenizer was made from other text"):
        mybert.pretrain(text=[one_document], output=output, resume=True, **QUICK)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["a.txt", "b.txt"], ["a.txt"]),
        (["a.txt"], ["a.txt", "b.txt"]),
        (["python-docs"], ["python-docs:numpy"]),
        (["owner/texts"], ["owner/others"]),
        (["a.txt"], [f"{'long' * 30}.txt"]),
    ],
)
def test_a_corpus_of_other_text_is_not_used_again(before, now, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "long" * 30):
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "corpus").mkdir()
    inputs = {**describe_sources(find_sources(before)), "tokenizer": {"path": "t"}}
    write_manifest("corpus", "corpus", settings={}, inputs=inputs, counts={})
    skips = PretrainSettings(output="out", text=before, errors="skip")
    assert workflow.was_made_from("corpus", skips, ("errors",)), "strict before: the text has no invalid lines"
    with pytest.raises(UserError, match=re.escape(f"corpus was made from other text than {', '.join(now)}; name")):
        workflow.was_made_from("corpus", PretrainSettings(output="out", text=now), ())


def test_a_checkpoint_is_continued_on_text_with_its_own_vocabulary(tokenizer, save_bert, tmp_path):
    start = save_bert(tokenizer, tmp_path / "start", positions=128)
    text = write_text(tmp_path / "text.txt", random.Random(0).choices(["hello", "well", "w1"], k=12_000))
    mybert.pretrain(text=[text], output=tmp_path / "model", init_from=start, **{**QUICK, "size": None})
    assert AutoTokenizer.from_pretrained(tmp_path / "model").get_vocab() == tokenizer.get_vocab()
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "start", "model", "model-corpus"}


def test_a_dry_run_leaves_nothing(one_document, tmp_path):
    mybert.pretrain(text=[one_document], output=tmp_path / "model", dry_run=True, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["novel.txt"]


def test_a_language_without_spaces_becomes_a_model_without_unknown_tokens(tmp_path, caplog, capsys):
    rng = random.Random(1)
    characters = rng.choices(IDEOGRAPHS, range(300, 0, -1), k=16_000)
    text = write_text(tmp_path / "text.txt", characters, between="", end="。", separator="")
    mybert.pretrain(text=[text], output=tmp_path / "model", **QUICK)
    counts = read_manifest(tmp_path / "model-corpus")["counts"]
    assert counts["unknown_tokens"] == 0 and counts["sentences"] > 1000 and counts["documents_held_out"] >= 2
    vocabulary = (tmp_path / "model" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert set(characters) <= set(vocabulary)
    assert "tokens: the text has many different characters" in capsys.readouterr().out
    assert "mybert tokenizer" not in caplog.text  # --text chooses the size of the vocabulary


def test_a_table_in_another_language_keeps_its_case_and_accents(tmp_path):
    rng = random.Random(2)
    words = rng.choices(["Öl", "über", "schon", "schön", "Straße", *map("Wort{}".format, range(99))], k=12_000)
    sentences = " ".join(f"{' '.join(words[i : i + 10])} bzw. Herr Dr. Ä." for i in range(0, 12_000, 10))
    rows = [{"Inhalt": sentences[i : i + 2000]} for i in range(0, len(sentences), 2000)]
    write_lines(tmp_path / "text.jsonl", rows)
    given = {"text": [tmp_path / "text.jsonl"], "text_column": "Inhalt", **QUICK}
    mybert.pretrain(output=tmp_path / "model", language="de", **given)
    assert {"Öl", "schon", "schön", "Straße"} <= {*(tmp_path / "model" / "vocab.txt").read_text("utf-8").split("\n")}
    assert read_manifest(tmp_path / "model-corpus")["settings"]["language"] == "de"
    written = [(tmp_path / "model" / name).read_text("utf-8") for name in ("manifest.json", "results.json")]
    assert not any('"language"' in text or '"uncased"' in text for text in written), "the corpus has other values"


def test_a_run_on_text_may_evaluate_at_the_end_of_an_epoch(tmp_path):
    output = str(tmp_path / "model")
    arguments = PretrainingArguments(output_dir=output, use_cpu=True, eval_strategy="epoch", save_strategy="epoch")
    check_output(PretrainSettings(output=output, text=["a.txt"]), arguments)


def test_the_vocabulary_grows_with_the_text_and_holds_its_characters():
    sizes = [vocabulary_size(TextSize(100, words, 80)) for words in (10_000, 100_000, 10**6, 10**7, 10**10)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1] <= 30_000 and all(size % 64 == 0 for size in sizes[:-1])
    assert vocabulary_size(TextSize(100, 100_000, 5000)) >= 7500


@pytest.mark.parametrize(
    "text",
    [
        "मैं घर में हूँ और कूल कुल",
        "মানুষ সব সমান",
        "கல் பல் பால்",
        "\u06a9\u064e\u062a\u064e \u0645\u06cc\u200c\u062e\u0648",
        "ma\u0301 mà",
        "เสื่อ ม้า",
        "plain words of English",
    ],
)
def test_words_are_counted_as_between_spaces_whatever_their_marks(text, tmp_path):
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    found = workflow.measure_text(PretrainSettings(output="out", text=[str(tmp_path / "text.txt")]), True)
    assert found.words == len(text.split())
