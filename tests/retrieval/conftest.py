"""A tiny BERT with the tokenizer of the real checkpoint, and the BERT without its modules."""

import shutil
from pathlib import Path

import pytest

from modeling_mybert import MyBertConfig, MyBertForPreTraining

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture(scope="session")
def tiny(minilm_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    MyBertForPreTraining(MyBertConfig(**SIZES)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(minilm_folder / name, folder)
    return folder
