"""Self-attention of a batch: each token attends to its own sequence, by the configured backend.

    attn_implementation    works on                     head sizes      dropout   dtypes   where
    eager                  the grid (reference)         all             yes       all      everywhere
    sdpa                   the grid                     all             yes       all      everywhere
    flex_attention         the tokens, by a BlockMask   from 16         no        all      CUDA
    varlen_attn            the tokens, by cu_seq_lens   8, 16, … 256    yes       half     CUDA, by the package
    flash_attention_2      the tokens, by cu_seq_lens   up to 256       yes       half     CUDA
    flash_attention_3, 4   the tokens, by cu_seq_lens   up to 256       no        half     CUDA

All backends give the same numbers. sdpa replaces a backend that lacks a requested feature, with one warning.
`output_attentions` always uses eager. Other functions of `ALL_ATTENTION_FUNCTIONS` work on the grid.
"""

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .configuration_mybert import MyBertConfig
from .operations_mybert import attend_faster, attend_rows_faster, linears, softmax
from .operations_mybert import dropout as apply_dropout
from .padding_mybert import Layout, RaggedLayout

logger = logging.get_logger(__name__)

# transformers uses the last where only the `kernels` package is installed.
_WITH_DROPOUT = ("varlen_attn", "flash_attention_2", "kernels-community/flash-attn2")
_HEAD_SIZES = {"flex_attention": (16, float("inf"), 1), "varlen_attn": (8, 256, 8)}  # least, greatest, multiple of


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
    """The reference, softmax(query · keyᵀ · scaling) · value: (N, A, L, D) three times, and a mask broadcastable to
    (N, A, L, L), bool (True: attend) or additive → (N, L, A, D), and the probabilities (N, A, L, L) after dropout.
    """
    q, k = query.flatten(0, 1), key.flatten(0, 1)
    if attention_mask is None:
        scores = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scaling)
    else:
        least = torch.finfo(query.dtype).min  # not -inf, which makes NaN of a row that sees nothing
        if attention_mask.dtype == torch.bool:
            bias = query.new_zeros(attention_mask.shape).masked_fill(~attention_mask, least)
        else:
            bias = attention_mask.clamp(min=least).to(query.dtype)
        bias = bias.expand(*query.shape[:2], -1, -1).flatten(0, 1)
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scaling)
    probabilities = softmax(scores).to(query.dtype).unflatten(0, query.shape[:2])
    probabilities = apply_dropout(probabilities, dropout, module.training)
    return (probabilities @ value).transpose(1, 2), probabilities


def works_on_tokens(backend: str) -> bool:
    """Whether `backend` takes ragged tokens; all others take the grid and a mask over its keys."""
    return backend in ("flex_attention", "varlen_attn") or "flash" in backend  # "flash": transformers' own test


def resolve_backend(backend: str, query: Tensor, layout: Layout, dropout: float) -> str:
    """`backend`, or sdpa if it does not support this batch, (…, D) queries or dropout; a warning gives the reason."""
    if not works_on_tokens(backend):
        return backend
    size, (least, greatest, unit) = query.shape[-1], _HEAD_SIZES.get(backend, (1, 256, 1))
    if query.device.type == "cpu":
        reason = "needs a GPU"  # on the CPU flex has no gradients and compiles C++ for seconds for each new shape
    elif backend != "flex_attention" and query.dtype not in (torch.float16, torch.bfloat16):
        reason = f"supports float16 and bfloat16, not {query.dtype}"
    elif not least <= size <= greatest or size % unit:
        reason = f"does not support heads of size {size}"
    elif not isinstance(layout, RaggedLayout):
        reason = "supports no mask except that of padding, no module hooks, no tracing and no export"
    elif dropout and backend not in _WITH_DROPOUT:
        reason = f"has no dropout (attention_probs_dropout_prob is {dropout}; set it to 0 to train with {backend})"
    else:
        return backend
    _warn_once(f"attn_implementation={backend!r} {reason}; using sdpa, which gives the same numbers")
    return "sdpa"


@torch.compiler.assume_constant_result  # warns while compiling instead of breaking the graph
def _warn_once(message: str) -> None:
    logger.warning_once(message)


class MyBertSelfAttention(nn.Module):
    """Multi-head self-attention (Devlin et al. 2019; names as in transformers' BERT)."""

    is_causal = False  # read by transformers' attention functions
    by_products = staticmethod(eager_attention_forward)

    def __init__(self, config: MyBertConfig):
        super().__init__()
        hidden, heads = config.hidden_size, config.num_attention_heads
        if hidden % heads:
            raise ValueError(f"hidden_size ({hidden}) must be a multiple of num_attention_heads ({heads})")
        self.config = config
        self.head_size = hidden // heads
        self.scaling = self.head_size**-0.5
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)

    def forward(
        self, hidden_states: Tensor, layout: Layout, output_attentions: bool = False, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            hidden_states: (T, H), or (B, S, H) in a dense layout.
            output_attentions: return the probabilities, computed by eager.
            rows: (R,) the tokens to compute, ascending; None: all.

        Returns:
            (T, H), (B, S, H), or (R, H) with `rows`; and the probabilities (N, A, L, L) if asked for.
        """
        if rows is not None:
            context = attend_rows_faster(self, hidden_states, layout, rows, self._dropout)
            if context is not None:
                return context, None
        query, key, value = linears((self.query, self.key, self.value), hidden_states)
        context, probabilities = self.attend(query, key, value, layout, output_attentions)
        return context if rows is None else context.index_select(0, rows), probabilities

    @property
    def _dropout(self) -> float:
        return self.config.attention_probs_dropout_prob if self.training else 0.0

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, layout: Layout, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` after the projections."""
        query, key, value = (x.unflatten(-1, (-1, self.head_size)) for x in (query, key, value))
        dropout = self._dropout
        backend = "eager" if output_attentions else self.config._attn_implementation
        backend = resolve_backend(backend, query, layout, dropout)
        if backend == "sdpa" and isinstance(layout, RaggedLayout):
            context = attend_faster(self, query, key, value, layout, dropout)
            if context is not None:
                return context.flatten(-2), None
        interface = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
        compute = self._on_tokens if works_on_tokens(backend) else self._on_grid
        context, probabilities = compute(interface, query, key, value, layout, dropout)
        return context.flatten(-2), probabilities.to(value.dtype) if output_attentions else None

    def _on_grid(self, attend, query, key, value, layout, dropout) -> tuple[Tensor, Tensor | None]:
        """(T, A, D) → (N, A, L, D) → (T, A, D): only this step computes padding."""
        query, key, value = (layout.to_grid(x).transpose(1, 2) for x in (query, key, value))
        context, probabilities = attend(
            self, query, key, value, layout.mask, scaling=self.scaling, dropout=dropout, is_causal=False
        )
        return layout.from_grid(context), probabilities

    def _on_tokens(self, attend, query, key, value, layout, dropout) -> tuple[Tensor, None]:
        """(T, A, D) → (1, A, T, D) → (T, A, D): the backend keeps the sequences apart."""
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        mask = layout.block_mask() if self.config._attn_implementation == "flex_attention" else None
        bounds, longest = layout.cu_seq_lens, layout.grid[1]
        bounds = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}
        context, _ = attend(
            self, query, key, value, mask, scaling=self.scaling, dropout=dropout, is_causal=False, **bounds
        )
        return context.squeeze(0), None
