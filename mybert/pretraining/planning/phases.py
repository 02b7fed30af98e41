"""The phases of a pretraining run: steps, tokens, operations and memory, known before the first step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.pretraining.planning.flops_and_memory import ModelCosts, count_parameters


@dataclass(frozen=True)
class CorpusShape:
    """Lengths of a corpus: number of sequences, their total and greatest length in tokens, sum of squared lengths."""

    examples: int
    tokens: int
    longest: int
    squares: int

    @classmethod
    def of(cls, lengths: np.ndarray) -> "CorpusShape":
        """The shape of sequences with these lengths, (N,) int64."""
        return cls(len(lengths), int(lengths.sum()), int(lengths.max()), int((lengths**2).sum()))

    @property
    def mean_length(self) -> float:
        return self.tokens / self.examples

    def costs(self, config: PreTrainedConfig, mlm_probability: float, has_pairs: bool) -> ModelCosts:
        return ModelCosts(config, self.mean_length, self.squares / self.tokens, mlm_probability, has_pairs)


@dataclass(frozen=True)
class Phase:
    """One phase of a run: steps that read one corpus.

    Attributes:
        sequences: sequences per step, over all processes and accumulated batches; a mean under a token budget.
        device_sequences: sequences per forward pass of one device.
    """

    corpus: CorpusShape
    steps: int
    sequences: float
    device_sequences: float
    costs: ModelCosts

    @property
    def tokens_per_step(self) -> float:
        return self.sequences * self.corpus.mean_length

    @property
    def flops_per_step(self) -> float:
        return self.tokens_per_step * self.costs.flops_per_token

    def memory(self, **how: Any) -> float:
        """Peak bytes on one device; `how` as in `ModelCosts.memory`."""
        return sum(self.costs.memory(self.device_sequences * self.corpus.mean_length, **how).values())


def phase_at(phases: list[Phase], step: int) -> Phase:
    """The phase of step number `step`, counted from 1."""
    for phase in phases[:-1]:
        if step <= phase.steps:
            return phase
        step -= phase.steps
    return phases[-1]


def flops_left(phases: list[Phase], step: int) -> float:
    """Useful operations that remain after `step` steps."""
    left = 0.0
    for phase in phases:
        left += max(0, phase.steps - max(step, 0)) * phase.flops_per_step
        step -= phase.steps
    return left


def print_phases(phases: list[Phase], **how: Any) -> None:
    """Prints the plan of a run; `how` as in `ModelCosts.memory`."""
    parameters = count_parameters(phases[0].costs.config)
    rows = [("parameters", f"{sum(parameters.values()):,}, {parameters['embeddings']:,} of them embeddings")]
    for number, phase in enumerate(phases, 1):
        corpus, name = phase.corpus, f"phase {number}: " if len(phases) > 1 else ""
        rows += [
            (
                f"{name}examples",
                f"{corpus.examples:,}, mean {corpus.mean_length:.1f} tokens, longest {corpus.longest}",
            ),
            (f"{name}steps", f"{phase.steps:,} of {phase.sequences:,.0f} sequences"),
            (f"{name}epochs", f"{phase.steps * phase.sequences / corpus.examples:.2f}"),
            (f"{name}real tokens per step", f"{phase.tokens_per_step:,.0f}"),
            (f"{name}floating point operations per step", with_unit(phase.flops_per_step, "FLOP")),
            (f"{name}expected memory per device", with_unit(phase.memory(**how), "B")),
        ]
    rows.append(("total tokens", f"{sum(phase.steps * phase.tokens_per_step for phase in phases):,.0f}"))
    rows.append(("total operations", with_unit(sum(phase.steps * phase.flops_per_step for phase in phases), "FLOP")))
    print_table("Plan", rows)
