from pathlib import Path

import pytest
import torch
from tiny_domain import CONFIG, PIECES, make_documents, write_documents

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from tokenization import MyBertTokenizer


@pytest.fixture(scope="session")
def bert(tmp_path_factory) -> Path:
    """A tiny pretrained MyBERT with [unusedN] in its vocabulary."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    MyBertForPreTraining(MyBertConfig(**CONFIG, pad_token_id=0, initializer_range=0.2)).save_pretrained(folder)
    MyBertTokenizer(PIECES, model_max_length=64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("texts")
    return {
        "domain": write_documents(folder / "domain.jsonl", make_documents(40)),
        "general": write_documents(folder / "general.jsonl", make_documents(40, seed=1)),
    }


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
