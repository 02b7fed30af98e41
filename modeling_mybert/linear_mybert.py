"""Linear layers in float32, on processors that Intel's library does not serve well.

PyTorch's x86 builds multiply float32 matrices by MKL. On AMD's processors with AVX-512, oneDNN, in the same builds, is
1.2 to 1.5 times as fast, but for gradients of weights (benchmarks/RESULTS.md).
"""

import functools

import torch
from torch import Tensor, nn
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
            x, weight, bias = args if len(args) == 3 else (*args, None)
            fits = weight.dim() == 2 and x.shape[-1:] == weight.shape[1:]  # if not, PyTorch says so
            if fits and all(_is_plain(tensor) for tensor in (x, weight, bias)):
                return _Product.apply(x, weight, bias)
        return function(*args, **(kwargs or {}))


def _is_plain(x: Tensor | None) -> bool:
    """Whether it is stored as it looks: no shard, no quantised weight, nothing empty."""
    if x is None:
        return True
    if type(x) not in (Tensor, nn.Parameter) or x.layout != torch.strided:
        return False
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return getattr(_ONEDNN, _PRODUCT)(x, weight, bias, "none", [None], "")


class _Product(torch.autograd.Function):
    """(…, I), (O, I), (O,) → (…, O)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, len(weight))
        return (
            _Product.apply(gradient, weight.t(), None) if ctx.needs_input_grad[0] else None,
            rows.t() @ x.reshape(len(rows), -1) if ctx.needs_input_grad[1] else None,  # here MKL is as fast
            rows.sum(0) if ctx.needs_input_grad[2] else None,
        )

    @staticmethod
    def jvp(ctx, x_tangent: Tensor | None, weight_tangent: Tensor | None, bias_tangent: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        tangent = x.new_zeros(*x.shape[:-1], len(weight)) if bias_tangent is None else bias_tangent
        if x_tangent is not None:
            tangent = tangent + nn.functional.linear(x_tangent, weight)
        if weight_tangent is not None:
            tangent = tangent + nn.functional.linear(x, weight_tangent)
        return tangent.expand(*x.shape[:-1], len(weight))
