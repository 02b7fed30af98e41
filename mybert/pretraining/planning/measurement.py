"""Measured times of training steps and evaluation on this machine, before a run starts."""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainingArguments

from mybert.common.machine import threads
from mybert.common.progress import Bar
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import PretrainingCollator, example_lengths
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.data.scheduled_batches import Draw, Schedule, ScheduledDataset
from mybert.pretraining.initialization.initial_model import build_model
from mybert.pretraining.planning.flops_and_memory import CorpusShape, ModelCosts
from mybert.pretraining.settings import PretrainSettings
from mybert.training.muon import MuonAdamW

_STEPS, _MOST_SECONDS = 8, 8.0
"""Measured steps, and the longest time for the measurements of a model without its first examples."""


@dataclass(frozen=True)
class StepTimes:
    """Times of a model on this machine.

    Attributes:
        costs: the arithmetic of the model on the examples of the measured steps.
        gradients: seconds of the forward and backward pass for each token, by the name of the data type.
        optimizers: seconds of a step of each optimizer, with the clipping of the gradient.
        evaluation: tokens per second; 0 if it was not measured.
    """

    costs: ModelCosts
    gradients: dict[str, float]
    optimizers: dict[str, float]
    evaluation: float = 0.0

    def tokens_per_second(self, dtype: str, optimizer: str, batch: int, accumulated: int = 1) -> float:
        """Of steps with a number of accumulated batches, of `batch` tokens each."""
        tokens = batch * accumulated
        return tokens / (self.gradients[dtype] * tokens + self.optimizers[optimizer])

    def of(self, costs: ModelCosts) -> "StepTimes":
        """The expected times of a similar model, in proportion to its operations and parameters."""
        products = costs.flops_per_token / self.costs.flops_per_token
        steps = {
            "adamw": costs.parameters / self.costs.parameters,
            "muon": costs.muon_flops / max(self.costs.muon_flops, 1),
        }
        return StepTimes(
            costs,
            {name: seconds * products for name, seconds in self.gradients.items()},
            {name: seconds * steps[name] for name, seconds in self.optimizers.items()},
        )


def measure_steps(
    settings: PretrainSettings,
    arguments: TrainingArguments,
    corpus: Corpus,
    tokens: int,
    limit: float,
    *,
    types: Sequence[str],
    optimizers: Sequence[str],
    evaluates: bool = False,
) -> StepTimes:
    """Trains a new model for a few steps on examples of the corpus, as in the middle of the run, and discards it.

    Args:
        settings: with size, schedule and dropout of the run.
        tokens: real tokens of a batch.
        limit: seconds for all measurements but that of the evaluation, which has half of them. They end even if the
            computation of a single example takes longer.
        types, optimizers: names of the data types of products and of the optimizers to measure.
        evaluates: also measure the evaluation, in the last of the types.
    """
    threads.settle()  # else the first examples are those of threads that wait busily for a core of another program
    trial, name = _Trial(settings, arguments, corpus), settings.size or "model"
    limit = min(limit, _MOST_SECONDS)
    part = limit / (len(types) + len(optimizers))
    count = max(1, round(tokens / trial.shape.mean_length))
    forward_and_backward = {dtype: functools.partial(trial.train, getattr(torch, dtype)) for dtype in types}
    gradients = _seconds(forward_and_backward, count, part, f"{name}: training")
    gradients = {dtype: min(seconds, limit) for dtype, seconds in gradients.items()}  # a bound that no plan chooses
    by_optimizer = {optimizer: trial.optimizer_step(optimizer) for optimizer in optimizers}
    steps = _seconds(by_optimizer, 1, part, f"{name}: optimizer")
    costs = trial.shape.costs(trial.model.config, trial.draw.mlm_probability, corpus.has_pairs)
    # a step that did not end in time: as fast in products as training
    least = {"muon": costs.muon_flops * min(gradients.values()) / costs.flops_per_token, "adamw": 0.0}
    steps = {name: seconds if math.isfinite(seconds) else max(part, least[name]) for name, seconds in steps.items()}
    evaluation = 0.0
    if evaluates:
        forward = {"": functools.partial(trial.evaluate, getattr(torch, types[-1]))}
        evaluation = 1 / min(_seconds(forward, count, limit / 2, f"{name}: evaluation")[""], limit)
    return StepTimes(costs, gradients, steps, evaluation)


class _Trial:
    """A new model, with the batches of the middle of a run."""

    def __init__(self, settings: PretrainSettings, arguments: TrainingArguments, corpus: Corpus):
        self.arguments = arguments
        model = build_model(settings, corpus.tokenizer, corpus.shape.longest)
        self.model = model.to(arguments.device)  # type: ignore[arg-type]  # of a decorator of transformers
        masker = Masker.from_tokenizer(corpus.tokenizer, **settings.masking_rules(arguments.seed))
        self._collate = PretrainingCollator(masker)
        self._dataset = ScheduledDataset(corpus.train, masker.seed)
        schedule = Schedule.of(settings, corpus.shape.longest, 1)
        self.draw = Draw(0, 0, schedule.length(0.5), schedule.mlm_probability(0.5))
        self._whole = Draw(0, 0, corpus.shape.longest, settings.mlm_probability)
        self.shape = CorpusShape.of(np.minimum(example_lengths(corpus.train), self.draw.length))

    def train(self, dtype: torch.dtype, first: int, count: int) -> int:
        """Computes the gradients of a batch; returns its tokens."""
        self.model.train()
        self.model.zero_grad()
        tokens, loss = self._forward(dtype, first, count, self.draw)
        loss.backward()
        return tokens

    @torch.no_grad()
    def evaluate(self, dtype: torch.dtype, first: int, count: int) -> int:
        self.model.eval()
        return self._forward(dtype, first, count, self._whole)[0]

    def _forward(self, dtype: torch.dtype, first: int, count: int, draw: Draw) -> tuple[int, Tensor]:
        threads.share()
        keys = [(0, (first + i) % len(self._dataset)) for i in range(count)]
        examples, device = self._dataset.__getitems__((keys, draw)), self.arguments.device
        inputs = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in self._collate(examples).items()}
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            return len(examples.input_ids), self.model(**inputs).loss

    def optimizer_step(self, name: str) -> Callable[[int, int], int]:
        """A function that clips the gradient and makes a step."""
        model, arguments = self.model, self.arguments
        if name == "muon":
            optimizer: torch.optim.Optimizer = MuonAdamW.of(model, (), arguments)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), arguments.learning_rate or 0.0, fused=True)

        def step(first: int, count: int) -> int:
            if arguments.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.max_grad_norm)
            optimizer.step()
            return 1

        return step


def _seconds(steps: Mapping[str, Callable[[int, int], int]], count: int, limit: float, title: str) -> dict[str, float]:
    """Seconds per token of each step, with `count` examples, or with fewer if these do not fit into the time.

    The steps take turns, so that other programs slow all of them. Batches grow from one example; the first one, which
    loads and compiles kernels, does not count.

    Args:
        steps: by name, functions that compute a batch, given the numbers of its first example and of its examples,
            and return its tokens.
        limit: seconds for each of the steps, and for the first example of each.
        title: of the progress bar.

    Returns:
        By name; `inf` for a step whose first examples take longer than `limit`.
    """
    measured: dict[str, list[tuple[int, int, float]]] = {name: [] for name in steps}
    spent = dict.fromkeys(steps, 0.0)
    growing = itertools.takewhile(lambda size: size < count, (4**power for power in itertools.count()))
    seen = 0
    with Bar(desc=title, unit="examples", leave=False) as bar:
        for size in (1, *growing, *[count] * (_STEPS + 1)):
            for name, step in steps.items():
                done = measured[name]
                expected = done[-1][2] * size / done[-1][0] if len(done) > 1 else 0.0
                if spent[name] + expected > limit:
                    spent[name] = math.inf
                    continue
                start = time.perf_counter()
                try:
                    with contextlib.nullcontext() if len(done) > 1 else _Deadline(start + limit - spent[name]):
                        tokens = step(seen, size)
                    if torch.accelerator.is_available():
                        torch.accelerator.synchronize()
                except _TooSlowError:
                    spent[name] = math.inf
                    continue
                done.append((size, tokens, time.perf_counter() - start))
                spent[name] += done[-1][2] if len(done) > 1 else 0.0
                bar.update(size)
            seen += size
    return {name: _mean(done[1:]) for name, done in measured.items()}


def _mean(measured: list[tuple[int, int, float]]) -> float:
    """Seconds per token of the largest batches, without the first of them."""
    largest = [part for part in measured if part[0] == measured[-1][0]]
    largest = largest[1:] or largest
    return sum(seconds for *_, seconds in largest) / sum(tokens for _, tokens, _ in largest) if largest else math.inf


class _TooSlowError(Exception):
    """The first step took longer than the measurement may take."""


class _Deadline(TorchDispatchMode):
    """Ends a computation at the first operation after `end`, a time of `perf_counter`."""

    def __init__(self, end: float):
        super().__init__()
        self._end = end

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.perf_counter() > self._end:
            raise _TooSlowError
        return func(*args, **(kwargs or {}))
