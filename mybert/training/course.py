"""How a training goes on: a value that `RunTrainer` is given."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerState

from mybert.training.run_progress import ClockProgress

if TYPE_CHECKING:
    from mybert.training.trainer import RunTrainer


class Course:
    """Steps, learning rate, and order of the examples of a training. The defaults are those of transformers' Trainer.

    Attributes:
        trainer, args: of the run.
        clock: the clock of a time budget; None counts steps.
    """

    trainer: "RunTrainer"
    args: Any
    clock: ClockProgress | None = None

    def begin(self, trainer: "RunTrainer") -> None:
        """Called once, when the trainer has been built."""
        self.trainer, self.args = trainer, trainer.args

    # Steps

    @property
    def batches_per_step(self) -> int:
        """Batches of a step, over all processes and accumulated batches."""
        return self.args.gradient_accumulation_steps * self.args.world_size

    def planned_steps(self) -> int | None:
        """The number of steps of the run; None if epochs or `max_steps` determine it."""
        return None

    def scheduler(self, optimizer: Optimizer) -> LRScheduler | None:
        """The learning rate by steps; None for `lr_scheduler_type`."""
        return None

    def resumed_message(self, state: TrainerState, steps: int) -> str:
        """How far the run to continue is."""
        done = f"{state.global_step:,} of {state.max_steps:,} planned steps are done"
        if state.max_steps == steps:
            return done
        return f"{done}; the plan is now {steps:,} steps, and learning rate and phases follow it from here on"

    def states(self) -> dict[str, dict[str, Any]]:
        """Name and content of further JSON files of a checkpoint. All processes must call it."""
        return {}

    def load(self, checkpoint: Path) -> None:
        """Loads `states` when a run is resumed; the trainer has the state of the checkpoint."""

    # Examples

    def sampler(self) -> Sampler[Any] | None:
        """The order of the examples; None for that of Trainer."""
        return None

    def batch_sampler(self) -> Sampler[Any] | None:
        """The batches; None for the examples of `sampler` in batches of equal numbers."""
        return None

    def use_loader(self, loader: DataLoader[Any]) -> None:
        """Called with each loader of the training data, before it is read."""
