"""Self-attention over a ragged batch: each sequence attends to itself alone, on every backend."""

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_mybert import MyBertConfig
from .padding_mybert import RaggedLayout

# Backends that read cu_seq_lens themselves; all others get the grid and a mask over its keys.
_VARLEN_BACKENDS = ("flash_attention_2", "flash_attention_3", "flash_attention_4")


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """The reference: softmax(query · keyᵀ · scaling) · value, written out.

    Args:
        query, key, value: (N, A, L, D).
        attention_mask: broadcastable to (N, A, L, L); bool (True may be seen) or additive.

    Returns:
        (N, L, A, D) the mixed values, and (N, A, L, L) the probabilities after dropout.
    """
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    probabilities = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    probabilities = nn.functional.dropout(probabilities, dropout, module.training)
    return (probabilities @ value).transpose(1, 2), probabilities


class MyBertSelfAttention(nn.Module):
    """Multi-head self-attention (Devlin et al. 2019; names as in transformers' BERT)."""

    is_causal = False  # read by transformers' attention functions

    def __init__(self, config: MyBertConfig):
        super().__init__()
        if config.hidden_size % config.num_attention_heads:
            raise ValueError(
                f"hidden_size ({config.hidden_size}) must be a multiple of num_attention_heads "
                f"({config.num_attention_heads})"
            )
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self, hidden_states: Tensor, layout: RaggedLayout, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            hidden_states: (T, H).
            output_attentions: compute with the reference, whichever backend is set, since no other has them.

        Returns:
            (T, H), and the probabilities (N, A, L, L) when asked for.
        """
        backend = "eager" if output_attentions else self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        heads = [
            projection(hidden_states).unflatten(-1, (-1, self.head_size))
            for projection in (self.query, self.key, self.value)
        ]
        if backend in _VARLEN_BACKENDS:
            context, _ = attend(
                self,
                *(x.transpose(0, 1)[None] for x in heads),  # (1, A, T, D)
                None,
                scaling=self.scaling,
                dropout=dropout,
                is_causal=False,
                cu_seq_lens_q=layout.cu_seq_lens,
                cu_seq_lens_k=layout.cu_seq_lens,
                max_length_q=layout.grid[1],
                max_length_k=layout.grid[1],
            )
            return context.squeeze(0).flatten(1), None
        query, key, value = (layout.to_grid(x).transpose(1, 2) for x in heads)
        context, probabilities = attend(
            self, query, key, value, layout.mask, scaling=self.scaling, dropout=dropout, is_causal=False
        )
        return layout.from_grid(context).flatten(1), probabilities if output_attentions else None
