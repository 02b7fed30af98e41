"""Measured speed: time per step, and the peak of the device."""

import time
from collections.abc import Callable

import torch
from transformers import TrainerCallback

_WARM_UP, _MEASURED = 3, 10  # steps of a measurement


class StepTimer(TrainerCallback):
    """Measures a few steps, without evaluation and saving.

    Args:
        report: called once with the mean seconds per step, the number of measured steps, and the step before training.
        stop: stop the run afterwards (`--dry-run`).
    """

    def __init__(self, report: Callable[[float, int, int], None], stop: bool = False):
        self.report, self.stop = report, stop

    def on_train_begin(self, args, state, control, **kwargs):
        self.first, self.mark, self.seconds = state.global_step, time.perf_counter(), 0.0
        self.skipped = min(_WARM_UP, max(0, state.max_steps - self.first - 1))
        self.steps = min(_MEASURED, max(1, state.max_steps - self.first - self.skipped))

    def on_step_end(self, args, state, control, **kwargs):
        step = state.global_step - self.first - self.skipped
        if step not in range(self.steps + 1):
            return
        if step in (0, self.steps) and torch.accelerator.is_available():
            torch.accelerator.synchronize()
        if step > 0:
            self.seconds += time.perf_counter() - self.mark
        self.mark = time.perf_counter()
        if step == self.steps:
            self.report(self.seconds / self.steps, self.steps, self.first)
            control.should_training_stop |= self.stop

    def _restart_step(self, args, state, control, **kwargs):
        self.mark = time.perf_counter()

    on_evaluate = on_save = _restart_step


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
