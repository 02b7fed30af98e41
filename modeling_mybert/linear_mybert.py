"""Linear layers in float32, on processors that Intel's library does not serve well.

PyTorch's x86 builds multiply float32 matrices by MKL. On AMD's processors with AVX-512, oneDNN, in the same builds, is
1.2 to 1.5 times as fast, but for gradients of weights (benchmarks/RESULTS.md).
"""

import functools

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """`module(x)`, whose product is computed by whichever library is the faster.

    Args:
        module: an `nn.Linear`, or what has taken its place (an adapter, quantised weights); it is called as ever, its
            hooks too.
        x: (…, in_features).

    Returns:
        (…, out_features).
    """
    if not takes_onednn(x.device, x.dtype):
        return module(x)
    with _ByOneDnn():
        return module(x)


def takes_onednn(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products there leave MKL for oneDNN; none does in `torch.backends.mkldnn.flags(enabled=False)`."""
    if device.type != "cpu" or dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    if torch.jit.is_tracing() or torch.compiler.is_compiling():
        return False
    return torch.backends.mkldnn.enabled and _mkl_holds_back()


@functools.cache
def _mkl_holds_back() -> bool:
    has = getattr(torch.cpu, "get_capabilities", dict)()
    measured = "AMD" in has.get("cpu_name", "") and bool(has.get("avx512_f"))
    return measured and torch.backends.mkl.is_available() and hasattr(_ONEDNN, _PRODUCT)


_ONEDNN, _PRODUCT = torch.ops.mkldnn, "_linear_pointwise"  # the one that torch's own compiler emits


class _ByOneDnn(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is nn.functional.linear and not kwargs:
            return _multiply(*args)
        return function(*args, **(kwargs or {}))


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return (_Product.apply if _serves(x, weight, bias) else nn.functional.linear)(x, weight, bias)


def _serves(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN computes what PyTorch would, derivatives of every kind included, and soon has all it compiles."""
    if torch.compiler.is_compiling() or _is_transformed():
        return False
    if not all(tensor is None or _is_plain(tensor) for tensor in (x, weight, bias)):
        return False
    if weight.dim() != 2 or x.shape[-1:] != weight.shape[1:]:  # PyTorch says so
        return False
    if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):  # taken as it lies in memory
        return False
    return x.numel() // x.shape[-1] % ROWS == 0


ROWS = 16
"""oneDNN compiles a product for each new number of rows, and keeps it: multiples of this one alone are sent to it."""


def _is_plain(x: Tensor) -> bool:
    """Whether it is stored as it looks: no shard, no quantised weight, nothing empty."""
    if type(x) not in (Tensor, nn.Parameter) or x.layout != torch.strided:
        return False
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0


def _is_transformed() -> bool:
    """Whether `torch.func` or derivatives forwards are at work, which know PyTorch's own operations best."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


class _Product(torch.autograd.Function):
    """(…, I), (O, I), (O,) → (…, O)."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        for_x, for_weight, _ = ctx.needs_input_grad
        ctx.set_materialize_grads(False)  # what no gradient reaches gets none, not zeros
        ctx.save_for_backward(x if for_weight else None, weight if for_x else None)
        return getattr(_ONEDNN, _PRODUCT)(x, weight, bias, "none", [None], "")

    @staticmethod
    def backward(ctx, gradient: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if gradient is None:
            return None, None, None
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        return (
            None if weight is None else _multiply(gradient, weight.t()),
            None if x is None else rows.t() @ x.reshape(len(rows), -1),  # here MKL is as fast
            rows.sum(0) if ctx.needs_input_grad[2] else None,
        )
