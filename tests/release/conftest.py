"""What the tests of export and import share: a folder for each head, of a tiny model and tokenizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import modeling_mybert
from tokenization import MyBertTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"piece{i}" for i in range(94))]


@pytest.fixture
def saved_head(tiny_config, tmp_path) -> Callable[..., Path]:
    """From the name of a class and settings of its configuration to a folder with such a model and a tokenizer."""

    def save(name: str, **settings) -> Path:
        torch.manual_seed(0)
        for key, value in settings.items():
            setattr(tiny_config, key, value)
        model = getattr(modeling_mybert, name)(tiny_config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)  # biases and norms too: none is to be mistaken for another
        folder = tmp_path / name
        model.save_pretrained(folder)
        MyBertTokenizer(PIECES).save_pretrained(folder)
        return folder

    return save
