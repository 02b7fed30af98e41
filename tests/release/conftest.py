"""A folder with a tiny model and tokenizer for each head."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import modeling_mybert
from tokenization import MyBertTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"piece{i}" for i in range(94))]


@pytest.fixture
def saved_head(tiny_config, tmp_path) -> Callable[..., Path]:
    """Saves a model of the named class, with the given settings of its configuration, and a tokenizer."""

    def save(name: str, **settings) -> Path:
        torch.manual_seed(0)
        for key, value in settings.items():
            setattr(tiny_config, key, value)
        model = getattr(modeling_mybert, name)(tiny_config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)  # biases and norms too, so that all tensors differ
        folder = tmp_path / name
        model.save_pretrained(folder)
        MyBertTokenizer(PIECES).save_pretrained(folder)
        return folder

    return save
