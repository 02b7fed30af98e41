"""Passes over one corpus, or over a second one in the last steps."""

from functools import cached_property
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader

from mybert.pretraining.data.batching import FILLER
from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled, TokenBudget
from mybert.pretraining.planning.flops_and_memory import Phase, phase_at
from mybert.training.objective import Course
from mybert.training.resuming import innermost_sampler, steps_per_epoch
from mybert.training.trainer import RunTrainer


class Passes(Course):
    """Every example is read once per pass.

    Args:
        phase2_share: share of the steps that read the second corpus, if there is one.
        max_tokens_per_batch: largest number of real tokens in a batch; None for `per_device_train_batch_size`
            sequences.
    """

    clock = None  # its steps are counted

    def __init__(self, phase2_share: float = 0.1, max_tokens_per_batch: int | None = None):
        self._phase2_share, self._max_tokens = phase2_share, max_tokens_per_batch

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        self.lengths = trainer.objective.lengths

    # Examples

    @property
    def _batch_size(self) -> int:
        """Sequences per device and forward pass, which --auto-find-batch-size may have reduced."""
        return self.trainer.get_total_train_batch_size(self.args) // self.batches_per_step

    @property
    def _units_per_batch(self) -> int:
        """Units of `EpochSampler` in a batch: its sequences, or the batch itself with a token budget."""
        return self._batch_size if self._max_tokens is None else 1

    def sampler(self) -> EpochSampler:
        fills = self.args.world_size > 1 and not self.args.dataloader_drop_last
        corpora = [Shuffled(len(lengths), self.trainer.order_seed) for lengths in self.lengths]
        return EpochSampler(*corpora, multiple=self.args.world_size * self._batch_size if fills else 1)

    def batch_sampler(self) -> EpochSampler | None:
        if self._max_tokens is None:
            return None
        by_length = self.args.train_sampling_strategy == "group_by_length"
        seed, processes = self.trainer.order_seed, self.args.world_size
        return EpochSampler(
            *(TokenBudget(lengths, self._max_tokens, seed, processes, by_length) for lengths in self.lengths)
        )

    def use_loader(self, loader: DataLoader[Any]) -> None:
        """Tells the sampler where the second corpus begins."""
        if len(self.lengths) > 1:
            first = self._steps_of_phases(loader)[0]
            epochs, steps = divmod(first, steps_per_epoch(loader, self.args.gradient_accumulation_steps))
            sampler = innermost_sampler(loader)
            sampler.switch = epochs * len(sampler.first) + steps * self.batches_per_step * self._units_per_batch

    def name_examples(self, step: int) -> str:
        """The examples that all processes read in a step, counted from 0."""
        loader: Any = self.trainer.callback_handler.train_dataloader
        accumulated = self.args.gradient_accumulation_steps
        epoch, steps = divmod(step, steps_per_epoch(loader, accumulated))
        first = steps * accumulated
        units = self.args.world_size * self._units_per_batch
        read = innermost_sampler(loader).units(epoch, first * units)
        read = list(islice(read, min(accumulated, len(loader) - first) * units))
        keys = sorted(key for key in (read if self._max_tokens is None else chain(*read)) if key[0] != FILLER)
        named = []
        for corpus, first in (("corpus", 0), ("phase2_corpus", len(self.lengths[0]))):
            of_corpus = [key for key in keys if (key[1] >= len(self.lengths[0])) == (first > 0)]
            if of_corpus:
                numbers = ", ".join(str(index - first) for _, index in of_corpus)
                named.append(f"examples {numbers} in pass {of_corpus[0][0] + 1} over the {corpus}")
        return " and ".join(named)

    # Costs

    def _steps_of_phases(self, loader: DataLoader[Any]) -> list[int]:
        steps = self.trainer.steps_with(loader)
        first = round(steps * (1 - self._phase2_share)) if len(self.lengths) > 1 else steps
        return [first, steps - first]

    @cached_property
    def phases(self) -> list[Phase]:
        """One phase for each corpus."""
        loader = self.trainer.get_train_dataloader()
        in_batch = [self._batch_size] * 2
        if self._max_tokens is not None:
            sampler = innermost_sampler(loader)
            in_batch = [len(budget.lengths) / budget.batches for budget in (sampler.first, sampler.second) if budget]
        masked = self.trainer.data_collator.masker.probability
        parts = zip(self.lengths, self._steps_of_phases(loader), in_batch, strict=False)
        return [self.trainer.objective.phase(lengths, steps, sequences, masked) for lengths, steps, sequences in parts]

    def current_phase(self) -> Phase:
        return phase_at(self.phases, self.trainer.state.global_step)
