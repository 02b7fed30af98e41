"""One optimizer step of a model on one batch: seconds, memory, longest kernels, useful work; rates of the device."""

import contextlib
import functools
import re
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from mybert.pretraining.planning.flops_and_memory import ModelCosts

PEAKS = {  # dense FLOP/s in bfloat16 and float16, from NVIDIA's data sheets; the first name that fits
    **{"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "GH200": 989e12},
    **{"B200": 2250e12, "A100": 312e12, "A30": 165e12, "A10": 125e12, "L40S": 362e12, "L40": 181e12, "L4": 121e12},
}


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


def on_device(batch: dict, device: str | torch.device) -> dict:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def useful_flops(lengths: torch.Tensor, config, labelled: int) -> float:
    tokens, squares = int(lengths.sum()), int((lengths**2).sum())
    costs = ModelCosts(config, tokens / len(lengths), squares / tokens, labelled / tokens, has_pairs=True)
    return tokens * costs.flops_per_token


def bare_rate(tokens: int, config, dtype: torch.dtype, device: str = "cpu") -> float:
    """FLOP/s of the matrix products of one layer, as (tokens, in) × (in, out)."""
    hidden, wide = config.hidden_size, config.intermediate_size
    shapes = [(hidden, hidden)] * 4 + [(hidden, wide), (wide, hidden)]
    make = functools.partial(torch.randn, dtype=dtype, device=device)
    operands = [(make(tokens, a), make(a, b)) for a, b in shapes]
    outputs = [torch.empty(tokens, b, dtype=dtype, device=device) for _, b in shapes]
    spent, repeats = [], 1 if device == "cpu" else 20
    for _ in range(4):
        begun = time.perf_counter()
        for (x, y), out in list(zip(operands, outputs, strict=True)) * repeats:
            torch.mm(x, y, out=out)
        if device != "cpu":
            torch.cuda.synchronize()
        spent.append((time.perf_counter() - begun) / repeats)
    return sum(2 * tokens * a * b for a, b in shapes) / statistics.median(spent)


def device_peak(device: str, dtype: torch.dtype) -> float | None:
    """FLOP/s of the GPU by its data sheet; None if it is not known, and for float32."""
    if not device.startswith("cuda") or dtype == torch.float32:
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in PEAKS.items() if re.search(rf"\b{key}\b", name)), None)
