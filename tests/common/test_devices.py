"""Device selection: `auto` is the accelerator of the machine, of any kind."""

import pytest
import torch

from modeling_mybert import MyBertConfig, MyBertModel
from mybert.common.errors import UserError
from mybert.inference.checkpoint import choose_device


@pytest.fixture
def model() -> MyBertModel:
    return MyBertModel(MyBertConfig.from_size("tiny", vocab_size=10))


def test_auto_is_the_accelerator(model, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("meta"))
    with pytest.raises(UserError, match="--device meta cannot be used"):  # on any machine
        choose_device("auto", model)


def test_auto_is_the_cpu_without_an_accelerator(model, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert choose_device("auto", model) == torch.device("cpu")
