"""Steps that go wrong: gradients and losses that are not finite."""

import logging
import math
from collections.abc import Sequence

import torch
from accelerate import PartialState
from torch import Tensor

from mybert.common.errors import UserError

logger = logging.getLogger(__name__)

_MAX_CONSECUTIVE = 20
"""Steps in a row: skipped ones, or float16 ones whose loss overflows (a smaller scale helps gradients, not losses)."""


class Diverged(UserError):
    """A gradient or loss is not finite, and such steps are not skipped."""


class DeferredRead:
    """Starts copying a small tensor, (n,), to the host; only `read` waits for the device."""

    def __init__(self, values: Tensor):
        self.is_immediate = values.device.type == "cpu"
        self._values = values.to("cpu", non_blocking=values.is_cuda)
        self._copied = torch.cuda.Event() if values.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def read(self) -> list[float]:
        if self._copied is not None:
            self._copied.synchronize()
        return self._values.tolist()


class NonFiniteSteps:
    """Checks the gradient norm of every step, and the losses when they are logged.

    On the CPU, and when steps may be skipped, a step is checked before the optimizer applies it. On a GPU it is
    checked after the next step has been queued, so that the device never waits; `settle` checks the last one.

    Args:
        skip: skip steps whose gradient is not finite; otherwise the run stops.
        float16: a gradient scaler handles overflowing gradients itself.
        remedy: what the user can do, for messages.

    Attributes:
        skipped: the steps that were skipped, counted from 0.
    """

    def __init__(self, skip: bool, float16: bool, remedy: str):
        self.skip, self.float16, self.remedy = skip, float16, remedy
        self.skipped: list[int] = []
        self._pending: tuple[int, DeferredRead] | None = None
        self._overflowed = 0

    def check_gradient(self, step: int, norm: Tensor | float, device: torch.device) -> bool:
        """Checks the gradient norm of a step that is about to be applied. All processes get the same norm.

        Returns:
            Whether the step must be skipped.

        Raises:
            Diverged: this gradient (on a GPU, that of the step before) is not finite.
        """
        if self.float16:
            return False
        norm = torch.as_tensor(norm, dtype=torch.float32, device=device).detach()
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        before, self._pending = self._pending, (step, DeferredRead(norm[None]))
        if before is not None:
            self._judge(*before)
        return self.settle() if self.skip or self._pending[1].is_immediate else False

    def settle(self) -> bool:
        """Checks the last step now; see `check_gradient`."""
        pending, self._pending = self._pending, None
        return pending is not None and self._judge(*pending)

    def check_losses(self, first: int, losses: Sequence[float]) -> list[bool]:
        """Whether each loss is not finite; `first` is the step of the first one, counted from 0.

        Raises:
            Diverged: one is not finite, and its step was not skipped.
        """
        bad = [not math.isfinite(loss) for loss in losses]
        broken = [i for i, is_bad in enumerate(bad) if is_bad and first + i not in self.skipped]
        self._overflowed = self._overflowed + len(broken) if all(bad) else 0
        if broken and (not self.float16 or self._overflowed >= _MAX_CONSECUTIVE):
            self._fail(first + broken[0], f"the loss is {losses[broken[0]]}")
        return bad

    def _judge(self, step: int, read: DeferredRead) -> bool:
        (norm,) = read.read()
        if math.isfinite(norm):
            return False
        if not self.skip:
            self._fail(step, f"the gradient norm is {norm}")
        self.skipped.append(step)
        if PartialState().is_main_process:
            logger.warning("step %d skipped: the gradient norm is %s", step + 1, norm)
        if self.skipped[-_MAX_CONSECUTIVE:] == list(range(step - _MAX_CONSECUTIVE + 1, step + 1)):
            self._fail(step, f"no gradient was finite in the last {_MAX_CONSECUTIVE} steps")
        return True

    def _fail(self, step: int, message: str) -> None:
        raise Diverged(f"step {step + 1}: {message}; {self.remedy}")
