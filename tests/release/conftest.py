"""A folder with a tiny model and tokenizer for each head."""

import copy
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

    def save(name: str, folder="", seed=0, last_piece=PIECES[-1], cased=False, **settings) -> Path:
        torch.manual_seed(seed)
        config = copy.deepcopy(tiny_config)
        for key, value in settings.items():
            setattr(config, key, value)
        model = getattr(modeling_mybert, name)(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)  # biases and norms too, so that all tensors differ
        path = tmp_path / (folder or name)
        model.save_pretrained(path)
        MyBertTokenizer([*PIECES[:-1], last_piece], do_lower_case=not cased).save_pretrained(path)
        return path

    return save
