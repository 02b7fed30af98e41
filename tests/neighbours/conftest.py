"""Tiny models of every head with the BERT of the same weights, and inputs."""

from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import tiny_config
from transformers import BertConfig, BertTokenizer

import modeling_mybert
from modeling_mybert import AUTO_MAP

HEADS = sorted({name.split(".")[1] for name in AUTO_MAP.values()} - {"MyBertConfig", "MyBertLMHeadModel"})
LABELS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}


@pytest.fixture(params=HEADS)
def head(request) -> str:
    """The name of a head; tests run for each."""
    return request.param


@pytest.fixture(scope="session")
def bert_folders(minilm_folder, tmp_path_factory):
    """A function from a head to the folder of a tiny BERT with a real tokenizer and widely different logits.

    Without dropout, so that training is deterministic.
    """
    root, made = tmp_path_factory.mktemp("heads"), {}

    def folder(head: str) -> Path:
        if head not in made:
            torch.manual_seed(7)
            more = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3}
            more |= {"max_position_embeddings": 128} | ({} if head == "MyBertForQuestionAnswering" else LABELS)
            config = tiny_config(30522, BertConfig, **more)
            made[head] = root / head
            model = getattr(transformers, head.removeprefix("My"))(config)
            model.save_pretrained(made[head])
            BertTokenizer.from_pretrained(minilm_folder).save_pretrained(made[head])
        return made[head]

    return folder


@pytest.fixture
def pair(bert_folders):
    """A function from a head to (MyBERT, BERT) with the same weights, in evaluation mode."""

    def load(head: str):
        folder = bert_folders(head)
        theirs = getattr(transformers, head.removeprefix("My")).from_pretrained(folder)
        return getattr(modeling_mybert, head).from_pretrained(folder).eval(), theirs.eval()

    return load


@pytest.fixture
def inputs_of():
    """A function from a head to a padded batch with labels."""
    return _inputs_of


def _inputs_of(head: str) -> dict:
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(1000, 2000, (4, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    tokens, classes = ids.masked_fill(mask == 0, -100), torch.tensor([0, 1, 1, 0])
    if head == "MyBertForMultipleChoice":
        batch = {name: value.unflatten(0, (2, 2)) for name, value in batch.items()}
        classes = classes[:2]
    labels = {
        "MyBertModel": {},
        "MyBertForPreTraining": {"labels": tokens, "next_sentence_label": classes},
        "MyBertForMaskedLM": {"labels": tokens},
        "MyBertForTokenClassification": {"labels": torch.where(tokens == -100, -100, tokens % 3)},
        "MyBertForQuestionAnswering": {"start_positions": classes, "end_positions": classes + 2},
    }
    return {**batch, **labels.get(head, {"labels": classes})}
