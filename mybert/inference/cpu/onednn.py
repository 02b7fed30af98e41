"""Linear layers in float32 by oneDNN, on AMD processors where PyTorch's MKL is slower.

PyTorch's x86 builds multiply float32 matrices by MKL. On AMD processors with AVX-512, oneDNN in the same builds is 1.2
to 1.5 times as fast, except for gradients of weights (benchmarks/RESULTS.md). The results agree to rounding. oneDNN
compiles a product for each new number of rows, here and in half precision, so numbers of tokens are rounded up.
"""

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mybert.inference.cpu.processor import HALF, cpu_capabilities, is_plain_cpu, may_be_transformed, onednn_is_faster

ROWS = 16
"""Above `_FEW_ROWS`, only multiples of this number go to oneDNN, which compiles a product for each number of rows."""

_FEW_ROWS = 128


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """`module(x)` for an `nn.Linear` or its replacement, (…, in_features) → (…, out_features).

    The module is called as usual, with its hooks, and the products inside are computed by oneDNN where this is faster
    and gives the same derivatives; the module may be an adapter around an `nn.Linear`.
    """
    if not uses_onednn(x.device, x.dtype) or x.numel() < least_rows() * x.shape[-1]:
        return module(x)
    with _LinearByOneDnn():
        return module(x)


def uses_onednn(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `linear` leaves MKL for oneDNN; never inside `torch.backends.mkldnn.flags(enabled=False)`."""
    if not is_plain_cpu(device) or dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    return bool(torch.backends.mkldnn.enabled) and onednn_is_faster()


def least_rows() -> int:
    """With fewer rows, choosing oneDNN costs more time than it saves (measured on Zen 4, and Zen 5 with AVX-VNNI)."""
    return 8 if cpu_capabilities().get("avx_vnni") else _FEW_ROWS


class _LinearByOneDnn(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear and not kwargs:
            return _multiply(*args)
        return func(*args, **(kwargs or {}))


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not _is_supported(x, weight, bias):
        return nn.functional.linear(x, weight, bias)
    return _Product.apply(x, weight, bias) if torch.is_grad_enabled() else _product(x, weight, bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # the operation that torch's own compiler emits
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [None], "")


def _is_supported(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN gives PyTorch's result and derivatives of every kind, with few shapes to compile."""
    if torch.compiler.is_compiling() or may_be_transformed():
        return False
    if not all(tensor is None or _is_plain(tensor) for tensor in (x, weight, bias)):
        return False
    if weight.dim() != 2 or x.shape[-1:] != weight.shape[1:]:  # PyTorch raises the error
        return False
    if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):  # oneDNN ignores strides
        return False
    rows = x.numel() // x.shape[-1]
    return rows <= _FEW_ROWS or rows % ROWS == 0


def _is_plain(x: Tensor) -> bool:
    """Whether it is a non-empty dense float32 tensor on the CPU: no shard, no quantised weight."""
    if type(x) not in (Tensor, nn.Parameter) or x.layout != torch.strided:
        return False
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0


class _Product(torch.autograd.Function):
    """(…, I), (O, I), (O,) → (…, O)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        for_x, for_weight, _ = ctx.needs_input_grad
        ctx.set_materialize_grads(False)  # inputs that no gradient reaches get None, not zeros
        ctx.save_for_backward(x if for_weight else None, weight if for_x else None)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if gradient is None:
            return None, None, None
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        return (
            None if weight is None else _multiply(gradient, weight.t()),
            None if x is None else rows.t() @ x.reshape(len(rows), -1),  # MKL is as fast here
            rows.sum(0) if ctx.needs_input_grad[2] else None,
        )


def round_up(layout: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A `RaggedLayout` with padding tokens at the end, up to a round number of tokens; itself if it gains nothing."""
    if layout.mask is None or not is_plain_cpu(device):
        return layout
    missing = -layout.total % row_multiple(layout.total, device, dtype)
    if not missing:
        return layout
    padding = (~layout.mask).flatten().nonzero().squeeze(1)[:missing]
    rounded = copy.copy(layout)
    rounded.__class__ = _rounded(layout.__class__)
    rounded.real, rounded.made = layout, {}
    rounded.indices = torch.cat([layout.indices, padding])
    return rounded


def row_multiple(total: int, device: torch.device, dtype: torch.dtype) -> int:
    """The number that the `total` rows of a batch are rounded up to a multiple of."""
    half = dtype in HALF or torch.is_autocast_enabled("cpu")
    if not (half or uses_onednn(device, dtype)):
        return 1
    return next((multiple for multiple in (64, 32, 16) if total >= 8 * multiple), 1)


class _Rounded:
    """The real tokens of the layout `real`, then places of its padding. No real token attends to these."""

    real: Any
    total: int

    def to_batch(self, rows: Tensor) -> Tensor:
        return self.real.to_batch(rows[: self.real.total])

    def from_batch(self, batch: Tensor) -> Tensor:
        rows = self.real.from_batch(batch)  # values at padding may be NaN: use zeros instead
        return torch.cat([rows, rows.new_zeros(self.total - len(rows), *rows.shape[1:])])


@functools.cache
def _rounded(layout: type) -> type:
    return type(f"Rounded{layout.__name__}", (_Rounded, layout), {})
