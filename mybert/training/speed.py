"""Measures of steps: their time, the peak of the device, how far they move the weights, the noise of gradients."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mybert.common.machine import threads

_WARM_UP, _MEASURED = 3, 10  # steps of a measurement
_SAMPLED = 4  # weight matrices


class StepTimer(TrainerCallback):
    """Measures a few steps.

    Args:
        clock: seconds of training, without evaluation and saving.
        report: called once with the mean seconds per step, the number of measured steps, and the step before training.
        stop: stop the run afterwards (`--dry-run`).
    """

    def __init__(self, clock: Callable[[], float], report: Callable[[float, int, int], None], stop: bool = False):
        self.clock, self.report, self.stop = clock, report, stop

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.first, self.mark = state.global_step, self.clock()
        self.skipped = min(_WARM_UP, max(0, state.max_steps - self.first - 1))
        self.steps = min(_MEASURED, max(1, state.max_steps - self.first - self.skipped))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        step = state.global_step - self.first - self.skipped
        if step not in (0, self.steps):
            return
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        if step == 0:
            self.mark = self.clock()
        else:
            self.report((self.clock() - self.mark) / self.steps, self.steps, self.first)
            control.should_training_stop |= self.stop


def measure_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.1) -> float:
    """Floating point operations per second of the fastest of several square matrix products.

    On a CPU with other load, only a small product ends before its core is taken away; many cores need a large one.
    """
    sizes = (384, 1024) if device.type == "cpu" else (8192,)
    return max(_fastest_product(device, dtype, size, seconds / len(sizes)) for size in sizes)


def _fastest_product(device: torch.device, dtype: torch.dtype, size: int, seconds: float) -> float:
    # random, since a GPU multiplies ones faster; from an own generator, since dropout uses the global one
    factor = torch.randn(size, size, device=device, generator=torch.Generator(device).manual_seed(0)).to(dtype)

    def once() -> float:
        start = time.perf_counter()
        factor @ factor
        if device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - start

    once()  # loads the kernels
    best, end = once(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, once())
    return 2 * size**3 / best


def measure_training_peak(args: TrainingArguments) -> float:
    """`measure_peak` of the device of a training, for the faster of the types in which it may compute."""
    types = [torch.float32]
    if args.bf16 or args.fp16:
        half = torch.bfloat16 if args.bf16 else torch.float16
        types = [half, torch.float32] if args.device.type == "cpu" and args.bf16 else [half]  # may be emulated
    return max(measure_peak(args.device, dtype) for dtype in types)


class StepMeasures(TrainerCallback):
    """Measures the steps that are logged, on a sample of the encoder's weight matrices; and the free cores of each.

    Attributes:
        every: steps between two measures (default: `logging_steps`), if it is not known which steps are logged.
    """

    def __init__(self) -> None:
        self.every: int | None = None
        self._weights: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._measures: dict[str, Tensor] = {}
        self._started = self._optimizer_seconds = 0.0

    def take(self) -> dict[str, float]:
        """The measures of the last measured step; those that could not be taken are absent.

        `update_ratio`: the median of ‖change‖ / ‖weights‖ over the matrices.

        `gradient_noise`: 1 - the cosine of the gradients of this step and the one before. With the gradient G over all
        data and the covariance Σ of the gradients of examples it estimates noise / (|G|² + noise), where noise is
        tr(Σ) / batch size. `noise / (1 - noise)` is the simple noise scale in batches (McCandlish et al. 2018,
        equation 2.9). Above 1 the two steps point against each other.
        """
        measures, self._measures = self._measures, {}
        return {name: round(value.item(), 8) for name, value in measures.items()}

    def take_optimizer_seconds(self) -> float:
        """Time of the optimizer steps since the last call; on the CPU, which computes them at once."""
        seconds, self._optimizer_seconds = self._optimizer_seconds, 0.0
        return seconds

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        step, every = state.global_step + 1, self.every or max(int(state.logging_steps), 1)
        is_logged, is_before = step % every == 0, (step + 1) % every == 0
        sample = _sample(model) if is_logged or is_before else []
        gradients = [gradient for _, gradient in sample]
        if any(gradient is None for gradient in gradients):  # of a skipped step
            gradients = []
        if is_logged:
            self._weights = [weights.clone() for weights, _ in sample]
            if gradients and self._gradients:
                self._measures["gradient_noise"] = 1 - _cosine(list(zip(gradients, self._gradients, strict=True)))
        self._gradients = [gradient.clone() for gradient in gradients] if is_before else []
        self._started = time.perf_counter()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        self._optimizer_seconds += time.perf_counter() - self._started
        if self._weights:
            pairs = zip(_sample(model), self._weights, strict=True)
            ratios = [(now - before).norm() / before.norm().clamp(min=1e-12) for (now, _), before in pairs]
            self._measures["update_ratio"], self._weights = torch.stack(ratios).median(), []

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        threads.share()

    on_prediction_step = on_step_end


def _cosine(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Of all matrices as one vector."""
    products = torch.stack([torch.stack([(a * b).sum(), (a * a).sum(), (b * b).sum()]) for a, b in pairs])
    product, first, second = products.sum(0)
    return product / (first.sqrt() * second.sqrt()).clamp(min=1e-30)  # before the product, for its range


def _sample(model: nn.Module) -> list[tuple[Tensor, Any]]:
    """Trained weight matrices at even distances, with their gradients; of sharded ones the part of this process."""
    matrices: list[tuple[Tensor, Any]] = [
        (weights.detach(), weights.grad)
        for name, weights in model.named_parameters()
        if weights.ndim == 2 and weights.requires_grad and ".layer" in name and weights.numel()
    ]
    local: list[Any] = [tuple(x.to_local() if hasattr(x, "to_local") else x for x in pair) for pair in matrices]
    return local[:: max(1, len(local) // _SAMPLED)][:_SAMPLED]
