"""Callbacks at the start of an epoch (set the sampler) and at its end (evaluate and save)."""

import math
from typing import Any

from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import IntervalStrategy


class SetSamplerEpoch(TrainerCallback):
    """Sets the epoch of the innermost sampler, which Trainer and accelerate do not reach in all loaders.

    A sampler with an attribute `skip` also gets how many of its examples or batches of this epoch a resumed run has
    read.
    """

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        sampler = innermost_sampler(train_dataloader)
        epoch, steps = divmod(state.global_step, steps_per_epoch(train_dataloader, args.gradient_accumulation_steps))
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if hasattr(sampler, "skip"):
            batch_size = getattr(_innermost_batch_sampler(train_dataloader), "batch_size", 1)
            sampler.skip = steps * args.gradient_accumulation_steps * args.world_size * batch_size


class SaveAfterEvaluation(TrainerCallback):
    """Saves a checkpoint of the last step of an epoch after the evaluation of that epoch.

    Trainer saves it before, so that a run resumed from it would skip the evaluation and differ from then on.
    """

    def __init__(self) -> None:
        self._postponed = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        ends_epoch = float(state.epoch).is_integer()
        if control.should_save and ends_epoch and args.eval_strategy == IntervalStrategy.EPOCH:
            control.should_save, self._postponed = False, True

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_save |= self._postponed
        self._postponed = False


def steps_per_epoch(loader: DataLoader[Any], gradient_accumulation_steps: int) -> int:
    return math.ceil(len(loader) / gradient_accumulation_steps)


def innermost_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler of examples, or of batches where these are not made of single examples."""
    batches = _innermost_batch_sampler(loader)
    return batches if hasattr(batches, "set_epoch") else getattr(batches, "sampler", batches)


def _innermost_batch_sampler(loader: DataLoader[Any]) -> Any:
    part: Any = loader
    while getattr(part, "batch_sampler", None) is not None:
        part = part.batch_sampler
    return part
