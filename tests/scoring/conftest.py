"""A tiny stock BERT with a masked-language-model head and the vocabulary of BERT."""

from pathlib import Path

import pytest
import torch
from tiny_models import tiny_config
from transformers import BertConfig, BertForMaskedLM

from modeling_mybert import MyBertForMaskedLM, MyBertForPreTraining
from tokenization import MyBertTokenizer


@pytest.fixture(scope="session")
def tokenizer(minilm_folder) -> MyBertTokenizer:
    return MyBertTokenizer.from_pretrained(minilm_folder)


@pytest.fixture(scope="session")
def stock_model(tokenizer) -> BertForMaskedLM:
    torch.manual_seed(0)
    wide = {"initializer_range": 0.5}  # so that predictions depend on the context
    return BertForMaskedLM(tiny_config(len(tokenizer), BertConfig, max_position_embeddings=128, **wide)).eval()


@pytest.fixture(scope="session")
def folders(stock_model, tokenizer, tmp_path_factory) -> dict[str, Path]:
    """The same weights as a stock BERT, a MyBERT and a MyBERT with both pretraining heads."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("stock", "mybert", "pretraining")}
    stock_model.save_pretrained(found["stock"])
    MyBertForMaskedLM.from_pretrained(found["stock"]).save_pretrained(found["mybert"])
    MyBertForPreTraining.from_pretrained(found["stock"]).save_pretrained(found["pretraining"])
    for folder in found.values():
        tokenizer.save_pretrained(folder)
    return found
