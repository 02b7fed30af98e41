"""Fixtures: a local Hub, a trained checkpoint, and clean processes without this project."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, file_download, hf_api
from huggingface_hub.utils import _http, close_session
from transformers.utils import hub as transformers_hub

sys.path.insert(0, str(Path(__file__).parent))  # for hub_server and hub_protocol

from hub_server import REPO, WRITER, Hub

from mybert.corpus.build import build_corpus
from mybert.corpus.settings import CorpusSettings, TokenizerSettings
from mybert.corpus.train_tokenizer import build_tokenizer
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.run import pretrain
from mybert.pretraining.settings import PretrainSettings
from mybert.release.hub.push import push
from mybert.release.settings import PushSettings

WORDS = [
    *("the", "a", "cat", "dog", "sat", "ran", "on", "in", "mat", "house"),
    *("big", "red", "and", "but", "ate", "sky"),
]


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def client(hub, monkeypatch) -> list[float]:
    """Connects the client in this process to the Hub, logged in. Returns its waits between attempts, in seconds."""
    waits: list[float] = []
    monkeypatch.setenv("HF_TOKEN", WRITER)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(hf_api.api, "endpoint", hub.url)  # made at import
    monkeypatch.setattr(transformers_hub, "_hf_api", None)  # made at transformers' first call, in whichever test
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for module in (_http, file_download):
        monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(module.time), "sleep": waits.append}))
    close_session()
    yield waits
    close_session()


@pytest.fixture
def send(checkpoint):
    """Pushes a checkpoint, by default without verification."""

    def call(folder=checkpoint, **settings):
        return push(PushSettings(**{"model": str(folder), "repo_id": REPO, "verify": False, **settings}))

    return call


def train_chain(root: Path, text: str = "books.txt") -> Path:
    """A checkpoint after four steps of pretraining, with its text, tokenizer and corpus in the folder `root`."""
    sentences = [" ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 8)).capitalize() + "." for i in range(1, 200)]
    documents = ["\n".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5)]
    (root / text).write_text("\n\n".join(documents), encoding="utf-8")
    names = {name: str(root / name) for name in (text, "tokenizer", "corpus", "model")}
    build_tokenizer(TokenizerSettings([names[text]], output=names["tokenizer"], vocab_size=200))
    options = {"max_length": 32, "validation_share": 0.2, "num_proc": 1}
    build_corpus(CorpusSettings([names[text]], tokenizer=names["tokenizer"], output=names["corpus"], **options))
    arguments = PretrainingArguments(
        output_dir=names["model"], max_steps=4, use_cpu=True, disable_tqdm=True, logging_steps=1, save_strategy="no"
    )
    pretrain(PretrainSettings(corpus=names["corpus"], output=names["model"], size="tiny"), arguments)
    return Path(names["model"])


@pytest.fixture(scope="session")
def trained(once) -> Path:
    """The checkpoint of `train_chain`."""
    return once("chain", train_chain) / "model"


@pytest.fixture
def checkpoint(trained, tmp_path) -> Path:
    """A copy of `trained` that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "checkpoint"))


@pytest.fixture
def environment(hub, tmp_path):
    """The variables of a process with its own cache folder and, unless offline, with the Hub."""

    def environment(home="home", token=None, offline=False) -> dict[str, str]:
        chosen = {"HF_HOME": str(tmp_path / home), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        chosen |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        return chosen | {"HF_HUB_OFFLINE": "1" if offline else "0"} | ({"HF_TOKEN": token} if token else {})

    return environment


@pytest.fixture
def process(environment, tmp_path):
    """Runs Python in a process with the variables of `environment`."""

    def run(*command, **options) -> subprocess.CompletedProcess:
        kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH")
        return subprocess.run(
            [sys.executable, "-P", *map(str, command)],
            env={name: os.environ[name] for name in kept if name in os.environ} | environment(**options),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def clean_process(environment, clean_processes, tmp_path):
    """Runs a script in a fork that cannot import this project, with the variables of `environment`.

    Returns the JSON in its last line.
    """

    def run(script: str, *arguments, **options):
        start = f"import importlib, os, sys; os.environ |= {environment(**options)}\n"
        start += "from huggingface_hub import constants; importlib.reload(constants)  # was imported without them\n"
        (tmp_path / "script.py").write_text(start + script)
        done = clean_processes(tmp_path / "script.py", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "[y/N]" not in done.stdout, "no questions"
        return json.loads(done.stdout.splitlines()[-1])

    return run
