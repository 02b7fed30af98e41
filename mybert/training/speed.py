"""Measured speed: time per step, the peak of the device, and CPU threads that compete with other programs."""

import time
from collections.abc import Callable

import torch
from transformers import TrainerCallback

_LOW_SHARE = 0.1
"""Share of the peak below which threads are tested; models with narrow layers are below it too."""
_MIN_SPEEDUP = 1.5
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


def thread_advice(share_of_peak: float) -> str | None:
    """Advice if CPU threads compete with those of other programs, so that one thread would be faster.

    A step waits for the slowest thread of every product. The fastest product of `measure_peak` does not, so the share
    is low then; the advice is given only if products on one thread are faster on average.

    Args:
        share_of_peak: operations per second of the training steps, divided by `measure_peak`.
    """
    threads = torch.get_num_threads()
    if threads == 1 or share_of_peak >= _LOW_SHARE:
        return None
    together = _product_seconds()
    torch.set_num_threads(1)
    alone = _product_seconds()
    torch.set_num_threads(threads)
    if together < _MIN_SPEEDUP * alone:
        return None
    return (
        f"training reaches {share_of_peak:.1%} of the speed of this processor: its {threads} threads compete with "
        f"other programs, and products on one thread are {together / alone:.1f} times as fast. Set OMP_NUM_THREADS=1"
    )


def _product_seconds(seconds: float = 0.2) -> float:
    """Mean time of a small matrix product with the current number of threads."""
    factor = torch.ones(256, 256)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        factor @ factor
        count += 1
    return (time.perf_counter() - start) / count
