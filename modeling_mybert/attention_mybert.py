"""Self-attention over a ragged batch: each sequence attends to itself alone, on every backend.

    attn_implementation    works on                     dropout   dtypes         where
    eager                  the grid, the reference      yes       all            everywhere
    sdpa                   the grid                     yes       all            everywhere
    flex_attention         the tokens, by a BlockMask   no        all            CUDA
    varlen_attn            the tokens, by cu_seq_lens   no        half           CUDA
    flash_attention_2      the tokens, by cu_seq_lens   yes       half           CUDA
    flash_attention_3, 4   the tokens, by cu_seq_lens   no        half           CUDA

The numbers are the same on all. What a backend lacks, sdpa computes in its place, and a warning says so once;
`output_attentions` is always computed by eager. Other functions of `ALL_ATTENTION_FUNCTIONS` get the grid. They, and
flex_attention, whose BlockMask is square, are never given fewer queries than keys.
"""

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface
from transformers.utils import logging

from .configuration_mybert import MyBertConfig
from .dropout_mybert import dropout as apply_dropout
from .input_checks_mybert import may_read
from .linear_mybert import linear
from .padding_mybert import KeptTokens, RaggedLayout

logger = logging.get_logger(__name__)

# Scores of a sequence, on average; below, attending to one after the other costs more in calls than in padding.
_WORTH_ALONE = 20_000
# Scores of the grid to those of real tokens; below, padding costs less than new kernels for each length (bfloat16).
_WORTH_PADDING = 4

# The second is what transformers puts in place of the first where only the `kernels` package is installed.
_FLASH_WITH_DROPOUT = ("flash_attention_2", "kernels-community/flash-attn2")


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
    bias = None
    if attention_mask is not None:
        least = torch.finfo(query.dtype).min  # and not -inf: a row that sees nothing would become NaN
        if attention_mask.dtype == torch.bool:
            bias = query.new_zeros(attention_mask.shape).masked_fill(~attention_mask, least)
        else:
            bias = attention_mask.clamp(min=least).to(query.dtype)
        bias = bias.expand(*query.shape[:2], -1, -1).flatten(0, 1)
    scores = _scores(query.flatten(0, 1), key.flatten(0, 1), scaling, bias)
    probabilities = scores.softmax(-1).to(query.dtype).unflatten(0, query.shape[:2])
    probabilities = apply_dropout(probabilities, dropout, module.training)
    return (probabilities @ value).transpose(1, 2), probabilities


def _scores(query: Tensor, key: Tensor, scaling: float, bias: Tensor | None = None) -> Tensor:
    """(A, L, D), (A, K, D) → (A, L, K): product, scaling and mask in one pass over the scores."""
    if bias is None:
        return torch.baddbmm(query.new_zeros(1, 1, 1), query, key.transpose(1, 2), beta=0, alpha=scaling)
    return torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scaling)


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
    **kwargs,
) -> tuple[Tensor, None]:
    """PyTorch's own variable-length attention, as transformers calls a backend.

    Args:
        query, key, value: (1, A, T, D) in half precision, on CUDA.
        cu_seq_lens_q, cu_seq_lens_k: (N + 1,) int32.
        max_length_q, max_length_k: the longest sequence.

    Returns:
        (1, T, A, D).

    Raises:
        ValueError: a mask or dropout is asked for, which it does not have.
    """
    if attention_mask is not None or dropout:
        raise ValueError("varlen_attn has neither masks nor attention dropout: choose sdpa, or set the dropout to 0")
    from torch.nn.attention.varlen import varlen_attn  # here, so that the code loads where torch has none yet

    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    mixed = varlen_attn(query, key, value, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k, scale=scaling)
    return mixed[None], None


AttentionInterface.register("varlen_attn", varlen_attention_forward)


def attend_each(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths_q: list[int],
    lengths_k: list[int],
    scaling: float,
    dropout: float,
    learns: bool,
) -> Tensor:
    """sdpa for the CPU, one sequence after the other: no padding, no mask, and the scores of one fit in its cache.

    Args:
        query: (R, A, D).
        key, value: (T, A, D).
        lengths_q, lengths_k: (N,) queries and keys of each sequence; what comes after them fills a batch up.
        learns: whether gradients will be asked for.

    Returns:
        (R, A, D).
    """
    parts = ((query, lengths_q), (key, lengths_k), (value, lengths_k))
    sequences = (x[: sum(lengths)].transpose(0, 1).split(lengths, dim=1) for x, lengths in parts)
    context = []
    written_out = _written_out(query, dropout, learns)
    for q, k, v in zip(*sequences, strict=True):
        if written_out:
            probabilities = _scores(q, k, scaling).softmax(-1).to(v.dtype)
            mixed = apply_dropout(probabilities, dropout, True) @ v
        else:
            mixed = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], scale=scaling)[0]
        context.append(mixed.transpose(0, 1))
    return torch.cat([*context, query.new_zeros(len(query) - sum(lengths_q), *query.shape[1:])])


def _worth_alone(query: Tensor, lengths_q: list[int], lengths_k: list[int], learns: bool) -> bool:
    """Whether `attend_each` beats the grid on the CPU.

    Products of half precision are compiled for each shape there, 1.5 to 2.5 ms each: lengths that change with every
    batch cost more than padding does, so long as there is little of it.
    """
    scores = query.shape[1] * sum(q * k for q, k in zip(lengths_q, lengths_k, strict=True))
    if scores < _WORTH_ALONE * len(lengths_k):
        return False
    if query.dtype == torch.float32 or not learns:
        return True
    return query.shape[1] * len(lengths_k) * max(lengths_q) * max(lengths_k) > _WORTH_PADDING * scores


def _written_out(query: Tensor, dropout: float, learns: bool) -> bool:
    """Whether plain products beat sdpa on the CPU.

    Its fused kernel there has no dropout, and its gradients in bfloat16 take eight times as long as those of products.
    """
    return dropout > 0 or (learns and query.dtype != torch.float32)


def works_on_tokens(backend: str) -> bool:
    """Whether `backend` takes the ragged tokens as they are; all others get the grid and a mask over its keys."""
    return backend in ("flex_attention", "varlen_attn") or "flash" in backend  # "flash": transformers' own test


def takes_fewer_queries(backend: str) -> bool:
    """Whether `backend` may be given the queries of some tokens and the keys of all."""
    return backend in ("eager", "sdpa") or (works_on_tokens(backend) and backend != "flex_attention")


def able_backend(backend: str, query: Tensor, layout: RaggedLayout, dropout: float) -> str:
    """`backend`, or sdpa when this batch asks for what it cannot do; the first time, a warning says why.

    Args:
        query: (…, D); its dtype, device and D count.
        dropout: the probability with which attention probabilities are dropped.
    """
    if not works_on_tokens(backend):
        return backend
    if query.device.type == "cpu":
        lack = "is not for the CPU"  # flex: no gradients there, and seconds of C++ compiler for each new shape
    elif backend != "flex_attention" and query.dtype not in (torch.float16, torch.bfloat16):
        lack = f"computes in float16 and bfloat16, not in {query.dtype}"
    elif not _fits(backend, query.shape[-1]):
        lack = f"does not compute heads of size {query.shape[-1]}"
    elif not layout.is_ragged:
        lack = "knows no mask but that of padding, and is not traced or exported"
    elif dropout and backend not in _FLASH_WITH_DROPOUT:
        lack = f"has no dropout (attention_probs_dropout_prob is {dropout}; set it to 0 to train with {backend})"
    else:
        return backend
    _warn_once(f"attn_implementation={backend!r} {lack}: sdpa computes this instead, to the same numbers")
    return "sdpa"


def _fits(backend: str, head_size: int) -> bool:
    """The kernels' limits: flex needs tiles of 16, the others whole words of eight, and 256 at most."""
    if backend == "flex_attention":
        return head_size >= 16
    return head_size <= 256 and (head_size % 8 == 0 or "flash" in backend)  # flash attention pads by itself


@torch.compiler.assume_constant_result  # a warning while compiling, in place of a break in the graph
def _warn_once(message: str) -> None:
    logger.warning_once(message)


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
        self,
        hidden_states: Tensor,
        layout: RaggedLayout,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        kept: KeptTokens | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            hidden_states: (T, H).
            output_attentions: compute with the reference, whichever backend is set, since no other has them.
            query_states: (R, H) the tokens that attend to those; None: all of them.
            kept: which these are.

        Returns:
            (R, H), and the probabilities (N, A, L, L) when asked for.
        """
        query_states, query_layout = (hidden_states, layout) if kept is None else (query_states, kept)
        projected = (
            linear(self.query, query_states),
            linear(self.key, hidden_states),
            linear(self.value, hidden_states),
        )
        query, key, value = (x.unflatten(-1, (-1, self.head_size)) for x in projected)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        backend = "eager" if output_attentions else self.config._attn_implementation
        backend = able_backend(backend, query, layout, dropout)
        if backend == "sdpa" and layout.is_ragged and query.device.type == "cpu" and may_read(query, self.training):
            lengths = query_layout.lengths, layout.lengths
            learns = self.training or query.requires_grad  # the same where a checkpointed layer is computed again
            if _worth_alone(query, *lengths, learns):
                return attend_each(query, key, value, *lengths, self.scaling, dropout, learns).flatten(1), None
            backend = "eager" if _written_out(query, dropout, learns) else backend
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
        compute = self._on_tokens if works_on_tokens(backend) else self._on_grid
        context, probabilities = compute(attend, query, key, value, query_layout, layout, dropout)
        return context.flatten(1), probabilities if output_attentions else None

    def _on_grid(self, attend, query, key, value, query_layout, key_layout, dropout) -> tuple[Tensor, Tensor | None]:
        """(R, A, D), (T, A, D) → (N, A, L, D) → (R, A, D): padding comes back for this step alone."""
        query = query_layout.to_grid(query).transpose(1, 2)
        key, value = (key_layout.to_grid(x).transpose(1, 2) for x in (key, value))
        context, probabilities = attend(
            self, query, key, value, key_layout.mask, scaling=self.scaling, dropout=dropout, is_causal=False
        )
        return query_layout.from_grid(context), probabilities

    def _on_tokens(self, attend, query, key, value, query_layout, key_layout, dropout) -> tuple[Tensor, None]:
        """(R, A, D), (T, A, D) → (1, A, R, D) → (R, A, D): the backend keeps sequences apart itself."""
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        context, _ = attend(
            self,
            query,
            key,
            value,
            key_layout.block_mask() if self.config._attn_implementation == "flex_attention" else None,
            scaling=self.scaling,
            dropout=dropout,
            is_causal=False,
            cu_seq_lens_q=query_layout.cu_seq_lens,
            cu_seq_lens_k=key_layout.cu_seq_lens,
            # no sequence has more queries than there are
            max_length_q=key_layout.grid[1] if query_layout is key_layout else query_layout.total,
            max_length_k=key_layout.grid[1],
        )
        return context.squeeze(0), None
