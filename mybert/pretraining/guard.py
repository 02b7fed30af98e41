"""What has to be known on the host about every step: is its gradient finite, has anybody asked the run to stop."""

import logging
import math

import torch
from torch import Tensor
from transformers import Trainer

from mybert.common.errors import UserError

logger = logging.getLogger(__name__)

_MOST_SKIPS = 20


class Guard:
    """Judges each step before (CPU, or when steps may be skipped) or right after (GPU) the optimizer takes it.

    On a GPU the values of a step are read when the next one has been queued, so that the device never waits; nothing
    is saved or logged before they are read. All processes judge alike: the gradient is that of all of them, and so is
    the wish to stop.

    Args:
        trainer: whose steps these are; its `name_examples(step)` says what a step was made of.
        skip: leave out steps whose gradient is not finite; otherwise the run stops.

    Attributes:
        asked: this process was asked to stop.
        must_stop: some process was, and all know.
        skipped: steps left out.
    """

    def __init__(self, trainer: Trainer, skip: bool):
        self.trainer, self.skip = trainer, skip
        self.asked = self.must_stop = False
        self.skipped: list[int] = []
        self._pending: tuple[int, _Later] | None = None

    def see(self, grad_norm: Tensor | float) -> None:
        """Takes the gradient norm of the step that is about to be made."""
        accelerator, step = self.trainer.accelerator, self.trainer.state.global_step
        norm = torch.as_tensor(grad_norm, dtype=torch.float32, device=accelerator.device).detach()
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if accelerator.scaler is not None:  # float16: the scaler looks for overflow itself and tries a smaller scale
            norm = torch.zeros_like(norm)
        asked = torch.full((), float(self.asked), device=norm.device)  # filled there: a copy would wait for the device
        asked = accelerator.reduce(asked, "sum") if accelerator.num_processes > 1 else asked
        before, self._pending = self._pending, (step, _Later(torch.stack([norm, asked])))
        if before is not None:
            self._judge(*before)
        if self.skip or norm.device.type == "cpu":
            self.settle()

    def settle(self) -> None:
        """Judges the last step now.

        Raises:
            UserError: its gradient was not finite.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            self._judge(*pending)

    def fail(self, step: int, what: str) -> None:
        """
        Raises:
            UserError: always.
        """
        raise UserError(
            f"step {step + 1}: {what}, computed from {self.trainer.name_examples(step)}; nothing was saved after it. "
            "--resume goes on from the last checkpoint, and leaves such steps out with --on-nonfinite skip; a lower "
            "--learning-rate needs a new run"
        )

    def _judge(self, step: int, values: "_Later") -> None:
        norm, asked = values.read()
        self.must_stop |= asked > 0
        if math.isfinite(norm):
            return
        if not self.skip:
            self.fail(step, f"the gradient's norm is {norm}")
        self.trainer.model_wrapped.zero_grad()  # the optimizer passes over parameters that have no gradient
        self.skipped.append(step)
        examples = self.trainer.name_examples(step)
        if self.trainer.is_world_process_zero():
            logger.warning("step %d left out: the gradient's norm is %s, computed from %s", step + 1, norm, examples)
        if self.skipped[-_MOST_SKIPS:] == list(range(step - _MOST_SKIPS + 1, step + 1)):
            self.fail(step, f"no gradient was finite in the last {_MOST_SKIPS} steps")

    def ask(self) -> None:
        """The run is to stop after the step that it is making."""
        self.asked = True


class _Later:
    """A few numbers on their way to the host, which waits for the device only when it reads them."""

    def __init__(self, values: Tensor):
        self.values = values.to("cpu", non_blocking=values.is_cuda)
        self.arrived = torch.cuda.Event() if values.is_cuda else None
        if self.arrived is not None:
            self.arrived.record()

    def read(self) -> list[float]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.values.tolist()
