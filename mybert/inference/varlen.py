"""PyTorch's own variable-length attention as a backend of transformers, `varlen_attn`."""

from typing import Any

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
    cu_seq_lens_k: Tensor,
    max_length_q: int,
    max_length_k: int,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """
    Args:
        query, key, value: (1, A, T, D) in half precision, on CUDA.
        cu_seq_lens_q, cu_seq_lens_k: (N + 1,) int32.
        max_length_q, max_length_k: the longest sequence.

    Returns:
        (1, T, A, D).

    Raises:
        ValueError: a mask or dropout is given, which it does not support.
    """
    if attention_mask is not None or dropout:
        raise ValueError("varlen_attn supports neither masks nor attention dropout: use sdpa, or set dropout to 0")
    from torch.nn.attention.varlen import varlen_attn  # not every torch has it

    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    mixed: Any = varlen_attn(
        query, key, value, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k, scale=scaling
    )
    return mixed[None], None


AttentionInterface.register("varlen_attn", varlen_attention_forward)
