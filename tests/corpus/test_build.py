"""The whole command, from files to a folder."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import numpy as np
import pytest
import tokenizers
from transformers import AutoTokenizer

from mybert import cli
from mybert.common.errors import UserError
from mybert.corpus.build import build_corpus
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import group_in_blocks


def content(folder):
    files = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_examples_have_the_columns_types_and_shape_that_pretraining_reads(build, make_documents, write_jsonl):
    folder, training, validation, manifest = build([write_jsonl(make_documents(100))], max_length=48)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    assert {name: feature.feature.dtype for name, feature in list(training.features.items())[:2]} == {
        "input_ids": "int32",
        "token_type_ids": "int8",
    }
    assert training.features["next_sentence_label"].dtype == "int8"
    assert validation.features == training.features
    for example in [*training, *validation]:
        ids, types = example["input_ids"], example["token_type_ids"]
        first, last = (place for place, token in enumerate(ids) if token == tokenizer.sep_token_id)
        assert ids[0] == tokenizer.cls_token_id and last == len(ids) - 1 <= 47
        assert 1 < first < last - 1
        assert types == [0] * (first + 1) + [1] * (last - first)
        assert ids.count(tokenizer.cls_token_id) == 1
    assert set(training["next_sentence_label"]) == {0, 1}
    assert manifest["stage"] == "corpus" and manifest["settings"]["seed"] == 42
    assert manifest["counts"]["examples_training"] == len(training)
    assert manifest["counts"]["tokens"] > 0 and manifest["inputs"]["input-0"]["sha256"]
    labels = np.array(training["next_sentence_label"])
    assert manifest["statistics"]["training"]["is_next_share"] == pytest.approx(1 - labels.mean())
    lengths = [len(ids) for ids in training["input_ids"]]
    assert manifest["statistics"]["training"]["length_mean"] == pytest.approx(np.mean(lengths))
    share = np.mean([(sum(types) - 1) / (len(types) - 3) for types in training["token_type_ids"]])
    assert manifest["statistics"]["training"]["mean_share_of_b"] == pytest.approx(share)


def test_documents_of_one_sentence_are_remarked_upon_where_pairs_are_made(
    build, make_documents, write_jsonl, tmp_path, capsys
):
    short, long = make_documents(60, sentences=(1, 1)), make_documents(50, sentences=(4, 9))
    for documents, nsp, remarked in ((short + long, True, True), (long, True, False), (short, False, False)):
        build([write_jsonl(documents)], nsp=nsp, output=str(tmp_path / f"{len(documents)}"))
        assert ("Most documents have one sentence" in capsys.readouterr().out) == remarked


@pytest.mark.parametrize(
    ("documents", "share", "remark"),
    [
        (3, 0.0, None),
        (1, 0.05, "No document is held out"),
        (4, 0.5, None),
        (3, 0.05, "of the examples are held out: whole documents are"),
        (200, 0.05, None),
    ],
)
def test_a_share_held_out_that_is_not_what_was_asked_for_is_remarked_upon(
    build, make_documents, write_jsonl, capsys, documents, share, remark
):
    *_, manifest = build([write_jsonl(make_documents(documents, sentences=(9, 9)))], nsp=False, validation_share=share)
    said = capsys.readouterr().out
    assert f"held out for validation │ {manifest['counts']['documents_held_out']}" in " ".join(said.split())
    assert (remark in said) if remark else ("held out," not in said and "are held out" not in said)


def test_the_same_bytes_for_any_number_of_processes_and_others_for_another_seed(
    build, make_documents, write_jsonl, tmp_path
):
    inputs = [write_jsonl(make_documents(600, sentences=(5, 20)))]
    results = [
        content(build(inputs, num_proc=processes, seed=seed, dupe_factor=2, output=str(tmp_path / name))[0])
        for name, processes, seed in [("a", 1, 0), ("b", 2, 0), ("c", 3, 0), ("d", 1, 1)]
    ]
    assert len(group_in_blocks(np.array([2000] * 570))) > 3
    assert results[0] == results[1] == results[2]
    assert results[0] != results[3]


def test_a_special_token_in_a_text_stays_text(build, make_documents, write_jsonl):
    documents = [f"[SEP] {text}\n[MASK] [CLS] [PAD] [UNK] day." for text in make_documents(30)]
    folder, training, _, _ = build([write_jsonl(documents)])
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    for ids in training["input_ids"]:
        assert ids.count(tokenizer.sep_token_id) == 2 and ids.count(tokenizer.cls_token_id) == 1
        assert not {tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}.intersection(ids)


def test_sentences_come_out_as_the_tokenizer_alone_would_have_them(build, make_documents, write_jsonl):
    documents = make_documents(20)
    folder, training, _, _ = build([write_jsonl(documents)], nsp=False, validation_share=0, short_seq_prob=0)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    expected = sorted(i for text in documents for i in tokenizer(text, add_special_tokens=False)["input_ids"])
    assert sorted(i for ids in training["input_ids"] for i in ids[1:-1]) == expected
    assert training.column_names == ["input_ids", "token_type_ids"]
    assert not any(any(types) for types in training["token_type_ids"])


def test_held_out_documents_share_no_text_with_training(build, write_jsonl):
    documents = [f"time {number}.\nday {number}.\nyear {number}." for number in range(100, 200)]
    folder, training, validation, _ = build([write_jsonl(documents * 2)], validation_share=0.2, max_length=16)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")

    def numbers(examples):
        text = " ".join(tokenizer.batch_decode(list(examples["input_ids"]))).replace(" ##", "").replace("##", "")
        return {word for word in text.replace(".", " ").split() if word.isdigit() and len(word) == 3}

    assert numbers(training).isdisjoint(numbers(validation))
    assert len(numbers(validation)) == 20 and len(numbers(training)) == 80


def test_few_documents_are_held_out_only_if_pairs_can_be_made_on_both_sides(
    build, make_documents, write_jsonl, tmp_path
):
    for count, expected in {3: 0, 4: 2, 40: 2, 100: 5}.items():
        _, _, validation, manifest = build(
            [write_jsonl(make_documents(count, sentences=(3, 9)))], overwrite=True, output=str(tmp_path / str(count))
        )
        assert (validation is not None) == bool(expected)
        assert manifest["counts"]["documents_held_out"] == expected


def test_repeated_and_empty_documents_are_counted_and_left_out_on_request(
    build, make_documents, write_jsonl, tmp_path
):
    documents = make_documents(20)
    path = write_jsonl([*documents, "", " \n\t", *documents[:5]])
    for deduplicate, kept in ((False, 25), (True, 20)):
        *_, manifest = build([path], deduplicate=deduplicate, output=str(tmp_path / str(deduplicate)))
        counts = manifest["counts"]
        assert (counts["documents"], counts["documents_duplicate"], counts["documents_empty"]) == (kept, 5, 2)


def test_one_document_is_refused_split_or_used_in_itself(build, make_documents, write_jsonl, tmp_path):
    path = write_jsonl(make_documents(1, sentences=(60, 60)))
    with pytest.raises(UserError, match=r"only one distinct document.*--split-documents N"):
        build([path])
    assert not (tmp_path / "corpus").exists()
    *_, manifest = build([path], split_documents=6)
    assert manifest["counts"]["documents"] == 6
    *_, manifest = build([path], negatives="same-document", output=str(tmp_path / "same"))
    assert manifest["counts"]["examples_training"] > 0
    *_, manifest = build([path], nsp=False, output=str(tmp_path / "none"))
    assert manifest["counts"]["examples_training"] > 0


def test_copies_that_crowd_out_all_others_are_named_as_the_reason(build, make_documents, write_jsonl):
    one, *others = make_documents(12, sentences=(5, 10))
    path = write_jsonl([one] * 2000 + others)
    with pytest.raises(UserError, match="--deduplicate"):
        build([path])
    *_, manifest = build([path], deduplicate=True)
    assert manifest["counts"]["documents"] == 12


def test_documents_that_give_no_example_are_refused(build, make_documents, write_jsonl, tmp_path):
    path = write_jsonl(make_documents(10, sentences=(1, 1)))
    with pytest.raises(UserError, match=r"no example can be made of these .* no second sentence"):
        build([path], negatives="same-document")
    assert not (tmp_path / "corpus").exists()


def test_documents_of_one_sentence_get_a_random_second_segment(build, make_documents, write_jsonl):
    _, training, _, manifest = build([write_jsonl(make_documents(50, sentences=(1, 1)))])
    assert set(training["next_sentence_label"]) == {1}
    assert manifest["counts"]["documents_of_one_sentence"] == 50


def test_sentences_are_found_in_running_text(build, write_jsonl):
    texts = [f"The time {n} of Dr. Day came. It was {n}! Was it?\n\nA new\nparagraph {n}" for n in range(50)]
    *_, manifest = build([write_jsonl(texts)], one_sentence_per_line=False)
    assert manifest["counts"]["sentences"] == 4 * 50


def test_a_line_of_a_megabyte_is_truncated_and_said_so(build, make_documents, write_jsonl):
    _, training, _, manifest = build(
        [write_jsonl([*make_documents(20), "word " * 200_000])], one_sentence_per_line=False
    )
    assert max(map(len, training["input_ids"])) == 128
    assert manifest["counts"]["tokens_cut"] > 100_000


def test_no_usable_documents(build, write_jsonl, tmp_path):
    with pytest.raises(UserError, match=r"no document holds text \(2 read\)"):
        build([write_jsonl(["", "  "])])
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UserError, match=r"no document holds text \(0 read\)"):
        build([str(tmp_path / "empty.txt")])
    assert not (tmp_path / "corpus").exists()


def test_bad_lines_stop_the_build_or_are_counted_in_the_manifest(build, make_documents, write_jsonl, tmp_path):
    path = write_jsonl(make_documents(20))
    with open(path, "a") as file:
        file.write("{broken\n")
    with pytest.raises(UserError, match="line 21: not JSON"):
        build([path])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["documents.jsonl"]
    *_, manifest = build([path], errors="skip")
    assert manifest["skipped"] == {"not JSON": 1}


def test_an_output_that_exists_is_kept_unless_overwriting(build, make_documents, write_jsonl, tmp_path):
    path = write_jsonl(make_documents(20))
    build([path])
    before = content(tmp_path / "corpus")
    with pytest.raises(UserError, match="exists; add --overwrite"):
        build([path], seed=1)
    assert content(tmp_path / "corpus") == before
    build([path], seed=1, overwrite=True)
    assert content(tmp_path / "corpus") != before


def test_tokenizers_that_cannot_serve_are_refused(build, make_documents, write_jsonl, tmp_path, vocabulary_folder):
    path = write_jsonl(make_documents(20))
    with pytest.raises(UserError, match=r"--tokenizer .*missing cannot be used .there is no such folder"):
        build([path], tokenizer=str(tmp_path / "missing"))
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(tmp_path / "bpe")
    with pytest.raises(UserError, match="expected WordPiece"):
        build([path], tokenizer=str(tmp_path / "bpe"))
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nx\n")
    with pytest.raises(UserError, match=r"lacks the special tokens \[MASK\]"):
        build([path], tokenizer=str(tmp_path / "bare"))
    chinese = write_jsonl([f"时间人年道路日{number}。" for number in range(20)], "chinese.jsonl")
    with pytest.raises(UserError, match=r"does not fit these documents: .*% of their tokens are"):
        build([chinese])


BAD_SETTINGS = {
    "max_length": 7,
    "short_seq_prob": 1.5,
    "dupe_factor": 0,
    "negatives": "none",
    "errors": "ignore",
    "language": "jp",
    "num_proc": 0,
    "seed": -1,
    "validation_share": 0.9,
    "split_documents": 0,
    "tokenizer": "",
    "output": "",
    "inputs": [],
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_settings_out_of_range_are_named(name):
    good = {"inputs": ["a"], "tokenizer": "t", "output": "o"}
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')}: expected .*, found"):
        CorpusSettings(**good | {name: BAD_SETTINGS[name]})


def test_the_command_says_where_the_corpus_is(make_documents, write_jsonl, vocabulary_folder, tmp_path, capsys):
    output = str(tmp_path / "out")
    words = [write_jsonl(make_documents(30)), "--tokenizer", str(vocabulary_folder), "--output", output]
    assert cli.main(["corpus", *words, "--max-length", "32", "--no-nsp", "--num_proc", "1"]) == 0
    printed = capsys.readouterr().out
    assert f"the corpus is in {output}" in printed
    assert "documents" in printed and "unknown tokens" in printed
    assert datasets.load_from_disk(output).column_names == ["input_ids", "token_type_ids"]


def _run_in_another_process(arguments, **options):
    code = "import sys; from mybert.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen([sys.executable, "-c", code, "corpus", *arguments], stderr=subprocess.PIPE, **options)


def test_a_full_disk_is_said_and_leaves_nothing(make_documents, write_jsonl, vocabulary_folder, tmp_path):
    path = write_jsonl(make_documents(2000))
    limit = 100_000
    process = _run_in_another_process(
        [path, "--tokenizer", str(vocabulary_folder), "--output", str(tmp_path / "out"), "--num-proc", "2"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 2, printed.decode()
    assert b"mybert corpus: error: no room to write" in printed
    assert b"\r" not in printed, "bars are for terminals"
    assert [p.name for p in tmp_path.iterdir()] == ["documents.jsonl"]


def test_a_killed_build_leaves_no_output(make_documents, write_jsonl, vocabulary_folder, tmp_path):
    path = write_jsonl(make_documents(4000))
    arguments = [path, "--tokenizer", str(vocabulary_folder), "--output", str(tmp_path / "out"), "--num-proc", "1"]
    process = _run_in_another_process([*arguments, "--dupe-factor", "200"])
    deadline = time.monotonic() + 60
    while (
        not list(tmp_path.glob(".out.partial-*/.scratch/validation-shard-00000.json")) and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(tmp_path.glob(".out.partial-*")), "killed too early"
    assert not (tmp_path / "out").exists()


def test_an_interrupted_build_says_so_and_leaves_nothing(make_documents, write_jsonl, vocabulary_folder, tmp_path):
    path = write_jsonl(make_documents(4000))
    arguments = [path, "--tokenizer", str(vocabulary_folder), "--output", str(tmp_path / "out"), "--num-proc", "2"]
    process = _run_in_another_process(
        [*arguments, "--dupe-factor", "200"],
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60
    while (
        not list(tmp_path.glob(".out.partial-*/.scratch/validation-shard-00000.json")) and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes at once
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed.decode()
    assert printed.endswith(b"mybert corpus: interrupted\n")
    assert [p.name for p in tmp_path.iterdir()] == ["documents.jsonl"]


def test_a_missing_input_leaves_nothing(make_documents, write_jsonl, vocabulary_folder, tmp_path):
    settings = CorpusSettings(
        inputs=[write_jsonl(make_documents(20)), str(tmp_path / "missing.txt")],
        tokenizer=str(vocabulary_folder),
        output=str(tmp_path / "out"),
    )
    with pytest.raises(UserError, match=r"missing\.txt does not exist"):
        build_corpus(settings)
    assert [p.name for p in tmp_path.iterdir()] == ["documents.jsonl"]
