"""What a run is going to cost, said before its first step.

Only useful operations are counted: matrix products on real tokens and labelled positions, 2 for each multiply-add, and
the backward pass as twice the forward pass (Kaplan et al. 2020, section 2.1).
"""

import math
from dataclasses import dataclass

import datasets
import pyarrow.compute as pc
from transformers import PreTrainedConfig

from mybert.common.table import print_table


@dataclass(frozen=True)
class CorpusShape:
    """A corpus' sequences: their number, total and greatest length in tokens, and summed squared length."""

    examples: int
    tokens: int
    longest: int
    squares: int

    @classmethod
    def of(cls, corpus: datasets.Dataset) -> "CorpusShape":
        """Reads the lengths alone, never the tokens."""
        examples = tokens = longest = squares = 0
        for table in corpus.select_columns("input_ids").with_format("arrow").iter(batch_size=100_000):
            lengths = pc.list_value_length(table["input_ids"]).cast("int64")
            examples += len(lengths)
            tokens += pc.sum(lengths).as_py()
            longest = max(longest, pc.max(lengths).as_py())
            squares += pc.sum(pc.multiply(lengths, lengths)).as_py()
        return cls(examples, tokens, longest, squares)

    @property
    def mean_length(self) -> float:
        return self.tokens / self.examples


@dataclass(frozen=True)
class Plan:
    """The arithmetic of one phase of a run.

    Attributes:
        corpus: shape of what is read.
        steps: optimizer steps.
        sequences: sequences in a step, over all processes and accumulated batches; a mean under a token budget.
        device_sequences: the same in one forward pass of one device.
        mlm_probability: share of tokens labelled.
        config: of the model.
        has_pairs: whether there is a next-sentence loss.
    """

    corpus: CorpusShape
    steps: int
    sequences: float
    device_sequences: float
    mlm_probability: float
    config: PreTrainedConfig
    has_pairs: bool

    @property
    def tokens_per_step(self) -> float:
        return self.sequences * self.corpus.mean_length

    @property
    def flops_per_token(self) -> float:
        c, corpus = self.config, self.corpus
        layer = 4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size  # multiply-adds a token
        attention = 2 * c.hidden_size * corpus.squares / corpus.tokens  # scores and weighted sum
        head = self.mlm_probability * (c.hidden_size**2 + c.hidden_size * c.vocab_size)
        pair = self.has_pairs * (c.hidden_size**2 + 2 * c.hidden_size) / corpus.mean_length
        return 6 * (c.num_hidden_layers * (layer + attention) + head + pair)

    @property
    def flops_per_step(self) -> float:
        return self.tokens_per_step * self.flops_per_token

    def memory(self, parameters: int, half: bool) -> float:
        """Bytes on one device: weights, gradients and Adam's two moments in float32, and what backward needs.

        The last is 80 · hidden size + 12 · heads · length bytes a token and layer in float32, as counted from the
        tensors that autograd keeps with dropout on (half of it in 16 bits), and the labelled positions' logits twice.
        """
        c, corpus = self.config, self.corpus
        tokens = self.device_sequences * corpus.mean_length
        layer = 80 * c.hidden_size + 12 * c.num_attention_heads * corpus.squares / corpus.tokens
        head = 2 * 4 * self.mlm_probability * c.vocab_size
        return 16 * parameters + tokens * (c.num_hidden_layers * layer * (0.5 if half else 1) + head)


def plan_at(plans: list[Plan], step: int) -> Plan:
    """The phase that makes the step number `step`, counted from 1."""
    for plan in plans[:-1]:
        if step <= plan.steps:
            return plan
        step -= plan.steps
    return plans[-1]


def flops_left(plans: list[Plan], step: int) -> float:
    """Useful operations that are to be done after `step` steps."""
    left = 0.0
    for plan in plans:
        left += max(0, plan.steps - max(step, 0)) * plan.flops_per_step
        step -= plan.steps
    return left


def print_plan(plans: list[Plan], parameters: int, embeddings: int, half: bool) -> None:
    """
    Args:
        plans: one for each phase.
        parameters, embeddings: of the whole model, and those that only look up.
        half: whether the forward pass runs in 16 bits.
    """
    rows = [("parameters", f"{parameters:,}, {embeddings:,} of them embeddings")]
    for number, plan in enumerate(plans, 1):
        corpus, phase = plan.corpus, f"phase {number}: " if len(plans) > 1 else ""
        rows += [
            (
                f"{phase}examples",
                f"{corpus.examples:,}, {corpus.mean_length:.1f} tokens each, longest {corpus.longest}",
            ),
            (f"{phase}steps", f"{plan.steps:,} of {plan.sequences:,.0f} sequences"),
            (f"{phase}passes over the corpus", f"{plan.steps * plan.sequences / corpus.examples:.2f}"),
            (f"{phase}real tokens a step", f"{plan.tokens_per_step:,.0f}"),
            (f"{phase}floating point operations a step", with_unit(plan.flops_per_step, "FLOP")),
            (f"{phase}expected memory of a device", with_unit(plan.memory(parameters, half), "B")),
        ]
    rows.append(("tokens in all", f"{sum(plan.steps * plan.tokens_per_step for plan in plans):,.0f}"))
    rows.append(("operations in all", with_unit(sum(plan.steps * plan.flops_per_step for plan in plans), "FLOP")))
    print_table("Plan", rows)


def with_unit(value: float, unit: str) -> str:
    """1.23e9 FLOP → `1.23 GFLOP`."""
    power = min(max(int(math.log10(max(value, 1)) // 3), 0), 6)
    return f"{value / 1000**power:.3g} {'kMGTPE'[power - 1] if power else ''}{unit}"
