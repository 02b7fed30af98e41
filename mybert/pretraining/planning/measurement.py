"""Measured speed of training steps and evaluation on this machine, before a run starts."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import TrainingArguments

from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset, PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.initialization.initial_model import build_model
from mybert.pretraining.planning.flops_and_memory import count_parameters
from mybert.pretraining.settings import PretrainSettings
from mybert.training.muon import MuonAdamW

_WARM_UP, _STEPS = 2, 8


@dataclass(frozen=True)
class Speed:
    """Useful operations and real tokens per second in training, tokens per second in evaluation; parameters."""

    flops: float
    tokens: float
    evaluation: float
    parameters: int
    encoder: int


def measure_speed(
    settings: PretrainSettings,
    arguments: TrainingArguments,
    corpus: Corpus,
    limit: float,
    uses_muon: bool,
    tokens: int,
) -> Speed:
    """Trains a new model for a few steps on examples of the corpus, and evaluates some. The model is discarded.

    Optimizer and batch are the run's, because the optimizer's share of a step depends on both.

    Args:
        settings: with the size to measure.
        limit: seconds after which no further step is measured.
        uses_muon: whether the run's optimizer is Muon, otherwise AdamW.
        tokens: real tokens of a batch.
    """
    model = build_model(settings, corpus.tokenizer, corpus.shape.longest).to(arguments.device).train()
    optimizer = MuonAdamW.of(model, (), arguments) if uses_muon else torch.optim.AdamW(model.parameters(), lr=0.0)
    masker = Masker.from_tokenizer(corpus.tokenizer, **settings.masking_rules(arguments.seed))
    collator = PretrainingCollator(masker, settings.padding_free, corpus.tokenizer.pad_token_id)
    dataset, count = ExampleDataset(corpus.train), max(1, round(tokens / corpus.shape.mean_length))

    def step(number: int) -> int:
        keys = [(0, (number * count + i) % len(dataset)) for i in range(count)]
        batch = collator(dataset.__getitems__(keys))
        inputs = {k: v.to(arguments.device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        half = torch.autocast(arguments.device.type, torch.bfloat16) if arguments.bf16 else contextlib.nullcontext()
        with half:
            outputs = model(**inputs)
        if model.training:
            outputs.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return batch["input_ids"].numel()

    training = _tokens_per_second(step, limit)
    model.eval()
    with torch.no_grad():
        evaluation = _tokens_per_second(step, limit / 2)
    costs = corpus.shape.costs(model.config, settings.mlm_probability, corpus.has_pairs)
    encoder = count_parameters(model.config)["encoder"]
    return Speed(training * costs.flops_per_token, training, evaluation, costs.parameters, encoder)


def _tokens_per_second(step: Callable[[int], int], limit: float) -> float:
    """Tokens per second over a few steps after the first ones, which load and compile kernels."""
    start = first = time.perf_counter()
    tokens = 0
    for number in range(_WARM_UP + _STEPS):
        found = step(number)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        if number < _WARM_UP:
            first = time.perf_counter()
            continue
        tokens += found
        if time.perf_counter() - start > limit:
            break
    return tokens / (time.perf_counter() - first)
