"""`mybert corpus`, from files to a folder of examples."""

import os
import re
import shutil
import signal
import time
import types
from pathlib import Path

import numpy as np
import pytest
from forked import end, print_to, start
from transformers import AutoTokenizer

from mybert import cli
from mybert.common.errors import UserError
from mybert.common.quantities import Quantity
from mybert.corpus.text.document_store import group_in_blocks
from mybert.corpus.text.sentences import sentence_splitter
from mybert.reports.findings import findings_of
from mybert.reports.stage_files import read_stage


def test_examples_have_the_columns_types_and_shape_that_pretraining_reads(build, make_documents, write_jsonl):
    folder, training, validation, manifest = build([write_jsonl(make_documents(100))], max_length=48)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    assert [training.features[name].feature.dtype for name in ("input_ids", "token_type_ids")] == ["int32", "int8"]
    assert training.features["next_sentence_label"].dtype == "int8"
    assert validation.features == training.features
    for example in [*training, *validation]:
        ids, types_of = example["input_ids"], example["token_type_ids"]
        first, last = (place for place, token in enumerate(ids) if token == tokenizer.sep_token_id)
        assert ids[0] == tokenizer.cls_token_id and last == len(ids) - 1 <= 47
        assert 1 < first < last - 1
        assert types_of == [0] * (first + 1) + [1] * (last - first)
        assert ids.count(tokenizer.cls_token_id) == 1
    assert set(training["next_sentence_label"]) == {0, 1}
    assert manifest["stage"] == "corpus" and manifest["settings"]["seed"] == 42
    assert manifest["counts"]["examples_training"] == len(training)
    assert manifest["counts"]["tokens"] > 0 and manifest["inputs"]["input-0"]["sha256"]
    statistics = manifest["statistics"]["training"]
    assert statistics["is_next_share"] == pytest.approx(1 - np.mean(training["next_sentence_label"]))
    assert statistics["length_mean"] == pytest.approx(np.mean([len(ids) for ids in training["input_ids"]]))


@pytest.mark.parametrize(
    ("documents", "share", "title"),
    [
        (1, 0.05, "There is no evaluation set"),
        (4, 0.5, "The evaluation set is tiny"),
        (3, 0.05, "33% of the examples are held out"),
        (200, 0.05, "The evaluation set is tiny"),
    ],
)
def test_an_unexpected_share_of_held_out_examples_is_a_finding(
    build, make_documents, write_jsonl, documents, share, title
):
    folder, *_ = build([write_jsonl(make_documents(documents, sentences=(9, 9)))], nsp=False, validation_share=share)
    (finding,) = (finding for finding in findings_of(read_stage(folder)) if finding.name == "evaluation-set")
    assert (finding.title, "--split-documents" in finding.remedy) == (title, True)


def test_the_bytes_are_the_same_for_any_number_of_processes_and_differ_by_seed(
    build, make_documents, write_jsonl, tmp_path, content
):
    inputs = [write_jsonl(make_documents(600, sentences=(5, 20)))]
    results = [
        content(build(inputs, num_proc=processes, seed=seed, dupe_factor=2, output=str(tmp_path / name))[0])
        for name, processes, seed in [("a", 1, 0), ("b", 3, 0), ("c", 1, 1)]
    ]
    assert len(group_in_blocks(np.array([2000] * 570))) > 3
    assert results[0] == results[1] != results[2]


def test_a_special_token_in_a_text_is_read_as_text(build, make_documents, write_jsonl):
    documents = [f"[SEP] {text}\n[MASK] [CLS] [PAD] [UNK] day." for text in make_documents(30)]
    folder, training, _, _ = build([write_jsonl(documents)])
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    for ids in training["input_ids"]:
        assert ids.count(tokenizer.sep_token_id) == 2 and ids.count(tokenizer.cls_token_id) == 1
        assert not {tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}.intersection(ids)


def test_tokens_are_those_of_the_tokenizer_alone(build, make_documents, write_jsonl):
    documents = make_documents(20)
    folder, training, _, _ = build([write_jsonl(documents)], nsp=False, validation_share=0, short_seq_prob=0)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    expected = sorted(i for text in documents for i in tokenizer(text, add_special_tokens=False)["input_ids"])
    assert sorted(i for ids in training["input_ids"] for i in ids[1:-1]) == expected
    assert training.column_names == ["input_ids", "token_type_ids"]
    assert not any(any(types_of) for types_of in training["token_type_ids"])


def test_held_out_documents_share_no_text_with_training(build, write_jsonl):
    documents = [f"time {number}.\nday {number}.\nyear {number}." for number in range(100, 200)]
    folder, training, validation, _ = build([write_jsonl(documents * 2)], validation_share=0.2, max_length=16)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")

    def numbers(examples):
        text = " ".join(tokenizer.batch_decode(list(examples["input_ids"]))).replace(" ##", "").replace("##", "")
        return {word for word in text.replace(".", " ").split() if word.isdigit() and len(word) == 3}

    assert numbers(training).isdisjoint(numbers(validation))
    assert len(numbers(validation)) == 20 and len(numbers(training)) == 80


@pytest.mark.parametrize(("count", "held_out"), [(3, 0), (4, 2), (40, 2), (100, 5)])
def test_few_documents_are_held_out_only_if_pairs_can_be_built_in_both_parts(
    build, make_documents, write_jsonl, count, held_out
):
    _, _, validation, manifest = build([write_jsonl(make_documents(count, sentences=(3, 9)))])
    assert (validation is not None) == bool(held_out)
    assert manifest["counts"]["documents_held_out"] == held_out


@pytest.mark.parametrize(
    ("limit", "given", "expected", "shown"),
    [(24, None, 24, "24, of the tokenizer"), (24, 40, 40, "40"), (512, None, 128, "128"), (None, None, 128, "128")],
)
def test_the_default_length_is_at_most_that_of_the_tokenizer(
    build, make_documents, write_jsonl, vocabulary_folder, tmp_path, capsys, limit, given, expected, shown
):
    tokenizer = AutoTokenizer.from_pretrained(vocabulary_folder)
    tokenizer.model_max_length = limit or int(1e30)
    tokenizer.save_pretrained(tmp_path / "limited")
    documents = write_jsonl(make_documents(30, sentences=(40, 50)))
    _, training, _, manifest = build([documents], tokenizer=str(tmp_path / "limited"), max_length=given)
    assert manifest["settings"]["max_length"] == max(map(len, training["input_ids"])) == expected
    assert re.search(rf"maximum length +│ +{shown} ", capsys.readouterr().out)


def test_repeated_and_empty_documents_are_counted_and_removed_on_request(
    build, make_documents, write_jsonl, tmp_path, capsys
):
    documents = make_documents(20)
    path = write_jsonl([*documents, "", " \n\t", *documents[:5]])
    for deduplicate, kept in ((False, 25), (True, 20)):
        *_, manifest = build([path], deduplicate=deduplicate, output=str(tmp_path / str(deduplicate)))
        counts = manifest["counts"]
        assert (counts["documents"], counts["documents_duplicate"], counts["documents_empty"]) == (kept, 5, 2)
        table = capsys.readouterr().out
        assert re.search(rf"duplicates \({'removed' if deduplicate else 'kept'}\) +│ +5 ", table), table


@pytest.mark.parametrize(
    ("settings", "documents"), [({"split_documents": 6}, 6), ({"negatives": "same-document"}, 1), ({"nsp": False}, 1)]
)
def test_one_document_is_split_or_used_alone(build, make_documents, write_jsonl, settings, documents):
    *_, manifest = build([write_jsonl(make_documents(1, sentences=(60, 60)))], **settings)
    assert manifest["counts"]["documents"] == documents and manifest["counts"]["examples_training"] > 0


def test_copies_that_crowd_out_all_others_are_named_as_the_reason(build, make_documents, write_jsonl):
    one, *others = make_documents(12, sentences=(5, 10))
    path = write_jsonl([one] * 2000 + others)
    with pytest.raises(UserError, match="--deduplicate"):
        build([path])
    *_, manifest = build([path], deduplicate=True)
    assert manifest["counts"]["documents"] == 12


def test_documents_of_one_sentence_get_random_segments(build, make_documents, write_jsonl):
    _, training, _, manifest = build([write_jsonl(make_documents(50, sentences=(1, 1)))])
    assert set(training["next_sentence_label"]) == {1}
    assert manifest["counts"]["documents_of_one_sentence"] == 50


def test_sentences_are_found_in_running_text(build, write_jsonl):
    texts = [f"The time {n} of Dr. Day came. It was {n}! Was it?\n\nA new\nparagraph {n}" for n in range(50)]
    *_, manifest = build([write_jsonl(texts)], one_sentence_per_line=False)
    assert manifest["counts"]["sentences"] == 4 * 50


@pytest.mark.parametrize("space", ["\xa0", "\u2009", "\u202f", "\u3000", " \xa0", "\x85"])
def test_any_space_may_precede_a_full_stop(space):
    text = f"He takes vitamin C{space}. It helps{space}.\nSo does B{space}.\n\nPlan B{space}."
    sentences = sentence_splitter("en")(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert len(sentences) >= 2


@pytest.mark.parametrize(("language", "word"), [("en", "people"), ("th", "สวัสดีครับ")])
@pytest.mark.parametrize("space", [" ", "\t", "\xa0", "\u3000"])
def test_a_long_text_without_sentence_ends_is_cut_between_words(language, word, space):
    sentences = sentence_splitter(language)(f"{word}{space}" * 3000)
    assert len(sentences) > 3 and {*" ".join(sentences).split()} == {word}
    assert "".join(sentence_splitter(language)(word * 3000)) == word * 3000


def test_a_line_of_a_megabyte_is_truncated_and_counted(build, make_documents, write_jsonl):
    _, training, _, manifest = build(
        [write_jsonl([*make_documents(20), "word " * 200_000])], one_sentence_per_line=False
    )
    assert max(map(len, training["input_ids"])) == 128
    assert manifest["counts"]["tokens_cut"] > 100_000


def test_skipped_lines_are_in_the_manifest(build, make_documents, write_jsonl):
    path = Path(write_jsonl(make_documents(20)))
    with path.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    *_, manifest = build([str(path)], errors="skip")
    assert manifest["skipped"] == {"not JSON": 1}


@pytest.mark.parametrize("options", [{"nsp": False}, {"dupe_factor": 2, "max_length": 32}])
def test_the_disk_space_used_is_near_the_estimate(options, build, make_documents, write_jsonl, capsys, monkeypatch):
    sizes = {}

    def size(folder):
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def rmtree(path, *arguments, **more):
        if Path(path).name == ".scratch":
            sizes["building"] = size(Path(path).parent) - (Path(path) / "documents.utf8").stat().st_size
        return whole(path, *arguments, **more)

    whole = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    sizes["after"] = size(build([write_jsonl(make_documents(1500, sentences=(10, 20), words=(10, 20)))], **options)[0])
    numbers = re.search(r"about ([\d.]+ [kM])B .* building, ([\d.]+ [kM])B after", capsys.readouterr().out).groups()
    building, after = map(Quantity, numbers)
    assert 0.6 < sizes["building"] / building < 1.1
    assert 0.6 < sizes["after"] / after < 1.1


def test_too_little_disk_space_is_refused_and_leaves_nothing(
    build, make_documents, write_jsonl, tmp_path, monkeypatch
):
    path = write_jsonl(make_documents(300))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=10_000))
    with pytest.raises(UserError, match="no room for the examples"):
        build([path])
    assert [path.name for path in tmp_path.iterdir()] == ["documents.jsonl"]


def interruptible(arguments: list[str], log: str) -> None:
    """A fork: builds as a command at the head of a group of processes."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print_to(log)
    raise SystemExit(cli.main(["corpus", *arguments]))


def test_an_interrupted_build_leaves_nothing(
    make_documents, write_jsonl, vocabulary_folder, tmp_path, tmp_path_factory
):
    path, log = write_jsonl(make_documents(1000)), f"{tmp_path_factory.mktemp('log')}/log"
    arguments = [path, "--tokenizer", str(vocabulary_folder), "--output", str(tmp_path / "out"), "--num-proc", "2"]
    process = start(interruptible, [*arguments, "--dupe-factor", "200"], log)
    shard = ".out.partial-*/.scratch/validation-shard-00000.json"
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob(shard)) and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts all processes at once
    status, printed = end(process), Path(f"{log}.2").read_text(encoding="utf-8")
    assert status == 130 and printed.endswith("mybert corpus: interrupted\n"), printed
    assert [p.name for p in tmp_path.iterdir()] == ["documents.jsonl"]
