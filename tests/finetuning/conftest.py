"""A tiny checkpoint and small data sets."""

import string
from pathlib import Path

import pytest
import torch
from json_files import write_lines

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert import cli
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

GOOD, BAD = ("good", "fine", "lovely", "great"), ("bad", "dull", "awful", "boring")
NOUNS = ("film", "book", "song", "play", "story", "scene")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory) -> Path:
    """A random model with one layer of 32; its vocabulary is letters, digits and the words above.

    The words of each opinion have similar vectors, as after pretraining: a few steps separate them from any seed.
    """
    folder = tmp_path_factory.mktemp("tiny") / "checkpoint"
    characters = string.ascii_lowercase + string.digits
    vocabulary = [*SPECIAL_TOKENS, *string.punctuation, *characters, *(f"##{c}" for c in characters)]
    tokenizer = MyBertTokenizer([*vocabulary, *GOOD, *BAD, *NOUNS, "the", "very", "yes", "no"])
    torch.manual_seed(0)
    config = MyBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,  # narrow models learn little from 0.02
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = MyBertForPreTraining(config)
    for words, shift in ((GOOD, 1), (BAD, -1)):
        model.bert.embeddings.word_embeddings.weight.data[tokenizer.convert_tokens_to_ids([*words]), :16] += shift
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def words_of_finetune(task: str, model: Path, output: Path | str, *words) -> list[str]:
    """The command line of a quick `mybert finetune`."""
    quick = {
        "--learning-rate": "5e-3",
        "--per-device-train-batch-size": 8,
        "--max-length": 32,
        "--bootstrap": 20,
        "--disable-tqdm": "true",
        "--use-cpu": "true",
        "--validation-share": 0,
    }
    if {"--validation", "--validation-share", "--folds"} & {*words}:
        del quick["--validation-share"]
    if "--sweep" in words:
        del quick["--learning-rate"], quick["--per-device-train-batch-size"]
    fixed = ("--task", task, "--model", model, "--output", output, *(word for pair in quick.items() for word in pair))
    return ["finetune", *map(str, (*fixed, *words))]


@pytest.fixture
def write_rows(tmp_path):
    """A function that writes a file of JSON lines and returns its path."""
    return lambda name, rows: write_lines(tmp_path / name, rows)


@pytest.fixture
def finetune(tiny_checkpoint, tmp_path):
    """A function that runs `mybert finetune` from the tiny checkpoint and returns its exit status."""

    def run(task: str, *words, output: str = "out", model: Path = tiny_checkpoint) -> int:
        return cli.main(words_of_finetune(task, model, tmp_path / output, *words))

    return run


@pytest.fixture
def finetune_refused(tiny_checkpoint, assert_refused):
    """A function from a task, words of `mybert finetune` and the message with which the command refuses them."""
    return lambda task, words, message: assert_refused(
        words_of_finetune(task, tiny_checkpoint, "out", *words), message
    )


@pytest.fixture(scope="session")
def finetuned(tiny_checkpoint, tmp_path_factory):
    """A function that trains on rows in memory and returns the new folder, which tests must not change."""

    def run(task: str, train: list[dict], *words, **splits: list[dict]) -> Path:
        folder = tmp_path_factory.mktemp("finetuned")
        for name, rows in (("train", train), *splits.items()):
            words = (f"--{name}", write_lines(folder / f"{name}.jsonl", rows), *words)
        assert cli.main(words_of_finetune(task, tiny_checkpoint, folder / "model", *words)) == 0
        return folder / "model"

    return run


@pytest.fixture(scope="session")
def classifier(finetuned, opinions) -> Path:
    """A model trained on `opinions`; tests must not change it."""
    return finetuned("text-classification", opinions, "--num-train-epochs", 3)


@pytest.fixture(scope="session")
def opinions() -> list[dict]:
    """Texts whose label depends on one word."""
    return [
        {"text": f"{'the' if i % 2 else 'a'} {word} {noun}", "label": label}
        for i, noun in enumerate(NOUNS)
        for words, label in ((GOOD, "good"), (BAD, "bad"))
        for word in words
    ]
