"""Builds that continue after they were killed or interrupted."""

import itertools
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from forked import exit_status

from mybert import cli
from mybert.artifacts import jobs
from mybert.artifacts.staging import exclusive_lock
from mybert.common.errors import UserError
from mybert.corpus import build as corpus_build
from mybert.corpus.examples import shards
from mybert.corpus.text import document_store
from mybert.corpus.text.selection import load_filter
from tokenization import processes

SETTINGS = {"dupe_factor": 4, "resume": True}  # four uses make each block a shard


@pytest.fixture
def inputs(make_documents, write_jsonl):
    """More than a million characters: five blocks of training documents."""
    return [write_jsonl(make_documents(1500, sentences=(10, 20), words=(10, 20)))]


def finished_shards(tmp_path):
    return list(tmp_path.glob(".corpus.partial-*/.scratch/training-shard-*.json"))


@pytest.fixture
def interrupt_after(monkeypatch):
    """interrupt_after(n): the build is interrupted as by Ctrl-C when n blocks are made; None: never. Returns calls."""
    made, whole = [], shards.block_to_examples

    def install(limit):
        made.clear()

        def block_to_examples(*arguments):
            if len(made) == limit:
                raise KeyboardInterrupt
            made.append(arguments[4])
            return whole(*arguments)

        monkeypatch.setattr(shards, "block_to_examples", block_to_examples)
        return made

    return install


@pytest.fixture
def interrupted(build, inputs, interrupt_after):
    """The build of `inputs` is interrupted after two blocks. Returns the calls of later builds."""
    interrupt_after(2)
    with pytest.raises(KeyboardInterrupt):
        build(inputs, **SETTINGS)
    return interrupt_after(None)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_while_reading(folder: Path) -> None:
    texts = document_store._texts

    def some(*arguments):
        yield from itertools.islice(texts(*arguments), 500)
        die()

    document_store._texts = some


def kill_while_making_examples(folder: Path) -> None:
    """In processes that must end with their parent."""
    results = processes.map_unordered

    def some(*arguments):
        for result in results(*arguments):
            if finished_shards(folder):
                die()
            yield result

    processes.map_unordered = some


def kill_while_writing_the_data_set(folder: Path) -> None:
    save = datasets.Dataset.save_to_disk

    def some(examples, path, **options):
        save(examples, path, **options)
        if "validation" in Path(path).parts:
            die()

    datasets.Dataset.save_to_disk = some


def run(words: list[str], kill: Callable[[Path], None], folder: Path) -> None:
    """A command in a process of its own; its processes are forks, as where it is started by hand."""
    multiprocessing.set_start_method("fork", force=True)
    jobs.LOCK_SECONDS = 120
    kill(folder)
    cli.main(words)


def test_a_build_killed_again_and_again_ends_with_the_bytes_of_one_never_killed(
    build, inputs, vocabulary_folder, tmp_path, monkeypatch, content, caplog
):
    monkeypatch.setattr(jobs, "LOCK_SECONDS", 120)  # a busy machine ends the processes of a killed build late
    output = tmp_path / "corpus"
    command = ["corpus", *inputs, "--tokenizer", str(vocabulary_folder), "--output", str(output), "--resume"]
    command += ["--one-sentence-per-line", "--dupe-factor", "4", "--num-proc"]
    moments = {
        "1": (kill_while_reading, "documents.utf8"),
        "2": (kill_while_making_examples, "training-shard-*.json"),
        "3": (kill_while_writing_the_data_set, "../validation/*"),
    }
    for count, (kill, left) in moments.items():
        status = exit_status(run, [*command, count], kill, tmp_path)
        assert status == -signal.SIGKILL, "it was not killed at the moment that is tested"
        assert list(tmp_path.glob(f".corpus.partial-*/.scratch/{left}"))
        assert len(list(tmp_path.glob(".corpus.partial-*"))) == 1 and not output.exists()
    assert cli.main([*command, "2"]) == 0 and "continuing in" in caplog.text
    assert not list(tmp_path.glob(".corpus.*"))
    never = build(inputs, dupe_factor=4, output=str(tmp_path / "never"))[0]
    assert content(output) == content(never)


def test_finished_shards_are_not_made_again_unless_damaged(build, inputs, tmp_path, interrupt_after, content):
    made = interrupt_after(None)
    never = content(build(inputs, dupe_factor=4, output=str(tmp_path / "never"))[0])
    blocks = len(made)
    assert blocks >= 5
    interrupt_after(4)
    with pytest.raises(KeyboardInterrupt):
        build(inputs, **SETTINGS)
    assert len(finished_shards(tmp_path)) == 3  # and one of validation
    made = interrupt_after(1)
    with pytest.raises(KeyboardInterrupt):
        build(inputs, **SETTINGS, num_proc=1)
    damaged = finished_shards(tmp_path)[0].with_suffix(".arrow")
    damaged.write_bytes(damaged.read_bytes()[:-100] + bytes(100))
    made = interrupt_after(None)
    assert content(build(inputs, **SETTINGS)[0]) == never
    assert len(made) == blocks - 5 + 1


@pytest.mark.usefixtures("interrupted")
def test_stored_documents_that_end_early_are_reported(build, inputs, tmp_path):
    (stored,) = tmp_path.glob(".corpus.partial-*/.scratch/documents.utf8")
    os.truncate(stored, 1000)
    with pytest.raises(UserError, match=r"documents\.utf8 .* without --resume"):
        build(inputs, **SETTINGS)


def test_only_a_build_of_the_same_job_is_continued(build, inputs, interrupted, caplog):
    build(inputs, **SETTINGS, seed=1)
    assert "is of a run with other seed" in caplog.text
    assert interrupted[0] == "validation-0"


def test_a_build_with_a_filter_that_was_edited_starts_anew(
    build, inputs, tmp_path, interrupt_after, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "edited_filter.py"
    module.write_text("def keep(text):\n    return True\n")
    interrupt_after(2)
    with pytest.raises(KeyboardInterrupt):
        build(inputs, **SETTINGS, filter=["edited_filter:keep"])
    module.write_text("def keep(text):\n    return 'School' not in text\n")
    monkeypatch.delitem(sys.modules, "edited_filter")  # as in a new process
    load_filter.cache_clear()
    interrupt_after(None)
    *_, manifest = build(inputs, **SETTINGS, filter=["edited_filter:keep"])
    assert "is of a run with other filters" in caplog.text and manifest["counts"]["documents_filtered"] != {
        "edited_filter:keep": 0
    }


@pytest.mark.usefixtures("interrupted")
def test_a_running_build_is_left_alone(build, inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "LOCK_SECONDS", 0.1)
    with exclusive_lock(tmp_path / "corpus"), pytest.raises(UserError, match="another run is writing"):
        build(inputs, **SETTINGS)


def test_a_build_interrupted_at_its_end_is_continued(build, inputs, tmp_path, interrupt_after, monkeypatch, content):
    """The interruption comes while the inputs are read again for their fingerprints."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus_build, "describe_sources", interrupt)
        with pytest.raises(KeyboardInterrupt):
            build(inputs, **SETTINGS)
    made = interrupt_after(None)
    with monkeypatch.context() as patch:
        patch.setattr(corpus_build, "require_room", lambda *_: pytest.fail("the shards exist already"))
        resumed, *_ = build(inputs, **SETTINGS)
    assert made == []
    assert content(resumed) == content(build(inputs, dupe_factor=4, output=str(tmp_path / "never"))[0])


def test_nothing_is_kept_of_a_build_that_has_no_documents_yet(build, inputs, write_jsonl, tmp_path):
    bad = Path(write_jsonl(["time"], "bad.jsonl"))
    bad.write_text(bad.read_text(encoding="utf-8") + json.dumps({"body": ""}) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="no column"):
        build([*inputs, str(bad)], **SETTINGS)
    assert not list(tmp_path.glob(".corpus.*"))
