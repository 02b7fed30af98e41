"""Dropout, softmax and cross-entropy: faster ways to compute PyTorch's results, and PyTorch's distribution of dropout.

The thresholds are measured (benchmarks/RESULTS.md).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mybert.inference.cpu.processor import HALF, is_plain_cpu

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
    if dropped == _STEPS or not is_plain_cpu(x.device):
        return nn.functional.dropout(x, p, training)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape).to(x.dtype if x.dtype.itemsize > 2 else torch.float32)
    keep = keep.ge_(dropped - _STEPS // 2).mul_(_STEPS / (_STEPS - dropped))
    return x * keep.to(x.dtype)


def softmax(scores: Tensor) -> Tensor:
    """`scores.softmax(-1)`, by way of float32 where the kernel for half precision is up to five times as slow."""
    if is_plain_cpu(scores.device) and scores.dtype in HALF and scores.shape[-1] % 32:
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(-1)


# Cross-entropy

_PIECE = 1 << 19  # logits whose probabilities fit in the cache


def cross_entropy(
    logits: Tensor, labels: Tensor, count: Tensor | int, plain: Callable[[Tensor, Tensor, Tensor | int], Tensor]
) -> Tensor:
    """`plain(logits, labels, count)`, computed with its gradient for a few rows at a time where this is faster.

    PyTorch's operations hold all logits three more times in float32.

    Args:
        logits: (R, C).
        labels: (R,).
        count: divisor of the summed loss.
        plain: the same by PyTorch's operations, for second derivatives.
    """
    learns = logits.requires_grad and logits.dtype != torch.float16  # float16 needs the loss scaled before rounding
    if is_plain_cpu(logits.device) and learns and logits.numel() > _PIECE:
        return _InPieces.apply(logits, labels, count, plain)
    return plain(logits, labels, count)


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
