"""What the heads share of their losses: a mean cross-entropy that a vocabulary does not make slow."""

import torch
from torch import Tensor, nn

from .input_checks_mybert import may_read

_PIECE = 1 << 19  # logits whose probabilities a processor's cache holds


def mean_cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Cross-entropy summed over labels other than -100, divided by `count`, else by their number; 0 where none is.

    Args:
        logits: (…, C).
        labels: (…), as many as rows of logits.
        count: how many labels the whole optimizer step has; dividing every batch's sum by it makes gradient
            accumulation and data parallelism equal to one big batch.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()
    count = at_least_one((labels != -100).sum() if count is None else count)
    on_cpu = logits.device.type == "cpu" and may_read(logits, training=True)
    scaled = logits.dtype == torch.float16  # its gradients vanish unless what scales them up comes first
    if on_cpu and not scaled and logits.requires_grad and logits.numel() > _PIECE:
        return _InPieces.apply(logits, labels, count)[0]
    return _whole(logits, labels, count)


def _whole(logits: Tensor, labels: Tensor, count: Tensor | int) -> Tensor:
    return nn.functional.cross_entropy(at_least_float32(logits), labels, reduction="sum") / count


class _InPieces(torch.autograd.Function):
    """Loss and gradient of some rows after the other, on the CPU: all but the gradient stays in its cache.

    torch's own operations keep all logits three more times, in float32.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, labels: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """(R, C), (R,) → the mean, and its gradient (R, C)."""
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
        return total / count, gradient

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        logits, labels, ctx.count = inputs
        ctx.save_for_backward(logits, labels, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # zeros in the place of what nobody asks for

    @staticmethod
    def backward(ctx, slope: Tensor, _: None) -> tuple[Tensor, None, None]:
        logits, labels, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated, and that above is made without a graph
            (gradient,) = torch.autograd.grad(_whole(logits, labels, ctx.count), logits, create_graph=True)
        return gradient * slope, None, None


def at_least_one(count: Tensor | int) -> Tensor | int:
    """What to divide a sum over `count` labels by: with nothing labelled a loss is 0, not NaN."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def at_least_float32(x: Tensor) -> Tensor:
    """`x`, in float32 where it is in half precision, in which sums for a loss would lose too much."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
