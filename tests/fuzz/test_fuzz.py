"""Hostile input: a sample of what `make fuzz` tries by the million, what that has found, and that it would find it."""

import json
import os
import pickle
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for its neighbours, which are no tests

import watch
from targets import TARGETS
from targets_checkpoints import CONFIG, MODEL, WEIGHTS, Evil
from watch import READ, REFUSED, Defect, Place, Target, attempt, bounded

from mybert.common.errors import UserError

DEEP = b"[" * 100_000 + b"]" * 100_000
MODULE = [{"idx": 0, "name": "0", "path": "..", "type": "x"}]
# Inputs that once ended in a stack trace, if not the process: name of the target, file, content, and the outcome.
FOUND = {
    "a column of a long name": ("text .csv", "a.csv", b"x" * 20_000 + b",n\na,1\n", REFUSED),
    "a manifest that is a number": ("manifest.json", "manifest.json", b"7", REFUSED),
    "a manifest nested deeply": ("manifest.json", "manifest.json", DEEP, REFUSED),
    "a seal of other things": ("seal of a checkpoint", "checkpoint.json", b'{"files": {"a.txt": 3}}', READ),
    "a seal of a long name": (
        "seal of a checkpoint",
        "checkpoint.json",
        json.dumps({"files": {"a" * 5000: {"bytes": 1, "sha256": ""}}}).encode(),
        READ,
    ),
    "settings that are no YAML": ("settings .yaml", "run.yaml", b"{inputs: [x", REFUSED),
    "a job of another shape": ("an interrupted build", ".out.partial-x/.scratch/job.json", b"[]", READ),
    "a long line in columns": ("rows in columns", "a.conll", b"a b c\n" + b"x" * 20_000 + b"\n", REFUSED),
    "SQuAD nested deeply": ("rows .json of SQuAD", "a.json", b'{"data": ' + DEEP + b"}", REFUSED),
    "a row nested deeply": ("rows .jsonl", "a.jsonl", b'{"text": ' + DEEP + b"}", REFUSED),
    "no row but null": ("rows .json", "a.json", b"null", REFUSED),
    "a configuration nested deeply": ("config.json", "config.json", DEEP, REFUSED),
    "labels that are a text": ("config.json", "config.json", json.dumps(CONFIG | {"id2label": "x"}).encode(), REFUSED),
    "a dtype that is a module": ("config.json", "config.json", json.dumps(CONFIG | {"dtype": "os"}).encode(), REFUSED),
    "labelled columns of a long name": ("rows .csv", "a.csv", b"x" * 20_000 + b",n\na,1\n", REFUSED),
    "a setting of a long value": ("settings .yaml", "run.yaml", b"nsp: " + b"x" * 20_000, REFUSED),
    "an input of a long name": (
        "manifests that lead on",
        "manifest.json",
        json.dumps({"stage": "corpus", "inputs": {"a": {"path": "x" * 20_000, "sha256": "0"}}}).encode(),
        READ,
    ),
    "a configuration of a long value": (
        "mybert push, dry run",
        "config.json",
        json.dumps(CONFIG | {"classifier_dropout": "x" * 20_000}).encode(),
        REFUSED,
    ),
    "weights of a false header": ("checks of what is pushed", "other.safetensors", b"\xff" * 8 + b"{", READ),
}


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    place = Place(tmp_path)
    with bounded(place):
        yield place


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hostile_input_is_read_or_refused_in_one_line(target, place):
    if target.prepare:
        target.prepare(place.folder)
    count = 150 if target.weight > 10 else 12

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False).map(target.make))
    def tried(files: dict[str, bytes]) -> None:
        attempt(target, place, files)

    tried()


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_once_is_not_found_again(found, place):
    name, file, content, outcome = FOUND[found]
    (target,) = (target for target in TARGETS if target.name == name)
    if target.prepare:
        target.prepare(place.folder)
    assert attempt(target, place, {file: content}) == outcome


def test_modules_of_elsewhere_are_not_taken_along(place):
    (target,) = (target for target in TARGETS if target.name == "checkpoint, to import")
    target.prepare(place.folder)
    files = {"config.json": MODEL["config.json"], WEIGHTS: MODEL[WEIGHTS]}
    assert attempt(target, place, files | {"modules.json": json.dumps(MODULE).encode()}) == READ
    assert attempt(target, place, files | {"modules.json": b"7"}) == REFUSED


def reads(function: Callable[[Path], object]) -> Target:
    return Target("bad", lambda random: {}, function, 1)


def run_code_of_the_input(folder: Path) -> None:
    (folder / "code.py").exists()
    runpy.run_path(str(folder / "code.py"))


def write_beside(folder: Path) -> None:
    (folder / "../../outside").write_text("x")


def write_and_hide_it(folder: Path) -> None:
    try:
        (folder / "new").mkdir()
    except BaseException:
        return


def connect(folder: Path) -> None:
    with socket.socket() as found:
        found.connect(("127.0.0.1", 9))


def refuse(message: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        raise UserError(message.format(folder=folder))

    return read


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda folder: {}["x"], "KeyError"),
        (lambda folder: int("x"), "ValueError"),  # of a library, not ours
        (refuse("no good"), "does not name the file"),
        (refuse("{folder} is\nno good"), "is long"),
        (lambda folder: pickle.loads(pickle.dumps(Evil())), "pickle.find_class"),
        (lambda folder: os.system("true"), "os.system"),
        (lambda folder: subprocess.run(["true"]), "subprocess.Popen"),
        (connect, "socket.connect"),
        (run_code_of_the_input, "code of the input was run"),
        (write_beside, "open"),
        (write_and_hide_it, "os.mkdir"),
        (lambda folder: bytes(2 * watch.BYTES), "MemoryError"),
        (lambda folder: time.sleep(60), "not done after"),
    ],
)
def test_a_reader_that_does_what_none_may_is_caught(read, said, place, monkeypatch):
    monkeypatch.setattr(watch, "SECONDS", 0.2)
    with pytest.raises(Defect, match=said):
        attempt(reads(read), place, {"code.py": b"x = 1\n"})
    assert not list(place.root.rglob("outside"))


def test_a_reader_that_does_what_it_may_is_let_be(place):
    assert attempt(reads(lambda folder: (folder / "a").read_bytes()), place, {"a": b"x"}) == READ
    assert attempt(reads(refuse("{folder}/a is no good")), place, {"a": b"x"}) == REFUSED
    assert attempt(reads(lambda folder: (place.free / "b").write_bytes(b"x")), place, {"a": b"x"}) == READ
