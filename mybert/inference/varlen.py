"""PyTorch's own variable-length attention as a backend of transformers, `varlen_attn`."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface


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
    return varlen(query, key, value, cu_seq_lens_q, max_length_q, scaling, dropout)[None], None


def varlen(
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


AttentionInterface.register("varlen_attn", varlen_attention_forward)
