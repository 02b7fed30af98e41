"""Passes over a corpus, in batches of equal numbers of sequences or of tokens."""

from functools import cached_property

from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled, TokenBudget
from mybert.pretraining.planning.flops_and_memory import Phase
from mybert.training.objective import Course
from mybert.training.trainer import RunTrainer


class Passes(Course):
    """Every example is read once per pass.

    Args:
        max_tokens_per_batch: largest number of real tokens in a batch; None for `per_device_train_batch_size`
            sequences.
    """

    clock = None  # its steps are counted

    def __init__(self, max_tokens_per_batch: int | None = None):
        self._max_tokens = max_tokens_per_batch

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        self.lengths = trainer.objective.lengths

    @property
    def _batch_size(self) -> int:
        """Sequences per device and forward pass, which --auto-find-batch-size may have reduced."""
        return self.trainer.get_total_train_batch_size(self.args) // self.batches_per_step

    def sampler(self) -> EpochSampler:
        fills = self.args.world_size > 1 and not self.args.dataloader_drop_last
        examples = Shuffled(len(self.lengths), self.trainer.order_seed)
        return EpochSampler(examples, multiple=self.args.world_size * self._batch_size if fills else 1)

    def batch_sampler(self) -> EpochSampler | None:
        return None if self._max_tokens is None else EpochSampler(self._budget(self._max_tokens))

    def _budget(self, tokens: int) -> TokenBudget:
        return TokenBudget(self.lengths, tokens, self.trainer.order_seed, self.args.world_size)

    @cached_property
    def phases(self) -> list[Phase]:
        """One phase."""
        sequences: float = self._batch_size
        if self._max_tokens is not None:
            sequences = len(self.lengths) / len(self._budget(self._max_tokens))
        steps = self.trainer.steps_with(self.trainer.get_train_dataloader())
        masked = self.trainer.data_collator.masker.probability
        return [self.trainer.objective.phase(self.lengths, steps, sequences, masked)]

    def current_phase(self) -> Phase:
        return self.phases[0]
