import string
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertTokenizer, set_seed

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.data.batching import PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.objective import Pretraining
from mybert.pretraining.run import pretrain
from mybert.pretraining.settings import PretrainSettings

FEATURES = datasets.Features(
    {
        "input_ids": datasets.List(datasets.Value("int32")),
        "token_type_ids": datasets.List(datasets.Value("int8")),
        "next_sentence_label": datasets.Value("int8"),
    }
)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["well", "known", "hello", "token", "##ize", "##r", "##s", *"我们学习", *[f"w{i}" for i in range(120)]]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models this small are slower on many threads, much slower when other tests run beside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tokenizer():
    pieces = [*SPECIAL, *[f"[unused{i}]" for i in range(3)], *string.ascii_lowercase, *"-,.!", *WORDS]
    return BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, do_lower_case=True)


def make_pairs(tokenizer, n: int, seed: int = 0, longest: int = 24) -> dict:
    """Pairs that can be learned: the words of A and of a true B are of one kind, those of a random B of another."""
    rng = np.random.default_rng(seed)
    first = tokenizer.convert_tokens_to_ids("w0")
    columns = {"input_ids": [], "token_type_ids": [], "next_sentence_label": []}
    for _ in range(n):
        kind, random_next = rng.integers(0, 2, 2)
        a, b = rng.integers(3, (longest - 3) // 2 + 1, 2)
        words_a = first + kind * 8 + rng.integers(0, 4, a)
        words_b = first + (kind ^ random_next) * 8 + rng.integers(0, 4, b)
        ids = [tokenizer.cls_token_id, *words_a, tokenizer.sep_token_id, *words_b, tokenizer.sep_token_id]
        columns["input_ids"].append([int(i) for i in ids])
        columns["token_type_ids"].append([0] * (a + 2) + [1] * (b + 1))
        columns["next_sentence_label"].append(int(random_next))
    return columns


@pytest.fixture(scope="session")
def pairs(tokenizer):
    """A function (n, seed) -> a corpus in memory."""

    def build(n: int, seed: int = 0, longest: int = 24) -> datasets.Dataset:
        return datasets.Dataset.from_dict(make_pairs(tokenizer, n, seed, longest), features=FEATURES)

    return build


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory, pairs, tokenizer):
    """A corpus as `mybert corpus` leaves it: 200 training pairs, 40 held out, the tokenizer."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs(200, seed=1).save_to_disk(folder)
    pairs(40, seed=2).save_to_disk(folder / "validation")
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder


@pytest.fixture(scope="session")
def save_bert():
    """A function that saves a BERT of transformers, with the vocabulary of a tokenizer, and returns its folder."""

    def save(tokenizer, folder: Path, positions: int = 32, dropout: float = 0.1) -> str:
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
        sizes = SMALL | {"num_hidden_layers": 1, "max_position_embeddings": positions}
        config = BertConfig(vocab_size=len(tokenizer), **sizes, **dropouts)
        BertForPreTraining(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return save


@pytest.fixture
def run(corpus_folder, tmp_path):
    """A function that calls `pretrain` with quick defaults; settings and training arguments by name."""

    def call(output: str | Path = "out", **values) -> Path:
        names = PretrainSettings.__dataclass_fields__
        settings = {name: value for name, value in values.items() if name in names}
        arguments = {name: value for name, value in values.items() if name not in names}
        if not settings.keys() & {"size", "init_from", "time_budget"}:
            settings["size"] = "tiny"
        settings |= {"corpus": str(settings.get("corpus", corpus_folder)), "output": str(tmp_path / output)}
        quick = {"use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 16}
        return pretrain(
            PretrainSettings(**settings), PretrainingArguments(output_dir=settings["output"], **quick | arguments)
        )

    return call


@pytest.fixture
def make_trainer(tokenizer, pairs, tmp_path):
    """A function (training arguments; arguments of objective and trainer) → a trainer of a tiny model on 96 pairs."""

    def make(*, train=None, dropout=0.1, output="run", model=None, objective=None, trainer=None, **arguments):
        set_seed(0)
        if model is None:
            dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
            sizes = SMALL | {"vocab_size": len(tokenizer), "max_position_embeddings": 64}
            model = MyBertForPreTraining(MyBertConfig(**sizes, **dropouts))
        defaults = {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "eval_strategy": "no"}
        args = PretrainingArguments(output_dir=str(tmp_path / output), **(defaults | arguments))
        return Pretraining(train or pairs(96), **(objective or {})).trainer_of(
            args,
            pairs(37, seed=9),
            model=model,
            data_collator=PretrainingCollator(Masker.from_tokenizer(tokenizer)),
            processing_class=tokenizer,
            **(trainer or {}),
        )

    return make
