"""The epoch and position of the sampler, also in a resumed run."""

import math

from torch.utils.data import DataLoader
from transformers import TrainerCallback


class SetSamplerEpoch(TrainerCallback):
    """Sets the epoch of the innermost sampler, which Trainer and accelerate do not reach in all loaders.

    A sampler with an attribute `skip` also gets the number of examples of this epoch that a resumed run has read.
    """

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        sampler = innermost_sampler(train_dataloader)
        epoch, steps = divmod(state.global_step, steps_per_epoch(train_dataloader, args.gradient_accumulation_steps))
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if hasattr(sampler, "skip"):
            batch_size = _innermost_batch_sampler(train_dataloader).batch_size
            sampler.skip = steps * args.gradient_accumulation_steps * args.world_size * batch_size


def steps_per_epoch(loader: DataLoader, gradient_accumulation_steps: int) -> int:
    return math.ceil(len(loader) / gradient_accumulation_steps)


def innermost_sampler(loader: DataLoader):
    """The sampler of examples, or of batches where these are not made of single examples."""
    batches = _innermost_batch_sampler(loader)
    return batches if hasattr(batches, "set_epoch") else getattr(batches, "sampler", None)


def _innermost_batch_sampler(loader: DataLoader):
    part = loader
    while getattr(part, "batch_sampler", None) is not None:
        part = part.batch_sampler
    return part
