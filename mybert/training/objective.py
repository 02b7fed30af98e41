"""What tells one training from another, given to `RunTrainer`: its `Objective` (loss, optimizer, evaluation, log) and
its `Course` (steps, learning rate, order of the examples).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler
from transformers import TrainerState

if TYPE_CHECKING:
    from mybert.training.trainer import RunTrainer


class Objective:
    """Loss, optimizer, evaluation and log of a training. The defaults are those of transformers' Trainer.

    Attributes:
        trainer, args: of the run.
        loss_parts: names of the parts of the loss in the log; their sum is the loss.
        remedy: what the user can do if a gradient is not finite, for messages.
    """

    trainer: "RunTrainer"
    args: Any
    loss_parts: tuple[str, ...] = ("loss",)
    remedy = "try a lower --learning-rate (and --overwrite)"

    def begin(self, trainer: "RunTrainer") -> None:
        """Called once, when the trainer has been built."""
        self.trainer, self.args = trainer, trainer.args

    # Steps

    def count(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Called with the batches of each optimizer step, before the first of them."""

    def loss(
        self, compute: Callable[..., Any], inputs: dict[str, Any], with_outputs: bool, items: Tensor | None
    ) -> Any:
        """The loss of a batch, or (loss, outputs).

        Args:
            compute: Trainer's `compute_loss`, given inputs and `with_outputs`.
            items: the number of labels of the step in all processes; None if the loss is a mean over the batch.
        """
        return compute(inputs, with_outputs)

    def optimizer(self, create: Callable[[], Optimizer]) -> Optimizer:
        """The optimizer; `create` is that of Trainer, which keeps an optimizer that the trainer has."""
        return create()

    # Evaluation

    def begin_evaluation(self) -> None:
        """Called before each evaluation."""

    def predict(
        self, compute: Callable[[], tuple[Any, ...]], model: nn.Module, inputs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Loss, predictions and labels of an evaluation batch; `compute` is Trainer's `prediction_step`."""
        return compute()

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        """Called after each evaluation by all processes; its time does not count as training."""

    # Log

    def logs(self, logs: dict[str, float]) -> dict[str, float]:
        """The log entry of training. All processes must call it."""
        return logs

    def report_speed(self, seconds: float, steps: int, first: int) -> None:
        """Called once with the mean of a step over `steps` measured ones and the steps done before this session."""

    def flops_per_token(self) -> float:
        """Useful floating point operations of the coming steps for each real token; 0 leaves them to Trainer."""
        return 0.0


class Course:
    """Steps, learning rate, and order of the examples of a training. The defaults are those of transformers' Trainer.

    Attributes:
        trainer, args: of the run.
    """

    trainer: "RunTrainer"
    args: Any

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
        if state.global_step >= steps:
            return f"{done}, and {steps:,} are asked for now: nothing is trained"
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


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Σ over classes of KL(teacher || student) at a temperature, times its square (Hinton et al. 2015, section 2).

    Args:
        student, teacher: (…, classes) logits.

    Returns:
        (…).
    """
    expected = log_softmax(teacher.float() / temperature, -1)
    predicted = log_softmax(student.float() / temperature, -1)
    return kl_div(predicted, expected, reduction="none", log_target=True).sum(-1) * temperature**2
