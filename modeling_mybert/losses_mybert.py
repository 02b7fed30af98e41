"""Mean cross-entropy of the heads, normalised over the whole optimizer step."""

import torch
from torch import Tensor, nn

from .cpu_mybert import cross_entropy_in_pieces, is_faster_in_pieces


def mean_cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Cross-entropy summed over labels other than -100, divided by `count`; 0 if nothing is labelled.

    Args:
        logits: (…, C).
        labels: (…), as many as rows of logits.
        count: number of labels in the whole optimizer step; None: in this batch. Dividing the sum of every batch by it
            makes gradient accumulation and data parallelism equal to one big batch.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()
    count = at_least_one((labels != -100).sum() if count is None else count)
    if is_faster_in_pieces(logits):
        return cross_entropy_in_pieces(logits, labels, count, _cross_entropy)
    return _cross_entropy(logits, labels, count)


def _cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int) -> Tensor:
    return nn.functional.cross_entropy(at_least_float32(logits), labels, reduction="sum") / count


def at_least_one(count: Tensor | int) -> Tensor | int:
    """The divisor of a sum over `count` labels; with nothing labelled the loss is 0, not NaN."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32 if it is in half precision, whose sums would be inexact."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
