"""A fine-tuning that is stopped loses no step, and goes on with the rows that it had not read."""

from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from mybert.common.preemption import Preempted


class ByLength(LengthGroupedSampler):
    """In an order that is a function of seed and epoch alone, so that a resumed epoch goes on in it."""

    def __init__(self, *args, seed: int, **kwargs):
        super().__init__(*args, generator=torch.Generator(), **kwargs)
        self.seed = seed

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(self.seed + epoch)


class RightEpoch(TrainerCallback):
    """Leads `ByLength` to its epoch: Trainer and accelerate do not reach the sampler of several processes' loaders."""

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        part = train_dataloader
        while getattr(part, "batch_sampler", None) is not None:
            part = part.batch_sampler
        if hasattr(getattr(part, "sampler", None), "set_epoch"):
            part.sampler.set_epoch(int(state.epoch or 0))


class BestHere(TrainerCallback):
    """Finds the best checkpoint of a resumed run in its folder as it is called now; Trainer looks where it was."""

    def on_train_begin(self, args, state, control, **kwargs):
        best = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        if best.is_dir():
            state.best_model_checkpoint = str(best)


class StopWhenAsked(TrainerCallback):
    """Saves after the step in which any process was asked to stop, and ends them all by `Preempted`."""

    def __init__(self):
        self._asked = self._stops = False

    def ask(self) -> None:
        self._asked = True

    def check(self, arguments: TrainingArguments, done: str) -> None:
        """
        Args:
            done: what is saved.

        Raises:
            Preempted: some process was asked to stop.
        """
        if self._stops or self._agreed(arguments):
            PartialState().wait_for_everyone()  # the first process may still be saving
            if arguments.process_index == 0:
                print(f"stopped, and saved, after {done}; `mybert finetune … --resume` goes on there", flush=True)
            raise Preempted

    def _agreed(self, arguments: TrainingArguments) -> bool:
        if arguments.world_size == 1:
            return self._asked
        return bool(reduce(torch.tensor(float(self._asked), device=arguments.device), "sum"))

    def on_step_end(self, args, state, control, **kwargs):
        if self._agreed(args):
            self._stops = control.should_training_stop = True
            args.save_only_model = False  # or there were nothing to go on with

    def on_epoch_end(self, args, state, control, **kwargs):
        if self._stops:
            control.should_save = True
            ends = float(state.epoch).is_integer() or state.global_step >= state.max_steps
            control.should_evaluate &= ends  # others are evaluated where they end, after --resume

    def on_save(self, args, state, control, **kwargs):
        if not args.save_only_model:  # now: where Trainer ends, it deletes the checkpoint if another one is the best
            self.check(args, f"step {state.global_step:,} of {state.max_steps:,} in {args.output_dir}")
