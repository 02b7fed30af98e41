"""Measured speed: time per step and time left of a run, and the peak of the device."""

import time

import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback

from mybert.common.quantities import duration, with_unit
from mybert.pretraining.planning.phases import Phase, flops_left, phase_at


class TimeLeft(TrainerCallback):
    """Measures a few steps, without evaluation and saving, and prints how long the run will take.

    Args:
        phases: of the run, in order.
        warmup: steps before the measurement.
        measured: steps that are measured.
        stop: stop the run afterwards (`--dry-run`).
    """

    def __init__(self, phases: list[Phase], warmup: int = 3, measured: int = 10, stop: bool = False):
        self.phases, self.warmup, self.measured, self.stop = phases, warmup, measured, stop
        self.seconds, self.mark, self.first = 0.0, 0.0, 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.first, self.mark = state.global_step, time.perf_counter()
        self.warmup = min(self.warmup, max(0, state.max_steps - self.first - 1))
        self.measured = min(self.measured, max(1, state.max_steps - self.first - self.warmup))

    def on_step_end(self, args, state, control, **kwargs):
        step = state.global_step - self.first - self.warmup
        if step not in range(self.measured + 1):
            return
        if step in (0, self.measured) and torch.accelerator.is_available():
            torch.accelerator.synchronize()
        if step > 0:
            self.seconds += time.perf_counter() - self.mark
        self.mark = time.perf_counter()
        if step == self.measured:
            if state.is_world_process_zero:
                tqdm.write(self.message(state.global_step))
            control.should_training_stop |= self.stop

    def _restart_step(self, args, state, control, **kwargs):
        self.mark = time.perf_counter()

    on_evaluate = on_save = _restart_step

    def message(self, step: int) -> str:
        """The time of steps in another phase is scaled by their number of operations."""
        seconds = self.seconds / self.measured
        phase = phase_at(self.phases, step)
        rate = phase.flops_per_step / seconds
        which, start = ("in total", self.first) if self.stop else ("left", step)
        return (
            f"measured {self.measured} steps: {seconds:.3g} s per step, {phase.tokens_per_step / seconds:,.0f} "
            f"tokens/s, {with_unit(rate, 'FLOP/s')}; {duration(flops_left(self.phases, start) / rate)} of training "
            f"{which}, without evaluation"
        )


def measure_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.1) -> float:
    """Floating point operations per second of the fastest of several square matrix products."""
    size = 1024 if device.type == "cpu" else 8192
    factor = torch.randn(size, size, device=device).to(dtype)  # a GPU multiplies ones faster than random numbers

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
