"""The cost of a pretraining run by arithmetic, known before its first step; see docs/reference/cost-model.md.

Operations are floating point operations, 2 per multiply-add. Useful operations are matrix products on real tokens (in
the last layer and the heads, on the tokens that are read); the backward pass counts twice the forward pass (Kaplan et
al. 2020, section 2.1). Sizes are in bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.training.muon import matrix_flops
from mybert.training.sealed_checkpoints import COPIES_IN_A_CHECKPOINT

_FLOAT, _HALF = 4, 2


def count_parameters(config: PreTrainedConfig) -> dict[str, int]:
    """Parameters by part; a vocabulary projection that shares the word embedding is counted there."""
    hidden, wide = config.hidden_size, config.intermediate_size
    norm, square = 2 * hidden, hidden * hidden + hidden
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    layer = 4 * square + (hidden * wide + wide) + (wide * hidden + hidden) + 2 * norm
    projection = 0 if config.tie_word_embeddings else config.vocab_size * (hidden + 1)
    return {
        "embeddings": rows * hidden + norm,
        "encoder": config.num_hidden_layers * layer,
        "masked-language-model head": square + norm + config.vocab_size + projection,
        "next-sentence head": square + 2 * hidden + 2,
    }


@dataclass(frozen=True)
class ModelCosts:
    """The costs of training one model on sequences of `length` tokens on average.

    A token attends to `attended` tokens on average, which is above `length` if lengths differ.
    """

    config: PreTrainedConfig
    length: float
    attended: float
    mlm_probability: float
    has_pairs: bool

    @property
    def parameters(self) -> int:
        return sum(count_parameters(self.config).values())

    @property
    def read(self) -> float:
        """Share of tokens whose last hidden state is read: labelled ones, and the first of each sequence."""
        return min(1, self.mlm_probability + 1 / self.length)

    # Operations

    def flops_by_part(self) -> dict[str, float]:
        """Useful operations per token of a training step, by part."""
        c = self.config
        layers = c.num_hidden_layers - 1 + self.read  # except keys and values of the last layer
        matrices = layers * (4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size)
        matrices += (1 - self.read) * 2 * c.hidden_size**2
        scores = layers * 2 * c.hidden_size * self.attended  # scores, and the weighted sum
        masked = self.mlm_probability * (c.hidden_size**2 + c.hidden_size * c.vocab_size)
        pair = self.has_pairs * (c.hidden_size**2 + 2 * c.hidden_size) / self.length
        products = {
            "encoder": matrices,
            "attention": scores,
            "masked-language-model head": masked,
            "next-sentence head": pair,
        }
        return {part: 6 * count for part, count in products.items()}

    @property
    def muon_flops(self) -> float:
        """Operations of the Newton-Schulz iterations of a step with Muon, in float32: see `mybert.training.muon`."""
        c = self.config
        high, wide = sorted((c.hidden_size, c.intermediate_size))
        square, other = 4 * matrix_flops(c.hidden_size, c.hidden_size), 2 * matrix_flops(high, wide)
        return c.num_hidden_layers * (square + other)

    @property
    def flops_per_token(self) -> float:
        return sum(self.flops_by_part().values())

    @property
    def recomputed_per_token(self) -> float:
        """Operations per token that gradient checkpointing adds: a second forward pass of the layers."""
        parts = self.flops_by_part()
        return (parts["encoder"] + parts["attention"]) / 3

    def executed_per_token(self, checkpointing: bool) -> float:
        return self.flops_per_token + (self.recomputed_per_token if checkpointing else 0)

    # Memory per device

    def memory(
        self,
        tokens: float,
        *,
        devices: int = 1,
        sharded: bool = False,
        checkpointing: bool = False,
        half: bool = False,
        keeps_scores: bool = False,
    ) -> dict[str, float]:
        """Peak memory of a training step, by component.

        Args:
            tokens: tokens in one forward pass of the device.
            devices: number of devices that train the model.
            sharded: FSDP, each device holds its share; otherwise each holds a whole copy (DDP).
            checkpointing: gradient checkpointing, layers keep their input only.
            half: forward pass in 16 bits (autocast), weights in 32.
            keeps_scores: attention is not fused, as on the CPU and in eager mode.
        """
        shards = devices if sharded else 1
        return {
            "weights": _FLOAT * self.parameters / shards,
            "gradients": _FLOAT * self.parameters / shards,
            "optimizer": 2 * _FLOAT * self.parameters / shards,
            "copies": self._copies(devices, sharded, half),
            "activations": tokens * self._activations(checkpointing, half, keeps_scores),
            "logits": tokens * self._logits(half),
        }

    def _copies(self, devices: int, sharded: bool, half: bool) -> float:
        """FSDP: gathered weights and gradients. Otherwise: 16-bit weights of autocast and gradient buckets of DDP."""
        parts = count_parameters(self.config)
        if sharded and devices > 1:
            layers = 2 * parts["encoder"] / self.config.num_hidden_layers  # the next layer is gathered ahead
            return 2 * (_HALF if half else _FLOAT) * (self.parameters - parts["encoder"] + layers)
        buckets = _FLOAT * self.parameters if devices > 1 else 0
        return buckets + (_HALF * self.parameters if half else 0)

    def _activations(self, checkpointing: bool, half: bool, keeps_scores: bool) -> float:
        """Bytes per token for the backward pass, with dropout; counted from the tensors that autograd keeps."""
        c, value = self.config, _HALF if half else _FLOAT
        around = 11 * c.hidden_size  # embeddings and heads
        layer = (44 if half else 72) * c.hidden_size
        layer += value * (3 * c.num_attention_heads * self.attended if keeps_scores else c.hidden_size)
        if not checkpointing:
            keys_and_values = 8 * c.hidden_size  # in 16 bits, each with a copy of its input
            return around + (c.num_hidden_layers - 1 + self.read) * layer + (1 - self.read) * keys_and_values
        computed_again = layer + value * (c.intermediate_size + c.hidden_size)  # and their gradients
        kept = around + c.num_hidden_layers * _FLOAT * c.hidden_size
        return kept + max(0, computed_again - self._logits(half))  # the logits are freed by then

    def _logits(self, half: bool) -> float:
        """Bytes per token for the logits of labelled positions: log-probabilities and two gradients, all float32."""
        return self.mlm_probability * self.config.vocab_size * (3 * _FLOAT + (_HALF if half else 0))

    # Network and disk

    def traffic(self, devices: int, sharded: bool, half: bool = False, forwards: int = 1) -> float:
        """Bytes that a device sends in an optimizer step of `forwards` accumulated batches; it receives as many.

        DDP averages gradients once per step, FSDP gathers weights twice per batch.
        """
        share = (devices - 1) / devices
        if sharded:
            return share * (_HALF if half else _FLOAT) * self.parameters * (2 * forwards + 1)
        return share * 2 * _FLOAT * self.parameters

    @property
    def checkpoint_bytes(self) -> int:
        return COPIES_IN_A_CHECKPOINT * _FLOAT * self.parameters


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
    """One phase of a run: steps with sequences of one length.

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
