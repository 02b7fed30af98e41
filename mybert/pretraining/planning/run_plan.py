"""What a run on a corpus that is there is going to cost, said before its first step."""

from dataclasses import dataclass

import datasets
import pyarrow.compute as pc
from transformers import PreTrainedConfig

from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.pretraining.planning.costs import Costs, count_parameters


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
    def costs(self) -> Costs:
        corpus = self.corpus
        attended = corpus.squares / corpus.tokens
        return Costs(self.config, corpus.mean_length, attended, self.mlm_probability, self.has_pairs)

    @property
    def flops_per_token(self) -> float:
        return self.costs.flops_per_token

    @property
    def flops_per_step(self) -> float:
        return self.tokens_per_step * self.flops_per_token

    def memory(self, **how) -> float:
        """Bytes on one device at the peak of a step; `how` as in `Costs.memory`."""
        return sum(self.costs.memory(self.device_sequences * self.corpus.mean_length, **how).values())


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


def print_plan(plans: list[Plan], **how) -> None:
    """
    Args:
        plans: one for each phase.
        how: the run's devices, precision and so on, as in `Costs.memory`.
    """
    parameters = count_parameters(plans[0].config)
    rows = [("parameters", f"{sum(parameters.values()):,}, {parameters['embeddings']:,} of them embeddings")]
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
            (f"{phase}expected memory of a device", with_unit(plan.memory(**how), "B")),
        ]
    rows.append(("tokens in all", f"{sum(plan.steps * plan.tokens_per_step for plan in plans):,.0f}"))
    rows.append(("operations in all", with_unit(sum(plan.steps * plan.flops_per_step for plan in plans), "FLOP")))
    print_table("Plan", rows)
