"""A tiny corpus, teachers with and without a masked-language-model head, and a function that runs `distill`."""

import datasets
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertModel

from mybert.distillation.run import distill
from mybert.distillation.settings import DistillSettings
from mybert.pretraining.arguments import PretrainingArguments
from tokenization import MyBertTokenizer

QUICK = {"use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 16, "learning_rate": 1e-3}
PEAK = 1e9  # measuring it takes a second


@pytest.fixture(scope="session")
def tokenizer() -> MyBertTokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return MyBertTokenizer([*special, *(f"w{number}" for number in range(60))])


@pytest.fixture(scope="session")
def corpus(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    features = datasets.Features(
        {
            "input_ids": datasets.List(datasets.Value("int32")),
            "token_type_ids": datasets.List(datasets.Value("int8")),
            "next_sentence_label": datasets.Value("int8"),
        }
    )
    for name, rows, seed in ((".", 96, 0), ("validation", 24, 1)):
        rng = np.random.default_rng(seed)
        ids = [[2, *rng.integers(5, 25, rng.integers(6, 14)).tolist(), 3] for _ in range(rows)]
        columns = {
            "input_ids": ids,
            "token_type_ids": [[0] * len(row) for row in ids],
            "next_sentence_label": rng.integers(0, 2, rows).tolist(),
        }
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder / name)
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder


@pytest.fixture(scope="session")
def teachers(tokenizer, tmp_path_factory):
    """`bert`: 4 layers and both heads; `encoder`: no masked-language-model head; `other`: another vocabulary."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.2}
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=4, max_position_embeddings=32, **sizes)
    found = {name: tmp_path_factory.mktemp(name) for name in ("bert", "encoder", "other")}
    BertForPreTraining(config).save_pretrained(found["bert"])
    BertModel(config).save_pretrained(found["encoder"])
    BertForPreTraining(config).save_pretrained(found["other"])
    for name, folder in found.items():
        pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
        MyBertTokenizer(pieces if name != "other" else [*pieces[:-1], "x"]).save_pretrained(folder)
    return found


@pytest.fixture
def run(corpus, teachers, tmp_path):
    """A function that calls `distill` with quick defaults; settings and training arguments by name."""

    def call(teacher="bert", output=tmp_path / "out", **values):
        names = DistillSettings.__dataclass_fields__
        settings = {name: value for name, value in values.items() if name in names}
        arguments = QUICK | {name: value for name, value in values.items() if name not in names}
        return distill(
            DistillSettings(
                teacher=str(teachers.get(teacher, teacher)),
                corpus=str(corpus),
                output=str(output),
                peak_flops=PEAK,
                **settings,
            ),
            PretrainingArguments(output_dir=str(output), **arguments),
        )

    return call
