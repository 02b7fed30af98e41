"""What the package `mybert` adds, where it is installed: faster operations, and checks of arguments.

Without it the operations are PyTorch's; the results agree to rounding. Values of arguments are checked where reading
them is free: on the CPU, and on other devices in evaluation only, since reading waits for the device.
"""

from typing import Any

import torch
from torch import Tensor, nn

faster: Any = None
checks: Any = None
try:
    import mybert.inference as package

    if getattr(package, "INTERFACE", None) == 2:  # the package may have another version than this file
        faster, checks = package.faster, package.checks
except ImportError:
    pass


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """`module(x)` for an `nn.Linear` or its replacement, (…, in_features) → (…, out_features)."""
    return module(x) if faster is None else faster.linear(module, x)


def linears(modules: Any, x: Tensor) -> Any:
    """`linear` of each module, by one product where that is faster."""
    return [module(x) for module in modules] if faster is None else faster.linears(modules, x)


def softmax(scores: Tensor) -> Tensor:
    """`scores.softmax(-1)`."""
    return scores.softmax(-1) if faster is None else faster.softmax(scores)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`torch.nn.functional.dropout`."""
    return nn.functional.dropout(x, p, training) if faster is None else faster.dropout(x, p, training)


class MyBertDropout(nn.Dropout):
    """`torch.nn.Dropout` by the function above."""

    def forward(self, input: Tensor) -> Tensor:
        """(…) → (…)."""
        return dropout(input, self.p, self.training)


def mean_cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Cross-entropy summed over labels other than -100, divided by `count`; 0 if nothing is labelled.

    Args:
        logits, labels: (…, C), and (…) as many as its rows.
        count: number of labels in the whole optimizer step; None: in this batch. Dividing the sum of every batch by it
            makes gradient accumulation and data parallelism equal to one big batch.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()
    count = at_least_one((labels != -100).sum() if count is None else count)
    if faster is None:
        return _cross_entropy(logits, labels, count)
    return faster.cross_entropy(logits, labels, count, _cross_entropy)


def _cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int) -> Tensor:
    return nn.functional.cross_entropy(at_least_float32(logits), labels, reduction="sum") / count


def at_least_one(count: Tensor | int) -> Tensor | int:
    """The divisor of a sum over `count` labels; with nothing labelled the loss is 0, not NaN."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32 if it is in half precision, whose sums would be inexact."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def attend_faster(module: nn.Module, *inputs: Any) -> Tensor | None:
    """Attention by the package, with little or no padding: (T, A, D) three times, a ragged layout and a dropout
    probability → (T, A, D). None: PyTorch computes the whole grid."""
    return None if faster is None else faster.attend(module, *inputs)


def attend_rows_faster(module: nn.Module, *inputs: Any) -> Tensor | None:
    """Self-attention by the package: (T, H), layout, (R,) rows, dropout → (R, H). None: all rows are computed."""
    return None if faster is None else faster.attend_rows(module, *inputs)


def round_up(layout: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The `RaggedLayout`, or one with a round number of tokens where kernels are compiled for each number."""
    return layout if faster is None else faster.round_up(layout, device, dtype)


def use_int8(encoder: nn.Module, outliers: int) -> None:
    """Replaces the linear layers of a `MyBertEncoder` by those of an int8 model, with weights yet to be loaded."""
    if faster is None:
        raise ValueError(
            "int8 weights need the package mybert, which is not installed here in the version of this checkpoint; "
            "install it, or use the checkpoint that this one was quantised from"
        )
    faster.use_int8(encoder, outliers)


def can_read_without_sync(tensor: Tensor, training: bool) -> bool:
    """Whether the values of `tensor` can be read without slowing training down; not in graphs and `torch.func`."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if tracing or torch.compiler.is_compiling() or tensor.is_meta:
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:  # inside `torch.func`
        return False
    return tensor.device.type == "cpu" or not training


def check_labels(name: str, labels: Tensor, classes: int, classes_name: str, expected: int, training: bool) -> None:
    """Raises ValueError if the number of labels is not `expected`, or one is neither a class nor -100 (no label)."""
    if checks is not None:
        checks.check_labels(name, labels, classes, classes_name, expected, can_read_without_sync(labels, training))


def check_places(name: str, places: Tensor, bound: int, remedy: str, training: bool) -> None:
    """Raises ValueError if a place lies outside [0, bound)."""
    if checks is not None and can_read_without_sync(places, training):
        checks.check_ids(name, places, bound, "places of the batch", remedy)
