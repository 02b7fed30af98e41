"""Measured speed of training steps and evaluation on this machine, before a run starts."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainingArguments

from mybert.common.machine import threads
from mybert.common.progress import Bar
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import ExampleDataset, PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.initialization.initial_model import build_model
from mybert.pretraining.planning.flops_and_memory import count_parameters
from mybert.pretraining.settings import PretrainSettings
from mybert.training.muon import MuonAdamW

_STEPS, _MOST_SECONDS = 8, 10.0
"""Measured steps, and the longest time for one measurement, however slow the machine is."""


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
        limit: seconds that the measurement of the training may take; that of the evaluation takes half of them. Both
            end even if a single step takes longer.
        uses_muon: whether the run's optimizer is Muon, otherwise AdamW.
        tokens: real tokens of a batch.
    """
    model = build_model(settings, corpus.tokenizer, corpus.shape.longest).to(arguments.device).train()
    optimizer = MuonAdamW.of(model, (), arguments) if uses_muon else torch.optim.AdamW(model.parameters(), lr=0.0)
    masker = Masker.from_tokenizer(corpus.tokenizer, **settings.masking_rules(arguments.seed))
    collator = PretrainingCollator(masker, settings.padding_free, corpus.tokenizer.pad_token_id)
    dataset, count = ExampleDataset(corpus.train), max(1, round(tokens / corpus.shape.mean_length))

    def step(first: int, count: int) -> int:
        threads.share()
        keys = [(0, (first + i) % len(dataset)) for i in range(count)]
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

    limit = min(limit, _MOST_SECONDS)
    name = settings.size or "model"
    training = _tokens_per_second(step, count, limit, f"{name}: training")
    model.eval()
    with torch.no_grad():
        evaluation = _tokens_per_second(step, count, limit / 2, f"{name}: evaluation")
    costs = corpus.shape.costs(model.config, settings.mlm_probability, corpus.has_pairs)
    encoder = count_parameters(model.config)["encoder"]
    return Speed(training * costs.flops_per_token, training, evaluation, costs.parameters, encoder)


def _tokens_per_second(step: Callable[[int, int], int], count: int, limit: float, name: str) -> float:
    """Tokens per second of batches of `count` examples, or of the largest batch that is possible in `limit` seconds.

    Batches grow from one example, which also loads and compiles kernels.

    Args:
        step: computes a batch, given the numbers of its first example and of its examples; returns its tokens.
        name: for the progress bar.
    """
    end, size, seen = time.perf_counter() + limit, 1, 0
    measured: list[tuple[int, int, float]] = []
    with Bar(desc=name, unit="examples", leave=False) as bar:
        while sum(batch == count for batch, _, _ in measured) <= _STEPS:
            start = time.perf_counter()
            try:
                with contextlib.nullcontext() if measured else _Deadline(end):
                    tokens = step(seen, size)
                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()
            except _TooSlowError:
                return 1 / limit  # less than one example: a lower bound that no plan chooses
            seconds = time.perf_counter() - start
            measured.append((size, tokens, seconds))
            bar.update(size)
            seen, last = seen + size, size
            size = min(2 * size, count)
            if time.perf_counter() + seconds * size / last > end:
                break
    largest = [part[1:] for part in measured if part[0] == measured[-1][0]]
    largest = largest[1:] or largest
    return sum(tokens for tokens, _ in largest) / sum(seconds for _, seconds in largest)


class _TooSlowError(Exception):
    """The first step took longer than the measurement may take."""


class _Deadline(TorchDispatchMode):
    """Ends a computation at the first operation after `end`, a time of `perf_counter`."""

    def __init__(self, end: float):
        super().__init__()
        self._end = end

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if time.perf_counter() > self._end:
            raise _TooSlowError
        return func(*args, **(kwargs or {}))
