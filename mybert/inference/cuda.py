"""Faster operations in half precision on CUDA; the results agree to rounding.

PyTorch's own variable-length attention is a backend of transformers too, `varlen_attn`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from mybert.inference.cpu.processor import HALF, may_be_transformed

_ALIGNED = 64
"""Matrix products are fastest if the number of outputs is a multiple of this."""
_MANY_ROWS = 1024
"""With fewer rows, copying the vocabulary projection takes longer than an aligned product saves."""


def linear(module: Any, x: Tensor) -> Tensor:
    """`module(x)`, (…, in_features) → (…, out_features); an odd number of outputs, as of a vocabulary, is padded."""
    size, dtype = getattr(module, "out_features", 0), _computed_type(x)
    if size % 8 == 0 or x.numel() < _MANY_ROWS * x.shape[-1] or dtype not in HALF or not _is_plain(module):
        return module(x)
    weight = F.pad(module.weight.to(dtype), (0, 0, 0, -size % _ALIGNED))
    bias = None if module.bias is None else F.pad(module.bias.to(dtype), (0, -size % _ALIGNED))
    return F.linear(x, weight, bias)[..., :size]


def linears(modules: Sequence[Any], x: Tensor) -> Sequence[Tensor]:
    """`module(x)` of each, by one product: (…, in_features) → (…, out_features)."""
    if _computed_type(x) not in HALF or not all(_is_plain(module) and module.bias is not None for module in modules):
        return [module(x) for module in modules]
    weight, bias = (torch.cat([getattr(module, name) for module in modules]) for name in ("weight", "bias"))
    return F.linear(x, weight, bias).split([len(module.weight) for module in modules], dim=-1)


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, layout: Any, dropout: float) -> Tensor | None:
    """Attention of the tokens of a ragged layout by `varlen_attn`: (T, A, D) three times → (T, A, D).

    Returns:
        None without padding, where sdpa is faster (cuDNN computes it on newer GPUs), and where flash attention
        supports neither the data type, the GPU nor `torch.func`.
    """
    size = query.shape[-1]  # larger heads have gradients on some GPUs only
    supported = query.dtype in HALF and size % 8 == 0 and size <= 128 and _has_flash(query.device)
    transformed = not torch.compiler.is_compiling() and may_be_transformed()
    if layout.indices is None or not supported or transformed:
        return None
    return _varlen(query, key, value, layout.cu_seq_lens, layout.grid[1], module.scaling, dropout)


def varlen_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    dropout: float = 0.0,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """
    Args:
        query, key, value: (1, A, T, D) in half precision, on CUDA.
        dropout: dropout probability.
        cu_seq_lens_q: (N + 1,) int32, where each sequence starts, and T.
        max_length_q: the longest sequence.

    Returns:
        (1, T, A, D).

    Raises:
        ValueError: a mask is given, which it does not support.
    """
    if attention_mask is not None:
        raise ValueError("varlen_attn supports no masks: use sdpa")
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    return _varlen(query, key, value, cu_seq_lens_q, max_length_q, scaling, dropout)[None], None


AttentionInterface.register("varlen_attn", varlen_attention_forward)


def _varlen(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_lens: Tensor, longest: int, scaling: float, dropout: float
) -> Tensor:
    """Self-attention of the sequences between `cu_seq_lens`, none longer than `longest`: (T, A, D) → (T, A, D)."""
    from torch.nn.attention.varlen import varlen_attn  # not every torch has it

    bounds = cu_seq_lens, cu_seq_lens
    mixed: Any
    if dropout:  # the public function has none; this is the kernel below it
        flash = torch.ops.aten._flash_attention_forward
        mixed = flash(query, key, value, *bounds, longest, longest, dropout, False, False, scale=scaling)[0]
    else:
        mixed = varlen_attn(query, key, value, *bounds, longest, longest, scale=scaling)
    return mixed


@torch.compiler.assume_constant_result
def _has_flash(device: torch.device) -> bool:
    """Whether PyTorch has flash attention for the GPU: NVIDIA's from Ampere on."""
    built = torch.version.hip is None and torch.backends.cuda.is_flash_attention_available()
    return built and torch.cuda.get_device_capability(device) >= (8, 0)


def _computed_type(x: Tensor) -> torch.dtype:
    """The data type of a product with `x`."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def _is_plain(module: Any) -> bool:
    """Whether calling a module does nothing but a product: no adapter, no quantised or sharded weights, no hooks."""
    if type(module) is not nn.Linear or type(module.weight) not in (Tensor, nn.Parameter):
        return False
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return not hooks and "forward" not in vars(module)  # accelerate replaces it to load weights
