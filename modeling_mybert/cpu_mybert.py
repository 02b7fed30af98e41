"""CPU speed: faster ways to compute what `nn.Linear`, dropout, sdpa and cross-entropy compute.

A reader of the model may skip this file: it changes no result beyond rounding, and no distribution of dropout. The
thresholds are measured (benchmarks/RESULTS.md). Other devices, compiled graphs and `torch.func` use PyTorch's own
operations.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .input_checks_mybert import may_be_transformed
from .onednn_mybert import can_prepack, cpu_capabilities, is_faster, least_rows, onednn_linear

_HALF = (torch.bfloat16, torch.float16)
_MEASURED, _MEASURING, _CLEARLY = 256, 0.02, 0.8
"""Products by which types are compared: size, seconds, and what share of the time of float32 is clearly less."""


def _is_plain_cpu(device: torch.device) -> bool:
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return device.type == "cpu" and not tracing and not torch.compiler.is_compiling() and not may_be_transformed()


# Linear layers


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """`module(x)` for an `nn.Linear` or its replacement, (…, in_features) → (…, out_features)."""
    chosen = uses_onednn(x.device, x.dtype) and x.numel() >= least_rows() * x.shape[-1]
    return onednn_linear(module, x) if chosen else module(x)


def uses_onednn(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `linear` leaves MKL for oneDNN; never inside `torch.backends.mkldnn.flags(enabled=False)`."""
    if not _is_plain_cpu(device) or dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    return bool(torch.backends.mkldnn.enabled) and is_faster()


def row_multiple(total: int, device: torch.device, dtype: torch.dtype) -> int:
    """The number that the `total` rows of a batch are rounded up to a multiple of; 1 where rounding gains nothing.

    oneDNN compiles a product for each new number of rows, in half precision and where `uses_onednn`.
    """
    half = dtype in _HALF or torch.is_autocast_enabled("cpu")
    if not _is_plain_cpu(device) or not (half or uses_onednn(device, dtype)):
        return 1
    return next((multiple for multiple in (64, 32, 16) if total >= 8 * multiple), 1)


def has_prepacked_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether weights in oneDNN's own layout are faster than plain ones; they have no derivatives."""
    if not _is_plain_cpu(device) or not torch.backends.mkldnn.enabled or not can_prepack():
        return False
    return uses_onednn(device, dtype) or (dtype == torch.bfloat16 and has_bfloat16_products())


def has_bfloat16_products() -> bool:
    """Whether products in bfloat16 are faster than in float32 on this processor.

    Without instructions for them, or where oneDNN may not use these, they take 3 to 80 times as long.
    """
    is_traced = type(torch.empty(0, device="cpu")) is not Tensor  # computes nothing
    return not is_traced and _bfloat16_is_faster()


@functools.cache
def _bfloat16_is_faster() -> bool:
    """Measured once, by turns, so that other programs slow both down."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        factors = [torch.ones(_MEASURED, _MEASURED, dtype=dtype, device="cpu") for dtype in (torch.float32, _HALF[0])]
        for factor in factors:
            factor @ factor  # compiles the product
        best, end = [math.inf, math.inf], time.perf_counter() + _MEASURING
        while math.inf in best or time.perf_counter() < end:
            for number, factor in enumerate(factors):
                start = time.perf_counter()
                factor @ factor
                best[number] = min(best[number], time.perf_counter() - start)
    return best[1] < _CLEARLY * best[0]


# Dropout

_STEPS = 1 << 16  # 16 bits decide on one value


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`torch.nn.functional.dropout`: each value is zero with probability `p`, else divided by `1 - p`.

    PyTorch draws its random numbers one after the other on the CPU. Here each 64-bit number of the same generator
    decides on four values, at a quarter of the cost. `p` is rounded to a multiple of 2**-16 and values are scaled
    by the rounded value, so that the expectation is exact.
    """
    if not training or p == 0:
        return x
    dropped = round(p * _STEPS)
    if dropped == _STEPS or not _is_plain_cpu(x.device):
        return nn.functional.dropout(x, p, training)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape).to(x.dtype if x.dtype.itemsize > 2 else torch.float32)
    keep = keep.ge_(dropped - _STEPS // 2).mul_(_STEPS / (_STEPS - dropped))
    return x * keep.to(x.dtype)


class MyBertDropout(nn.Dropout):
    """`torch.nn.Dropout` by the function above."""

    def forward(self, input: Tensor) -> Tensor:
        """(…) → (…)."""
        return dropout(input, self.p, self.training)


# Attention


def softmax(scores: Tensor) -> Tensor:
    """`scores.softmax(-1)`, by way of float32 where the kernel for half precision is up to five times as slow."""
    if _is_plain_cpu(scores.device) and scores.dtype in _HALF and scores.shape[-1] % 32:
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(-1)


def eager_on_cpu(dtype: torch.dtype, p: float, learns: bool) -> bool:
    """Whether products are better than the fused kernel, which has no dropout on the CPU.

    In bfloat16, its gradients take eight times as long as those of products. On a processor with AVX-512 BF16 and
    without AMX it takes as long as in float32, and products take two thirds of it or less.

    Args:
        dtype: data type of the queries.
        p: dropout probability.
        learns: whether gradients will be computed.
    """
    if p > 0 or dtype == torch.float32:
        return p > 0
    has = cpu_capabilities()
    return learns or (dtype == torch.bfloat16 and bool(has.get("avx512_bf16")) and not has.get("amx_bf16"))


# Cross-entropy

_PIECE = 1 << 19  # logits whose probabilities fit in the cache


def is_faster_in_pieces(logits: Tensor) -> bool:
    """Whether `cross_entropy_in_pieces` pays. float16 needs the loss scaled before gradients are rounded."""
    learns = logits.requires_grad and logits.dtype != torch.float16
    return _is_plain_cpu(logits.device) and learns and logits.numel() > _PIECE


def cross_entropy_in_pieces(
    logits: Tensor, labels: Tensor, count: Tensor | int, plain: Callable[[Tensor, Tensor, Tensor | int], Tensor]
) -> Tensor:
    """`plain(logits, labels, count)`, computed with its gradient for a few rows at a time.

    PyTorch's operations hold all logits three more times in float32.

    Args:
        logits: (R, C).
        labels: (R,).
        count: divisor of the summed loss.
        plain: the same by PyTorch's operations, for second derivatives.
    """
    return _InPieces.apply(logits, labels, count, plain)


class _InPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, count: Tensor | int, plain: Callable[..., Tensor]) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        total, gradient = logits.new_zeros((), dtype=dtype), torch.empty_like(logits)
        rows = max(1, _PIECE // logits.shape[1])
        for values, slopes, label in zip(*(x.split(rows) for x in (logits, gradient, labels)), strict=True):
            labelled = (label != -100)[:, None]
            own = label[:, None].where(labelled, 0)
            probabilities = values.to(dtype, copy=True)
            probabilities -= probabilities.amax(1, keepdim=True)
            of_label = probabilities.gather(1, own)
            sums = probabilities.exp_().sum(1, keepdim=True)
            total += torch.where(labelled, sums.log() - of_label, 0).sum()
            weight = labelled.to(dtype) / count
            slopes.copy_(probabilities.mul_(weight / sums).scatter_add_(1, own, -weight))
        ctx.save_for_backward(logits, labels, gradient)
        ctx.count, ctx.plain = count, plain
        return total / count

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        logits, labels, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives: the gradient above has no graph
            (gradient,) = torch.autograd.grad(ctx.plain(logits, labels, ctx.count), logits, create_graph=True)
        return gradient * slope, None, None, None
