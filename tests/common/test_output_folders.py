"""Output files and folders are complete or absent: the functions, then every command."""

import contextlib
import errno
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from forked import exit_status
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from mybert import cli
from mybert.artifacts.manifest import write_manifest
from mybert.artifacts.staging import empty_folder, manifest_beside, refuse_existing, staged_file, staged_folder
from mybert.commands import COMMANDS as COMMAND_LIST
from mybert.common.errors import UserError
from mybert.inference.cpu.int8 import int8_obstacle
from mybert.settings.options import options_of

pytestmark = pytest.mark.usefixtures("as_on_windows")


def test_folders_above_a_failed_output_are_removed_if_the_run_has_created_them(tmp_path):
    (tmp_path / "mine").mkdir()
    for out in (tmp_path / "mine" / "a" / "b" / "out", tmp_path / "mine" / "out"):
        for staged in (staged_folder, staged_file):
            with pytest.raises(RuntimeError), staged(out):
                raise RuntimeError
            assert not list((tmp_path / "mine").iterdir())
    other = tmp_path / "mine" / "a" / "b" / "out.txt"
    with staged_folder(tmp_path / "mine" / "a" / "out"), pytest.raises(RuntimeError), staged_file(other):
        raise RuntimeError
    assert [path.name for path in (tmp_path / "mine" / "a").iterdir()] == ["out"]
    assert (tmp_path / "mine" / "a" / "out").stat().st_mode & 0o777 == 0o755, "others may read it"


def test_a_folder_of_another_stage_or_with_an_input_is_never_replaced(tmp_path):
    out = tmp_path / "classifier"
    with staged_folder(out) as folder:
        (folder / "train.jsonl").write_text("{}")
        write_manifest(folder, "finetune", settings={}, inputs={}, counts={})
    (tmp_path / "link").symlink_to(out)
    for path in (out, tmp_path / "link"):
        with pytest.raises(UserError, match="was not made by `mybert evaluate`"):
            refuse_existing(path, overwrite=True, stage="evaluate")
        for name in (out, out / "train.jsonl", tmp_path / "link" / "train.jsonl"):
            with pytest.raises(UserError, match="holds the input"):
                refuse_existing(path, overwrite=True, stage="finetune", inputs=["ann/bert", "x" * 5000, name])
        refuse_existing(path, overwrite=True, stage="finetune", inputs=["ann/bert", tmp_path / "elsewhere.jsonl"])


def test_resume_is_suggested_for_an_unfinished_run(tmp_path):
    with staged_folder(tmp_path / "out") as folder:
        write_manifest(folder, "finetune", settings={}, inputs={}, counts={}, complete=False)
    with pytest.raises(UserError, match="unfinished run; add --resume"):
        refuse_existing(tmp_path / "out", overwrite=False, stage="finetune")
    for stage, complete in (
        ("tokenizer", {}),
        ("model", {"complete": False}),
        ("model", {"complete": True}),
    ):  # quickstart
        (tmp_path / "quick" / stage).mkdir(parents=True, exist_ok=True)
        write_manifest(tmp_path / "quick" / stage, stage, settings={}, inputs={}, counts={}, **complete)
        message = "exists; add --overwrite" if complete.get("complete") else "unfinished run; add --resume"
        with pytest.raises(UserError, match=message):
            refuse_existing(tmp_path / "quick", overwrite=False)


def test_the_target_of_a_symbolic_link_is_replaced(tmp_path):
    disk = tmp_path / "disk" / "out"
    with staged_folder(disk) as folder:
        write_manifest(folder, "corpus", settings={}, inputs={}, counts={})
    (tmp_path / "link").symlink_to(disk)
    with staged_folder(tmp_path / "link", overwrite=True, stage="corpus") as folder:
        (folder / "new").write_text("")
    assert (tmp_path / "link").is_symlink() and [p.name for p in disk.iterdir()] == ["new"]
    (disk / "deep").mkdir()
    (disk / "deep" / "out").symlink_to(tmp_path)
    empty_folder(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and not any(disk.iterdir()) and tmp_path.exists()


def test_an_emptied_folder_keeps_its_manifest(tmp_path):
    write_manifest(tmp_path, "corpus", settings={}, inputs={}, counts={})
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("")
    empty_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_file_appears_only_on_success_with_its_manifest(tmp_path):
    out = tmp_path / "new" / "out.txt"
    with pytest.raises(RuntimeError), staged_file(out) as path:
        path.write_text("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with staged_file(out) as path:
        path.with_name("scratch").write_text("")
        path.write_text("whole")
        write_manifest(path.parent, "embed", settings={}, inputs={}, counts={})
        assert not out.exists()
    assert out.read_text() == "whole"
    assert sorted(p.name for p in out.parent.iterdir()) == ["out.txt", "out.txt.manifest.json"]
    assert out.stat().st_mode == (out.parent / "out.txt.manifest.json").stat().st_mode  # both follow the umask
    with staged_file(out) as path:
        path.write_text("other")
    assert [p.name for p in out.parent.iterdir()] == ["out.txt"]  # the old manifest described another file


@pytest.mark.parametrize(
    ("staged", "name", "message"),
    [
        (staged_folder, "file/deep/out", "cannot be created: .*file is a file"),
        (staged_folder, "/proc", "mount point"),
        (staged_file, "file/out.txt", "cannot be created: .*file is a file"),
        (staged_file, "file/deep/out.txt", "cannot be created: .*file is a file"),
        (staged_file, ".", "is not a file; name a file"),
        (staged_file, "/dev/null", "is not a file; name a file"),
    ],
)
def test_an_output_that_cannot_be_created_is_refused(tmp_path, staged, name, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=message), staged(tmp_path / name, overwrite=True):
        raise AssertionError("the block was entered")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("staged", [staged_folder, staged_file])
def test_two_runs_do_not_replace_each_others_output(tmp_path, staged):
    with staged(tmp_path / "out") as path:
        (path / "a" if path.is_dir() else path).write_text("first")
        with pytest.raises(UserError, match=r"another run is writing to .*out"), staged(tmp_path / "out"):
            raise AssertionError("the block was entered")


def test_a_killed_process_leaves_only_a_temporary_folder_that_the_next_run_reports(tmp_path, caplog):
    script = (
        "import sys, time\nfrom mybert.artifacts.staging import staged_folder\n"
        "with staged_folder(sys.argv[1]) as folder:\n"
        "    (folder / 'a').write_text('half')\n    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, tmp_path / "out"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".out.partial-*")
    with staged_folder(tmp_path / "out"):
        assert str(left) in caplog.text
    assert not (tmp_path / ".out.lock").exists()
    with staged_folder(tmp_path / "other"):
        assert len(caplog.records) == 1


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_locks_is_used_with_a_warning(code, tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", fail)
    fails = pytest.raises(OSError, match=os.strerror(code)) if code == errno.EIO else contextlib.nullcontext()
    with fails, staged_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("whole")
        assert caplog.messages == [
            f"{tmp_path / 'out'} cannot be locked on this file system; let no other run write there"
        ]
    assert {path.name for path in tmp_path.iterdir()} - {".out.lock"} == ({"out"} if code != errno.EIO else set())
    assert code == errno.EIO or not (tmp_path / ".out.lock").exists()


WRITERS = {
    "Python": lambda file: file.write_bytes(bytes(100_000)),
    "tokenizers": lambda file: Tokenizer(WordPiece({str(i): i for i in range(9999)})).save(str(file)),
    "safetensors": lambda file: save_file({"a": torch.zeros(99_999)}, file),
    "torch": lambda file: torch.save(torch.zeros(99_999), file),
}


def write_on_a_full_disk(out, write):
    """In a fork: a limit on file size gives the same kind of error as a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with pytest.raises(UserError, match="no room to write"), staged_folder(out) as folder:
        write(folder / "a")


@pytest.mark.parametrize("library", WRITERS)
def test_a_full_disk_is_a_one_line_message_for_every_library(library, tmp_path):
    assert exit_status(write_on_a_full_disk, tmp_path / "out", WRITERS[library]) == 0
    assert not list(tmp_path.iterdir())


def test_other_failures_are_not_taken_for_a_full_disk(tmp_path):
    for error in (OSError(5, "Input/output error"), ValueError("os error 2"), RuntimeError("shapes differ")):
        with pytest.raises(type(error)) as caught, staged_folder(tmp_path / "out"):
            raise error
        assert caught.value is error


# The output of every command: complete or absent, replaced with --overwrite alone, and of its own stage.

TRAININGS = {"pretrain", "adapt", "distill", "finetune"}  # their folder has its name from the start
COMMANDS = {  # what each command is given, in a folder with inputs; {NAME} is a tiny model
    "tokenizer": "texts.txt --vocab-size 150 --num-proc 1",
    "corpus": "texts.txt --tokenizer {filler} --max-length 16 --num-proc 2",
    "pretrain": "--corpus corpus --size tiny --max-steps 1 --use-cpu true",
    "adapt": "texts.txt --model {filler} --max-steps 1 --max-length 16 --eval-characters 100 --num-proc 1",
    "distill": "--teacher {filler} --layers 1 --corpus corpus --max-steps 1 --use-cpu true",
    "trim": "texts.txt --model {filler} --num-proc 1",
    "finetune": "--task sentiment --model {encoder} --train rows.csv --max-steps 1 --bootstrap 0 --use-cpu true",
    "evaluate": "--model {classifier} --data rows.csv --bootstrap 0 --device cpu",
    "compare": "scores scores",
    "predict": "{classifier} rows.csv --device cpu",
    "suggest": "{classifier} rows.csv --count 2 --device cpu",
    "explain": "{classifier} rows.csv --device cpu",
    "embed": "{encoder} texts.txt --device cpu",
    "index": "{encoder} texts.txt --device cpu",
    "score": "{filler} texts.txt --device cpu",
    "export": "{classifier}",
    "merge": "{classifier} other",
    "quantize": "{encoder} --texts texts.txt",
}
OUTPUTS = {
    "predict": "out.jsonl",
    "suggest": "out.jsonl",
    "explain": "out.jsonl",
    "embed": "out.npy",
    "score": "out.jsonl",
}


@pytest.fixture(scope="module")
def inputs(models, tmp_path_factory):
    """A folder with texts, rows, examples, scores and another classifier."""
    folder = tmp_path_factory.mktemp("inputs")
    shutil.copytree(models("classifier"), folder / "other")
    texts = [
        f"The {noun} {verb}. It is {word}."
        for noun in ("film", "sea")
        for verb in ("ends", "sings")
        for word in ("good", "dull", "odd")
    ]
    (folder / "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")
    labels = {"great": "good", "dull": "bad"}
    rows = "".join(f"a {word} {noun},{labels[word]}\n" for word in labels for noun in ("film", "song", "sea", "house"))
    (folder / "rows.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    with contextlib.chdir(folder):
        assert cli.main([*words_of("corpus", models), "--output", "corpus"]) == 0
        assert cli.main([*words_of("evaluate", models), "--output", "scores"]) == 0
    return folder


def words_of(command, models):
    words = COMMANDS[command].split()
    return [command, *(str(models(word.strip("{}"))) if word[0] == "{" else word for word in words)]


@pytest.fixture(params=COMMANDS)
def job(request, models, inputs, monkeypatch, tmp_path):
    """The command, its words, and the path of its output, in a folder of its own."""
    if request.param == "quantize" and int8_obstacle():
        pytest.skip(str(int8_obstacle()))
    monkeypatch.chdir(inputs)
    out = tmp_path / OUTPUTS.get(request.param, "out")
    return request.param, [*words_of(request.param, models), "--output", str(out)], out


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def plant_old_output(command, out):
    """What an earlier run of the command has left."""
    out.write_text("old") if out.suffix else out.mkdir()
    write_manifest(out.parent if out.suffix else out, command, settings={}, inputs={}, counts={}, complete=True)
    if out.suffix:
        (out.parent / "manifest.json").rename(manifest_beside(out))
    else:
        (out / "stray.txt").write_text("of the old run")


def test_an_output_is_complete_and_alone_and_replaces_an_old_one_with_overwrite_only(job, capsys):
    command, words, out = job
    mine = out if out.suffix else out / "mine.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("of somebody else")
    assert cli.main([*words, "--overwrite"]) == 2 and "was not made by" in capsys.readouterr().err
    assert content(out.parent) == {mine.relative_to(out.parent): b"of somebody else"}
    mine.unlink() if out.suffix else shutil.rmtree(out)
    plant_old_output(command, out)
    old = content(out.parent)
    assert cli.main(words) == 2 and "exists; add --overwrite" in capsys.readouterr().err
    assert content(out.parent) == old
    assert cli.main([*words, "--overwrite"]) == 0
    manifest = json.loads((manifest_beside(out) if out.suffix else out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["stage"] == command and manifest.get("complete", True)
    assert not (out / "stray.txt").exists() and out.stat().st_size != len("old")
    expected = {out.name, f"{out.name}.manifest.json"} if out.suffix else {out.name}
    assert {path.name for path in out.parent.iterdir()} == expected
    if "resume" in options_of(COMMAND_LIST[command].settings_types()):
        made = content(out.parent)
        assert cli.main([*words, "--resume"]) == 0 and "is finished" in capsys.readouterr().out
        suffixes = (".safetensors", ".txt") if command in TRAININGS else ("",)  # whose report is written again
        assert all(content(out.parent)[name] == text for name, text in made.items() if name.name.endswith(suffixes))


def run_on_a_full_disk(words):
    """In a fork: a limit on the size of files gives the same kind of error as a full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout, sys.stderr = sys.__stdout__, io.StringIO()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    status = cli.main(words)
    errors = [line for line in sys.stderr.getvalue().splitlines() if "error: " in line]
    os._exit(0 if status == 2 and len(errors) == 1 and "no room to write" in errors[0] else 1)


def test_on_a_full_disk_the_old_output_stays_or_none_is_left(job):
    command, words, out = job
    if command not in TRAININGS:
        plant_old_output(command, out)
        words = [*words, "--overwrite"]
    before = content(out.parent)
    assert exit_status(run_on_a_full_disk, words) == 0
    if command in TRAININGS:
        assert not (out / "model.safetensors").exists()
    else:
        assert content(out.parent) == before
    assert not list(out.parent.glob(".*")), "something half-written is left"


def test_an_output_without_permission_is_refused_before_anything_is_written(job, monkeypatch, capsys):
    _, words, out = job
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    for path in (out, out.parent / "new" / out.name):
        assert cli.main([*words[:-1], str(path)]) == 2 and "no permission to write" in capsys.readouterr().err
    assert not list(out.parent.iterdir())
