"""How long a run is going to take, once a few of its steps are measured."""

import time

import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback

from mybert.common.quantities import duration, with_unit
from mybert.pretraining.planning.run_plan import Plan, flops_left, plan_at


class TimeToEnd(TrainerCallback):
    """Measures a few steps, evaluation and saving left out, and says how long the run is going to take.

    Args:
        plans: the phases, in order.
        warm: steps before measuring.
        measured: steps measured.
        stop: stop the run then (`--dry-run`).
    """

    def __init__(self, plans: list[Plan], warm: int = 3, measured: int = 10, stop: bool = False):
        self.plans, self.warm, self.measured, self.stop = plans, warm, measured, stop
        self.seconds, self.mark, self.first = 0.0, 0.0, 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.first, self.mark = state.global_step, time.perf_counter()
        self.warm = min(self.warm, max(0, state.max_steps - self.first - 1))
        self.measured = min(self.measured, max(1, state.max_steps - self.first - self.warm))

    def on_step_end(self, args, state, control, **kwargs):
        step = state.global_step - self.first - self.warm
        if step not in range(self.measured + 1):
            return
        if step in (0, self.measured) and torch.accelerator.is_available():
            torch.accelerator.synchronize()
        if step > 0:
            self.seconds += time.perf_counter() - self.mark
        self.mark = time.perf_counter()
        if step == self.measured:
            if state.is_world_process_zero:
                tqdm.write(self._forecast(state.global_step))
            control.should_training_stop |= self.stop

    def _after_pause(self, args, state, control, **kwargs):
        self.mark = time.perf_counter()

    on_evaluate = on_save = _after_pause

    def _forecast(self, step: int) -> str:
        """A step of another phase is taken to be as much longer as it has operations."""
        seconds = self.seconds / self.measured
        now = plan_at(self.plans, step)
        rate = now.flops_per_step / seconds
        of, begun = ("in all", self.first) if self.stop else ("to go", step)
        left = duration(flops_left(self.plans, begun) / rate)
        return (
            f"measured {self.measured} steps: {seconds:.3g} s a step, {now.tokens_per_step / seconds:,.0f} tokens/s, "
            f"{with_unit(rate, 'FLOP/s')}; {left} of training {of}, without evaluation"
        )


def measure_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.1) -> float:
    """Floating point operations a second of the best of several square matrix products, which few models come near."""
    size = 1024 if device.type == "cpu" else 8192
    factor = torch.randn(size, size, device=device).to(dtype)  # of ones, a GPU makes more than of numbers

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
