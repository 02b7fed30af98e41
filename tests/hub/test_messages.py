"""Messages of `mybert push`: for each mistake, what its line or list must say."""

import contextlib
import os
import pickle
import shlex
import socket
from functools import partial
from pathlib import Path

import pytest
import torch
from hub_server import REPO
from json_files import change_json
from safetensors.torch import load_file, save_file

from mybert.artifacts.manifest import write_json
from mybert.release.hub import space
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

EXCLUDED = "--create-pr opens a pull request on main; it excludes --revision and --tag"
SETTINGS = [  # words, and message; " … " in a message stands for anything
    *(
        (f"checkpoint --repo-id {name}", f"--repo-id: expected owner/name, such as … found '{name}'")
        for name in ("no-owner", "a/b/c", "https://hf.co/a/b")
    ),
    ("checkpoint --exclude log.jsonl 'draft/*'", "--exclude draft/* matches no file in checkpoint"),
    ("checkpoint --repo-id a/ä", "--repo-id: … alphanumeric … 'a/ä'"),
    ("checkpoint --create-pr --tag v1", EXCLUDED),
    ("checkpoint --create-pr --revision dev", EXCLUDED),
    ("checkpoint --revision a..b", "--revision"),
    ("checkpoint --tag refs/tags/v1", "--tag: expected … without refs/"),
    ("checkpoint --language English", "--language"),
    ("checkpoint --license Apache_License", "--license"),
    ("nowhere", "checkpoint nowhere is not a folder; name the folder of a trained model"),
    ("corpus", "it was made by `mybert corpus` and is no model; push a trained model"),
    ("scores", "it was made by `mybert evaluate` and is no model; push my-bert"),
    *(
        (f"checkpoint --exclude {name}", f"--exclude leaves out {name}")
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    ),
]


def test_a_space_without_gradio_is_refused_before_the_checkpoint_is_read(monkeypatch, assert_refused, tmp_path):
    monkeypatch.setattr(space, "_DEMO", ("no-such-package",))
    (tmp_path / "checkpoint").mkdir()
    words = ["push", "checkpoint", "--repo-id", REPO, "--space", REPO, "--dry-run"]
    assert_refused(words, "--space needs the demo: pip install 'mybert[demo]'")


@pytest.mark.parametrize(("words", "message"), SETTINGS)
def test_settings_that_cannot_be_used(checkpoint, tmp_path, assert_refused, words, message):
    for name, stage, inputs in (("corpus", "corpus", {}), ("scores", "evaluate", {"model": {"path": "my-bert"}})):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "manifest.json", {"stage": stage, "complete": True, "inputs": inputs})
    name = [] if "--repo-id" in words else ["--repo-id", REPO]
    assert_refused(["push", "--dry-run", "--no-verify", *name, *shlex.split(words)], message)


def make_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:  # its path has at most 107 bytes
        server.bind(path.name)


def link(target: str):
    return lambda path: path.symlink_to(target)


def write(content: bytes):
    return lambda path: path.write_bytes(content)


def config(**values):
    return "config.json", partial(change_json, **values)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def swap_lines(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([*lines[:7], lines[8], lines[7], *lines[9:]]), encoding="utf-8")


def with_tokens(count: int):
    pieces = [*SPECIAL_TOKENS, *(f"piece{number}" for number in range(count - len(SPECIAL_TOKENS)))]
    return lambda path: MyBertTokenizer(pieces).save_pretrained(path.parent)


def with_metadata(path: Path) -> None:
    save_file(load_file(path), path, metadata={"format": "pt", "note": SECRET.decode()})


SECRET = b"hf_" + b"a1B2" * 9
OUTSIDE, ABOVE = "outside the folder", "../../../../../../../../../etc/hostname"
FILES = [  # a name, what is made of it, and message
    *((name, write(b"a"), f"{name} is a pickle") for name in ("pytorch_model.bin", "old.pt", "a.pkl", "vectors.npy")),
    ("weights.data", write(pickle.dumps({"a": 1})), "weights.data is a pickle"),
    ("weights.data", partial(torch.save, {"a": 1}), "weights.data is a pickle"),
    *(
        (name, make, f"{name} is … {what} … --exclude '{name}'")
        for name, make, what in (
            ("absolute", link("/etc/hostname"), OUTSIDE),
            ("relative", link(ABOVE), OUTSIDE),
            ("folder", link("/etc"), "link to a folder"),
            ("nothing", link("not-there"), "link to no file"),
            ("itself", link("."), "link to a folder"),
            ("pipe", os.mkfifo, "named pipe"),
            ("socket", make_socket, "socket"),
        )
    ),
    *((name, Path.unlink, f"{name} is missing") for name in ("config.json", "model.safetensors", "tokenizer.json")),
    *(
        (*config(architectures=[f"MyBertFor{head}"]), f"--example has no effect on a MyBertFor{head}")
        for head in ("NextSentencePrediction", "QuestionAnswering", "MultipleChoice")
    ),
    (*config(architectures=["Mine"]), "names no head"),
    (*config(architectures=None), "names no head"),
    (*config(vocab_size="many"), "checkpoint checkpoint cannot be used … vocab_size"),
    (*config(vocab_size=208), "checkpoint checkpoint: vocab_size in config.json is 208"),
    (*config(model_type="gpt2"), "the model type is 'gpt2'"),
    (*config(model_type=None), "the model type is None"),
    ("model.safetensors", cut, "checkpoint checkpoint: its weights are damaged"),
    ("model.safetensors", with_metadata, "model.safetensors:1 holds a Hugging Face token"),
    ("notes.txt", write(SECRET), "notes.txt:1 holds a Hugging Face token"),
    ("notes.md", write(b"see /home/ann/model"), "notes.md:1 contains a local path"),
    *(("tokenizer.json", with_tokens(count), f"{count} tokens") for count in (6, 300)),
    ("vocab.txt", swap_lines, "vocab.txt and tokenizer.json differ"),
]


@pytest.mark.parametrize(("name", "make", "message"), FILES)
def test_a_file_that_cannot_be_published(checkpoint, assert_refused, name, make, message):
    make(checkpoint / name)
    assert_refused(["push", "checkpoint", "--repo-id", REPO, "--example", "a", "--dry-run", "--no-verify"], message)
