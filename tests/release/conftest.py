"""A folder with a tiny model and tokenizer for each head."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from json_files import write_lines

import modeling_mybert
from mybert import quantize
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


@pytest.fixture(scope="session")
def quantised(models, tmp_path_factory) -> Callable[[str], Path]:
    """A function from a name of `models` to the folder of its int8 form, beside texts.jsonl."""
    folder = tmp_path_factory.mktemp("int8")
    texts = ("the great film sings", "ann bert in rome", "dull song, very dull song", "who is where? the sea!")
    write_lines(folder / "texts.jsonl", [{"text": text} for text in texts * 8])

    def quantised(name: str) -> Path:
        if not (folder / name).exists():
            quantize(model=str(models(name)), texts=[str(folder / "texts.jsonl")], output=str(folder / name))
        return folder / name

    return quantised
