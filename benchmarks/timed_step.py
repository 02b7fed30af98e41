"""One optimizer step of a model on one batch: its seconds, its memory and its longest kernels."""

import contextlib
import multiprocessing
import re
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile


def process_context(device: str, preloaded: list[str]):
    """How processes start: forked from one that has imported `preloaded`, but CUDA cannot be used in a fork."""
    if device != "cpu":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preloaded)
    return context


class Step:
    """Optimizer steps on `batch`."""

    def __init__(self, model, batch: dict, dtype: torch.dtype, device: str = "cpu"):
        self.device = torch.device(device)
        self.model, self.batch = model.to(self.device).train(), on_device(batch, device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
        half = dtype != torch.float32
        self.autocast = torch.autocast(self.device.type, dtype) if half else contextlib.nullcontext()
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == torch.float16)

    def dropout(self, p: float, of_attention: float | None = None) -> None:
        self.model.config.hidden_dropout_prob = p
        self.model.config.attention_probs_dropout_prob = p if of_attention is None else of_attention
        for name, module in self.model.named_modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = self.model.config.attention_probs_dropout_prob if name.endswith(".self.dropout") else p

    def run(self) -> float:
        """Seconds of a step, without waiting for the device."""
        begun = time.perf_counter()
        with self.autocast:
            loss = self.model(**self.batch).loss
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return time.perf_counter() - begun

    def measure(self, repeats: int) -> tuple[float, float | None]:
        """Mean seconds of a step; on a GPU also the peak of allocated memory in GiB."""
        if self.device.type != "cuda":
            return statistics.mean(self.run() for _ in range(repeats)), None
        torch.cuda.reset_peak_memory_stats()
        self.run()  # allocates memory
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(repeats):
            self.run()
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - begun) / repeats
        return seconds, torch.cuda.max_memory_allocated() / 2**30

    def longest_kernels(self, count: int, steps: int = 3) -> list[tuple[str, float, float, str]]:
        """Name, calls and milliseconds per step, and share of its time; on the CPU of operations."""
        on_gpu = self.device.type == "cuda"
        seconds, _ = self.measure(steps)
        with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]) as seen:
            for _ in range(steps):
                self.run()
            if on_gpu:
                torch.cuda.synchronize()
        found = [
            (event.key, event.count / steps, (event.self_device_time_total if on_gpu else event.self_cpu_time_total))
            for event in seen.key_averages()
            if not on_gpu or (event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation)
        ]
        found = sorted(((name, calls, time / steps / 1e6) for name, calls, time in found), key=lambda x: -x[2])
        longest = [*found[:count], ("all others", *(sum(x[i] for x in found[count:]) for i in (1, 2)))]
        busy = sum(time for *_, time in found)
        longest += [
            ("all", sum(calls for _, calls, _ in found), busy),
            ("the step without the profiler", None, seconds),
        ]
        return [(short_name(name), calls, time * 1e3, f"{time / seconds:.1%}") for name, calls, time in longest]


def short_name(kernel: str) -> str:
    """The name of a kernel without namespaces, of at most 100 characters."""
    return re.sub(r"\bvoid |\(anonymous namespace\)::|\b(at|native|std|c10|cuda)::", "", kernel)[:100]


def on_device(batch: dict, device: str) -> dict:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
