"""Choice of size, optimizer, data type and batch for a time budget, from steps measured on this machine."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import TrainingArguments

from modeling_mybert import MyBertConfig
from modeling_mybert.configuration_mybert import NAMED_SIZES
from mybert.pretraining.clock import ClockProgress
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.flops_and_memory import ModelCosts, count_parameters
from mybert.pretraining.planning.measurement import StepTimes, measure_steps
from mybert.pretraining.planning.rules import budget_rules
from mybert.pretraining.planning.scaling_law import scaling_law
from mybert.pretraining.settings import PretrainSettings
from mybert.training.arguments import bfloat16_is_faster

FLOAT, HALF = "float32", "bfloat16"
_MEASURING, _LEAST_SECONDS = 0.02, 4.0
"""Share of the budget for the first measurement, and seconds that it may take even if these are more."""


@dataclass(frozen=True)
class Candidate:
    """A way to spend the time.

    Attributes:
        size: named size; None for a checkpoint that is continued.
        batch: tokens of a batch.
        tokens: of the run.
        loss: expected held-out loss, without its rise after many passes.
        speed: tokens per second of a process.
        times: of this size, measured or estimated from a similar one.
    """

    size: str | None
    optimizer: str
    dtype: str
    batch: int
    tokens: float
    loss: float
    speed: float
    times: StepTimes

    @property
    def rank(self) -> tuple[float, float, float]:
        """Lower is better. At the highest expected loss, more tokens are; of as many tokens, faster ones."""
        return self.loss, -effective_tokens(self.tokens, self.optimizer), -self.speed


def measuring_seconds(budget: float, measured: int = 0) -> float:
    """The longest time for the measurement of a size, of which so many have been measured."""
    return max(_MEASURING * budget, _LEAST_SECONDS) / (1 + measured)


def effective_tokens(tokens: float, optimizer: str) -> float:
    """The number of tokens that Muon needs for the same loss."""
    return tokens * budget_rules()["optimizers"]["tokens"][optimizer]


@dataclass(frozen=True)
class Chooser:
    """Compares sizes, optimizers and data types for the time that is left.

    Args:
        settings: with schedule and dropout of the run.
        optimizers, types: names of those to compare.
        batch: tokens of a batch; None to choose.
    """

    settings: PretrainSettings
    arguments: TrainingArguments
    corpus: Corpus
    clock: ClockProgress
    optimizers: Sequence[str]
    types: Sequence[str]
    batch: int | None

    def choose(self) -> list[Candidate]:
        """The candidates of the best size, the best one first.

        Measures one size, then the best one, until that is a measured one. A size that is given is only measured.
        """
        sizes = self._sizes()
        size, measured = sizes[min(1, len(sizes) - 1)], dict[str | None, Any]()
        most: dict[str | None, int] = budget_rules()["batch"]["most"]  # a checkpoint has that of the largest size
        while size not in measured:
            settings = dataclasses.replace(self.settings, size=size)
            tokens = self.batch or most.get(size, max(most.values()))
            limit = measuring_seconds(self.clock.budget, len(measured))
            measured[size] = measure_steps(
                settings, self.arguments, self.corpus, tokens, limit, types=self.types, optimizers=self.optimizers
            )
            candidates = sorted(self._candidates(measured), key=lambda candidate: candidate.rank)
            size = candidates[0].size
        return [candidate for candidate in candidates if candidate.size == size]

    def _sizes(self) -> list[str | None]:
        if self.settings.size is not None or self.settings.init_from is not None:
            return [self.settings.size]
        return budget_rules()["sizes"]

    def _candidates(self, measured: dict[str | None, StepTimes]) -> Iterable[Candidate]:
        sizes = self._sizes()
        for size in sizes:
            nearest = min(measured, key=lambda name: abs(sizes.index(name) - sizes.index(size)))
            times = measured[nearest]
            if size != nearest:
                config = MyBertConfig.from_size(str(size), vocab_size=len(self.corpus.tokenizer))
                times = times.of(dataclasses.replace(times.costs, config=config))
            for optimizer in self.optimizers:
                for dtype in self.types:
                    yield self._candidate(size, optimizer, dtype, times)

    def _candidate(self, size: str | None, optimizer: str, dtype: str, times: StepTimes) -> Candidate:
        seconds, accumulated = self.clock.training_seconds, self.arguments.gradient_accumulation_steps
        most = most_tokens_of(self.corpus.shape.tokens)
        each, step = times.gradients[dtype] * accumulated, times.optimizers[optimizer]
        name = size or nearest_size(times.costs)
        used = min(seconds, times.gradients[dtype] * most / self.arguments.world_size)
        batch = self.batch or tokens_per_batch(name, used, each, step, self.corpus.shape.longest)
        speed = times.tokens_per_second(dtype, optimizer, batch, accumulated)
        tokens = min(speed * seconds * self.arguments.world_size, most)
        parameters = count_parameters(times.costs.config)["encoder"]
        counted = effective_tokens(tokens, optimizer)
        # Without the rise after many passes, by which slower candidates would seem better; `most` limits the passes.
        loss = scaling_law().learned(parameters, counted, self.corpus.shape.tokens, times.costs.config.vocab_size)
        return Candidate(size, optimizer, dtype, batch, tokens, loss, speed, times)


def most_tokens_of(unique: float) -> float:
    """The largest number of tokens that a run with a time budget sees of a text with `unique` tokens."""
    return budget_rules()["passes"]["most"] * unique


def tokens_per_batch(size: str, seconds: float, each: float, step: float, longest: int) -> int:
    """Tokens of a batch by the rule, in a run of `seconds`: each token takes `each` and each optimizer step `step`."""
    rule = budget_rules()["batch"]
    fits = (seconds / rule["steps"] - step) / each
    return int(max(min(rule["most"][size], fits), rule["least"], longest))


def nearest_size(costs: ModelCosts) -> str:
    """The named size with the most similar number of encoder parameters."""
    encoder = count_parameters(costs.config)["encoder"]
    sizes = {size: count_parameters(MyBertConfig.from_size(size))["encoder"] for size in NAMED_SIZES}
    return min(sizes, key=lambda size: abs(math.log(sizes[size] / encoder)))


def types_to_compare(arguments: TrainingArguments, is_given: bool) -> list[str]:
    """The data types among which a run chooses; bfloat16 only where its products are not emulated."""
    if arguments.fp16:
        return [FLOAT if arguments.device.type == "cpu" else "float16"]
    if is_given:
        return [HALF if arguments.bf16 else FLOAT]
    return [FLOAT, HALF] if bfloat16_is_faster(arguments.device) else [FLOAT]
