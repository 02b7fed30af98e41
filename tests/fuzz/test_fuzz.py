"""Malformed input for every reader. `make fuzz INPUTS=1000000` tries more inputs of the same kind.

FUZZ_INPUTS is the total number of inputs, FUZZ_FIRST the number of the first: `FUZZ_FIRST=4711 FUZZ_INPUTS=0 pytest
tests/fuzz -k "text .json"` repeats one input. Input N of a target is always the same.
"""

import json
import os
import pickle
import runpy
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the other modules of this folder

import sandbox
import targets_checkpoints
import targets_finetuning
import targets_release
import targets_text
from sandbox import READ, REFUSED, Defect, Place, Target, attempt, bounded
from targets_checkpoints import CONFIG, Evil

from mybert.common.errors import UserError

TARGETS = {
    target.name: target
    for module in (targets_text, targets_finetuning, targets_checkpoints, targets_release)
    for target in module.TARGETS
}
WEIGHTS_SUM = sum(target.weight for target in TARGETS.values())
INPUTS, FIRST = (int(os.environ.get(name, default)) for name, default in (("FUZZ_INPUTS", 3000), ("FUZZ_FIRST", 0)))
DEEP = b"[" * 100_000 + b"]" * 100_000
LONG = "x" * 20_000


def config_with(**values) -> bytes:
    return json.dumps(CONFIG | values).encode()


# Inputs that once ended in a stack trace or a crash: name of the target, file, content, and the outcome.
FIXED = {
    "a column with a long name": ("text .csv", "a.csv", f"{LONG},n\na,1\n".encode(), REFUSED),
    "a manifest that is a number": ("manifest.json", "manifest.json", b"7", REFUSED),
    "a deeply nested manifest": ("manifest.json", "manifest.json", DEEP, REFUSED),
    "a seal of another structure": ("seal of a checkpoint", "checkpoint.json", b'{"files": {"a.txt": 3}}', READ),
    "a seal with a long name": (
        *("seal of a checkpoint", "checkpoint.json"),
        *(json.dumps({"files": {LONG: {"bytes": 1, "sha256": ""}}}).encode(), READ),
    ),
    "settings that are not YAML": ("settings .yaml", "run.yaml", b"{inputs: [x", REFUSED),
    "a setting with a long value": ("settings .yaml", "run.yaml", f"nsp: {LONG}".encode(), REFUSED),
    "a job of another structure": ("interrupted build", ".out.partial-x/.scratch/job.json", b"[]", READ),
    "a long line in columns": ("rows in columns", "a.conll", f"a b c\n{LONG}\n".encode(), REFUSED),
    "deeply nested SQuAD": ("rows .json of SQuAD", "a.json", b'{"data": ' + DEEP + b"}", REFUSED),
    "a deeply nested row": ("rows .jsonl", "a.jsonl", b'{"text": ' + DEEP + b"}", REFUSED),
    "null instead of rows": ("rows .json", "a.json", b"null", REFUSED),
    "labelled columns with a long name": ("rows .csv", "a.csv", f"{LONG},n\na,1\n".encode(), REFUSED),
    "a deeply nested configuration": ("config.json", "config.json", DEEP, REFUSED),
    "labels that are a text": ("config.json", "config.json", config_with(id2label="x"), REFUSED),
    "a dtype that is a module": ("config.json", "config.json", config_with(dtype="os"), REFUSED),
    "an input with a long name": (
        *("manifests of inputs", "manifest.json"),
        *(json.dumps({"stage": "corpus", "inputs": {"a": {"path": LONG, "sha256": "0"}}}).encode(), READ),
    ),
    "a long value to push": ("mybert push, dry run", "config.json", config_with(classifier_dropout=LONG), REFUSED),
    "weights with a false header": ("checks before an upload", "other.safetensors", b"\xff" * 8 + b"{", READ),
}


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    place = Place(tmp_path)
    with bounded(place):
        yield place


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_malformed_input_is_read_or_refused_in_one_line(target, place):
    if target.prepare:
        target.prepare(place.folder)
    for number in range(FIRST, FIRST + max(1, round(INPUTS * target.weight / WEIGHTS_SUM))):
        files = target.make(Random(f"{target.name}/{number}"))
        try:
            attempt(target, place, files)
        except Defect as defect:
            pytest.fail(f"input {number} of {target.name}: {defect}\n{repr(files)[:5000]}")


@pytest.mark.parametrize("case", FIXED)
def test_a_fixed_defect_stays_fixed(case, place):
    name, file, content, outcome = FIXED[case]
    if TARGETS[name].prepare:
        TARGETS[name].prepare(place.folder)
    assert attempt(TARGETS[name], place, {file: content}) == outcome


def refuse(message: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        raise UserError(message.format(folder=folder))

    return read


def write_in_secret(folder: Path) -> None:
    try:
        (folder / "new").mkdir()
    except BaseException:
        return


@pytest.mark.parametrize(
    ("read", "defect"),
    [
        (lambda folder: int("x"), "ValueError"),
        (refuse("no good"), "does not name the file"),
        (refuse("{folder} is\nno good"), "is long"),
        (lambda folder: pickle.loads(pickle.dumps(Evil())), "pickle.find_class"),
        (lambda folder: os.system("true"), "os.system"),
        (lambda folder: socket.create_connection(("127.0.0.1", 9)), "socket"),
        (lambda folder: runpy.run_path(str(folder / "code.py")), "code of the input was run"),
        (lambda folder: (folder / "../../outside").write_text("x"), "open"),
        (write_in_secret, "os.mkdir"),
        (lambda folder: bytes(2 * sandbox.BYTES), "MemoryError"),
    ],
)
def test_the_sandbox_reports_a_defect(read, defect, place):
    with pytest.raises(Defect, match=defect):
        attempt(Target("bad", lambda random: {}, read), place, {"code.py": b"x = 1\n"})
    assert not list(place.root.rglob("outside"))


def compute(folder: Path) -> None:
    while True:
        pass


@pytest.mark.parametrize(("limit", "read"), [("SECONDS", compute), ("MOST_SECONDS", lambda folder: time.sleep(600))])
def test_the_sandbox_ends_a_reader_that_never_ends(limit, read, place, monkeypatch):
    monkeypatch.setattr(sandbox, limit, 0.2)
    with pytest.raises(Defect, match="not done after"):
        attempt(Target("bad", lambda random: {}, read), place, {})
